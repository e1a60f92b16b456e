//! Values that are parsed once and trusted afterwards: quantities, sizes, durations, MAC addresses, versions,
//! prices.
//!
//! Each parser rejects an invalid text with an [`InvalidValue`] that contains the value and the fix; the
//! caller adds the field.

mod amount;
mod duration;
mod mac_address;
mod quantity;
mod version;

pub use amount::Amount;
pub use duration::Duration;
pub use mac_address::MacAddress;
pub use quantity::{Quantity, Size};
pub use version::Version;

use snafu::Snafu;

/// Indicates that a text is not valid for its field. The message contains the value and the fix.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("{value:?} {fix}"))]
pub struct InvalidValue {
    value: String,
    fix: &'static str,
}

impl InvalidValue {
    /// Rejects `value`; `fix` completes the sentence that starts with the value.
    #[must_use]
    pub fn new(value: &str, fix: &'static str) -> Self {
        // A hostile value may be megabytes long, and its beginning is enough to find it.
        Self { value: value.chars().take(64).collect(), fix }
    }

    /// What a valid value looks like.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        self.fix
    }
}

/// Implements the JSON form of a parsed value, which is its text, and its schema: a bounded string with one
/// CEL rule whose message is the fix in the parser's error.
macro_rules! text_value {
    ($type:ident, max_length = $max_length:expr, rule = $rule:expr, fix = $fix:expr) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "minLength": 1,
                    "maxLength": $max_length,
                    "x-kubernetes-validations": [{ "rule": $rule, "message": $fix }],
                })
            }
        }
    };
}
use text_value;
