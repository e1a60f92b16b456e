//! What the runtime itself asks of the Kubernetes API: the source of its part of the generated roles.

pub use vitistack_clients::kubernetes::{Permission, PermissionScope};

/// Exactly what the runtime uses.
pub const PERMISSIONS: &[Permission] = &[
    Permission {
        group: "coordination.k8s.io",
        resources: &["leases"],
        verbs: &["get", "list", "watch", "create", "update"],
        scope: PermissionScope::OwnNamespace,
    },
    Permission {
        group: "events.k8s.io",
        resources: &["events"],
        verbs: &["create"],
        scope: PermissionScope::Namespaces,
    },
    Permission {
        group: "authentication.k8s.io",
        resources: &["tokenreviews"],
        verbs: &["create"],
        scope: PermissionScope::Cluster,
    },
    Permission {
        group: "authorization.k8s.io",
        resources: &["subjectaccessreviews"],
        verbs: &["create"],
        scope: PermissionScope::Cluster,
    },
];
