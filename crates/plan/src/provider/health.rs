//! The health of a provider, according to its checks.

use std::time::Duration;

use vitistack_types::{Version, v1alpha1::MachineProviderSpec};

use super::Circuit;
use crate::Refusal;

/// What a provider reports when it is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// The version of its software, if it reports one.
    pub version: Option<Version>,
}

/// How a provider is checked, with defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Time between two checks.
    pub interval: Duration,
    /// Longest wait for an answer.
    pub timeout: Duration,
    /// Failed checks in a row after which it is no longer trusted.
    pub failure_threshold: u16,
}

impl From<&MachineProviderSpec> for Checks {
    fn from(spec: &MachineProviderSpec) -> Self {
        let check = spec.health_check.clone().unwrap_or_default();
        Self {
            interval: check.interval.map_or(Duration::from_secs(30), vitistack_types::Duration::get),
            timeout: check.timeout.map_or(Duration::from_secs(10), vitistack_types::Duration::get),
            failure_threshold: check.failure_threshold.unwrap_or(3),
        }
    }
}

impl Checks {
    /// Returns how long until the next check is due, or nothing if it is due now. A changed provider is checked at once.
    #[must_use]
    pub fn due_in(&self, since_last: Option<Duration>, is_changed: bool) -> Option<Duration> {
        let left = self.interval.checked_sub(since_last?)?;
        (!left.is_zero() && !is_changed).then_some(left)
    }
}

/// The result of a provider's checks so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Whether it is trusted.
    pub circuit: Circuit,
    /// What it reported when it last answered.
    pub probed: Probed,
    /// Why it is not trusted. The message stays while the reason does: it may differ from check to check.
    pub refusal: Option<Refusal>,
}

impl Health {
    /// Returns the health after one more check.
    #[must_use]
    pub fn after(self, answer: Result<Probed, Refusal>, threshold: u16) -> Self {
        let circuit = self.circuit.after(answer.is_ok(), threshold);
        let (probed, failed) = match answer {
            Ok(probed) => (probed, None),
            Err(refusal) => (self.probed, Some(refusal)),
        };
        let refusal = match (circuit.is_closed(), self.refusal, failed) {
            (true, ..) => None,
            (false, Some(before), Some(now)) if before.reason != now.reason => Some(now),
            (false, before, now) => before.or(now),
        };
        Self { circuit, probed, refusal }
    }

    /// Returns the health after requests to the provider failed, which its checks may not notice: it is not trusted before
    /// it has answered its checks again. One that was never checked stays so.
    #[must_use]
    pub fn after_failed_calls(self, refusal: Refusal) -> Self {
        match self.circuit {
            Circuit::Unknown => self,
            Circuit::Closed { .. } => {
                Self { circuit: Circuit::Open { successes: 0 }, refusal: Some(refusal), ..self }
            }
            Circuit::Open { .. } => Self { circuit: Circuit::Open { successes: 0 }, ..self },
        }
    }

    /// Returns the health after the provider or its credentials changed: the problem may be fixed, so the next check counts
    /// as the first.
    #[must_use]
    pub fn changed(self) -> Self {
        match self.circuit {
            Circuit::Open { .. } => Self { circuit: Circuit::Unknown, ..self },
            Circuit::Closed { .. } | Circuit::Unknown => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_failure_stays_until_its_reason_changes() {
        let fail =
            |health: Health, reason, message: &str| health.after(Err(Refusal::new(reason, message)), 1);
        let message = |health: &Health| health.refusal.clone().map(|refusal| refusal.message);
        let health = fail(Health::default(), "Unreachable", "no route at 12:00");
        let health = fail(health, "Unreachable", "no route at 12:30");
        assert_eq!(message(&health).as_deref(), Some("no route at 12:00"));
        let health = fail(health, "InvalidCredentials", "the token is not accepted");
        assert_eq!(message(&health).as_deref(), Some("the token is not accepted"));
        let health = health.after(Ok(Probed::default()), 1);
        assert_eq!(message(&health).as_deref(), Some("the token is not accepted"), "one answer may be luck");
        assert_eq!(message(&health.after(Ok(Probed::default()), 1)), None);
    }

    #[test]
    fn a_check_is_due_after_its_interval_and_after_a_change() {
        let checks = Checks {
            interval: Duration::from_secs(30),
            timeout: Duration::from_secs(10),
            failure_threshold: 3,
        };
        assert_eq!(checks.due_in(None, false), None, "never checked");
        let ten = Some(Duration::from_secs(10));
        assert_eq!(checks.due_in(ten, false), Some(Duration::from_secs(20)));
        assert_eq!(checks.due_in(ten, true), None, "the provider changed");
        assert_eq!(checks.due_in(Some(Duration::from_secs(30)), false), None);
    }

    #[test]
    fn failed_calls_open_the_circuit_until_two_checks_succeed() {
        let failed = || Refusal::new("ProviderUnreachable", "requests fail");
        let unchecked = Health::default().after_failed_calls(failed());
        assert_eq!(unchecked, Health::default());
        let well = Health::default().after(Ok(Probed::default()), 3);
        let away = well.after_failed_calls(failed());
        assert_eq!(away.refusal, Some(failed()));
        let away = away.after(Ok(Probed::default()), 3);
        assert!(!away.circuit.is_closed());
        let still = away.clone().after_failed_calls(failed()).after(Ok(Probed::default()), 3);
        assert!(!still.circuit.is_closed(), "requests still fail");
        assert!(away.after(Ok(Probed::default()), 3).circuit.is_closed());
    }

    #[test]
    fn after_a_change_the_first_check_decides() {
        let refused = || Err(Refusal::new("InvalidCredentials", "the token is not accepted"));
        let away = Health::default().after(refused(), 3).changed();
        assert!(away.clone().after(Ok(Probed::default()), 3).circuit.is_closed());
        assert!(!away.after(refused(), 3).circuit.is_closed());
        let well = Health::default().after(Ok(Probed::default()), 3).changed();
        assert!(well.after(refused(), 3).circuit.is_closed(), "one that was trusted stays so");
    }
}
