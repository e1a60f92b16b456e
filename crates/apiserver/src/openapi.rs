//! OpenAPI v3: the documents that kubectl uses for `explain` and to detect server-side validation.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::registry::{Resource, Served};

/// `/openapi/v3`.
#[must_use]
pub fn index(served: &Served) -> Value {
    let mut paths = Map::new();
    for (group, versions) in &served.groups {
        for (version, _) in versions {
            let path =
                if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
            let text = document(served, group, version).unwrap_or_default().to_string();
            let hash: Vec<String> =
                Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02X}")).collect();
            let url = format!("/openapi/v3/{path}?hash={}", hash.concat());
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// Returns the name of a kind's schema: the reversed domain of the group, the version, the kind.
fn schema_name(resource: &Resource) -> String {
    let group = match resource.group.as_str() {
        "" => "io.k8s.api.core".to_owned(),
        "apiextensions.k8s.io" => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions".to_owned(),
        group => match group.strip_suffix(".k8s.io") {
            Some(name) => format!("io.k8s.api.{}", name.split('.').next().unwrap_or_default()),
            None => group.split('.').rev().collect::<Vec<_>>().join("."),
        },
    };
    format!("{group}.{}.{}", resource.version, resource.kind)
}

/// `/openapi/v3/api/v1`, `/openapi/v3/apis/GROUP/VERSION`.
#[must_use]
pub fn document(served: &Served, group: &str, version: &str) -> Option<Value> {
    let versions = served.groups.get(group)?;
    let (_, resources) = versions.iter().find(|(name, _)| name == version)?;
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for resource in resources {
        add_schemas(resource, &mut schemas);
        add_paths(resource, &mut paths);
    }
    let own = resources.iter().any(|resource| resource.kind_rules().is_some());
    let title = if own { "Kubernetes" } else { "Kubernetes CRD Swagger" };
    Some(json!({
        "openapi": "3.0.0", "info": {"title": title, "version": "v1.36.3"},
        "paths": paths, "components": {"schemas": schemas},
    }))
}

/// Rewrites references from the schema generator's location of definitions to that of OpenAPI.
fn relocate(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(target)) = members.get_mut("$ref") {
                *target = target.replace("#/$defs/", "#/components/schemas/");
                // OpenAPI 3.0 ignores everything beside a reference, but not a description next to allOf.
                if members.len() > 1
                    && let Some(target) = members.remove("$ref")
                {
                    members.insert("allOf".to_owned(), json!([{"$ref": target}]));
                }
            }
            members.values_mut().for_each(relocate);
        }
        Value::Array(items) => items.iter_mut().for_each(relocate),
        _ => {}
    }
}

fn add_schemas(resource: &Resource, schemas: &mut Map<String, Value>) {
    let name = schema_name(resource);
    let mut schema = match resource.kind_rules() {
        Some(kind) => (kind.schema)(),
        None => custom_schema(resource),
    };

    if let Some(members) = schema.as_object_mut() {
        members.remove("$schema");
        members.remove("title");
        if let Some(Value::Object(definitions)) = members.remove("$defs") {
            for (name, mut definition) in definitions {
                relocate(&mut definition);
                schemas.insert(name, definition);
            }
        }
        let kind = json!([{"group": resource.group, "version": resource.version, "kind": resource.kind}]);
        members.insert("x-kubernetes-group-version-kind".to_owned(), kind);
        let fields = resource.selectable.iter().filter(|field| !field.starts_with("metadata."));
        let fields: Vec<Value> = fields.map(|field| json!({"fieldPath": field})).collect();
        if resource.kind_rules().is_none() && !fields.is_empty() {
            members.insert("x-kubernetes-selectable-fields".to_owned(), Value::Array(fields));
        }
    }

    relocate(&mut schema);
    schemas.insert(name.clone(), schema);
    let list = json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "type": "object", "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
            "items": {"type": "array", "items": {"$ref": format!("#/components/schemas/{name}")}},
        },
        "x-kubernetes-group-version-kind": [{"group": resource.group, "version": resource.version, "kind": resource.list_kind}],
    });

    let list_name = schema_name(resource);
    let list_name = list_name.strip_suffix(&resource.kind).unwrap_or(&list_name);
    schemas.insert(format!("{list_name}{}", resource.list_kind), list);
}

/// Returns the schema of a CRD with the fields that every object has.
fn custom_schema(resource: &Resource) -> Value {
    let mut schema = resource.schema().document().clone();
    let generator = k8s_openapi::schemars::SchemaGenerator::default();
    let metadata =
        generator.into_root_schema_for::<k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>();
    let mut metadata = metadata.to_value();
    let mut definitions =
        metadata.as_object_mut().and_then(|members| members.remove("$defs")).unwrap_or_else(|| json!({}));

    if let Some(definitions) = definitions.as_object_mut() {
        definitions.insert("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta".to_owned(), metadata);
    }
    let reference = "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    if let Some(members) = schema.as_object_mut() {
        let properties = members.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            properties.insert("apiVersion".to_owned(), json!({"type": "string", "description": API_VERSION}));
            properties.insert("kind".to_owned(), json!({"type": "string", "description": KIND}));
            properties.insert("metadata".to_owned(), json!({"description": METADATA, "$ref": reference}));
        }
        members.insert("$defs".to_owned(), definitions);
    }

    schema
}

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

fn parameter(name: &str, kind: &str) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
}

fn operation(resource: &Resource, action: &str, writes: bool, list: bool) -> Value {
    let name = schema_name(resource);
    let name = if list {
        format!("{}{}", name.strip_suffix(&resource.kind).unwrap_or(&name), resource.list_kind)
    } else {
        name
    };

    let content = json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{name}")}}});
    let mut operation = json!({
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
    });

    if let Some(members) = operation.as_object_mut()
        && writes
    {
        let mut parameters = vec![
            parameter("dryRun", "string"),
            parameter("fieldManager", "string"),
            parameter("fieldValidation", "string"),
        ];
        if action == "patch" {
            parameters.push(parameter("force", "boolean"));
        }
        members.insert("parameters".to_owned(), Value::Array(parameters));
    }

    operation
}

fn add_paths(resource: &Resource, paths: &mut Map<String, Value>) {
    let base = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };

    let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("{base}{scope}/{}", resource.plural);
    if resource.is_review() {
        paths.insert(collection, json!({"post": operation(resource, "post", true, false)}));
        return;
    }

    let mut all = json!({"get": operation(resource, "list", false, true), "post": operation(resource, "post", true, false)});
    if let Some(members) = all.as_object_mut()
        && resource.verbs().contains(&"deletecollection")
    {
        members.insert("delete".to_owned(), operation(resource, "deletecollection", true, false));
    }

    paths.insert(collection.clone(), all);
    if resource.namespaced {
        paths.insert(
            format!("{base}/{}", resource.plural),
            json!({"get": operation(resource, "list", false, true)}),
        );
    }

    let one = json!({
        "get": operation(resource, "get", false, false), "put": operation(resource, "put", true, false),
        "patch": operation(resource, "patch", true, false), "delete": operation(resource, "delete", true, false),
    });

    paths.insert(format!("{collection}/{{name}}"), one);
    if resource.status {
        let status = json!({
            "get": operation(resource, "get", false, false), "put": operation(resource, "put", true, false),
            "patch": operation(resource, "patch", true, false),
        });
        paths.insert(format!("{collection}/{{name}}/status"), status);
    }
}
