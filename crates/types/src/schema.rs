//! The CRDs, and the parts of their schemas that several kinds share.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use kube_core::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::v1alpha1::{Datacenter, Machine, MachineClass, MachineProvider, NetworkConfiguration};

/// A rule about the whole object, which a derived schema cannot express: the rule and its message.
type ObjectRule = (&'static str, &'static str);

/// Every object created for a Machine is labeled with its name, and a label value is limited to 63
/// characters.
const NAME_FITS_LABEL: ObjectRule = (
    "self.metadata.name.size() <= 63",
    "metadata.name must have at most 63 characters: it is a label of every object created for the machine",
);

const NAME_IS_FREE: ObjectRule = (
    // The names of BUILT_IN_CLASSES; a test keeps the two in sync.
    "!(self.metadata.name in ['small', 'medium', 'large'])",
    "metadata.name: small, medium and large are built in: choose another name",
);

/// The CRD of every kind, in the order in which users need them.
#[must_use]
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![
        crd::<Datacenter>(&[]),
        crd::<MachineProvider>(&[]),
        crd::<MachineClass>(&[NAME_IS_FREE]),
        crd::<Machine>(&[NAME_FITS_LABEL]),
        crd::<NetworkConfiguration>(&[]),
    ]
}

/// The CRD of one kind, as it is installed.
fn crd<K: CustomResourceExt>(rules: &[ObjectRule]) -> CustomResourceDefinition {
    let mut crd = K::crd();
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            tidy(schema);
            schema.x_kubernetes_validations = (!rules.is_empty()).then(|| {
                let rule = |(rule, message): &ObjectRule| ValidationRule {
                    rule: (*rule).to_owned(),
                    message: Some((*message).to_owned()),
                    ..ValidationRule::default()
                };
                rules.iter().map(rule).collect()
            });
        }
    }
    crd
}

/// Adapts a derived schema to Kubernetes: an absent field is absent rather than null, and integers have a
/// format that the API server supports.
fn tidy(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.title = None;
    schema.description = schema.description.take().map(|description| description.replace('\n', " "));
    if let Some(format) = schema.format.as_deref() {
        schema.format = match format {
            "uint8" | "uint16" | "int32" => Some("int32".to_owned()),
            "uint32" | "uint64" | "int64" => Some("int64".to_owned()),
            other => Some(other.to_owned()),
        };
    }
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        tidy(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        tidy(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        tidy(values);
    }
}

/// Removes the description of an enum from its schema, because it would replace the description of the field.
pub fn described_by_its_field(schema: &mut Schema) {
    schema.remove("description");
    if let Some(variants) = schema.get_mut("oneOf").and_then(serde_json::Value::as_array_mut) {
        for variant in variants.iter_mut().filter_map(serde_json::Value::as_object_mut) {
            variant.remove("description");
        }
    }
}

/// A string that must match `pattern`. A CEL rule rather than a schema pattern, so that the message is the
/// fix.
pub fn text(max_length: u32, pattern: &str, fix: &str) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": max_length,
        "x-kubernetes-validations": [{ "rule": format!("self.matches('{pattern}')"), "message": fix }],
    })
}

/// The name of an object (a DNS subdomain).
pub fn object_name(_: &mut SchemaGenerator) -> Schema {
    text(
        253,
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        "must be the name of an object: lowercase letters, digits, '-' and '.', such as web-1",
    )
}

/// The name of a namespace (a DNS label).
pub fn namespace_name(_: &mut SchemaGenerator) -> Schema {
    text(
        63,
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "must be the name of a namespace: lowercase letters, digits and '-', such as production",
    )
}

/// The name of a part of an object, such as a disk or an interface. No dots: KubeVirt rejects them.
pub fn part_name(_: &mut SchemaGenerator) -> Schema {
    text(
        63,
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "must be lowercase letters, digits and '-', such as root or eth0",
    )
}

/// A key in a Secret's data.
pub fn secret_key(_: &mut SchemaGenerator) -> Schema {
    text(
        253,
        "^[-._a-zA-Z0-9]+$",
        "must be a key of the Secret: letters, digits, '-', '_' and '.', such as userdata",
    )
}

/// The name of a region, a zone or an instance type.
pub fn location_name(_: &mut SchemaGenerator) -> Schema {
    text(
        63,
        "^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$",
        "must be letters, digits, '-', '_' and '.', such as us-west-2",
    )
}

/// A list of locations without duplicates.
pub fn location_names(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": location_name(generator),
        "x-kubernetes-list-type": "set",
    })
}

/// The standard conditions of Kubernetes, with the bounds that controller-gen sets. A condition is atomic, so
/// that one field manager owns all of it: ownership field by field would take as much space as the object
/// itself.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "description": "One aspect of the object's state.",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {
                    "type": "string",
                    "description": "Type of the condition, in CamelCase.",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
                "status": {
                    "type": "string",
                    "description": "Status of the condition.",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "type": "string",
                    "description": "Reason for the condition's last transition, in CamelCase, for programs.",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "type": "string",
                    "description": "Explanation for people, with the fix if there is one.",
                    "maxLength": 32768,
                },
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "Time at which the status last changed.",
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "The generation of the object that the condition describes.",
                },
            },
        },
    })
}
