//! Values as Go prints them, because the messages of kube-apiserver quote them that way.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// A number as kube-apiserver stores it: integers that fit into 64 bits, everything else as a float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Numeric {
    /// An integer written without decimal point or exponent.
    Integer(i64),
    /// Any other number.
    Float(f64),
}

impl Numeric {
    pub(crate) fn of(number: &Number) -> Numeric {
        match number.as_i64() {
            Some(integer) => Numeric::Integer(integer),
            None => Numeric::Float(number.as_f64().unwrap_or(f64::NAN)),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "kube-apiserver compares through float64 as well")]
    pub(crate) fn as_float(self) -> f64 {
        match self {
            Numeric::Integer(integer) => integer as f64,
            Numeric::Float(float) => float,
        }
    }

    pub(crate) fn print(self) -> String {
        match self {
            Numeric::Integer(integer) => integer.to_string(),
            Numeric::Float(float) => print_float(float),
        }
    }
}

/// Formats a float as `%v` does: the shortest form, with an exponent below 1e-4 and from 1e21.
pub(crate) fn print_float(float: f64) -> String {
    let magnitude = float.abs();
    if float == 0.0 || (1e-4..1e21).contains(&magnitude) || !float.is_finite() {
        return format!("{float}");
    }
    let text = format!("{float:e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// Converts numbers to the form in which a Go server returns them: integers however they were written, and
/// numbers beyond 64 bits with the precision of a float.
pub(crate) fn normalize_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_i64().is_none() => {
            let Some(float) = number.as_f64().filter(|float| float.fract() == 0.0) else { return };
            // The shortest digits of the float, padded with zeros up to the decimal point.
            let digits = if float == 0.0 { "0".to_owned() } else { format!("{float}") };
            if let Ok(whole) = digits.parse::<i64>() {
                *value = whole.into();
            } else if let Ok(whole) = digits.parse::<u64>() {
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize_numbers),
        Value::Object(fields) => fields.values_mut().for_each(normalize_numbers),
        _ => {}
    }
}

/// Quotes a string as `%q` does.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            ' ' => out.push(' '),
            other if (other as u32) < 0x20 || other as u32 == 0x7f => {
                let _ = write!(out, "\\x{:02x}", other as u32);
            }
            other if other.is_control() || other.is_whitespace() => {
                let _ = write!(out, "\\u{:04x}", other as u32);
            }
            other => out.push(other),
        }
    }

    out.push('"');
    out
}

/// Prints a value as `json.Marshal` does: keys sorted, `<`, `>` and `&` escaped.
pub(crate) fn marshal(value: &Value) -> String {
    let mut out = String::new();
    write_json(value, &mut out);
    out
}

/// Prints a value for the part of a message between `Invalid value: ` and the detail.
pub(crate) fn print(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(number) => Numeric::of(number).print(),
        Value::Bool(flag) => flag.to_string(),
        other => marshal(other),
    }
}

fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::String(text) => write_json_string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by_key(|(name, _)| name.as_str());
            out.push('{');
            for (index, (name, field)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json_string(name, out);
                out.push(':');
                write_json(field, out);
            }
            out.push('}');
        }
    }
}

fn write_json_string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", character as u32);
            }
            other if (other as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", other as u32);
            }
            other => out.push(other),
        }
    }

    out.push('"');
}

/// Returns the Go type that a decoder gives a value.
#[must_use]
pub fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Returns the type of a JSON value as Go's decoder names it in errors.
#[must_use]
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_normalized_as_in_go() {
        let mut value = json!([1.0, -0.0, 0.5, 12_345_678_901_234_567_890_u64, i64::MAX, 1e21]);
        normalize_numbers(&mut value);
        assert_eq!(value, json!([1, 0, 0.5, 12_345_678_901_234_567_000_u64, i64::MAX, 1e21]));
    }

    #[test]
    fn floats_print_as_go_prints_them() {
        for (float, text) in [(1.0, "1"), (1.5, "1.5"), (1e21, "1e+21"), (1e-5, "1e-05"), (-0.25, "-0.25")] {
            assert_eq!(print_float(float), text);
        }
    }

    #[test]
    fn values_print_as_go_prints_them() {
        let cases = [
            (json!("a\"b\n"), r#""a\"b\n""#),
            (json!({"b": 1, "a": "<x>"}), r#"{"a":"\u003cx\u003e","b":1}"#),
            (json!(null), "null"),
            (json!(true), "true"),
            (json!(3), "3"),
        ];
        for (value, text) in cases {
            assert_eq!(print(&value), text);
        }
    }
}
