//! Where an object is.

use kube::core::DynamicObject;

/// Namespace and name of an object of a known kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The namespace, empty if the kind has none.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Place {
    /// Where an object is.
    #[must_use]
    pub fn of(object: &DynamicObject) -> Self {
        Self {
            namespace: object.metadata.namespace.clone().unwrap_or_default(),
            name: object.metadata.name.clone().unwrap_or_default(),
        }
    }
}
