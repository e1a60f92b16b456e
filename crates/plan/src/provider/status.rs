//! What is told of a provider.

use jiff::Timestamp;
use vitistack_types::{
    conditions::{self, Statement, reason},
    labels,
    v1alpha1::{MachineProvider, MachineProviderStatus, Phase},
};

use super::{Circuit, Health};
use crate::{Refusal, datacenter::Usage, is_paused};

/// So many machines are named where many are in the way.
const NAMED: usize = 3;

/// Everything that was read of one provider.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// The MachineProvider.
    pub provider: &'a MachineProvider,
    /// Whether its credentials can be used; none if it names none.
    pub credentials: Option<Result<(), Refusal>>,
    /// What its checks have shown.
    pub health: &'a Health,
    /// What the machines placed on it use.
    pub used: Usage,
    /// The Machines, as `namespace/name`, that something may have been made for on it.
    pub occupants: &'a [String],
}

/// What a Secret has under the key that a provider's credentials name, or what has to change first.
/// `secret` is the Secret's content, if there is one, looked up by key.
pub fn credentials<T>(
    provider: &MachineProvider,
    secret: Option<impl Fn(&str) -> Option<T>>,
) -> Option<Result<T, Refusal>> {
    let reference = &provider.spec.credentials.as_ref()?.secret_ref;
    let (name, key) = (&reference.name, &reference.key);
    let namespace = provider.metadata.namespace.as_deref().unwrap_or_default();
    let Some(content) = secret else {
        return Some(Err(Refusal::new(
            reason::SECRET_NOT_FOUND,
            format!(
                "spec.credentials.secretRef.name {name:?} names nothing in namespace {namespace:?}: create a Secret {name:?} there"
            ),
        )));
    };
    Some(content(key).ok_or_else(|| {
        Refusal::new(
            reason::SECRET_KEY_NOT_FOUND,
            format!(
                "spec.credentials.secretRef.key {key:?} is not in Secret {name:?}: add it, or name a key that is there"
            ),
        )
    }))
}

/// The status of a provider.
#[must_use]
pub fn status(snapshot: &Snapshot<'_>, now: Timestamp) -> MachineProviderStatus {
    let provider = snapshot.provider;
    let before = provider.status.clone().unwrap_or_default();
    let mut conditions = before.conditions;
    let generation = provider.metadata.generation;
    let mut tell = |type_: &str, told: Option<Telling<'_>>| match told {
        Some((status, reason, message)) => {
            let statement = Statement { type_, status, reason, message };
            conditions::set(&mut conditions, &statement, generation, now);
        }
        None => conditions.retain(|condition| condition.type_ != type_),
    };
    let leaving = leaving(snapshot);
    let ready = ready(snapshot, leaving.as_deref());
    tell(conditions::READY, Some(ready));
    tell(conditions::REACHABLE, Some(reachable(snapshot)));
    tell(conditions::CREDENTIALS_VALID, credentials_valid(snapshot));
    let paused = format!(
        "the annotation {} stops all action: it is not checked and takes no machines",
        labels::PAUSED
    );
    tell(
        conditions::PAUSED,
        is_paused(&provider.metadata).then_some((Some(true), reason::PAUSED, paused.as_str())),
    );
    MachineProviderStatus {
        phase: Some(if ready.0 == Some(true) { Phase::Ready } else { Phase::Failed }),
        observed_generation: generation,
        conditions,
        version: snapshot.health.probed.version.clone().or(before.version),
        used: Some(snapshot.used.into()),
    }
}

/// Whether it holds, the reason, the sentence.
type Telling<'a> = (Option<bool>, &'a str, &'a str);

fn refused(refusal: &Refusal) -> Telling<'_> {
    (Some(false), refusal.reason, &refusal.message)
}

fn leaving(snapshot: &Snapshot<'_>) -> Option<String> {
    snapshot.provider.metadata.deletion_timestamp.as_ref()?;
    let occupants = snapshot.occupants;
    let named: Vec<&str> = occupants.iter().take(NAMED).map(String::as_str).collect();
    let more = if occupants.len() > NAMED { " and others" } else { "" };
    Some(match occupants.len() {
        0 => "it is being deleted".to_owned(),
        1 => {
            format!("it is being deleted and waits for 1 machine that is on it: delete {}", named.join(", "))
        }
        count => format!(
            "it is being deleted and waits for {count} machines that are on it: delete {}{more}",
            named.join(", ")
        ),
    })
}

fn ready<'a>(snapshot: &'a Snapshot<'_>, leaving: Option<&'a str>) -> Telling<'a> {
    if let Some(leaving) = leaving {
        return (Some(false), reason::DELETING, leaving);
    }
    if let Some(Err(refusal)) = &snapshot.credentials {
        return refused(refusal);
    }
    match (snapshot.health.circuit, &snapshot.health.refusal) {
        (Circuit::Closed { .. }, _) => (Some(true), reason::PROVIDER_READY, "the provider takes machines"),
        (_, Some(refusal)) => refused(refusal),
        (_, None) => (Some(false), reason::PROVIDER_UNREACHABLE, "it was not asked yet"),
    }
}

fn reachable<'a>(snapshot: &'a Snapshot<'_>) -> Telling<'a> {
    let answers = (Some(true), reason::PROVIDER_READY, "the provider answers");
    match (&snapshot.health.refusal, snapshot.health.circuit) {
        // One that does not accept the credentials was reached.
        (Some(refusal), _) if refusal.reason == reason::INVALID_CREDENTIALS => answers,
        (Some(refusal), _) => refused(refusal),
        (None, Circuit::Closed { .. }) => answers,
        (None, _) => (None, reason::PROVIDER_UNREACHABLE, "it was not asked yet"),
    }
}

fn credentials_valid<'a>(snapshot: &'a Snapshot<'_>) -> Option<Telling<'a>> {
    let usable = snapshot.credentials.as_ref()?;
    let accepted = snapshot.health.refusal.as_ref();
    Some(match (usable, accepted) {
        (Err(refusal), _) => refused(refusal),
        (Ok(()), Some(refusal)) if refusal.reason == reason::INVALID_CREDENTIALS => refused(refusal),
        (Ok(()), _) => (Some(true), reason::AS_SPECIFIED, "the credentials can be used"),
    })
}
