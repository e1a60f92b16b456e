//! Defaulting, and the removal of `null` where it is not allowed.

use serde_json::Value;

use super::{Additional, MAX_DEPTH, Node, node::Type};

/// Drops every `null` of a field that is not nullable and has no default; the others are left to [`fill`].
///
/// In string maps of built-in kinds it becomes the empty string, as in Go.
pub(crate) fn drop_nulls(value: &mut Value, node: &Node, native: bool, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(fields) => {
            let mut doomed = Vec::new();
            for (name, field) in fields.iter_mut() {
                let Some(child) = node.child(name) else { continue };
                let is_entry = native && child.kind == Type::String && !node.properties.contains_key(name);
                if field.is_null() && is_entry {
                    *field = Value::String(String::new());
                } else if field.is_null() {
                    if !child.nullable && child.default.is_none() {
                        doomed.push(name.clone());
                    }
                } else {
                    drop_nulls(field, child, native, depth + 1);
                }
            }
            for name in doomed {
                fields.remove(&name);
            }
        }
        Value::Array(items) => {
            if let Some(child) = &node.items {
                for item in items {
                    drop_nulls(item, child, native, depth + 1);
                }
            }
        }
        _ => {}
    }
}

/// Removes empty lists and maps of a built-in kind, which Go does not distinguish from missing ones. A `null`
/// inside a string map becomes the empty string.
pub(crate) fn drop_empty(value: &mut Value, node: &Node, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(fields) => {
            let required = node.checks.as_ref().map(|checks| checks.required.as_slice()).unwrap_or_default();
            fields.retain(|name, field| {
                let Some(child) = node.properties.get(name) else { return true };
                let is_map = child.properties.is_empty() && matches!(child.additional, Additional::Schema(_));
                let empty = match field {
                    // A value of the wrong type is not empty but an error, which validation reports.
                    Value::Array(items) => items.is_empty() && child.kind == Type::Array,
                    Value::Object(entries) => is_map && entries.is_empty(),
                    _ => false,
                };
                !empty || required.contains(name)
            });
            for (name, field) in fields.iter_mut() {
                if let Some(child) = node.child(name) {
                    drop_empty(field, child, depth + 1);
                }
            }
        }
        Value::Array(items) => {
            if let Some(child) = &node.items {
                for item in items {
                    drop_empty(item, child, depth + 1);
                }
            }
        }
        _ => {}
    }
}

/// Inserts the default of every missing field, also inside inserted defaults.
pub(crate) fn fill(value: &mut Value, node: &Node, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, child) in &node.properties {
                if let Some(default) = &child.default
                    && fields.get(name).is_none_or(|field| field.is_null() && !child.nullable)
                {
                    fields.insert(name.clone(), default.clone());
                }
                if let Some(field) = fields.get_mut(name) {
                    fill(field, child, depth + 1);
                }
            }
            if let Additional::Schema(child) = &node.additional {
                for (name, field) in fields.iter_mut() {
                    if !node.properties.contains_key(name) {
                        fill_element(field, child, depth);
                    }
                }
            }
        }
        Value::Array(items) => {
            if let Some(child) = &node.items {
                for item in items {
                    fill_element(item, child, depth);
                }
            }
        }
        _ => {}
    }
}

/// Defaults a list item or map value: `null` becomes the default, if there is one.
fn fill_element(value: &mut Value, node: &Node, depth: usize) {
    if value.is_null() && !node.nullable {
        *value = node.default.clone().unwrap_or(Value::Null);
    }
    fill(value, node, depth + 1);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::schema::Schema;

    use super::*;

    fn defaulted(spec_schema: &Value, spec: &Value) -> Value {
        let schema =
            Schema::compile(&json!({"type": "object", "properties": {"spec": spec_schema}})).unwrap();
        let mut object = json!({"spec": spec});
        schema.default(&mut object);
        object["spec"].take()
    }

    #[test]
    fn missing_fields_get_their_default() {
        let nested = json!({"type": "object", "default": {}, "properties": {
            "a": {"type": "integer", "default": 1},
            "b": {"type": "object", "default": {}, "properties": {"c": {"type": "string", "default": "x"}}}}});
        let cases = [
            (
                json!({"type": "object", "properties": {"n": nested}}),
                json!({}),
                json!({"n": {"a": 1, "b": {"c": "x"}}}),
            ),
            (
                json!({"type": "object", "properties": {"n": nested}}),
                json!({"n": {"a": 2}}),
                json!({"n": {"a": 2, "b": {"c": "x"}}}),
            ),
            (
                json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "object",
                    "properties": {"p": {"type": "string", "default": "TCP"}}}}}}),
                json!({"l": [{}, {"p": "UDP"}]}),
                json!({"l": [{"p": "TCP"}, {"p": "UDP"}]}),
            ),
            (
                json!({"type": "object", "properties": {"m": {"type": "object", "additionalProperties": {"type": "object",
                    "properties": {"p": {"type": "integer", "default": 3}}}}}}),
                json!({"m": {"k": {}}}),
                json!({"m": {"k": {"p": 3}}}),
            ),
        ];

        for (schema, spec, expected) in cases {
            assert_eq!(defaulted(&schema, &spec), expected);
        }
    }

    #[test]
    fn a_default_has_the_form_that_its_next_write_gives_it() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "number", "default": 11.0}}});
        let once = defaulted(&schema, &json!({}));
        assert_eq!(once, json!({"a": 11}));
        assert_eq!(defaulted(&schema, &once), once);
    }

    #[test]
    fn null_is_dropped_preserved_or_replaced() {
        let schema = json!({"type": "object", "properties": {
            "plain": {"type": "string"},
            "nullable": {"type": "string", "nullable": true},
            "default": {"type": "string", "default": "d"},
            "both": {"type": "string", "nullable": true, "default": "d"}}});
        let spec = json!({"plain": null, "nullable": null, "default": null, "both": null});
        assert_eq!(defaulted(&schema, &spec), json!({"nullable": null, "default": "d", "both": null}));
    }

    #[test]
    fn built_in_kinds_omit_empty_lists_and_maps() {
        let text = json!({"type": "object", "additionalProperties": {"type": "string"}});
        let list = json!({"type": "array", "items": {"type": "string"}});
        let schema = Schema::native(&json!({
            "type": "object", "required": ["required"],
            "properties": {"data": text, "more": text, "list": list, "required": list},
        }));
        let mut object = json!({"data": {}, "more": {"a": null}, "list": [], "required": []});
        schema.default(&mut object);
        assert_eq!(object, json!({"more": {"a": ""}, "required": []}));
    }
}
