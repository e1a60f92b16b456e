//! Fuzz targets: what a client sends never panics, and what is accepted keeps its promises.
//!
//! `VITISTACK_FUZZ_SECONDS` sets how long each target runs; CONTRIBUTING.md explains how to replay an input.

mod apply;
mod patches;
mod rules;
mod schemas;

use serde_json::{Map, Value, json};
use vitistack_schema::Schema;
use vitistack_testkit::fuzz::{Draw, Vocabulary};

/// Words that mean something to schemas, patches and field ownership.
const WORDS: Vocabulary<'static> = Vocabulary {
    names: &[
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
        "apiVersion",
        "kind",
        "metadata",
        "name",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "uid",
        "managedFields",
        "manager",
        "operation",
        "fieldsType",
        "fieldsV1",
        "f:a",
        "f:spec",
        "k:{\"a\":\"x\"}",
        "k:{",
        "v:1",
        ".",
        "spec",
        "status",
        "$patch",
        "$retainKeys",
        "$setElementOrder/f",
        "$setElementOrder/d",
        "$deleteFromPrimitiveList/d",
    ],
    texts: &[
        "",
        "a",
        "x",
        "b",
        "delete",
        "replace",
        "merge",
        "Apply",
        "Update",
        "FieldsV1",
        "t.example/v1",
        "v1",
        "one",
        "two",
        "2024-01-02T03:04:05Z",
        "$patch",
        "é\u{0}",
        "é",
    ],
};

/// The schema of one kind, with every form of list and map.
fn document() -> Value {
    let text = json!({"type": "string"});
    let item =
        json!({"type": "object", "required": ["a"], "properties": {"a": text, "b": {"type": "integer"}}});
    json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "a": {"type": "string", "minLength": 1, "pattern": "^[a-z]+$"},
                    "b": {"type": "integer", "minimum": 1, "multipleOf": 2, "default": 4},
                    "c": {"type": "object", "additionalProperties": text, "maxProperties": 9},
                    "d": {"type": "array", "maxItems": 50, "items": text, "x-kubernetes-list-type": "set"},
                    "e": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "f": {"type": "array", "maxItems": 50, "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]},
                    "g": {"type": "array", "maxItems": 50, "items": {"type": "integer"}},
                    "h": {"x-kubernetes-int-or-string": true},
                    "i": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": text, "b": text}},
                    "j": {"type": "string", "format": "date-time", "nullable": true},
                },
            },
            "status": {"type": "object", "properties": {"a": text}},
        },
    })
}

/// The same kind, compiled as a CRD.
fn custom() -> Schema {
    Schema::compile(&document()).unwrap()
}

/// The same kind, compiled as a built-in one.
fn native() -> Schema {
    let mut document = document();
    let fields = &mut document["properties"]["spec"]["properties"];
    fields["f"]["x-kubernetes-patch-strategy"] = "merge".into();
    fields["f"]["x-kubernetes-patch-merge-key"] = "a".into();
    fields["d"]["x-kubernetes-patch-strategy"] = "merge".into();
    Schema::native(&document)
}

/// Draws an object of the kind, of which single places are wrong.
fn object(draw: &mut Draw<'_>) -> Value {
    let mut spec = Map::new();
    for _ in 0..draw.below(9) {
        let (name, value) = field(draw);
        spec.insert(name.to_owned(), value);
    }
    let mut metadata = json!({"name": "x"});
    if draw.chance(40) {
        metadata["labels"] = json!({draw.pick(&["a", "b"]): "x"});
    }
    if draw.chance(20) {
        metadata["finalizers"] = json!(["a/b"]);
    }
    let mut object = json!({"apiVersion": "t.example/v1", "kind": "T", "metadata": metadata, "spec": spec});
    if draw.chance(30) {
        draw.mutate(&mut object, &WORDS);
    }
    object
}

/// Draws a field of the spec with a value of its type.
fn field(draw: &mut Draw<'_>) -> (&'static str, Value) {
    let name = draw.pick(&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]);
    let text = |draw: &mut Draw<'_>| draw.pick(&["a", "b", "x", "xy"]);
    let list = |draw: &mut Draw<'_>, item: fn(&mut Draw<'_>) -> Value| {
        let count = draw.below(6);
        Value::Array((0..count).map(|_| item(draw)).collect())
    };
    let value = match name {
        "a" => text(draw).into(),
        "b" => (2 * draw.below(9)).into(),
        "c" | "i" => json!({text(draw): text(draw), "b": "b"}),
        "d" => list(draw, |draw| draw.pick(&["a", "b", "c", "d", "e"]).into()),
        "e" => Value::Object(draw.object(&WORDS)),
        "f" => list(draw, |draw| json!({"a": draw.pick(&["a", "b", "c", "d"]), "b": draw.below(3)})),
        "g" => list(draw, |draw| draw.below(5).into()),
        "h" => draw.pick(&["1", "50%"]).into(),
        _ => "2024-01-02T03:04:05Z".into(),
    };
    (name, value)
}

/// The number of levels of a value.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// Reads a file of a corpus.
fn read(content: &[u8]) -> Value {
    serde_json::from_slice(content).unwrap()
}
