//! Events as plans describe them.

use std::fmt;

use serde::{Serialize, Serializer};

/// How severe an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Something happened as it should.
    Normal,
    /// Something is wrong.
    Warning,
}

/// An event to publish about an object. Prints as `Warning TemplateNotFound: …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// How severe it is.
    pub severity: Severity,
    /// The reason in `CamelCase`.
    pub reason: String,
    /// The sentence for a person.
    pub message: String,
}

impl Event {
    /// An event that reports progress.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Normal, reason: reason.into(), message: message.into() }
    }

    /// An event that reports a problem.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, reason: reason.into(), message: message.into() }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} {}: {}", self.severity, self.reason, self.message)
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
