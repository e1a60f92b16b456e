//! Uniqueness in lists of type set or map, and the required fields of embedded resources.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::{Additional, Cause, ListType, Node, path::Path, value::marshal};

/// Reports the first duplicate of each item of a set and of each key of a map.
pub(crate) fn check_list_types(node: &Node, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if !node.has_list_types {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if let Some(child) = node.properties.get(name) {
                    check_list_types(child, field, &Path::Field(path, name), causes);
                } else if let Additional::Schema(child) = &node.additional {
                    check_list_types(child, field, &Path::Key(path, name), causes);
                }
            }
        }
        Value::Array(items) => {
            match &node.list {
                ListType::Atomic => {}
                ListType::Set => {
                    for index in repeated(items.iter().map(marshal)) {
                        let item = items.get(index).unwrap_or(&Value::Null);
                        causes.push(Cause::duplicate(Path::Index(path, index).field(), item));
                    }
                }
                ListType::Map(keys) => check_map(keys, items, path, causes),
            }
            if let Some(child) = node.items.as_deref() {
                for (index, item) in items.iter().enumerate() {
                    check_list_types(child, item, &Path::Index(path, index), causes);
                }
            }
        }
        _ => {}
    }
}

fn check_map(keys: &[String], items: &[Value], path: &Path<'_>, causes: &mut Vec<Cause>) {
    for (index, item) in items.iter().enumerate() {
        if !item.is_object() && !item.is_null() {
            causes.push(Cause::invalid(
                Path::Index(path, index).field(),
                item,
                "must be an object for an array of list-type map",
            ));
            return;
        }
    }

    if items.len() < 2 {
        return;
    }
    let identities: Vec<Value> = items.iter().map(|item| identity(keys, item)).collect();
    for index in repeated(identities.iter().map(marshal)) {
        let identity = identities.get(index).unwrap_or(&Value::Null);
        causes.push(Cause::duplicate(Path::Index(path, index).field(), identity));
    }
}

/// Returns the key fields of an item with their values.
fn identity(keys: &[String], item: &Value) -> Value {
    let mut fields = Map::new();
    for key in keys {
        if let Some(value) = item.get(key) {
            fields.insert(key.clone(), value.clone());
        }
    }
    Value::Object(fields)
}

/// Returns the indices at which a string occurs for the second time.
fn repeated(texts: impl Iterator<Item = String>) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut indices = Vec::new();
    for (index, text) in texts.enumerate() {
        let times = seen.entry(text).or_default();
        *times += 1;
        if *times == 2 {
            indices.push(index);
        }
    }
    indices
}

/// Checks that every embedded resource has an `apiVersion` and a `kind`.
pub(crate) fn check_embedded(node: &Node, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if !node.has_embedded {
        return;
    }
    match value {
        Value::Object(fields) => {
            if node.embedded {
                check_resource(fields, path, causes);
            }
            for (name, field) in fields {
                if let Some(child) = node.properties.get(name) {
                    check_embedded(child, field, &Path::Field(path, name), causes);
                } else if let Additional::Schema(child) = &node.additional {
                    check_embedded(child, field, &Path::Key(path, name), causes);
                }
            }
        }
        Value::Array(items) => {
            if let Some(child) = node.items.as_deref() {
                for (index, item) in items.iter().enumerate() {
                    check_embedded(child, item, &Path::Index(path, index), causes);
                }
            }
        }
        _ => {}
    }
}

/// Returns the first embedded resource whose metadata has a wrong type, worded as Go's decoder does.
pub(crate) fn embedded_type_problem(
    node: &Node,
    value: &Value,
    path: &Path<'_>,
    type_problem: fn(&Value) -> Option<String>,
) -> Option<String> {
    if !node.has_embedded {
        return None;
    }
    if node.embedded
        && let (Some(metadata), Some(why)) = (value.get("metadata"), type_problem(value))
    {
        let field = Path::Field(path, "metadata").field();
        return Some(format!("{field}: Invalid value: {}: {why}", marshal(metadata)));
    }

    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, field)| match &node.additional {
            _ if node.properties.contains_key(name) => embedded_type_problem(
                node.properties.get(name)?,
                field,
                &Path::Field(path, name),
                type_problem,
            ),
            Additional::Schema(child) => {
                embedded_type_problem(child, field, &Path::Key(path, name), type_problem)
            }
            _ => None,
        }),
        Value::Array(items) => {
            let child = node.items.as_deref()?;
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| {
                embedded_type_problem(child, item, &Path::Index(path, index), type_problem)
            })
        }
        _ => None,
    }
}

fn check_resource(fields: &Map<String, Value>, path: &Path<'_>, causes: &mut Vec<Cause>) {
    for name in ["apiVersion", "kind"] {
        if !fields.contains_key(name) {
            causes.push(Cause::required(Path::Field(path, name).field(), ""));
        }
    }
    for name in ["apiVersion", "kind"] {
        let Some(value) = fields.get(name) else { continue };
        let field = Path::Field(path, name).field();
        match value.as_str() {
            None => causes.push(Cause::invalid(field, value, "must be a string")),
            Some("") => causes.push(Cause::invalid(field, value, "must not be empty")),
            Some(text) if name == "apiVersion" && text.matches('/').count() > 1 => {
                causes.push(Cause::invalid(field, value, &format!("unexpected GroupVersion string: {text}")));
            }
            Some(text) if name == "kind" && !is_kind(text) => causes.push(Cause::invalid(
                field,
                &json!(text),
                "may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            )),
            Some(_) => {}
        }
    }
}

fn is_kind(text: &str) -> bool {
    text.len() <= 63
        && text.starts_with(|character: char| character.is_ascii_alphabetic())
        && !text.ends_with('-')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}
