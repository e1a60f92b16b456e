//! Columns and cells that several kinds share.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    metadata,
    table::{Column, age_of},
};

/// Kubernetes' description of the name column.
pub const NAME_DESCRIPTION: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
/// Kubernetes' description of creation time columns.
pub const CREATION_DESCRIPTION: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The name.
pub const NAME: Column =
    Column { name: "Name", kind: "string", format: "name", description: NAME_DESCRIPTION, priority: 0 };
/// The age.
pub const AGE: Column = column("Age", CREATION_DESCRIPTION);
/// The time of creation.
pub const CREATED_AT: Column =
    Column { name: "Created At", kind: "date", format: "", description: CREATION_DESCRIPTION, priority: 0 };

/// Returns a string column that is always shown.
#[must_use]
pub const fn column(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", format: "", description, priority: 0 }
}

/// Returns a string column for `-o wide`.
#[must_use]
pub const fn wide(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", format: "", description, priority: 1 }
}

/// Returns the name as a cell.
#[must_use]
pub fn name(object: &Value) -> Value {
    metadata::text(object, "name").into()
}

/// Returns the age as a cell.
#[must_use]
pub fn age(object: &Value, now: Timestamp) -> Value {
    age_of(metadata::text(object, "creationTimestamp"), now).into()
}

/// Returns a string of the object.
pub fn text(object: &Value, pointer: &str) -> Value {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().into()
}

/// Returns name and age.
#[must_use]
pub fn name_and_age(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), age(object, now)]
}

/// Returns name and creation time.
#[must_use]
pub fn name_and_creation(object: &Value, _: Timestamp) -> Vec<Value> {
    vec![name(object), json!(metadata::text(object, "creationTimestamp"))]
}
