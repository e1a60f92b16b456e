//! The observed state of a machine: what a backend found by its identity.

use jiff::Timestamp;
use serde::Serialize;
use vitistack_types::{Size, v1alpha1::ReclaimPolicy};

use super::{CpuShape, Identity};
use crate::{Refusal, refusals};

/// Everything that a provider has for one identity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The machine with this identity, if it exists.
    pub machine: Option<ObservedMachine>,
    /// Its volumes, including those that outlived the machine.
    pub disks: Vec<ObservedDisk>,
    /// What is left, besides volumes, of a machine that is gone or was never created: first-boot configuration and the like,
    /// which holds no data of the machine. Each as a description.
    pub leftovers: Vec<String>,
    /// Something of the right name without our identity: it blocks the machine and is never changed. Holds a description.
    pub foreign: Option<String>,
    /// Something that carries the identity and belongs to another namespace: it blocks the machine, is never changed, and
    /// appears nowhere else in here.
    pub elsewhere: Option<Elsewhere>,
    /// A task of the provider that is still running, as a noun phrase that completes "waiting for …"; nothing else is
    /// started meanwhile.
    pub task: Option<String>,
    /// How the provider's last task for this identity failed, in a sentence, until one succeeds. A create that failed
    /// leaves nothing else to observe.
    pub failure: Option<String>,
    /// What the provider lacks for this machine, each with the fix.
    pub problems: Vec<Problem>,
}

/// Something that carries the identity and was created for a Machine of another namespace. Without this check, a user who
/// knows the identity of a released machine could take it over from another namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// What it is.
    pub thing: String,
    /// The namespace that it was created for, if it states one.
    pub namespace: Option<String>,
}

impl Elsewhere {
    /// Why a Machine of the namespace `own` that carries its identity does not get it.
    #[must_use]
    pub fn refusal(&self, identity: &Identity, own: &str) -> Refusal {
        refusals::identity_elsewhere(identity, &self.thing, self.namespace.as_deref(), own)
    }
}

/// Something that the provider lacks for this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It concerns disks.
    Storage(Refusal),
    /// It concerns networks.
    Network(Refusal),
    /// It concerns the machine itself, or the provider.
    Machine(Refusal),
}

impl Problem {
    /// The reason and the sentence.
    #[must_use]
    pub fn refusal(&self) -> &Refusal {
        match self {
            Self::Storage(refusal) | Self::Network(refusal) | Self::Machine(refusal) => refusal,
        }
    }
}

/// A machine as the provider has it.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedMachine {
    /// The provider's own name or number for it. The provider may reuse it: never act on it without the identity.
    pub id: String,
    /// The name of the running instance, where the provider distinguishes machine and instance.
    pub instance: Option<String>,
    /// What it is doing.
    pub power: Power,
    /// The processors it was last given, if the provider reports them.
    pub cpu: Option<CpuShape>,
    /// The memory it was last given, if the provider reports it.
    pub memory: Option<Size>,
    /// Whether the provider has the whole spec, as far as the backend can honor it.
    pub is_current: bool,
    /// Fields that differ from the spec and can never be changed on this machine.
    pub unchangeable: Vec<String>,
    /// Whether a change takes effect only with the next restart.
    pub restart_needed: bool,
    /// When it was last started, if known.
    pub started: Option<Timestamp>,
    /// The restart request that was last carried out, as the annotation spells it.
    pub restarted_for: Option<String>,
    /// Addresses it has.
    pub addresses: Vec<String>,
    /// Node or host it runs on.
    pub node: Option<String>,
    /// Zone it is in.
    pub zone: Option<String>,
}

/// What a machine is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Power {
    /// Starting.
    Starting,
    /// Running.
    Running,
    /// Stopping.
    Stopping,
    /// Stopped.
    Stopped,
    /// It should run and does not. Holds why, with the fix if there is one.
    Failing(String),
}

/// A volume as the provider has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedDisk {
    /// Name of the disk in the Machine.
    pub name: String,
    /// Its size; absent while it is being created.
    pub size: Option<Size>,
    /// Whether it can be used.
    pub is_ready: bool,
    /// Whether it is attached to the machine.
    pub is_attached: bool,
    /// Whether it provably holds no data: no storage was ever assigned that a machine could have written to.
    pub is_blank: bool,
    /// What happens to it when it is no longer used, as it was last given to the provider: the MachineClass that set it may
    /// be gone by then.
    pub reclaim_policy: ReclaimPolicy,
}
