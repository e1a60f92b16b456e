//! Why a provider cannot be used.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use vitistack_types::{ObjectId, ObjectName, OperatorName, v1alpha1::MachineProvider};

use super::{Cause, Finding, Link, count, deletion, not_ready, not_reconciled, operator, paused, ready};
use crate::{
    Inventory, Refusal,
    datacenter::Usage,
    inventory::secret_of_provider,
    machine::is_held_by_others,
    provider::{self, Health, Snapshot, credentials, plan},
};

pub(super) fn explain(provider: &MachineProvider, inventory: &Inventory) -> Finding {
    let own = ObjectId::of(provider);
    let machines = inventory.placed_on(&own.name).filter(|machine| !is_held_by_others(machine)).count();
    let summary = format!("type {}, {} on it", provider.spec.type_, count(machines, "Machine"));
    let mut chain = vec![Link::healthy(own.clone(), summary)];

    let conditions = conditions_of(provider);
    let is_reconciled = ready(conditions).is_some();
    let (operator, absent) = operator::check(OperatorName::MachineProvider, is_reconciled, inventory);
    let cause = deleting(&own, provider, inventory).or_else(|| problem(provider, inventory)).or_else(|| {
        let waiting_for = || format!("the operator {} to reconcile it", OperatorName::MachineProvider);
        (!is_reconciled)
            .then(|| absent.unwrap_or_else(|| not_reconciled(&own, &provider.metadata, waiting_for())))
    });

    if cause.is_some() {
        chain.push(operator);
    }
    Finding::new(chain, cause)
}

fn conditions_of(provider: &MachineProvider) -> &[Condition] {
    provider.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
}

/// A provider that is paused.
fn pause(provider: &MachineProvider) -> Option<Cause> {
    paused(&ObjectId::of(provider), &provider.metadata, conditions_of(provider), provider::paused())
}

/// Why a provider cannot host machines: it is paused, its credentials, or what its operator reports.
pub(super) fn problem(provider: &MachineProvider, inventory: &Inventory) -> Option<Cause> {
    let own = ObjectId::of(provider);
    let conditions = conditions_of(provider);
    if let Some(cause) = pause(provider) {
        return Some(cause);
    }
    match check_credentials(provider, inventory) {
        Some(Err(refusal)) => Some(Cause::refused(own, refusal, conditions)),
        _ => not_ready(conditions).map(|condition| Cause::reported(own, condition)),
    }
}

/// Checks the credentials of a provider, if it has some and its Secret was read.
fn check_credentials(provider: &MachineProvider, inventory: &Inventory) -> Option<Result<(), Refusal>> {
    let keys = inventory.secrets.get(&secret_of_provider(provider)?)?.as_ref();
    credentials(provider, keys.map(|keys| |key: &str| keys.contains(key).then_some(())))
}

/// A provider that is being deleted, in the sentence of its operator.
fn deleting(own: &ObjectId, provider: &MachineProvider, inventory: &Inventory) -> Option<Cause> {
    let since = provider.metadata.deletion_timestamp.as_ref()?.0;
    let occupants: Vec<ObjectName> = inventory.occupants(&own.name);
    let planned = plan(&Snapshot {
        provider,
        credentials: check_credentials(provider, inventory),
        health: &Health::default(),
        used: Usage::default(),
        occupants: &occupants,
        watched: &inventory.watched(),
        now: inventory.now,
    });

    let conditions =
        planned.status.map_or_else(|| conditions_of(provider).to_vec(), |status| status.conditions);
    let cause = Cause::reported(own.clone(), ready(&conditions)?);
    let holders = deletion(own, &provider.metadata).filter(|_| occupants.is_empty());
    Some(Cause { since: Some(since), waiting_for: holders.and_then(|cause| cause.waiting_for), ..cause })
}
