//! Whether a provider is trusted with new machines, according to its health checks.

/// Successful checks in a row that close an open circuit: a single one may be luck, and a machine placed on it would have
/// to move again.
const ANSWERS_TO_CLOSE: u16 = 2;

/// The state after the checks so far. It is kept in memory only: a new process checks before it trusts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Circuit {
    /// Not checked yet.
    #[default]
    Unknown,
    /// Trusted.
    Closed {
        /// Failed checks in a row.
        failures: u16,
    },
    /// Not trusted.
    Open {
        /// Successful checks in a row.
        successes: u16,
    },
}

impl Circuit {
    /// Returns the state after one more check; `threshold` failures in a row open it.
    #[must_use]
    pub fn after(self, is_success: bool, threshold: u16) -> Self {
        match (self, is_success) {
            (Self::Closed { failures }, false) if failures + 1 < threshold => {
                Self::Closed { failures: failures + 1 }
            }
            (Self::Open { successes }, true) if successes + 1 < ANSWERS_TO_CLOSE => {
                Self::Open { successes: successes + 1 }
            }
            (_, true) => Self::Closed { failures: 0 },
            (_, false) => Self::Open { successes: 0 },
        }
    }

    /// Whether new machines may be placed.
    #[must_use]
    pub fn is_closed(self) -> bool {
        matches!(self, Self::Closed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One character per check, `+` or `-`; the result has one per state: trusted or not.
    fn trust(checks: &str) -> String {
        let mut circuit = Circuit::default();
        let mut states = String::new();
        for check in checks.chars() {
            circuit = circuit.after(check == '+', 3);
            states.push(if circuit.is_closed() { 'T' } else { 'n' });
        }
        states
    }

    #[test]
    fn three_failures_in_a_row_open_it_and_two_successes_close_it() {
        assert_eq!(trust("+--+---+-++"), "TTTTTTnnnnT");
    }

    #[test]
    fn a_provider_that_never_answered_is_not_trusted() {
        assert!(!Circuit::default().is_closed());
        assert_eq!(trust("-+--++"), "nnnnnT");
    }
}
