//! The status of a datacenter, and of its machines that were not placed.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use vitistack_types::{
    conditions::{self, reason},
    labels,
    v1alpha1::{Datacenter, DatacenterStatus, Machine, MachinePhase, MachineStatus, Phase},
};

use super::{Candidate, Usage, quota::overused};
use crate::{
    Refusal,
    conditions::{Assertion, OF_DATACENTERS, OF_MACHINES, Owned, assertion, owned, refused},
    is_paused,
    machine::{not_ready_while_paused, paused},
};

/// How long the message of a refusal stays while its reason does: it holds numbers that change with every other machine.
const MESSAGE_STAYS_FOR: SignedDuration = SignedDuration::from_mins(1);

/// Returns the status of a Machine that was not placed, or nothing if the one that was read still holds.
pub(super) fn refused_machine(machine: &Machine, refusal: &Refusal, now: Timestamp) -> Option<MachineStatus> {
    let is_waiting = [reason::QUOTA_EXCEEDED, reason::INSUFFICIENT_RESOURCES].contains(&refusal.reason);
    let phase = if is_waiting { MachinePhase::Pending } else { MachinePhase::Failed };
    unplaced(machine, phase, vec![(conditions::READY, refused(refusal))], now)
}

/// Returns the status of a Machine that was not placed because it is paused.
pub(super) fn paused_machine(machine: &Machine, now: Timestamp) -> Option<MachineStatus> {
    let conditions = vec![(conditions::READY, not_ready_while_paused()), (conditions::PAUSED, paused())];
    unplaced(machine, MachinePhase::Pending, conditions, now)
}

/// A Machine without a placement has these conditions and no others.
fn unplaced(
    machine: &Machine,
    phase: MachinePhase,
    assertions: Vec<(&'static str, Assertion)>,
    now: Timestamp,
) -> Option<MachineStatus> {
    let before = machine.status.clone().unwrap_or_default();
    let before = MachineStatus { conditions: owned(&before.conditions, OF_MACHINES), ..before };

    let mut conditions = Owned::new(&before.conditions, OF_MACHINES, machine.metadata.generation, now);
    conditions.retain(|type_| assertions.iter().any(|(kept, _)| *kept == type_));
    for (type_, assertion) in assertions {
        conditions.set(type_, assertion);
    }
    let after = MachineStatus {
        phase: Some(phase),
        observed_generation: machine.metadata.generation,
        conditions: conditions.into_vec(),
        last_updated: before.last_updated.clone(),
        ..MachineStatus::default()
    };

    let is_recent =
        before.last_updated.as_ref().is_some_and(|since| now.duration_since(since.0) < MESSAGE_STAYS_FOR);
    if after == before || (is_recent && without_messages(&after) == without_messages(&before)) {
        return None;
    }
    Some(MachineStatus { last_updated: Some(Time(now)), ..after })
}

fn without_messages(status: &MachineStatus) -> MachineStatus {
    let mut status = status.clone();
    status.conditions.iter_mut().for_each(|condition| condition.message.clear());
    status
}

/// Returns the status of a Datacenter, or nothing if the one that was read still holds.
pub(super) fn datacenter_status(
    datacenter: &Datacenter,
    candidates: &[Candidate],
    used: Usage,
    now: Timestamp,
) -> Option<DatacenterStatus> {
    let before = datacenter.status.clone().unwrap_or_default();
    let before = DatacenterStatus { conditions: owned(&before.conditions, OF_DATACENTERS), ..before };
    let generation = datacenter.metadata.generation;

    let ready = ready(candidates);
    let is_ready = ready.0 == Some(true);
    let mut conditions = Owned::new(&before.conditions, OF_DATACENTERS, generation, now);
    conditions.set(conditions::READY, ready);
    conditions.set_or_remove(conditions::FIELDS_HONOURED, fields_honored(datacenter));
    let quotas = datacenter.spec.resource_quotas.as_ref();
    let over = quotas.and_then(|quotas| overused(quotas, used));
    conditions.set_or_remove(conditions::WITHIN_QUOTAS, over.as_ref().map(refused));
    conditions.set_or_remove(conditions::PAUSED, is_paused(&datacenter.metadata).then(paused_datacenter));

    let after = DatacenterStatus {
        phase: Some(if is_ready { Phase::Ready } else { Phase::Failed }),
        observed_generation: generation,
        conditions: conditions.into_vec(),
        used: Some(used.into()),
    };
    (datacenter.status.is_none() || after != before).then_some(after)
}

/// The Paused condition of a Datacenter.
pub(crate) fn paused_datacenter() -> Assertion {
    let message =
        format!("Reconciliation is paused by the annotation {}: no machine is placed", labels::PAUSED);
    assertion(true, reason::PAUSED, message)
}

fn ready(candidates: &[Candidate]) -> Assertion {
    let problems: Vec<String> = candidates
        .iter()
        .filter_map(|candidate| {
            Some(format!("{}: {}", candidate.name, candidate.problem.as_ref()?.refusal.message))
        })
        .collect();
    let usable = candidates.len().saturating_sub(problems.len());
    let accept = format!("{usable} of {} providers accept machines", candidates.len());

    let refuse = |message: String| assertion(false, reason::NO_USABLE_PROVIDER, message);
    match usable {
        0 if candidates.is_empty() => {
            refuse("spec.machineProviders is empty: add a machine provider".to_owned())
        }
        0 => refuse(format!("No provider accepts machines: {}", problems.join("; "))),
        _ if problems.is_empty() => assertion(true, reason::AS_SPECIFIED, accept),
        _ => assertion(true, reason::AS_SPECIFIED, format!("{accept}; {}", problems.join("; "))),
    }
}

/// Reports the fields that are set and that no operator honors yet.
fn fields_honored(datacenter: &Datacenter) -> Option<Assertion> {
    let max_clusters = datacenter.spec.resource_quotas.as_ref().and_then(|quotas| quotas.max_clusters);
    let ignored: Vec<&str> = [
        (!datacenter.spec.kubernetes_providers.is_empty()).then_some("spec.kubernetesProviders"),
        max_clusters.map(|_| "spec.resourceQuotas.maxClusters"),
    ]
    .into_iter()
    .flatten()
    .collect();

    (!ignored.is_empty()).then(|| {
        let message =
            format!("Ignored, because this version does not manage clusters: {}", ignored.join(", "));
        assertion(false, reason::FIELD_NOT_SUPPORTED, message)
    })
}
