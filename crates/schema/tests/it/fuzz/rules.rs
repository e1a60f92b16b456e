//! Rules in the Common Expression Language.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vitistack_schema::Schema;
use vitistack_testkit::fuzz::{Draw, Target};

use super::{WORDS, document, object, read};

/// Far more than the budget of an object takes: 10 million units are a second or two in a debug build on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// The maximum size of all messages about one object.
const MESSAGE_LIMIT: usize = 1 << 20;

const VALUES: [&str; 34] = [
    "self",
    "self.a",
    "self.b",
    "self.c",
    "self.d",
    "self.e",
    "self.f",
    "self.g",
    "self.h",
    "self.i",
    "self.j",
    "oldSelf",
    "oldSelf.a",
    "oldSelf.g",
    "x",
    "y",
    "x.a",
    "true",
    "null",
    "0",
    "-1",
    "9223372036854775807",
    "1u",
    "1.5",
    "'a'",
    "b'a'",
    "''",
    "'2024-01-02T03:04:05Z'",
    "[]",
    "[1, 2]",
    "{}",
    "{'a': 1}",
    "self.?a",
    "100000",
];

const OPERATORS: [&str; 15] = [
    " + ", " - ", " * ", " / ", " % ", " == ", " != ", " < ", " >= ", " && ", " || ", " in ", ".", ", ",
    " ? x : ",
];

const FUNCTIONS: [&str; 52] = [
    "size",
    "has",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "bool",
    "type",
    "duration",
    "timestamp",
    "quantity",
    "url",
    "isURL",
    "ip",
    "cidr",
    "isIP",
    "lists.range",
    "matches",
    "contains",
    "startsWith",
    "endsWith",
    "split",
    "join",
    "replace",
    "substring",
    "trim",
    "lowerAscii",
    "upperAscii",
    "charAt",
    "indexOf",
    "lastIndexOf",
    "format",
    "find",
    "findAll",
    "isSorted",
    "sum",
    "min",
    "max",
    "flatten",
    "distinct",
    "reverse",
    "slice",
    "sort",
    "orValue",
    "hasValue",
    "value",
    "getHours",
    "getMilliseconds",
    "sets.contains",
    "math.greatest",
    "add",
];

const MACROS: [&str; 6] = ["all", "exists", "exists_one", "map", "filter", "nope"];

/// Draws an expression.
fn expression(draw: &mut Draw<'_>, levels: usize) -> String {
    if levels == 0 || draw.is_over() {
        return draw.pick(&VALUES).to_owned();
    }
    let inner = |draw: &mut Draw<'_>| expression(draw, levels - 1);
    match draw.below(9) {
        0 => draw.pick(&VALUES).to_owned(),
        1 | 2 => format!("{}{}{}", inner(draw), draw.pick(&OPERATORS), inner(draw)),
        3 => format!("{}({})", draw.pick(&FUNCTIONS), inner(draw)),
        4 => format!("{}.{}({})", inner(draw), draw.pick(&FUNCTIONS), inner(draw)),
        5 => format!("{}.{}(x, {})", inner(draw), draw.pick(&MACROS), inner(draw)),
        6 => format!("({})", inner(draw)),
        7 => format!("{}[{}]", inner(draw), inner(draw)),
        _ => format!("{}{}", draw.pick(&["!", "-"]), inner(draw)),
    }
}

/// Draws a rule: an expression that is a condition, or what is left of one.
fn rule(draw: &mut Draw<'_>) -> String {
    let levels = draw.below(6);
    let text = expression(draw, levels);
    match draw.below(5) {
        0 => text,
        1 => format!("size({text}) >= 0"),
        2 => format!("{text} == {text}"),
        3 => format!("{text}.all(x, x == x)"),
        _ => draw.mutated_text(
            &text,
            &["(", ")", "[", "'", "\\", "..", "self", "🦀", "\n", "0x", "e9", "'''", "r'"],
        ),
    }
}

fn build(draw: &mut Draw<'_>, corpus: &[Value]) -> Value {
    if draw.chance(20) {
        let mut input = draw.one_of(corpus).cloned().unwrap_or_default();
        draw.mutate(&mut input["object"], &WORDS);
        return input;
    }
    let mut object = object(draw);
    if let (true, Some(Value::Object(spec))) = (draw.chance(20), object.get_mut("spec")) {
        spec.insert("g".to_owned(), (0..draw.below(50)).map(Value::from).collect());
    }
    let message = if draw.chance(30) { rule(draw) } else { String::new() };
    json!({"rule": rule(draw), "messageExpression": message, "object": object})
}

/// Returns the schema with the rule, which is attached to the spec.
fn with_rule(input: &Value) -> Value {
    let mut document = document();
    document["properties"]["spec"]["x-kubernetes-validations"] =
        json!([{"rule": input["rule"], "messageExpression": input["messageExpression"], "message": "no"}]);
    if let Some(fields) = input.get("properties") {
        document["properties"]["spec"]["properties"] = fields.clone();
    }
    document
}

#[expect(clippy::disallowed_methods, reason = "the time that a rule takes is what is checked")]
fn check(input: &Value) {
    let started = Instant::now();
    match Schema::compile(&with_rule(input)) {
        Err(causes) => assert!(!causes.is_empty()),
        Ok(schema) => {
            let old = json!({"spec": {"a": "a", "b": 2, "g": [1, 2]}});
            for old in [None, Some(&old)] {
                let causes = schema.validate(&input["object"], old);
                let size: usize = causes.iter().map(|cause| cause.to_string().len()).sum();
                let object = input["object"].to_string().len();
                assert!(size <= MESSAGE_LIMIT + 2 * object, "the messages have {size} bytes");
                if let Some(quick) = schema.validate_quickly(&input["object"], old, false) {
                    assert_eq!(quick.causes, causes, "a budget that suffices changes nothing");
                }
            }
        }
    }
    assert!(started.elapsed() < TIME_LIMIT, "the rule took {:?}", started.elapsed());
}

#[test]
fn rules() {
    let target = Target::new(env!("CARGO_MANIFEST_DIR"), "rules");
    let corpus = target.corpus(read);
    target.run(read, |draw| build(draw, &corpus), check);
}
