//! How a reconcile can end.

use std::{error::Error, fmt, time::Duration};

/// How a reconcile ended. Closed, so that every controller means the same by the same word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything is as desired; the object is looked at again at the next resync or event.
    Done,
    /// Something foreign is under way and nothing is wrong.
    Wait {
        /// What is waited for, as the end of the sentence "waiting for …".
        waiting_for: String,
        /// When to look again, if no event comes first.
        after: Duration,
    },
    /// Something failed that may work next time.
    Retry {
        /// When to try again; without it the time grows with every failure in a row.
        after: Option<Duration>,
        /// What failed.
        cause: String,
    },
    /// Only a person can help; looked at again at the next resync or event, because the help may come from anywhere.
    Blocked {
        /// What is wrong.
        reason: String,
        /// What would help.
        fix: String,
    },
}

impl Outcome {
    /// The outcome's name as a metric label.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Wait { .. } => "wait",
            Self::Retry { .. } => "retry",
            Self::Blocked { .. } => "blocked",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => formatter.write_str("done"),
            Self::Wait { waiting_for, after } => {
                write!(formatter, "waiting for {waiting_for}, looking again in {after:?}")
            }
            Self::Retry { after: Some(after), cause } => {
                write!(formatter, "trying again in {after:?}: {cause}")
            }
            Self::Retry { after: None, cause } => write!(formatter, "trying again later: {cause}"),
            Self::Blocked { reason, fix } => write!(formatter, "blocked: {reason}; {fix}"),
        }
    }
}

/// A reconcile that failed where its author did not expect it.
#[derive(Debug)]
pub struct ReconcileError {
    /// Label for metrics: one of few, known when the program is built.
    pub category: &'static str,
    /// What failed, without secrets.
    pub message: String,
    /// The cause, if there is one.
    pub source: Option<Box<dyn Error + Send + Sync>>,
    /// When to try again; without it the time grows with every failure in a row.
    pub after: Option<Duration>,
}

impl ReconcileError {
    /// An error with a cause, whose words become the message.
    pub fn from_source(category: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let source = source.into();
        Self { category, message: source.to_string(), source: Some(source), after: None }
    }

    /// An error without a cause.
    pub fn new(category: &'static str, message: impl Into<String>) -> Self {
        Self { category, message: message.into(), source: None, after: None }
    }

    /// The same, tried again after this time.
    #[must_use]
    pub fn again_after(self, after: Duration) -> Self {
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
        // The message is the cause's own words: what comes next is what lies behind it.
        self.source.as_deref().and_then(Error::source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_read_as_sentences() {
        let wait =
            Outcome::Wait { waiting_for: "the claim to be bound".into(), after: Duration::from_secs(5) };
        assert_eq!(wait.to_string(), "waiting for the claim to be bound, looking again in 5s");
        let blocked = Outcome::Blocked { reason: "no class \"huge\"".into(), fix: "choose another".into() };
        assert_eq!(blocked.to_string(), "blocked: no class \"huge\"; choose another");
        let retry = Outcome::Retry { after: None, cause: "no answer".into() };
        assert_eq!(retry.to_string(), "trying again later: no answer");
    }
}
