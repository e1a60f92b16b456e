//! Server-side apply and the ownership of fields.

use serde_json::{Value, json};
use vitistack_schema::{
    Schema,
    managed_fields::{Write, apply, check_applied, conflict_message, update},
};
use vitistack_testkit::fuzz::{Draw, Target};

use super::{WORDS, custom, depth, object, read};

fn write(manager: &str) -> Write<'_> {
    Write { manager, subresource: "", api_version: "t.example/v1", time: "2026-01-01T00:00:00Z" }
}

fn build(draw: &mut Draw<'_>, corpus: &[Value]) -> Value {
    if draw.chance(20) {
        let mut input = draw.one_of(corpus).cloned().unwrap_or_default();
        draw.mutate(&mut input, &WORDS);
        return input;
    }
    let mut live = object(draw);
    if let (true, Some(fields)) = (draw.chance(20), live.as_object_mut()) {
        let metadata = json!({"name": "x", "managedFields": draw.json(&WORDS)});
        fields.insert("metadata".to_owned(), metadata);
    }
    json!({"live": live, "first": object(draw), "second": object(draw)})
}

/// Whether the server would accept the object.
fn is_valid(object: &Value, schema: &Schema) -> bool {
    object.is_object() && check_applied(object, schema).is_ok() && schema.validate(object, None).is_empty()
}

fn check(input: &Value) {
    let schema = custom();
    let (live, first, second) = (&input["live"], &input["first"], &input["second"]);
    let mut updated = second.clone();
    update(Some(live), &mut updated, &write("two"), &schema);
    if let Err(conflicts) = apply(Some(live), first, &write("one"), false, &schema) {
        assert!(!conflicts.is_empty() && !conflict_message(&conflicts).is_empty());
    }

    if !is_valid(first, &schema) || !is_valid(second, &schema) {
        return;
    }
    let one = apply(Some(live), first, &write("one"), true, &schema).unwrap();
    let two = apply(Some(&one), second, &write("two"), true, &schema).unwrap();
    assert!(depth(&two) <= 2 * depth(live).max(depth(first)).max(depth(second)) + 8);
    let later = Write { time: "2026-01-01T00:00:09Z", ..write("two") };
    let again = apply(Some(&two), second, &later, false, &schema).unwrap();
    assert_eq!(two, again, "an apply changes nothing the second time");
}

#[test]
fn applied_configurations() {
    let target = Target::new(env!("CARGO_MANIFEST_DIR"), "apply");
    let corpus = target.corpus(read);
    target.run(read, |draw| build(draw, &corpus), check);
}
