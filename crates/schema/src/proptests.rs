//! Properties that hold for any input: nothing panics, and apply is idempotent and can be reverted.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{
    Schema,
    managed_fields::{Write, apply, check_applied, update},
    patch,
};

fn document() -> Value {
    let text = json!({"type": "string"});
    let item =
        json!({"type": "object", "required": ["a"], "properties": {"a": text, "b": {"type": "integer"}}});
    json!({
        "type": "object",
        "properties": {
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}},
            "spec": {
                "type": "object",
                "x-kubernetes-validations": [
                    {"rule": "!has(self.a) || self.a != 'x'"},
                    {"rule": "!has(oldSelf.b) || has(self.b)"},
                    {"rule": "has(self.f) ? self.f.all(i, i.a.size() > 0) : true", "messageExpression": "'f: ' + self.a"},
                ],
                "properties": {
                    "a": {"type": "string", "minLength": 1, "pattern": "^[a-z]+$"},
                    "b": {"type": "integer", "minimum": 1, "multipleOf": 2, "default": 4},
                    "c": {"type": "object", "additionalProperties": text, "maxProperties": 2},
                    "d": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
                    "e": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "f": {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]},
                    "g": {"type": "array", "maxItems": 2, "items": {"type": "integer", "enum": [1, 2]}},
                    "h": {"x-kubernetes-int-or-string": true},
                    "i": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": text, "b": text}},
                    "j": {"type": "string", "format": "date-time", "nullable": true},
                },
                "anyOf": [{"required": ["a"]}, {"properties": {"b": {"minimum": 3}}}],
            },
        },
    })
}

/// A native schema over the same fields, for strategic patches.
fn native() -> Schema {
    Schema::native(&document())
}

fn names() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "a",
        "b",
        "c",
        "d",
        "e",
        "f",
        "g",
        "h",
        "i",
        "j",
        "spec",
        "metadata",
        "name",
        "labels",
        "finalizers",
        "managedFields",
        "ownerReferences",
        "uid",
        "$patch",
        "$retainKeys",
        "$setElementOrder/f",
        "$deleteFromPrimitiveList/d",
        "fieldsV1",
        "f:a",
        "k:{",
        ".",
    ])
    .prop_map(str::to_owned)
}

fn scalars() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0..5_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec![
            "",
            "a",
            "x",
            "é\u{0}",
            "delete",
            "replace",
            "Apply",
            "v1",
            "2024-01-02T03:04:05Z"
        ])
        .prop_map(Value::from),
    ]
}

/// Any JSON with meaningful field names.
fn values() -> impl Strategy<Value = Value> {
    scalars().prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::btree_map(names(), inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn objects() -> impl Strategy<Value = Value> {
    (values(), values()).prop_map(|(metadata, spec)| {
        json!({"apiVersion": "t.example/v1", "kind": "T", "metadata": metadata, "spec": spec})
    })
}

/// A well-formed configuration.
fn configurations() -> impl Strategy<Value = Value> {
    let text = prop::sample::select(vec!["a", "b", "c", "d"]);
    let texts = prop::collection::btree_set(text.clone(), 1..4);
    let items = prop::collection::btree_map(text.clone(), prop::option::of(0..9_i64), 1..4);
    (
        prop::option::of(text.clone()),
        prop::option::of(prop::collection::btree_map(text.clone(), text, 1..3)),
        prop::option::of(texts.clone()),
        prop::option::of(items),
        prop::option::of(texts),
    )
        .prop_map(|(a, c, d, f, labels)| {
            let mut spec = Map::new();
            if let Some(a) = a {
                spec.insert("a".to_owned(), json!(a));
            }
            if let Some(c) = c {
                spec.insert("c".to_owned(), json!(c));
            }
            if let Some(d) = d {
                spec.insert("d".to_owned(), json!(d));
            }
            if let Some(f) = f {
                let items = f.into_iter().map(|(a, b)| match b {
                    Some(b) => json!({"a": a, "b": b}),
                    None => json!({"a": a}),
                });
                spec.insert("f".to_owned(), items.collect());
            }
            let mut metadata = json!({"name": "x"});
            if let Some(labels) = labels {
                let labels: Map<String, Value> =
                    labels.into_iter().map(|name| (name.to_owned(), json!("x"))).collect();
                metadata["labels"] = Value::Object(labels);
            }
            // Empty objects are owned as such, and releasing them empties them for others too.
            let mut object = json!({"apiVersion": "t.example/v1", "kind": "T", "metadata": metadata});
            if !spec.is_empty() {
                object["spec"] = Value::Object(spec);
            }
            object
        })
}

fn write(manager: &str) -> Write<'_> {
    Write { manager, subresource: "", api_version: "t.example/v1", time: "2026-01-01T00:00:00Z" }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_object_panics_a_schema(mut new in objects(), mut old in objects()) {
        let schema = Schema::compile(&document()).unwrap();
        for object in [&mut new, &mut old] {
            schema.prune(object);
            schema.default(object);
        }
        let _ = schema.validate(&new, Some(&old));
        let _ = schema.validate_write(&new, None, true);
        let once = { schema.default(&mut new); new.clone() };
        schema.default(&mut new);
        prop_assert_eq!(once, new);
    }

    #[test]
    fn no_document_panics_the_compiler(document in values()) {
        let _ = Schema::compile(&document);
        let _ = Schema::compile(&json!({"type": "object", "properties": {"spec": document}}));
        let _ = Schema::native(&document);
    }

    #[test]
    fn no_rule_panics_the_compiler(rule in "[a-z0-9 ().,?:!&|<>=+\\-*/%'\\[\\]{}]{0,40}") {
        let mut document = document();
        document["properties"]["spec"]["x-kubernetes-validations"] = json!([{"rule": rule, "messageExpression": rule}]);
        if let Ok(schema) = Schema::compile(&document) {
            let _ = schema.validate(&json!({"spec": {"a": "b"}}), None);
        }
    }

    #[test]
    fn no_patch_panics(object in objects(), change in values(), path in "(/[a-z0-9~-]{0,3}){0,4}", operation in "add|remove|replace|test|move|copy|x") {
        let bytes = change.to_string();
        let _ = patch::merge(&object, bytes.as_bytes());
        let _ = patch::strategic(&object, bytes.as_bytes(), &native());
        let _ = patch::json(&object, bytes.as_bytes());
        let operations = json!([{"op": operation, "path": path, "from": "/spec", "value": change}]);
        let _ = patch::json(&object, operations.to_string().as_bytes());
    }

    #[test]
    fn no_write_panics_ownership(live in objects(), mut new in objects()) {
        let schema = Schema::compile(&document()).unwrap();
        let _ = check_applied(&new, &schema);
        let _ = apply(Some(&live), &new, &write("one"), false, &schema);
        let _ = apply(Some(&live), &new, &write("kubectl"), true, &schema);
        update(Some(&live), &mut new, &write("two"), &schema);
        update(None, &mut new, &write("two"), &schema);
    }

    #[test]
    fn applying_twice_changes_nothing(first in configurations(), second in configurations()) {
        let schema = Schema::compile(&document()).unwrap();
        let live = apply(None, &first, &write("one"), false, &schema).unwrap();
        let live = apply(Some(&live), &second, &write("two"), true, &schema).unwrap();
        let later = Write { time: "2026-01-01T00:00:09Z", ..write("two") };
        let again = apply(Some(&live), &second, &later, false, &schema).unwrap();
        prop_assert_eq!(live, again);
    }

    #[test]
    fn releasing_fields_does_not_affect_other_managers(first in configurations(), second in configurations()) {
        let schema = Schema::compile(&document()).unwrap();
        let alone = apply(None, &first, &write("one"), false, &schema).unwrap();
        let Ok(both) = apply(Some(&alone), &second, &write("two"), false, &schema) else { return Ok(()) };
        let empty = json!({"apiVersion": "t.example/v1", "kind": "T", "metadata": {"name": "x"}});
        let after = apply(Some(&both), &empty, &write("two"), false, &schema).unwrap();
        let again = apply(Some(&after), &first, &write("one"), false, &schema).unwrap();
        prop_assert_eq!(&after, &again, "the fields of the other manager changed");
        let managers = after.pointer("/metadata/managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
        prop_assert!(managers.iter().all(|entry| entry["manager"] == "one"));
    }

    #[test]
    fn an_update_that_changes_nothing_keeps_the_entries(config in configurations()) {
        let schema = Schema::compile(&document()).unwrap();
        let mut live = config;
        update(None, &mut live, &write("one"), &schema);
        let mut new = live.clone();
        let later = Write { time: "2026-01-01T00:00:09Z", ..write("two") };
        update(Some(&live), &mut new, &later, &schema);
        prop_assert_eq!(live, new);
    }
}
