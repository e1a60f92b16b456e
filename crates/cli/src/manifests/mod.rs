//! Generated manifests: CRDs, roles, admission policies and the Deployment of the operators. The command line and the files
//! in `config` contain the same YAML.

pub mod deployment;
pub(crate) mod documents;
pub(crate) mod policies;
pub(crate) mod roles;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Serialize;
use serde_json::Value;
use snafu::{ResultExt, Snafu};
use vitistack_types::definitions;

use self::deployment::Deployment;
use crate::cluster::listing::text;

/// Errors of generating manifests.
#[derive(Debug, Snafu)]
pub enum Error {
    /// The object cannot be converted to JSON.
    #[snafu(display("failed to convert {name:?} to JSON"))]
    ConvertObject {
        /// The name of the object.
        name: String,
        /// The cause.
        source: serde_json::Error,
    },
    /// The object cannot be written as YAML.
    #[snafu(display("failed to write {name:?} as YAML"))]
    WriteYaml {
        /// The name of the object.
        name: String,
        /// The cause.
        source: serde_saphyr::ser::Error,
    },
}

/// A manifest with the name of its object or file.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The name of the object.
    pub name: String,
    /// The object as YAML.
    pub yaml: String,
}

/// Returns the CRD of every kind.
pub fn crds() -> Result<Vec<Manifest>, Error> {
    definitions().iter().map(crd).collect()
}

/// Returns the CRD of one kind.
pub fn crd(definition: &CustomResourceDefinition) -> Result<Manifest, Error> {
    manifest(definition.metadata.name.clone().unwrap_or_default(), definition)
}

/// Returns every role.
pub fn rbac() -> Result<Vec<Manifest>, Error> {
    roles::roles().iter().map(|role| manifest(role.metadata.name.clone().unwrap_or_default(), role)).collect()
}

/// Returns every admission policy with its binding.
pub fn policies() -> Result<Vec<Manifest>, Error> {
    // A policy and its binding have the same name and are written to the same folder.
    let name = |object: &Value| match text(object, "/kind") {
        "ValidatingAdmissionPolicyBinding" => format!("{}-binding", text(object, "/metadata/name")),
        _ => text(object, "/metadata/name").to_owned(),
    };
    policies::policies().iter().map(|object| manifest(name(object), object)).collect()
}

/// Returns the Deployment of the operators and the objects it requires, in the order in which they are applied.
pub fn manager(deployment: &Deployment<'_>) -> Result<Vec<Manifest>, Error> {
    let name = |object: &Value| text(object, "/metadata/name").to_owned();
    deployment.objects().iter().map(|object| manifest(name(object), object)).collect()
}

/// Returns the CRD of one kind as JSON for an API server. Bounds are whole numbers: not every parser reads
/// `9007199254740991.0` back as the same float, as it does `9007199254740991`.
pub fn crd_value(definition: &CustomResourceDefinition) -> Result<Value, Error> {
    value(definition.metadata.name.as_deref().unwrap_or_default(), definition)
}

fn value(name: &str, object: &impl Serialize) -> Result<Value, Error> {
    let mut value = serde_json::to_value(object).context(ConvertObjectSnafu { name })?;
    whole_numbers(&mut value);
    Ok(value)
}

fn manifest(name: String, object: &impl Serialize) -> Result<Manifest, Error> {
    let value = value(&name, object)?;
    let yaml = serde_saphyr::to_string(&value).context(WriteYamlSnafu { name: &name })?;
    Ok(Manifest { name, yaml })
}

/// The largest whole number below which a float is exact.
const LARGEST_WHOLE: f64 = 9_007_199_254_740_991.0;

/// Writes whole floats as integers. Schema bounds are floats in the Kubernetes types, which would print `4094.0`.
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
