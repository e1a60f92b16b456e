//! Request bodies: decodes JSON or YAML, reports errors as Kubernetes does, and records duplicate fields.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::status::Failure;

/// The maximum size of a body.
pub const LIMIT: usize = 3 * 1024 * 1024;
/// The maximum nesting of a body; deeper ones serve only to exhaust the stack.
const DEPTH: usize = 128;
/// The number of bytes of a body that an error quotes.
const QUOTED: usize = 30;

/// The largest integer up to which a float represents every integer.
const EXACT: f64 = 9_007_199_254_740_991.0;

/// A decoded body.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The value; of duplicate fields, the last one.
    pub value: Value,
    /// The paths of fields that occur more than once.
    pub duplicates: Vec<String>,
}

/// Decodes JSON; errors are worded as by Kubernetes' decoder.
pub fn json(bytes: &[u8]) -> Result<Decoded, String> {
    let mut duplicates = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let node = Node { path: String::new(), duplicates: &mut duplicates, depth: 0 };
    let value = node.deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    match value {
        Ok(value) => Ok(Decoded { value, duplicates }),
        Err(error) => Err(syntax_error(bytes, &error)),
    }
}

/// Decodes YAML, of which JSON is a subset.
pub fn yaml(bytes: &[u8]) -> Result<Decoded, String> {
    if bytes.trim_ascii_start().first() == Some(&b'{') {
        return json(bytes);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "yaml: invalid UTF-8".to_owned())?;
    let value: Value = serde_saphyr::from_str(text)
        .map_err(|error| format!("error converting YAML to JSON: yaml: {error}"))?;
    Ok(Decoded { value, duplicates: Vec::new() })
}

/// Formats an error as Go's decoder does.
#[must_use]
pub fn syntax_error(bytes: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let line = bytes.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let at = line.get(error.column().saturating_sub(1)..).unwrap_or_default();
    let byte = at.first().copied().unwrap_or(b' ');
    let text = error.to_string();
    let context = if text.starts_with("key must be a string") {
        "looking for beginning of object key string"
    } else if text.starts_with("expected `:`") {
        "after object key"
    } else if text.starts_with("expected `,` or `}`") {
        "after object key:value pair"
    } else if text.starts_with("expected `,` or `]`") {
        "after array element"
    } else if text.starts_with("trailing characters") {
        "after top-level value"
    } else if text.starts_with("trailing comma") && byte == b'}' {
        "looking for beginning of object key string"
    } else if text.starts_with("expected value") || text.starts_with("trailing comma") {
        "looking for beginning of value"
    } else if text.starts_with("expected ident")
        && let Some(context) = literal_error(line, error.column().saturating_sub(1))
    {
        return format!("invalid character {} {context}", quoted_byte(byte));
    } else {
        return text.split(" at line ").next().unwrap_or_default().to_owned();
    };

    format!("invalid character {} {context}", quoted_byte(byte))
}

/// Quotes a byte as Go's decoder does in errors.
fn quoted_byte(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        0x7f..0xa0 => format!("'\\u{byte:04x}'"),
        0..0x20 => format!("'\\x{byte:02x}'"),
        _ => format!("'{}'", char::from(byte)),
    }
}

/// Returns what was expected at `at`, inside `true`, `false` or `null`.
fn literal_error(line: &[u8], at: usize) -> Option<String> {
    ["true", "false", "null"].into_iter().find_map(|literal| {
        let read = (1..literal.len()).find(|read| {
            at.checked_sub(*read).and_then(|start| line.get(start..at)) == literal.as_bytes().get(..*read)
        })?;
        let expected = literal.get(read..=read)?;
        Some(format!("in literal {literal} (expecting '{expected}')"))
    })
}

/// A value that knows its path, which names duplicate fields.
struct Node<'a> {
    path: String,
    duplicates: &'a mut Vec<String>,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // An integer is printed as one, however it was written.
        if value.fract() == 0.0 && value.abs() <= EXACT {
            #[expect(clippy::cast_possible_truncation, reason = "whole and within the exact range")]
            return Ok((value as i64).into());
        }
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        if self.depth >= DEPTH {
            return Err(A::Error::custom("exceeded max depth"));
        }
        let mut list = Vec::new();
        loop {
            let path = format!("{}[{}]", self.path, list.len());
            let node = Node { path, duplicates: &mut *self.duplicates, depth: self.depth + 1 };
            match items.next_element_seed(node)? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        if self.depth >= DEPTH {
            return Err(A::Error::custom("exceeded max depth"));
        }
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            if map.contains_key(&key) {
                self.duplicates.push(path.clone());
            }
            let node = Node { path, duplicates: &mut *self.duplicates, depth: self.depth + 1 };
            let value = members.next_value_seed(node)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// Returns the beginning of a body, as errors quote it.
fn quoted(body: &[u8]) -> String {
    let shown = body.get(..QUOTED).unwrap_or(body);
    let more = if body.len() > QUOTED { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(shown)),
        Some(_) => {
            let digits: Vec<String> = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{}{more}", digits.concat())
        }
    }
}

/// Returns the 400 response for a body that is not an object of any kind.
#[must_use]
pub fn unrecognized(kind: &str, why: &str, body: &[u8]) -> Failure {
    Failure::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({})",
        quoted(body)
    ))
}

/// Decodes an object by its content type; protobuf is supported for built-in kinds.
pub fn object(kind: &str, built_in: bool, content_type: &str, body: &[u8]) -> Result<Decoded, Failure> {
    let media = content_type.split(';').next().unwrap_or_default().trim();
    let decoded = match media {
        "" | "application/json" => {
            json(body).map_err(|why| format!("couldn't get version/kind; json parse error: {why}"))
        }
        "application/yaml" => yaml(body),
        "application/vnd.kubernetes.protobuf" if built_in => {
            crate::protobuf::decode(body).map(|value| Decoded { value, duplicates: Vec::new() })
        }
        _ => {
            let accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
            return Err(Failure::unsupported_media_type(accepted));
        }
    };

    let decoded = decoded.map_err(|why| unrecognized(kind, &why, body))?;
    if decoded.value.is_null() {
        if !built_in {
            return Err(unrecognized(kind, "Object 'Kind' is missing in 'null'", body));
        }
        // `null` counts as an object without fields.
        return Ok(Decoded { value: Value::Object(Map::new()), duplicates: Vec::new() });
    }

    for name in ["apiVersion", "kind"] {
        if let Some(value) = decoded.value.get(name).filter(|value| !value.is_string() && !value.is_null()) {
            let found = vitistack_schema::json_type(value);
            let why = format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go struct field .{name} of type string"
            );
            return Err(unrecognized(kind, &why, body));
        }
    }

    if !decoded.value.is_object() {
        let what = vitistack_schema::json_type(&decoded.value);
        let why = format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        );
        return Err(unrecognized(kind, &why, body));
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn duplicate_fields_are_recorded_and_the_last_one_counts() {
        let decoded = json(br#"{"a":{"b":1,"b":2},"c":[{"d":1,"d":1}]}"#).unwrap();
        assert_eq!(decoded.duplicates, ["a.b", "c[0].d"]);
        assert_eq!(decoded.value, json!({"a": {"b": 2}, "c": [{"d": 1}]}));
    }

    #[test]
    fn errors_are_worded_as_by_kubernetes() {
        let rows = [
            (r#"{"a":"#, "unexpected end of JSON input"),
            ("", "unexpected end of JSON input"),
            ("{bad", "invalid character 'b' looking for beginning of object key string"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (r#"{"a":1 "b"}"#, "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("not", "invalid character 'o' in literal null (expecting 'u')"),
            (r#"{"a":falsy}"#, "invalid character 'y' in literal false (expecting 'e')"),
            (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string"),
        ];
        for (text, expected) in rows {
            assert_eq!(json(text.as_bytes()).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn yaml_bodies_are_accepted() {
        let decoded = yaml(b"a: 1\nb:\n- c: x\n").unwrap();
        assert_eq!(decoded.value, json!({"a": 1, "b": [{"c": "x"}]}));
        assert!(yaml(b"a: [").is_err());
    }

    #[test]
    fn deep_nesting_is_rejected() {
        let deep = "[".repeat(100_000);
        assert!(json(deep.as_bytes()).is_err());
    }
}
