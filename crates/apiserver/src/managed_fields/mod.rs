//! Server-side apply: who owns which field, what an apply changes and when it conflicts.
//!
//! The functions are pure. `apply` merges a configuration into the live object and takes out what its manager
//! owned before and no longer applies; `update` works out who owns what after any other write. Both keep
//! `metadata.managedFields` in the form and order of the real server.
//!
//! Two things are left to the caller, because they depend on the endpoint:
//! - Fields the endpoint does not write must be taken out of what is given: for a kind with a status
//!   subresource, `status` from everything applied or written to the main endpoint (an update keeps the old
//!   status), and `spec` and `metadata` likewise at `/status`.
//! - The result is pruned, defaulted and validated like any other object; nothing here refuses a value.
//!   [`check_applied`] says whether a configuration can be applied at all.
//!
//! Managers that wrote in another version of a resource are compared by the schema of this one.

mod apply;
mod check;
mod compare;
mod encode;
mod managers;
mod merge;
mod path_set;
mod paths;
mod types;
mod update;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use apply::{apply, conflict_message};
pub use check::check_applied;
pub use update::update;

use managers::{Identity, Managers, Operation};
use path_set::{Element, Set};

/// Who writes, where and when.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// The subresource, empty for the object itself.
    pub subresource: &'a str,
    /// Group and version of the request, `apps/v1`.
    pub api_version: &'a str,
    /// The time in RFC 3339 with whole seconds, in UTC.
    pub time: &'a str,
}

impl Write<'_> {
    fn identity(&self, operation: Operation) -> Identity {
        let manager = if self.manager.is_empty() { "unknown" } else { self.manager };
        let api_version = match operation {
            Operation::Apply => "",
            Operation::Update => self.api_version,
        };
        Identity {
            manager: manager.to_owned(),
            operation,
            subresource: self.subresource.to_owned(),
            api_version: api_version.to_owned(),
        }
    }
}

/// A field that another manager owns and the configuration would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The other manager as the real message shows it: `"name" with subresource "status" using apps/v1`.
    pub manager: String,
    /// The field, `.spec.replicas`.
    pub field: String,
}

/// The entries of `managedFields`.
fn entries(object: &Value) -> &[Value] {
    let entries = object.get("metadata").and_then(|metadata| metadata.get("managedFields"));
    entries.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn remove_entries(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

fn set_entries(object: &mut Value, managers: &Managers) {
    remove_entries(object);
    if managers.is_empty() {
        return;
    }
    if let Some(fields) = object.as_object_mut() {
        let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(serde_json::Map::new()));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("managedFields".to_owned(), Value::Array(managers.encode()));
        }
    }
}

/// Takes out what nobody owns: the type, and what the server itself keeps in `metadata`.
fn strip_unowned(set: &mut Set) {
    const KEPT_BY_SERVER: [&str; 9] = [
        "clusterName",
        "creationTimestamp",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "selfLink",
        "uid",
    ];
    set.entries.retain_mut(|entry| {
        let Element::Field(name) = &entry.element else { return true };
        match name.as_str() {
            "apiVersion" | "kind" => entry.member = false,
            "metadata" => {
                entry.member = false;
                entry.children.entries.retain_mut(|below| {
                    if matches!(&below.element, Element::Field(name) if KEPT_BY_SERVER.contains(&name.as_str())) {
                        below.member = false;
                    }
                    below.member || !below.children.is_empty()
                });
            }
            _ => {}
        }
        entry.member || !entry.children.is_empty()
    });
}
