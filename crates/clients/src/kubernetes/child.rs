//! A Kubernetes object that a controller owns, independent of its Rust type.

use std::fmt;

use kube::{
    Api, Client, Resource, ResourceExt,
    core::{ApiResource, DynamicObject, TypeMeta},
};
use serde::Serialize;
use snafu::{ResultExt, Snafu};

/// Why an object could not become a [`Child`].
#[derive(Debug, Snafu)]
pub enum ChildError {
    /// The object cannot be serialized to an object with metadata.
    #[snafu(display("failed to write {kind} {name:?} as JSON: {source}"))]
    WriteObject {
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// The error of the serializer.
        source: serde_json::Error,
    },
}

/// The label that identifies the objects of one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Label key.
    pub key: String,
    /// Label value.
    pub value: String,
}

impl Ownership {
    /// Returns the label `key=value`.
    #[must_use]
    pub fn new(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.into() }
    }

    /// Whether the object carries the label.
    #[must_use]
    pub fn holds(&self, object: &DynamicObject) -> bool {
        object.labels().get(&self.key).is_some_and(|value| *value == self.value)
    }
}

impl fmt::Display for Ownership {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.key, self.value)
    }
}

/// A desired or observed object together with the API that serves it.
#[derive(Clone, Debug)]
pub struct Child {
    /// The API that serves the object.
    pub resource: ApiResource,
    /// The object.
    pub object: DynamicObject,
}

impl Child {
    /// Returns a child from a typed object.
    pub fn from_typed<K>(object: &K) -> Result<Self, ChildError>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let resource = ApiResource::erase::<K>(&());
        let mut dynamic: DynamicObject = serde_json::to_value(object)
            .and_then(serde_json::from_value)
            .with_context(|_| WriteObjectSnafu { kind: resource.kind.clone(), name: object.name_any() })?;
        dynamic.types =
            Some(TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() });
        Ok(Self { resource, object: dynamic })
    }

    /// Returns the API of this object's kind in its namespace.
    #[must_use]
    pub fn api(&self, client: &Client) -> Api<DynamicObject> {
        match self.object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    /// Whether both are the same object by group, kind, namespace and name.
    #[must_use]
    pub fn is_same_object(&self, other: &Self) -> bool {
        self.resource.group == other.resource.group
            && self.resource.kind == other.resource.kind
            && self.object.metadata.namespace == other.object.metadata.namespace
            && self.object.metadata.name == other.object.metadata.name
    }
}

impl fmt::Display for Child {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.object.name_any();
        match self.object.namespace() {
            Some(namespace) => write!(formatter, "{} {namespace}/{name}", self.resource.kind),
            None => write!(formatter, "{} {name}", self.resource.kind),
        }
    }
}
