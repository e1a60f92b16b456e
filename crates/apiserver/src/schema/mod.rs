//! Structural schemas: pruning, defaulting and validation as Kubernetes does them.
//!
//! [`Schema`] is compiled once for each version of a resource and then shared. A document becomes a tree of
//! nodes (`node`); each concern is one walk over that tree in its own file:
//!
//! | file | concern |
//! |---|---|
//! | `structural` | what a CRD's schema must look like to be accepted |
//! | `prune`, `default` | dropping what is not declared, filling in what is missing |
//! | `validate`, `number`, `format`, `pattern` | the OpenAPI keywords |
//! | `lists` | uniqueness in sets and maps, embedded resources |
//! | `cel` | `x-kubernetes-validations` |
//! | `ratchet` | which old value belongs to a new one, so that unchanged faults pass an update |
//!
//! Messages, reasons and fields are those of kube-apiserver 1.36. Go iterates maps in random order, so the real
//! server lists causes of sibling fields in no fixed order; here they come in the order of the field names.

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

use std::fmt;

use serde_json::Value;

pub(crate) use native::QUANTITY;
pub(crate) use node::{Additional, ListType, MAX_DEPTH, Node, Type};
pub(crate) use value::{go_type, marshal, quote};

use node::Reader;
use path::Path;
use value::print;

/// Why a value was refused: the `reason` of one entry of `details.causes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::enum_variant_names, reason = "the words of Kubernetes")]
pub enum CauseReason {
    /// The value breaks a rule.
    FieldValueInvalid,
    /// A value is missing.
    FieldValueRequired,
    /// The value has the wrong type or format.
    FieldValueTypeInvalid,
    /// The value is not one of those listed.
    FieldValueNotSupported,
    /// The value may stand only once.
    FieldValueDuplicate,
    /// The value may not be set here.
    FieldValueForbidden,
    /// The text is too long.
    FieldValueTooLong,
    /// The list or object has too many entries.
    FieldValueTooMany,
}

impl CauseReason {
    /// The word that stands in the answer.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            CauseReason::FieldValueInvalid => "FieldValueInvalid",
            CauseReason::FieldValueRequired => "FieldValueRequired",
            CauseReason::FieldValueTypeInvalid => "FieldValueTypeInvalid",
            CauseReason::FieldValueNotSupported => "FieldValueNotSupported",
            CauseReason::FieldValueDuplicate => "FieldValueDuplicate",
            CauseReason::FieldValueForbidden => "FieldValueForbidden",
            CauseReason::FieldValueTooLong => "FieldValueTooLong",
            CauseReason::FieldValueTooMany => "FieldValueTooMany",
        }
    }
}

/// One fault of an object, as `details.causes` of a Status shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The path of the value, `<nil>` for the object itself.
    pub field: String,
    /// Its kind, for machines.
    pub reason: CauseReason,
    /// Its wording, for people; it does not repeat the field.
    pub message: String,
}

impl fmt::Display for Cause {
    /// The form in which the real server joins causes in `message`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.message)
    }
}

impl Cause {
    /// A value that breaks a rule.
    #[must_use]
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Cause {
        Cause::invalid_text(field.into(), &print(value), detail)
    }

    /// The same for a value that is already printed.
    pub(crate) fn invalid_text(field: String, printed: &str, detail: &str) -> Cause {
        Cause {
            field,
            reason: CauseReason::FieldValueInvalid,
            message: format!("Invalid value: {printed}: {detail}"),
        }
    }

    /// A value of the wrong type.
    pub(crate) fn type_invalid(field: &str, value: &Value, detail: &str) -> Cause {
        let printed = print(value);
        Cause {
            field: field.to_owned(),
            reason: CauseReason::FieldValueTypeInvalid,
            message: format!("Invalid value: {printed}: {detail}"),
        }
    }

    /// A missing value.
    #[must_use]
    pub fn required(field: impl Into<String>, detail: &str) -> Cause {
        Cause {
            field: field.into(),
            reason: CauseReason::FieldValueRequired,
            message: with_detail("Required value", detail),
        }
    }

    /// A value that may not be set.
    #[must_use]
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Cause {
        Cause {
            field: field.into(),
            reason: CauseReason::FieldValueForbidden,
            message: with_detail("Forbidden", detail),
        }
    }

    /// A value that may stand only once.
    #[must_use]
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Cause {
        Cause {
            field: field.into(),
            reason: CauseReason::FieldValueDuplicate,
            message: format!("Duplicate value: {}", print(value)),
        }
    }

    /// A value that is not one of those listed.
    #[must_use]
    pub fn not_supported(field: &str, value: &Value, supported: &[&str]) -> Cause {
        let listed: Vec<String> = supported.iter().map(|entry| quote(entry)).collect();
        Cause {
            field: field.to_owned(),
            reason: CauseReason::FieldValueNotSupported,
            message: format!("Unsupported value: {}: supported values: {}", print(value), listed.join(", ")),
        }
    }
}

fn with_detail(text: &str, detail: &str) -> String {
    if detail.is_empty() { text.to_owned() } else { format!("{text}: {detail}") }
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Faults for which the object is refused.
    pub causes: Vec<Cause>,
    /// Broken rules that an update may keep because the value did not change.
    pub passed: Vec<Cause>,
}

/// One compiled schema, shared by everything that handles objects of its kind.
#[derive(Debug)]
pub struct Schema {
    document: Value,
    pub(crate) root: Node,
    /// The fields every resource has in `metadata`, at the root and in embedded resources.
    pub(crate) metadata: Node,
    /// The schema of `apiVersion` and `kind`.
    pub(crate) text: Node,
    /// Whether this is a built-in kind.
    pub(crate) native: bool,
}

impl Schema {
    /// Compiles the `openAPIV3Schema` of one CRD version.
    ///
    /// Fields of the causes begin with `openAPIV3Schema`; the caller puts in front where that stands
    /// (`spec.validation` if all versions share one schema, else `spec.versions[0].schema`).
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
    /// `$ref`s into `$defs`, `definitions` or `components/schemas` are followed; where a type contains itself the
    /// inner occurrence accepts anything. Objects without `properties` are free-form. What a document says about
    /// `metadata` is replaced by the fields every resource has.
    #[must_use]
    pub fn native(schema: &Value) -> Schema {
        let document = native::resolve(schema);
        let mut reader = Reader { causes: Vec::new(), native: true };
        let root = reader.node(&document, "", 0);
        Schema::new(document, root, true)
    }

    fn new(document: Value, root: Node, native: bool) -> Schema {
        let mut reader = Reader { causes: Vec::new(), native: true };
        let metadata = reader.node(&native::object_meta(), "metadata", 0);
        Schema { document, root, metadata, text: Node { kind: Type::String, ..Node::default() }, native }
    }

    /// Drops what the schema does not declare and returns the paths of what was dropped, sorted, as the real
    /// server names them in strict errors (`spec.foo`, `spec.disks[0].foo`).
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune(self, object)
    }

    /// What of the metadata of an embedded resource has a type it cannot have.
    #[must_use]
    pub fn embedded_type_problem(&self, object: &Value) -> Option<String> {
        lists::embedded_type_problem(&self.root, object, &Path::Root)
    }

    /// Fills in defaults. A `null` where the schema allows none is dropped, or replaced by the default.
    pub fn default(&self, object: &mut Value) {
        if self.native {
            default::drop_empty(object, &self.root, 0);
        } else {
            value::settle_numbers(object);
        }
        default::drop_nulls(object, &self.root, self.native, 0);
        default::fill(object, &self.root, 0);
    }

    /// Fills in defaults and leaves every other `null`, as after an apply, which owns what it sets to null.
    pub fn fill(&self, object: &mut Value) {
        default::fill(object, &self.root, 0);
    }

    /// Checks an object; on an update, faults of parts that did not change are let pass.
    ///
    /// The caller checks `apiVersion`, `kind` and `metadata`; what the schema itself says about `metadata.name`
    /// is checked here.
    #[must_use]
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        self.judge(object, old, false).causes
    }

    /// Checks an object, or a write to its status, and also tells which broken rules were let pass.
    ///
    /// For a write to the status only the keywords under `status` count, and messages name fields from there; list types
    /// and rules see the whole object.
    #[must_use]
    pub fn judge(&self, object: &Value, old: Option<&Value>, status: bool) -> Verdict {
        let causes =
            if status { self.status_faults(object, old) } else { validate::run(&self.root, object, old) };
        let mut verdict = Verdict { causes, passed: Vec::new() };
        self.validate_rest(object, old, &mut verdict);
        verdict
    }

    fn status_faults(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
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

    fn validate_rest(&self, object: &Value, old: Option<&Value>, verdict: &mut Verdict) {
        let causes = &mut verdict.causes;
        if self.root.has_embedded {
            lists::check_embedded(&self.root, object, &Path::Root, causes);
        }
        if self.root.has_list_types {
            let mut found = Vec::new();
            lists::check_list_types(&self.root, object, &Path::Root, &mut found);
            let old_was_wrong = !found.is_empty()
                && old.is_some_and(|old| {
                    let mut before = Vec::new();
                    lists::check_list_types(&self.root, old, &Path::Root, &mut before);
                    !before.is_empty()
                });
            if !old_was_wrong {
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
                cel::run(&self.root, object, old, verdict);
            }
        }
    }

    /// The document this schema was compiled from; for a built-in kind with its references resolved.
    #[must_use]
    pub fn document(&self) -> &Value {
        &self.document
    }
}

/// Rules are written for objects of the right shape and are not run on others.
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
