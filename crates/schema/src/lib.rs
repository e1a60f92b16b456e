//! Structural schemas, patches and field ownership of the Kubernetes API, as pure functions over JSON.
//!
//! | module | what it does |
//! |---|---|
//! | [`Schema`] | prunes, defaults and validates objects by the schema of a CRD or a built-in kind |
//! | [`patch`] | applies JSON patches, merge patches and strategic merge patches |
//! | [`managed_fields`] | server-side apply: field ownership, merging and conflicts |
//!
//! Messages, reasons and field paths are those of kube-apiserver 1.36; `tests/cases` holds its recorded responses.

pub mod managed_fields;
pub mod patch;
#[cfg(test)]
mod proptests;
mod schema;

pub use schema::{Cause, CauseReason, QUANTITY, Schema, Validation, go_type, json_type};
