//! Why a Datacenter places no machine, or not this one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use vitistack_types::{
    ObjectId, ObjectName, OperatorName,
    conditions::{self, reason},
    v1alpha1::{Datacenter, Machine},
};

use super::{
    Cause, Facts, Finding, Link, count, deletion, not_ready, not_reconciled, operator, paused, provider,
    ready,
};
use crate::{
    Refusal,
    datacenter::{Candidate, orphaned, paused_datacenter},
};

pub(super) fn explain(datacenter: &Datacenter, facts: &Facts<'_>) -> Finding {
    let own = ObjectId::of(datacenter);
    let members = facts.inventory.members(&own.name).count();
    let summary = format!("region {}, used by {}", datacenter.spec.region, count(members, "Machine"));
    let mut chain = vec![Link::healthy(own.clone(), summary)];
    chain.extend(candidates(datacenter, facts).iter().map(candidate_link));

    let conditions = conditions_of(datacenter);
    let is_reconciled = ready(conditions).is_some();
    let (operator, absent) = operator::check(OperatorName::Datacenter, is_reconciled, facts.inventory);
    let cause = deletion(&own, &datacenter.metadata)
        .or_else(|| paused(&own, &datacenter.metadata, conditions, paused_datacenter()))
        .or_else(|| not_ready(conditions).map(|condition| Cause::reported(own.clone(), condition)))
        .or_else(|| {
            let waiting_for = || format!("the operator {} to reconcile it", OperatorName::Datacenter);
            (!is_reconciled)
                .then(|| absent.unwrap_or_else(|| not_reconciled(&own, &datacenter.metadata, waiting_for())))
        })
        .or_else(|| over_quota(conditions).map(|condition| Cause::reported(own.clone(), condition)));

    if cause.is_some() {
        chain.push(operator);
    }
    Finding::new(chain, cause)
}

fn conditions_of(datacenter: &Datacenter) -> &[Condition] {
    datacenter.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
}

/// The condition that reports a quota below what is used.
fn over_quota(conditions: &[Condition]) -> Option<&Condition> {
    conditions::find(conditions, conditions::WITHIN_QUOTAS).filter(|condition| condition.status == "False")
}

/// The providers that a Datacenter lists.
fn candidates<'a>(datacenter: &Datacenter, facts: &'a Facts<'_>) -> &'a [Candidate] {
    facts.decisions(datacenter).map(|decisions| decisions.candidates.as_slice()).unwrap_or_default()
}

/// A provider that a Datacenter lists, in the sentence of the Datacenter.
fn candidate_link(candidate: &Candidate) -> Link {
    let object = ObjectId::new("MachineProvider", candidate.name.clone());
    match &candidate.problem {
        None => Link::healthy(object, "accepts machines"),
        Some(problem) => {
            let Refusal { reason, message, .. } = &problem.refusal;
            Link::blocking(object, format!("{reason}: {message}"))
        }
    }
}

/// Why a Datacenter does not place a Machine: because of itself, its quotas or its providers.
pub(super) fn refusal_to_place(
    datacenter: &Datacenter,
    machine: &Machine,
    facts: &Facts<'_>,
) -> (Vec<Link>, Option<Cause>) {
    let own = ObjectId::of(datacenter);
    if let Some(cause) = paused(&own, &datacenter.metadata, conditions_of(datacenter), paused_datacenter()) {
        return (vec![Link::blocking(own, cause.message.clone())], Some(cause));
    }

    let decides = Link::healthy(own.clone(), "chooses the provider");
    let Some(refusal) = decided_refusal(datacenter, machine, facts) else { return (vec![decides], None) };
    let reported = machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let is_its_own =
        [reason::QUOTA_EXCEEDED, reason::INSUFFICIENT_RESOURCES, reason::REFERENCE_NOT_PERMITTED]
            .contains(&refusal.reason);
    if !is_its_own {
        // The Machine itself has to change, or what it refers to.
        return (vec![decides], Some(Cause::refused(ObjectId::of(machine), refusal, reported)));
    }
    let cause = Cause::refused(own.clone(), refusal, reported);
    // Its providers explain only why none of them can host the machine.
    if cause.reason != reason::INSUFFICIENT_RESOURCES {
        return (vec![Link::blocking(own, cause.summary())], Some(cause));
    }

    let candidates = candidates(datacenter, facts);
    let mut links = vec![decides];
    links.extend(candidates.iter().map(|candidate| match candidate.problem {
        Some(_) => candidate_link(candidate),
        None => Link::blocking(
            ObjectId::new("MachineProvider", candidate.name.clone()),
            cannot_host(datacenter, machine, candidate),
        ),
    }));

    let root = match candidates {
        // With a single provider, its own problem is the cause.
        [only] => {
            facts.inventory.provider(&only.name).and_then(|only| provider::problem(only, facts.inventory))
        }
        _ => None,
    };
    (links, Some(root.unwrap_or(cause)))
}

/// Why a provider that accepts machines cannot host this one, as far as it is not a matter of its capacity.
fn cannot_host(datacenter: &Datacenter, machine: &Machine, candidate: &Candidate) -> String {
    let zone = machine.spec.zone.as_deref();
    let lacking = zone.and_then(|zone| candidate.check_zone(&datacenter.spec, zone).err());
    lacking.map_or_else(
        || "accepts machines, but cannot host this one".to_owned(),
        |lacking| format!("accepts machines, but has {lacking}"),
    )
}

/// The refusal that the operator decides on for a Machine, if it does not place it.
fn decided_refusal(datacenter: &Datacenter, machine: &Machine, facts: &Facts<'_>) -> Option<Refusal> {
    facts.decisions(datacenter)?.refusals.get(&ObjectName::of(machine)).cloned()
}

/// The refusal of a Machine whose Datacenter was not found.
pub(super) fn not_found(machine: &Machine, datacenter: &ObjectName, facts: &Facts<'_>) -> Cause {
    let reported = machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    Cause::refused(ObjectId::of(machine), orphaned(machine, datacenter, &facts.watched), reported)
}
