//! How requests to a provider end.

use std::time::Duration;

/// For how long requests have to fail before a provider is not trusted: shorter than this it may only have been restarted.
const SHORTEST_FAILURE: Duration = Duration::from_secs(2);

/// The failed requests to a provider. Reads and writes count apart: a provider that answers reads and hangs on writes is of
/// no use to a new machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    reads: Failures,
    writes: Failures,
}

/// Failed requests in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Failures {
    count: u16,
    /// When the first of them was sent.
    since: Duration,
}

impl Failures {
    fn after(self, is_answered: bool, sent: Duration) -> Self {
        match (is_answered, self.count) {
            (true, _) => Self::default(),
            (false, 0) => Self { count: 1, since: sent },
            (false, count) => Self { count: count.saturating_add(1), since: self.since.min(sent) },
        }
    }

    fn are_enough(self, threshold: u16, now: Duration) -> bool {
        self.count >= threshold.max(1) && now.saturating_sub(self.since) >= SHORTEST_FAILURE
    }
}

impl Calls {
    /// Returns the count after one more request, which was sent at this time on any steady clock.
    #[must_use]
    pub fn after(self, is_write: bool, is_answered: bool, sent: Duration) -> Self {
        if is_write {
            Self { writes: self.writes.after(is_answered, sent), ..self }
        } else {
            Self { reads: self.reads.after(is_answered, sent), ..self }
        }
    }

    /// Whether at least `threshold` requests in a row failed, and not only for a moment.
    #[must_use]
    pub fn are_failing(self, threshold: u16, now: Duration) -> bool {
        self.reads.are_enough(threshold, now) || self.writes.are_enough(threshold, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_hours(1);

    #[test]
    fn reads_that_succeed_do_not_hide_writes_that_fail() {
        let mut calls = Calls::default();
        let later = START + SHORTEST_FAILURE;
        for _ in 0..3 {
            assert!(!calls.are_failing(3, later));
            calls = calls.after(false, true, START).after(true, false, START);
        }
        assert!(calls.are_failing(3, later));
        assert!(!calls.after(true, true, later).are_failing(3, later));
    }

    #[test]
    fn a_short_outage_with_many_machines_does_not_count() {
        let calls = (0..1000).fold(Calls::default(), |calls, _| calls.after(false, false, START));
        assert!(!calls.are_failing(3, START + Duration::from_secs(1)));
        assert!(calls.are_failing(3, START + Duration::from_secs(2)));
    }
}
