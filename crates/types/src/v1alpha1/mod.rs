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

/// How far a configuration object is; derived from its conditions, never read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
pub enum Phase {
    /// Not looked at yet.
    Pending,
    /// Usable.
    Ready,
    /// Not usable; the Ready condition says why.
    Failed,
}

/// What every configuration object tells about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationStatus {
    /// How far the object is; the Ready condition says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// The standard conditions; Ready is always among them once the object was looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Gives a kind its fluent builder: `Kind::builder().field(…).build(name, namespace)?`. What it builds has passed the
/// rules of the kind's definition, so an invalid object cannot be built.
macro_rules! checked_builder {
    ($kind:ident, $spec:ident, $builder:ident, $state:ident $(, $namespace:ident)?) => {
        impl $kind {
            #[doc = concat!("Starts a `", stringify!($kind), "`.")]
            pub fn builder() -> $builder {
                $spec::start()
            }
        }

        impl<S: $state::IsComplete> $builder<S> {
            #[doc = concat!("The `", stringify!($kind), "`, or the rules of its definition that it breaks.")]
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
