//! A machine as it is: what a backend found by its identity.

use jiff::Timestamp;
use serde::Serialize;
use vitistack_types::{Size, conditions::reason, labels, v1alpha1::ReclaimPolicy};

use super::{CpuShape, Identity};
use crate::Refusal;

/// Everything that a provider has for one identity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The machine, if there is one with this identity.
    pub machine: Option<ObservedMachine>,
    /// Its volumes, also those that outlived the machine.
    pub disks: Vec<ObservedDisk>,
    /// What is left of a machine that is gone, or was never made, beside its volumes: first-boot configuration and the like,
    /// which holds nothing that a machine wrote. Each in words.
    pub leftovers: Vec<String>,
    /// Something of the right name without our identity: it blocks, and is never touched. Holds what it is.
    pub foreign: Option<String>,
    /// Something that carries the identity and is not of the Machine's namespace: it blocks, is never touched, and is nowhere
    /// else in here.
    pub elsewhere: Option<Elsewhere>,
    /// A task of the provider that is still running, in a sentence; nothing else is begun meanwhile.
    pub task: Option<String>,
    /// What the provider's last task for this identity failed with, in a sentence, until one succeeds. A machine that could
    /// not be made leaves nothing else to be seen.
    pub failure: Option<String>,
    /// What the provider lacks for this machine, each with the fix.
    pub problems: Vec<Problem>,
}

/// Something that carries the identity and was made for a Machine of another namespace. Whoever knows an identity could
/// else have the real machine of somebody else, once its own Machine let it go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// What it is.
    pub thing: String,
    /// The namespace that it was made for; none where it does not say.
    pub namespace: Option<String>,
}

impl Elsewhere {
    /// Why it is not given to a Machine of the namespace `own` that carries its identity.
    #[must_use]
    pub fn refusal(&self, identity: &Identity, own: &str) -> Refusal {
        let thing = &self.thing;
        let carried = format!("the annotation {} says \"{identity}\", and {thing}", labels::IDENTITY);
        let message = match &self.namespace {
            Some(namespace) => format!(
                "{carried} of that identity was made for a Machine in namespace {namespace:?}: restore the Machine there, or make this one without the annotation"
            ),
            None => format!(
                "{carried} of that identity does not say for which namespace it was made: label it {}={own} at the provider if it is this Machine's, or make this one without the annotation",
                labels::MACHINE_NAMESPACE
            ),
        };
        Refusal::new(reason::IDENTITY_HELD, message)
    }
}

/// Something that the provider lacks.
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
    /// The provider's own name or number for it. May be reused by the provider: never act on it without the identity.
    pub id: String,
    /// The running instance's name, where the provider tells machine and instance apart.
    pub instance: Option<String>,
    /// What it is doing.
    pub power: Power,
    /// Processors it was last given; none where the provider does not say.
    pub cpu: Option<CpuShape>,
    /// Memory it was last given; none where the provider does not say.
    pub memory: Option<Size>,
    /// Whether everything written in the Machine, as far as the backend can honour it, was given to the provider.
    pub is_current: bool,
    /// Fields that differ from the spec and can never be changed on this machine.
    pub unchangeable: Vec<String>,
    /// Whether something that was given takes effect only with the next restart.
    pub restart_needed: bool,
    /// When it was last started, as far as known.
    pub started: Option<Timestamp>,
    /// The restart that was last carried out, as the annotation asked for it.
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
    /// On its way up.
    Starting,
    /// Up.
    Running,
    /// On its way down.
    Stopping,
    /// Off.
    Stopped,
    /// It shall run and does not. Holds why, with the fix where there is one.
    Failing(String),
}

/// A volume as the provider has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedDisk {
    /// Name of the disk in the Machine.
    pub name: String,
    /// Size it has; none while it is being made.
    pub size: Option<Size>,
    /// Whether it can be used.
    pub is_ready: bool,
    /// Whether it is attached to the machine.
    pub is_attached: bool,
    /// Whether it provably holds nothing: it never got a place that a machine could have written to.
    pub is_blank: bool,
    /// What becomes of it when it is no longer used, as it was last given to the provider: the Machine's class, which may
    /// have said it, can be gone by then.
    pub reclaim_policy: ReclaimPolicy,
}
