//! References from one object to another.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A reference to another VitiStack object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[builder(on(String, into))]
#[serde(rename_all = "camelCase")]
// Half a reference is meaningless, so it has one owner under server-side apply.
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct ObjectReference {
    /// Name of the object.
    #[schemars(schema_with = "crate::schema::object_name")]
    pub name: String,

    /// Namespace of the object. Defaults to the namespace of the object that refers to it. An object in
    /// another namespace must permit the reference with its annotation vitistack.io/allow-references-from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::namespace_name")]
    pub namespace: Option<String>,
}

/// A reference to a key of a Secret in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[builder(on(String, into))]
#[serde(rename_all = "camelCase")]
// Half a reference is meaningless, so it has one owner under server-side apply.
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct SecretKeyReference {
    /// Name of the Secret.
    #[schemars(schema_with = "crate::schema::object_name")]
    pub name: String,

    /// Key in the Secret's data.
    #[schemars(schema_with = "crate::schema::secret_key")]
    pub key: String,
}
