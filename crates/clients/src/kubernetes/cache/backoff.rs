//! The pause before a retry.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

/// First backoff after a failure.
const BACKOFF_START: Duration = Duration::from_secs(1);
/// Longest backoff.
const BACKOFF_LIMIT: Duration = Duration::from_mins(5);

/// Returns the pause after a number of failures in a row: 1 s, doubled each time, at most 5 min.
///
/// `jitter`, from 0 to 1, takes up to a fifth off, so that objects that failed together are not retried together.
#[must_use]
pub fn backoff(failures: u32, jitter: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let full = BACKOFF_START.saturating_mul(1 << doublings).min(BACKOFF_LIMIT);
    full.mul_f64(1.0 - 0.2 * jitter.clamp(0.0, 1.0))
}

/// Returns a number from 0 to 1 that depends on nothing but the key and the time, so that tests with a paused clock are
/// reproducible.
#[must_use]
pub fn jitter(key: &impl Hash, elapsed: Duration) -> f64 {
    let mut hasher = DefaultHasher::new();
    (key, elapsed).hash(&mut hasher);
    let [a, b, c, d, ..] = hasher.finish().to_be_bytes();
    f64::from(u32::from_be_bytes([a, b, c, d])) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_from_0_to_1_and_depends_on_the_key_and_the_time_only() {
        let all: Vec<f64> = (0..1000).map(|second| jitter(&"vm", Duration::from_secs(second))).collect();
        assert!(all.iter().all(|one| (0.0..=1.0).contains(one)));
        assert!(all.iter().any(|one| *one < 0.1) && all.iter().any(|one| *one > 0.9));
        let bits = |key: &str| jitter(&key, Duration::from_mins(1)).to_bits();
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
