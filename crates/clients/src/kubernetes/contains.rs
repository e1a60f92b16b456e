//! Whether an observed object contains everything that is desired.

use serde_json::{Map, Number, Value};

/// The fields that may identify an element of a list, in the order in which they are tried.
const ELEMENT_KEYS: [&str; 5] = ["name", "uid", "key", "containerPort", "type"];

/// Whether every field of `desired` has the same value in `observed`.
///
/// `observed` may contain more: defaults, fields of other managers, elements that others added to a list whose elements
/// have names. What a server drops (null, empty lists and maps) counts as absent, and quantities are compared by their
/// amount, because a server rewrites `1.5Gi` to `1536Mi`.
#[must_use]
pub fn contains(desired: &Value, observed: &Value) -> bool {
    match (desired, observed) {
        (Value::Object(desired), Value::Object(observed)) => contains_map(desired, observed),
        (Value::Array(desired), Value::Array(observed)) => contains_list(desired, observed),
        (Value::Number(desired), Value::Number(observed)) => same_number(desired, observed),
        (Value::String(desired), Value::String(observed)) => {
            desired == observed || same_quantity(desired, observed)
        }
        _ => desired == observed || (is_empty(desired) && is_empty(observed)),
    }
}

fn contains_map(desired: &Map<String, Value>, observed: &Map<String, Value>) -> bool {
    desired.iter().all(|(field, value)| match observed.get(field) {
        Some(found) => contains(value, found),
        None => is_empty(value),
    })
}

fn contains_list(desired: &[Value], observed: &[Value]) -> bool {
    if let Some(key) = element_key(desired) {
        return desired.iter().all(|element| {
            observed.iter().any(|found| found.get(key) == element.get(key) && contains(element, found))
        });
    }
    desired.len() == observed.len()
        && desired.iter().zip(observed).all(|(element, found)| contains(element, found))
}

/// Returns the field that identifies the elements of this list: every element has it, and no two share a value.
fn element_key(elements: &[Value]) -> Option<&'static str> {
    ELEMENT_KEYS.into_iter().find(|key| {
        !elements.is_empty()
            && elements.iter().enumerate().all(|(index, element)| {
                element.get(*key).is_some_and(|value| {
                    elements.iter().take(index).all(|earlier| earlier.get(*key) != Some(value))
                })
            })
    })
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(elements) => elements.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        _ => false,
    }
}

fn same_number(desired: &Number, observed: &Number) -> bool {
    desired == observed || desired.as_f64() == observed.as_f64()
}

/// Whether both texts are Kubernetes quantities of the same amount.
fn same_quantity(left: &str, right: &str) -> bool {
    let (Some(left), Some(right)) = (Quantity::parse(left), Quantity::parse(right)) else {
        return false;
    };
    // a/b = c/d without division, so that nothing is rounded; amounts too large to compare count as different.
    match (left.amount.checked_mul(right.parts), right.amount.checked_mul(left.parts)) {
        (Some(left), Some(right)) => left == right,
        _ => false,
    }
}

/// `amount / parts`.
struct Quantity {
    amount: i128,
    parts: i128,
}

impl Quantity {
    fn parse(text: &str) -> Option<Self> {
        let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
        let (digits, suffix) = text.split_at_checked(end)?;
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let places = u32::try_from(fraction.len()).ok()?;
        let amount: i128 = format!("{whole}{fraction}").parse().ok()?;
        let parts = 10_i128.checked_pow(places)?;
        let (factor, divisor) = scale(suffix)?;
        Some(Self { amount: amount.checked_mul(factor)?, parts: parts.checked_mul(divisor)? })
    }
}

/// Returns the factor and divisor of a quantity's suffix.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let decimal = |power: u32| 10_i128.checked_pow(power);
    let binary = |power: u32| 2_i128.checked_pow(power);
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, decimal(9)?),
        "u" => (1, decimal(6)?),
        "m" => (1, decimal(3)?),
        "k" => (decimal(3)?, 1),
        "M" => (decimal(6)?, 1),
        "G" => (decimal(9)?, 1),
        "T" => (decimal(12)?, 1),
        "P" => (decimal(15)?, 1),
        "E" => (decimal(18)?, 1),
        "Ki" => (binary(10)?, 1),
        "Mi" => (binary(20)?, 1),
        "Gi" => (binary(30)?, 1),
        "Ti" => (binary(40)?, 1),
        "Pi" => (binary(50)?, 1),
        "Ei" => (binary(60)?, 1),
        exponent => {
            let digits = exponent.strip_prefix(['e', 'E'])?;
            (decimal(digits.strip_prefix('+').unwrap_or(digits).parse().ok()?)?, 1)
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn holds(desired: &Value, observed: &Value) {
        assert!(contains(desired, observed), "{observed} should contain {desired}");
    }

    #[track_caller]
    fn differs(desired: &Value, observed: &Value) {
        assert!(!contains(desired, observed), "{observed} should not contain {desired}");
    }

    #[test]
    fn equal_objects_contain_each_other() {
        holds(&json!({"a": {"b": [1, "x", true]}}), &json!({"a": {"b": [1, "x", true]}}));
    }

    #[test]
    fn fields_of_others_and_defaults_do_not_matter() {
        holds(&json!({"data": {"a": "1"}}), &json!({"data": {"a": "1", "b": "2"}, "kind": "ConfigMap"}));
    }

    #[test]
    fn a_changed_or_removed_field_is_a_difference() {
        differs(&json!({"data": {"a": "1"}}), &json!({"data": {"a": "2"}}));
        differs(&json!({"data": {"a": "1"}}), &json!({"data": {}}));
        differs(&json!({"data": {"a": "1"}}), &json!({}));
        differs(&json!({"flag": false}), &json!({}));
        differs(&json!({"flag": "true"}), &json!({"flag": true}));
    }

    #[test]
    fn what_a_server_drops_counts_as_absent() {
        holds(&json!({"a": null, "b": [], "c": {"d": null}}), &json!({}));
        holds(&json!({"a": []}), &json!({"a": null}));
        differs(&json!({"a": ""}), &json!({}));
    }

    #[test]
    fn named_elements_are_found_in_any_order_among_others() {
        let observed =
            json!([{"name": "other"}, {"name": "b", "size": 2}, {"name": "a", "size": 1, "mode": "rw"}]);
        holds(&json!([{"name": "a", "size": 1}, {"name": "b"}]), &observed);
        differs(&json!([{"name": "a", "size": 2}]), &observed);
        differs(&json!([{"name": "c"}]), &observed);
    }

    #[test]
    fn elements_without_an_identifying_key_are_compared_in_order() {
        holds(&json!(["x", "y"]), &json!(["x", "y"]));
        differs(&json!(["x", "y"]), &json!(["y", "x"]));
        differs(&json!(["x"]), &json!(["x", "y"]));
        differs(&json!([{"port": 1}]), &json!([{"port": 1}, {"port": 2}]));
        differs(
            &json!([{"type": "a"}, {"type": "a", "x": 1}]),
            &json!([{"type": "a", "x": 1}, {"type": "a"}]),
        );
    }

    #[test]
    fn numbers_are_equal_by_value() {
        holds(&json!(1), &json!(1.0));
        differs(&json!(1), &json!(2));
    }

    #[test]
    fn quantities_are_equal_by_amount() {
        holds(&json!("1.5Gi"), &json!("1536Mi"));
        holds(&json!("0.5"), &json!("500m"));
        holds(&json!("1000m"), &json!("1"));
        holds(&json!("12E"), &json!("12000P"));
        holds(&json!("1e3"), &json!("1k"));
        differs(&json!("1Gi"), &json!("1G"));
        differs(&json!("1Gi"), &json!("2Gi"));
        differs(&json!("one"), &json!("1"));
        differs(&json!(""), &json!("0"));
        differs(&json!("99999999999999999999999999999999999999Ei"), &json!("1"));
    }
}
