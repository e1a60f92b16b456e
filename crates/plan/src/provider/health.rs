//! What is known of a provider from its health checks.

use std::time::Duration;

use vitistack_types::{Version, v1alpha1::MachineProviderSpec};

use super::Circuit;
use crate::Refusal;

/// What a provider that answers says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// The version of the software it runs, where it tells.
    pub version: Option<Version>,
}

/// How a provider is checked, with what is not said filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Time between two checks.
    pub interval: Duration,
    /// Longest wait for an answer.
    pub timeout: Duration,
    /// Failed checks in a row after which it is not trusted.
    pub failure_threshold: u16,
}

impl From<&MachineProviderSpec> for Checks {
    fn from(spec: &MachineProviderSpec) -> Self {
        let said = spec.health_check.clone().unwrap_or_default();
        Self {
            interval: said.interval.map_or(Duration::from_secs(30), vitistack_types::Duration::get),
            timeout: said.timeout.map_or(Duration::from_secs(10), vitistack_types::Duration::get),
            failure_threshold: said.failure_threshold.unwrap_or(3),
        }
    }
}

/// What the checks of one provider have shown so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Whether it is trusted.
    pub circuit: Circuit,
    /// What it said of itself when it last answered.
    pub probed: Probed,
    /// Why it is not trusted. Its words stay while its reason does: they may differ from check to check.
    pub refusal: Option<Refusal>,
}

impl Health {
    /// What is known after one more check.
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

    /// What is known once somebody changed the provider or its credentials: what failed before may be mended, so the
    /// next answer counts as the first.
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
    fn the_words_of_a_failure_stand_until_its_reason_changes() {
        let fail = |health: Health, reason, words: &str| health.after(Err(Refusal::new(reason, words)), 1);
        let told = |health: &Health| health.refusal.clone().map(|refusal| refusal.message);
        let health = fail(Health::default(), "Unreachable", "no route at 12:00");
        let health = fail(health, "Unreachable", "no route at 12:30");
        assert_eq!(told(&health).as_deref(), Some("no route at 12:00"));
        let health = fail(health, "InvalidCredentials", "the token is not accepted");
        assert_eq!(told(&health).as_deref(), Some("the token is not accepted"));
        let health = health.after(Ok(Probed::default()), 1);
        assert_eq!(told(&health).as_deref(), Some("the token is not accepted"), "one answer may be luck");
        assert_eq!(told(&health.after(Ok(Probed::default()), 1)), None);
    }

    #[test]
    fn after_a_change_the_first_answer_decides() {
        let refused = || Err(Refusal::new("InvalidCredentials", "the token is not accepted"));
        let away = Health::default().after(refused(), 3).changed();
        assert!(away.clone().after(Ok(Probed::default()), 3).circuit.is_closed());
        assert!(!away.after(refused(), 3).circuit.is_closed());
        let well = Health::default().after(Ok(Probed::default()), 3).changed();
        assert!(well.after(refused(), 3).circuit.is_closed(), "one that was trusted stays so");
    }
}
