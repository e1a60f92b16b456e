//! Validates an object against the CRD of its kind, without an API server.
//!
//! The engine is the one of the embedded API server, so builders, samples and commands that read manifests reject
//! exactly what the server rejects.

use std::{collections::HashMap, fmt, sync::LazyLock};

use kube_core::{CustomResourceExt, Resource};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use snafu::Snafu;
use vitistack_schema::{Cause, Schema};

use crate::schema::definitions;

/// Indicates that an object does not match the CRD of its kind.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("{kind} {name:?} is not valid: {}", list(problems)))]
pub struct InvalidObject {
    kind: String,
    name: String,
    problems: Vec<Problem>,
}

impl InvalidObject {
    /// The problems, field by field.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

/// One problem of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field, such as `spec.disks[0].size`.
    pub field: String,
    /// The value, what is wrong with it, and the fix.
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

/// Indicates that a document is not an object of the requested kind.
#[derive(Debug, Snafu)]
#[snafu(display("{field}: {source}"))]
pub struct DecodeError {
    field: String,
    source: serde_json::Error,
}

/// Decodes an object; an error names the field that does not fit.
pub fn decode<K: DeserializeOwned>(document: Value) -> Result<K, DecodeError> {
    serde_path_to_error::deserialize(document)
        .map_err(|error| DecodeError { field: error.path().to_string(), source: error.into_inner() })
}

/// The schema of every kind, compiled once, or the reason why it cannot be compiled.
static SCHEMAS: LazyLock<HashMap<String, Result<Schema, String>>> = LazyLock::new(|| {
    let schemas = definitions().into_iter().filter_map(|crd| {
        let schema = crd.spec.versions.into_iter().next()?.schema?.open_api_v3_schema?;
        Some((crd.spec.names.kind, serde_json::to_value(schema)))
    });

    schemas
        .map(|(kind, schema)| {
            let schema = schema.map_err(|error| error.to_string());
            (kind, schema.and_then(|schema| Schema::compile(&schema).map_err(|causes| join(&causes))))
        })
        .collect()
});

/// Validates a new object against the CRD of its kind. The status is ignored: only controllers write it.
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
    let schema = match SCHEMAS.get(kind) {
        Some(Ok(schema)) => schema,
        Some(Err(reason)) => return vec![kind_problem(format!("the CRD of {kind} is not valid: {reason}"))],
        None => return vec![kind_problem(format!("{kind:?} is not a kind of VitiStack"))],
    };
    if let Some(fields) = document.as_object_mut() {
        fields.remove("status");
    }

    schema.default(&mut document);
    let mut problems = name_problems(&document);
    problems.extend(schema.validate(&document, None).into_iter().map(problem));
    problems
}

fn kind_problem(message: String) -> Problem {
    Problem { field: "kind".to_owned(), message }
}

/// Converts an error of the schema: without what the field and the sentence around it already state.
fn problem(cause: Cause) -> Problem {
    let message = cause.message.strip_prefix("Invalid value: ").unwrap_or(&cause.message);
    let message = without_credentials(message);
    let message = message.replacen(&format!("{} in body ", cause.field), "", 1);
    // The API server's name for the object itself.
    let field = if cause.field == "<nil>" { String::new() } else { cause.field };
    Problem { field, message }
}

/// Drops a quoted value at the start of a message that may contain the user and password of a URL.
fn without_credentials(message: &str) -> &str {
    let Some(quoted) = message.strip_prefix('"') else { return message };
    let mut is_escaped = false;
    let end = quoted.find(|character: char| {
        let is_end = character == '"' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        is_end
    });

    let Some((value, detail)) = end.and_then(|end| quoted.split_at_checked(end)) else { return message };
    if value.contains('@') { detail.trim_start_matches("\": ") } else { message }
}

fn join(causes: &[Cause]) -> String {
    causes.iter().map(Cause::to_string).collect::<Vec<_>>().join("; ")
}

/// Validates the name and the namespace, which every API server does beside the schema.
fn name_problems(document: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (field, pointer, max_length, allows_dots) in [
        ("metadata.name", "/metadata/name", 253, true),
        ("metadata.namespace", "/metadata/namespace", 63, false),
    ] {
        let Some(name) = document.pointer(pointer).and_then(Value::as_str) else { continue };
        if name.len() > max_length || !is_dns_name(name, allows_dots) {
            let dot = if allows_dots { ", '-' and '.'" } else { " and '-'" };
            let message = format!(
                "{name:?} must consist of lower-case letters, digits{dot}, and have at most {max_length} characters"
            );
            problems.push(Problem { field: field.to_owned(), message });
        }
    }
    problems
}

/// Whether a name is a DNS label, or a DNS subdomain if dots are allowed.
pub(crate) fn is_dns_name(name: &str, allows_dots: bool) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        label.bytes().all(|byte| is_alphanumeric(byte) || byte == b'-')
            && label.bytes().next().is_some_and(is_alphanumeric)
            && label.bytes().next_back().is_some_and(is_alphanumeric)
    };
    if allows_dots { name.split('.').all(is_label) } else { is_label(name) }
}

#[cfg(test)]
mod tests {
    use super::without_credentials;

    #[test]
    fn a_value_with_credentials_is_not_repeated() {
        assert_eq!(without_credentials(r#""very small": must be small"#), r#""very small": must be small"#);
        assert_eq!(
            without_credentials(r#""http://me:\"pw@x/": must have no password"#),
            "must have no password"
        );
        assert_eq!(without_credentials("must be set"), "must be set");
    }
}
