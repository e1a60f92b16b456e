//! The validation errors of an object, as `details.causes` of a Status lists them.

use std::fmt;

use serde_json::Value;

use super::value::{print, quote};

/// Why a value was rejected: the `reason` of one entry of `details.causes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CauseReason {
    /// The value violates a rule.
    FieldValueInvalid,
    /// A required value is missing.
    FieldValueRequired,
    /// The value has the wrong type or format.
    FieldValueTypeInvalid,
    /// The value is not one of the supported ones.
    FieldValueNotSupported,
    /// The value may occur only once.
    FieldValueDuplicate,
    /// The field must not be set.
    FieldValueForbidden,
    /// The string is too long.
    FieldValueTooLong,
    /// The list or object has too many entries.
    FieldValueTooMany,
}

impl CauseReason {
    /// Returns the name in the API.
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

/// One validation error, as `details.causes` of a Status lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The path of the value; `<nil>` for the object itself.
    pub field: String,
    /// The reason, for programs.
    pub reason: CauseReason,
    /// The message, for people; it does not repeat the field.
    pub message: String,
}

impl fmt::Display for Cause {
    /// Formats the cause as kube-apiserver does in `message`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.message)
    }
}

impl Cause {
    /// Returns the cause for a value that violates a rule.
    #[must_use]
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Cause {
        Cause::invalid_text(field.into(), &print(value), detail)
    }

    /// Returns the cause for an invalid value that is already printed.
    #[must_use]
    pub fn invalid_text(field: String, printed: &str, detail: &str) -> Cause {
        Cause {
            field,
            reason: CauseReason::FieldValueInvalid,
            message: format!("Invalid value: {printed}: {detail}"),
        }
    }

    /// Returns the cause for a value of the wrong type.
    pub(crate) fn type_invalid(field: &str, value: &Value, detail: &str) -> Cause {
        let printed = print(value);
        Cause {
            field: field.to_owned(),
            reason: CauseReason::FieldValueTypeInvalid,
            message: format!("Invalid value: {printed}: {detail}"),
        }
    }

    /// Returns the cause for a missing value.
    #[must_use]
    pub fn required(field: impl Into<String>, detail: &str) -> Cause {
        Cause {
            field: field.into(),
            reason: CauseReason::FieldValueRequired,
            message: with_detail("Required value", detail),
        }
    }

    /// Returns the cause for a field that must not be set.
    #[must_use]
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Cause {
        Cause {
            field: field.into(),
            reason: CauseReason::FieldValueForbidden,
            message: with_detail("Forbidden", detail),
        }
    }

    /// Returns the cause for a value that may occur only once.
    #[must_use]
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Cause {
        Cause {
            field: field.into(),
            reason: CauseReason::FieldValueDuplicate,
            message: format!("Duplicate value: {}", print(value)),
        }
    }

    /// Returns the cause for a value that is not one of the supported ones.
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
