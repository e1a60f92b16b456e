//! Sorts objects by a field, as `kubectl get --sort-by` does.

use std::{cmp::Ordering, iter::Peekable, str::Chars};

use serde_json::Value;
use vitistack_apiserver::printing::find;
use vitistack_types::Quantity;

use super::{Error, ReadPathSnafu, SortObjectsSnafu};
use crate::cluster::listing::Wanted;

/// The field to sort by.
#[derive(Clone, Debug)]
pub struct SortField {
    path: String,
}

impl SortField {
    /// Parses a path in the forms of kubectl: `.a.b`, `a.b`, `{.a.b}` or `{a.b}`.
    pub fn read(text: &str) -> Result<Self, Error> {
        let path = match text.strip_prefix('{') {
            Some(inside) => inside.strip_suffix('}').unwrap_or_default(),
            None => text,
        };
        let path = path.trim();
        if path.trim_matches('.').is_empty() || path.contains(['{', '}']) {
            return ReadPathSnafu { path: text }.fail();
        }
        let dot = if path.starts_with(['.', '[']) { "" } else { "." };
        Ok(Self { path: format!("{dot}{path}") })
    }

    /// Adds the field to those that are decoded.
    pub fn add_to(&self, wanted: &mut Wanted) {
        // Names with wildcards and escapes are not those of fields.
        if self.path.contains(['*', '\\']) || self.path.starts_with('[') {
            *wanted = Wanted::Whole;
        } else {
            wanted.add_path(&self.path);
        }
    }

    /// Sorts objects; those without the field come first. It is an error if none has it.
    pub fn sort(&self, objects: &mut [Value]) -> Result<(), Error> {
        let has_field = |object: &Value| !find(object, &self.path).is_empty();
        if !objects.is_empty() && !objects.iter().any(has_field) {
            return SortObjectsSnafu { path: &self.path }.fail();
        }
        objects.sort_by(|left, right| {
            let (left, right) = (find(left, &self.path), find(right, &self.path));
            compare(left.first().copied(), right.first().copied())
        });
        Ok(())
    }
}

/// Compares two values: numbers and quantities by value, other texts in natural order.
fn compare(left: Option<&Value>, right: Option<&Value>) -> Ordering {
    let rank = |value: Option<&Value>| match value {
        None | Some(Value::Null) => 0,
        Some(Value::Bool(_)) => 1,
        Some(Value::Number(_)) => 2,
        Some(Value::String(_)) => 3,
        Some(Value::Array(_) | Value::Object(_)) => 4,
    };
    match (left, right) {
        (Some(Value::String(left)), Some(Value::String(right))) => compare_texts(left, right),
        (Some(Value::Bool(left)), Some(Value::Bool(right))) => left.cmp(right),
        (Some(Value::Number(left)), Some(Value::Number(right))) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => left.cmp(&right),
            _ => left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal),
        },
        _ => rank(left).cmp(&rank(right)),
    }
}

fn compare_texts(left: &str, right: &str) -> Ordering {
    match (left.parse::<Quantity>(), right.parse::<Quantity>()) {
        (Ok(left), Ok(right)) => left.cmp(&right),
        _ => natural(left, right),
    }
}

/// Compares texts with their numbers as numbers: `web-2` comes before `web-10`. Of equal numbers, the one with fewer
/// leading zeros comes first.
fn natural(left: &str, right: &str) -> Ordering {
    let (mut lefts, mut rights) = (left.chars().peekable(), right.chars().peekable());
    loop {
        let order = match (lefts.peek(), rights.peek()) {
            (Some(left), Some(right)) if left.is_ascii_digit() && right.is_ascii_digit() => {
                let (left, right) = (digits(&mut lefts), digits(&mut rights));
                let value = |digits: &str| digits.trim_start_matches('0').to_owned();
                let (whole, other) = (value(&left), value(&right));
                whole.len().cmp(&other.len()).then(whole.cmp(&other)).then(left.len().cmp(&right.len()))
            }
            (left, right) => {
                let order = left.cmp(&right);
                if left.is_none() || right.is_none() {
                    return order;
                }
                lefts.next();
                rights.next();
                order
            }
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Takes the digits at the start of a text.
fn digits(text: &mut Peekable<Chars<'_>>) -> String {
    let mut digits = String::new();
    while let Some(digit) = text.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    digits
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sorted(path: &str, values: &Value) -> Value {
        let values = values.as_array().unwrap().iter();
        let mut objects: Vec<Value> = values.map(|value| json!({ "status": { "value": value } })).collect();
        objects.push(json!({ "status": {} }));
        SortField::read(path).unwrap().sort(&mut objects).unwrap();
        objects.iter().map(|object| object["status"]["value"].clone()).collect()
    }

    #[test]
    fn values_are_sorted_as_by_kubectl() {
        for (values, expected) in [
            (json!([10, 9, 1.5, -2]), json!([null, -2, 1.5, 9, 10])),
            (json!(["10Gi", "9Gi", "500Mi", "1e3"]), json!([null, "1e3", "500Mi", "9Gi", "10Gi"])),
            (json!(["web-10", "web-9", "db"]), json!([null, "db", "web-9", "web-10"])),
            (json!(["a02", "a2", "a1b"]), json!([null, "a1b", "a2", "a02"])),
            (json!(["b", "a", "ab"]), json!([null, "a", "ab", "b"])),
            (
                json!(["2026-02-01T00:00:00Z", "2026-01-31T00:00:00Z"]),
                json!([null, "2026-01-31T00:00:00Z", "2026-02-01T00:00:00Z"]),
            ),
        ] {
            for path in [".status.value", "status.value", "{.status.value}", "{status.value}"] {
                assert_eq!(sorted(path, &values), expected, "{path}");
            }
        }
    }

    #[test]
    fn a_path_that_is_invalid_or_finds_nothing_is_refused() {
        for path in ["", ".", "{.a", "{a}{b}", "{}"] {
            assert!(SortField::read(path).is_err(), "{path}");
        }
        let error = SortField::read(".spec.none").unwrap().sort(&mut [json!({})]).unwrap_err();
        assert!(error.to_string().contains(".spec.none"), "{error}");
        assert!(SortField::read(".spec.none").unwrap().sort(&mut []).is_ok());
    }
}
