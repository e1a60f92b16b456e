//! Which changes of a status deserve an event: one rule for every kind.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use vitistack_types::{
    Event,
    conditions::{self, reason},
};

/// Reasons that report progress. An event is published when the reason changes, not for every step of the way.
const PROGRESS: [&str; 4] = [reason::CREATING, reason::UPDATING, reason::DELETING, reason::PAUSED];

/// Reasons whose messages hold numbers that move with every other machine. Only the reason counts.
const COUNTED: [&str; 2] = [reason::QUOTA_EXCEEDED, reason::INSUFFICIENT_RESOURCES];

/// The event for a Ready condition that changed, if a user should know. With `is_problem` even a reason that reports
/// progress is a warning.
pub(crate) fn of_ready(before: &[Condition], after: &[Condition], is_problem: bool) -> Option<Event> {
    let after = conditions::find(after, conditions::READY)?;
    let before = conditions::find(before, conditions::READY);

    let is_ready = after.status == "True";
    let is_progress = is_ready || (!is_problem && PROGRESS.contains(&after.reason.as_str()));
    let is_message_relevant = !is_progress && !COUNTED.contains(&after.reason.as_str());
    let is_relevant = before.is_none_or(|before| {
        before.reason != after.reason || (is_message_relevant && before.message != after.message)
    });
    if !is_relevant {
        return None;
    }

    let event = if is_progress { Event::normal } else { Event::warning };
    Some(event(after.reason.clone(), after.message.clone()))
}
