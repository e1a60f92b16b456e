//! Labels, annotations and finalizers, each in one place and by the name users see.

/// Label on a Machine: the cluster it belongs to.
pub const CLUSTER_NAME: &str = "cluster.vitistack.io/cluster-name";

/// Label on a Machine: the template it was made from.
pub const MACHINE_TEMPLATE: &str = "vitistack.io/machine-template";

/// Label on everything an operator makes: which operator that is.
pub const MANAGED_BY: &str = "vitistack.io/managed-by";

/// Label on everything made for a Machine: the Machine's name.
pub const MACHINE: &str = "vitistack.io/machine";

/// Annotation on a Machine, and label or tag on the real thing: the UID by which the real thing knows its Machine.
pub const IDENTITY: &str = "vitistack.io/identity";

/// Annotation on a Machine that arrived with the identity of another one: its own UID confirms that the identity is
/// now its own.
pub const ADOPTED: &str = "vitistack.io/adopted";

/// Annotation on a Machine: the provider it was placed on, once decided.
pub const PLACEMENT: &str = "vitistack.io/placement";

/// Annotation: `"true"` stops all action on the object.
pub const PAUSED: &str = "vitistack.io/paused";

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

/// Finalizer on a Machine: goes when the real machine was seen to be gone.
pub const MACHINE_CLEANUP: &str = "machine.vitistack.io/cleanup";
