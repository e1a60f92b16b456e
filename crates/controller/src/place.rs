//! Where an object is.

use kube::{Resource, runtime::reflector::ObjectRef};

/// Namespace and name of an object of a known kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The namespace, empty if the kind has none.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Place {
    /// Where an object is.
    #[must_use]
    pub fn of(object: &impl Resource) -> Self {
        let metadata = object.meta();
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }

    /// The object there, as caches know it.
    #[must_use]
    pub fn reference<K: Resource>(&self, resource: K::DynamicType) -> ObjectRef<K> {
        let mut reference = ObjectRef::new_with(&self.name, resource);
        reference.namespace = Some(self.namespace.clone()).filter(|namespace| !namespace.is_empty());
        reference
    }
}
