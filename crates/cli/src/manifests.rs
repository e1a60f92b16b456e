//! The manifests that come from the code: definitions, roles and the operators' deployment as YAML, the same text for the command line and for the
//! files in `config`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Serialize;
use serde_json::Value;
use snafu::{ResultExt, Snafu};
use vitistack_types::definitions;

use crate::{deployment::Deployment, policies, roles};

/// Indicates that a manifest could not be written.
#[derive(Debug, Snafu)]
pub enum Error {
    /// Indicates that an object has no JSON form.
    #[snafu(display("failed to read {name:?}"))]
    ReadObject {
        /// Name of the object.
        name: String,
        /// Why.
        source: serde_json::Error,
    },
    /// Indicates that an object has no YAML form.
    #[snafu(display("failed to write {name:?} as YAML"))]
    WriteYaml {
        /// Name of the object.
        name: String,
        /// Why.
        source: serde_saphyr::ser::Error,
    },
}

/// A manifest and the name it goes by.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Name of the object.
    pub name: String,
    /// The object as YAML.
    pub yaml: String,
}

/// The definition of every kind.
pub fn crds() -> Result<Vec<Manifest>, Error> {
    definitions().iter().map(crd).collect()
}

/// The definition of one kind.
pub fn crd(definition: &CustomResourceDefinition) -> Result<Manifest, Error> {
    manifest(definition.metadata.name.clone().unwrap_or_default(), definition)
}

/// Every role.
pub fn rbac() -> Result<Vec<Manifest>, Error> {
    roles::roles().iter().map(|role| manifest(role.metadata.name.clone().unwrap_or_default(), role)).collect()
}

/// Every admission policy with its binding.
pub fn policies() -> Result<Vec<Manifest>, Error> {
    let text = |object: &Value, path: &str| {
        object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    // A policy and its binding have one name, and go into one folder.
    let name = |object: &Value| match text(object, "/kind").as_str() {
        "ValidatingAdmissionPolicyBinding" => format!("{}-binding", text(object, "/metadata/name")),
        _ => text(object, "/metadata/name"),
    };
    policies::policies().iter().map(|object| manifest(name(object), object)).collect()
}

/// The operators in a cluster, in the order in which a cluster takes them.
pub fn manager(deployment: &Deployment<'_>) -> Result<Vec<Manifest>, Error> {
    let name = |object: &Value| {
        object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    deployment.objects().iter().map(|object| manifest(name(object), object)).collect()
}

/// The definition of one kind as an API takes it. Never as the Kubernetes types write it: a bound like
/// `9007199254740991.0` is not read back as the same float by every parser, `9007199254740991` is.
pub fn definition(definition: &CustomResourceDefinition) -> Result<Value, Error> {
    value(definition.metadata.name.as_deref().unwrap_or_default(), definition)
}

fn value(name: &str, object: &impl Serialize) -> Result<Value, Error> {
    let mut value = serde_json::to_value(object).context(ReadObjectSnafu { name })?;
    whole_numbers(&mut value);
    Ok(value)
}

fn manifest(name: String, object: &impl Serialize) -> Result<Manifest, Error> {
    let value = value(&name, object)?;
    let yaml = serde_saphyr::to_string(&value).context(WriteYamlSnafu { name: &name })?;
    Ok(Manifest { name, yaml })
}

/// The largest number below which every whole number has a float of its own.
const LARGEST_WHOLE: f64 = 9_007_199_254_740_991.0;

/// Schema bounds are floats in the Kubernetes types; a reader wants `4094`, not `4094.0`.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= LARGEST_WHOLE);
            if let Some(whole) = whole.and_then(|float| format!("{float:.0}").parse::<i64>().ok()) {
                *number = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}
