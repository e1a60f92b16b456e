//! Names of objects as types: nothing outside this crate splits or joins `namespace/name`.

use std::{convert::Infallible, fmt, str::FromStr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::Resource;
use serde::{Serialize, Serializer};

use crate::{
    ObjectReference,
    v1alpha1::{ProviderReference, ProviderType},
};

/// The namespace and name of an object whose kind is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectName {
    /// The name of an object in a namespace.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The name of a cluster-scoped object.
    pub fn cluster_scoped(name: impl Into<String>) -> Self {
        Self { namespace: String::new(), name: name.into() }
    }

    /// The name of an object.
    #[must_use]
    pub fn of(object: &impl Resource) -> Self {
        Self::from_metadata(object.meta())
    }

    /// The name in an object's metadata.
    #[must_use]
    pub fn from_metadata(metadata: &ObjectMeta) -> Self {
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }

    /// Whether this is the name in an object's metadata. Allocates nothing.
    #[must_use]
    pub fn is_of(&self, metadata: &ObjectMeta) -> bool {
        metadata.namespace.as_deref().unwrap_or_default() == self.namespace
            && metadata.name.as_deref().unwrap_or_default() == self.name
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => formatter.write_str(&self.name),
            namespace => write!(formatter, "{namespace}/{}", self.name),
        }
    }
}

impl FromStr for ObjectName {
    type Err = Infallible;

    /// Reads `namespace/name`, or `name` for a cluster-scoped object.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let (namespace, name) = text.split_once('/').unwrap_or(("", text));
        Ok(Self::new(namespace, name))
    }
}

impl Serialize for ObjectName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl ObjectReference {
    /// The object that a reference from `own_namespace` points to.
    #[must_use]
    pub fn resolve(&self, own_namespace: &str) -> ObjectName {
        ObjectName::new(self.namespace.as_deref().unwrap_or(own_namespace), &self.name)
    }
}

impl ProviderReference {
    /// The MachineProvider that a reference from a Datacenter in `own_namespace` points to.
    #[must_use]
    pub fn resolve(&self, own_namespace: &str) -> ObjectName {
        ObjectName::new(self.namespace.as_deref().unwrap_or(own_namespace), &self.name)
    }
}

/// An object by kind, namespace and name. Prints as `Machine default/web-1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    /// The kind, as in a manifest.
    pub kind: String,
    /// The namespace and name.
    pub name: ObjectName,
}

impl ObjectId {
    /// An object of a kind.
    pub fn new(kind: impl Into<String>, name: ObjectName) -> Self {
        Self { kind: kind.into(), name }
    }

    /// The id of an object.
    #[must_use]
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self::new(K::kind(&()), ObjectName::of(object))
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind, self.name)
    }
}

impl FromStr for ObjectId {
    type Err = InvalidObjectId;

    fn from_str(text: &str) -> Result<Self, InvalidObjectId> {
        let (kind, name) = text.split_once(' ').ok_or_else(|| InvalidObjectId(text.to_owned()))?;
        let Ok(name) = name.parse();
        Ok(Self::new(kind, name))
    }
}

impl Serialize for ObjectId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A text that is not an object id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidObjectId(String);

impl fmt::Display for InvalidObjectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} is not an object id: write it as \"Kind namespace/name\"", self.0)
    }
}

impl std::error::Error for InvalidObjectId {}

/// Where a Machine is placed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Placement {
    /// In the operator's own cluster, without a MachineProvider.
    OwnCluster,
    /// On a MachineProvider.
    Provider(ObjectName),
}

impl Placement {
    /// The MachineProvider, unless the Machine is in the operator's own cluster.
    #[must_use]
    pub fn provider(&self) -> Option<&ObjectName> {
        match self {
            Self::OwnCluster => None,
            Self::Provider(name) => Some(name),
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnCluster => formatter.write_str(ProviderType::OWN_CLUSTER.as_str()),
            Self::Provider(name) => write!(formatter, "{name}"),
        }
    }
}

impl FromStr for Placement {
    type Err = Infallible;

    /// Reads the annotation: `namespace/name`, or the type of provider that the operator's own cluster is.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        if text == ProviderType::OWN_CLUSTER.as_str() {
            return Ok(Self::OwnCluster);
        }
        let Ok(name) = text.parse();
        Ok(Self::Provider(name))
    }
}

impl Serialize for Placement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_print_as_they_are_read() {
        for text in ["default/web-1", "small"] {
            let Ok(name) = text.parse::<ObjectName>();
            assert_eq!(name.to_string(), text);
        }
        let Ok(name) = "infra/rack-one".parse::<ObjectName>();
        assert_eq!(name, ObjectName::new("infra", "rack-one"));
    }

    #[test]
    fn an_object_id_has_a_kind_and_a_name() {
        let id: ObjectId = "Machine default/web-1".parse().unwrap();
        assert_eq!(id, ObjectId::new("Machine", ObjectName::new("default", "web-1")));
        assert_eq!(id.to_string(), "Machine default/web-1");
        let class: ObjectId = "MachineClass small".parse().unwrap();
        assert_eq!(class.name, ObjectName::cluster_scoped("small"));
        assert_eq!(
            "web-1".parse::<ObjectId>().unwrap_err().to_string(),
            "\"web-1\" is not an object id: write it as \"Kind namespace/name\""
        );
    }

    #[test]
    fn the_own_cluster_is_not_a_provider() {
        let Ok(own) = ProviderType::OWN_CLUSTER.as_str().parse::<Placement>();
        assert_eq!((own.provider(), own.to_string().parse()), (None, Ok(Placement::OwnCluster)));
        let Ok(placed) = "infra/rack-one".parse::<Placement>();
        assert_eq!(placed.provider(), Some(&ObjectName::new("infra", "rack-one")));
        assert_eq!(placed.to_string(), "infra/rack-one");
    }

    #[test]
    fn a_reference_without_a_namespace_stays_in_its_own() {
        let reference = ObjectReference { name: "rack".to_owned(), namespace: None };
        assert_eq!(reference.resolve("team-a").to_string(), "team-a/rack");
        let reference = ObjectReference { namespace: Some("infra".to_owned()), ..reference };
        assert_eq!(reference.resolve("team-a").to_string(), "infra/rack");
    }
}
