//! How a reconcile ends.

use std::{fmt, time::Duration};

use serde::{Serialize, Serializer};

/// How a reconcile ended. The set is closed, so that every controller means the same by the same outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The observed state matches the desired state; the object is reconciled again at the next resync or event.
    Done,
    /// Something else is in progress and nothing is wrong.
    Wait {
        /// A noun phrase that completes the sentence "waiting for …".
        waiting_for: String,
        /// When to reconcile again if no event comes first.
        after: Duration,
    },
    /// Something failed that may work next time.
    Retry {
        /// The reason as a metric label, known when the program is built.
        reason: &'static str,
        /// What failed.
        cause: String,
        /// When to retry; without it the delay grows with every failure in a row.
        after: Option<Duration>,
    },
    /// A person has to change something first; reconciled again at the next resync or event, because the fix may come
    /// from anywhere.
    Blocked {
        /// The reason of the condition.
        reason: String,
        /// What is wrong, and the fix.
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

    /// Returns the outcome that reconciles again sooner. An outcome without a time comes last.
    #[must_use]
    pub fn sooner(self, other: Self) -> Self {
        let after = |outcome: &Self| match outcome {
            Self::Wait { after, .. } => *after,
            Self::Retry { after, .. } => after.unwrap_or_default(),
            Self::Done | Self::Blocked { .. } => Duration::MAX,
        };
        if after(&other) < after(&self) { other } else { self }
    }

    /// Waits for something that a noun phrase names.
    pub fn wait(waiting_for: impl Into<String>, after: Duration) -> Self {
        Self::Wait { waiting_for: waiting_for.into(), after }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => formatter.write_str("done"),
            Self::Wait { waiting_for, after } => {
                write!(formatter, "waiting for {waiting_for} (next check in {after:?})")
            }
            Self::Retry { cause, after: Some(after), .. } => {
                write!(formatter, "failed: {cause} (next attempt in {after:?})")
            }
            Self::Retry { cause, after: None, .. } => write!(formatter, "failed: {cause}"),
            Self::Blocked { reason, fix } => write!(formatter, "blocked: {reason}: {fix}"),
        }
    }
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_read_as_sentences() {
        let wait = Outcome::wait("the claim to be bound", Duration::from_secs(5));
        assert_eq!(wait.to_string(), "waiting for the claim to be bound (next check in 5s)");
        let blocked = Outcome::Blocked { reason: "TemplateNotFound".into(), fix: "choose another".into() };
        assert_eq!(blocked.to_string(), "blocked: TemplateNotFound: choose another");
        let retry = Outcome::Retry { reason: "Timeout", cause: "no answer".into(), after: None };
        assert_eq!(retry.to_string(), "failed: no answer");
        assert_eq!(Outcome::Done.sooner(wait.clone()), wait);
        assert_eq!(wait.clone().sooner(Outcome::wait("a resync", Duration::from_secs(9))), wait);
        let later = Outcome::Retry {
            reason: "Timeout",
            cause: "no answer".into(),
            after: Some(Duration::from_secs(30)),
        };
        assert_eq!(later.to_string(), "failed: no answer (next attempt in 30s)");
    }
}
