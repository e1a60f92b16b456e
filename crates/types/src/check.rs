//! Judges an object by the definition of its kind, without an API server: bounds, doubles in lists, and every CEL rule
//! by its own message. It stands behind the builders, the samples and whatever reads a manifest from a user.

use std::{collections::HashMap, fmt, sync::LazyLock};

use kube_cel::CompiledSchema;
use kube_core::{CustomResourceExt, Resource};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use snafu::Snafu;

use crate::schema::definitions;

/// Indicates that an object breaks rules of its kind's definition.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("{kind} {name:?} is not valid: {}", list(problems)))]
pub struct InvalidObject {
    kind: String,
    name: String,
    problems: Vec<Problem>,
}

impl InvalidObject {
    /// What is wrong, field by field.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field, such as `spec.disks[0].size`.
    pub field: String,
    /// What is wrong with it, and the fix.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A rule about the whole object has no path.
        if !self.field.is_empty() {
            write!(formatter, "{}: ", self.field)?;
        }
        formatter.write_str(&self.message)
    }
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("; ")
}

/// Indicates that a document is not an object of the kind asked for.
#[derive(Debug, Snafu)]
#[snafu(display("{field}: {source}"))]
pub struct DecodeError {
    field: String,
    source: serde_json::Error,
}

/// Reads an object; an error names the field that does not fit.
pub fn decode<K: DeserializeOwned>(document: Value) -> Result<K, DecodeError> {
    serde_path_to_error::deserialize(document)
        .map_err(|error| DecodeError { field: error.path().to_string(), source: error.into_inner() })
}

/// A definition with its rules compiled: that costs far more than judging one object.
struct Compiled {
    schema: Value,
    rules: CompiledSchema,
}

static COMPILED: LazyLock<HashMap<String, Compiled>> = LazyLock::new(|| {
    definitions()
        .into_iter()
        .filter_map(|definition| {
            let schema = definition.spec.versions.into_iter().next()?.schema?.open_api_v3_schema?;
            let schema = serde_json::to_value(schema).ok()?;
            let rules = kube_cel::compile_schema(&schema);
            Some((definition.spec.names.kind, Compiled { schema, rules }))
        })
        .collect()
});

/// Judges a new object by the definition of its kind. Its status is left alone: only controllers write that.
pub fn check<K>(object: &K) -> Result<(), InvalidObject>
where
    K: CustomResourceExt + Resource<DynamicType = ()> + Serialize,
{
    let kind = K::kind(&()).into_owned();
    let name = object.meta().name.clone().unwrap_or_default();
    let problems = match serde_json::to_value(object) {
        Ok(document) => problems(&kind, document),
        Err(error) => vec![Problem { field: kind.clone(), message: error.to_string() }],
    };
    if problems.is_empty() { Ok(()) } else { Err(InvalidObject { kind, name, problems }) }
}

fn problems(kind: &str, mut document: Value) -> Vec<Problem> {
    let Some(Compiled { schema, rules }) = COMPILED.get(kind) else {
        return vec![Problem {
            field: "kind".to_owned(),
            message: format!("{kind:?} is not a kind of VitiStack"),
        }];
    };
    if let Some(fields) = document.as_object_mut() {
        fields.remove("status");
    }
    let mut problems = Vec::new();
    metadata(&document, &mut problems);
    bounds(schema, &document, "", &mut problems);
    if let Err(broken) = kube_cel::validate_compiled(rules, &document, None) {
        problems.extend(broken.iter().map(|rule| Problem {
            field: rule.field_path.trim_start_matches('.').to_owned(),
            message: rule.message.clone(),
        }));
    }
    problems
}

/// The names that every API server asks for.
fn metadata(document: &Value, problems: &mut Vec<Problem>) {
    for (field, pointer, most, dots) in [
        ("metadata.name", "/metadata/name", 253, true),
        ("metadata.namespace", "/metadata/namespace", 63, false),
    ] {
        let Some(name) = document.pointer(pointer).and_then(Value::as_str) else { continue };
        let inside = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        let allowed = |letter: u8| inside(letter) || letter == b'-' || (dots && letter == b'.');
        let ends_well = |part: &str| {
            part.as_bytes().first().copied().is_some_and(inside)
                && part.as_bytes().last().copied().is_some_and(inside)
        };
        if name.len() > most || !name.bytes().all(allowed) || !name.split('.').all(ends_well) {
            problems.push(Problem {
                field: field.to_owned(),
                message: format!(
                    "{name:?} must be lower-case letters, digits and '-', at most {most} of them"
                ),
            });
        }
    }
}

/// The bounds of numbers, texts and lists, and doubles in lists. Types, enums and required fields need no look here: a
/// typed object cannot get them wrong.
fn bounds(schema: &Value, value: &Value, path: &str, problems: &mut Vec<Problem>) {
    let mut tell = |message: String| problems.push(Problem { field: path.to_owned(), message });
    let limit = |name: &str| schema.get(name).and_then(Value::as_f64);
    match value {
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if let Some(least) = limit("minimum").filter(|least| number < *least) {
                tell(format!("{number} must be {least} or more"));
            }
            if let Some(most) = limit("maximum").filter(|most| number > *most) {
                tell(format!("{number} must be {most} or less"));
            }
        }
        Value::String(text) => {
            let length = f64::from(u32::try_from(text.chars().count()).unwrap_or(u32::MAX));
            if limit("minLength").is_some_and(|least| length < least) {
                tell("must not be empty".to_owned());
            }
            if let Some(most) = limit("maxLength").filter(|most| length > *most) {
                tell(format!("must have {most} characters or less, not {length}"));
            }
        }
        Value::Array(items) => {
            let count = f64::from(u32::try_from(items.len()).unwrap_or(u32::MAX));
            if let Some(most) = limit("maxItems").filter(|most| count > *most) {
                tell(format!("must have {most} items or less, not {count}"));
            }
            for double in doubles(schema, items) {
                tell(format!("{double} stands in the list twice: remove one"));
            }
            if let Some(schema) = schema.get("items") {
                for (index, item) in items.iter().enumerate() {
                    bounds(schema, item, &format!("{path}[{index}]"), problems);
                }
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(schema) = schema.get("properties").and_then(|properties| properties.get(name)) {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    bounds(schema, value, &path, problems);
                }
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// The items of a set, or the keys of a list map, that stand there more than once.
fn doubles(schema: &Value, items: &[Value]) -> Vec<String> {
    let keys: Vec<&Value> = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => items.iter().collect(),
        Some("map") => {
            let key =
                schema.pointer("/x-kubernetes-list-map-keys/0").and_then(Value::as_str).unwrap_or_default();
            items.iter().filter_map(|item| item.get(key)).collect()
        }
        _ => return Vec::new(),
    };
    let is_double = |(index, key): &(usize, &&Value)| keys.iter().take(*index).any(|earlier| earlier == *key);
    keys.iter().enumerate().filter(is_double).map(|(_, key)| key.to_string()).collect()
}
