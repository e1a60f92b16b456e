//! The result of every decision, as plain data.

use serde::Serialize;
use vitistack_types::{Event, Outcome};

/// What to do about one object: it prints, compares and serializes, and nothing is decided after it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan<Step, Status> {
    /// Kubernetes objects to apply before the steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<serde_json::Value>,
    /// What to do, in this order, up to the first step that has to wait.
    pub steps: Vec<Step>,
    /// The status to write; absent if the one that was read still holds.
    pub status: Option<Status>,
    /// The events to publish with the status.
    pub events: Vec<Event>,
    /// When to reconcile again.
    pub requeue: Outcome,
}
