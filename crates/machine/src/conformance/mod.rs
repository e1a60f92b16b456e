//! The conformance suite: the rules that every machine backend must follow, as executable checks.
//!
//! The tests of a backend implement [`Harness`] and [`Testbed`] for a provider with fault injection, and call [`run`] and
//! [`interleave`]. Nothing is skipped: a testbed without a hook fails the rules that need it. The contract in prose is
//! docs/contracts/machine.md.

mod changes;
mod driver;
mod fields;
mod fixture;
mod interleaving;
mod ownership;
mod refusals;

use std::fmt;

use async_trait::async_trait;
use futures::{StreamExt, future::BoxFuture, stream};
use serde_json::Value;
use snafu::Snafu;
use vitistack_plan::machine::Identity;

use crate::{Backend, BackendError, Target};

pub use fixture::{CLAIM, NAMESPACE, NETWORKS, OTHER_NAMESPACE, STORAGE_CLASS};
pub use interleaving::{Interleaving, interleave};

/// Why a check failed.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub))]
pub enum Failure {
    /// The backend breaks the rule.
    #[snafu(display("{found}"))]
    BreakRule {
        /// What was found and what was expected.
        found: String,
    },
    /// A call failed unexpectedly.
    #[snafu(display("failed to {action}: {source} ({:?})", source.kind))]
    CallBackend {
        /// The call.
        action: String,
        /// The error it returned.
        source: BackendError,
    },
    /// The testbed lacks a hook that the rule needs.
    #[snafu(display("failed to {hook}: the testbed lacks this hook, so the rule cannot be checked"))]
    LackHook {
        /// What the hook does.
        hook: &'static str,
    },
    /// The testbed itself failed.
    #[snafu(display("failed to use the testbed: {problem}"))]
    UseTestbed {
        /// The problem.
        problem: String,
    },
}

/// Starts testbeds.
#[async_trait]
pub trait Harness: Send + Sync {
    /// Returns an empty provider and a backend that talks to it. The provider has the storage class [`STORAGE_CLASS`] in
    /// addition to its default one, the networks [`NETWORKS`], capacity for ten small machines, and a foreign volume
    /// [`CLAIM`] in [`NAMESPACE`].
    async fn testbed(&self) -> Result<Box<dyn Testbed>, Failure>;
}

/// A provider with a backend, direct access to the provider, and fault injection.
#[async_trait]
pub trait Testbed: Send + Sync {
    /// Returns the backend under test.
    fn backend(&self) -> &dyn Backend;

    /// Returns the zones of the provider; at least two if the backend supports zones.
    fn zones(&self) -> Vec<String>;

    /// Returns all machines and volumes, foreign ones too, as read from the provider and not through the backend.
    async fn resources(&self) -> Result<Vec<Resource>, Failure>;

    /// Waits until the provider is idle.
    async fn settle(&self) -> Result<(), Failure>;

    /// Injects a fault, or a change by a third party.
    async fn inject(&self, fault: &Fault) -> Result<(), Failure>;

    /// Kills the backend as in a crash and starts it again.
    async fn restart(&mut self) -> Result<(), Failure>;
}

/// A fault, or a change by a third party.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The next changing request is carried out, but its reply is lost.
    LoseNextReply,
    /// The next task fails, or the next changing request if the provider has no tasks.
    FailNextTask,
    /// Whether the provider is unreachable.
    Unreachable(bool),
    /// Whether the provider rejects the credentials.
    Unauthenticated(bool),
    /// A third party creates a machine with the name of the target.
    ForeignMachine(Target),
    /// A third party creates a volume with the name of the volume of this disk.
    ForeignVolume(Target, String),
    /// A third party replaces the machine of the target with another one that has the same name and ID.
    Replace(Target),
}

/// The kind of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceKind {
    /// A machine.
    Machine,
    /// A volume.
    Volume,
}

/// A machine or volume as the provider itself shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Its kind.
    pub kind: ResourceKind,
    /// The provider's name or ID for it.
    pub id: String,
    /// The identity it carries; none if it is foreign.
    pub identity: Option<Identity>,
    /// The name of the disk, for a volume with an identity.
    pub disk: Option<String>,
    /// Its configuration, without what the provider assigns: IDs, times, addresses, placement.
    pub given: Value,
    /// The configuration in effect: of a machine what it runs with, null while it is stopped; of a volume its state, null
    /// while no running machine uses it if disks change at a restart.
    pub effective: Value,
    /// A value that changes with every start of a machine, and only then.
    pub incarnation: String,
}

type Run = for<'harness> fn(&'harness dyn Harness) -> BoxFuture<'harness, Result<(), Failure>>;

/// The check of one rule.
#[derive(Clone, Copy)]
pub struct Check {
    /// The name of the check.
    pub name: &'static str,
    /// The rule.
    pub rule: &'static str,
    run: Run,
}

impl fmt::Debug for Check {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Check").field(&self.name).finish()
    }
}

macro_rules! checks {
    ($($module:ident :: $name:ident: $rule:literal,)*) => {
        /// All checks.
        pub const CHECKS: &[Check] = &[$(Check {
            name: stringify!($name),
            rule: $rule,
            run: |harness| Box::pin($module::$name(harness)),
        },)*];
    };
}

checks! {
    ownership::create_is_idempotent: "Create creates one machine per identity, however often it is called.",
    ownership::lost_reply_creates_no_duplicate: "After a lost reply to create, the machine is found and not duplicated.",
    ownership::failed_create_can_be_retried: "A failed create can be retried and leaves no duplicates.",
    ownership::failed_task_is_reported: "A failed task is reported, also after a restart, until a task for the same identity succeeds.",
    ownership::backend_restart_loses_nothing: "The backend has no state that is lost when its process ends.",
    ownership::identity_matters_and_not_the_uid: "A restored Machine has another UID and still the same backing machine.",
    ownership::names_are_scoped_to_namespaces: "Two Machines with the same name in different namespaces have different backing machines.",
    ownership::other_namespaces_have_no_access: "What was created for a Machine in one namespace is never given to a Machine in another one, whatever its identity.",
    ownership::replaced_machine_is_not_touched: "A machine with the ID and name of a replaced one, but another identity, is neither changed nor deleted.",
    ownership::delete_of_absent_parts_is_done: "Deleting what does not exist is done immediately.",
    ownership::failed_delete_can_be_retried: "A delete that failed, or whose reply was lost, can be retried.",
    ownership::volumes_are_deleted_only_on_request: "Volumes outlive their machine until their deletion is requested, each by name.",
    ownership::retained_volumes_are_reused: "A recreated machine gets the volumes that carry its identity.",
    ownership::foreign_machine_blocks_creation: "A foreign machine with the same name blocks creation and is never touched.",
    ownership::foreign_volume_blocks_creation: "A foreign volume with the same name blocks creation and is never touched.",
    refusals::observe_changes_nothing: "Observe never changes anything.",
    refusals::unreachable_is_reported: "A provider that does not reply is reported as unreachable, and nothing changes.",
    refusals::unauthenticated_is_reported: "Rejected credentials are reported as such, and nothing changes.",
    refusals::secrets_are_not_printed: "No returned value prints the content of a secret.",
    changes::observation_is_accurate: "Observe reports the actual CPUs, memory and disks with size, state and reclaim policy.",
    changes::capabilities_are_accurate: "Each kind of change takes effect as stated in the capabilities, and a required restart is reported.",
    changes::removed_disk_is_detached_and_retained: "A removed disk is detached, and its volume is retained until its deletion is requested.",
    changes::is_current_follows_the_order: "A machine is current until the order changes, and again after it was updated.",
    changes::failed_update_can_be_retried: "An update that failed, or whose reply was lost, can be retried.",
    changes::power_is_idempotent: "Start and stop act once, and do nothing if the machine is already running or stopped.",
    changes::restart_happens_once: "A restart happens once per request.",
    fields::every_field_is_honored: "Every field is passed to the provider or listed as refused.",
    fields::zones_are_honored: "A machine is placed in the requested zone, and an unknown zone is refused.",
}

/// The results of all checks.
#[derive(Debug)]
pub struct Report {
    /// Each check with its result.
    pub results: Vec<(Check, Result<(), Failure>)>,
}

impl Report {
    /// Whether all checks passed.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.results.iter().all(|(_, result)| result.is_ok())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (check, result) in &self.results {
            match result {
                Ok(()) => writeln!(formatter, "pass  {}", check.name)?,
                Err(failure) => {
                    writeln!(formatter, "FAIL  {}: {}\n      {failure}", check.name, check.rule)?;
                }
            }
        }
        Ok(())
    }
}

/// Runs every check, each on its own testbeds, a few at a time.
pub async fn run(harness: &dyn Harness) -> Report {
    let results = stream::iter(CHECKS).map(|check| async move { (*check, (check.run)(harness).await) });
    Report { results: results.buffered(driver::CONCURRENCY).collect().await }
}
