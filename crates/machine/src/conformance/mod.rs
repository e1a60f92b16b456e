//! The rules that every machine backend keeps, as checks that can be run on any of them.
//!
//! A backend's tests implement [`Harness`] and [`Bench`] for a provider that can be broken on purpose, and run [`run`] and
//! [`interleave`]. Nothing is skipped: a bench that lacks a hook fails the rules that need it. The contract in prose is
//! docs/contracts/machine.md.

mod changes;
mod fields;
mod fixture;
mod interleaving;
mod ownership;
mod refusals;
mod scene;

use std::fmt;

use async_trait::async_trait;
use futures::{StreamExt, future::BoxFuture, stream};
use serde_json::Value;
use snafu::Snafu;
use vitistack_plan::machine::Identity;

use crate::{Backend, BackendError, Target};

pub use fixture::{CLAIM, NAMESPACE, NETWORKS, OTHER_NAMESPACE, STORAGE_CLASS};
pub use interleaving::{Interleaving, interleave};

/// Why a rule was not shown to be kept.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub))]
pub enum Failure {
    /// The rule is broken.
    #[snafu(display("{found}"))]
    BreakRule {
        /// What was found, and what was to be found.
        found: String,
    },
    /// A call failed that had no reason to.
    #[snafu(display("failed to {action}: {source} ({:?})", source.kind))]
    CallBackend {
        /// What was called.
        action: String,
        /// What it answered.
        source: BackendError,
    },
    /// The bench cannot do what the rule needs.
    #[snafu(display(
        "failed to {hook}: the bench lacks this hook, so that the rule cannot be shown to be kept"
    ))]
    LackHook {
        /// What it should be able to do.
        hook: &'static str,
    },
    /// The bench itself failed.
    #[snafu(display("failed to work the bench: {problem}"))]
    WorkBench {
        /// What happened.
        problem: String,
    },
}

/// Sets up backends to be tested.
#[async_trait]
pub trait Harness: Send + Sync {
    /// A provider with nothing of ours in it and a backend that talks to it. It has the storage class [`STORAGE_CLASS`] besides its
    /// default one, the networks [`NETWORKS`], room for ten small machines, and a volume [`CLAIM`] in [`NAMESPACE`] that belongs to somebody else.
    async fn fresh(&self) -> Result<Box<dyn Bench>, Failure>;
}

/// One provider with a backend, and the means to look behind it and to break it.
#[async_trait]
pub trait Bench: Send + Sync {
    /// The backend under test.
    fn backend(&self) -> &dyn Backend;

    /// Zones of the provider; at least two if the backend says that it honours zones.
    fn zones(&self) -> Vec<String>;

    /// Every machine and volume there is, also what is not ours, read from the provider and not through the backend.
    async fn things(&self) -> Result<Vec<Thing>, Failure>;

    /// Lets time pass until the provider has nothing left to do.
    async fn settle(&self) -> Result<(), Failure>;

    /// Breaks something, or does something behind the backend's back.
    async fn inject(&self, fault: &Fault) -> Result<(), Failure>;

    /// Ends the backend as if its process had died, and starts it again.
    async fn restart(&mut self) -> Result<(), Failure>;
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The next changing request is carried out without an answer.
    LoseNextReply,
    /// The next task, or the next changing request where the provider has no tasks, fails.
    FailNextTask,
    /// The provider does not answer, until told otherwise.
    Unreachable(bool),
    /// The provider does not accept the credentials, until told otherwise.
    Unauthenticated(bool),
    /// Somebody else makes a machine where the target's would be.
    ForeignMachine(Target),
    /// Somebody else makes a volume where that of this disk of the target would be.
    ForeignVolume(Target, String),
    /// Somebody deletes the target's machine and makes another that gets the same name and the same number.
    Replace(Target),
}

/// What a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThingKind {
    /// A machine.
    Machine,
    /// A volume.
    Volume,
}

/// A real thing, as somebody at the provider's own console would see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Thing {
    /// What it is.
    pub kind: ThingKind,
    /// The provider's own name or number for it.
    pub id: String,
    /// The identity it carries; none if it is not ours.
    pub identity: Option<Identity>,
    /// Name of the disk, for a volume of ours.
    pub disk: Option<String>,
    /// Everything it was told to be, without what the provider makes up: numbers, times, addresses, placement.
    pub given: Value,
    /// What of it is in effect: for a machine what it runs with and null while it is off, for a volume what it is and, where
    /// disks change with a restart, null while no running machine uses it.
    pub effective: Value,
    /// Changes with every start of a machine, and only then.
    pub incarnation: String,
}

type Run = for<'harness> fn(&'harness dyn Harness) -> BoxFuture<'harness, Result<(), Failure>>;

/// One rule.
#[derive(Clone, Copy)]
pub struct Check {
    /// Name, for lists.
    pub name: &'static str,
    /// The rule in a sentence.
    pub sentence: &'static str,
    run: Run,
}

impl fmt::Debug for Check {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Check").field(&self.name).finish()
    }
}

macro_rules! checks {
    ($($module:ident :: $name:ident: $sentence:literal,)*) => {
        /// Every rule.
        pub const CHECKS: &[Check] = &[$(Check {
            name: stringify!($name),
            sentence: $sentence,
            run: |harness| Box::pin($module::$name(harness)),
        },)*];
    };
}

checks! {
    ownership::create_is_idempotent: "Create makes one machine for an identity, however often it is called.",
    ownership::lost_reply_makes_no_second_machine: "A create that succeeded unheard is found and not repeated.",
    ownership::failed_create_is_made_good: "A create that failed is made good by the next one, and leaves nothing double.",
    ownership::failed_task_is_told: "A task that failed is told, also after a restart, until one for the same identity succeeds.",
    ownership::restart_forgets_nothing: "The backend keeps nothing that the end of its process would lose.",
    ownership::identity_counts_and_not_the_uid: "A Machine that was restored has another UID and still the same machine.",
    ownership::namespaces_keep_names_apart: "Two machines of one name in two namespaces are two machines.",
    ownership::other_namespaces_get_nothing: "What was made for a Machine of one namespace is never given to one of another, whatever identity it carries.",
    ownership::delete_hits_no_other_machine: "A machine that got the number and the name of ours is neither changed nor deleted.",
    ownership::delete_of_what_is_absent_is_done: "What is not there is deleted already.",
    ownership::delete_survives_faults: "A delete whose reply was lost, or that failed, can be asked again.",
    ownership::volumes_go_only_on_request: "Volumes outlive their machine until their deletion is asked for, one by one.",
    ownership::kept_volume_is_used_again: "A machine made anew gets the volumes that carry its identity.",
    ownership::foreign_machine_blocks: "A machine of the right name that is not ours blocks, and is never touched.",
    ownership::foreign_volume_blocks: "A volume of the right name that is not ours blocks, and is never touched.",
    refusals::observe_changes_nothing: "Observing changes nothing, whatever there is to see.",
    refusals::unreachable_is_told: "A provider that does not answer is told as such, and nothing changes.",
    refusals::unauthenticated_is_told: "Credentials that are not accepted are told as such, and nothing changes.",
    refusals::secrets_do_not_print: "Nothing that is returned prints the content of a secret.",
    changes::observation_is_true: "What is observed is what is there: processors, memory, disks with size, state and policy.",
    changes::capabilities_are_honest: "Each kind of change takes effect as the capabilities say, and a restart that is needed is told.",
    changes::removed_disk_is_kept: "A disk that was removed is detached, and its volume stays until its deletion is asked for.",
    changes::current_follows_the_order: "A machine is current until the order changes, and again after it was updated.",
    changes::failed_update_is_made_good: "An update that failed or whose reply was lost can be asked again.",
    changes::power_is_idempotent: "Start and stop do what they say once, and nothing when it is so already.",
    changes::restart_happens_once: "A restart happens once for each request.",
    fields::every_field_is_honoured: "Every field is given to the provider or listed as refused.",
    fields::zones_are_honoured: "A machine is in the zone that was asked for, and an unknown zone is refused.",
}

/// What came of the checks.
#[derive(Debug)]
pub struct Report {
    /// Each rule with what came of it.
    pub results: Vec<(Check, Result<(), Failure>)>,
}

impl Report {
    /// Whether every rule is kept.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.results.iter().all(|(_, result)| result.is_ok())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (check, result) in &self.results {
            match result {
                Ok(()) => writeln!(formatter, "kept    {}", check.name)?,
                Err(failure) => {
                    writeln!(formatter, "BROKEN  {}: {}\n        {failure}", check.name, check.sentence)?;
                }
            }
        }
        Ok(())
    }
}

/// Runs every check, each on fresh benches, a few at a time.
pub async fn run(harness: &dyn Harness) -> Report {
    let tried = stream::iter(CHECKS).map(|check| async move { (*check, (check.run)(harness).await) });
    Report { results: tried.buffered(scene::AT_A_TIME).collect().await }
}
