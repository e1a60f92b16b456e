//! Durations in Go's syntax: `30s`, `1m30s`, `500ms`.

use std::{fmt, str::FromStr, time};

use super::{InvalidValue, text_value};

const FIX: &str = "must be a duration above zero with a unit, such as 30s, 1m30s or 500ms";

/// A duration above zero, as written in fields and settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(time::Duration);

impl Duration {
    /// A duration known at compile time. Zero becomes one millisecond.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(time::Duration::from_millis(if millis == 0 { 1 } else { millis }))
    }

    /// The duration as a type of the standard library.
    #[must_use]
    pub const fn get(self) -> time::Duration {
        self.0
    }
}

const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Returns the duration in milliseconds.
fn parse(mut text: &str) -> Option<u64> {
    let mut millis = 0u64;
    while !text.is_empty() {
        let (number, rest) = text.split_at_checked(text.find(|letter: char| !letter.is_ascii_digit())?)?;
        if number.len() > 6 {
            return None;
        }

        let (unit, rest) = rest.split_at_checked(
            rest.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(rest.len()),
        )?;
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        millis = millis.checked_add(number.parse::<u64>().ok()?.checked_mul(*factor)?)?;
        text = rest;
    }

    (millis > 0).then_some(millis)
}

impl FromStr for Duration {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        match parse(text) {
            Some(millis) => Ok(Self(time::Duration::from_millis(millis))),
            None => Err(InvalidValue::new(text, FIX)),
        }
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        for (unit, factor) in UNITS {
            if rest >= factor {
                write!(formatter, "{}{unit}", rest / factor)?;
                rest %= factor;
            }
        }
        Ok(())
    }
}

text_value!(
    Duration,
    max_length = 16,
    rule = "self.matches('^([0-9]{1,6}(h|m|s|ms))+$') && duration(self) > duration('0s')",
    fix = FIX
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_syntax_is_parsed_and_printed() {
        for (text, millis, printed) in [
            ("30s", 30_000, "30s"),
            ("1m30s", 90_000, "1m30s"),
            ("90s", 90_000, "1m30s"),
            ("500ms", 500, "500ms"),
            ("1h", 3_600_000, "1h"),
        ] {
            let duration: Duration = text.parse().unwrap();
            assert_eq!(duration.get().as_millis(), millis);
            assert_eq!(duration.to_string(), printed);
        }
    }

    #[test]
    fn an_invalid_duration_is_rejected_with_the_fix() {
        for text in [
            "",
            "0s",
            "30",
            "s",
            "-5s",
            "1d",
            "1.5s",
            "99999999999999999999h",
            "5s ",
            "18446744073709551615h",
        ] {
            let error = text.parse::<Duration>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("such as 30s"), "{error}");
        }
    }
}
