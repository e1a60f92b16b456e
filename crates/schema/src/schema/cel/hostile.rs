//! Rules that would exhaust the time or the memory of the server.

use serde_json::{Value, json};

use crate::Schema;

fn schema(properties: &Value, rule: &str) -> Result<Schema, String> {
    let document = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": properties, "x-kubernetes-validations": [{"rule": rule}]},
    }});
    Schema::compile(&document).map_err(|causes| causes[0].to_string())
}

fn errors(properties: &Value, rule: &str, spec: &Value) -> Vec<String> {
    let schema = schema(properties, rule).unwrap();
    let object = json!({"spec": spec});
    schema.validate(&object, None).iter().map(ToString::to_string).collect()
}

fn integers(limit: Option<u64>) -> Value {
    let mut list = json!({"type": "array", "items": {"type": "integer"}});
    if let Some(limit) = limit {
        list["maxItems"] = limit.into();
    }
    json!({"a": list})
}

const NESTED: &str = "self.a.all(x, self.a.all(y, self.a.all(z, x + y + z < 1000000)))";

#[test]
fn nested_loops_over_a_list_without_a_limit_are_rejected_with_the_crd() {
    for rule in [
        NESTED,
        "self.a.all(x, self.a.exists(y, x != y))",
        "self.a.all(x, sets.contains(self.a, [x] + self.a))",
    ] {
        let error = schema(&integers(None), rule).err().unwrap_or_default();
        assert!(error.contains("estimated rule cost exceeds budget by factor of more than 100x"), "{error}");
    }

    assert!(schema(&integers(None), "self.a.all(x, x > 0)").is_ok(), "one loop is linear");
    assert!(schema(&integers(Some(100)), NESTED).is_ok(), "short lists may be nested");
}

#[test]
fn unique_names_in_a_list_of_large_objects_are_cheap_enough() {
    let name = json!({"type": "string", "maxLength": 63});
    let list = json!({"type": "array", "maxItems": 256, "items": {"type": "object", "properties": {
        "name": name, "text": {"type": "string"}, "more": {"type": "array", "items": {"type": "string"}},
    }}});
    let rule = "self.a.all(x, self.a.exists_one(y, x.name == y.name))";
    let items: Vec<Value> = (0..100).map(|index| json!({"name": format!("n{index}")})).collect();
    assert_eq!(errors(&json!({"a": list}), rule, &json!({"a": items})), Vec::<String>::new());
}

#[test]
fn a_rule_that_loops_too_long_ends_at_the_budget() {
    let items: Vec<u64> = (0..150).collect();
    let found = errors(&integers(Some(150)), NESTED, &json!({"a": items}));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("running out of cost budget, no further validation rules will be run"),
        "{found:?}"
    );
    let short: Vec<u64> = (0..20).collect();
    assert_eq!(errors(&integers(Some(150)), NESTED, &json!({"a": short})), Vec::<String>::new());
}

#[test]
fn an_error_inside_a_loop_does_not_hide_an_exceeded_budget() {
    let items: Vec<u64> = (0..150).collect();
    let rule = format!("{NESTED} || true");
    let found = errors(&integers(Some(150)), &rule, &json!({"a": items}));
    assert!(found[0].contains("cost budget"), "{found:?}");
}

#[test]
fn a_range_is_limited() {
    let number = json!({"a": {"type": "integer"}});
    let found = errors(&number, "lists.range(self.a).size() >= 0", &json!({"a": 1_000_000_000}));
    assert!(found[0].contains("range argument must not exceed 100000"), "{found:?}");
    assert_eq!(errors(&number, "lists.range(self.a).size() == 3", &json!({"a": 3})), Vec::<String>::new());
    assert!(schema(&number, "lists.range(1000000000).size() > 0").is_err());
}

#[test]
fn a_rule_that_creates_a_large_value_is_not_evaluated() {
    let text = json!({"s": {"type": "string"}, "a": {"type": "array", "maxItems": 100, "items": {"type": "integer"}}});
    let items: Vec<u64> = (0..100).collect();
    let spec = json!({"s": "x".repeat(100_000), "a": items});
    let doubled = format!("size({}) > 0", vec!["self.s"; 400].join(" + "));
    for rule in [
        doubled.as_str(),
        "size(self.s.replace('', self.s)) > 0",
        "[self.s].map(a, a + a).map(b, b + b).map(c, c + c).map(d, d + d).map(e, e + e).map(f, f + f).map(g, g + g).map(h, h + h).size() > 0",
        "self.a.map(x, self.a.map(y, self.a.map(z, self.s))).size() > 0",
    ] {
        if schema(&text, rule).is_err() {
            continue;
        }
        let found = errors(&text, rule, &spec);
        assert!(found.first().is_some_and(|error| error.contains("cost budget")), "{rule}: {found:?}");
    }
}

#[test]
fn the_precision_of_a_format_is_limited() {
    let number = json!({"a": {"type": "number"}});
    let found = errors(&number, "'%.100000000f'.format([self.a]).size() > 0", &json!({"a": 1.5}));
    assert!(found[0].contains("precision"), "{found:?}");
    assert_eq!(
        errors(&number, "'%.2f'.format([self.a]) == '1.50'", &json!({"a": 1.5})),
        Vec::<String>::new()
    );
}

#[test]
fn expensive_rules_are_not_evaluated_quickly() {
    let schema = schema(&integers(Some(150)), NESTED).unwrap();
    let short: Vec<u64> = (0..5).collect();
    let long: Vec<u64> = (0..150).collect();
    assert!(schema.validate_quickly(&json!({"spec": {"a": short}}), None, false).is_some());
    assert!(schema.validate_quickly(&json!({"spec": {"a": long}}), None, false).is_none());
}

#[test]
fn long_lists_may_be_walked_once() {
    let items: Vec<u64> = (0..20_000).collect();
    assert_eq!(
        errors(&integers(None), "self.a.all(x, x >= 0) && self.a.exists(x, x == 5)", &json!({"a": items})),
        Vec::<String>::new()
    );
}
