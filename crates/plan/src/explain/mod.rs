//! Why an object is not ready: the chain from its desired state to what blocks it.
//!
//! A pure function over an [`Inventory`]. What can be decided is decided by the functions that the operators use, so the
//! sentences are those of conditions and events; what only an operator can know is taken from the conditions that it
//! reported. Nothing is guessed: what was not read is reported as unknown.

mod datacenter;
mod facts;
mod machine;
mod operator;
mod overview;
mod provider;

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Serialize, Serializer};
use vitistack_types::{
    ObjectId, OperatorName,
    conditions::{self, reason},
    v1alpha1::ProviderType,
};

use facts::Facts;
pub use operator::OPERATOR_ABSENT;
pub use overview::{CauseGroup, Overview, Severity, overview};

use crate::{
    Inventory, Refusal, command::command, conditions::Assertion, inventory::InventoryObject, is_paused,
};

/// An event that was published about an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedEvent {
    /// When it was last published.
    pub at: Timestamp,
    /// The object.
    pub object: ObjectId,
    /// The reason in `CamelCase`.
    pub reason: String,
    /// The sentence for a person.
    pub message: String,
}

/// What a link of the chain is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkTarget {
    /// An object of the cluster.
    Object(ObjectId),
    /// One condition of an object.
    Condition {
        /// The type of the condition.
        type_: String,
        /// The object.
        object: ObjectId,
    },
    /// An operator.
    Operator(OperatorName),
    /// The operators' own cluster.
    OwnCluster,
}

impl LinkTarget {
    /// The object, if it is one.
    #[must_use]
    pub fn object(&self) -> Option<&ObjectId> {
        match self {
            Self::Object(object) => Some(object),
            Self::Condition { .. } | Self::Operator(_) | Self::OwnCluster => None,
        }
    }
}

impl From<ObjectId> for LinkTarget {
    fn from(object: ObjectId) -> Self {
        Self::Object(object)
    }
}

impl fmt::Display for LinkTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(object) => write!(formatter, "{object}"),
            Self::Condition { type_, object } => write!(formatter, "{type_} of {object}"),
            Self::Operator(operator) => write!(formatter, "operator {operator}"),
            Self::OwnCluster => write!(formatter, "the cluster itself ({})", ProviderType::OWN_CLUSTER),
        }
    }
}

impl Serialize for LinkTarget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One link of the chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// What it is about.
    pub object: LinkTarget,
    /// Whether it does its part.
    pub state: LinkState,
    /// What there is to know about it.
    pub message: String,
}

/// Whether a link does its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LinkState {
    /// It does.
    Healthy,
    /// It has a problem that does not affect the subject now.
    Degraded,
    /// It blocks the subject.
    Blocking,
    /// It could not be read.
    Unknown,
}

impl Link {
    fn new(object: impl Into<LinkTarget>, state: LinkState, message: impl Into<String>) -> Self {
        Self { object: object.into(), state, message: message.into() }
    }

    fn healthy(object: impl Into<LinkTarget>, message: impl Into<String>) -> Self {
        Self::new(object, LinkState::Healthy, message)
    }

    fn blocking(object: impl Into<LinkTarget>, message: impl Into<String>) -> Self {
        Self::new(object, LinkState::Blocking, message)
    }
}

/// What blocks an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// What has to change, or what is waited for.
    pub object: LinkTarget,
    /// The reason, as in conditions and events.
    pub reason: String,
    /// The sentence, as in conditions and events.
    pub message: String,
    /// The object that has to be created or changed, where it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<ObjectId>,
    /// Since when, as far as known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What happens without a person, as a noun phrase that completes "waiting for …".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// What a person can do beyond what the sentence states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Cause {
    fn new(
        object: impl Into<LinkTarget>,
        reason: &str,
        message: impl Into<String>,
        since: Option<Timestamp>,
    ) -> Self {
        Self {
            object: object.into(),
            reason: reason.to_owned(),
            message: message.into(),
            missing: None,
            since,
            waiting_for: None,
            fix: None,
        }
    }

    /// A cause that a condition reports.
    fn reported(object: impl Into<LinkTarget>, condition: &Condition) -> Self {
        let since = Some(condition.last_transition_time.0);
        Self::new(object, &condition.reason, &condition.message, since)
    }

    /// A cause that a refusal states; since when is known if a condition has the same reason.
    fn refused(object: impl Into<LinkTarget>, refusal: Refusal, conditions: &[Condition]) -> Self {
        let same = not_ready(conditions).filter(|condition| condition.reason == refusal.reason);
        let since = same.map(|condition| condition.last_transition_time.0);
        let cause = Self::new(object, refusal.reason, refusal.message, since);
        Self { missing: refusal.missing, ..cause }
    }

    /// Whether it resolves without a person, as far as known.
    #[must_use]
    pub fn is_in_progress(&self) -> bool {
        let reasons = [reason::CREATING, reason::UPDATING, reason::STARTING, reason::DELETING];
        self.waiting_for.is_some() || reasons.contains(&self.reason.as_str())
    }

    /// The reason and the sentence.
    fn summary(&self) -> String {
        format!("{}: {}", self.reason, self.message)
    }
}

/// Why an object is not ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The object that is explained.
    pub subject: ObjectId,
    /// From its desired state to what blocks it.
    pub chain: Vec<Link>,
    /// What blocks it, if anything does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// What would block it next. Conditions have only the first cause.
    #[serde(rename = "furtherCauses", skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<Cause>,
    /// The last events of the subject and of what blocks it, oldest first.
    pub events: Vec<RecordedEvent>,
}

/// How many of the last events an explanation has.
const LAST_EVENTS: usize = 5;

impl Explanation {
    /// The objects whose events belong to the explanation: the subject, and what blocks it.
    #[must_use]
    pub fn events_needed(&self) -> Vec<ObjectId> {
        let blocking = self.cause.as_ref().and_then(|cause| cause.object.object());
        let other = blocking.filter(|object| **object != self.subject);
        std::iter::once(&self.subject).chain(other).cloned().collect()
    }

    /// The same explanation with the last of these events that belong to it.
    #[must_use]
    pub fn with_events(self, mut events: Vec<RecordedEvent>) -> Self {
        let needed = self.events_needed();
        events.retain(|event| needed.contains(&event.object));
        events.sort_by_key(|event| event.at);
        events.drain(..events.len().saturating_sub(LAST_EVENTS));
        Self { events, ..self }
    }
}

/// Explains an object, if it is in the inventory.
#[must_use]
pub fn explain(subject: &ObjectId, inventory: &Inventory) -> Option<Explanation> {
    let object = inventory.object(subject)?;
    let Finding { chain, cause, further } = find(object, &Facts::new(inventory));
    Some(Explanation { subject: object.id(), chain, cause, further, events: Vec::new() })
}

/// Finds what blocks an object.
fn find(object: InventoryObject<'_>, facts: &Facts<'_>) -> Finding {
    match object {
        InventoryObject::Machine(machine) => machine::explain(machine, facts),
        InventoryObject::Datacenter(datacenter) => datacenter::explain(datacenter, facts),
        InventoryObject::MachineProvider(provider) => provider::explain(provider, facts.inventory),
        InventoryObject::MachineClass(_) | InventoryObject::NetworkConfiguration(_) => {
            configuration(object, facts.inventory)
        }
    }
}

/// The chain and the causes of one object.
struct Finding {
    chain: Vec<Link>,
    cause: Option<Cause>,
    /// What would block it next.
    further: Vec<Cause>,
}

impl Finding {
    /// A chain that ends with its cause: the link of the cause is marked, or added.
    fn new(mut chain: Vec<Link>, cause: Option<Cause>) -> Self {
        if let Some(cause) = &cause {
            match chain.iter_mut().find(|link| link.object == cause.object) {
                Some(link) => link.state = LinkState::Blocking,
                None => chain.push(Link::blocking(cause.object.clone(), cause.summary())),
            }
        }
        Self { chain, cause, further: Vec::new() }
    }
}

/// Explains an object that only describes something.
fn configuration(object: InventoryObject<'_>, inventory: &Inventory) -> Finding {
    let id = object.id();
    let is_user = |machine: &&vitistack_types::v1alpha1::Machine| match object {
        InventoryObject::MachineClass(_) => machine.spec.template.as_ref() == Some(&id.name.name),
        _ => {
            machine.metadata.namespace.as_deref() == Some(&id.name.namespace)
                && machine.spec.networks.iter().any(|interface| interface.network_name == id.name.name)
        }
    };
    let users = inventory.machines.iter().filter(is_user).count();

    let link = Link::healthy(id.clone(), format!("used by {}", count(users, "Machine")));
    let reported = not_ready(object.conditions()).map(|ready| Cause::reported(id.clone(), ready));
    let cause = deletion(&id, object.metadata()).or(reported);
    Finding::new(vec![link], cause)
}

fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// The Ready condition.
fn ready(conditions: &[Condition]) -> Option<&Condition> {
    conditions::find(conditions, conditions::READY)
}

/// The Ready condition, unless it is true or absent.
fn not_ready(conditions: &[Condition]) -> Option<&Condition> {
    ready(conditions).filter(|condition| condition.status != "True")
}

/// An object that no operator has reconciled yet.
fn not_reconciled(object: &ObjectId, metadata: &ObjectMeta, waiting_for: String) -> Cause {
    let since = metadata.creation_timestamp.as_ref().map(|time| time.0);
    let cause = Cause::new(object.clone(), "Pending", "not reconciled yet", since);
    Cause { waiting_for: Some(waiting_for), ..cause }
}

/// An object that its annotation pauses, in the sentence of its Paused condition.
fn paused(
    object: &ObjectId,
    metadata: &ObjectMeta,
    conditions: &[Condition],
    assertion: Assertion,
) -> Option<Cause> {
    if !is_paused(metadata) {
        return None;
    }
    let condition = conditions::find(conditions, conditions::PAUSED).filter(|paused| paused.status == "True");
    let since = condition.map(|condition| condition.last_transition_time.0);
    let (_, reason, message) = assertion;
    let fix = Some(format!("run `{}`", command("resume", object)));
    Some(Cause { fix, ..Cause::new(object.clone(), reason, message, since) })
}

/// An object that is being deleted and that finalizers hold.
fn deletion(object: &ObjectId, metadata: &ObjectMeta) -> Option<Cause> {
    let since = metadata.deletion_timestamp.as_ref()?.0;
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    let noun = if finalizers.len() == 1 { "finalizer" } else { "finalizers" };
    let cause = Cause::new(object.clone(), reason::DELETING, "being deleted", Some(since));
    Some(Cause { waiting_for: Some(format!("{noun} {} to be removed", finalizers.join(", "))), ..cause })
}
