//! References from one object to another.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Names another VitiStack object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[builder(on(String, into))]
#[serde(rename_all = "camelCase")]
// Half a reference means nothing, so it has one owner.
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct ObjectReference {
    /// Name of the object.
    #[schemars(schema_with = "crate::schema::object_name")]
    pub name: String,

    /// Namespace of the object; the own namespace when absent. Another namespace must allow it with the annotation
    /// vitistack.io/allow-references-from on the object referred to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::namespace_name")]
    pub namespace: Option<String>,
}

/// Names one key of a Secret in the own namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[builder(on(String, into))]
#[serde(rename_all = "camelCase")]
// Half a reference means nothing, so it has one owner.
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct SecretKeyReference {
    /// Name of the Secret.
    #[schemars(schema_with = "crate::schema::object_name")]
    pub name: String,

    /// Key in the Secret's data.
    #[schemars(schema_with = "crate::schema::secret_key")]
    pub key: String,
}
