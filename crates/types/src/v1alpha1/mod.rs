//! Version v1alpha1 of the API, one file per kind.

mod datacenter;
mod machine;
mod machine_class;
mod machine_provider;
mod machine_spec;
mod network_configuration;

pub use datacenter::*;
pub use machine::*;
pub use machine_class::*;
pub use machine_provider::*;
pub use machine_spec::*;
pub use network_configuration::*;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Summary of an object's conditions. Derived from them; for display only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
pub enum Phase {
    /// Not reconciled yet.
    Pending,
    /// Usable.
    Ready,
    /// Not usable; the Ready condition has the cause.
    Failed,
}

/// Observed state of a configuration object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationStatus {
    /// Summary of the conditions; the Ready condition has the details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// Standard conditions. Ready is always present once the object has been reconciled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Gives a kind a fluent builder: `Kind::builder().field(…).build(name, namespace)?`. It checks the object
/// against the kind's CRD, so that an invalid object cannot be built.
macro_rules! checked_builder {
    ($kind:ident, $spec:ident, $builder:ident, $state:ident $(, $namespace:ident)?) => {
        impl $kind {
            #[doc = concat!("Starts a `", stringify!($kind), "`.")]
            pub fn builder() -> $builder {
                $spec::start()
            }
        }

        impl<S: $state::IsComplete> $builder<S> {
            #[doc = concat!("Returns the `", stringify!($kind), "`, or the rules of its CRD that it violates.")]
            pub fn build(self, name: &str $(, $namespace: &str)?) -> Result<$kind, crate::InvalidObject> {
                use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

                let metadata = ObjectMeta {
                    name: Some(name.to_owned()),
                    $(namespace: Some($namespace.to_owned()),)?
                    ..ObjectMeta::default()
                };
                let object = $kind { metadata, ..$kind::new(name, self.finish()) };
                crate::check(&object)?;
                Ok(object)
            }
        }
    };
}
use checked_builder;
