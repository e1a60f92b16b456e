//! Protobuf bodies of any bytes: none panics, and what is decoded can be stored and read again.

use serde_json::Value;
use vitistack_testkit::fuzz::{Draw, Target};

use super::{MAGIC, decode, layout, message_of};

/// The deepest object that the message of a body can become: two levels of JSON for each of the body.
const MAX_DEPTH: usize = 2 * super::DEPTH + 128;

const KINDS: [(&str, &str); 8] = [
    ("v1", "Secret"),
    ("v1", "Event"),
    ("v1", "Namespace"),
    ("v1", "DeleteOptions"),
    ("coordination.k8s.io/v1", "Lease"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("v1", "Nope"),
];

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap());
}

fn chunk(number: u64, bytes: &[u8], out: &mut Vec<u8>) {
    varint(number << 3 | 2, out);
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Draws the fields of a message by its layout, some with another type.
fn message(draw: &mut Draw<'_>, name: &str, levels: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let Some(fields) = layout().get(name) else { return out };
    let mut numbers: Vec<u64> = fields.keys().copied().collect();
    numbers.sort_unstable();
    for _ in 0..draw.below(6) {
        let number = draw.pick(&numbers);
        let Some(field) = fields.get(&number) else { continue };
        let kind = field.kind.trim_start_matches("[]").trim_start_matches("{}");
        match draw.below(12) {
            0 => {
                varint(number << 3, &mut out);
                varint(draw.integer().cast_unsigned(), &mut out);
            }
            1 => {
                varint(number << 3 | 1, &mut out);
                out.extend_from_slice(&draw.integer().to_le_bytes());
            }
            2 => chunk(number, draw.text(&["{\"a\":[1]}", "a", "[[[["]).as_bytes(), &mut out),
            _ if kind == "int" || kind == "bool" => {
                varint(number << 3, &mut out);
                varint(draw.integer().cast_unsigned(), &mut out);
            }
            _ => {
                let inner = kind.strip_prefix('.').filter(|_| levels > 0);
                let content = match inner {
                    Some(inner) => message(draw, inner, levels - 1),
                    None => draw.text(&["a", "{\"b\":1}", "12", "\u{8}\u{1}"]).into_bytes(),
                };
                let mut entry = Vec::new();
                if field.kind.starts_with("{}") {
                    chunk(1, b"key", &mut entry);
                    chunk(2, &content, &mut entry);
                }
                chunk(number, if entry.is_empty() { &content } else { &entry }, &mut out);
            }
        }
    }
    out
}

fn build(draw: &mut Draw<'_>, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut body = if draw.chance(15) {
        draw.one_of(corpus).cloned().unwrap_or_default()
    } else {
        let index = draw.below(KINDS.len());
        let (api_version, kind) = KINDS.get(index).copied().unwrap_or_default();
        let raw = message(draw, &message_of(api_version, kind), 12);
        let mut meta = Vec::new();
        chunk(1, api_version.as_bytes(), &mut meta);
        chunk(2, kind.as_bytes(), &mut meta);
        let mut body = MAGIC.to_vec();
        chunk(1, &meta, &mut body);
        chunk(2, &raw, &mut body);
        body
    };

    if draw.chance(30) {
        for _ in 0..draw.below(6) {
            let at = draw.below(body.len());
            if let Some(byte) = body.get_mut(at) {
                *byte = draw.byte();
            }
        }
    }
    if draw.chance(15) {
        body.truncate(draw.below(body.len() + 1));
    }
    body
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

fn check(body: &[u8]) {
    match decode(body) {
        Err(message) => assert!(!message.is_empty()),
        Ok(value) => {
            assert!(value.is_object());
            assert!(depth(&value) <= MAX_DEPTH, "the object has {} levels", depth(&value));
            let text = value.to_string();
            assert!(text.len() <= 4096 + 16 * body.len(), "{} bytes become {}", body.len(), text.len());
        }
    }
}

#[test]
fn protobuf_bodies() {
    let target = Target::new(env!("CARGO_MANIFEST_DIR"), "protobuf");
    let corpus = target.corpus(<[u8]>::to_vec);
    target.run(<[u8]>::to_vec, |draw| build(draw, &corpus), |body| check(body));
}
