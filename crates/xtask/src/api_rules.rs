//! The API rules, checked on the generated schemas: fields are described and bounded, no floats, standard conditions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;
use snafu::{ResultExt, Whatever, whatever};
use vitistack_schema::Schema;
use vitistack_types::{CATEGORY, definitions};

/// Short names of well-known kinds, which would make `kubectl get` ambiguous.
const TAKEN: [&str; 24] = [
    "cl",
    "cm",
    "csr",
    "dc",
    "dv",
    "ev",
    "ma",
    "md",
    "mp",
    "ms",
    "nc",
    "net-attach-def",
    "no",
    "ns",
    "po",
    "pv",
    "pvc",
    "sa",
    "sc",
    "vm",
    "vmi",
    "vs",
    "vsc",
    "vsclass",
];

/// Checks every CRD.
pub fn run() -> Result<(), Whatever> {
    let mut problems = Vec::new();
    for definition in definitions() {
        problems.extend(judge(&definition)?);
    }
    if !problems.is_empty() {
        whatever!("{}", problems.join("\n"));
    }
    Ok(())
}

fn judge(definition: &CustomResourceDefinition) -> Result<Vec<String>, Whatever> {
    let kind = &definition.spec.names.kind;
    let mut problems = names(definition);
    for version in &definition.spec.versions {
        let columns: Vec<&str> =
            version.additional_printer_columns.iter().flatten().map(|column| column.name.as_str()).collect();
        if !columns.starts_with(&["Ready", "Phase"]) || columns.last() != Some(&"Age") {
            problems.push(format!(
                "{kind}: printer columns must begin with Ready and Phase and end with Age, not {columns:?}"
            ));
        }
        if version.subresources.as_ref().is_none_or(|subresources| subresources.status.is_none()) {
            problems.push(format!("{kind}: has no status subresource"));
        }
        let Some(schema) = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref())
        else {
            problems.push(format!("{kind}: version {} has no schema", version.name));
            continue;
        };
        let schema = serde_json::to_value(schema).whatever_context("failed to read a schema")?;
        for cause in Schema::compile(&schema).err().unwrap_or_default() {
            problems.push(format!("{kind}: the schema does not compile: {cause}"));
        }
        let conditions =
            schema.pointer("/properties/status/properties/conditions/x-kubernetes-list-map-keys/0");
        if conditions.and_then(Value::as_str) != Some("type") {
            problems.push(format!("{kind}.status.conditions: is not the standard list of conditions"));
        }
        for part in ["spec", "status"] {
            if let Some(schema) = schema.pointer(&format!("/properties/{part}")) {
                walk(schema, &format!("{kind}.{part}"), &mut problems);
            }
        }
        rules(&schema, kind, &mut problems);
    }
    Ok(problems)
}

fn names(definition: &CustomResourceDefinition) -> Vec<String> {
    let names = &definition.spec.names;
    let kind = &names.kind;
    let mut problems = Vec::new();
    let short_names: Vec<&str> = names.short_names.iter().flatten().map(String::as_str).collect();
    if short_names.is_empty() {
        problems.push(format!("{kind}: has no short name"));
    }
    for taken in short_names.iter().filter(|name| TAKEN.contains(name)) {
        problems.push(format!("{kind}: the short name {taken:?} is taken by a well-known kind"));
    }
    if !names.categories.iter().flatten().any(|category| category == CATEGORY) {
        problems.push(format!("{kind}: is not in the category {CATEGORY}"));
    }
    problems
}

fn has(schema: &Value, name: &str) -> bool {
    schema.get(name).is_some()
}

fn walk(schema: &Value, path: &str, problems: &mut Vec<String>) {
    let mut report = |rule: &str| problems.push(format!("{path}: {rule}"));
    if schema.get("description").and_then(Value::as_str).is_none_or(str::is_empty) {
        report("has no description");
    }
    if has(schema, "nullable") || has(schema, "default") {
        report("must be absent rather than null or defaulted: defaults belong to the code");
    }
    let in_spec = path.contains(".spec");
    match schema.get("type").and_then(Value::as_str) {
        Some("string")
            if !["enum", "pattern", "maxLength", "format"].iter().any(|bound| has(schema, bound)) =>
        {
            report("is a string without enum, pattern or maxLength");
        }
        Some("integer") if !has(schema, "minimum") || (in_spec && !has(schema, "maximum")) => {
            report("is an integer without bounds");
        }
        Some("number") => report("is a float: use an integer or a quantity"),
        Some("array") => {
            if !has(schema, "maxItems") {
                report("is a list without maxItems");
            }
            if !has(schema, "x-kubernetes-list-type") {
                report("is a list without a list type");
            }
            if let Some(items) = schema.get("items") {
                // The description of the list also describes its items.
                for (name, property) in
                    items.get("properties").and_then(Value::as_object).into_iter().flatten()
                {
                    walk(property, &format!("{path}[].{name}"), problems);
                }
            }
        }
        Some("object") => {
            if has(schema, "x-kubernetes-preserve-unknown-fields") || !has(schema, "properties") {
                report("is an object without named fields");
            }
            for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten()
            {
                walk(property, &format!("{path}.{name}"), problems);
            }
        }
        Some("string" | "integer" | "boolean") => {}
        other => report(&format!("has the type {other:?}")),
    }
}

/// Checks that every validation rule has a message, which states the fix.
fn rules(schema: &Value, path: &str, problems: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            for rule in fields.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten()
            {
                if rule.get("message").and_then(Value::as_str).is_none_or(str::is_empty) {
                    problems.push(format!("{path}: a rule has no message: {rule}"));
                }
            }
            for (name, value) in fields {
                rules(value, &format!("{path}.{name}"), problems);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| rules(item, path, problems)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_problem_names_the_path_of_the_field() {
        let mut problems = Vec::new();
        let schema = json!({
            "type": "object", "description": "Spec.",
            "properties": {
                "text": { "type": "string", "description": "Unbounded." },
                "number": { "type": "number", "description": "Float." },
                "count": { "type": "integer", "minimum": 0, "description": "No maximum." },
                "list": { "type": "array", "items": { "type": "string" } },
                "anything": { "type": "object", "description": "Open.", "x-kubernetes-preserve-unknown-fields": true },
            },
        });
        walk(&schema, "Kind.spec", &mut problems);
        problems.sort();
        assert_eq!(
            problems,
            [
                "Kind.spec.anything: is an object without named fields",
                "Kind.spec.count: is an integer without bounds",
                "Kind.spec.list: has no description",
                "Kind.spec.list: is a list without a list type",
                "Kind.spec.list: is a list without maxItems",
                "Kind.spec.number: is a float: use an integer or a quantity",
                "Kind.spec.text: is a string without enum, pattern or maxLength",
            ]
        );
    }
}
