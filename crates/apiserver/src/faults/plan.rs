//! Which faults happen: a seed and a chance for each kind, in one line of text.

use std::fmt;
use std::str::FromStr;

use snafu::{OptionExt, Snafu};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The connection breaks before a write is applied.
    CrashBefore,
    /// The connection breaks after a write was applied: it succeeded unheard.
    CrashAfter,
    /// A write is refused with 409.
    Conflict,
    /// A list or watch is refused with 410.
    Gone,
    /// A write is refused with 422.
    Invalid,
    /// A request is refused with 429.
    Busy,
    /// A request is refused with 500.
    Error,
    /// A request is refused with 504.
    Timeout,
    /// A get or list answers what it answered before.
    Stale,
    /// A watch ends in the middle.
    Cut,
    /// A watch loses an event.
    Drop,
    /// A watch is late with an event.
    Delay,
    /// A watch tells an event twice.
    Duplicate,
}

/// Every kind with its name.
const NAMES: [(Fault, &str); 13] = [
    (Fault::CrashBefore, "crash-before"),
    (Fault::CrashAfter, "crash-after"),
    (Fault::Conflict, "conflict"),
    (Fault::Gone, "gone"),
    (Fault::Invalid, "invalid"),
    (Fault::Busy, "busy"),
    (Fault::Error, "error"),
    (Fault::Timeout, "timeout"),
    (Fault::Stale, "stale"),
    (Fault::Cut, "cut"),
    (Fault::Drop, "drop"),
    (Fault::Delay, "delay"),
    (Fault::Duplicate, "duplicate"),
];

/// Chances are counted in this many parts.
const PARTS: u64 = 10_000;

/// A plan of faults. Its text, such as `seed=7 crash-after=0.0100 cut=0.0500`, parses back to the same plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    seed: u64,
    /// Chances in ten-thousandths, in the order of the kinds.
    chances: Vec<(Fault, u64)>,
}

/// Why a text is no plan.
#[derive(Debug, Snafu, PartialEq, Eq)]
pub enum ParseError {
    /// A word is not `name=value`.
    #[snafu(display("failed to read \"{word}\": write name=value"))]
    SplitWord {
        /// The word.
        word: String,
    },
    /// No fault has that name.
    #[snafu(display("failed to read \"{name}\": no such fault; the faults are seed, {}", NAMES.map(|(_, name)| name).join(", ")))]
    FindFault {
        /// The name.
        name: String,
    },
    /// A value is no chance, or no seed.
    #[snafu(display(
        "failed to read \"{value}\": a chance is a number from 0 to 1 with at most four decimals, a seed a whole number"
    ))]
    ReadValue {
        /// The value.
        value: String,
    },
}

impl FaultPlan {
    /// A plan without faults.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, chances: Vec::new() }
    }

    /// Adds a fault that happens `ten_thousandths` times in ten thousand.
    #[must_use]
    pub fn with(mut self, fault: Fault, ten_thousandths: u64) -> Self {
        self.chances.retain(|(known, _)| *known != fault);
        if ten_thousandths > 0 {
            self.chances.push((fault, ten_thousandths.min(PARTS)));
            self.chances.sort_unstable();
        }
        self
    }

    /// Whether a fault happens to the `count`-th occurrence of something. It depends on nothing else, so that a plan does the
    /// same whatever runs beside it.
    #[must_use]
    pub fn happens(&self, fault: Fault, what: &str, count: u64) -> bool {
        let Some((_, chance)) = self.chances.iter().find(|(known, _)| *known == fault) else { return false };
        let mut state = self.seed ^ 0x9e37_79b9_7f4a_7c15;
        for part in [fault as u64, count] {
            state = mixed(state ^ part);
        }
        for byte in what.bytes() {
            state = mixed(state ^ u64::from(byte));
        }
        state % PARTS < *chance
    }

    /// The first of the faults that happens.
    #[must_use]
    pub fn first(&self, faults: &[Fault], what: &str, count: u64) -> Option<Fault> {
        faults.iter().copied().find(|fault| self.happens(*fault, what, count))
    }
}

/// One round of splitmix64.
fn mixed(state: u64) -> u64 {
    let mut mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "seed={}", self.seed)?;
        for (fault, chance) in &self.chances {
            let name = NAMES.iter().find(|(known, _)| known == fault).map_or("", |(_, name)| name);
            write!(formatter, " {name}={}.{:04}", chance / PARTS, chance % PARTS)?;
        }
        Ok(())
    }
}

impl FromStr for FaultPlan {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut plan = Self::default();
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=').context(SplitWordSnafu { word })?;
            if name == "seed" {
                plan.seed = value.parse().ok().context(ReadValueSnafu { value })?;
                continue;
            }
            let (fault, _) =
                NAMES.iter().find(|(_, known)| *known == name).context(FindFaultSnafu { name })?;
            plan = plan.with(*fault, chance(value).context(ReadValueSnafu { value })?);
        }
        Ok(plan)
    }
}

fn chance(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if decimals.len() > 4 || !digits(decimals) || !digits(whole) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let decimals: u64 = format!("{decimals:0<4}").parse().ok()?;
    whole.checked_mul(PARTS)?.checked_add(decimals).filter(|chance| *chance <= PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_one_line_that_parses_back() {
        let plan =
            FaultPlan::new(7).with(Fault::Cut, 500).with(Fault::CrashAfter, 100).with(Fault::Error, 10_000);
        assert_eq!(plan.to_string(), "seed=7 crash-after=0.0100 error=1.0000 cut=0.0500");
        assert_eq!(plan.to_string().parse::<FaultPlan>().unwrap(), plan);
        assert_eq!(
            "seed=7 cut=.05 crash-after=0.01 error=1".parse::<FaultPlan>(),
            Err(ReadValueSnafu { value: ".05" }.build())
        );
    }

    #[test]
    fn bad_texts_are_refused_with_a_reason() {
        for bad in ["seed", "seed=x", "nope=0.1", "cut=2", "cut=0.00001", "cut=-1"] {
            assert!(bad.parse::<FaultPlan>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_fault_happens_about_as_often_as_planned_and_always_to_the_same() {
        let plan = FaultPlan::new(1).with(Fault::Busy, 1000);
        let hits = |plan: &FaultPlan| {
            (0..10_000).filter(|count| plan.happens(Fault::Busy, "GET /x", *count)).count()
        };
        let count = hits(&plan);
        assert!((800..1200).contains(&count), "{count}");
        assert_eq!(count, hits(&plan.to_string().parse().unwrap()));
        assert!(!plan.happens(Fault::Error, "GET /x", 1));
    }
}
