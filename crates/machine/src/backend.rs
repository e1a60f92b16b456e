//! The interface of a backend: five methods, each idempotent and non-blocking, none of which sees a custom resource.

use std::fmt;

use async_trait::async_trait;
use vitistack_plan::{
    Refusal,
    machine::{Capabilities, Desired, ErrorKind, Identity, Observed, Part, Update},
};

/// The machine a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The identity that the backing machine carries. Only what carries it may be changed.
    pub identity: Identity,
    /// The current UID of the Machine, for owner references; differs from the identity after a restore.
    pub uid: String,
    /// The name of the Machine.
    pub name: String,
    /// The namespace of the Machine.
    pub namespace: String,
}

/// A machine to create or change.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// The machine.
    pub target: Target,
    /// Its desired state.
    pub desired: Desired,
}

/// The progress of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The provider reports that it is done; the next observation shows the result.
    Done,
    /// The provider is working on it. Holds a noun phrase that completes "Waiting for …".
    Working(String),
}

/// Code that talks to one kind of provider.
///
/// Every method is idempotent and returns as soon as the provider has accepted the request: waiting is reported as
/// [`Progress::Working`], never done inside a method. Only what carries the identity of the target is changed or
/// deleted; a machine or volume with the right name but another identity is reported in [`Observed::foreign`].
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Returns what the backend supports.
    fn capabilities(&self) -> Capabilities;

    /// Returns everything the provider has for the target, and never changes anything. With an order it also reports
    /// whether the provider has what the order needs, and whether the machine matches the order.
    async fn observe(&self, target: &Target, order: Option<&Order>) -> Result<Observed, BackendError>;

    /// Creates the machine unless one with its identity exists: after a lost reply the machine is found, not duplicated.
    async fn create(&self, order: &Order) -> Result<Progress, BackendError>;

    /// Changes the machine.
    async fn update(&self, order: &Order, update: &Update) -> Result<Progress, BackendError>;

    /// Deletes a part of the machine. A part that does not exist counts as deleted.
    async fn delete(&self, target: &Target, part: &Part) -> Result<Progress, BackendError>;
}

/// Why a call failed. The message is written for users and never contains a secret or a raw answer of the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendError {
    /// The kind of failure.
    pub kind: ErrorKind,
    /// The reason for conditions and events, such as `KubeVirtApiError`.
    pub reason: &'static str,
    /// What failed, and the fix if there is one.
    pub message: String,
}

impl BackendError {
    /// Returns an error with this kind, reason and message.
    pub fn new(kind: ErrorKind, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, reason, message: message.into() }
    }

    /// Returns the error of a request that cannot be carried out until a person changes something.
    #[must_use]
    pub fn refused(refusal: Refusal) -> Self {
        Self::new(ErrorKind::Refused, refusal.reason, refusal.message)
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for BackendError {}
