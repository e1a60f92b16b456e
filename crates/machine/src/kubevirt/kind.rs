//! The kinds of objects that the backend reads and writes, and helpers for all of them.

use std::sync::Arc;

use kube::{
    ResourceExt,
    core::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use vitistack_clients::kubernetes::Child;
use vitistack_plan::machine::Identity;
use vitistack_types::labels;

use super::{changes::place, foreign_text};
use crate::Target;

/// An object that was read, shared with the cache.
pub type Object = Arc<DynamicObject>;

/// A kind of object in the provider's cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A KubeVirt machine.
    VirtualMachine,
    /// A running machine.
    VirtualMachineInstance,
    /// The configuration of KubeVirt.
    KubeVirt,
    /// A volume.
    PersistentVolumeClaim,
    /// A volume that CDI fills.
    DataVolume,
    /// A class of volumes.
    StorageClass,
    /// A Multus network.
    NetworkAttachmentDefinition,
    /// First-boot configuration.
    Secret,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::VirtualMachine,
        Self::VirtualMachineInstance,
        Self::KubeVirt,
        Self::PersistentVolumeClaim,
        Self::DataVolume,
        Self::StorageClass,
        Self::NetworkAttachmentDefinition,
        Self::Secret,
    ];

    fn parts(self) -> (&'static str, &'static str, &'static str, &'static [&'static str; 1]) {
        match self {
            Self::VirtualMachine => ("kubevirt.io", "v1", "VirtualMachine", &["virtualmachines"]),
            Self::VirtualMachineInstance => {
                ("kubevirt.io", "v1", "VirtualMachineInstance", &["virtualmachineinstances"])
            }
            Self::KubeVirt => ("kubevirt.io", "v1", "KubeVirt", &["kubevirts"]),
            Self::PersistentVolumeClaim => ("", "v1", "PersistentVolumeClaim", &["persistentvolumeclaims"]),
            Self::DataVolume => ("cdi.kubevirt.io", "v1beta1", "DataVolume", &["datavolumes"]),
            Self::StorageClass => ("storage.k8s.io", "v1", "StorageClass", &["storageclasses"]),
            Self::NetworkAttachmentDefinition => {
                ("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition", &["network-attachment-definitions"])
            }
            Self::Secret => ("", "v1", "Secret", &["secrets"]),
        }
    }

    /// Returns the API that serves the kind.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        let (group, version, kind, [plural]) = self.parts();
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    /// Returns the API group.
    #[must_use]
    pub fn group(self) -> &'static str {
        self.parts().0
    }

    /// Returns the API version.
    #[must_use]
    pub fn version(self) -> &'static str {
        self.parts().1
    }

    /// Returns the name of the kind, as users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.parts().2
    }

    /// Returns the plural, as in API paths.
    #[must_use]
    pub fn plural(self) -> &'static str {
        let [plural] = self.parts().3;
        plural
    }

    /// Returns the plural with its group, as in messages about permissions.
    #[must_use]
    pub fn permission(self) -> String {
        let (group, _, _, [plural]) = self.parts();
        if group.is_empty() { (*plural).to_owned() } else { format!("{plural}.{group}") }
    }

    /// Returns the API group and the plural, as in an RBAC rule.
    #[must_use]
    pub fn rule(self) -> (&'static str, &'static [&'static str]) {
        let (group, _, _, plural) = self.parts();
        (group, plural)
    }

    /// Returns the program that serves the kind; none for the kinds of Kubernetes itself.
    #[must_use]
    pub fn installed_by(self) -> Option<&'static str> {
        match self {
            Self::VirtualMachine | Self::VirtualMachineInstance | Self::KubeVirt => Some("KubeVirt"),
            Self::DataVolume => Some("CDI, KubeVirt's Containerized Data Importer,"),
            Self::NetworkAttachmentDefinition => Some("Multus"),
            Self::PersistentVolumeClaim | Self::StorageClass | Self::Secret => None,
        }
    }

    /// Returns the verbs that the backend and its caches use.
    #[must_use]
    pub fn verbs(self) -> &'static [&'static str] {
        match self {
            Self::VirtualMachine | Self::PersistentVolumeClaim | Self::Secret => {
                &["get", "list", "watch", "create", "patch", "delete"]
            }
            Self::VirtualMachineInstance => &["get", "list", "watch", "delete"],
            Self::DataVolume => &["get", "list", "watch", "create", "delete"],
            Self::NetworkAttachmentDefinition => &["get", "list", "watch", "create", "patch"],
            Self::KubeVirt | Self::StorageClass => &["get", "list", "watch"],
        }
    }

    /// Whether objects of the kind are read whatever namespaces the operator works in: storage classes are cluster-scoped,
    /// and KubeVirt's configuration is wherever KubeVirt was installed.
    #[must_use]
    pub fn is_read_in_whole_cluster(self) -> bool {
        matches!(self, Self::StorageClass | Self::KubeVirt)
    }

    /// Returns a desired object of this kind.
    #[must_use]
    pub fn child(self, metadata: ObjectMeta, data: Value) -> Child {
        let resource = self.resource();
        let mut object = DynamicObject::new("", &resource);
        object.metadata = metadata;
        object.data = data;
        Child { resource, object }
    }

    /// Returns an observed object of this kind.
    #[must_use]
    pub fn found(self, object: &Object) -> Child {
        Child { resource: self.resource(), object: DynamicObject::clone(object) }
    }
}

/// Returns the identity of the machine that an object belongs to.
#[must_use]
pub fn identity_of(object: &DynamicObject) -> Option<Identity> {
    object.labels().get(labels::IDENTITY).map(Identity::new)
}

/// Whether an object belongs to the machine of this identity.
#[must_use]
pub fn belongs_to(object: &DynamicObject, identity: &Identity) -> bool {
    object.labels().get(labels::IDENTITY).is_some_and(|found| found == identity.as_str())
}

/// Returns the namespace of the Machine that an object was created for. An object without the label belongs to the
/// namespace it is in, if that can be the namespace of a Machine; in the namespace of a provider it is unknown.
#[must_use]
pub fn made_for<'a>(object: &'a DynamicObject, target: &'a Target) -> Option<&'a str> {
    let labeled = object.labels().get(labels::MACHINE_NAMESPACE).map(String::as_str);
    // The identity is the UID of this Machine, so no other Machine ever had it.
    let is_original = || target.identity.as_str() == target.uid;
    let is_beside = || object.metadata.namespace.as_deref() == Some(&target.namespace);
    labeled.or_else(|| (is_original() || is_beside()).then_some(target.namespace.as_str()))
}

/// Returns a part of an object, or its default: objects of other programs may lack any field.
pub fn part<T: DeserializeOwned + Default>(object: &DynamicObject, pointer: &str) -> T {
    object.data.pointer(pointer).and_then(|value| T::deserialize(value).ok()).unwrap_or_default()
}

/// Returns the object of this name.
#[must_use]
pub fn named<'a>(objects: &'a [Object], name: &str) -> Option<&'a Object> {
    objects.iter().find(|object| object.metadata.name.as_deref() == Some(name))
}

/// Returns the kind and name of an object and the Machine that it seems to belong to.
#[must_use]
pub fn describe(kind: Kind, object: &DynamicObject) -> String {
    let what = format!("{} {}", kind.name(), place(object));
    match object.labels().get(labels::MACHINE) {
        Some(machine) => {
            format!("{what} (created for another Machine named \"{}\")", foreign_text::name(machine))
        }
        None => what,
    }
}
