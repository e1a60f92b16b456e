//! Amounts of money, exact to a millionth.

use std::{fmt, str::FromStr};

use super::{InvalidValue, text_value};

const FIX: &str = "must be an amount of zero or more with at most six decimals, such as 0.0416";
const MICROS: u64 = 1_000_000;

/// A non-negative amount of money, stored in millionths and therefore exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount {
    micros: u64,
}

impl Amount {
    /// Zero.
    pub const ZERO: Self = Self { micros: 0 };

    /// Returns the sum of two amounts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { micros: self.micros.saturating_add(other.micros) }
    }
}

/// Returns the amount in millionths.
fn parse(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if !is_digits(whole, 9) || !is_digits(fraction, 6) {
        return None;
    }

    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = format!("{fraction:0<6}").parse().ok()?;
    Some(whole * MICROS + fraction)
}

/// Whether a text consists of one to `max` digits.
fn is_digits(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_digit())
}

impl FromStr for Amount {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        parse(text).map(|micros| Self { micros }).ok_or_else(|| InvalidValue::new(text, FIX))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.micros / MICROS, self.micros % MICROS);
        match format!("{fraction:06}").trim_end_matches('0') {
            "" => write!(formatter, "{whole}"),
            digits => write!(formatter, "{whole}.{digits}"),
        }
    }
}

text_value!(Amount, max_length = 16, rule = "self.matches('^[0-9]{1,9}([.][0-9]{1,6})?$')", fix = FIX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_prints_without_trailing_zeros() {
        for (text, printed) in [("0.0416", "0.0416"), ("1.50", "1.5"), ("7", "7"), ("0.000001", "0.000001")] {
            assert_eq!(text.parse::<Amount>().unwrap().to_string(), printed);
        }
    }

    #[test]
    fn amounts_add_up_exactly() {
        let sum = ["0.1", "0.2", "0.000001"].map(|text| text.parse::<Amount>().unwrap());
        assert_eq!(sum.into_iter().fold(Amount::ZERO, Amount::plus).to_string(), "0.300001");
    }

    #[test]
    fn an_invalid_amount_is_rejected_with_the_fix() {
        for text in ["", "-1", "1,5", ".5", "5.", "1.0000001", "1e3", "EUR 5", "9999999999"] {
            let error = text.parse::<Amount>().unwrap_err().to_string();
            assert!(error.contains("such as 0.0416"), "{error}");
        }
    }
}
