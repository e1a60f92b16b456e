//! Labels, annotations and finalizers, by the names that users see.

/// Label on a Machine: the name of the cluster that it belongs to.
pub const CLUSTER_NAME: &str = "cluster.vitistack.io/cluster-name";

/// Label on every object that an operator creates: the name of the operator.
pub const MANAGED_BY: &str = "vitistack.io/managed-by";

/// Label on every object created for a Machine: the Machine's name.
pub const MACHINE: &str = "vitistack.io/machine";

/// Label on every object created for a Machine: the Machine's namespace, which may differ from that of the
/// object.
pub const MACHINE_NAMESPACE: &str = "vitistack.io/machine-namespace";

/// Annotation on a Machine, and label or tag on its backing machine: the UID that connects the two.
/// On a restored MachineProvider of type simulated: the UID under which its machines are stored.
pub const IDENTITY: &str = "vitistack.io/identity";

/// Annotation on a Machine that has the identity of another Machine: the Machine's own UID confirms the
/// adoption.
pub const ADOPTED: &str = "vitistack.io/adopted";

/// Annotation on a Machine: the provider that it is placed on. See [`crate::Placement`] for its syntax.
pub const PLACEMENT: &str = "vitistack.io/placement";

/// Annotation on a Machine that a Datacenter placed: why it was placed there and not elsewhere, in one
/// sentence.
pub const PLACEMENT_REASON: &str = "vitistack.io/placement-reason";

/// Annotation on a Machine that a Datacenter placed: the zone that was chosen.
pub const ZONE: &str = "vitistack.io/zone";

/// Annotation on a Machine: the providers that could not host it, each as `namespace/name@time`, separated by
/// commas. A provider without enough capacity is followed by another `@` and how much of it was in use.
pub const PASSED_OVER: &str = "vitistack.io/passed-over";

/// Annotation on a Machine of a Datacenter with quotas: what it was admitted with, such as
/// `cpu=4,memory=8Gi,storage=30Gi`. A machine that is to use more keeps what it has until the Datacenter admits
/// it.
pub const ADMITTED: &str = "vitistack.io/admitted";

/// The annotations on a Machine that only operators may write; an admission policy of the cluster enforces
/// it.
pub const OPERATOR_ANNOTATIONS: [&str; 6] =
    [IDENTITY, PLACEMENT, PLACEMENT_REASON, ZONE, PASSED_OVER, ADMITTED];

/// Annotation: `"true"` stops reconciliation of the object.
pub const PAUSED: &str = "vitistack.io/paused";

/// Label on the ConfigMap that describes a released machine: `"true"`.
pub const RELEASED: &str = "vitistack.io/released";

/// Annotation on a Machine: a time. The machine is restarted once whenever the value changes.
pub const RESTART_AT: &str = "vitistack.io/restart-at";

/// Label on a volume of a Machine: the name of the disk.
pub const DISK: &str = "vitistack.io/disk";

/// Annotation on a volume of a Machine: what happens to the volume when it is no longer used.
pub const RECLAIM_POLICY: &str = "vitistack.io/reclaim-policy";

/// Annotation on a backing machine, beside the requested restart: the running instance to be replaced. The
/// restart is pending while that instance exists, and complete once it is gone.
pub const RESTARTED_INSTANCE: &str = "vitistack.io/restarted-instance";

/// Label on every object that stores the state of a simulated provider: the provider that it belongs to.
pub const WORLD: &str = "vitistack.io/world";

/// Label on the records of a simulated provider: records of one generation are deleted together.
pub const WORLD_GENERATION: &str = "vitistack.io/world-generation";

/// Annotation on a MachineProvider: `"true"` makes it the default for Machines without providerRef and
/// datacenterRef.
pub const IS_DEFAULT_PROVIDER: &str = "vitistack.io/is-default-provider";

/// Annotation on the lease of an operator: the namespaces that it watches, separated by commas; absent if it watches all.
pub const WATCHED_NAMESPACES: &str = "vitistack.io/watched-namespaces";

/// Annotation on the target of a reference: the namespaces that may refer to it, separated by commas, or `*`
/// for all.
pub const ALLOW_REFERENCES_FROM: &str = "vitistack.io/allow-references-from";

/// Finalizer on a MachineProvider: removed when no Machine is placed on it anymore.
pub const PROVIDER_IN_USE: &str = "machineprovider.vitistack.io/in-use";

/// The namespace of the platform itself. Its default provider serves every namespace.
pub const SYSTEM_NAMESPACE: &str = "vitistack-system";

/// Finalizer on a Machine: added before anything is created at the provider of its placement, and removed
/// when the backing machine has been observed to be absent.
pub const MACHINE_CLEANUP: &str = "machine.vitistack.io/cleanup";
