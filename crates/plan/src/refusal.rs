//! Why nothing can be done until somebody changes something.

use std::fmt;

/// A reason as one word for programs, and a sentence for people that ends with the fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason of the condition and the event.
    pub reason: &'static str,
    /// What is wrong, and the fix.
    pub message: String,
}

impl Refusal {
    /// A refusal with its reason and its sentence.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}
