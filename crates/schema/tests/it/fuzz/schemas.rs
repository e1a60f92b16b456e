//! Schemas of CRDs, and objects of their kinds.

use serde_json::{Map, Value, json};
use vitistack_schema::Schema;
use vitistack_testkit::fuzz::{Draw, Target, Vocabulary};

use super::{WORDS, object, read};

/// Words of schemas.
const KEYWORDS: Vocabulary<'static> = Vocabulary {
    names: &[
        "type",
        "properties",
        "items",
        "additionalProperties",
        "required",
        "default",
        "enum",
        "format",
        "pattern",
        "nullable",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minProperties",
        "maxProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "$ref",
        "x-kubernetes-int-or-string",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-map-type",
        "x-kubernetes-validations",
        "rule",
        "a",
        "spec",
    ],
    texts: &[
        "object",
        "array",
        "string",
        "integer",
        "number",
        "boolean",
        "date-time",
        "int32",
        "byte",
        "atomic",
        "set",
        "map",
        "granular",
        "a",
        "^[a-z]+$",
        "(a+)+$",
        "[",
        "self == self",
        "#/definitions/a",
    ],
};

/// Draws the schema of a value.
fn schema(draw: &mut Draw<'_>, levels: usize) -> Value {
    let kinds: &[&str] = match levels {
        0 => &["string", "integer", "number", "boolean", "any"],
        _ => &["object", "array", "map", "string", "integer", "object", "free", "embedded", "any"],
    };
    let mut schema = match draw.pick(kinds) {
        "object" => {
            let fields: Map<String, Value> = (0..draw.below(5))
                .map(|_| {
                    (draw.pick(&["a", "b", "c", "d", "e", "metadata"]).to_owned(), schema_below(draw, levels))
                })
                .collect();
            let mut schema = json!({"type": "object", "properties": fields});
            if draw.chance(20) {
                schema["x-kubernetes-preserve-unknown-fields"] = true.into();
            }
            schema
        }
        "array" => {
            let mut schema = json!({"type": "array", "items": schema_below(draw, levels)});
            match draw.below(5) {
                0 => schema["x-kubernetes-list-type"] = "set".into(),
                1 => {
                    schema["x-kubernetes-list-type"] = "map".into();
                    schema["x-kubernetes-list-map-keys"] = json!(["a"]);
                    schema["items"]["type"] = "object".into();
                    schema["items"]["required"] = json!(["a"]);
                }
                2 => schema["maxItems"] = draw.below(4).into(),
                _ => {}
            }
            schema
        }
        "map" => json!({"type": "object", "additionalProperties": schema_below(draw, levels)}),
        "free" => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        "embedded" => {
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true})
        }
        "any" => json!({"x-kubernetes-int-or-string": true}),
        "string" => scalar(draw, "string", &["format", "pattern", "maxLength", "enum"]),
        other => scalar(draw, other, &["minimum", "maximum", "multipleOf", "enum"]),
    };

    if draw.chance(25) {
        schema["default"] = if draw.chance(50) { json!({}) } else { draw.json(&WORDS) };
    }
    if draw.chance(15) {
        schema["nullable"] = true.into();
    }
    if draw.chance(10) {
        schema["x-kubernetes-validations"] =
            json!([{"rule": draw.pick(&["self == self", "has(self.a)", "self.a > 1", "oldSelf == self"])}]);
    }
    schema
}

fn schema_below(draw: &mut Draw<'_>, levels: usize) -> Value {
    schema(draw, levels - 1)
}

fn scalar(draw: &mut Draw<'_>, kind: &str, keywords: &[&str]) -> Value {
    let mut schema = json!({"type": kind});
    if draw.chance(50) {
        let value = match draw.pick(keywords) {
            "format" => draw.pick(&["date-time", "byte", "uuid", "ipv4", "duration", "int32", "nope"]).into(),
            "pattern" => draw.pick(&["^[a-z]+$", "(a+)+$", "[", "\\p{L}", "^(?=a)"]).into(),
            "enum" => json!(["a", "b", 1, 2]),
            _ => draw.below(9).into(),
        };
        let keyword = draw.pick(keywords);
        schema[keyword] = value;
    }
    schema
}

fn build(draw: &mut Draw<'_>, corpus: &[Value]) -> Value {
    if draw.chance(15) {
        let mut input = draw.one_of(corpus).cloned().unwrap_or_default();
        draw.mutate(&mut input["schema"], &KEYWORDS);
        draw.mutate(&mut input["object"], &WORDS);
        return input;
    }
    let levels = draw.below(5);
    let mut document = json!({"type": "object", "properties": {"spec": schema(draw, levels)}});
    if draw.chance(20) {
        draw.mutate(&mut document, &KEYWORDS);
    }
    let object = if draw.chance(30) { object(draw) } else { json!({"spec": draw.json(&WORDS)}) };
    json!({"schema": document, "object": object})
}

fn check(input: &Value) {
    let _ = Schema::native(&input["schema"]);
    let schema = match Schema::compile(&input["schema"]) {
        Ok(schema) => schema,
        Err(causes) => {
            assert!(!causes.is_empty());
            return;
        }
    };

    let mut object = input["object"].clone();
    schema.prune(&mut object);
    let pruned = object.clone();
    assert_eq!(schema.prune(&mut object), Vec::<String>::new(), "pruned fields are gone");
    assert_eq!(object, pruned, "pruning changes nothing the second time");

    schema.default(&mut object);
    let defaulted = object.clone();
    schema.default(&mut object);
    assert_eq!(object, defaulted, "defaulting changes nothing the second time");
    // Defaults with the fields of a resource are accepted when a CRD is created, and pruned later.
    let is_of_resource =
        |path: &&String| [".apiVersion", ".kind", ".metadata"].iter().any(|end| path.ends_with(end));
    let dropped = schema.prune(&mut object);
    assert!(dropped.iter().all(|path| is_of_resource(&path)), "defaults are declared fields: {dropped:?}");

    let old = schema.validate_write(&object, Some(&input["object"]), false);
    assert!(old.causes.iter().all(|cause| !cause.to_string().is_empty()));
    let _ = schema.validate_write(&object, None, true);
    if schema.validate(&object, None).is_empty() {
        let unchanged = schema.validate(&object, Some(&object));
        assert!(
            unchanged
                .iter()
                .all(|cause| cause.to_string().contains("failed rule") || cause.to_string().contains("rule")),
            "{unchanged:?}"
        );
    }
}

#[test]
fn schemas() {
    let target = Target::new(env!("CARGO_MANIFEST_DIR"), "schemas");
    let corpus = target.corpus(read);
    target.run(read, |draw| build(draw, &corpus), check);
}
