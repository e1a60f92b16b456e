//! The stored form of an object: JSON bytes with a gap for the version.
//!
//! The version of a write is known only when the write happens, under the store's lock, and the object
//! contains it in its metadata. An object is therefore serialized before, with a gap, and the number is
//! inserted at the last moment: the stored bytes are then the exact response to a `get`.

use bytes::Bytes;
use serde_json::{Map, Value};

/// A serialized object that waits for its version.
#[derive(Clone, Debug)]
pub struct Draft {
    bytes: Vec<u8>,
    hole: Option<usize>,
}

impl Draft {
    /// Serializes an object, `apiVersion` first, so that its version is found without parsing.
    #[must_use]
    pub fn new(object: &Value) -> Self {
        let mut draft = Self { bytes: Vec::with_capacity(1024), hole: None };
        match object.as_object() {
            None => write(&mut draft.bytes, object),
            Some(members) => draft.members(members),
        }
        draft
    }

    fn members(&mut self, members: &Map<String, Value>) {
        self.bytes.push(b'{');
        let mut first = true;
        for name in ["apiVersion", "kind"] {
            if let Some(value) = members.get(name) {
                self.member(&mut first, name, value);
            }
        }

        self.name(&mut first, "metadata");
        self.metadata(members.get("metadata").and_then(Value::as_object));
        for (name, value) in members {
            if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                self.member(&mut first, name, value);
            }
        }
        self.bytes.push(b'}');
    }

    fn metadata(&mut self, metadata: Option<&Map<String, Value>>) {
        self.bytes.push(b'{');
        let mut first = true;
        for (name, value) in metadata.into_iter().flatten() {
            if name != "resourceVersion" {
                self.member(&mut first, name, value);
            }
        }
        self.name(&mut first, "resourceVersion");
        self.bytes.push(b'"');
        self.hole = Some(self.bytes.len());
        self.bytes.extend_from_slice(b"\"}");
    }

    fn name(&mut self, first: &mut bool, name: &str) {
        if !std::mem::replace(first, false) {
            self.bytes.push(b',');
        }
        write(&mut self.bytes, &Value::String(name.to_owned()));
        self.bytes.push(b':');
    }

    fn member(&mut self, first: &mut bool, name: &str, value: &Value) {
        self.name(first, name);
        write(&mut self.bytes, value);
    }

    /// Returns the object without its version.
    #[must_use]
    pub fn unstamped(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the object with its version.
    #[must_use]
    pub fn stamp(mut self, version: u64) -> Bytes {
        if let Some(hole) = self.hole {
            let tail = self.bytes.split_off(hole);
            self.bytes.extend_from_slice(version.to_string().as_bytes());
            self.bytes.extend_from_slice(&tail);
        }
        self.bytes.shrink_to_fit();
        Bytes::from(self.bytes)
    }
}

fn write(into: &mut Vec<u8>, value: &Value) {
    // Serializing into memory cannot fail: the keys are strings, and a Vec accepts all bytes.
    let _ = serde_json::to_writer(into, value);
}

/// The maximum nesting of a stored object. The parser accepts 127 levels; the rest is for lists, watches and
/// tables, which contain objects.
pub const MAX_DEPTH: usize = 120;

/// Whether an object can be read again after it is stored.
#[must_use]
pub fn is_readable(object: &Value) -> bool {
    fn fits(value: &Value, levels: usize) -> bool {
        match value {
            Value::Array(items) => levels > 0 && items.iter().all(|item| fits(item, levels - 1)),
            Value::Object(fields) => levels > 0 && fields.values().all(|field| fits(field, levels - 1)),
            _ => true,
        }
    }
    fits(object, MAX_DEPTH)
}

/// Parses stored bytes. They were written by [`Draft`], so this fails only for a damaged file.
#[must_use]
pub fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_default()
}

/// Whether stored bytes have this apiVersion.
#[must_use]
pub fn has_version(bytes: &[u8], api_version: &str) -> bool {
    bytes
        .strip_prefix(b"{\"apiVersion\":\"")
        .and_then(|rest| rest.strip_prefix(api_version.as_bytes()))
        .is_some_and(|rest| rest.first() == Some(&b'"'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_version_is_inserted_into_the_metadata() {
        let object = json!({"spec": {"resourceVersion": "no"}, "kind": "A", "apiVersion": "g/v1",
            "metadata": {"name": "x", "resourceVersion": "7", "uid": "u"}});
        let bytes = Draft::new(&object).stamp(42);
        let mut expected = object;
        expected["metadata"]["resourceVersion"] = json!("42");
        assert_eq!(parse(&bytes), expected);
        assert!(has_version(&bytes, "g/v1"));
        assert!(!has_version(&bytes, "g/v"));
    }

    #[test]
    fn an_object_without_metadata_gets_metadata() {
        let bytes = Draft::new(&json!({"a": 1})).stamp(3);
        assert_eq!(parse(&bytes), json!({"a": 1, "metadata": {"resourceVersion": "3"}}));
    }
}
