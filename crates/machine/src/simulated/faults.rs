//! What goes wrong, decided by dice whose throws follow from the seed and their number.

use serde::{Deserialize, Serialize};

/// Dice that fall the same way every time: the throw's number is all they remember.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Dice {
    throws: u64,
}

impl Dice {
    /// Whether the next throw is among `percent` of a hundred. Never throws for nothing, so that a calm world stays as it is.
    pub fn hit(&mut self, seed: u64, percent: u8) -> bool {
        if percent == 0 {
            return false;
        }
        self.throws = self.throws.wrapping_add(1);
        mix(seed ^ mix(self.throws)) % 100 < u64::from(percent)
    }
}

/// Faults that a test orders for the calls that follow, besides those of the settings. They are not saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderedFaults {
    /// So many of the next changing requests are carried out without an answer.
    pub lost_replies: u32,
    /// So many of the next tasks fail.
    pub failed_tasks: u32,
    /// Whether it answers nothing at all.
    pub unreachable: bool,
    /// Whether it accepts no credentials.
    pub unauthenticated: bool,
}

/// Counts one down, and says whether there was one.
pub(super) fn take(count: &mut u32) -> bool {
    let taken = *count > 0;
    *count = count.saturating_sub(1);
    taken
}

/// A well-mixed number for each number (splitmix64).
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
    fn the_same_seed_throws_the_same_and_another_seed_does_not() {
        assert_eq!(throws(7, 30), throws(7, 30));
        assert_ne!(throws(7, 30), throws(8, 30));
    }

    #[test]
    fn about_as_many_hit_as_were_asked_for() {
        for percent in [0, 1, 30, 99, 100] {
            let hits = throws(1, percent).into_iter().filter(|hit| *hit).count();
            let wanted = usize::from(percent) * 100;
            assert!(hits.abs_diff(wanted) <= 200, "{hits} of {wanted} hit");
        }
        assert!(throws(1, 100).into_iter().all(|hit| hit));
    }
}
