//! Fault plans: a seed and a probability for each kind of fault, in one line of text.

use std::{fmt, str::FromStr};

use snafu::{OptionExt, Snafu};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The connection breaks before a write is applied.
    CrashBefore,
    /// The connection breaks after a write was applied: it succeeded, but the client does not know.
    CrashAfter,
    /// A write fails with 409.
    Conflict,
    /// A list or watch fails with 410.
    Gone,
    /// A write fails with 422.
    Invalid,
    /// A request fails with 429.
    Busy,
    /// A request fails with 500.
    Error,
    /// A request fails with 504.
    Timeout,
    /// A get or list returns a previous response.
    Stale,
    /// A watch ends in the middle.
    Cut,
    /// A watch drops an event.
    Drop,
    /// A watch delays an event.
    Delay,
    /// A watch sends an event twice.
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

/// The denominator of probabilities.
const PARTS: u64 = 10_000;

/// A fault plan. Its text, such as `seed=7 crash-after=0.0100 cut=0.0500`, parses to the same plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    seed: u64,
    /// Probabilities in ten-thousandths, in the order of the kinds.
    chances: Vec<(Fault, u64)>,
}

/// Indicates that a text is not a plan.
#[derive(Debug, Snafu, PartialEq, Eq)]
pub enum ParseError {
    /// A term is not `name=value`.
    #[snafu(display("failed to parse \"{term}\": use name=value"))]
    SplitTerm {
        /// The term.
        term: String,
    },
    /// There is no fault with this name.
    #[snafu(display("failed to parse \"{name}\": unknown fault; use seed, {}", NAMES.map(|(_, name)| name).join(", ")))]
    FindFault {
        /// The name.
        name: String,
    },
    /// A value is not a probability, or not a seed.
    #[snafu(display(
        "failed to parse \"{value}\": use a probability from 0 to 1 with at most four decimals, or an integer as seed"
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

    /// Adds a fault with a probability of `ten_thousandths` in ten thousand.
    #[must_use]
    pub fn with(mut self, fault: Fault, ten_thousandths: u64) -> Self {
        self.chances.retain(|(known, _)| *known != fault);
        if ten_thousandths > 0 {
            self.chances.push((fault, ten_thousandths.min(PARTS)));
            self.chances.sort_unstable();
        }
        self
    }

    /// Whether a fault happens to the `count`-th occurrence of an operation. It depends on nothing else, so
    /// that a plan is reproducible regardless of what else runs.
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

    /// Returns the first of the faults that happens.
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
        for term in text.split_whitespace() {
            let (name, value) = term.split_once('=').context(SplitTermSnafu { term })?;
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
    fn a_plan_round_trips_as_one_line() {
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
    fn invalid_plans_are_rejected_with_a_reason() {
        for bad in ["seed", "seed=x", "nope=0.1", "cut=2", "cut=0.00001", "cut=-1"] {
            assert!(bad.parse::<FaultPlan>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_fault_has_the_planned_probability_and_is_reproducible() {
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
