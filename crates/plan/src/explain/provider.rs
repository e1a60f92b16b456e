//! Why a provider cannot be used.

use vitistack_types::{
    conditions::reason,
    labels,
    v1alpha1::{Machine, MachineProvider},
};

use super::{
    Cause, Link, Standing, Story, World, count, deletion, ended, name, not_looked_at, not_ready, object,
    operators, paused, ready, refused, told,
};
use crate::{
    Refusal,
    machine::{is_let_go, may_be_made, placement},
};

/// Machines that are named where many hold a provider.
const NAMED: usize = 3;

pub fn explain(provider: &MachineProvider, world: &World) -> Story {
    let own = object("MachineProvider", &provider.metadata);
    let placed = placed(provider, world);
    let mut chain = vec![Link {
        object: own.clone(),
        standing: Standing::Well,
        says: format!(
            "type {}, {} on it",
            operators::of_type(provider.spec.type_),
            count(placed.len(), "Machine")
        ),
    }];
    let is_looked_at = provider.status.as_ref().is_some_and(|status| ready(&status.conditions).is_some());
    let (operator, absent) = operators::look(operators::MACHINE_PROVIDER, is_looked_at, world);
    let cause = deleted(&own, provider, &placed).or_else(|| problem(provider, world)).or_else(|| {
        let waits_for = "the operator machine-provider to look at it";
        (!is_looked_at)
            .then(|| absent.clone().unwrap_or_else(|| not_looked_at(&own, &provider.metadata, waits_for)))
    });
    if cause.is_some() {
        chain.push(operator);
    }
    ended(chain, cause)
}

/// Why nothing can be made on a provider now: paused, without its credentials, or not ready.
pub fn problem(provider: &MachineProvider, world: &World) -> Option<Cause> {
    let own = object("MachineProvider", &provider.metadata);
    let conditions = provider.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    paused(&own, &provider.metadata, conditions)
        .or_else(|| credentials(provider, world).map(|refusal| refused(own.clone(), refusal, conditions)))
        .or_else(|| not_ready(conditions).map(|condition| told(own.clone(), condition)))
}

/// What is missing of the credentials that a provider names.
fn credentials(provider: &MachineProvider, world: &World) -> Option<Refusal> {
    let reference = &provider.spec.credentials.as_ref()?.secret_ref;
    let namespace = provider.metadata.namespace.as_deref().unwrap_or_default();
    let (secret, key) = (&reference.name, &reference.key);
    match world.secrets.get(&format!("{namespace}/{secret}"))? {
        None => Some(Refusal::new(
            reason::SECRET_NOT_FOUND,
            format!(
                "spec.credentials.secretRef.name {secret:?} names nothing in namespace {namespace:?}: create a Secret {secret:?}"
            ),
        )),
        Some(keys) if !keys.contains(key) => Some(Refusal::new(
            reason::SECRET_KEY_NOT_FOUND,
            format!(
                "spec.credentials.secretRef.key {key:?} is not in Secret {secret:?}: add it, or name a key that is there"
            ),
        )),
        Some(_) => None,
    }
}

/// The Machines that are on a provider, or shall be.
fn placed<'a>(provider: &MachineProvider, world: &'a World) -> Vec<&'a Machine> {
    let own = name(&provider.metadata);
    let is_on_it = |machine: &&Machine| placement(machine) == Some(own.as_str()) && !is_let_go(machine);
    world.machines.iter().filter(is_on_it).collect()
}

/// A provider that is deleted goes when nothing is on it that was made for a Machine.
fn deleted(own: &str, provider: &MachineProvider, placed: &[&Machine]) -> Option<Cause> {
    let cause = deletion(own, &provider.metadata)?;
    let placed: Vec<&&Machine> = placed.iter().filter(|machine| may_be_made(&machine.metadata)).collect();
    let finalizers = provider.metadata.finalizers.as_ref();
    let is_in_use = finalizers
        .is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == labels::PROVIDER_IN_USE));
    if !is_in_use || placed.is_empty() {
        return Some(cause);
    }
    let mut names: Vec<String> = placed.iter().take(NAMED).map(|machine| name(&machine.metadata)).collect();
    if placed.len() > NAMED {
        names.push("…".to_owned());
    }
    Some(Cause {
        message: format!("it is being deleted and {} on it: {}", are(placed.len()), names.join(", ")),
        waits_for: Some("the Machines on it to go".to_owned()),
        to_do: Some("delete the Machines that are on it".to_owned()),
        ..cause
    })
}

fn are(machines: usize) -> String {
    let verb = if machines == 1 { "is" } else { "are" };
    format!("{} {verb} still", count(machines, "Machine"))
}
