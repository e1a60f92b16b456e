//! Why nothing can be done until a person changes something.

use std::fmt;

use serde::Serialize;
use vitistack_types::ObjectId;

/// A reason for programs, and a sentence for people that ends with the fix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The reason of the condition and the event.
    pub reason: &'static str,
    /// What is wrong, and the fix.
    pub message: String,
    /// The object that has to be created or changed, where it is another one than the object refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<ObjectId>,
}

impl Refusal {
    /// A refusal with its reason and its sentence.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), missing: None }
    }

    /// The same refusal, which another object would resolve.
    #[must_use]
    pub fn missing(self, object: ObjectId) -> Self {
        Self { missing: Some(object), ..self }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}
