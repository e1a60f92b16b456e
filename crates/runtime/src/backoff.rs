//! How long to wait before something that failed is tried again.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

/// First backoff after a failure.
const BACKOFF_START: Duration = Duration::from_secs(1);
/// Longest backoff.
const BACKOFF_LIMIT: Duration = Duration::from_mins(5);

/// How long to wait after so many failures in a row: 1 s, doubled each time, at most 5 min.
///
/// `jitter`, from 0 to 1, takes up to a fifth off, so that objects that failed together do not come back together.
#[must_use]
pub fn backoff(failures: u32, jitter: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let full = BACKOFF_START.saturating_mul(1 << doublings).min(BACKOFF_LIMIT);
    full.mul_f64(1.0 - 0.2 * jitter.clamp(0.0, 1.0))
}

/// A number from 0 to 1 that differs from thing to thing and from moment to moment. Nothing is thrown: where the clock
/// does the same again, as in tests, so does everything.
pub(crate) fn jitter(thing: &impl Hash, elapsed: Duration) -> f64 {
    let mut hasher = DefaultHasher::new();
    (thing, elapsed).hash(&mut hasher);
    let [a, b, c, d, ..] = hasher.finish().to_be_bytes();
    f64::from(u32::from_be_bytes([a, b, c, d])) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_from_0_to_1_and_follows_from_the_thing_and_the_moment_alone() {
        let all: Vec<f64> = (0..1000).map(|second| jitter(&"vm", Duration::from_secs(second))).collect();
        assert!(all.iter().all(|one| (0.0..=1.0).contains(one)));
        assert!(all.iter().any(|one| *one < 0.1) && all.iter().any(|one| *one > 0.9));
        let bits = |thing: &str| jitter(&thing, Duration::from_mins(1)).to_bits();
        assert_ne!(bits("vm"), bits("other"));
        assert_eq!(bits("vm"), bits("vm"));
    }

    #[test]
    fn jitter_takes_up_to_a_fifth_off() {
        assert_eq!(backoff(1, 0.0), Duration::from_secs(1));
        assert_eq!(backoff(1, 1.0), Duration::from_millis(800));
        assert_eq!(backoff(u32::MAX, 0.0), Duration::from_mins(5));
        assert_eq!(backoff(0, 0.0), Duration::from_secs(1));
    }
}
