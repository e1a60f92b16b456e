//! How a cache keeps an object that it may hold thousands of.

use std::{borrow::Cow, sync::Arc};

use kube::{
    Resource,
    core::{DynamicObject, DynamicResourceScope, ObjectMeta},
};
use serde::{Deserialize, Deserializer};
use vitistack_machine::kubevirt::{Kind, Object, identity_of, prune};
use vitistack_types::labels;

/// An object as JSON text, parsed whenever somebody looks at it: parsed it would take five to ten times the memory, for as
/// long as it exists. Beside the text stands what every change is asked for.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Without labels: a map for one of them would take more than all the rest.
    metadata: ObjectMeta,
    identity: Option<Box<str>>,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    /// As it came from the cluster.
    New(Box<DynamicObject>),
    /// Without what no reader needs.
    Text(Box<str>),
}

impl Kept {
    /// Takes out what no reader needs, and keeps the rest small.
    pub fn shrink(&mut self, kind: Kind) {
        let Content::New(object) = &mut self.content else { return };
        prune(kind, object);
        // Writing an object into memory cannot fail: its keys are strings.
        let text = serde_json::to_string(object).unwrap_or_default();
        self.content = Content::Text(text.into_boxed_str());
    }

    /// The object. None only if it is not what was kept, which would be a defect here.
    pub fn object(&self) -> Option<Object> {
        match &self.content {
            Content::New(object) => Some(Arc::new(DynamicObject::clone(object))),
            Content::Text(text) => serde_json::from_str(text).ok().map(Arc::new),
        }
    }

    /// Which object it is, at which version and whose: an object without content.
    pub fn outline(&self) -> DynamicObject {
        let identity =
            self.identity.as_deref().map(|identity| (labels::IDENTITY.to_owned(), identity.to_owned()));
        let labels = identity.map(|label| [label].into());
        let metadata = ObjectMeta { labels, ..self.metadata.clone() };
        DynamicObject { types: None, metadata, data: serde_json::Value::Null }
    }
}

impl<'de> Deserialize<'de> for Kept {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = DynamicObject::deserialize(deserializer)?;
        let whole = &object.metadata;
        let identity = identity_of(&object).map(|identity| identity.as_str().into());
        let metadata = ObjectMeta {
            name: whole.name.clone(),
            namespace: whole.namespace.clone(),
            uid: whole.uid.clone(),
            resource_version: whole.resource_version.clone(),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, identity, content: Content::New(Box::new(object)) })
    }
}

impl Resource for Kept {
    /// A word instead of the strings that say the same, which every key of a cache would hold a copy of.
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
    fn what_was_kept_is_what_is_read() {
        let mut kept: Kept = serde_json::from_value(machine()).unwrap();
        kept.shrink(Kind::VirtualMachine);
        assert!(matches!(kept.content, Content::Text(_)));
        assert_eq!(serde_json::to_value(kept.object().unwrap().as_ref()).unwrap(), machine());
    }

    #[test]
    fn the_outline_says_which_object_it_is_and_whose() {
        let kept: Kept = serde_json::from_value(machine()).unwrap();
        let outline = kept.outline();
        assert_eq!(identity_of(&outline).unwrap().as_str(), "one");
        let metadata = outline.metadata;
        assert_eq!(metadata.labels.unwrap().len(), 1);
        assert_eq!((metadata.uid.as_deref(), metadata.resource_version.as_deref()), (Some("a"), Some("7")));
    }
}
