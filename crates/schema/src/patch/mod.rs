//! Patches as pure functions from a document and a patch to a new document.
//!
//! Apply patches are in [`crate::managed_fields`], because they depend on field ownership.

mod budget;
mod json;
mod merge;
mod strategic;

use serde_json::Value;
use snafu::Snafu;

use crate::schema::json_type;

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
    /// Returns the kind of patch of a content type; parameters after a semicolon are ignored.
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
    /// The patch itself is malformed: 400, reason `BadRequest`, with this message.
    #[snafu(display("{message}"))]
    DecodePatch {
        /// What is malformed.
        message: String,
    },
    /// The patch has too many operations: 413, reason `RequestEntityTooLarge`.
    #[snafu(display("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}"))]
    CountOperations {
        /// The number of operations.
        count: usize,
    },
    /// The patch does not fit the document: 422, reason `Invalid`, empty details and the message "the server
    /// rejected our request due to an error in our request"; this message does not reach the client.
    #[snafu(display("{message}"))]
    ApplyPatch {
        /// What does not fit.
        message: String,
    },
    /// The patch does not fit the kind: 500, no reason, with this message.
    #[snafu(display("{message}"))]
    MatchPatch {
        /// What does not fit.
        message: String,
    },
}

impl PatchError {
    /// Returns the HTTP status code of the response.
    #[must_use]
    pub fn status_code(&self) -> u16 {
        match self {
            PatchError::DecodePatch { .. } => 400,
            PatchError::CountOperations { .. } => 413,
            PatchError::ApplyPatch { .. } => 422,
            PatchError::MatchPatch { .. } => 500,
        }
    }
}

/// The maximum number of operations in a JSON patch.
pub(crate) const MAX_OPERATIONS: usize = 10_000;

/// The maximum depth of a patched document; the JSON parser rejects deeper ones, patches could build them.
const MAX_DEPTH: usize = 128;

/// Parses a patch; errors are those of Go, with a prefix.
fn parse(patch: &[u8], prefix: &str) -> Result<Value, PatchError> {
    serde_json::from_slice(patch).map_err(|error| {
        let culprit = || {
            // Columns count the bytes of a line, starting at one.
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

/// Returns the error for a value that does not have the Go type that was expected.
fn wrong_type(value: &Value, prefix: &str, wanted: &str) -> PatchError {
    let found = json_type(value);
    let message = format!("{prefix}json: cannot unmarshal {found} into Go value of type {wanted}");
    PatchError::DecodePatch { message }
}

/// The Go type of an object without a schema.
const GO_OBJECT: &str = "map[string]interface {}";

/// The prefix of most decoding errors.
const DECODING: &str = "error decoding patch: ";

/// Rejects a document that is deeper than any request body may be.
fn check_depth(document: Value) -> Result<Value, PatchError> {
    if fits(&document, MAX_DEPTH) { Ok(document) } else { Err(too_deep()) }
}

fn too_deep() -> PatchError {
    PatchError::ApplyPatch { message: format!("the patched object is nested deeper than {MAX_DEPTH} levels") }
}

/// Whether a value has at most this many levels.
fn fits(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| fits(item, levels - 1)),
        Value::Object(fields) => levels > 0 && fields.values().all(|field| fits(field, levels - 1)),
        _ => true,
    }
}
