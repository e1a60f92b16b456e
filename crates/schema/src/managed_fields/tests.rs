//! Sequences of writes with recorded results of kube-apiserver 1.36.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Write, apply, check_applied, conflict_message, update};
use crate::{patch, schema::Schema};

#[derive(Deserialize)]
struct Step {
    operation: String,
    manager: String,
    force: bool,
    body: Value,
    status: u16,
    #[serde(default)]
    object: Option<Value>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    causes: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Scenario {
    name: String,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Table {
    schema: Value,
    scenarios: Vec<Scenario>,
}

fn time(step: usize) -> String {
    format!("2026-01-01T00:00:{step:02}Z")
}

/// Replaces the times in the table, which are the numbers of the steps that wrote them.
fn with_times(mut object: Value) -> Value {
    if let Some(entries) = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut) {
        for entry in entries {
            if let Some(step) = entry["time"].as_str().and_then(|text| text.strip_prefix('t')) {
                entry["time"] = json!(time(step.parse().unwrap()));
            }
        }
    }
    object
}

/// Adds the metadata that the server sets, so that later writes see it.
fn stored(mut object: Value) -> Value {
    object["metadata"]["uid"] = json!("u");
    object
}

fn run(live: Option<&Value>, step: &Step, number: usize, schema: &Schema) -> Result<Value, String> {
    let now = time(number);
    let write = Write { manager: &step.manager, subresource: "", api_version: "t.example/v1", time: &now };
    if step.operation == "apply" {
        check_applied(&step.body, schema)?;
        let mut object = apply(live, &step.body, &write, step.force, schema).map_err(|conflicts| {
            let found: Vec<(String, String)> = conflicts
                .iter()
                .map(|conflict| (format!("conflict with {}", conflict.manager), conflict.field.clone()))
                .collect();
            assert_eq!(found, step.causes);
            conflict_message(&conflicts)
        })?;
        schema.prune(&mut object);
        schema.default(&mut object);
        return Ok(object);
    }

    let mut new = match step.operation.as_str() {
        "merge" => patch::merge(live.unwrap(), step.body.to_string().as_bytes()).unwrap(),
        _ => step.body.clone(),
    };

    schema.prune(&mut new);
    schema.default(&mut new);
    if let Some(live) = live {
        new["metadata"]["uid"] = live["metadata"]["uid"].clone();
    }

    update(live, &mut new, &write, schema);
    Ok(new)
}

#[test]
fn a_sequence_of_writes_ends_as_on_kube_apiserver() {
    let table: Table = serde_json::from_str(include_str!("../../tests/cases/apply.json")).unwrap();
    let schema = Schema::compile(&table.schema).unwrap();
    let mut wrong = Vec::new();
    for scenario in table.scenarios {
        let mut live: Option<Value> = None;
        for (number, step) in scenario.steps.iter().enumerate() {
            let outcome = run(live.as_ref(), step, number, &schema);
            let expected = match &step.object {
                Some(object) => Ok(with_times(object.clone())),
                None => Err(step.message.clone().unwrap()),
            };
            let found = outcome.clone().map(|mut object| {
                object["metadata"].as_object_mut().unwrap().remove("uid");
                object
            });
            if found != expected {
                wrong.push(format!(
                    "{} step {number} ({})\n  expected {}\n  found    {}",
                    scenario.name,
                    step.status,
                    expected.as_ref().map_or_else(String::clone, ToString::to_string),
                    found.as_ref().map_or_else(String::clone, ToString::to_string),
                ));
            }
            // The next step starts from what kube-apiserver stored.
            if let Ok(object) = expected {
                live = Some(stored(object));
            }
        }
    }

    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns the fields that a create, or an apply of the same object, owns.
fn owned(schema: &Schema, object: &Value, applied: bool) -> Value {
    let write = Write { manager: "m", subresource: "", api_version: "v1", time: "2026-01-01T00:00:00Z" };
    let stored = if applied {
        apply(None, object, &write, false, schema).unwrap()
    } else {
        let mut new = object.clone();
        update(None, &mut new, &write, schema);
        new
    };
    stored["metadata"]["managedFields"][0]["fieldsV1"].clone()
}

#[test]
fn built_in_kinds_are_owned_as_on_kube_apiserver() {
    use k8s_openapi::{
        api::{
            coordination::v1::Lease,
            core::v1::{Event, PersistentVolumeClaim, Secret, ServiceAccount},
            rbac::v1::{ClusterRole, RoleBinding},
        },
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
        schemars::schema_for,
    };

    let native = |schema: k8s_openapi::schemars::Schema| Schema::native(schema.as_value());
    let named = |content: Value| {
        let mut object = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}});
        object.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        object
    };

    let cases = [
        (
            native(schema_for!(Secret)),
            json!({"metadata": {"annotations": {"a": "b"}}, "type": "Opaque", "data": {"k": "aGk="}, "immutable": false}),
            json!({"f:data": {".": {}, "f:k": {}}, "f:immutable": {}, "f:metadata": {"f:annotations": {".": {}, "f:a": {}}}, "f:type": {}}),
            json!({"f:data": {"f:k": {}}, "f:immutable": {}, "f:metadata": {"f:annotations": {"f:a": {}}}, "f:type": {}}),
        ),
        (
            native(schema_for!(ServiceAccount)),
            json!({"secrets": [{"name": "a"}], "imagePullSecrets": [{"name": "p"}]}),
            json!({"f:imagePullSecrets": {}, "f:secrets": {".": {}, "k:{\"name\":\"a\"}": {}}}),
            json!({"f:imagePullSecrets": {}, "f:secrets": {"k:{\"name\":\"a\"}": {}}}),
        ),
        (
            native(schema_for!(PersistentVolumeClaim)),
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "selector": {"matchLabels": {"a": "b"}},
                "resources": {"requests": {"storage": "1Gi"}}, "dataSourceRef": {"kind": "K", "name": "n"}}}),
            json!({"f:spec": {"f:accessModes": {}, "f:dataSourceRef": {".": {}, "f:kind": {}, "f:name": {}},
                "f:resources": {"f:requests": {".": {}, "f:storage": {}}}, "f:selector": {}}}),
            json!({"f:spec": {"f:accessModes": {}, "f:dataSourceRef": {"f:kind": {}, "f:name": {}},
                "f:resources": {"f:requests": {"f:storage": {}}}, "f:selector": {}}}),
        ),
        (
            native(schema_for!(Lease)),
            json!({"spec": {"holderIdentity": "x"}}),
            json!({"f:spec": {"f:holderIdentity": {}}}),
            json!({"f:spec": {"f:holderIdentity": {}}}),
        ),
        (
            native(schema_for!(Event)),
            json!({"involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "c"}, "count": 1}),
            json!({"f:count": {}, "f:involvedObject": {}, "f:source": {"f:component": {}}}),
            json!({"f:count": {}, "f:involvedObject": {}, "f:source": {"f:component": {}}}),
        ),
        (
            native(schema_for!(ClusterRole)),
            json!({"rules": [{"verbs": ["get"]}], "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}),
            json!({"f:aggregationRule": {".": {}, "f:clusterRoleSelectors": {}}, "f:rules": {}}),
            json!({"f:aggregationRule": {"f:clusterRoleSelectors": {}}, "f:rules": {}}),
        ),
        (
            native(schema_for!(RoleBinding)),
            json!({"roleRef": {"apiGroup": "g", "kind": "K", "name": "n"}, "subjects": [{"kind": "User", "name": "x"}]}),
            json!({"f:roleRef": {}, "f:subjects": {}}),
            json!({"f:roleRef": {}, "f:subjects": {}}),
        ),
        (
            native(schema_for!(CustomResourceDefinition)),
            json!({"spec": {"group": "g", "names": {"kind": "K", "shortNames": ["k"]}, "conversion": {"strategy": "None"},
                "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "string"}}}}}]}}),
            json!({"f:spec": {"f:conversion": {".": {}, "f:strategy": {}}, "f:group": {}, "f:names": {"f:kind": {}, "f:shortNames": {}}, "f:versions": {}}}),
            json!({"f:spec": {"f:conversion": {"f:strategy": {}}, "f:group": {}, "f:names": {"f:kind": {}, "f:shortNames": {}}, "f:versions": {}}}),
        ),
    ];

    for (schema, content, created, applied) in cases {
        let mut object = named(content);
        assert_eq!(schema.prune(&mut object), Vec::<String>::new());
        assert_eq!(owned(&schema, &object, false), created);
        assert_eq!(owned(&schema, &object, true), applied);
    }
}
