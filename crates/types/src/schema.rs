//! The definitions (CRDs) of the kinds, and the parts of their schemas that several kinds share.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use kube_core::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::v1alpha1::{Datacenter, Machine, MachineClass, MachineProvider, NetworkConfiguration};

/// A rule about the whole object, which a derived schema has no place for: the rule and its message.
type ObjectRule = (&'static str, &'static str);

/// Everything made for a Machine is labelled with its name, and a label holds no more.
const NAME_FITS_LABEL: ObjectRule = (
    "self.metadata.name.size() <= 63",
    "metadata.name must have 63 characters or less: it labels everything that is made for the machine",
);

const NAME_IS_FREE: ObjectRule = (
    // The names of BUILT_IN_CLASSES; a test holds the two together.
    "!(self.metadata.name in ['small', 'medium', 'large'])",
    "metadata.name: small, medium and large are built in: choose another name",
);

/// The definition of every kind, in the order in which users meet them.
#[must_use]
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![
        definition::<Datacenter>(&[]),
        definition::<MachineProvider>(&[]),
        definition::<MachineClass>(&[NAME_IS_FREE]),
        definition::<Machine>(&[NAME_FITS_LABEL]),
        definition::<NetworkConfiguration>(&[]),
    ]
}

/// The definition of one kind, as it is installed.
fn definition<K: CustomResourceExt>(rules: &[ObjectRule]) -> CustomResourceDefinition {
    let mut definition = K::crd();
    for version in &mut definition.spec.versions {
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
    definition
}

/// Makes a derived schema say what Kubernetes understands: an absent field is absent rather than null, and integers
/// carry a format that the API server knows.
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

/// Takes the description off an enum's own schema: it would stand where the description of the field belongs.
pub fn described_by_its_field(schema: &mut Schema) {
    schema.remove("description");
    if let Some(variants) = schema.get_mut("oneOf").and_then(serde_json::Value::as_array_mut) {
        for variant in variants.iter_mut().filter_map(serde_json::Value::as_object_mut) {
            variant.remove("description");
        }
    }
}

/// A string that must match `pattern`; said by a rule rather than a schema pattern so that the message is the fix.
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
        "must be the name of an object: lower-case letters, digits, '-' and '.', such as web-1",
    )
}

/// The name of a namespace (a DNS label).
pub fn namespace_name(_: &mut SchemaGenerator) -> Schema {
    text(
        63,
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "must be the name of a namespace: lower-case letters, digits and '-', such as production",
    )
}

/// The name of something inside an object: a disk, an interface, a zone. No dots: KubeVirt refuses them.
pub fn part_name(_: &mut SchemaGenerator) -> Schema {
    text(
        63,
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "must be lower-case letters, digits and '-', such as root or eth0",
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

/// A place's or a thing's free name, for people: region, zone.
pub fn place_name(_: &mut SchemaGenerator) -> Schema {
    text(
        63,
        "^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$",
        "must be letters, digits, '-', '_' and '.', such as us-west-2",
    )
}

/// A list of places without doubles.
pub fn place_names(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": place_name(generator),
        "x-kubernetes-list-type": "set",
    })
}

/// The standard conditions of Kubernetes, bounded as its own generator bounds them. A condition belongs to one writer as
/// a whole: owned field by field, who owns it would take as much space as the object itself.
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
                    "description": "What the condition is about, in CamelCase.",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
                "status": {
                    "type": "string",
                    "description": "Whether the condition holds.",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "type": "string",
                    "description": "Why, as one word for programs.",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "type": "string",
                    "description": "Why, as a sentence for people, with the fix where there is one.",
                    "maxLength": 32768,
                },
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When the status last changed.",
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "The generation of the object that the condition speaks of.",
                },
            },
        },
    })
}
