//! The kinds of object that the backend reads and writes, and what it reads out of any of them.

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

use crate::Target;

/// An object as it was read, shared with the cache it may come from.
pub type Object = Arc<DynamicObject>;

/// A kind of object in the provider's cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// KubeVirt's machine.
    VirtualMachine,
    /// A machine that runs.
    VirtualMachineInstance,
    /// KubeVirt's own configuration.
    KubeVirt,
    /// A volume.
    PersistentVolumeClaim,
    /// A volume that CDI fills.
    DataVolume,
    /// What volumes are made from.
    StorageClass,
    /// A network, for Multus.
    NetworkAttachmentDefinition,
    /// First-boot configuration.
    Secret,
}

impl Kind {
    /// All of them, for whoever keeps caches or prints permissions.
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

    /// The API that serves it.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        let (group, version, kind, [plural]) = self.parts();
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    /// The group of the API that serves it.
    #[must_use]
    pub fn group(self) -> &'static str {
        self.parts().0
    }

    /// The version of the API that serves it.
    #[must_use]
    pub fn version(self) -> &'static str {
        self.parts().1
    }

    /// Its name, as users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.parts().2
    }

    /// Its plural, as paths name it.
    #[must_use]
    pub fn plural(self) -> &'static str {
        let [plural] = self.parts().3;
        plural
    }

    /// The plural with its group, as permissions name it.
    #[must_use]
    pub fn permission(self) -> String {
        let (group, _, _, [plural]) = self.parts();
        if group.is_empty() { (*plural).to_owned() } else { format!("{plural}.{group}") }
    }

    /// Its API group and its plural, as a rule of a role takes them.
    #[must_use]
    pub fn rule(self) -> (&'static str, &'static [&'static str]) {
        let (group, _, _, plural) = self.parts();
        (group, plural)
    }

    /// What has to be installed in a cluster that does not serve it.
    #[must_use]
    pub fn installed_by(self) -> Option<&'static str> {
        match self {
            Self::VirtualMachine | Self::VirtualMachineInstance | Self::KubeVirt => Some("KubeVirt"),
            Self::DataVolume => Some("CDI, KubeVirt's Containerized Data Importer,"),
            Self::NetworkAttachmentDefinition => Some("Multus"),
            Self::PersistentVolumeClaim | Self::StorageClass | Self::Secret => None,
        }
    }

    /// The verbs that the backend and its caches use on it, for whoever generates permissions.
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

    /// An object of this kind.
    #[must_use]
    pub fn child(self, metadata: ObjectMeta, data: Value) -> Child {
        let resource = self.resource();
        let mut object = DynamicObject::new("", &resource);
        object.metadata = metadata;
        object.data = data;
        Child { resource, object }
    }

    /// An object of this kind that was read.
    #[must_use]
    pub fn found(self, object: &Object) -> Child {
        Child { resource: self.resource(), object: DynamicObject::clone(object) }
    }
}

/// The identity that an object was stamped with: which machine an event about it concerns.
#[must_use]
pub fn identity_of(object: &DynamicObject) -> Option<Identity> {
    object.labels().get(labels::IDENTITY).map(Identity::new)
}

/// Whether an object was made for this identity.
#[must_use]
pub fn belongs_to(object: &DynamicObject, identity: &Identity) -> bool {
    object.labels().get(labels::IDENTITY).is_some_and(|found| found == identity.as_str())
}

/// The namespace of the Machine that an object was made for. What was made before that was noted is of the namespace that
/// it is in, where that can be a Machine's; in a namespace that a provider names nobody can say any more.
#[must_use]
pub fn made_for<'a>(object: &'a DynamicObject, target: &'a Target) -> Option<&'a str> {
    let noted = object.labels().get(labels::MACHINE_NAMESPACE).map(String::as_str);
    // Nobody else ever had this identity: it is the Machine's own UID.
    let is_original = || target.identity.as_str() == target.uid;
    let is_beside = || object.metadata.namespace.as_deref() == Some(&target.namespace);
    noted.or_else(|| (is_original() || is_beside()).then_some(target.namespace.as_str()))
}

/// A part of an object, or its empty form: what another program wrote may lack anything.
pub fn part<T: DeserializeOwned + Default>(object: &DynamicObject, pointer: &str) -> T {
    object.data.pointer(pointer).and_then(|value| T::deserialize(value).ok()).unwrap_or_default()
}

/// The object of this name.
#[must_use]
pub fn named<'a>(objects: &'a [Object], name: &str) -> Option<&'a Object> {
    objects.iter().find(|object| object.metadata.name.as_deref() == Some(name))
}

/// What an object is, as users look it up, and whose it seems to be.
#[must_use]
pub fn describe(kind: Kind, object: &DynamicObject) -> String {
    let place = object.metadata.namespace.as_deref().unwrap_or_default();
    let what = format!("{} {place}/{}", kind.name(), object.name_any());
    match object.labels().get(labels::MACHINE) {
        Some(machine) => format!("{what} (made for another Machine named {machine:?})"),
        None => what,
    }
}
