//! The requirements on the schema of a CRD.
//!
//! A structural schema specifies the type of every field outside of `allOf`, `anyOf`, `oneOf` and `not`;
//! these contain only value checks, and only for fields that are declared outside. The walk visits the
//! document rather than the nodes, because it checks keywords that nodes do not store.

use serde_json::{Map, Value, json};

use super::{Additional, Cause, Node, Schema, default, path::NIL, prune, validate};

/// The location of a schema in the document.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Checks a document that was read without errors.
pub(crate) fn check(document: &Value, root: &Node, path: &str, causes: &mut Vec<Cause>) {
    let Some(fields) = document.as_object() else { return };
    let mut found = Vec::new();
    check_keywords(fields, path, &mut found);
    if found.is_empty() {
        check_spine(fields, Level::Root, path, &mut found);
        check_complete(fields, root, path, &mut found);
        found.sort_by_key(ToString::to_string);
    }
    causes.append(&mut found);
}

/// Returns every schema inside a schema, with its path.
fn children<'a>(fields: &'a Map<String, Value>, path: &str) -> Vec<(&'a Map<String, Value>, String)> {
    let mut out = Vec::new();
    if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
        for (name, child) in properties {
            out.push((child, format!("{path}.properties[{name}]")));
        }
    }

    for keyword in ["additionalProperties", "items", "not"] {
        if let Some(child) = fields.get(keyword) {
            out.push((child, format!("{path}.{keyword}")));
        }
    }

    for keyword in ["allOf", "anyOf", "oneOf"] {
        for (index, child) in list(fields, keyword).iter().enumerate() {
            out.push((child, format!("{path}.{keyword}[{index}]")));
        }
    }
    out.into_iter().filter_map(|(child, path)| Some((child.as_object()?, path))).collect()
}

fn list<'a>(fields: &'a Map<String, Value>, keyword: &str) -> &'a [Value] {
    fields.get(keyword).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(fields: &'a Map<String, Value>, keyword: &str) -> &'a str {
    fields.get(keyword).and_then(Value::as_str).unwrap_or_default()
}

fn flag(fields: &Map<String, Value>, keyword: &str) -> bool {
    fields.get(keyword) == Some(&Value::Bool(true))
}

/// Checks keywords that are forbidden everywhere, and those that require each other.
fn check_keywords(fields: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    const UNSUPPORTED: [&str; 6] =
        ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];
    for keyword in UNSUPPORTED {
        if fields.contains_key(keyword) {
            causes
                .push(Cause::forbidden(format!("{path}.{keyword}"), &format!("{keyword} is not supported")));
        }
    }

    if flag(fields, "uniqueItems") {
        causes.push(Cause::forbidden(
            format!("{path}.uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ));
    }

    let has_properties =
        fields.get("properties").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    let additional = fields.get("additionalProperties").filter(|value| !value.is_null());
    if has_properties && additional.is_some_and(|additional| *additional != Value::Bool(true)) {
        causes.push(Cause::forbidden(
            format!("{path}.additionalProperties"),
            "additionalProperties and properties are mutual exclusive",
        ));
    }

    if fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        causes.push(Cause::invalid(
            format!("{path}.x-kubernetes-preserve-unknown-fields"),
            &Value::Bool(false),
            "must be true or undefined",
        ));
    }

    check_map_type(fields, path, causes);
    check_list_type(fields, path, causes);
    for (child, child_path) in children(fields, path) {
        check_keywords(child, &child_path, causes);
    }
}

fn check_map_type(fields: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    let Some(map_type) = fields.get("x-kubernetes-map-type") else { return };
    wants_type(fields, "object", "must be object if x-kubernetes-map-type is specified", path, causes);
    if map_type != "atomic" && map_type != "granular" {
        let field = format!("{path}.x-kubernetes-map-type");
        causes.push(Cause::not_supported(&field, map_type, &["atomic", "granular"]));
    }
}

fn wants_type(fields: &Map<String, Value>, kind: &str, detail: &str, path: &str, causes: &mut Vec<Cause>) {
    match text(fields, "type") {
        found if found == kind => {}
        "" => causes.push(Cause::required(format!("{path}.type"), detail)),
        found => causes.push(Cause::invalid(format!("{path}.type"), &json!(found), detail)),
    }
}

fn check_list_type(fields: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    let keys: Vec<&str> =
        list(fields, "x-kubernetes-list-map-keys").iter().filter_map(Value::as_str).collect();
    let list_type_field = format!("{path}.x-kubernetes-list-type");
    let keys_field = format!("{path}.x-kubernetes-list-map-keys");
    let Some(list_type) = fields.get("x-kubernetes-list-type") else {
        if !keys.is_empty() {
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            causes.push(Cause::required(list_type_field, detail));
        }
        return;
    };

    wants_type(fields, "array", "must be array if x-kubernetes-list-type is specified", path, causes);
    let items = fields.get("items").and_then(Value::as_object);
    match list_type.as_str() {
        Some("atomic") => {}
        Some("set") => {
            if items.is_some_and(|items| {
                text(items, "type") == "object" && text(items, "x-kubernetes-map-type") != "atomic"
            }) {
                causes.push(Cause::invalid(
                    format!("{path}.items.x-kubernetes-map-type"),
                    &Value::Null,
                    "must be atomic as item of a list with x-kubernetes-list-type=set",
                ));
            }
        }
        Some("map") => {
            if keys.is_empty() {
                let detail = "must not be empty if x-kubernetes-list-type is map";
                causes.push(Cause::required(keys_field, detail));
            }
            check_map_keys(items, &keys, path, causes);
            return;
        }
        _ => causes.push(Cause::not_supported(&list_type_field, list_type, &["atomic", "set", "map"])),
    }

    if !keys.is_empty() {
        causes.push(Cause::invalid(
            list_type_field,
            list_type,
            "must be map if x-kubernetes-list-map-keys is non-empty",
        ));
    }
}

fn check_map_keys(items: Option<&Map<String, Value>>, keys: &[&str], path: &str, causes: &mut Vec<Cause>) {
    let Some(items) = items else {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        causes.push(Cause::required(format!("{path}.items"), detail));
        return;
    };

    let items_type = text(items, "type");
    if items_type != "object" {
        causes.push(Cause::invalid(
            format!("{path}.items.type"),
            &json!(items_type),
            "must be object if parent array's x-kubernetes-list-type is map",
        ));
        return;
    }

    let properties = items.get("properties").and_then(Value::as_object);
    for (index, key) in keys.iter().enumerate() {
        let property = properties.and_then(|properties| properties.get(*key)).and_then(Value::as_object);
        let keys_field = format!("{path}.x-kubernetes-list-map-keys");
        match property {
            None => causes.push(Cause::invalid(
                keys_field.clone(),
                &json!(keys),
                "entries must all be names of item properties",
            )),
            Some(property) => {
                if matches!(text(property, "type"), "array" | "object") {
                    causes.push(Cause::invalid(
                        format!("{path}.items.properties[{key}].type"),
                        &json!(items_type),
                        "must be a scalar type if parent array's x-kubernetes-list-type is map",
                    ));
                }
                let required = list(items, "required").iter().any(|name| name == key);
                if !required && property.get("default").is_none_or(Value::is_null) {
                    causes.push(Cause::required(
                        format!("{path}.items.properties[{key}].default"),
                        "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
                    ));
                }
                if flag(property, "nullable") {
                    causes.push(Cause::forbidden(
                        format!("{path}.items.properties[{key}].nullable"),
                        "this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
                    ));
                }
            }
        }
        if keys.iter().take(index).any(|earlier| earlier == key) {
            causes.push(Cause::invalid(keys_field, &json!(keys), "must not contain duplicate entries"));
        }
    }
}

/// Checks the part of a schema that specifies types.
fn check_spine(fields: &Map<String, Value>, level: Level, path: &str, causes: &mut Vec<Cause>) {
    let kind = text(fields, "type");
    let embedded = flag(fields, "x-kubernetes-embedded-resource");
    let int_or_string = flag(fields, "x-kubernetes-int-or-string");
    let preserve = flag(fields, "x-kubernetes-preserve-unknown-fields");
    if kind == "array" && !fields.contains_key("items") {
        causes.push(Cause::required(format!("{path}.items"), "must be specified"));
    }

    let additional = fields.get("additionalProperties").filter(|value| !value.is_null());
    if additional.is_some() && level == Level::Root {
        causes.push(Cause::forbidden(format!("{path}.additionalProperties"), "must not be used at the root"));
    }

    if additional.is_some() && embedded {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        causes.push(Cause::forbidden(format!("{path}.additionalProperties"), detail));
    }

    for (other, keyword) in
        [(preserve, "x-kubernetes-preserve-unknown-fields"), (embedded, "x-kubernetes-embedded-resource")]
    {
        if int_or_string && other {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            causes.push(Cause::invalid(format!("{path}.{keyword}"), &Value::Bool(true), detail));
        }
    }

    if embedded {
        wants_type(
            fields,
            "object",
            "must be object if x-kubernetes-embedded-resource is true",
            path,
            causes,
        );
        let has_properties =
            fields.get("properties").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
        if !preserve && !has_properties {
            causes.push(Cause::required(
                format!("{path}.properties"),
                "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            ));
        }
    } else if kind.is_empty() && !int_or_string && !preserve {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        causes.push(Cause::required(format!("{path}.type"), detail));
    }

    if level == Level::Root && !kind.is_empty() && kind != "object" {
        causes.push(Cause::invalid(format!("{path}.type"), &json!(kind), "must be object at the root"));
    }
    check_resource_fields(fields, level, embedded, path, causes);
    check_junctors(fields, int_or_string, path, causes);

    for (child, child_path) in children(fields, path) {
        let below = child_path.get(path.len()..).unwrap_or_default();
        if below == ".items" {
            check_spine(child, Level::Item, &child_path, causes);
        } else if below.starts_with(".properties[") || below == ".additionalProperties" {
            check_spine(child, Level::Field, &child_path, causes);
        }
    }
}

fn check_resource_fields(
    fields: &Map<String, Value>,
    level: Level,
    embedded: bool,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    let property = |name: &str| {
        fields.get("properties").and_then(|properties| properties.get(name)).and_then(Value::as_object)
    };
    if level != Level::Root && !embedded {
        return;
    }

    for name in ["apiVersion", "kind"] {
        if let Some(found) =
            property(name).map(|property| text(property, "type")).filter(|kind| *kind != "string")
        {
            causes.push(Cause::invalid(
                format!("{path}.properties[{name}].type"),
                &json!(found),
                "must be string",
            ));
        }
    }

    let Some(metadata) = property("metadata") else { return };
    let field = format!("{path}.properties[metadata]");
    let kind = text(metadata, "type");
    if kind != "object" {
        causes.push(Cause::invalid(format!("{field}.type"), &json!(kind), "must be object"));
    }

    if level == Level::Root {
        let names_only = metadata
            .get("properties")
            .and_then(Value::as_object)
            .is_none_or(|properties| properties.keys().all(|name| name == "name" || name == "generateName"));
        let nothing_else = metadata.keys().all(|keyword| {
            matches!(keyword.as_str(), "type" | "properties" | "description" | "default" | "title" | "format")
        });
        if !names_only || !nothing_else {
            causes.push(Cause::forbidden(
                field,
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            ));
        }
    }
}

/// Checks `allOf` and the like; the two ways to write int-or-string with types are accepted.
fn check_junctors(fields: &Map<String, Value>, int_or_string: bool, path: &str, causes: &mut Vec<Cause>) {
    let is_pattern = |branches: &[Value]| branches == [json!({"type": "integer"}), json!({"type": "string"})];
    for keyword in ["anyOf", "allOf", "oneOf"] {
        let branches = list(fields, keyword);
        if keyword == "anyOf" && int_or_string && is_pattern(branches) {
            continue;
        }
        for (index, branch) in branches.iter().enumerate() {
            let Some(branch) = branch.as_object() else { continue };
            let skip = keyword == "allOf" && index == 0 && int_or_string && is_pattern(list(branch, "anyOf"));
            check_nested(branch, skip, &format!("{path}.{keyword}[{index}]"), causes);
        }
    }

    if let Some(branch) = fields.get("not").and_then(Value::as_object) {
        check_nested(branch, false, &format!("{path}.not"), causes);
    }
}

/// Checks that a schema under `allOf` and the like does not specify types.
fn check_nested(fields: &Map<String, Value>, skip_any_of: bool, path: &str, causes: &mut Vec<Cause>) {
    const FORBIDDEN: [(&str, &str); 13] = [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ];

    for (keyword, detail) in FORBIDDEN {
        let harmless = matches!(fields.get(keyword), None | Some(Value::Null | Value::Bool(false)));
        if !harmless {
            causes.push(Cause::forbidden(format!("{path}.{keyword}"), detail));
        }
    }

    for (child, child_path) in children(fields, path) {
        let below = child_path.get(path.len()..).unwrap_or_default();
        if below == ".properties[metadata]" {
            causes.push(Cause::forbidden(child_path.clone(), "must not be specified in a nested context"));
        }
        if below != ".additionalProperties" && !(skip_any_of && below.starts_with(".anyOf")) {
            check_nested(child, false, &child_path, causes);
        }
    }
}

/// Checks that the fields under `allOf` and the like are declared outside.
fn check_complete(fields: &Map<String, Value>, node: &Node, path: &str, causes: &mut Vec<Cause>) {
    for keyword in ["not", "allOf", "anyOf", "oneOf"] {
        let branches = match fields.get(keyword) {
            Some(Value::Array(branches)) => branches
                .iter()
                .enumerate()
                .map(|(index, branch)| (branch, format!("{path}.{keyword}[{index}]")))
                .collect(),
            Some(branch) => vec![(branch, format!("{path}.{keyword}"))],
            None => Vec::new(),
        };
        for (branch, branch_path) in branches {
            if let Some(branch) = branch.as_object() {
                check_branch_complete(branch, Some(node), path, &branch_path, causes);
            }
        }
    }
}

fn check_branch_complete(
    branch: &Map<String, Value>,
    node: Option<&Node>,
    spine: &str,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    let Some(node) = node else {
        causes.push(Cause::required(spine, &format!("because it is defined in {path}")));
        return;
    };

    for keyword in ["not", "allOf", "anyOf", "oneOf"] {
        for (child, child_path) in children(branch, path) {
            if child_path.get(path.len() + 1..).is_some_and(|below| below.starts_with(keyword)) {
                check_branch_complete(child, Some(node), spine, &child_path, causes);
            }
        }
    }

    if let Some(items) = branch.get("items").and_then(Value::as_object) {
        check_branch_complete(
            items,
            node.items.as_deref(),
            &format!("{spine}.items"),
            &format!("{path}.items"),
            causes,
        );
    }

    if let Some(properties) = branch.get("properties").and_then(Value::as_object) {
        for (name, child) in properties {
            if let Some(child) = child.as_object() {
                check_branch_complete(
                    child,
                    node.properties.get(name),
                    &format!("{spine}.properties[{name}]"),
                    &format!("{path}.properties[{name}]"),
                    causes,
                );
            }
        }
    }
}

/// Checks that the schema accepts its defaults, without undeclared fields.
pub(crate) fn check_defaults(node: &Node, path: &str, schema: &Schema, causes: &mut Vec<Cause>) {
    if let Some(value) = &node.default {
        let mut pruned = value.clone();
        let field = format!("{path}.default");
        if prune::prune_value(schema, &mut pruned, node).is_empty() {
            default::fill(&mut pruned, node, 0);
            for mut cause in validate::run(node, &pruned, None) {
                cause.field = match cause.field.as_str() {
                    NIL => field.clone(),
                    below => format!("{field}.{below}"),
                };
                causes.push(cause);
            }
        } else {
            causes.push(Cause::invalid(field, value, "must not have unknown fields"));
        }
    }

    for (name, child) in &node.properties {
        check_defaults(child, &format!("{path}.properties[{name}]"), schema, causes);
    }
    if let Some(child) = node.items.as_deref() {
        check_defaults(child, &format!("{path}.items"), schema, causes);
    }

    if let Additional::Schema(child) = &node.additional {
        check_defaults(child, &format!("{path}.additionalProperties"), schema, causes);
    }
}
