//! The built-in kinds: one row each, with what makes it differ from any other object.

pub mod cells;
pub mod core;
mod definition_rules;
pub mod definitions;
pub mod events;
pub mod rbac;
pub mod reviews;
pub mod storage;

use jiff::Timestamp;
use serde_json::Value;

use crate::names::NameStyle;
use crate::schema::Cause;
use crate::table::Column;

/// One built-in kind.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one fact that a row of the table states or leaves out"
)]
pub struct BuiltIn {
    /// The group, empty for the core.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The plural.
    pub plural: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// What kubectl takes instead of the plural.
    pub short_names: &'static [&'static str],
    /// Groups of resources it is in.
    pub categories: &'static [&'static str],
    /// How names look.
    pub name_style: NameStyle,
    /// Whether an update of an object that is not there creates it.
    pub create_on_update: bool,
    /// Whether an update may leave out the version it was made from.
    pub unconditional_update: bool,
    /// Whether changes of the spec are counted.
    pub generation: bool,
    /// Whether it has a status subresource.
    pub status: bool,
    /// Whether it is a question that is answered and not stored.
    pub review: bool,
    /// Whether a deletion answers with the object rather than with a word.
    pub answers_deleted: bool,
    /// `group/plural` of the storage.
    pub stored_in: &'static str,
    /// The apiVersion of the storage.
    pub stored_as: &'static str,
    /// Turns an object into the stored version, and back.
    pub to_stored: fn(&mut Value),
    /// Turns a stored object into this version.
    pub read_stored: fn(&mut Value),
    /// The schema.
    pub schema: fn() -> Value,
    /// Sets defaults, as if the client had.
    pub default: fn(&mut Value),
    /// Sets what the server decides; the second is the object before, if there is one.
    pub prepare: fn(&mut Value, Option<&Value>),
    /// What is wrong beyond the schema; the second is the object before, if there is one.
    pub validate: fn(&Value, Option<&Value>) -> Vec<Cause>,
    /// Fields that selectors may name beside the name and the namespace.
    pub fields: &'static [&'static str],
    /// Members that are shown even where nothing is in them.
    pub shown: &'static [&'static str],
    /// What tables show.
    pub columns: &'static [Column],
    /// The cells of one row.
    pub cells: fn(&Value, Timestamp) -> Vec<Value>,
}

impl BuiltIn {
    /// Puts members there that are shown even where nothing is in them.
    pub fn show(&self, object: &mut Value) {
        for name in self.shown {
            member(object, name);
        }
    }

    /// A kind like most: namespaced, stored as itself, nothing special.
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
        answers_deleted: false,
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

/// The schema of a type of k8s-openapi, with all it refers to.
fn schema_of<T: k8s_openapi::schemars::JsonSchema>() -> Value {
    let generator = k8s_openapi::schemars::SchemaGenerator::default();
    generator.into_root_schema_for::<T>().to_value()
}

/// Every built-in kind.
pub fn all() -> impl Iterator<Item = &'static BuiltIn> {
    let tables =
        [core::KINDS, events::KINDS, storage::KINDS, rbac::KINDS, definitions::KINDS, reviews::KINDS];
    tables.into_iter().flatten()
}

/// Sets a member that is not there.
fn default_member(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(members) = object.as_object_mut() {
        let present = members.get(name).is_some_and(|value| !value.is_null() && value != "");
        if !present {
            members.insert(name.to_owned(), value.into());
        }
    }
}

/// A member that is an object, made if it is not there.
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
