//! The built-in kinds: one row each, with what distinguishes it from other kinds.

pub mod cells;
pub mod core;
mod crd_rules;
pub mod crds;
pub mod events;
pub mod rbac;
pub mod reviews;
pub mod storage;

use jiff::Timestamp;
use serde_json::Value;
use vitistack_schema::Cause;

use crate::{names::NameStyle, table::Column};

/// One built-in kind.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one fact that a row of the table states or leaves out"
)]
pub struct BuiltIn {
    /// The group, empty for the core group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The plural.
    pub plural: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
    /// Short names that kubectl accepts instead of the plural.
    pub short_names: &'static [&'static str],
    /// Categories.
    pub categories: &'static [&'static str],
    /// The format of names.
    pub name_style: NameStyle,
    /// Whether an update of an object that does not exist creates it.
    pub create_on_update: bool,
    /// Whether an update may omit the resourceVersion.
    pub unconditional_update: bool,
    /// Whether the server maintains `metadata.generation`.
    pub generation: bool,
    /// Whether it has a status subresource.
    pub status: bool,
    /// Whether it is virtual: answered and not stored.
    pub review: bool,
    /// Whether a deletion responds with the object rather than with a Status.
    pub returns_deleted: bool,
    /// `group/plural` of the storage.
    pub stored_in: &'static str,
    /// The apiVersion of the storage.
    pub stored_as: &'static str,
    /// Converts an object to the storage version.
    pub to_stored: fn(&mut Value),
    /// Converts a stored object to this version.
    pub read_stored: fn(&mut Value),
    /// The schema.
    pub schema: fn() -> Value,
    /// Sets defaults, as if the client had set them.
    pub default: fn(&mut Value),
    /// Sets the fields that the server decides; the second argument is the old object, if any.
    pub prepare: fn(&mut Value, Option<&Value>),
    /// Validates beyond the schema; the second argument is the old object, if any.
    pub validate: fn(&Value, Option<&Value>) -> Vec<Cause>,
    /// Fields that selectors may use besides name and namespace.
    pub fields: &'static [&'static str],
    /// Fields that are printed even if they are empty.
    pub shown: &'static [&'static str],
    /// The columns of tables.
    pub columns: &'static [Column],
    /// The cells of one row.
    pub cells: fn(&Value, Timestamp) -> Vec<Value>,
}

impl BuiltIn {
    /// Adds the fields that are printed even if they are empty.
    pub fn show(&self, object: &mut Value) {
        for name in self.shown {
            member(object, name);
        }
    }

    /// A typical kind: namespaced, stored in its own version.
    const PLAIN: Self = Self {
        group: "",
        version: "v1",
        plural: "",
        kind: "",
        namespaced: true,
        short_names: &[],
        categories: &[],
        name_style: NameStyle::Subdomain,
        create_on_update: false,
        unconditional_update: true,
        generation: false,
        status: false,
        review: false,
        returns_deleted: false,
        stored_in: "",
        stored_as: "v1",
        to_stored: unchanged,
        read_stored: unchanged,
        schema: empty,
        default: unchanged,
        prepare: nothing,
        validate: all_good,
        shown: &[],
        fields: &[],
        columns: &[cells::NAME, cells::AGE],
        cells: cells::name_and_age,
    };
}

fn unchanged(_: &mut Value) {}

fn nothing(_: &mut Value, _: Option<&Value>) {}

fn all_good(_: &Value, _: Option<&Value>) -> Vec<Cause> {
    Vec::new()
}

fn empty() -> Value {
    Value::Null
}

/// Returns the schema of a k8s-openapi type, including all types that it refers to.
fn schema_of<T: k8s_openapi::schemars::JsonSchema>() -> Value {
    let generator = k8s_openapi::schemars::SchemaGenerator::default();
    generator.into_root_schema_for::<T>().to_value()
}

/// Every built-in kind.
pub fn all() -> impl Iterator<Item = &'static BuiltIn> {
    let tables = [core::KINDS, events::KINDS, storage::KINDS, rbac::KINDS, crds::KINDS, reviews::KINDS];
    tables.into_iter().flatten()
}

/// Sets a field that is absent.
fn default_member(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(members) = object.as_object_mut() {
        let present = members.get(name).is_some_and(|value| !value.is_null() && value != "");
        if !present {
            members.insert(name.to_owned(), value.into());
        }
    }
}

/// Returns a field that is an object, which is created if it is absent.
fn member<'a>(object: &'a mut Value, name: &str) -> &'a mut Value {
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    let members = match object {
        Value::Object(members) => members,
        other => return other,
    };
    members.entry(name).or_insert_with(|| Value::Object(serde_json::Map::new()))
}
