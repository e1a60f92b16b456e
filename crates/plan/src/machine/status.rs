//! What is told of one machine: conditions and the phase that follows from them.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use vitistack_types::{
    ObjectReference, Quantity,
    conditions::{self, Statement, reason},
    v1alpha1::{GivenResources, MachinePhase, MachineStatus},
};

use super::{Desired, Observed, Power, Problem, Snapshot, Verdict, identity, is_let_go};
use crate::Refusal;

/// How long progress that goes well is not worth a write of its own. Making a machine costs two: one when it begins and
/// one when it runs; only what takes longer is told step by step.
const QUIET: SignedDuration = SignedDuration::from_secs(30);

/// How long a machine that goes says nothing of it: a guest is given time to shut down.
const QUIET_END: SignedDuration = SignedDuration::from_mins(1);

/// The status of a machine after a decision. The same again if nothing worth telling changed, so that nothing is written.
#[must_use]
pub fn status(
    snapshot: &Snapshot<'_>,
    verdict: &Verdict,
    refused_fields: &[String],
    now: Timestamp,
) -> MachineStatus {
    let machine = snapshot.machine;
    let before = machine.status.clone().unwrap_or_default();
    let mut after = match snapshot.observed {
        Ok(observed) => seen(&before, observed),
        // Unknown is not absent: what was last seen stands, and the Ready condition says how old it is.
        Err(_) => before.clone(),
    };
    if let (Ok(desired), Ok(Observed { machine: Some(_), .. })) = (snapshot.desired, snapshot.observed) {
        after.resources = Some(given(desired));
    }
    after.observed_generation = machine.metadata.generation;
    after.conditions = conditions_of(snapshot, verdict, refused_fields, now);
    after.phase = match (snapshot.observed, before.phase) {
        (Err(_), Some(phase)) => Some(phase),
        (observed, _) => Some(phase(verdict, observed.ok())),
    };
    after.identity = Some(identity(machine).as_str().to_owned());
    after.provider = match snapshot.placement.split_once('/') {
        Some((namespace, name)) => {
            Some(ObjectReference { name: name.to_owned(), namespace: Some(namespace.to_owned()) })
        }
        None if snapshot.placement.is_empty() => None,
        None => Some(ObjectReference { name: snapshot.placement.to_owned(), namespace: None }),
    };
    // The version of the spec last acted on moves with the generation, not with every echo of our own status.
    if before.observed_generation != after.observed_generation || before.resource_version.is_none() {
        after.resource_version.clone_from(&machine.metadata.resource_version);
    }
    if after == before || is_quiet_progress(snapshot, verdict, &before, &after, now) {
        return before;
    }
    MachineStatus { last_updated: Some(Time(now)), ..after }
}

/// What a machine is given, in all.
fn given(desired: &Desired) -> GivenResources {
    let storage = desired.disks.iter().fold(0, |sum: u64, disk| sum.saturating_add(disk.size.bytes()));
    GivenResources {
        cpu: desired.cpu.total(),
        memory: Quantity::from_units(desired.memory.bytes()),
        storage: Quantity::from_units(storage),
    }
}

/// The fields that mirror the real machine.
fn seen(before: &MachineStatus, observed: &Observed) -> MachineStatus {
    let real = observed.machine.as_ref();
    MachineStatus {
        vm_name: real.map(|real| real.id.clone()),
        vmi_name: real.and_then(|real| real.instance.clone()),
        ip_addresses: real.map(|real| real.addresses.clone()).unwrap_or_default(),
        node_name: real.and_then(|real| real.node.clone()),
        ..before.clone()
    }
}

/// Whether the new status only says that things go on as they should.
fn is_quiet_progress(
    snapshot: &Snapshot<'_>,
    verdict: &Verdict,
    before: &MachineStatus,
    after: &MachineStatus,
    now: Timestamp,
) -> bool {
    let is_young =
        |since: Option<&Time>, limit| since.is_some_and(|since| now.duration_since(since.0) < limit);
    match verdict {
        // What others hold stays until they let it go, and must not look as if it ran until then.
        Verdict::Deleting(_) => {
            let machine = snapshot.machine;
            !is_let_go(machine) && is_young(machine.metadata.deletion_timestamp.as_ref(), QUIET_END)
        }
        Verdict::Waiting(_) | Verdict::Failing(_) => {
            let word = |status: &MachineStatus| {
                let ready = status.conditions.iter().find(|condition| condition.type_ == conditions::READY);
                ready.map(|ready| (ready.status.clone(), ready.reason.clone()))
            };
            // An attempt after a failure makes a machine and takes it away again, which is no news.
            (before.phase == after.phase || matches!(verdict, Verdict::Failing(_)))
                && before.observed_generation == after.observed_generation
                && word(before) == word(after)
                && is_young(before.last_updated.as_ref(), QUIET)
        }
        _ => false,
    }
}

fn conditions_of(
    snapshot: &Snapshot<'_>,
    verdict: &Verdict,
    refused_fields: &[String],
    now: Timestamp,
) -> Vec<Condition> {
    let machine = snapshot.machine;
    let mut conditions = machine.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let mut tell = |kind: &str, (is_true, reason, message): Telling| {
        let statement = Statement { type_: kind, status: Some(is_true), reason, message: &message };
        conditions::set(&mut conditions, &statement, machine.metadata.generation, now);
    };
    tell(conditions::READY, ready(snapshot, verdict));
    let is_leaving = match verdict {
        Verdict::Deleting(_) => true,
        Verdict::Failing(_) => machine.metadata.deletion_timestamp.is_some(),
        _ => false,
    };
    if let (Ok(observed), false) = (snapshot.observed, is_leaving) {
        tell(conditions::VIRTUAL_MACHINE_READY, virtual_machine(observed));
        if let Ok(desired) = snapshot.desired {
            tell(conditions::STORAGE_READY, storage(desired, observed));
            tell(conditions::NETWORK_READY, network(desired, observed));
        }
        if observed.machine.is_some() || !refused_fields.is_empty() {
            tell(conditions::UP_TO_DATE, up_to_date(observed, refused_fields));
        }
    }
    // There is nothing left that the others could speak of.
    if is_let_go(machine) {
        conditions.retain(|condition| condition.type_ == conditions::READY);
    }
    // Told while it holds; a machine that is not paused says nothing of it.
    if *verdict == Verdict::Paused {
        for statement in paused_statements() {
            conditions::set(&mut conditions, &statement, machine.metadata.generation, now);
        }
    } else {
        conditions.retain(|condition| condition.type_ != conditions::PAUSED);
    }
    conditions
}

/// What is told of a machine on which all action is stopped.
pub(crate) fn paused_statements() -> [Statement<'static>; 2] {
    let told =
        |type_, status, message| Statement { type_, status: Some(status), reason: reason::PAUSED, message };
    [
        told(conditions::READY, false, "paused: nothing is done until the annotation is removed"),
        told(conditions::PAUSED, true, "the annotation vitistack.io/paused stops all action"),
    ]
}

/// Whether it holds, the reason, the sentence.
type Telling = (bool, &'static str, String);

fn ready(snapshot: &Snapshot<'_>, verdict: &Verdict) -> Telling {
    let told = |refusal: &Refusal| (false, refusal.reason, refusal.message.clone());
    match verdict {
        Verdict::Settled => {
            let is_off = snapshot
                .observed
                .ok()
                .and_then(|observed| observed.machine.as_ref())
                .is_some_and(|real| real.power == Power::Stopped);
            if is_off {
                (true, reason::STOPPED, "the machine is off, as the spec says".into())
            } else {
                (true, reason::RUNNING, "the machine runs".into())
            }
        }
        Verdict::Waiting(what) => {
            let before = snapshot.machine.status.as_ref();
            let word = if before.is_some_and(was_made) { reason::UPDATING } else { reason::CREATING };
            (false, word, format!("waiting: {what}"))
        }
        Verdict::Failing(refusal) | Verdict::Unknown(refusal) | Verdict::Blocked(refusal) => told(refusal),
        Verdict::Paused => {
            let [ready, _] = paused_statements();
            (false, reason::PAUSED, ready.message.into())
        }
        Verdict::Deleting(what) => (false, reason::DELETING, format!("waiting: {what}")),
    }
}

/// Whether the machine was made before: it is being made until it ran once, and while it starts again it is not.
fn was_made(before: &MachineStatus) -> bool {
    let is_updating =
        |condition: &Condition| condition.type_ == conditions::READY && condition.reason == reason::UPDATING;
    matches!(before.phase, Some(MachinePhase::Running | MachinePhase::Stopped))
        || before.conditions.iter().any(is_updating)
}

fn virtual_machine(observed: &Observed) -> Telling {
    let problem = observed.problems.iter().find_map(|problem| match problem {
        Problem::Machine(refusal) => Some(refusal),
        _ => None,
    });
    match (&observed.machine, problem) {
        (Some(real), _) => match &real.power {
            Power::Failing(why) => (false, reason::VM_FAILED, why.clone()),
            Power::Running | Power::Stopped => (true, reason::VM_CREATED, format!("{} exists", real.id)),
            Power::Starting | Power::Stopping => {
                (false, reason::STARTING, format!("{} is on its way", real.id))
            }
        },
        (None, Some(refusal)) => (false, refusal.reason, refusal.message.clone()),
        (None, None) => match &observed.failure {
            Some(failure) => (false, reason::VM_FAILED, failure.clone()),
            None => (false, reason::CREATING, "there is no machine yet".into()),
        },
    }
}

fn storage(desired: &Desired, observed: &Observed) -> Telling {
    let problem = observed.problems.iter().find_map(|problem| match problem {
        Problem::Storage(refusal) => Some(refusal),
        _ => None,
    });
    if let Some(refusal) = problem {
        return (false, refusal.reason, refusal.message.clone());
    }
    let is_ready = |name: &str| observed.disks.iter().any(|disk| disk.name == name && disk.is_ready);
    let pending: Vec<&str> =
        desired.disks.iter().map(|disk| disk.name.as_str()).filter(|name| !is_ready(name)).collect();
    if pending.is_empty() {
        (true, reason::PVC_BOUND, "every disk is there".into())
    } else {
        (false, reason::PVC_PENDING, format!("waiting for disks: {}", pending.join(", ")))
    }
}

fn network(desired: &Desired, observed: &Observed) -> Telling {
    let problem = observed.problems.iter().find_map(|problem| match problem {
        Problem::Network(refusal) => Some(refusal),
        _ => None,
    });
    match problem {
        Some(refusal) => (false, refusal.reason, refusal.message.clone()),
        None if desired.interfaces.is_empty() => {
            (true, reason::NETWORK_CONFIGURED, "the provider's default network is used".into())
        }
        None => {
            let names: Vec<&str> =
                desired.interfaces.iter().map(|interface| interface.network.name.as_str()).collect();
            (true, reason::NETWORK_CONFIGURED, format!("attached to {}", names.join(", ")))
        }
    }
}

fn up_to_date(observed: &Observed, refused_fields: &[String]) -> Telling {
    let unchangeable = observed.machine.iter().flat_map(|real| &real.unchangeable);
    let ignored: Vec<&str> = refused_fields.iter().chain(unchangeable).map(String::as_str).collect();
    let restart_needed = observed.machine.as_ref().is_some_and(|real| real.restart_needed);
    if !ignored.is_empty() {
        let fields = ignored.join(", ");
        (
            false,
            reason::FIELD_NOT_SUPPORTED,
            format!(
                "the provider cannot honour {fields}: change it back, or make another Machine on a provider that can"
            ),
        )
    } else if restart_needed {
        (false, reason::RESTART_REQUIRED, "a change takes effect with the next restart: set the annotation vitistack.io/restart-at to the time".into())
    } else {
        (true, reason::AS_SPECIFIED, "the machine has everything that the spec says".into())
    }
}

/// The phase in S4's words.
fn phase(verdict: &Verdict, observed: Option<&Observed>) -> MachinePhase {
    let power = observed.and_then(|observed| observed.machine.as_ref()).map(|real| &real.power);
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
