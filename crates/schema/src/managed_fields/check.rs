//! Whether a configuration can be applied at all.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::Value;

use super::types::{Ref, Shape};
use crate::schema::{Schema, Type, marshal, quote};

/// Returns an error for a configuration that cannot be applied: an undeclared field, a value of the wrong
/// type, a list item without keys or with duplicate keys.
///
/// kube-apiserver prefixes it with `failed to create typed patch object (namespace/name; group/version,
/// Kind=Kind): ` and responds with 500.
pub fn check_applied(applied: &Value, schema: &Schema) -> Result<(), String> {
    let mut errors = Vec::new();
    walk_applied(applied, Ref::root(schema), schema, &mut String::new(), &mut errors);
    match errors.as_slice() {
        [] => Ok(()),
        [only] => Err(only.clone()),
        several => Err(format!("errors:\n  {}", several.join("\n  "))),
    }
}

fn walk_applied(value: &Value, kind: Ref<'_>, schema: &Schema, path: &mut String, errors: &mut Vec<String>) {
    if let Some(error) = wrong_type(value, kind) {
        errors.push(format!("{path}: {error}"));
        return;
    }

    let length = path.len();
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                path.push('.');
                path.push_str(name);
                if kind.declares(name) {
                    walk_applied(field, kind.field(name, schema).0, schema, path, errors);
                } else {
                    errors.push(format!("{path}: field not declared in schema"));
                }
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            let shape = kind.shape(value);
            let mut seen = BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                if matches!(shape, Shape::Set | Shape::Map(_)) {
                    let Some(element) = kind.element(shape, item) else {
                        errors.push(format!("{path}: element {index}: {}", without_identity(shape, item)));
                        return;
                    };
                    element.print(path);
                    let step = path.get(length..).unwrap_or_default().to_owned();
                    if !seen.insert(element) {
                        path.truncate(length);
                        errors.push(format!("{path}: duplicate entries for key {step}"));
                        path.push_str(&step);
                    }
                } else {
                    let _ = write!(path, "[{index}]");
                }
                walk_applied(item, kind.item(), schema, path, errors);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn without_identity(shape: Shape<'_>, item: &Value) -> String {
    match (shape, item) {
        (Shape::Map(_), Value::Null) => "associative list with keys may not have a null element".to_owned(),
        (Shape::Map(keys), Value::Object(_)) => {
            let keys: Vec<String> = keys.iter().map(|key| quote(key)).collect();
            format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                keys.join(" ")
            )
        }
        (Shape::Map(_), _) => "associative list with keys may not have non-map elements".to_owned(),
        (_, Value::Object(_)) => "associative list without keys has an element that's a map type".to_owned(),
        (_, Value::Array(_)) => "not supported: associative list with lists as elements".to_owned(),
        _ => "associative list without keys has an element that's an explicit null".to_owned(),
    }
}

/// Returns the type error of a value, worded as kube-apiserver does; null fits every type.
fn wrong_type(value: &Value, kind: Ref<'_>) -> Option<String> {
    let Ref::Node { node, .. } = kind else { return None };
    let wanted = match (node.kind, value) {
        (_, Value::Null)
        | (Type::Any, _)
        | (Type::Object, Value::Object(_))
        | (Type::Array, Value::Array(_))
        | (Type::String, Value::String(_))
        | (Type::Integer | Type::Number, Value::Number(_))
        | (Type::Boolean, Value::Bool(_)) => return None,
        (Type::Object, _) => "map",
        (Type::Array, _) => "list",
        (Type::String, _) if node.checks.as_ref().is_some_and(|checks| checks.format.is_some()) => {
            return None;
        }
        (Type::String, _) => {
            let source = go_source(value);
            return Some(format!("expected string, got &value.valueUnstructured{{Value:{source}}}"));
        }
        (Type::Integer | Type::Number, _) => {
            let found = match value {
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Array(_) => "[]interface {}",
                _ => "map[string]interface {}",
            };
            return Some(format!("expected numeric (int or float), got {found}"));
        }
        (Type::Boolean, _) => "boolean",
    };

    Some(format!("expected {wanted}, got &{{{}}}", go_print(value)))
}

/// Prints a value as `%v` does.
fn go_print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_print).collect::<Vec<String>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, field)| format!("{name}:{}", go_print(field))).collect();
            format!("map[{}]", fields.join(" "))
        }
        other => marshal(other),
    }
}

/// Prints a value as `%#v` does.
fn go_source(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(go_source).collect::<Vec<String>>().join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, field)| format!("{}:{}", quote(name), go_source(field))).collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        other => marshal(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_configurations_are_rejected_as_by_kube_apiserver() {
        let text = json!({"type": "string"});
        let schema = Schema::compile(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": text, "i": {"type": "integer"}, "b": {"type": "boolean"},
            "o": {"type": "object", "properties": {"x": text}},
            "set": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
            "lm": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                   "items": {"type": "object", "required": ["name"], "properties": {"name": text, "v": {"type": "integer"}}}},
            "l": {"type": "array", "items": {"type": "object", "properties": {"k": text}}},
        }}}}))
        .unwrap();

        let cases = [
            (json!({"z": 1}), ".spec.z: field not declared in schema"),
            (json!({"a": 1}), ".spec.a: expected string, got &value.valueUnstructured{Value:1}"),
            (
                json!({"a": {}}),
                ".spec.a: expected string, got &value.valueUnstructured{Value:map[string]interface {}{}}",
            ),
            (json!({"i": "x"}), ".spec.i: expected numeric (int or float), got string"),
            (json!({"i": true}), ".spec.i: expected numeric (int or float), got bool"),
            (json!({"o": "x"}), ".spec.o: expected map, got &{x}"),
            (json!({"o": {"q": 1}}), ".spec.o.q: field not declared in schema"),
            (json!({"b": 1}), ".spec.b: expected boolean, got &{1}"),
            (json!({"set": ["a", "a"]}), ".spec.set: duplicate entries for key [=\"a\"]"),
            (
                json!({"set": [{}]}),
                ".spec.set: element 0: associative list without keys has an element that's a map type",
            ),
            (
                json!({"set": [null]}),
                ".spec.set: element 0: associative list without keys has an element that's an explicit null",
            ),
            (
                json!({"lm": [{"v": 1}]}),
                ".spec.lm: element 0: associative list with keys has an element that omits all key fields [\"name\"] (and doesn't have default values for any key fields)",
            ),
            (
                json!({"lm": [{"name": "a"}, {"name": "a"}]}),
                ".spec.lm: duplicate entries for key [name=\"a\"]",
            ),
            (
                json!({"lm": ["x"]}),
                ".spec.lm: element 0: associative list with keys may not have non-map elements",
            ),
            (
                json!({"lm": [null]}),
                ".spec.lm: element 0: associative list with keys may not have a null element",
            ),
            (json!({"lm": "x"}), ".spec.lm: expected list, got &{x}"),
            (
                json!({"l": [{"k": 1}, {"z": 1}]}),
                "errors:\n  .spec.l[0].k: expected string, got &value.valueUnstructured{Value:1}\n  .spec.l[1].z: field not declared in schema",
            ),
        ];

        for (spec, message) in cases {
            assert_eq!(check_applied(&json!({"spec": spec}), &schema), Err(message.to_owned()));
        }
        assert_eq!(
            check_applied(&json!({"metadata": {"labels": {"a": "b"}}, "spec": {"a": null}}), &schema),
            Ok(())
        );
    }
}
