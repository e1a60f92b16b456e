//! Writes recorded responses into the case files and leaves every other line unchanged.

use std::fmt::Write as _;

use serde_json::Value;

use super::case::Expect;

/// The maximum width of a value on one line.
const WIDTH: usize = 110;

/// Returns the text of a case file with new responses. A step starts with `  - `, and `expect` is its last
/// key, which is all the grammar that is needed.
pub fn record(text: &str, responses: &[Expect]) -> String {
    let mut responses = responses.iter();
    let mut out = String::new();
    let mut in_steps = false;
    let mut in_step = false;
    let mut in_expect = false;

    for line in text.lines() {
        if in_steps && line.starts_with("  - ") {
            if in_step {
                push_response(&mut out, responses.next());
            }
            in_step = true;
            in_expect = false;
        } else if line.starts_with("    expect:") && in_step {
            in_expect = true;
        }
        in_steps |= line == "steps:";
        if !in_expect {
            out.push_str(line);
            out.push('\n');
        }
    }

    if in_step {
        push_response(&mut out, responses.next());
    }
    out
}

fn push_response(out: &mut String, answer: Option<&Expect>) {
    let Some(answer) = answer else { return };
    out.push_str("    expect:\n");
    writeln!(out, "      status: {}", answer.status).unwrap();
    if let Some(media_type) = &answer.media_type {
        push_entry(out, 6, "type", &Value::from(media_type.as_str()));
    }

    if !answer.warnings.is_empty() {
        push_entry(out, 6, "warnings", &Value::from(answer.warnings.clone()));
    }
    if let Some(events) = &answer.events {
        push_entry(out, 6, "events", &Value::Array(events.clone()));
    }

    if !answer.body.is_null() {
        push_entry(out, 6, "body", &answer.body);
    }
}

/// Formats `key: value`, on one line if it fits.
fn push_entry(out: &mut String, indent: usize, key: &str, value: &Value) {
    let start = format!("{}{}:", " ".repeat(indent), scalar(key));
    let line = flow(value);
    if start.len() + 1 + line.len() <= WIDTH || !is_branch(value) {
        writeln!(out, "{start} {line}").unwrap();
        return;
    }
    writeln!(out, "{start}").unwrap();
    push_block(out, indent + 2, value);
}

fn push_block(out: &mut String, indent: usize, value: &Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in sorted(fields) {
                push_entry(out, indent, key, value);
            }
        }
        Value::Array(items) => {
            for item in items {
                let line = flow(item);
                let pad = " ".repeat(indent);
                if indent + 2 + line.len() <= WIDTH || !is_branch(item) {
                    writeln!(out, "{pad}- {line}").unwrap();
                } else {
                    let mut block = String::new();
                    push_block(&mut block, indent + 2, item);
                    write!(out, "{pad}- {}", block.trim_start()).unwrap();
                }
            }
        }
        other => out.push_str(&flow(other)),
    }
}

fn is_branch(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

/// Formats the value on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Object(fields) => {
            let entries: Vec<String> = sorted(fields)
                .into_iter()
                .map(|(key, value)| format!("{}: {}", scalar(key), flow(value)))
                .collect();
            format!("{{ {} }}", entries.join(", "))
        }
        other => other.to_string(),
    }
}

fn sorted(fields: &serde_json::Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<(&String, &Value)> = fields.iter().collect();
    entries.sort_by_key(|(key, _)| key.as_str());
    entries
}

/// Formats a string, in quotes unless every YAML parser reads it as a string.
fn scalar(text: &str) -> String {
    let harmless = |letter: char| letter.is_ascii_alphanumeric() || " _./-$<>()=".contains(letter);
    let reserved = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let plain = text.starts_with(|first: char| first.is_ascii_alphabetic() || "$</".contains(first))
        && text.chars().all(harmless)
        && !text.ends_with(' ')
        && !reserved.contains(&text.to_ascii_lowercase().as_str());
    if plain { text.to_owned() } else { Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::conformance::case::Case;

    fn answer(body: Value) -> Expect {
        Expect { status: 200, warnings: Vec::new(), media_type: None, body, events: None }
    }

    #[test]
    fn recording_replaces_only_the_responses() {
        let text = "about: x\nsteps:\n  # why\n  - request: GET /a\n    expect:\n      status: 500\n      body:\n        a: 1\n  - request: GET /b\n";
        let recorded = record(text, &[answer(json!("ok")), answer(Value::Null)]);
        let expected = "about: x\nsteps:\n  # why\n  - request: GET /a\n    expect:\n      status: 200\n      body: ok\n  - request: GET /b\n    expect:\n      status: 200\n";
        assert_eq!(recorded, expected);
        assert_eq!(record(&recorded, &[answer(json!("ok")), answer(Value::Null)]), expected);
    }

    #[test]
    fn written_values_round_trip() {
        let long = "x ".repeat(80);
        let body = json!({
            "a: b": [1, 2.5, -3, true, null, "true", "1", "", " lead", "trail ", "~", "#", "- x", "a: b", "'", "\"", "\n\t"],
            "long": [long, {"k": long, "l": [{"m": long}, []], "empty": {}}, [[long]]],
            "no": {"$NS": "<time>", ".": "..", "/a/b": "x=y"},
        });
        let text = record("about: x\nsteps:\n  - request: GET /a\n", &[answer(body.clone())]);
        let case: Case = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(case.steps[0].expect.as_ref().unwrap().body, body);
    }
}
