//! Values that are parsed once and trusted afterwards: quantities, sizes, durations, MAC addresses, versions, prices.
//!
//! Each refuses a bad text with an [`InvalidValue`] that holds the value and the fix; whoever knows the field adds it.

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

/// Indicates that a text is not what its field needs. The message holds the value and the fix.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("{value:?} {fix}"))]
pub struct InvalidValue {
    value: String,
    fix: &'static str,
}

impl InvalidValue {
    /// The refusal of `value`; `fix` finishes the sentence that begins with it.
    #[must_use]
    pub fn new(value: &str, fix: &'static str) -> Self {
        // A hostile value may be megabytes long; nobody needs more than its beginning to find it.
        Self { value: value.chars().take(64).collect(), fix }
    }

    /// What the value has to look like.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        self.fix
    }
}

/// Gives a parsed value its JSON form, the text, and its schema: a bounded string with one CEL rule whose message is
/// the same sentence that the parser's error ends with.
macro_rules! text_value {
    ($type:ident, max_length = $max_length:literal, rule = $rule:expr, fix = $fix:expr) => {
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
