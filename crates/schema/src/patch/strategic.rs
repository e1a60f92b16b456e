//! Strategic merge patches, for built-in kinds.
//!
//! Lists that the schema marks are merged by key (or as sets) instead of replaced. The directives `$patch`,
//! `$retainKeys`, `$deleteFromPrimitiveList/…` and `$setElementOrder/…` are honored.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::{GO_OBJECT, PatchError, check_depth, parse, wrong_type};
use crate::schema::{Node, Schema, go_type};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

/// Merges a patch into a document of a built-in kind.
pub fn strategic(document: &Value, patch: &[u8], schema: &Schema) -> Result<Value, PatchError> {
    let patch = match parse(patch, "")? {
        Value::Object(patch) => patch,
        Value::Null => Map::new(),
        other => return Err(wrong_type(&other, "", GO_OBJECT)),
    };
    let original = document.as_object().cloned().unwrap_or_default();
    let merged = merge_object(original, patch, Some(&schema.root))?;
    check_depth(Value::Object(merged))
}

fn bad_request(message: impl Into<String>) -> PatchError {
    PatchError::DecodePatch { message: message.into() }
}

fn mismatch(message: impl Into<String>) -> PatchError {
    PatchError::MatchPatch { message: message.into() }
}

fn merge_object(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    node: Option<&Node>,
) -> Result<Map<String, Value>, PatchError> {
    match patch.get(DIRECTIVE).map(Value::as_str) {
        None => {}
        Some(Some("replace")) => {
            patch.remove(DIRECTIVE);
            return Ok(patch);
        }
        Some(Some("delete")) => return Ok(Map::new()),
        Some(_) => return Err(unknown_directive(&patch)),
    }

    retain_keys(&mut original, &mut patch)?;
    set_order(&mut original, &mut patch, node)?;
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(DELETE_FROM) {
            let Value::Array(doomed) = value else {
                return Err(bad_request("invalid patch format of primitive list"));
            };
            let doomed: HashSet<Value> = doomed.into_iter().collect();
            if let Some(Value::Array(items)) = original.get_mut(list) {
                items.retain(|item| !doomed.contains(item));
            }
            continue;
        }
        if value.is_null() {
            original.remove(&name);
            continue;
        }
        let child = node.and_then(|node| node.child(&name));
        let merged = match (original.remove(&name), value) {
            // An emptied map is omitted, as Go's types omit it.
            (Some(Value::Object(_)), Value::Object(patch))
                if patch.get(DIRECTIVE).is_some_and(|directive| directive == "delete") =>
            {
                None
            }
            (Some(Value::Object(before)), Value::Object(patch)) => {
                Some(Value::Object(merge_object(before, patch, child)?))
            }
            (Some(Value::Array(before)), Value::Array(patch)) => {
                Some(Value::Array(merge_list(before, patch, child)?))
            }
            (_, value) => without_directives(value),
        };
        if let Some(merged) = merged {
            original.insert(name, merged);
        }
    }

    Ok(original)
}

/// Removes every field that `$retainKeys` does not list.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), PatchError> {
    const MALFORMED: &str = "invalid patch format of retainKeys";
    let Some(retained) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(retained) = retained else { return Err(bad_request(MALFORMED)) };
    let retained: HashSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let retains = |name: &str| retained.contains(name);
    let odd = patch.iter().any(|(name, value)| {
        !value.is_null() && !name.starts_with(DELETE_FROM) && !name.starts_with(SET_ORDER) && !retains(name)
    });
    if odd {
        return Err(bad_request(MALFORMED));
    }
    original.retain(|name, _| retains(name));
    Ok(())
}

/// Merges the lists whose order the patch specifies and puts them in that order.
fn set_order(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    node: Option<&Node>,
) -> Result<(), PatchError> {
    const MALFORMED: &str = "invalid patch format of setElementOrder list";
    let directives: Vec<String> = patch.keys().filter(|name| name.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            other => return Err(not_a_list(&other.unwrap_or(Value::Null))),
        };
        let name = directive.strip_prefix(SET_ORDER).unwrap_or_default().to_owned();
        let child = node.and_then(|node| node.child(&name));
        let key = child.and_then(|child| child.patch.merge_key.as_deref());
        let before = match original.get(&name) {
            None => None,
            Some(Value::Array(items)) => Some(items.clone()),
            Some(other) => return Err(not_a_list(other)),
        };
        let merged = match (before.clone(), patch.remove(&name)) {
            (None, None) => continue,
            (Some(before), None) => before,
            (None, Some(added)) => match without_directives(added) {
                Some(Value::Array(items)) => items,
                _ => return Err(bad_request(MALFORMED)),
            },
            (Some(before), Some(Value::Array(added))) => merge_list(before, added, child)?,
            (Some(_), Some(other)) => return Err(not_a_list(&other)),
        };
        let sorted = in_order(merged, &order, &before.unwrap_or_default(), key);
        original.insert(name, Value::Array(sorted));
    }

    Ok(())
}

fn merge_list(before: Vec<Value>, patch: Vec<Value>, node: Option<&Node>) -> Result<Vec<Value>, PatchError> {
    let Some(node) = node.filter(|node| node.patch.merge) else {
        return Ok(patch);
    };
    if before.is_empty() && patch.is_empty() {
        return Ok(before);
    }

    let Some(key) = node.patch.merge_key.as_deref() else {
        let order = patch.clone();
        let mut merged = before.clone();
        let mut known: HashSet<Value> = before.iter().cloned().collect();
        merged.extend(patch.into_iter().filter(|item| known.insert(item.clone())));
        return Ok(in_order(merged, &order, &before, None));
    };

    let mut merged = before.clone();
    let mut replace = false;
    let mut plain = Vec::new();
    let mut doomed = HashSet::new();
    for item in patch {
        let Value::Object(fields) = item else {
            return Err(mismatch(format!("invalid element in a list merged by {key}: {item}")));
        };
        match fields.get(DIRECTIVE).map(Value::as_str) {
            None => plain.push(fields),
            Some(Some("replace")) => replace = true,
            Some(Some("delete")) => {
                let Some(value) = fields.get(key) else { return Err(no_key(key, &fields)) };
                doomed.insert(value.clone());
            }
            Some(Some("merge")) => {
                return Err(mismatch("merging lists cannot yet be specified in the patch"));
            }
            Some(_) => {
                return Err(mismatch(format!("unknown patch type found in: {}", Value::Object(fields))));
            }
        }
    }

    merged.retain(|item| !item.get(key).is_some_and(|value| doomed.contains(value)));
    if replace {
        return Ok(plain.into_iter().map(Value::Object).collect());
    }
    let order: Vec<Value> = plain.iter().cloned().map(Value::Object).collect();
    let mut known: HashMap<Value, usize> = HashMap::with_capacity(merged.len());
    for (index, item) in merged.iter().enumerate() {
        if let Some(value) = item.get(key) {
            known.entry(value.clone()).or_insert(index);
        }
    }
    for fields in plain {
        let Some(value) = fields.get(key).cloned() else { return Err(no_key(key, &fields)) };
        if let Some(slot) = known.get(&value).and_then(|index| merged.get_mut(*index)) {
            let found = slot.as_object_mut().map(std::mem::take).unwrap_or_default();
            *slot = Value::Object(merge_object(found, fields, node.items.as_deref())?);
        } else {
            known.insert(value, merged.len());
            merged.push(Value::Object(fields));
        }
    }

    Ok(in_order(merged, &order, &before, Some(key)))
}

fn no_key(key: &str, fields: &Map<String, Value>) -> PatchError {
    mismatch(format!("map: {} does not contain declared merge key: {key}", print_map(fields)))
}

fn unknown_directive(fields: &Map<String, Value>) -> PatchError {
    let directive = fields.get(DIRECTIVE).map(print).unwrap_or_default();
    mismatch(format!("unknown patch type: {directive} in map: {}", print_map(fields)))
}

fn not_a_list(value: &Value) -> PatchError {
    let found = go_type(value);
    mismatch(format!("expected a []interface {{}}, but received a {found}"))
}

/// Prints a map as Go does.
#[must_use]
pub fn print_map(fields: &Map<String, Value>) -> String {
    let entries: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}:{}", print(value))).collect();
    format!("map[{}]", entries.join(" "))
}

fn print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(fields) => print_map(fields),
        Value::Array(items) => format!("[{}]", items.iter().map(print).collect::<Vec<String>>().join(" ")),
        other => other.to_string(),
    }
}

/// The first positions of the items of a list, by their keys or values.
struct Positions<'a> {
    key: Option<&'a str>,
    positions: HashMap<Option<&'a Value>, usize>,
}

impl<'a> Positions<'a> {
    fn of(list: &'a [Value], key: Option<&'a str>) -> Positions<'a> {
        let mut positions = HashMap::with_capacity(list.len());
        for (index, item) in list.iter().enumerate() {
            positions.entry(identity(item, key)).or_insert(index);
        }
        Positions { key, positions }
    }

    fn find(&self, item: &Value) -> Option<usize> {
        self.positions.get(&identity(item, self.key)).copied()
    }
}

/// Returns what identifies an item: its key, or the item itself.
fn identity<'a>(item: &'a Value, key: Option<&str>) -> Option<&'a Value> {
    match key {
        Some(key) => item.get(key),
        None => Some(item),
    }
}

/// Sorts the items that the patch lists in its order; the others stay between them where they were.
fn in_order(items: Vec<Value>, order: &[Value], before: &[Value], key: Option<&str>) -> Vec<Value> {
    let (order, before) = (Positions::of(order, key), Positions::of(before, key));
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        items.into_iter().partition(|item| order.find(item).is_some());
    named.sort_by_key(|item| order.find(item));
    others.sort_by_key(|item| before.find(item));
    let mut out = Vec::with_capacity(named.len() + others.len());
    let mut named = named.into_iter().peekable();
    let mut others = others.into_iter().peekable();

    while let (Some(other), Some(next)) = (others.peek(), named.peek()) {
        let earlier = match (before.find(other), before.find(next)) {
            (Some(left), Some(right)) => left < right,
            _ => false,
        };
        out.extend(if earlier { others.next() } else { named.next() });
    }

    out.extend(named);
    out.extend(others);
    out
}

/// Returns a value of the patch without directives; an object with a directive is dropped.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            if fields.contains_key(DIRECTIVE) {
                return None;
            }
            let cleaned = fields
                .into_iter()
                .filter(|(_, field)| !field.is_null())
                .filter_map(|(name, field)| Some((name, without_directives(field)?)))
                .collect();
            Some(Value::Object(cleaned))
        }
        Value::Array(items) => Some(items.into_iter().filter_map(without_directives).collect()),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Schema {
        Schema::native(&json!({
            "type": "object",
            "properties": {
                "metadata": {"type": "object"},
                "data": {"type": "object", "additionalProperties": {"type": "string"}},
                "secrets": {
                    "type": "array",
                    "x-kubernetes-patch-strategy": "merge",
                    "x-kubernetes-patch-merge-key": "name",
                    "items": {"type": "object", "properties": {"name": {"type": "string"}, "x": {"type": "integer"}}},
                },
                "atomic": {"type": "array", "items": {"type": "string"}},
            },
        }))
    }

    #[test]
    fn lists_are_merged_by_the_strategy_of_the_schema() {
        let secrets = json!([{"name": "a", "x": 1}, {"name": "b"}]);
        let cases = [
            (
                json!({"secrets": [{"name": "c"}]}),
                json!([{"name": "c"}, {"name": "a", "x": 1}, {"name": "b"}]),
            ),
            (json!({"secrets": [{"name": "a", "x": 2}]}), json!([{"name": "a", "x": 2}, {"name": "b"}])),
            (json!({"secrets": [{"name": "a", "x": null}]}), json!([{"name": "a"}, {"name": "b"}])),
            (json!({"secrets": [{"name": "a", "$patch": "delete"}]}), json!([{"name": "b"}])),
            (json!({"secrets": [{"$patch": "replace"}, {"name": "z"}]}), json!([{"name": "z"}])),
            (json!({"secrets": [{"name": "b", "$patch": "replace"}]}), json!([])),
            (
                json!({"$setElementOrder/secrets": [{"name": "b"}, {"name": "a"}]}),
                json!([{"name": "b"}, {"name": "a", "x": 1}]),
            ),
            (
                json!({"$setElementOrder/secrets": [{"name": "b"}, {"name": "c"}, {"name": "a"}], "secrets": [{"name": "c"}]}),
                json!([{"name": "b"}, {"name": "c"}, {"name": "a", "x": 1}]),
            ),
        ];

        for (patch, expected) in cases {
            let merged =
                strategic(&json!({"secrets": secrets}), patch.to_string().as_bytes(), &schema()).unwrap();
            assert_eq!(merged["secrets"], expected, "{patch}");
        }
    }

    #[test]
    fn finalizers_are_a_set_and_other_lists_are_replaced() {
        let document = json!({"metadata": {"finalizers": ["a", "b"], "labels": {"x": "1"}}, "atomic": ["1"], "data": {"k": "v"}});
        let cases = [
            (json!({"metadata": {"finalizers": ["c"]}}), "/metadata/finalizers", json!(["c", "a", "b"])),
            (
                json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
                "/metadata/finalizers",
                json!(["b"]),
            ),
            (json!({"metadata": {"labels": {"x": null, "y": "2"}}}), "/metadata/labels", json!({"y": "2"})),
            (json!({"atomic": ["2"]}), "/atomic", json!(["2"])),
            (json!({"data": {"$patch": "replace", "n": "m"}}), "/data", json!({"n": "m"})),
            (json!({"data": {"$retainKeys": ["n"], "n": "m"}}), "/data", json!({"n": "m"})),
        ];
        for (patch, pointer, expected) in cases {
            let merged = strategic(&document, patch.to_string().as_bytes(), &schema()).unwrap();
            assert_eq!(merged.pointer(pointer), Some(&expected), "{patch}");
        }
        let merged = strategic(&document, br#"{"data": {"$patch": "delete"}}"#, &schema()).unwrap();
        assert_eq!(merged.get("data"), None);
    }

    #[test]
    fn a_malformed_directive_is_rejected() {
        let document = json!({"secrets": [{"name": "a"}], "data": {}});
        let cases = [
            (
                json!({"secrets": [{"namespace": "x"}]}),
                500,
                "map: map[namespace:x] does not contain declared merge key: name",
            ),
            (json!({"data": {"$retainKeys": ["q"], "z": "1"}}), 400, "invalid patch format of retainKeys"),
            (json!({"$setElementOrder/secrets": 1}), 500, "expected a []interface {}, but received a int64"),
            (json!({"data": {"$patch": "what"}}), 500, "unknown patch type: what in map: map[$patch:what]"),
            (json!([1]), 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ];

        for (patch, status, message) in cases {
            let error = strategic(&document, patch.to_string().as_bytes(), &schema()).unwrap_err();
            assert_eq!((error.status_code(), error.to_string().as_str()), (status, message), "{patch}");
        }
    }
}
