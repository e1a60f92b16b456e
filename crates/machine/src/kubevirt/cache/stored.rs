//! How a cache stores an object of which there may be thousands.

use std::{borrow::Cow, sync::Arc};

use kube::{
    Resource,
    core::{DynamicObject, DynamicResourceScope, ObjectMeta},
};
use serde::{Deserialize, Deserializer};
use vitistack_plan::machine::Identity;

use super::super::{
    kind::{Kind, Object, identity_of},
    prune::prune,
};

/// An object as JSON text, which is parsed at every read: a parsed object takes five to ten times the memory. What every
/// change needs is stored beside the text.
#[derive(Clone, Debug)]
pub struct StoredObject {
    /// Without labels: a map for one of them would take more memory than everything else here.
    metadata: ObjectMeta,
    identity: Option<Box<str>>,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    /// As received from the cluster.
    New(Box<DynamicObject>),
    /// Without what no reader needs.
    Text(Box<str>),
}

impl StoredObject {
    /// Removes what no reader needs, and stores the rest as text.
    pub fn shrink(&mut self, kind: Kind) {
        let Content::New(object) = &mut self.content else { return };
        prune(kind, object);
        // Serializing to memory cannot fail, because all keys are strings.
        let text = serde_json::to_string(object).unwrap_or_default();
        self.content = Content::Text(text.into_boxed_str());
    }

    /// Returns the object. None only if the text is not what was stored, which would be a bug.
    pub fn object(&self) -> Option<Object> {
        match &self.content {
            Content::New(object) => Some(Arc::new(DynamicObject::clone(object))),
            Content::Text(text) => serde_json::from_str(text).ok().map(Arc::new),
        }
    }

    /// Returns about how many bytes it takes.
    pub fn size(&self) -> usize {
        match &self.content {
            // Never in a cache.
            Content::New(_) => 0,
            Content::Text(text) => text.len(),
        }
    }

    /// Returns the identity of the machine that the object belongs to.
    pub fn identity(&self) -> Option<Identity> {
        self.identity.as_deref().map(Identity::new)
    }
}

impl From<DynamicObject> for StoredObject {
    fn from(object: DynamicObject) -> Self {
        let whole = &object.metadata;
        let identity = identity_of(&object).map(|identity| identity.as_str().into());
        let metadata = ObjectMeta {
            name: whole.name.clone(),
            namespace: whole.namespace.clone(),
            uid: whole.uid.clone(),
            resource_version: whole.resource_version.clone(),
            ..ObjectMeta::default()
        };
        Self { metadata, identity, content: Content::New(Box::new(object)) }
    }
}

impl<'de> Deserialize<'de> for StoredObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DynamicObject::deserialize(deserializer).map(Self::from)
    }
}

impl Resource for StoredObject {
    /// An enum instead of an `ApiResource`, of which every key in a cache would hold a copy.
    type DynamicType = Kind;
    type Scope = DynamicResourceScope;

    fn kind(kind: &Kind) -> Cow<'_, str> {
        kind.name().into()
    }

    fn group(kind: &Kind) -> Cow<'_, str> {
        kind.group().into()
    }

    fn version(kind: &Kind) -> Cow<'_, str> {
        kind.version().into()
    }

    fn plural(kind: &Kind) -> Cow<'_, str> {
        kind.plural().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn machine() -> Value {
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {
                "name": "vm", "namespace": "apps", "uid": "a", "resourceVersion": "7", "generation": 2,
                "labels": { "app": "web", "vitistack.io/identity": "one" },
                "annotations": { "vitistack.io/applied": "print" },
            },
            "spec": { "runStrategy": "Always", "template": { "spec": { "volumes": [{ "name": "root" }] } } },
            "status": { "printableStatus": "Running" },
        })
    }

    #[test]
    fn a_stored_object_is_read_back_unchanged() {
        let mut stored: StoredObject = serde_json::from_value(machine()).unwrap();
        stored.shrink(Kind::VirtualMachine);
        assert!(matches!(stored.content, Content::Text(_)));
        assert_eq!(serde_json::to_value(stored.object().unwrap().as_ref()).unwrap(), machine());
    }

    #[test]
    fn the_identity_and_version_are_known_without_parsing() {
        let stored: StoredObject = serde_json::from_value(machine()).unwrap();
        assert_eq!(stored.identity(), Some(Identity::new("one")));
        let metadata = stored.meta();
        assert_eq!(metadata.labels, None);
        assert_eq!((metadata.uid.as_deref(), metadata.resource_version.as_deref()), (Some("a"), Some("7")));
    }
}
