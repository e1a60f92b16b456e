//! Recorded responses of kube-apiserver 1.36, one row per rule.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Cause, Schema};

#[derive(Deserialize)]
struct Expected {
    field: String,
    reason: String,
    message: String,
}

#[derive(Deserialize)]
struct Case {
    spec: Value,
    causes: Vec<Expected>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    schema: Value,
    #[serde(default)]
    old: Option<Value>,
    /// Whether kube-apiserver accepts the rule and this crate rejects it with a clear message.
    #[serde(default)]
    unsupported: bool,
    #[serde(default)]
    cases: Vec<Case>,
    #[serde(default)]
    causes: Vec<Expected>,
}

fn rows(text: &str) -> Vec<Row> {
    serde_json::from_str(text).unwrap()
}

/// Sorts, because kube-apiserver reports sibling fields in random order.
fn sorted_expected(causes: &[Expected]) -> Vec<String> {
    let mut lines: Vec<String> =
        causes.iter().map(|cause| format!("{} [{}] {}", cause.field, cause.reason, cause.message)).collect();
    lines.sort();
    lines
}

fn sorted(causes: &[Cause]) -> Vec<String> {
    let mut lines: Vec<String> = causes
        .iter()
        .map(|cause| format!("{} [{}] {}", cause.field, cause.reason.as_str(), cause.message))
        .collect();
    lines.sort();
    lines
}

fn object(spec: &Value) -> Value {
    json!({"apiVersion": "t.example/v1", "kind": "Row", "metadata": {"name": "x"}, "spec": spec})
}

/// Prepares an object as a write does before validation.
fn admitted(schema: &Schema, spec: &Value) -> Value {
    let mut object = object(spec);
    schema.prune(&mut object);
    schema.default(&mut object);
    object
}

fn check_cases(rows: Vec<Row>) {
    let mut wrong = Vec::new();
    for row in rows {
        let schema = match Schema::compile(&row.schema) {
            Ok(schema) => schema,
            Err(causes) => {
                wrong.push(format!("{}: rejected: {causes:#?}", row.name));
                continue;
            }
        };
        let old = row.old.as_ref().map(|old| admitted(&schema, old));
        for case in row.cases {
            let found = sorted(&schema.validate(&admitted(&schema, &case.spec), old.as_ref()));
            let expected = sorted_expected(&case.causes);
            if found != expected {
                wrong.push(format!(
                    "{} {}\n  expected {expected:#?}\n  found {found:#?}",
                    row.name, case.spec
                ));
            }
        }
    }

    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn an_object_is_rejected_with_the_causes_of_kube_apiserver() {
    check_cases(rows(include_str!("../../tests/cases/validate.json")));
}

#[test]
fn an_update_is_rejected_with_the_causes_of_kube_apiserver() {
    check_cases(rows(include_str!("../../tests/cases/update.json")));
}

#[test]
fn a_schema_is_rejected_with_the_causes_of_kube_apiserver() {
    let mut wrong = Vec::new();
    for row in rows(include_str!("../../tests/cases/compile.json")) {
        let found = Schema::compile(&row.schema).err().unwrap_or_default();
        let found: Vec<Cause> = found
            .into_iter()
            .map(|cause| Cause {
                field: format!("spec.validation.{}", cause.field),
                message: cause
                    .message
                    .replace("within openAPI", "within spec.validation.openAPI")
                    .replace("in openAPI", "in spec.validation.openAPI"),
                ..cause
            })
            .collect();
        let (found, expected) = (sorted(&found), sorted_expected(&row.causes));
        if row.unsupported {
            assert!(found.iter().any(|line| line.contains("this server does not support it")), "{found:?}");
            continue;
        }
        if found != expected {
            wrong.push(format!("{}\n  expected {expected:#?}\n  found {found:#?}", row.name));
        }
    }

    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_fields_of_status_errors_start_at_status() {
    let schema = Schema::compile(&json!({"type": "object", "properties": {"status": {
        "type": "object",
        "required": ["p"],
        "properties": {
            "p": {"type": "string", "pattern": "^x"},
            "n": {"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]},
            "r": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1"}]},
        },
    }}}))
    .unwrap();

    let blocked = "<nil> [FieldValueInvalid] Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
    let cases = [
        (json!({}), vec![blocked, "status.p [FieldValueRequired] Required value"]),
        (
            json!({"p": "y"}),
            vec!["status.p [FieldValueInvalid] Invalid value: \"y\": p in body should match '^x'"],
        ),
        (
            json!({"p": "x", "n": 3}),
            vec![
                "status [FieldValueInvalid] Invalid value: \"\": \"n\" must validate at least one schema (anyOf)",
                "status.n [FieldValueInvalid] Invalid value: 3: n in body should be greater than or equal to 5",
            ],
        ),
        (
            json!({"p": "x", "r": 1}),
            vec!["status.r [FieldValueInvalid] Invalid value: 1: failed rule: self > 1"],
        ),
        (
            json!("x"),
            vec![
                blocked,
                "status [FieldValueTypeInvalid] Invalid value: \"string\":  in body must be of type object: \"string\"",
            ],
        ),
    ];

    for (status, expected) in cases {
        let object = json!({"spec": {}, "status": status});
        assert_eq!(sorted(&schema.validate_write(&object, None, true).causes), expected);
    }
}

#[test]
fn a_built_in_kind_is_compiled_from_its_json_schema() {
    let schema = Schema::native(&json!({
        "$ref": "#/$defs/Thing",
        "$defs": {
            "Thing": {
                "type": "object",
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"description": "odd", "type": "object"},
                    "spec": {"$ref": "#/$defs/Spec", "description": "the spec"},
                    "free": {"type": "object"},
                },
                "required": ["metadata"],
            },
            "Spec": {
                "type": "object",
                "properties": {
                    "size": {"type": ["integer", "null"], "format": "int32"},
                    "self": {"anyOf": [{"$ref": "#/$defs/Spec"}, {"type": "null"}]},
                    "data": {"type": "object", "additionalProperties": {"type": "string", "format": "byte"}},
                },
            },
        },
    }));

    let mut object = json!({"apiVersion": "v1", "kind": "Thing", "top": 1, "metadata": {"name": "x", "odd": 1},
        "free": {"any": {"thing": 1}}, "spec": {"size": null, "foo": 1, "self": {"bar": {"baz": 1}}, "data": {"k": "aGk="}}});
    assert_eq!(schema.prune(&mut object), ["metadata.odd", "spec.foo", "top"]);
    schema.default(&mut object);
    assert_eq!(
        object,
        json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "x"}, "free": {"any": {"thing": 1}},
               "spec": {"self": {"bar": {"baz": 1}}, "data": {"k": "aGk="}}})
    );

    assert_eq!(schema.validate(&object, None), []);
}

#[test]
fn excessive_nesting_is_rejected() {
    let mut document = json!({"type": "string"});
    for _ in 0..100 {
        document = json!({"type": "object", "properties": {"a": document}});
    }
    assert!(Schema::compile(&document).is_err());
    let rule = format!("{}true{}", "(".repeat(5000), ")".repeat(5000));
    for rule in [rule, "!".repeat(20_000) + "true", vec!["true"; 5000].join(" && "), "[".repeat(3000)] {
        let document = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}]});
        let _ = Schema::compile(&document);
    }
}
