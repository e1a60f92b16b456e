//! The plan for one machine: steps, status, events and when to reconcile again.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use vitistack_types::{
    Event, ObjectName, Outcome, Placement,
    conditions::reason,
    v1alpha1::{Machine, MachineStatus},
};

use super::{
    Capabilities, Desired, Observed, Step, StepResult,
    decide::{Decision, Verdict, decide},
    is_held_by_others, placement,
    status::{deletion_wait, status},
};
use crate::{Plan, Refusal, events};

/// The longest time until something in progress is checked without an event.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// The time until a provider that refused is asked again: a quota that was raised at the provider is not reported.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// How long a deletion waits for the provider before the status reports it.
pub(super) const DELETION_GRACE: SignedDuration = SignedDuration::from_secs(2);

/// Everything that was read of one machine.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// The Machine.
    pub machine: &'a Machine,
    /// Its desired state, or why there is none.
    pub desired: Result<&'a Desired, &'a Refusal>,
    /// What the provider has for it, or why that is not known.
    pub observed: Result<&'a Observed, &'a Refusal>,
    /// What the backend can do; absent if there is no backend.
    pub capabilities: Option<&'a Capabilities>,
    /// Another Machine with the same identity.
    pub twin: Option<&'a ObjectName>,
    /// Where it is, or is to be created; absent if that is not decided.
    pub placement: Option<&'a Placement>,
    /// Whether the provider is being deleted.
    pub provider_deleting: bool,
    /// Whether the provider is paused.
    pub provider_paused: bool,
    /// What the steps of this reconcile ran into.
    pub last: &'a StepResult,
    /// Since when the provider has not answered.
    pub silent_since: Option<Timestamp>,
    /// When a step of a deletion was last carried out, by this process.
    pub last_step_at: Option<Timestamp>,
    /// The time.
    pub now: Timestamp,
}

/// The plan for one machine.
pub type MachinePlan = Plan<Step, MachineStatus>;

/// Plans one machine. Pure, and the only place that decides.
#[must_use]
pub fn plan(snapshot: &Snapshot<'_>) -> MachinePlan {
    let decision = decide(snapshot);
    let status = status(snapshot, &decision);
    report(snapshot, decision, status)
}

/// Plans a Machine that no operator can act on: nothing is done, and the refusal is reported.
#[must_use]
pub fn plan_refused(machine: &Machine, refusal: &Refusal, now: Timestamp) -> MachinePlan {
    let placement = placement(machine);
    let snapshot = Snapshot {
        machine,
        desired: Err(refusal),
        observed: Err(refusal),
        capabilities: None,
        twin: None,
        placement: placement.as_ref(),
        provider_deleting: false,
        provider_paused: false,
        last: &StepResult::default(),
        silent_since: None,
        last_step_at: None,
        now,
    };
    let decision = Decision { steps: Vec::new(), verdict: Verdict::Blocked(refusal.clone()) };
    let status = status(&snapshot, &decision);
    report(&snapshot, decision, status)
}

fn report(snapshot: &Snapshot<'_>, decision: Decision, status: Option<MachineStatus>) -> MachinePlan {
    let before = snapshot.machine.status.as_ref();
    let before = before.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let is_problem = matches!(decision.verdict, Verdict::Failing(_) | Verdict::Unknown(_));
    let events: Vec<Event> =
        status.iter().filter_map(|after| events::of_ready(before, &after.conditions, is_problem)).collect();
    let requeue = requeue(snapshot, &decision);
    Plan { objects: Vec::new(), steps: decision.steps, status, events, requeue }
}

fn requeue(snapshot: &Snapshot<'_>, decision: &Decision) -> Outcome {
    let retry = |refusal: &Refusal, after| Outcome::Retry {
        reason: refusal.reason,
        cause: refusal.message.clone(),
        after,
    };
    // A create without capacity was an attempt too, and is retried.
    let was_attempted = snapshot.last.failure.is_some() || snapshot.last.no_capacity.is_some();
    match &decision.verdict {
        Verdict::Settled | Verdict::Paused => Outcome::Done,
        Verdict::Waiting(what) => Outcome::wait(what, CHECK_INTERVAL),
        // The removal of a finalizer is an event.
        Verdict::Deleting(_) if is_held_by_others(snapshot.machine) => Outcome::Done,
        Verdict::Deleting(what) => Outcome::wait(what, next_deletion_check(snapshot, &decision.steps)),
        Verdict::Unknown(refusal) | Verdict::Failing(refusal) => retry(refusal, None),
        Verdict::Blocked(refusal) if was_attempted => retry(refusal, Some(RETRY_INTERVAL)),
        // A provider that was full before anything was asked of it is checked again; that is not a failure.
        Verdict::Blocked(refusal) if refusal.reason == reason::INSUFFICIENT_RESOURCES => {
            Outcome::wait(format!("capacity at the provider: {}", refusal.message), RETRY_INTERVAL)
        }
        Verdict::Blocked(refusal) => {
            Outcome::Blocked { reason: refusal.reason.to_owned(), fix: refusal.message.clone() }
        }
    }
}

/// A deletion is checked again when the status has to report it.
fn next_deletion_check(snapshot: &Snapshot<'_>, steps: &[Step]) -> Duration {
    // A step that is carried out now begins another wait.
    let waited = if steps.is_empty() { deletion_wait(snapshot) } else { SignedDuration::ZERO };
    if waited >= DELETION_GRACE {
        return CHECK_INTERVAL;
    }
    Duration::try_from(DELETION_GRACE - waited).unwrap_or_default().max(Duration::from_millis(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requeued(refusal: &Refusal, last: &StepResult) -> Outcome {
        let machine = Machine::builder().template("small").build("web", "default").unwrap();
        let snapshot = Snapshot {
            machine: &machine,
            desired: Err(refusal),
            observed: Err(refusal),
            capabilities: None,
            twin: None,
            placement: None,
            provider_deleting: false,
            provider_paused: false,
            last,
            silent_since: None,
            last_step_at: None,
            now: Timestamp::UNIX_EPOCH,
        };
        requeue(&snapshot, &Decision::without_steps(Verdict::Blocked(refusal.clone())))
    }

    #[test]
    fn a_machine_without_capacity_is_checked_again_by_itself() {
        let full = || Refusal::new(reason::INSUFFICIENT_RESOURCES, "full");
        let found_full = requeued(&full(), &StepResult::default());
        assert!(matches!(found_full, Outcome::Wait { after: RETRY_INTERVAL, .. }), "{found_full:?}");

        let attempted = StepResult { no_capacity: Some(full()), ..StepResult::default() };
        let attempted = requeued(&full(), &attempted);
        assert!(matches!(attempted, Outcome::Retry { after: Some(RETRY_INTERVAL), .. }), "{attempted:?}");

        let invalid = requeued(&Refusal::new(reason::INVALID_SPEC, "invalid"), &StepResult::default());
        assert!(matches!(invalid, Outcome::Blocked { .. }), "{invalid:?}");
    }
}
