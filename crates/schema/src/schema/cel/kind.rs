//! What is known about the type of an expression before it is evaluated.
//!
//! The CEL library has no type checker, and some of its results for a wrong type are silent (`1 == "1"` is
//! false, a field of a string is false). kube-apiserver rejects such rules when the CRD is created, so this
//! module knows enough about types to reject them too; where a type is unknown, the rule is accepted.

use super::convert::{TextKind, escape, text_kind};
use crate::schema::{Additional, Node, Type};

/// The type of an expression.
#[derive(Clone, Debug)]
pub(super) enum Kind<'a> {
    /// Unknown, or any type.
    Dynamic,
    /// An object with declared fields; the flag marks a resource with its own metadata.
    Object(&'a Node, bool),
    /// `metadata`, of which rules see `name` and `generateName`.
    Metadata,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Timestamp,
    Duration,
    Null,
    List(Box<Kind<'a>>),
    Map(Box<Kind<'a>>),
    Optional(Box<Kind<'a>>),
}

impl<'a> Kind<'a> {
    /// Returns the type of the values of a schema; `None` where kube-apiserver hides the field from rules.
    pub(super) fn of(node: &'a Node, resource: bool) -> Option<Kind<'a>> {
        if node.int_or_string {
            return Some(Kind::Dynamic);
        }
        Some(match node.kind {
            Type::Any => return None,
            Type::Boolean => Kind::Bool,
            Type::Integer => Kind::Int,
            Type::Number => Kind::Double,
            Type::String => match text_kind(node) {
                TextKind::Text => Kind::Text,
                TextKind::Bytes => Kind::Bytes,
                TextKind::Timestamp => Kind::Timestamp,
                TextKind::Duration => Kind::Duration,
            },
            Type::Array => Kind::List(Box::new(Kind::of(node.items.as_deref()?, false)?)),
            Type::Object => match &node.additional {
                Additional::Schema(child) => Kind::Map(Box::new(Kind::of(child, child.embedded)?)),
                _ => Kind::Object(node, resource || node.embedded),
            },
        })
    }

    /// Returns the real name and the type of a field, by the name that a rule uses.
    pub(super) fn field(&self, written: &str) -> Option<(String, Kind<'a>)> {
        match self {
            Kind::Object(node, resource) => {
                if *resource && matches!(written, "apiVersion" | "kind") {
                    return Some((written.to_owned(), Kind::Text));
                }
                if *resource && written == "metadata" {
                    return Some((written.to_owned(), Kind::Metadata));
                }
                let (name, child) = match node.properties.get_key_value(written) {
                    Some((name, child)) if escape(name).as_deref() == Some(written) => (name, child),
                    _ => node.properties.iter().find(|(name, _)| escape(name).as_deref() == Some(written))?,
                };
                Some((name.clone(), Kind::of(child, child.embedded)?))
            }
            Kind::Metadata if matches!(written, "name" | "generateName") => {
                Some((written.to_owned(), Kind::Text))
            }
            Kind::Map(value) => Some((written.to_owned(), (**value).clone())),
            _ => None,
        }
    }

    /// Whether the fields of the value are known, so that any other is a mistake.
    pub(super) fn has_known_fields(&self) -> bool {
        !matches!(self, Kind::Dynamic | Kind::Map(_) | Kind::Optional(_))
    }

    /// Returns the name in messages.
    pub(super) fn name(&self) -> String {
        match self {
            Kind::Dynamic => "dyn".to_owned(),
            Kind::Object(..) | Kind::Metadata => "object".to_owned(),
            Kind::Bool => "bool".to_owned(),
            Kind::Int => "int".to_owned(),
            Kind::Uint => "uint".to_owned(),
            Kind::Double => "double".to_owned(),
            Kind::Text => "string".to_owned(),
            Kind::Bytes => "bytes".to_owned(),
            Kind::Timestamp => "timestamp".to_owned(),
            Kind::Duration => "duration".to_owned(),
            Kind::Null => "null".to_owned(),
            Kind::List(item) => format!("list({})", item.name()),
            Kind::Map(value) => format!("map(string, {})", value.name()),
            Kind::Optional(inner) => format!("optional_type({})", inner.name()),
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Kind::Int | Kind::Uint | Kind::Double)
    }

    fn is_time(&self) -> bool {
        matches!(self, Kind::Timestamp | Kind::Duration)
    }

    /// Whether two values can be equal at all.
    pub(super) fn comparable(&self, other: &Kind<'_>) -> bool {
        match (self, other) {
            (Kind::Dynamic, _) | (_, Kind::Dynamic) => true,
            (Kind::Null, other) | (other, Kind::Null) => {
                matches!(
                    other,
                    Kind::Null
                        | Kind::Object(..)
                        | Kind::List(_)
                        | Kind::Map(_)
                        | Kind::Timestamp
                        | Kind::Duration
                )
            }
            (Kind::List(left), Kind::List(right))
            | (Kind::Map(left), Kind::Map(right))
            | (Kind::Optional(left), Kind::Optional(right)) => left.comparable(right),
            (Kind::Object(left, _), Kind::Object(right, _)) => std::ptr::eq(*left, *right),
            (left, right) => std::mem::discriminant(left) == std::mem::discriminant(right),
        }
    }

    /// Whether values of the two types can be ordered; numbers of different types can.
    pub(super) fn orderable(&self, other: &Kind<'_>) -> bool {
        let ordered = |kind: &Kind<'_>| {
            matches!(kind, Kind::Dynamic | Kind::Bool | Kind::Text | Kind::Bytes)
                || kind.is_number()
                || kind.is_time()
        };
        ordered(self) && ordered(other) && (self.is_number() && other.is_number() || self.comparable(other))
    }

    /// Returns the result type of an arithmetic operation; `None` if the operation does not exist.
    pub(super) fn arithmetic(&self, operator: &str, other: &Kind<'a>) -> Option<Kind<'a>> {
        match (self, other) {
            (Kind::Dynamic, _) | (_, Kind::Dynamic) => Some(Kind::Dynamic),
            (Kind::Int, Kind::Int) => Some(Kind::Int),
            (Kind::Uint, Kind::Uint) => Some(Kind::Uint),
            (Kind::Double, Kind::Double) if operator != "_%_" => Some(Kind::Double),
            (Kind::Text, Kind::Text) if operator == "_+_" => Some(Kind::Text),
            (Kind::Bytes, Kind::Bytes) if operator == "_+_" => Some(Kind::Bytes),
            (Kind::List(left), Kind::List(right)) if operator == "_+_" && left.comparable(right) => {
                Some(self.clone())
            }
            (Kind::Duration, Kind::Duration) if matches!(operator, "_+_" | "_-_") => Some(Kind::Duration),
            (Kind::Timestamp, Kind::Duration) if matches!(operator, "_+_" | "_-_") => Some(Kind::Timestamp),
            (Kind::Duration, Kind::Timestamp) if operator == "_+_" => Some(Kind::Timestamp),
            (Kind::Timestamp, Kind::Timestamp) if operator == "_-_" => Some(Kind::Duration),
            _ => None,
        }
    }
}
