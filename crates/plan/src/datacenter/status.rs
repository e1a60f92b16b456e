//! What is told of a datacenter, and of its machines that were not placed.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use vitistack_types::{
    conditions::{self, Statement, reason},
    labels,
    v1alpha1::{Datacenter, DatacenterStatus, Machine, MachinePhase, MachineStatus, Phase},
};

use super::{Candidate, Usage};
use crate::{
    Refusal, is_paused,
    machine::{full_name, paused_statements},
};

/// How long the words of a refusal stand while its reason stays the same: they hold numbers that move with every other
/// machine.
const WORDS_STAND_FOR: SignedDuration = SignedDuration::from_mins(1);

/// The status of a Machine that was not placed. The same again if nothing worth telling changed.
#[must_use]
pub fn refused_machine(machine: &Machine, refusal: &Refusal, now: Timestamp) -> MachineStatus {
    let waits = [reason::QUOTA_EXCEEDED, reason::INSUFFICIENT_RESOURCES].contains(&refusal.reason);
    let phase = if waits { MachinePhase::Pending } else { MachinePhase::Failed };
    let ready = Statement {
        type_: conditions::READY,
        status: Some(false),
        reason: refusal.reason,
        message: &refusal.message,
    };
    told(machine, phase, &[ready], now)
}

/// The status of a Machine that was not placed because all action on it is stopped.
#[must_use]
pub fn paused_machine(machine: &Machine, now: Timestamp) -> MachineStatus {
    told(machine, MachinePhase::Pending, &paused_statements(), now)
}

/// Why a Machine cannot be placed whose Datacenter is not there.
#[must_use]
pub fn missing_datacenter(machine: &Machine) -> Refusal {
    let own = machine.metadata.namespace.as_deref().unwrap_or_default();
    let named = machine.spec.datacenter_ref.as_ref().map(|reference| full_name(reference, own));
    Refusal::new(
        reason::DATACENTER_NOT_FOUND,
        format!(
            "spec.datacenterRef names {:?}, which is not there: create a Datacenter of that name",
            named.unwrap_or_default()
        ),
    )
}

/// A Machine that is nowhere has nothing but these conditions.
fn told(
    machine: &Machine,
    phase: MachinePhase,
    statements: &[Statement<'_>],
    now: Timestamp,
) -> MachineStatus {
    let before = machine.status.clone().unwrap_or_default();
    let generation = machine.metadata.generation;
    let mut conditions = before.conditions.clone();
    conditions.retain(|each| statements.iter().any(|statement| statement.type_ == each.type_));
    for statement in statements {
        conditions::set(&mut conditions, statement, generation, now);
    }
    let after = MachineStatus {
        phase: Some(phase),
        observed_generation: generation,
        conditions,
        last_updated: before.last_updated.clone(),
        ..MachineStatus::default()
    };
    let words_only = |status: &MachineStatus| {
        let mut status = status.clone();
        status.conditions.iter_mut().for_each(|condition| condition.message.clear());
        status
    };
    let is_fresh =
        before.last_updated.as_ref().is_some_and(|since| now.duration_since(since.0) < WORDS_STAND_FOR);
    if after == before || (is_fresh && words_only(&after) == words_only(&before)) {
        return before;
    }
    MachineStatus { last_updated: Some(Time(now)), ..after }
}

/// The status of a Datacenter.
#[must_use]
pub fn datacenter_status(
    datacenter: &Datacenter,
    candidates: &[Candidate],
    used: Usage,
    now: Timestamp,
) -> DatacenterStatus {
    let mut conditions = datacenter.status.clone().unwrap_or_default().conditions;
    let generation = datacenter.metadata.generation;
    let (is_ready, message) = readiness(candidates);
    let reason = if is_ready { reason::AS_SPECIFIED } else { reason::NO_USABLE_PROVIDER };
    let ready = Statement { type_: conditions::READY, status: Some(is_ready), reason, message: &message };
    conditions::set(&mut conditions, &ready, generation, now);
    let mut tell_while = |type_: &str, told: Option<(bool, &str, String)>| match told {
        Some((status, reason, message)) => {
            let statement = Statement { type_, status: Some(status), reason, message: &message };
            conditions::set(&mut conditions, &statement, generation, now);
        }
        None => conditions.retain(|condition| condition.type_ != type_),
    };
    let ignored = not_acted_on(datacenter);
    tell_while(
        conditions::FIELDS_HONOURED,
        (!ignored.is_empty()).then(|| {
            let message = format!("not acted on yet: {}; no cluster is made or counted", ignored.join(", "));
            (false, reason::FIELD_NOT_SUPPORTED, message)
        }),
    );
    tell_while(
        conditions::PAUSED,
        is_paused(&datacenter.metadata).then(|| {
            let message = format!("the annotation {} stops all action: no machine is placed", labels::PAUSED);
            (true, reason::PAUSED, message)
        }),
    );
    DatacenterStatus {
        phase: Some(if is_ready { Phase::Ready } else { Phase::Failed }),
        observed_generation: generation,
        conditions,
        used: Some(used.into()),
    }
}

fn readiness(candidates: &[Candidate]) -> (bool, String) {
    let problems: Vec<String> = candidates
        .iter()
        .filter_map(|candidate| Some(format!("{}: {}", candidate.name, candidate.problem.as_ref()?.why)))
        .collect();
    let usable = candidates.len().saturating_sub(problems.len());
    match (candidates.len(), usable) {
        (0, _) => (false, "it has no machine provider: add one to spec.machineProviders".to_owned()),
        (_, 0) => (false, format!("no provider takes machines: {}", problems.join("; "))),
        (all, _) if problems.is_empty() => (true, format!("{usable} of {all} providers take machines")),
        (all, _) => (true, format!("{usable} of {all} providers take machines; {}", problems.join("; "))),
    }
}

/// The fields that are set and that nothing acts on yet.
fn not_acted_on(datacenter: &Datacenter) -> Vec<&'static str> {
    let clusters = datacenter.spec.resource_quotas.as_ref().and_then(|quotas| quotas.max_clusters);
    [
        (!datacenter.spec.kubernetes_providers.is_empty()).then_some("spec.kubernetesProviders"),
        clusters.map(|_| "spec.resourceQuotas.maxClusters"),
    ]
    .into_iter()
    .flatten()
    .collect()
}
