//! The error of a failed reconcile.

use std::{error::Error, fmt, time::Duration};

/// An unexpected error of a reconcile. Expected problems are an [`Outcome`](crate::Outcome).
#[derive(Debug)]
pub struct ReconcileError {
    /// The error type as a metric label; a constant, so that the number of series stays bounded.
    pub category: &'static str,
    /// What failed, without secrets.
    pub message: String,
    /// The underlying error, if any.
    pub source: Option<Box<dyn Error + Send + Sync>>,
    /// When to retry; without it the delay grows with every failure in a row.
    pub after: Option<Duration>,
}

impl ReconcileError {
    /// Creates an error from its cause, whose text becomes the message.
    pub fn from_source(category: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let source = source.into();
        Self { category, message: source.to_string(), source: Some(source), after: None }
    }

    /// Creates an error without a cause.
    pub fn new(category: &'static str, message: impl Into<String>) -> Self {
        Self { category, message: message.into(), source: None, after: None }
    }

    /// Returns the same error, retried after this delay.
    #[must_use]
    pub fn retry_after(self, after: Duration) -> Self {
        Self { after: Some(after), ..self }
    }
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl Error for ReconcileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The message already is the text of the cause, so the chain continues with the cause of the cause.
        self.source.as_deref().and_then(Error::source)
    }
}
