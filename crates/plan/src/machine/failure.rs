//! What a failed request to a provider means for the Machine.

use super::Observed;
use crate::Refusal;

/// The kind of a failed request, which decides what happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The provider did not reply: the request may or may not have been carried out.
    Unreachable,
    /// The provider rejected the credentials.
    Unauthenticated,
    /// The provider has no capacity left.
    NoCapacity,
    /// The provider refuses the request; repeating it unchanged does not help.
    Refused,
    /// The provider failed; repeating the request may help.
    Failed,
}

impl ErrorKind {
    /// Whether the provider answered, with whatever: what it says about one machine says nothing about others, and no
    /// tenant may close a provider for the others with a machine that always fails.
    #[must_use]
    pub fn is_answered(self) -> bool {
        !matches!(self, Self::Unreachable | Self::Unauthenticated)
    }
}

/// What the steps of a reconcile ran into so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepResult {
    /// The provider had no capacity for the create.
    pub no_capacity: Option<Refusal>,
    /// The provider is being deleted, or is gone.
    pub provider_deleting: bool,
    /// The step that failed and ended the reconcile.
    pub failure: Option<StepFailure>,
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepFailure {
    /// The provider refused: a person has to change something.
    Refused(Refusal),
    /// The provider did not answer, or failed: a retry may succeed.
    Failed(Refusal),
}

/// What follows a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// Plan again at once: another provider may have capacity.
    PlanAgain,
    /// End the reconcile and report the failure.
    Report,
}

impl StepResult {
    /// Records a failed request.
    pub fn record(&mut self, kind: ErrorKind, refusal: Refusal) -> AfterFailure {
        match kind {
            ErrorKind::NoCapacity if self.no_capacity.is_none() => {
                self.no_capacity = Some(refusal);
                return AfterFailure::PlanAgain;
            }
            ErrorKind::NoCapacity | ErrorKind::Refused => self.failure = Some(StepFailure::Refused(refusal)),
            ErrorKind::Unreachable | ErrorKind::Unauthenticated | ErrorKind::Failed => {
                self.failure = Some(StepFailure::Failed(refusal));
            }
        }
        AfterFailure::Report
    }

    /// Whether the provider left a question or a request of this reconcile without a useful answer.
    #[must_use]
    pub fn is_silent(&self, observed: &Result<Observed, Refusal>) -> bool {
        observed.is_err() || matches!(self.failure, Some(StepFailure::Failed(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal() -> Refusal {
        Refusal::new("Reason", "message")
    }

    #[test]
    fn a_create_without_capacity_is_planned_again_once() {
        let mut result = StepResult::default();
        assert_eq!(result.record(ErrorKind::NoCapacity, refusal()), AfterFailure::PlanAgain);
        assert_eq!(result.failure, None);

        assert_eq!(result.record(ErrorKind::NoCapacity, refusal()), AfterFailure::Report);
        assert_eq!(result.failure, Some(StepFailure::Refused(refusal())));
    }

    #[test]
    fn only_what_may_succeed_next_time_counts_as_silence() {
        let answered = Ok(Observed::default());
        for (kind, is_silent) in [
            (ErrorKind::Unreachable, true),
            (ErrorKind::Unauthenticated, true),
            (ErrorKind::Failed, true),
            (ErrorKind::Refused, false),
            (ErrorKind::NoCapacity, false),
        ] {
            let mut result = StepResult::default();
            assert!(!result.is_silent(&answered));
            result.record(kind, refusal());
            assert_eq!(result.is_silent(&answered), is_silent, "{kind:?}");
        }
        assert!(StepResult::default().is_silent(&Err(refusal())));
    }
}
