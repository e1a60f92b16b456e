//! What a backend is: five methods, each idempotent, none blocking, none knowing a custom resource.

use std::fmt;

use async_trait::async_trait;
use futures::stream::BoxStream;
use vitistack_plan::machine::{Capabilities, Desired, Identity, Observed, Part, Update};

/// Which machine a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The name by which the real thing knows its Machine. Only what carries it may be touched.
    pub identity: Identity,
    /// UID of the Machine as it is now, for owner references; differs from the identity after a restore.
    pub uid: String,
    /// Name of the Machine.
    pub name: String,
    /// Namespace of the Machine.
    pub namespace: String,
}

/// A machine to be made or changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// Which machine.
    pub target: Target,
    /// What it shall be.
    pub desired: Desired,
}

/// How far a call got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is done, as far as the provider says; the next observation shows it.
    Done,
    /// The provider works on it. Holds what is waited for, in words.
    Working(String),
}

/// Code that talks to one kind of provider.
///
/// Every method is idempotent and returns as soon as the provider has taken the request: waiting is an answer
/// ([`Progress::Working`]), never something to do inside. Only things that carry the target's identity are changed or
/// deleted; a thing of the right name without it is told in [`Observed::foreign`].
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// What the backend can do.
    fn capabilities(&self) -> Capabilities;

    /// Everything the provider has for the target. Never changes anything. With an order it also looks at whether the
    /// provider has what the order needs, and whether the machine is as ordered.
    async fn observe(&self, target: &Target, order: Option<&Order>) -> Result<Observed, BackendError>;

    /// Makes the machine, unless there is one with its identity: a create that succeeded unheard is found, not repeated.
    async fn create(&self, order: &Order) -> Result<Progress, BackendError>;

    /// Changes the machine.
    async fn update(&self, order: &Order, update: &Update) -> Result<Progress, BackendError>;

    /// Deletes a part of it. What is not there is deleted already.
    async fn delete(&self, target: &Target, part: &Part) -> Result<Progress, BackendError>;
}

/// For backends whose provider tells of changes, so that nothing has to be polled.
pub trait Changes: Send + Sync + 'static {
    /// The identities whose real thing changed, from now on.
    fn changes(&self) -> BoxStream<'static, Identity>;
}

/// What kind of failure it was, which decides what happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The provider did not answer: it may or may not have done what was asked.
    Unreachable,
    /// The provider does not accept our credentials.
    Unauthenticated,
    /// The provider has no room.
    NoCapacity,
    /// The provider refuses the request; asking again without a change is of no use.
    Refused,
    /// The provider failed; asking again may help.
    Failed,
}

/// Why a call failed. The message is written for users and never holds a secret or a provider's raw answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendError {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// The reason for conditions and events, such as `KubeVirtApiError`.
    pub reason: &'static str,
    /// What failed, and the fix where there is one.
    pub message: String,
}

impl BackendError {
    /// A failure with its kind, reason and sentence.
    pub fn new(kind: ErrorKind, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, reason, message: message.into() }
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for BackendError {}
