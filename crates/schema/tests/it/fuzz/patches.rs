//! JSON patches, merge patches and strategic merge patches.

use serde_json::{Value, json};
use vitistack_schema::patch::{self, PatchError};
use vitistack_testkit::fuzz::{Draw, Target};

use super::{WORDS, depth, native, object, read};

/// The maximum size that the operations of a JSON patch may add by copying.
const MAX_COPIED: usize = 3 << 20;
/// The maximum depth of a patched object.
const MAX_DEPTH: usize = 128;

const POINTERS: [&str; 18] = [
    "",
    "/",
    "/spec",
    "/spec/a",
    "/spec/d",
    "/spec/d/-",
    "/spec/d/0",
    "/spec/d/-1",
    "/spec/d/-9",
    "/spec/d/00",
    "/spec/f/0/a",
    "/spec/e/x",
    "/spec/e/x/x/x",
    "/metadata/labels",
    "/spec/d/18446744073709551616",
    "/~2",
    "/a~1b~0",
    "x",
];

/// Draws the operations of a JSON patch, some of which are broken.
fn operations(draw: &mut Draw<'_>) -> Value {
    let count = draw.below(12);
    let operations = (0..count).map(|_| {
        let pointer = |draw: &mut Draw<'_>| {
            let steps = draw.pick(&[0, 0, 0, 1, 3, 60, 130]);
            format!("{}{}", draw.pick(&POINTERS), "/x".repeat(steps))
        };
        let kind = draw.pick(&["add", "remove", "replace", "move", "copy", "test", "copy", "x"]);
        let (path, from) = (pointer(draw), pointer(draw));
        json!({"op": kind, "path": path, "from": from, "value": draw.json(&WORDS)})
    });
    let mut operations = Value::Array(operations.collect());
    if draw.chance(20) {
        draw.mutate(&mut operations, &WORDS);
    }
    operations
}

fn build(draw: &mut Draw<'_>, corpus: &[Value]) -> Value {
    if draw.chance(20) {
        let mut input = draw.one_of(corpus).cloned().unwrap_or_default();
        draw.mutate(&mut input, &WORDS);
        return input;
    }
    let document = object(draw);
    let kind = draw.pick(&["json", "merge", "strategic"]);
    let patch = match kind {
        "json" => operations(draw),
        _ if draw.chance(50) => object(draw),
        _ => json!({"spec": draw.object(&WORDS), "metadata": draw.json(&WORDS)}),
    };
    json!({"document": document, "kind": kind, "patch": patch})
}

fn check(input: &Value) {
    let (document, patch) = (&input["document"], input["patch"].to_string());
    let apply = |document: &Value| -> Result<Value, PatchError> {
        match input["kind"].as_str() {
            Some("json") => patch::json(document, patch.as_bytes()),
            Some("merge") => patch::merge(document, patch.as_bytes()),
            _ => patch::strategic(document, patch.as_bytes(), &native()),
        }
    };
    let patched = match apply(document) {
        Ok(patched) => patched,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };

    assert!(depth(&patched) <= MAX_DEPTH, "the result has {} levels", depth(&patched));
    let text = patched.to_string();
    let limit = document.to_string().len() + patch.len() + MAX_COPIED;
    assert!(text.len() <= limit, "the result has {} bytes", text.len());
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), patched, "the result is stored and read again");
    if input["kind"] == "merge" {
        assert_eq!(apply(&patched).unwrap(), patched, "a merge patch changes nothing the second time");
    }
}

#[test]
fn patches() {
    let target = Target::new(env!("CARGO_MANIFEST_DIR"), "patches");
    let corpus = target.corpus(read);
    target.run(read, |draw| build(draw, &corpus), check);
}
