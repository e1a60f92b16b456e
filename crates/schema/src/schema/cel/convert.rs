//! Converts JSON values to CEL values according to their schema.

use std::{borrow::Cow, collections::HashMap};

use kube_cel::cel::{
    IdedExpr, Value as CelValue,
    common::{
        ast::{CallExpr, Expr, LiteralValue},
        types::{CelBool, CelBytes, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString},
        value::Val,
    },
};
use serde_json::Value;

use crate::schema::{Additional, MAX_DEPTH, Node, Type, format::Check, value::Numeric};

/// Reserved words of CEL.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Returns the name by which a rule reads a field; `None` if it cannot be written in CEL.
pub(super) fn escape(name: &str) -> Option<Cow<'_, str>> {
    let mut characters = name.chars();
    let begins =
        characters.next().is_some_and(|first| first.is_ascii_alphabetic() || matches!(first, '_' | '$'));
    let writable = |character: char| {
        character.is_ascii_alphanumeric() || matches!(character, '_' | '.' | '-' | '/' | '$')
    };

    if !begins || !characters.all(writable) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(Cow::Owned(format!("__{name}__")));
    }

    if !name.contains(['.', '-', '/', '$']) && !name.contains("__") {
        return Some(Cow::Borrowed(name));
    }
    let escaped = name
        .replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__");

    Some(Cow::Owned(escaped))
}

/// The CEL type of a string with a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextKind {
    Text,
    Bytes,
    Timestamp,
    Duration,
}

pub(super) fn text_kind(node: &Node) -> TextKind {
    if node.kind != Type::String {
        return TextKind::Text;
    }
    match node.checks.as_ref().and_then(|checks| checks.format.as_ref()).map(|format| format.check) {
        Some(Check::Byte) => TextKind::Bytes,
        Some(Check::Date | Check::DateTime) => TextKind::Timestamp,
        Some(Check::Duration) => TextKind::Duration,
        _ => TextKind::Text,
    }
}

/// Converts a value; of an object only the declared fields, because a rule can reach nothing else.
pub(super) fn convert(value: &Value, node: Option<&Node>, resource: bool, depth: usize) -> Box<dyn Val> {
    match value {
        Value::Bool(flag) => Box::new(CelBool::from(*flag)),
        Value::Number(number) => match Numeric::of(number) {
            Numeric::Integer(integer) if node.is_none_or(|node| node.kind != Type::Number) => {
                Box::new(CelInt::from(integer))
            }
            other => Box::new(CelDouble::from(other.as_float())),
        },
        Value::String(text) => convert_text(text, node.map_or(TextKind::Text, text_kind)),
        Value::Array(items) if depth < 2 * MAX_DEPTH => {
            let item_node = node.and_then(|node| node.items.as_deref());
            let embedded = item_node.is_some_and(|node| node.embedded);
            let items: Vec<Box<dyn Val>> =
                items.iter().map(|item| convert(item, item_node, embedded, depth + 1)).collect();
            Box::new(CelList::from(items))
        }
        Value::Object(fields) if depth < 2 * MAX_DEPTH => {
            let mut map: HashMap<CelMapKey, Box<dyn Val>> = HashMap::with_capacity(fields.len());
            for (name, field) in fields {
                let Some((key, child, embedded)) = entry(name, node, resource) else { continue };
                map.insert(
                    CelMapKey::String(CelString::from(key.as_ref())),
                    convert(field, child, embedded, depth + 1),
                );
            }
            Box::new(CelMap::from(map))
        }
        Value::Null | Value::Array(_) | Value::Object(_) => Box::new(CelNull),
    }
}

/// Returns the key, schema and type of a field; `None` if rules cannot see it.
fn entry<'a>(
    name: &'a str,
    node: Option<&'a Node>,
    resource: bool,
) -> Option<(Cow<'a, str>, Option<&'a Node>, bool)> {
    let Some(node) = node else { return Some((Cow::Borrowed(name), None, false)) };
    if resource && matches!(name, "apiVersion" | "kind" | "metadata") {
        return Some((Cow::Borrowed(name), None, false));
    }

    if let Some(child) = node.properties.get(name) {
        return Some((escape(name)?, Some(child), child.embedded));
    }
    match &node.additional {
        // The keys of a map are data, not names.
        Additional::Schema(child) => Some((Cow::Borrowed(name), Some(child), child.embedded)),
        _ => None,
    }
}

fn convert_text(text: &str, kind: TextKind) -> Box<dyn Val> {
    let plain = || Box::new(CelString::from(text)) as Box<dyn Val>;
    match kind {
        TextKind::Text => plain(),
        TextKind::Bytes => {
            use base64::Engine as _;
            match base64::engine::general_purpose::STANDARD.decode(text) {
                Ok(bytes) => Box::new(CelBytes::from(bytes)),
                Err(_) => plain(),
            }
        }
        // The library's own parsers create the values, which avoids a second time library here.
        TextKind::Timestamp => {
            let stamp = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
            call("timestamp", &stamp).unwrap_or_else(plain)
        }
        TextKind::Duration => call("duration", text).unwrap_or_else(plain),
    }
}

fn call(function: &str, text: &str) -> Option<Box<dyn Val>> {
    let argument = IdedExpr { id: 1, expr: Expr::Literal(LiteralValue::String(CelString::from(text))) };
    let call = CallExpr { func_name: function.to_owned(), target: None, args: vec![argument] };
    let expression = IdedExpr { id: 2, expr: Expr::Call(call) };
    CelValue::resolve(&expression, super::functions()).ok()?.try_into().ok()
}
