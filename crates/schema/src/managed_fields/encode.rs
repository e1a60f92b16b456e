//! `fieldsV1`: the JSON form of a set of paths.

use serde_json::{Map, Value};

use super::path_set::{Element, Set};
use crate::schema::marshal;

/// The maximum depth of a decoded set; deeper paths are dropped.
const MAX_DEPTH: usize = 256;

/// Encodes a set as `fieldsV1`.
pub(crate) fn encode(set: &Set) -> Value {
    encode_below(set, false)
}

fn encode_below(set: &Set, member: bool) -> Value {
    let mut fields = Map::new();
    if member && !set.is_empty() {
        fields.insert(".".to_owned(), Value::Object(Map::new()));
    }
    for entry in &set.entries {
        fields.insert(encode_element(&entry.element), encode_below(&entry.children, entry.member));
    }
    Value::Object(fields)
}

fn encode_element(element: &Element) -> String {
    match element {
        Element::Field(name) => format!("f:{name}"),
        Element::Key(keys) => {
            let fields: Map<String, Value> = keys.iter().cloned().collect();
            format!("k:{}", marshal(&Value::Object(fields)))
        }
        Element::Value(value) => format!("v:{}", marshal(value)),
        Element::Index(index) => format!("i:{index}"),
    }
}

/// Decodes `fieldsV1`; returns `None` if it is malformed. Unknown kinds of path elements are skipped.
pub(crate) fn decode(fields: &Value) -> Option<Set> {
    decode_below(fields, 0).map(|(set, _)| set)
}

fn decode_below(fields: &Value, depth: usize) -> Option<(Set, bool)> {
    let fields = fields.as_object()?;
    let mut set = Set::default();
    let mut member = false;
    if depth > MAX_DEPTH {
        return Some((set, true));
    }

    let mut found = Vec::new();
    for (key, below) in fields {
        if key == "." {
            member = true;
            continue;
        }
        let (kind, content) = key.split_at_checked(2)?;
        let element = match kind {
            "f:" => Element::Field(content.to_owned()),
            "v:" => Element::Value(serde_json::from_str(content).ok()?),
            "i:" => Element::Index(content.parse().ok()?),
            "k:" => {
                let keys: Map<String, Value> = serde_json::from_str(content).ok()?;
                let mut keys: Vec<(String, Value)> = keys.into_iter().collect();
                keys.sort_by(|left, right| left.0.cmp(&right.0));
                Element::Key(keys)
            }
            other if other.ends_with(':') => continue,
            _ => return None,
        };
        let (children, is_member) = decode_below(below, depth + 1)?;
        found.push((element, is_member, children));
    }

    // The keys are in the order of their texts.
    found.sort_by(|left, right| left.0.cmp(&right.0));
    for (element, is_member, children) in found {
        set.put(element, is_member, children);
    }
    let only_itself = set.is_empty();
    Some((set, member || only_itself))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn decoding_and_encoding_round_trips() {
        let cases = [
            json!({}),
            json!({"f:spec": {"f:a": {}, "f:b": {".": {}, "f:c": {}}}}),
            json!({"f:l": {"k:{\"name\":\"x\",\"port\":1}": {".": {}, "f:name": {}}, "v:\"a\"": {}, "v:1": {}, "i:3": {}}}),
            json!({"f:l": {"v:\"\\u003c\"": {}}}),
        ];
        for fields in cases {
            assert_eq!(encode(&decode(&fields).unwrap()), fields);
        }
    }

    #[test]
    fn malformed_fields_are_rejected() {
        for fields in [json!(1), json!({"f": {}}), json!({"x": {}}), json!({"k:1": {}}), json!({"f:a": 1})] {
            assert!(decode(&fields).is_none(), "{fields}");
        }
    }
}
