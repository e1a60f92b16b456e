//! Simulated faults, decided by a deterministic random sequence.

use serde::{Deserialize, Serialize};

/// A random sequence that depends only on the seed. Its position is its only state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Dice {
    throws: u64,
}

impl Dice {
    /// Returns true with a probability of `percent`. Does not advance for 0, so that a world without faults never changes.
    pub fn hit(&mut self, seed: u64, percent: u8) -> bool {
        if percent == 0 {
            return false;
        }
        self.throws = self.throws.wrapping_add(1);
        mix(seed ^ mix(self.throws)) % 100 < u64::from(percent)
    }
}

/// Faults that a test injects into the next calls, in addition to those from the settings. They are not saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InjectedFaults {
    /// The number of changing requests whose replies are lost.
    pub lost_replies: u32,
    /// The number of tasks that fail.
    pub failed_tasks: u32,
    /// Whether the provider is unreachable.
    pub unreachable: bool,
    /// Whether the provider rejects the credentials.
    pub unauthenticated: bool,
}

/// Decrements a count and returns whether it was positive.
pub(super) fn take(count: &mut u32) -> bool {
    let taken = *count > 0;
    *count = count.saturating_sub(1);
    taken
}

/// Returns a pseudo-random number derived from the given one (splitmix64).
#[must_use]
pub fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throws(seed: u64, percent: u8) -> Vec<bool> {
        let mut dice = Dice::default();
        (0..10_000).map(|_| dice.hit(seed, percent)).collect()
    }

    #[test]
    fn the_sequence_depends_only_on_the_seed() {
        assert_eq!(throws(7, 30), throws(7, 30));
        assert_ne!(throws(7, 30), throws(8, 30));
    }

    #[test]
    fn hits_are_about_as_frequent_as_requested() {
        for percent in [0, 1, 30, 99, 100] {
            let hits = throws(1, percent).into_iter().filter(|hit| *hit).count();
            let wanted = usize::from(percent) * 100;
            assert!(hits.abs_diff(wanted) <= 200, "{hits} hits, expected about {wanted}");
        }
        assert!(throws(1, 100).into_iter().all(|hit| hit));
    }
}
