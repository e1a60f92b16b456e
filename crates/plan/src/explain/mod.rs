//! Why an object is as it is: the chain from what is wanted to what stands in the way.
//!
//! A pure function over what was read. Whatever can be decided is decided by the same functions that the operators use,
//! so the words are those of conditions and events; what only an operator can know is taken from the conditions it wrote.
//! Nothing is guessed: what was not read is said to be not known.

pub(crate) mod datacenter;
pub(crate) mod machine;
pub(crate) mod operators;
mod provider;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::Lease,
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
};
use serde::Serialize;
use vitistack_types::{
    conditions::{self, reason},
    labels,
    v1alpha1::{Datacenter, Machine, MachineClass, MachineProvider, NetworkConfiguration},
};

pub use operators::OPERATOR_ABSENT;

use crate::Refusal;

/// Everything that was read.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// When it was read.
    pub now: Timestamp,
    /// Every Machine.
    pub machines: Vec<Machine>,
    /// Every Datacenter.
    pub datacenters: Vec<Datacenter>,
    /// Every MachineProvider.
    pub providers: Vec<MachineProvider>,
    /// Every MachineClass.
    pub classes: Vec<MachineClass>,
    /// Every NetworkConfiguration.
    pub networks: Vec<NetworkConfiguration>,
    /// The names of the keys of Secrets, by `namespace/name`; none for a Secret that is not there. One that is not in the
    /// map is not known. Never their contents.
    pub secrets: BTreeMap<String, Option<BTreeSet<String>>>,
    /// The leases of the operators; none if they could not be read.
    pub leases: Option<Vec<Lease>>,
    /// What operators told, in the order of time.
    pub events: Vec<Told>,
}

/// Something that an operator told of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// When it was last told.
    pub at: Timestamp,
    /// Of what, such as `Machine default/web-1`.
    pub object: String,
    /// The reason in one word.
    pub reason: String,
    /// The sentence.
    pub message: String,
}

/// One object in the chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// Which, such as `MachineProvider default/simulated-a`.
    pub object: String,
    /// Whether it does its part.
    pub standing: Standing,
    /// What is to be said of it.
    pub says: String,
}

/// Whether an object does its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Standing {
    /// It does.
    Well,
    /// It stands in the way.
    Blocking,
    /// It could not be read.
    Unknown,
}

impl Standing {
    fn unless(is_blocking: bool) -> Self {
        if is_blocking { Self::Blocking } else { Self::Well }
    }
}

/// What stands in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// The object that has to change, or that is waited for.
    pub object: String,
    /// The reason, as conditions and events have it.
    pub reason: String,
    /// The sentence, as conditions and events have it.
    pub message: String,
    /// Since when, as far as known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What happens by itself, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// What a person can do beyond what the sentence says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_do: Option<String>,
}

/// Why an object is as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The object, such as `Machine default/web-1`.
    pub subject: String,
    /// From what is wanted to what stands in the way.
    pub chain: Vec<Link>,
    /// What stands in the way; none if nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// What was told of the subject and of what stands in its way, oldest first.
    pub tried: Vec<Told>,
}

/// An object to be explained.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// A Machine.
    Machine(&'a Machine),
    /// A Datacenter.
    Datacenter(&'a Datacenter),
    /// A MachineProvider.
    MachineProvider(&'a MachineProvider),
    /// A MachineClass.
    MachineClass(&'a MachineClass),
    /// A NetworkConfiguration.
    NetworkConfiguration(&'a NetworkConfiguration),
}

/// How many of the last things told are repeated.
const TRIED: usize = 5;

/// Explains an object.
#[must_use]
pub fn explain(subject: Subject<'_>, world: &World) -> Explanation {
    let (subject, (chain, cause)) = match subject {
        Subject::Machine(machine) => (object("Machine", &machine.metadata), machine::explain(machine, world)),
        Subject::Datacenter(datacenter) => {
            (object("Datacenter", &datacenter.metadata), datacenter::explain(datacenter, world))
        }
        Subject::MachineProvider(provider) => {
            (object("MachineProvider", &provider.metadata), provider::explain(provider, world))
        }
        Subject::MachineClass(class) => {
            let status = class.status.as_ref().map(|status| status.conditions.as_slice());
            let users = world.machines.iter().filter(|machine| {
                machine.spec.template.is_some() && machine.spec.template == class.metadata.name
            });
            let own = object("MachineClass", &class.metadata);
            (own.clone(), configuration(own, &class.metadata, status, users.count()))
        }
        Subject::NetworkConfiguration(network) => {
            let status = network.status.as_ref().map(|status| status.conditions.as_slice());
            let is_attached = |machine: &&Machine| {
                machine.metadata.namespace == network.metadata.namespace
                    && machine
                        .spec
                        .networks
                        .iter()
                        .any(|one| Some(&one.network_name) == network.metadata.name.as_ref())
            };
            let users = world.machines.iter().filter(is_attached).count();
            let own = object("NetworkConfiguration", &network.metadata);
            (own.clone(), configuration(own, &network.metadata, status, users))
        }
    };
    let is_about = |told: &&Told| {
        told.object == subject || cause.as_ref().is_some_and(|cause| cause.object == told.object)
    };
    let mut tried: Vec<Told> = world.events.iter().filter(is_about).cloned().collect();
    tried.drain(..tried.len().saturating_sub(TRIED));
    Explanation { subject, chain, cause, tried }
}

/// Chain and cause of one object.
type Story = (Vec<Link>, Option<Cause>);

/// The chain with its weakest link marked, or added.
fn ended(mut chain: Vec<Link>, cause: Option<Cause>) -> Story {
    if let Some(cause) = &cause {
        match chain.iter_mut().find(|link| link.object == cause.object) {
            Some(link) => link.standing = Standing::Blocking,
            None => chain.push(Link {
                object: cause.object.clone(),
                standing: Standing::Blocking,
                says: format!("{}: {}", cause.reason, cause.message),
            }),
        }
    }
    (chain, cause)
}

/// An object that no operator has looked at yet.
fn not_looked_at(object: &str, metadata: &ObjectMeta, waits_for: &str) -> Cause {
    Cause {
        object: object.to_owned(),
        reason: "Pending".to_owned(),
        message: "it was not looked at yet".to_owned(),
        since: metadata.creation_timestamp.as_ref().map(|time| time.0),
        waits_for: Some(waits_for.to_owned()),
        to_do: None,
    }
}

/// Objects that nobody acts on: they are what they say.
fn configuration(
    object: String,
    metadata: &ObjectMeta,
    conditions: Option<&[Condition]>,
    users: usize,
) -> Story {
    let link = Link {
        object: object.clone(),
        standing: Standing::Well,
        says: format!("is named by {}", count(users, "Machine")),
    };
    let cause = deletion(&object, metadata)
        .or_else(|| not_ready(conditions.unwrap_or_default()).map(|ready| told(object, ready)));
    ended(vec![link], cause)
}

/// `namespace/name`, or the name of an object without a namespace.
pub(crate) fn name(metadata: &ObjectMeta) -> String {
    let name = metadata.name.as_deref().unwrap_or_default();
    metadata.namespace.as_ref().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// The object as it is written in chains, causes and events.
pub(crate) fn object(kind: &str, metadata: &ObjectMeta) -> String {
    format!("{kind} {}", name(metadata))
}

fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// The Ready condition.
fn ready(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == conditions::READY)
}

/// The Ready condition, unless it is true or not there.
fn not_ready(conditions: &[Condition]) -> Option<&Condition> {
    ready(conditions).filter(|condition| condition.status != "True")
}

/// A cause in the words of a condition.
fn told(object: String, condition: &Condition) -> Cause {
    Cause {
        object,
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        since: Some(condition.last_transition_time.0),
        waits_for: None,
        to_do: None,
    }
}

/// A cause in the words of a refusal; known since then if a condition says the same.
fn refused(object: String, refusal: Refusal, conditions: &[Condition]) -> Cause {
    let since = not_ready(conditions)
        .filter(|condition| condition.reason == refusal.reason)
        .map(|condition| condition.last_transition_time.0);
    Cause {
        object,
        reason: refusal.reason.to_owned(),
        message: refusal.message,
        since,
        waits_for: None,
        to_do: None,
    }
}

/// The command of ours that changes an object.
pub(crate) fn command(verb: &str, object: &str) -> String {
    let (kind, name) = object.split_once(' ').unwrap_or((object, ""));
    let kind = kind.to_lowercase();
    match name.split_once('/') {
        Some((namespace, name)) => format!("vitistack {verb} {kind}/{name} -n {namespace}"),
        None => format!("vitistack {verb} {kind}/{name}"),
    }
}

/// An object that is paused by its annotation.
fn paused(object: &str, metadata: &ObjectMeta, conditions: &[Condition]) -> Option<Cause> {
    (annotation(metadata, labels::PAUSED) == Some("true")).then(|| {
        let since = conditions
            .iter()
            .find(|condition| condition.type_ == conditions::PAUSED && condition.status == "True")
            .map(|condition| condition.last_transition_time.0);
        Cause {
            object: object.to_owned(),
            reason: reason::PAUSED.to_owned(),
            message: "the annotation vitistack.io/paused stops all action".to_owned(),
            since,
            waits_for: None,
            to_do: Some(format!("run `{}`", command("resume", object))),
        }
    })
}

/// An object that is deleted and held by finalizers.
fn deletion(object: &str, metadata: &ObjectMeta) -> Option<Cause> {
    let since = metadata.deletion_timestamp.as_ref()?.0;
    let finalizers = metadata.finalizers.clone().unwrap_or_default().join(", ");
    Some(Cause {
        object: object.to_owned(),
        reason: reason::DELETING.to_owned(),
        message: format!("it is being deleted and its finalizers hold it: {finalizers}"),
        since: Some(since),
        waits_for: Some("whoever set a finalizer to remove it".to_owned()),
        to_do: None,
    })
}
