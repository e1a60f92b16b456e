//! Labels, annotations and finalizers, each in one place and by the name users see.

/// Label on a Machine: the cluster it belongs to.
pub const CLUSTER_NAME: &str = "cluster.vitistack.io/cluster-name";

/// Label on a Machine: the template it was made from.
pub const MACHINE_TEMPLATE: &str = "vitistack.io/machine-template";

/// Label on everything an operator makes: which operator that is.
pub const MANAGED_BY: &str = "vitistack.io/managed-by";

/// Label on everything made for a Machine: the Machine's name.
pub const MACHINE: &str = "vitistack.io/machine";

/// Label on everything made for a Machine: the Machine's namespace, which may be another than that of the object.
pub const MACHINE_NAMESPACE: &str = "vitistack.io/machine-namespace";

/// Annotation on a Machine, and label or tag on the real thing: the UID by which the real thing knows its Machine.
/// On a simulated MachineProvider that was restored: the UID by which its world knows it.
pub const IDENTITY: &str = "vitistack.io/identity";

/// Annotation on a Machine that arrived with the identity of another one: its own UID confirms that the identity is
/// now its own.
pub const ADOPTED: &str = "vitistack.io/adopted";

/// Annotation on a Machine: the provider it was placed on, once decided.
pub const PLACEMENT: &str = "vitistack.io/placement";

/// Annotation on a Machine that a Datacenter placed: why there, and why not elsewhere, in a sentence.
pub const PLACEMENT_REASON: &str = "vitistack.io/placement-reason";

/// Annotation on a Machine that a Datacenter placed: the zone that was chosen.
pub const ZONE: &str = "vitistack.io/zone";

/// Annotation on a Machine: the providers that could not take it, each as `namespace/name@time`, joined by commas; of one that had no room
/// also, after another `@`, how full it was.
pub const PASSED_OVER: &str = "vitistack.io/passed-over";

/// The annotations on a Machine that operators write and nobody else: a policy of the cluster keeps others from it.
pub const OPERATOR_ANNOTATIONS: [&str; 5] = [IDENTITY, PLACEMENT, PLACEMENT_REASON, ZONE, PASSED_OVER];

/// What the placement says of a Machine that was made in the cluster the KubeVirt operator works on, without any
/// MachineProvider.
pub const OWN_CLUSTER: &str = "kubevirt";

/// Annotation: `"true"` stops all action on the object.
pub const PAUSED: &str = "vitistack.io/paused";

/// Label on the ConfigMap that tells of a machine nobody looks after any more: `"true"`.
pub const RELEASED: &str = "vitistack.io/released";

/// Annotation on a Machine: a time; the machine is restarted once when it changes.
pub const RESTART_AT: &str = "vitistack.io/restart-at";

/// Label on a volume made for a Machine: the name of the disk it is.
pub const DISK: &str = "vitistack.io/disk";

/// Annotation on a volume made for a Machine: what becomes of it when it is no longer used.
pub const RECLAIM_POLICY: &str = "vitistack.io/reclaim-policy";

/// Annotation on a real machine, beside the restart that was asked for: the running instance that goes for it. While that
/// instance is there, the restart is still to be done; once it is gone, it was done.
pub const RESTARTED_INSTANCE: &str = "vitistack.io/restarted-instance";

/// Label on every object that a simulated provider's world is kept in: which world that is.
pub const WORLD: &str = "vitistack.io/world";

/// Label on the records of a simulated provider's world: those of one generation are deleted together.
pub const WORLD_GENERATION: &str = "vitistack.io/world-generation";

/// Annotation on a MachineProvider: `"true"` makes it the one for Machines that name neither provider nor datacenter.
pub const IS_DEFAULT_PROVIDER: &str = "vitistack.io/is-default-provider";

/// Annotation on a target: the namespaces, joined by commas, that may refer to it; `*` is all.
pub const ALLOW_REFERENCES_FROM: &str = "vitistack.io/allow-references-from";

/// Finalizer on a MachineProvider: goes when no Machine is placed on it any more.
pub const PROVIDER_IN_USE: &str = "machineprovider.vitistack.io/in-use";

/// The namespace of the platform itself, whose default provider serves every namespace.
pub const SYSTEM_NAMESPACE: &str = "vitistack-system";

/// Finalizer on a Machine: added before anything real is made on the provider of its placement, goes when the real machine was seen to be gone.
pub const MACHINE_CLEANUP: &str = "machine.vitistack.io/cleanup";
