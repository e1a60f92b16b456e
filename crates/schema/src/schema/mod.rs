//! Structural schemas: pruning, defaulting and validation as Kubernetes does them.
//!
//! [`Schema`] is compiled once for each version of a resource and then shared. A document becomes a tree of
//! nodes (`node`); each concern is one walk over that tree in its own file:
//!
//! | file | concern |
//! |---|---|
//! | `structural` | the requirements on the schema of a CRD |
//! | `prune`, `default` | dropping undeclared fields, filling in missing ones |
//! | `validate`, `number`, `format`, `pattern` | the OpenAPI keywords |
//! | `lists` | uniqueness in sets and maps, embedded resources |
//! | `cel` | `x-kubernetes-validations` |
//! | `ratchet` | matches new values with old ones, so that an update may keep unchanged errors |
//!
//! Go iterates over maps in random order, so kube-apiserver reports sibling fields in no fixed order; here
//! they are in the order of the field names.

mod cause;
mod cel;
mod default;
mod format;
mod lists;
mod native;
mod node;
mod number;
mod path;
mod pattern;
mod prune;
mod ratchet;
mod structural;
#[cfg(test)]
mod tests;
mod validate;
mod value;

use std::sync::LazyLock;

use serde_json::Value;

use self::{node::Reader, path::Path};

pub use cause::{Cause, CauseReason};
pub use native::QUANTITY;
pub(crate) use node::{Additional, ListType, MAX_DEPTH, Node, Type};
pub use value::{go_type, json_type};
pub(crate) use value::{marshal, quote};

/// The schema of `metadata`, compiled once: a CRD may have very many versions.
static METADATA: LazyLock<Node> = LazyLock::new(|| {
    let mut reader = Reader { causes: Vec::new(), native: true };
    reader.node(&native::object_meta(), "metadata", 0)
});

/// The result of validating an object.
#[derive(Clone, Debug, Default)]
pub struct Validation {
    /// The errors for which the object is rejected.
    pub causes: Vec<Cause>,
    /// The errors that an update may keep because the value did not change.
    pub ratcheted: Vec<Cause>,
}

/// One compiled schema, shared by everything that handles objects of its kind.
#[derive(Debug)]
pub struct Schema {
    document: Value,
    pub(crate) root: Node,
    /// The fields every resource has in `metadata`, at the root and in embedded resources.
    pub(crate) metadata: &'static Node,
    /// The schema of `apiVersion` and `kind`.
    pub(crate) text: Node,
    /// Whether this is a built-in kind.
    pub(crate) native: bool,
}

impl Schema {
    /// Compiles the `openAPIV3Schema` of one CRD version.
    ///
    /// Fields of the causes start with `openAPIV3Schema`; the caller adds the path to it (`spec.validation`
    /// if all versions share one schema, else `spec.versions[0].schema`).
    pub fn compile(open_api_v3_schema: &Value) -> Result<Schema, Vec<Cause>> {
        const ROOT: &str = "openAPIV3Schema";
        let mut reader = Reader { causes: Vec::new(), native: false };
        let mut root = reader.node(open_api_v3_schema, ROOT, 0);
        let mut causes = reader.causes;
        if causes.is_empty() {
            structural::check(open_api_v3_schema, &root, ROOT, &mut causes);
        }

        if causes.is_empty() {
            cel::attach(open_api_v3_schema, &mut root, ROOT, &mut causes);
        }
        if !causes.is_empty() {
            return Err(causes);
        }

        let schema = Schema::new(open_api_v3_schema.clone(), root, false);
        structural::check_defaults(&schema.root, ROOT, &schema, &mut causes);
        if causes.is_empty() { Ok(schema) } else { Err(causes) }
    }

    /// Compiles the schema of a built-in kind from its JSON schema.
    ///
    /// `$ref`s into `$defs`, `definitions` or `components/schemas` are resolved; where a type contains
    /// itself, the inner occurrence accepts anything. Objects without `properties` are free-form. The schema
    /// of `metadata` is replaced by the fields that every resource has.
    #[must_use]
    pub fn native(schema: &Value) -> Schema {
        let document = native::resolve(schema);
        let mut reader = Reader { causes: Vec::new(), native: true };
        let root = reader.node(&document, "", 0);
        Schema::new(document, root, true)
    }

    fn new(document: Value, root: Node, native: bool) -> Schema {
        Schema {
            document,
            root,
            metadata: &METADATA,
            text: Node { kind: Type::String, ..Node::default() },
            native,
        }
    }

    /// Drops undeclared fields and returns their sorted paths, as kube-apiserver prints them in strict
    /// decoding errors (`spec.foo`, `spec.disks[0].foo`).
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune(self, object)
    }

    /// Returns the first embedded resource whose metadata `type_problem` rejects, as an error message.
    ///
    /// `type_problem` receives the embedded resource and returns what is wrong with the types in its metadata.
    #[must_use]
    pub fn embedded_type_problem(
        &self,
        object: &Value,
        type_problem: fn(&Value) -> Option<String>,
    ) -> Option<String> {
        lists::embedded_type_problem(&self.root, object, &Path::Root, type_problem)
    }

    /// Fills in defaults. A `null` where the schema does not allow it is dropped, or replaced by the default.
    pub fn default(&self, object: &mut Value) {
        if self.native {
            default::drop_empty(object, &self.root, 0);
        } else {
            value::normalize_numbers(object);
        }
        default::drop_nulls(object, &self.root, self.native, 0);
        default::fill(object, &self.root, 0);
    }

    /// Fills in defaults and keeps every other `null`, as after an apply, which owns the fields that it sets
    /// to null.
    pub fn fill(&self, object: &mut Value) {
        default::fill(object, &self.root, 0);
    }

    /// Validates an object; on an update, errors in unchanged values are tolerated.
    ///
    /// The caller validates `apiVersion`, `kind` and `metadata`; only the schema's own checks of
    /// `metadata.name` are applied here.
    #[must_use]
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        self.validate_write(object, old, false).causes
    }

    /// Validates an object, or a write to its status, and also returns the errors that were tolerated.
    ///
    /// For a write to the status only the keywords under `status` are checked; list types and rules see the
    /// whole object.
    #[must_use]
    pub fn validate_write(&self, object: &Value, old: Option<&Value>, status: bool) -> Validation {
        self.validate_within(object, old, status, cel::BUDGET).0
    }

    /// Like [`Schema::validate_write`], for a thread that must not be blocked: `None` if the rules cost more
    /// than a few milliseconds.
    #[must_use]
    pub fn validate_quickly(&self, object: &Value, old: Option<&Value>, status: bool) -> Option<Validation> {
        let (validation, is_complete) = self.validate_within(object, old, status, cel::QUICK_BUDGET);
        is_complete.then_some(validation)
    }

    fn validate_within(
        &self,
        object: &Value,
        old: Option<&Value>,
        status: bool,
        budget: u64,
    ) -> (Validation, bool) {
        let causes =
            if status { self.status_causes(object, old) } else { validate::run(&self.root, object, old) };
        let mut validation = Validation { causes, ratcheted: Vec::new() };
        let is_complete = self.validate_rest(object, old, budget, &mut validation);
        (validation, is_complete)
    }

    fn status_causes(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Vec::new();
        if let (Some(node), Some(status)) = (self.root.properties.get("status"), object.get("status")) {
            causes = validate::run(node, status, old.and_then(|old| old.get("status")));
            for cause in &mut causes {
                cause.field = match cause.field.as_str() {
                    path::NIL => "status".to_owned(),
                    field => format!("status.{field}"),
                };
            }
        }
        causes
    }

    /// Returns whether the budget sufficed for the rules.
    fn validate_rest(
        &self,
        object: &Value,
        old: Option<&Value>,
        budget: u64,
        validation: &mut Validation,
    ) -> bool {
        let causes = &mut validation.causes;
        if self.root.has_embedded {
            lists::check_embedded(&self.root, object, &Path::Root, causes);
        }

        if self.root.has_list_types {
            let mut found = Vec::new();
            lists::check_list_types(&self.root, object, &Path::Root, &mut found);
            let was_already_invalid = !found.is_empty()
                && old.is_some_and(|old| {
                    let mut before = Vec::new();
                    lists::check_list_types(&self.root, old, &Path::Root, &mut before);
                    !before.is_empty()
                });
            if !was_already_invalid {
                causes.append(&mut found);
            }
        }

        if self.root.has_rules {
            if causes.iter().any(|cause| blocks_rules(cause.reason)) {
                causes.push(Cause::invalid_text(
                    path::NIL.to_owned(),
                    "null",
                    "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
                ));
            } else {
                return cel::run(&self.root, object, old, budget, validation);
            }
        }
        true
    }

    /// The document that this schema was compiled from; for a built-in kind, with references resolved.
    #[must_use]
    pub fn document(&self) -> &Value {
        &self.document
    }
}

/// Whether an error prevents the evaluation of rules, which are written for objects with the right types.
fn blocks_rules(reason: CauseReason) -> bool {
    matches!(
        reason,
        CauseReason::FieldValueNotSupported
            | CauseReason::FieldValueRequired
            | CauseReason::FieldValueTooLong
            | CauseReason::FieldValueTooMany
            | CauseReason::FieldValueTypeInvalid
    )
}
