//! The status of a provider.

use vitistack_types::{
    conditions::{self, reason},
    labels,
    v1alpha1::{MachineProviderStatus, Phase},
};

use super::{Circuit, Snapshot, plan::unknown_users};
use crate::{
    conditions::{Assertion, OF_PROVIDERS, Owned, assertion, owned, refused},
    is_paused,
};

/// How many machines that block a deletion a message lists by name.
const LISTED_MACHINES: usize = 3;

/// Returns the status of a provider, or nothing if the one that was read still holds.
pub(super) fn status(snapshot: &Snapshot<'_>) -> Option<MachineProviderStatus> {
    let provider = snapshot.provider;
    let before = provider.status.clone().unwrap_or_default();
    let before = MachineProviderStatus { conditions: owned(&before.conditions, OF_PROVIDERS), ..before };
    let generation = provider.metadata.generation;

    let ready = ready(snapshot);
    let is_ready = ready.0 == Some(true);
    let mut conditions = Owned::new(&before.conditions, OF_PROVIDERS, generation, snapshot.now);
    conditions.set(conditions::READY, ready);
    conditions.set(conditions::REACHABLE, reachable(snapshot));
    conditions.set_or_remove(conditions::CREDENTIALS_VALID, credentials_valid(snapshot));
    conditions.set_or_remove(conditions::PAUSED, is_paused(&provider.metadata).then(paused));

    let after = MachineProviderStatus {
        phase: Some(if is_ready { Phase::Ready } else { Phase::Failed }),
        observed_generation: generation,
        conditions: conditions.into_vec(),
        version: snapshot.health.probed.version.clone().or_else(|| before.version.clone()),
        used: Some(snapshot.used.into()),
    };
    (provider.status.is_none() || after != before).then_some(after)
}

/// The Paused condition of a provider.
pub(crate) fn paused() -> Assertion {
    let message = format!(
        "Reconciliation is paused by the annotation {}: the provider is not checked and accepts no machines",
        labels::PAUSED
    );
    assertion(true, reason::PAUSED, message)
}

/// The Ready condition of a provider that is paused.
fn not_ready_while_paused() -> Assertion {
    let message =
        format!("The provider is paused and accepts no machines: remove the annotation {}", labels::PAUSED);
    assertion(false, reason::PAUSED, message)
}

/// Reports a deletion and the machines that block it.
fn deleting(snapshot: &Snapshot<'_>) -> Option<Assertion> {
    snapshot.provider.metadata.deletion_timestamp.as_ref()?;
    let occupants = snapshot.occupants;
    let listed: Vec<String> = occupants.iter().take(LISTED_MACHINES).map(ToString::to_string).collect();
    let more = if occupants.len() > LISTED_MACHINES { " and others" } else { "" };
    let message = match occupants.len() {
        0 if let Some(annotation) = unknown_users(snapshot) => format!(
            "Waiting for a confirmation that no machine is on the provider: its annotation {annotation} permits Machines in namespaces that are not watched by this operator: add them to --namespaces, or remove them from the annotation"
        ),
        0 => "The provider is being deleted".to_owned(),
        1 => format!("Waiting for 1 machine on the provider to be deleted: delete {}", listed.join(", ")),
        count => format!(
            "Waiting for {count} machines on the provider to be deleted: delete {}{more}",
            listed.join(", ")
        ),
    };
    Some(assertion(false, reason::DELETING, message))
}

fn ready(snapshot: &Snapshot<'_>) -> Assertion {
    if let Some(deleting) = deleting(snapshot) {
        return deleting;
    }
    if is_paused(&snapshot.provider.metadata) {
        return not_ready_while_paused();
    }
    if let Some(Err(refusal)) = &snapshot.credentials {
        return refused(refusal);
    }
    match (snapshot.health.circuit, &snapshot.health.refusal) {
        (Circuit::Closed { .. }, _) => {
            assertion(true, reason::PROVIDER_READY, "The provider accepts machines")
        }
        (_, Some(refusal)) => refused(refusal),
        (_, None) => assertion(false, reason::PROVIDER_UNREACHABLE, "The provider has not been checked yet"),
    }
}

fn reachable(snapshot: &Snapshot<'_>) -> Assertion {
    let answers = || assertion(true, reason::PROVIDER_READY, "The provider answers");
    match (&snapshot.health.refusal, snapshot.health.circuit) {
        // A provider that does not accept the credentials was reached.
        (Some(refusal), _) if refusal.reason == reason::INVALID_CREDENTIALS => answers(),
        (Some(refusal), _) => refused(refusal),
        (None, Circuit::Closed { .. }) => answers(),
        (None, _) => (None, reason::PROVIDER_UNREACHABLE, "The provider has not been checked yet".to_owned()),
    }
}

fn credentials_valid(snapshot: &Snapshot<'_>) -> Option<Assertion> {
    let usable = snapshot.credentials.as_ref()?;
    let rejected = snapshot.health.refusal.as_ref();
    Some(match (usable, rejected) {
        (Err(refusal), _) => refused(refusal),
        (Ok(()), Some(refusal)) if refusal.reason == reason::INVALID_CREDENTIALS => refused(refusal),
        (Ok(()), _) => assertion(true, reason::AS_SPECIFIED, "The credentials can be used"),
    })
}
