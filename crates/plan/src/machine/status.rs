//! The status of one machine: conditions, and the phase that follows from them.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use vitistack_types::{
    ObjectReference, Placement, Quantity,
    conditions::{self, reason},
    labels,
    v1alpha1::{GivenResources, MachinePhase, MachineStatus},
};

use super::{
    Desired, Observed, Power, Problem, Snapshot,
    capability::refused_fields,
    decide::{Decision, Verdict},
    identity, is_held_by_others,
    plan::DELETION_GRACE,
};
use crate::{
    Refusal,
    conditions::{Assertion, OF_MACHINES, Owned, assertion, owned, refused},
};

/// How long progress as expected is not worth a write of its own. A create costs two: one when it starts and one when the
/// machine runs; only a slow create is reported step by step.
const PROGRESS_GRACE: SignedDuration = SignedDuration::from_secs(30);

/// How long a deletion that advances step by step is not reported.
const DELETION_STEPS_GRACE: SignedDuration = SignedDuration::from_mins(1);

/// How long a provider may be silent before its machines report it: a watch that breaks is back in a moment.
const SILENCE_GRACE: SignedDuration = SignedDuration::from_secs(10);

/// Returns the status to write after a decision, or nothing if the one that was read still holds.
pub(super) fn status(snapshot: &Snapshot<'_>, decision: &Decision) -> Option<MachineStatus> {
    let machine = snapshot.machine;
    let verdict = &decision.verdict;
    let before = before(snapshot);
    if is_short_silence(snapshot, verdict) {
        return None;
    }

    let mut after = match snapshot.observed {
        Ok(observed) => mirrored(&before, observed),
        // Unknown is not absent: what was last observed stays, and the Ready condition says since when.
        Err(_) => before.clone(),
    };
    if let (Ok(desired), Ok(Observed { machine: Some(_), .. })) = (snapshot.desired, snapshot.observed) {
        after.resources = Some(given(desired));
    }
    after.observed_generation = machine.metadata.generation;
    after.conditions = conditions_of(snapshot, verdict);
    after.phase = match (snapshot.observed, before.phase) {
        (Err(_), Some(phase)) => Some(phase),
        (observed, _) => Some(phase(verdict, observed.ok())),
    };
    after.identity = Some(identity(machine).as_str().to_owned());
    after.provider = snapshot.placement.map(provider_reference);

    // The version of the spec that was last acted on moves with the generation, not with our own status writes.
    if before.observed_generation != after.observed_generation || before.resource_version.is_none() {
        after.resource_version.clone_from(&machine.metadata.resource_version);
    }

    let is_unchanged = machine.status.is_some() && after == before;
    if is_unchanged || is_expected_progress(snapshot, decision, &before, &after) {
        return None;
    }
    Some(MachineStatus { last_updated: Some(Time(snapshot.now)), ..after })
}

/// The status that was read, with the conditions that the operators own.
fn before(snapshot: &Snapshot<'_>) -> MachineStatus {
    let before = snapshot.machine.status.clone().unwrap_or_default();
    MachineStatus { conditions: owned(&before.conditions, OF_MACHINES), ..before }
}

fn provider_reference(placement: &Placement) -> ObjectReference {
    match placement.provider() {
        Some(name) => ObjectReference { name: name.name.clone(), namespace: Some(name.namespace.clone()) },
        None => ObjectReference { name: placement.to_string(), namespace: None },
    }
}

/// What a machine is given in total.
fn given(desired: &Desired) -> GivenResources {
    let storage = desired.disks.iter().fold(0, |sum: u64, disk| sum.saturating_add(disk.size.bytes()));
    GivenResources {
        cpu: desired.cpu.total(),
        memory: Quantity::from_units(desired.memory.bytes()),
        storage: Quantity::from_units(storage),
    }
}

/// The fields that mirror the backing machine.
fn mirrored(before: &MachineStatus, observed: &Observed) -> MachineStatus {
    let backing = observed.machine.as_ref();
    MachineStatus {
        vm_name: backing.map(|backing| backing.id.clone()),
        vmi_name: backing.and_then(|backing| backing.instance.clone()),
        ip_addresses: backing.map(|backing| backing.addresses.clone()).unwrap_or_default(),
        node_name: backing.and_then(|backing| backing.node.clone()),
        ..before.clone()
    }
}

/// Whether the provider has been silent for too short a time to report it.
fn is_short_silence(snapshot: &Snapshot<'_>, verdict: &Verdict) -> bool {
    let silence = snapshot.silent_since.map(|since| snapshot.now.duration_since(since));
    matches!(verdict, Verdict::Unknown(_))
        && snapshot.machine.status.is_some()
        && !is_deletion_slow(snapshot)
        && silence.is_none_or(|silence| silence < SILENCE_GRACE)
}

/// Whether a deletion takes so long that the status has to report it.
fn is_deletion_slow(snapshot: &Snapshot<'_>) -> bool {
    deletion_wait(snapshot) >= DELETION_GRACE || deletion_age(snapshot) >= DELETION_STEPS_GRACE
}

/// How long a deletion has been waiting for the provider: since the request, or since the last step.
pub(super) fn deletion_wait(snapshot: &Snapshot<'_>) -> SignedDuration {
    let age = deletion_age(snapshot);
    snapshot.last_step_at.map_or(age, |step| age.min(snapshot.now.duration_since(step)))
}

/// How long ago the deletion was requested; zero if it was not.
fn deletion_age(snapshot: &Snapshot<'_>) -> SignedDuration {
    let since = snapshot.machine.metadata.deletion_timestamp.as_ref();
    since.map(|since| snapshot.now.duration_since(since.0)).unwrap_or_default()
}

/// Whether the new status only reports progress as expected.
fn is_expected_progress(
    snapshot: &Snapshot<'_>,
    decision: &Decision,
    before: &MachineStatus,
    after: &MachineStatus,
) -> bool {
    let is_recent = before
        .last_updated
        .as_ref()
        .is_some_and(|since| snapshot.now.duration_since(since.0) < PROGRESS_GRACE);
    match &decision.verdict {
        // A Machine that only foreign finalizers hold must not look as if it ran until they are removed.
        Verdict::Deleting(_) if is_held_by_others(snapshot.machine) => false,
        // A slow deletion is reported once, and then step by step only if it takes long.
        Verdict::Deleting(_) => {
            let is_reported = ready_state(before) == ready_state(after) && is_recent;
            // The wait ends with the steps that are carried out now.
            let is_slow = if decision.steps.is_empty() {
                is_deletion_slow(snapshot)
            } else {
                deletion_age(snapshot) >= DELETION_STEPS_GRACE
            };
            is_reported || !is_slow
        }
        Verdict::Waiting(_) | Verdict::Failing(_) => {
            // A retry after a failure creates a machine and deletes it again: a changed phase is expected then.
            let is_failing = matches!(decision.verdict, Verdict::Failing(_));
            (before.phase == after.phase || is_failing)
                && before.observed_generation == after.observed_generation
                && ready_state(before) == ready_state(after)
                && is_recent
        }
        _ => false,
    }
}

/// The status and reason of the Ready condition.
fn ready_state(status: &MachineStatus) -> Option<(&str, &str)> {
    let ready = conditions::find(&status.conditions, conditions::READY)?;
    Some((ready.status.as_str(), ready.reason.as_str()))
}

fn conditions_of(snapshot: &Snapshot<'_>, verdict: &Verdict) -> Vec<Condition> {
    let machine = snapshot.machine;
    let existing = machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let mut conditions = Owned::new(existing, OF_MACHINES, machine.metadata.generation, snapshot.now);
    conditions.set(conditions::READY, ready(snapshot, verdict));

    let is_deleting = match verdict {
        Verdict::Deleting(_) => true,
        Verdict::Failing(_) => machine.metadata.deletion_timestamp.is_some(),
        _ => false,
    };
    if let (Ok(observed), false) = (snapshot.observed, is_deleting) {
        conditions.set(conditions::VIRTUAL_MACHINE_READY, virtual_machine(observed));
        if let Ok(desired) = snapshot.desired {
            conditions.set(conditions::STORAGE_READY, storage(desired, observed));
            conditions.set(conditions::NETWORK_READY, network(desired, observed));
        }
        let refused_fields = refused_fields(snapshot);
        if observed.machine.is_some() || !refused_fields.is_empty() {
            conditions.set(conditions::UP_TO_DATE, up_to_date(observed, &refused_fields));
        }
    }

    // Nothing is left that the others could describe.
    if is_held_by_others(machine) {
        conditions.retain(|type_| type_ == conditions::READY);
    }
    let paused = (*verdict == Verdict::Paused).then(paused);
    conditions.set_or_remove(conditions::PAUSED, paused);
    conditions.into_vec()
}

/// The Paused condition of a Machine.
pub(crate) fn paused() -> Assertion {
    assertion(true, reason::PAUSED, format!("Reconciliation is paused by the annotation {}", labels::PAUSED))
}

/// The Ready condition of a paused Machine.
pub(crate) fn not_ready_while_paused() -> Assertion {
    assertion(
        false,
        reason::PAUSED,
        format!("Reconciliation is paused: remove the annotation {} to resume it", labels::PAUSED),
    )
}

fn ready(snapshot: &Snapshot<'_>, verdict: &Verdict) -> Assertion {
    let is_deleting = snapshot.machine.metadata.deletion_timestamp.is_some();
    match verdict {
        Verdict::Settled => {
            let backing = snapshot.observed.ok().and_then(|observed| observed.machine.as_ref());
            if backing.is_some_and(|backing| backing.power == Power::Stopped) {
                assertion(true, reason::STOPPED, "The machine is stopped, as specified")
            } else {
                assertion(true, reason::RUNNING, "The machine is running")
            }
        }
        Verdict::Waiting(what) => {
            let existed = snapshot.machine.status.as_ref().is_some_and(has_existed);
            let reason = if existed { reason::UPDATING } else { reason::CREATING };
            assertion(false, reason, format!("Waiting for {what}"))
        }
        Verdict::Failing(refusal) | Verdict::Unknown(refusal) if is_deleting => {
            assertion(false, reason::DELETING, format!("Failed to delete the machine: {}", refusal.message))
        }
        Verdict::Failing(refusal) | Verdict::Unknown(refusal) | Verdict::Blocked(refusal) => refused(refusal),
        Verdict::Paused => not_ready_while_paused(),
        Verdict::Deleting(what) if is_held_by_others(snapshot.machine) => {
            let message = format!("The machine has been deleted; waiting for {what}");
            assertion(false, reason::DELETING, message)
        }
        Verdict::Deleting(what) => assertion(false, reason::DELETING, format!("Waiting for {what}")),
    }
}

/// Whether the machine existed before: it is being created until it ran once, and a later start is an update.
fn has_existed(before: &MachineStatus) -> bool {
    let ready = conditions::find(&before.conditions, conditions::READY);
    conditions::is_true(&before.conditions, conditions::VIRTUAL_MACHINE_READY)
        || ready.is_some_and(|ready| ready.reason == reason::UPDATING)
}

/// The first problem of a kind.
fn problem(observed: &Observed, pick: impl Fn(&Problem) -> Option<&Refusal>) -> Option<&Refusal> {
    observed.problems.iter().find_map(pick)
}

fn virtual_machine(observed: &Observed) -> Assertion {
    let problem = problem(observed, |problem| match problem {
        Problem::Machine(refusal) => Some(refusal),
        _ => None,
    });
    match (&observed.machine, problem) {
        (Some(backing), _) => match &backing.power {
            Power::Failing(why) => assertion(false, reason::VM_FAILED, why.clone()),
            Power::Running | Power::Stopped => {
                assertion(true, reason::VM_CREATED, format!("VM {} exists", backing.id))
            }
            Power::Starting => assertion(false, reason::STARTING, format!("VM {} is starting", backing.id)),
            Power::Stopping => assertion(false, reason::STARTING, format!("VM {} is stopping", backing.id)),
        },
        (None, Some(refusal)) => refused(refusal),
        (None, None) => match &observed.failure {
            Some(failure) => assertion(false, reason::VM_FAILED, failure.clone()),
            None => assertion(false, reason::CREATING, "The VM does not exist yet"),
        },
    }
}

fn storage(desired: &Desired, observed: &Observed) -> Assertion {
    let problem = problem(observed, |problem| match problem {
        Problem::Storage(refusal) => Some(refusal),
        _ => None,
    });
    if let Some(refusal) = problem {
        return refused(refusal);
    }

    let is_ready = |name: &str| observed.disks.iter().any(|disk| disk.name == name && disk.is_ready);
    let pending: Vec<&str> =
        desired.disks.iter().map(|disk| disk.name.as_str()).filter(|name| !is_ready(name)).collect();
    if pending.is_empty() {
        assertion(true, reason::PVC_BOUND, "All disks are ready")
    } else {
        assertion(false, reason::PVC_PENDING, format!("Waiting for disks: {}", pending.join(", ")))
    }
}

fn network(desired: &Desired, observed: &Observed) -> Assertion {
    let problem = problem(observed, |problem| match problem {
        Problem::Network(refusal) => Some(refusal),
        _ => None,
    });
    if let Some(refusal) = problem {
        return refused(refusal);
    }

    if desired.interfaces.is_empty() {
        let message = "Attached to the provider's default network";
        return assertion(true, reason::NETWORK_CONFIGURED, message);
    }
    let names: Vec<&str> =
        desired.interfaces.iter().map(|interface| interface.network.name.as_str()).collect();
    assertion(true, reason::NETWORK_CONFIGURED, format!("Attached to {}", names.join(", ")))
}

fn up_to_date(observed: &Observed, refused_fields: &[String]) -> Assertion {
    let unchangeable = observed.machine.iter().flat_map(|backing| &backing.unchangeable);
    let ignored: Vec<&str> = refused_fields.iter().chain(unchangeable).map(String::as_str).collect();
    let restart_needed = observed.machine.as_ref().is_some_and(|backing| backing.restart_needed);

    if !ignored.is_empty() {
        let message = format!(
            "The provider cannot honor {}: revert the change, or create another Machine on a provider that can",
            ignored.join(", ")
        );
        assertion(false, reason::FIELD_NOT_SUPPORTED, message)
    } else if restart_needed {
        let message = format!(
            "A change takes effect with the next restart: run \"vitistack power restart\", or set the annotation {} to the current time",
            labels::RESTART_AT
        );
        assertion(false, reason::RESTART_REQUIRED, message)
    } else {
        assertion(true, reason::AS_SPECIFIED, "The machine matches the spec")
    }
}

/// The phase, by the names of the specification.
fn phase(verdict: &Verdict, observed: Option<&Observed>) -> MachinePhase {
    let power = observed.and_then(|observed| observed.machine.as_ref()).map(|backing| &backing.power);
    match (verdict, power) {
        (Verdict::Blocked(_) | Verdict::Failing(_), None) | (_, Some(Power::Failing(_))) => {
            MachinePhase::Failed
        }
        (_, Some(Power::Running | Power::Stopping)) => MachinePhase::Running,
        (_, Some(Power::Stopped)) => MachinePhase::Stopped,
        (_, Some(Power::Starting)) | (Verdict::Waiting(_), None) => MachinePhase::Creating,
        (Verdict::Settled | Verdict::Unknown(_) | Verdict::Paused | Verdict::Deleting(_), None) => {
            MachinePhase::Pending
        }
    }
}
