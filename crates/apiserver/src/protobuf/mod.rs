//! Protobuf bodies of built-in kinds.
//!
//! Typed clients of client-go, and with them kubectl, send these kinds as protobuf regardless of what the
//! server prefers. Only requests are decoded: responses are JSON, which every client accepts. The layout of
//! the messages is data, printed by `go run ./protobuf` in `dev/kube` from the types of Kubernetes itself.

#[cfg(test)]
mod fuzz;
mod wire;

use std::{collections::HashMap, sync::OnceLock};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use self::wire::{Data, Reader};

/// The magic prefix of a protobuf body.
const MAGIC: &[u8] = b"k8s\0";
/// The layout of the messages.
const MESSAGES: &str = include_str!("messages.txt");
/// The maximum nesting of a body.
const DEPTH: usize = 64;
/// The message of the schemas in CRDs.
const SCHEMA: &str = "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// A field of a message.
#[derive(Debug)]
struct Field {
    name: &'static str,
    kind: &'static str,
    /// Absent rather than zero if it is not set, so that a zero counts.
    optional: bool,
}

type Layout = HashMap<&'static str, HashMap<u64, Field>>;

fn layout() -> &'static Layout {
    static LAYOUT: OnceLock<Layout> = OnceLock::new();
    LAYOUT.get_or_init(|| MESSAGES.lines().filter_map(message).collect())
}

fn message(line: &'static str) -> Option<(&'static str, HashMap<u64, Field>)> {
    let mut columns = line.split(' ');
    let name = columns.next()?;
    let fields = columns.filter_map(|column| {
        let mut parts = column.splitn(3, ':');
        let (number, name, kind) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
        let optional = kind.starts_with('?');
        Some((number, Field { name, kind: kind.trim_start_matches('?'), optional }))
    });
    Some((name, fields.collect()))
}

/// Returns the message of a kind.
fn message_of(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    match group {
        "" if kind == "DeleteOptions" => "apimachinery.pkg.apis.meta.v1.DeleteOptions".to_owned(),
        "" => format!("api.core.{version}.{kind}"),
        "apiextensions.k8s.io" => format!("apiextensions-apiserver.pkg.apis.apiextensions.{version}.{kind}"),
        _ if kind == "DeleteOptions" => "apimachinery.pkg.apis.meta.v1.DeleteOptions".to_owned(),
        _ => format!("api.{}.{version}.{kind}", group.split('.').next().unwrap_or_default()),
    }
}

/// Decodes a body to JSON.
pub fn decode(body: &[u8]) -> Result<Value, String> {
    let unknown = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
    let rest = body.strip_prefix(MAGIC).ok_or_else(|| unknown.to_owned())?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    let mut reader = Reader::new(rest);
    while let Some((number, data)) = reader.field()? {
        match (number, data) {
            (1, Data::Bytes(meta)) => {
                let mut reader = Reader::new(meta);
                while let Some((number, data)) = reader.field()? {
                    match (number, data) {
                        (1, Data::Bytes(text)) => api_version = text_of(text),
                        (2, Data::Bytes(text)) => kind = text_of(text),
                        _ => {}
                    }
                }
            }
            (2, Data::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }

    let name = message_of(&api_version, &kind);
    if !layout().contains_key(name.as_str()) {
        return Err(format!("no kind \"{kind}\" is registered for version \"{api_version}\""));
    }

    let mut object = object(&name, raw, 0)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn object(message: &str, bytes: &[u8], depth: usize) -> Result<Map<String, Value>, String> {
    if depth > DEPTH {
        return Err("proto: nested too deep".to_owned());
    }
    let mut members = Map::new();
    let Some(fields) = layout().get(message) else { return Ok(members) };
    let mut reader = Reader::new(bytes);

    while let Some((number, data)) = reader.field()? {
        let Some(field) = fields.get(&number) else { continue };
        if let Some(kind) = field.kind.strip_prefix("[]") {
            let item = value(kind, data, depth)?;
            if let Value::Array(list) = members.entry(field.name).or_insert_with(|| json!([])) {
                list.push(item);
            }
        } else if let Some(kind) = field.kind.strip_prefix("{}") {
            let (key, item) = entry(kind, data, depth)?;
            if let Value::Object(map) = members.entry(field.name).or_insert_with(|| json!({})) {
                map.insert(key, item);
            }
        } else {
            let value = value(field.kind, data, depth)?;
            if field.name == "@" {
                // Fields of an inlined message belong to its parent.
                members.extend(value.as_object().cloned().unwrap_or_default());
            } else if field.optional || !is_zero(&value) {
                members.insert(field.name.to_owned(), value);
            }
        }
    }

    Ok(members)
}

/// Whether Go omits a value in JSON.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

fn entry(kind: &'static str, data: Data<'_>, depth: usize) -> Result<(String, Value), String> {
    let Data::Bytes(bytes) = data else { return Err("proto: wrong wireType for a map".to_owned()) };
    let (mut key, mut item) = (String::new(), Value::Null);
    let mut reader = Reader::new(bytes);
    while let Some((number, data)) = reader.field()? {
        match (number, data) {
            (1, Data::Bytes(text)) => key = text_of(text),
            (2, data) => item = value(kind, data, depth)?,
            _ => {}
        }
    }
    if item.is_null() && matches!(kind, "string" | "bytes") {
        item = json!("");
    }
    Ok((key, item))
}

fn value(kind: &'static str, data: Data<'_>, depth: usize) -> Result<Value, String> {
    match (kind, data) {
        ("int", Data::Number(number)) => Ok(number.cast_signed().into()),
        ("bool", Data::Number(number)) => Ok((number != 0).into()),
        ("double", Data::Fixed64(bits)) => Ok(json!(f64::from_bits(bits))),
        ("string", Data::Bytes(bytes)) => Ok(text_of(bytes).into()),
        ("bytes", Data::Bytes(bytes)) => Ok(STANDARD.encode(bytes).into()),
        (_, Data::Bytes(bytes)) => nested(kind, bytes, depth),
        _ => Err(format!("proto: wrong wireType for a field of type {kind}")),
    }
}

fn nested(kind: &'static str, bytes: &[u8], depth: usize) -> Result<Value, String> {
    if let Some(message) = kind.strip_prefix('.') {
        return object(message, bytes, depth + 1).map(Value::Object);
    }
    let fields = Reader::new(bytes).all()?;
    let number = |wanted: u64| {
        fields.iter().find_map(|(number, data)| match data {
            Data::Number(value) if *number == wanted => Some(value.cast_signed()),
            _ => None,
        })
    };

    let chunk = |wanted: u64| {
        fields.iter().find_map(|(number, data)| match data {
            Data::Bytes(bytes) if *number == wanted => Some(*bytes),
            _ => None,
        })
    };

    let raw = |bytes: Option<&[u8]>| {
        bytes.map_or(Value::Null, |bytes| serde_json::from_slice(bytes).unwrap_or_default())
    };
    let schema = |bytes: &[u8]| object(SCHEMA, bytes, depth + 1).map(Value::Object);
    match kind {
        "time" => Ok(time(number(1).unwrap_or_default(), 0, "%Y-%m-%dT%H:%M:%SZ")),
        "microtime" => {
            let nanoseconds = number(2).and_then(|value| i32::try_from(value).ok()).unwrap_or_default();
            Ok(time(number(1).unwrap_or_default(), nanoseconds, "%Y-%m-%dT%H:%M:%S.%6fZ"))
        }
        "quantity" => Ok(chunk(1).map(text_of).unwrap_or_default().into()),
        "intorstring" if number(1) == Some(1) => Ok(chunk(3).map(text_of).unwrap_or_default().into()),
        "intorstring" => Ok(number(2).unwrap_or_default().into()),
        "raw" | "json" => Ok(raw(chunk(1))),
        "schemaorbool" => chunk(2).map_or(Ok((number(1) == Some(1)).into()), schema),
        _ => chunk(1).map_or(Ok(Value::Null), schema),
    }
}

/// Returns a time, or null for the zero time, which Go encodes as a time before year 1.
fn time(seconds: i64, nanoseconds: i32, format: &str) -> Value {
    match Timestamp::new(seconds, nanoseconds) {
        Ok(time) if seconds > -62_135_596_800 && (seconds, nanoseconds) != (0, 0) => {
            time.strftime(format).to_string().into()
        }
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        field.extend_from_slice(bytes);
        field
    }

    fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [chunk(1, api_version.as_bytes()), chunk(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), chunk(1, &meta), chunk(2, raw)].concat()
    }

    #[test]
    fn a_secret_is_decoded() {
        let metadata =
            [chunk(1, b"s"), chunk(2, b""), chunk(11, &[chunk(1, b"l"), chunk(2, b"v")].concat())].concat();
        let data = [chunk(1, b"k"), chunk(2, b"\x01\x02")].concat();
        let raw = [chunk(1, &metadata), chunk(2, &data), chunk(3, b"Opaque")].concat();
        let expected = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "labels": {"l": "v"}},
            "data": {"k": "AQI="}, "type": "Opaque",
        });
        assert_eq!(decode(&body("v1", "Secret", &raw)).unwrap(), expected);
    }

    #[test]
    fn explicit_zeros_are_preserved() {
        let spec = [chunk(1, b"me"), vec![2 << 3, 15, 5 << 3, 0]].concat();
        let lease = decode(&body("coordination.k8s.io/v1", "Lease", &chunk(2, &spec))).unwrap();
        assert_eq!(
            lease["spec"],
            json!({"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 0})
        );
    }

    #[test]
    fn damaged_bodies_are_rejected() {
        assert!(decode(b"{}").is_err());
        assert!(decode(&body("v1", "Nope", b"")).is_err());
        let whole = body("v1", "Secret", &chunk(1, b"\x0a\x01s"));
        for length in 0..whole.len() {
            let _ = decode(&whole[..length]);
        }
        assert!(decode(&whole[..whole.len() - 1]).is_err());
    }
}
