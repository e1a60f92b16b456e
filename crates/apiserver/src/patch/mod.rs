//! Patches as pure functions from a document and a patch to a new document.
//!
//! Apply patches are in [`crate::managed_fields`], because they are about ownership.

mod json;
mod merge;
mod strategic;

use serde_json::Value;
use snafu::Snafu;

pub use json::json;
pub use merge::merge;
pub use strategic::{print_map, strategic};

/// The kinds of patches, by content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/json-patch+json`
    Json,
    /// `application/merge-patch+json`
    Merge,
    /// `application/strategic-merge-patch+json`
    Strategic,
    /// `application/apply-patch+yaml`
    Apply,
}

impl PatchKind {
    /// The kind a content type asks for; parameters after a semicolon do not count.
    #[must_use]
    pub fn from_content_type(content_type: &str) -> Option<PatchKind> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Some(PatchKind::Json),
            "application/merge-patch+json" => Some(PatchKind::Merge),
            "application/strategic-merge-patch+json" => Some(PatchKind::Strategic),
            "application/apply-patch+yaml" => Some(PatchKind::Apply),
            _ => None,
        }
    }
}

/// Why a patch was not applied.
#[derive(Debug, Snafu, PartialEq, Eq)]
pub enum PatchError {
    /// The patch itself is malformed: 400, reason `BadRequest`, this text as message.
    #[snafu(display("{message}"))]
    DecodePatch {
        /// What is wrong with it.
        message: String,
    },
    /// The patch has too many operations: 413, reason `RequestEntityTooLarge`.
    #[snafu(display("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}"))]
    CountOperations {
        /// How many it has.
        count: usize,
    },
    /// The patch does not fit the document: 422, reason `Invalid`, empty details and the message "the server
    /// rejected our request due to an error in our request"; this text does not reach the client.
    #[snafu(display("{message}"))]
    ApplyPatch {
        /// What does not fit.
        message: String,
    },
    /// The patch does not fit the kind: 500, no reason, this text as message.
    #[snafu(display("{message}"))]
    MatchPatch {
        /// What does not fit.
        message: String,
    },
}

#[cfg(test)]
impl PatchError {
    /// The HTTP status that a client gets for it.
    pub(crate) fn status(&self) -> u16 {
        crate::verbs::patch::patch_failure(self).code.as_u16()
    }
}

/// The most operations a JSON patch may have.
pub(crate) const MAX_OPERATIONS: usize = 10_000;

/// The deepest document a patch may make; the JSON parser refuses deeper ones, patches could build them.
const MAX_DEPTH: usize = 128;

/// Reads a patch; faults are worded as Go words them, with a prefix.
fn parse(patch: &[u8], prefix: &str) -> Result<Value, PatchError> {
    serde_json::from_slice(patch).map_err(|error| {
        let culprit = || {
            // Columns count bytes of a line from one.
            let line =
                patch.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
            line.get(error.column().saturating_sub(1)).map_or('?', |byte| char::from(*byte))
        };
        let message = if error.is_eof() {
            "unexpected end of JSON input".to_owned()
        } else if error.to_string().starts_with("trailing characters") {
            format!("invalid character '{}' after top-level value", culprit())
        } else {
            format!("invalid character '{}' looking for beginning of value", culprit())
        };
        PatchError::DecodePatch { message: format!("{prefix}{message}") }
    })
}

/// The fault of a value that is not of the type Go wanted.
fn wrong_type(value: &Value, prefix: &str, wanted: &str) -> PatchError {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let message = format!("{prefix}json: cannot unmarshal {found} into Go value of type {wanted}");
    PatchError::DecodePatch { message }
}

/// The Go type of an object that is not described.
const GO_OBJECT: &str = "map[string]interface {}";

/// What most decoders put in front of a fault.
const DECODING: &str = "error decoding patch: ";

/// Refuses a document that no request could have brought.
fn check_depth(document: Value) -> Result<Value, PatchError> {
    fn fits(value: &Value, left: usize) -> bool {
        match value {
            Value::Array(items) => left > 0 && items.iter().all(|item| fits(item, left - 1)),
            Value::Object(fields) => left > 0 && fields.values().all(|field| fits(field, left - 1)),
            _ => true,
        }
    }
    if fits(&document, MAX_DEPTH) {
        Ok(document)
    } else {
        Err(PatchError::ApplyPatch {
            message: format!("the patched object is nested deeper than {MAX_DEPTH} levels"),
        })
    }
}
