//! Kubernetes quantities: `20Gi`, `500m`, `12E`, `1e3`.

use std::{cmp::Ordering, fmt, hash, str::FromStr};

use super::{InvalidValue, text_value};

const QUANTITY_FIX: &str =
    "must be an amount of zero or more with a Kubernetes unit, such as 20Gi, 500M or 4";
const SIZE_FIX: &str = "must be a size above zero with a Kubernetes unit, such as 20Gi or 500M";

/// Values are stored in nano units, the finest that Kubernetes supports.
const NANO: u128 = 1_000_000_000;

/// Kubernetes limits a quantity to 2^63-1 units.
const LARGEST: u128 = (u64::MAX >> 1) as u128 * NANO;

/// An exact, non-negative quantity that prints as it was written.
///
/// Quantities are compared by value: `1Gi` equals `1024Mi`.
#[derive(Clone, Debug)]
pub struct Quantity {
    text: String,
    nanos: u128,
}

impl Quantity {
    /// A whole number of units, such as bytes, printed with the largest binary unit that divides it.
    #[must_use]
    pub fn from_units(units: u64) -> Self {
        let (count, unit) = BINARY_UNITS
            .iter()
            .rev()
            .find(|(_, factor)| units != 0 && u128::from(units).is_multiple_of(*factor))
            .map_or((u128::from(units), ""), |(unit, factor)| (u128::from(units) / factor, unit));
        Self { text: format!("{count}{unit}"), nanos: u128::from(units) * NANO }
    }

    /// The value in whole units, rounded up as in Kubernetes.
    #[must_use]
    pub fn units(&self) -> u64 {
        u64::try_from(self.nanos.div_ceil(NANO)).unwrap_or(u64::MAX)
    }

    /// Whether the quantity is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }
}

const BINARY_UNITS: [(&str, u128); 6] =
    [("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("Ti", 1 << 40), ("Pi", 1 << 50), ("Ei", 1 << 60)];

/// Decimal units as powers of ten, in nano units.
const DECIMAL_UNITS: [(&str, u32); 10] =
    [("n", 0), ("u", 3), ("m", 6), ("", 9), ("k", 12), ("M", 15), ("G", 18), ("T", 21), ("P", 24), ("E", 27)];

/// Returns the factor, in nano units, of a unit or an exponent (`e3`, `E-2`).
fn nanos_per(unit: &str) -> Option<u128> {
    if let Some((_, factor)) = BINARY_UNITS.iter().find(|(name, _)| *name == unit) {
        return Some(factor * NANO);
    }
    if let Some((_, power)) = DECIMAL_UNITS.iter().find(|(name, _)| *name == unit) {
        return 10u128.checked_pow(*power);
    }
    let exponent = unit.strip_prefix(['e', 'E'])?;
    let is_one_digit = exponent.strip_prefix('-').unwrap_or(exponent).len() == 1;
    let power = exponent.parse::<i32>().ok().filter(|_| is_one_digit)?.checked_add(9)?;
    10u128.checked_pow(u32::try_from(power).ok()?)
}

/// The syntax of a quantity, for the CEL rule. Kubernetes accepts more (signs, any number of digits, large
/// exponents); this is narrower because the rule and the parser must agree on every text.
const GRAMMAR: &str =
    "^([0-9]{1,15}([.][0-9]{0,9})?|[.][0-9]{1,9})(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE]-?[0-9])?$";

/// Returns the quantity in nano units.
fn parse(text: &str) -> Option<u128> {
    let unit_at = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(unit_at)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |part: &str| part.bytes().all(|digit| digit.is_ascii_digit());
    let is_number = digits(whole) && digits(fraction) && whole.len() <= 15 && fraction.len() <= 9;
    if (whole.is_empty() && fraction.is_empty()) || !is_number {
        return None;
    }

    let factor = nanos_per(unit)?;
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u128>().ok()? }.saturating_mul(factor);
    let part = match fraction.trim_end_matches('0') {
        "" => 0,
        digits => {
            let scale = 10u128.checked_pow(u32::try_from(digits.len()).ok()?)?;
            // A fraction of a nano unit is rounded up, as in Kubernetes.
            digits.parse::<u128>().ok()?.checked_mul(factor)?.div_ceil(scale)
        }
    };

    // Kubernetes caps a larger value (`12E`) instead of rejecting it.
    Some(whole.saturating_add(part).min(LARGEST))
}

impl FromStr for Quantity {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        match parse(text) {
            Some(nanos) => Ok(Self { text: text.to_owned(), nanos }),
            None => Err(InvalidValue::new(text, QUANTITY_FIX)),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl hash::Hash for Quantity {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

text_value!(Quantity, max_length = 32, rule = format!("self.matches('{GRAMMAR}')"), fix = QUANTITY_FIX);

/// A quantity above zero, for disks and memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(Quantity);

impl Size {
    /// The size as a quantity, for sums that start at zero.
    #[must_use]
    pub fn quantity(&self) -> &Quantity {
        &self.0
    }

    /// The size in whole bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.units()
    }
}

impl FromStr for Size {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        text.parse()
            .ok()
            .filter(|quantity: &Quantity| !quantity.is_zero())
            .map(Self)
            .ok_or_else(|| InvalidValue::new(text, SIZE_FIX))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

text_value!(
    Size,
    max_length = 32,
    rule = format!("self.matches('{GRAMMAR}') && quantity(self).isGreaterThan(quantity('0'))"),
    fix = SIZE_FIX
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kubernetes_unit_is_parsed_exactly_and_printed_as_written() {
        for (text, units) in [
            ("0", 0),
            ("4", 4),
            ("20Gi", 20 << 30),
            ("1.5Gi", 3 << 29),
            (".5Ki", 512),
            ("2.", 2),
            ("500M", 500_000_000),
            ("1k", 1_000),
            ("9E", 9_000_000_000_000_000_000),
            ("12E", i64::MAX.unsigned_abs()),
            ("1e3", 1_000),
            ("1E3", 1_000),
            ("5e-1", 1),
            ("100m", 1),
            ("1n", 1),
            ("0.000000001", 1),
        ] {
            let quantity: Quantity = text.parse().unwrap();
            assert_eq!((quantity.units(), quantity.to_string()), (units, text.to_owned()));
        }
    }

    #[test]
    fn an_invalid_quantity_is_rejected_with_the_fix() {
        for text in [
            "",
            "Gi",
            "20GiB",
            "20 Gi",
            "-1",
            "+1",
            "1.2.3",
            "1e",
            "0x10",
            "٣",
            "1e99999999999",
            ".",
            "+5Gi",
            "1e40",
            "1e-10",
            "99999999999999999999Ei",
        ] {
            let error = text.parse::<Quantity>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("such as 20Gi"), "{error}");
        }
    }

    #[test]
    fn the_cel_rule_accepts_what_the_parser_accepts() {
        let mut size = schemars::schema_for!(Size);
        size.remove("$schema");
        let document = serde_json::json!({ "type": "object", "properties": { "size": size } });
        let schema = vitistack_schema::Schema::compile(&document).unwrap();
        for text in [
            "20Gi",
            "1.5Gi",
            ".5Ki",
            "2.",
            "500M",
            "1k",
            "12E",
            "1e3",
            "1E3",
            "5e-1",
            "100m",
            "1n",
            "999999999999999Ei",
            "0",
            "0Gi",
            "0.0",
            "Gi",
            "20GiB",
            "20 Gi",
            "-1",
            "+1",
            "+5Gi",
            "1.2.3",
            "1e",
            "1e40",
            "1e-10",
            "1e+3",
            "0x10",
            "1K",
            ".",
            "99999999999999999999Ei",
            "1.0000000001",
            "1Mi ",
            "1ki",
        ] {
            let is_accepted = schema.validate(&serde_json::json!({ "size": text }), None).is_empty();
            assert_eq!(is_accepted, text.parse::<Size>().is_ok(), "{text}");
        }
    }

    #[test]
    fn a_size_is_above_zero() {
        for text in ["0", "0Gi", "0.0"] {
            assert_eq!(text.parse::<Size>().unwrap_err().to_string(), format!("{text:?} {SIZE_FIX}"));
        }
        assert_eq!("1Ki".parse::<Size>().unwrap().bytes(), 1024);
    }

    #[test]
    fn equal_quantities_are_equal_in_any_notation() {
        assert_eq!("1Gi".parse::<Quantity>().unwrap(), "1024Mi".parse().unwrap());
        assert!("1G".parse::<Quantity>().unwrap() < "1Gi".parse().unwrap());
    }

    #[test]
    fn sums_print_with_the_largest_unit_that_divides_them() {
        for (units, text) in [(0, "0"), (1000, "1000"), (1 << 30, "1Gi"), (3 << 29, "1536Mi")] {
            assert_eq!(Quantity::from_units(units).to_string(), text);
        }
    }
}
