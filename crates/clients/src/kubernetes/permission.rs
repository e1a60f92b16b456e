//! RBAC rules.

/// Where a permission is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermissionScope {
    /// In the namespaces that the operator works in.
    Namespaces,
    /// In the whole cluster: the kind is cluster-scoped, or is read in namespaces that the operator does not work in.
    Cluster,
    /// In the operator's own namespace only.
    OwnNamespace,
}

/// One rule of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Plural resource names.
    pub resources: &'static [&'static str],
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// Where the permission is required.
    pub scope: PermissionScope,
}
