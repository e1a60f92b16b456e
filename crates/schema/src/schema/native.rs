//! Schemas of built-in kinds: JSON schemas with references, and the metadata that every resource has.

use serde_json::{Map, Value, json};

use super::MAX_DEPTH;

/// Our own keyword for an object that exists even when it is empty, because Go stores it by value. Its
/// presence has no owner, only its fields do.
pub(crate) const ALWAYS_PRESENT: &str = "x-always-present";

/// The format of quantities such as `1Gi`; a CRD cannot use it.
pub const QUANTITY: &str = "kubernetes quantity";

/// Types that server-side apply treats as one value.
const ATOMIC_TYPES: [&str; 15] = [
    "ConfigMapKeySelector",
    "LabelSelector",
    "LocalObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ObjectReference",
    "OwnerReference",
    "ResourceFieldSelector",
    "RoleRef",
    "SecretKeySelector",
    "SecretReference",
    "Subject",
    "TopologySelectorTerm",
    "TypedLocalObjectReference",
];

/// Lists of built-in types that are merged, with the merge key of their items.
const MERGED_LISTS: [(&str, &str, &str); 4] = [
    ("ServiceAccount", "secrets", "name"),
    ("NamespaceStatus", "conditions", "type"),
    ("PersistentVolumeClaimStatus", "conditions", "type"),
    ("CustomResourceDefinitionStatus", "conditions", "type"),
];

/// Fields of built-in types that are always present.
const PRESENT_FIELDS: [(&str, &str); 5] = [
    ("PersistentVolumeClaimSpec", "resources"),
    ("CustomResourceDefinitionSpec", "names"),
    ("CustomResourceDefinitionStatus", "acceptedNames"),
    ("Event", "source"),
    ("Event", "deprecatedSource"),
];

/// The fields of `metadata`, with the list types that server-side apply and strategic merge patches use.
pub(crate) fn object_meta() -> Value {
    let text = json!({"type": "string"});
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let owner = json!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "apiVersion": text, "kind": text, "name": text, "uid": text,
            "controller": {"type": "boolean"}, "blockOwnerDeletion": {"type": "boolean"},
        },
    });

    let entry = json!({
        "type": "object",
        "properties": {
            "manager": text, "operation": text, "apiVersion": text, "time": text, "fieldsType": text,
            "fieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}, "subresource": text,
        },
    });

    json!({
        "type": "object",
        "properties": {
            "name": text, "generateName": text, "namespace": text, "selfLink": text, "uid": text,
            "resourceVersion": text, "generation": {"type": "integer"},
            "creationTimestamp": text, "deletionTimestamp": text,
            "deletionGracePeriodSeconds": {"type": "integer"},
            "labels": texts, "annotations": texts,
            "ownerReferences": {
                "type": "array", "items": owner,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
            },
            "finalizers": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
            "managedFields": {"type": "array", "items": entry, "x-kubernetes-list-type": "atomic"},
        },
    })
}

/// Replaces every reference by the definition that it refers to.
pub(crate) fn resolve(document: &Value) -> Value {
    let mut resolved = expand(document, document, &mut Vec::new(), 0);
    if let Some(name) = document.get("title").and_then(Value::as_str) {
        describe(name, &mut resolved);
    }
    for name in ["spec", "status"] {
        mark(&mut resolved, name, ALWAYS_PRESENT, json!(true));
    }
    if let Some(properties) = resolved.get_mut("properties").and_then(Value::as_object_mut)
        && properties.contains_key("metadata")
    {
        properties.insert("metadata".to_owned(), object_meta());
    }
    resolved
}

/// Adds what Kubernetes defines for a type beyond its JSON schema, unless the document already has it.
fn describe(name: &str, resolved: &mut Value) {
    let name = name.rsplit(['.', '/']).next().unwrap_or_default();
    if let (true, Some(fields)) = (ATOMIC_TYPES.contains(&name), resolved.as_object_mut()) {
        fields.entry("x-kubernetes-map-type").or_insert_with(|| json!("atomic"));
    }
    if let (true, Some(fields)) = (name == "Quantity", resolved.as_object_mut()) {
        fields.entry("format").or_insert_with(|| json!(QUANTITY));
    }
    for (_, field, key) in MERGED_LISTS.iter().filter(|(owner, _, _)| *owner == name) {
        mark(resolved, field, "x-kubernetes-list-type", json!("map"));
        mark(resolved, field, "x-kubernetes-list-map-keys", json!([key]));
    }
    for (_, field) in PRESENT_FIELDS.iter().filter(|(owner, _)| *owner == name) {
        mark(resolved, field, ALWAYS_PRESENT, json!(true));
    }
}

/// Adds a keyword to a field that exists and does not have it yet.
fn mark(resolved: &mut Value, field: &str, keyword: &str, value: Value) {
    let field = resolved.get_mut("properties").and_then(|properties| properties.get_mut(field));
    if let Some(fields) = field.and_then(Value::as_object_mut) {
        fields.entry(keyword).or_insert(value);
    }
}

/// A subtree without a schema.
fn anything() -> Value {
    json!({"x-kubernetes-preserve-unknown-fields": true})
}

fn expand<'a>(node: &'a Value, root: &'a Value, open: &mut Vec<&'a str>, depth: usize) -> Value {
    let Some(fields) = node.as_object() else { return anything() };
    if depth > MAX_DEPTH / 2 {
        return anything();
    }

    if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        // A type that contains itself would recurse without end.
        let (Some(target), false) = (target, open.contains(&reference)) else { return anything() };
        open.push(reference);
        let mut resolved = expand(target, root, open, depth);
        open.pop();
        describe(reference, &mut resolved);
        if let Some(target) = resolved.as_object_mut() {
            for (keyword, value) in fields.iter().filter(|(keyword, _)| *keyword != "$ref") {
                target.insert(keyword.clone(), value.clone());
            }
        }
        return resolved;
    }

    if let Some(inner) = optional_inner(fields) {
        return expand(inner, root, open, depth);
    }
    let mut out = Map::new();
    for (keyword, value) in fields {
        let value = match (keyword.as_str(), value) {
            ("$defs" | "definitions" | "components" | "$schema" | "title", _) => continue,
            ("properties", Value::Object(properties)) => {
                let expanded = |(name, child): (&String, &'a Value)| {
                    (name.clone(), expand(child, root, &mut open.clone(), depth + 1))
                };
                Value::Object(properties.iter().map(expanded).collect())
            }
            ("items" | "additionalProperties" | "not", Value::Object(_)) => {
                expand(value, root, open, depth + 1)
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => {
                branches.iter().map(|branch| expand(branch, root, &mut open.clone(), depth + 1)).collect()
            }
            ("type", Value::Array(types)) => {
                types.iter().find(|kind| *kind != "null").cloned().unwrap_or_else(|| json!(""))
            }
            _ => value.clone(),
        };
        out.insert(keyword.clone(), value);
    }

    Value::Object(out)
}

/// Returns the schema inside `anyOf: [schema, null]` or `allOf: [schema]`, which generators use for optional
/// fields.
fn optional_inner(fields: &Map<String, Value>) -> Option<&Value> {
    if let Some([only]) = fields.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        return Some(only);
    }
    let [first, second] = fields.get("anyOf")?.as_array()?.as_slice() else { return None };
    let is_null = |branch: &Value| branch.get("type") == Some(&json!("null"));
    match (is_null(first), is_null(second)) {
        (false, true) => Some(first),
        (true, false) => Some(second),
        _ => None,
    }
}
