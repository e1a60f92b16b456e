//! Server-side apply: field ownership, merging and conflicts.
//!
//! The functions are pure. `apply` merges a configuration into the live object and removes what its manager
//! owned before and no longer applies; `update` computes the ownership after any other write. Both keep
//! `metadata.managedFields` in the form and order of kube-apiserver.
//!
//! Two things are left to the caller, because they depend on the endpoint:
//! - Fields that the endpoint does not write must be removed from the input: for a kind with a status
//!   subresource, `status` from everything applied or written to the main endpoint (an update keeps the old
//!   status), and `spec` and `metadata` likewise at `/status`.
//! - The result is pruned, defaulted and validated like any other object; nothing here rejects a value.
//!   [`check_applied`] reports whether a configuration can be applied at all.
//!
//! Managers that wrote in another version of a resource are compared by the schema of this version.

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
mod tests;

use serde_json::Value;

use self::{
    managers::{Identity, Managers, Operation},
    path_set::{Element, Set},
};

pub use apply::{apply, conflict_message};
pub use check::check_applied;
pub use update::update;

/// The manager, endpoint and time of a write.
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
    /// The other manager as kube-apiserver prints it: `"name" with subresource "status" using apps/v1`.
    pub manager: String,
    /// The field, such as `.spec.replicas`.
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

/// Removes what has no owner: the type, and the fields that the server maintains in `metadata`.
fn remove_unowned(set: &mut Set) {
    const SERVER_FIELDS: [&str; 9] = [
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
                    if matches!(&below.element, Element::Field(name) if SERVER_FIELDS.contains(&name.as_str())) {
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
