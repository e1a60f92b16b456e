//! What the kit itself asks of the Kubernetes API: the source of its part of the generated RBAC.

/// One rule of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Plural resource names.
    pub resources: &'static [&'static str],
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// Whether the right is needed in the operator's own namespace only.
    pub own_namespace_only: bool,
}

/// Exactly what the kit uses.
pub const PERMISSIONS: &[Permission] = &[
    Permission {
        group: "coordination.k8s.io",
        resources: &["leases"],
        verbs: &["get", "list", "watch", "create", "update"],
        own_namespace_only: true,
    },
    Permission {
        group: "events.k8s.io",
        resources: &["events"],
        verbs: &["create"],
        own_namespace_only: false,
    },
    Permission {
        group: "authentication.k8s.io",
        resources: &["tokenreviews"],
        verbs: &["create"],
        own_namespace_only: false,
    },
    Permission {
        group: "authorization.k8s.io",
        resources: &["subjectaccessreviews"],
        verbs: &["create"],
        own_namespace_only: false,
    },
];
