//! Compares responses with the recording and reports the differences.

use std::fmt::Write as _;

use serde_json::Value;

use super::case::{Case, Difference, Expect};

/// The result of a run.
pub struct Report {
    /// `conformance: N cases, M steps, K differ`.
    pub summary: String,
    /// What needs attention: differences that are not listed, and listed ones that no longer exist. Empty on
    /// success.
    pub failures: String,
}

/// Compares the responses of a server with the expected ones.
pub fn compare(cases: &[Case], responses: &[Vec<Expect>], known: &[Difference]) -> Report {
    let mut failures = String::new();
    let mut steps = 0;
    let mut differ = 0;
    let mut seen = vec![false; known.len()];
    for (case, responses) in cases.iter().zip(responses) {
        for (number, (step, actual)) in (1..).zip(case.steps.iter().zip(responses)) {
            steps += 1;
            let lines = match &step.expect {
                Some(expected) => differing(expected, actual),
                None => vec!["    not recorded yet".to_owned()],
            };
            if lines.is_empty() {
                continue;
            }
            differ += 1;
            let listed = known
                .iter()
                .position(|known| known.case == case.name && known.step.is_none_or(|step| step == number));
            if let Some(position) = listed {
                seen[position] = true;
                continue;
            }
            let request = step.call().request;
            let lines = lines.join("\n");
            let _ =
                writeln!(failures, "{} step {number}: {request}\n    ({})\n{lines}", case.name, case.about);
        }
    }

    for (known, seen) in known.iter().zip(seen) {
        if !seen && cases.iter().any(|case| case.name == known.case) {
            let step = known.step.map_or_else(String::new, |step| format!(" step {step}"));
            let _ = writeln!(
                failures,
                "{}{step}: no longer differs; take it out of differences.yaml ({})",
                known.case, known.reason
            );
        }
    }

    Report {
        summary: format!("conformance: {} cases, {steps} steps, {differ} differ", cases.len()),
        failures,
    }
}

fn differing(expected: &Expect, actual: &Expect) -> Vec<String> {
    let mut lines = Vec::new();
    let as_value = |expect: &Expect| {
        serde_json::json!({
            "status": expect.status, "type": expect.media_type, "warnings": expect.warnings,
            "body": expect.body, "events": expect.events,
        })
    };
    walk("", Some(&as_value(expected)), Some(&as_value(actual)), &mut lines);
    lines
}

fn walk(path: &str, expected: Option<&Value>, actual: Option<&Value>, lines: &mut Vec<String>) {
    match (expected, actual) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let mut keys: Vec<&String> = left.keys().chain(right.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                walk(&format!("{path}/{key}"), left.get(key), right.get(key), lines);
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for index in 0..left.len().max(right.len()) {
                walk(&format!("{path}/{index}"), left.get(index), right.get(index), lines);
            }
        }
        (left, right) if left == right => {}
        (left, right) => {
            let show = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
            lines.push(format!("    {path}\n      expected {}\n      actual   {}", show(left), show(right)));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn case() -> Case {
        let text = "{about: x, steps: [{request: GET /a, expect: {status: 200, body: {a: 1}}}]}";
        Case { name: "area/case".to_owned(), ..serde_saphyr::from_str(text).unwrap() }
    }

    fn answer(body: Value) -> Vec<Vec<Expect>> {
        vec![vec![Expect { status: 200, warnings: Vec::new(), media_type: None, body, events: None }]]
    }

    fn known() -> Vec<Difference> {
        vec![Difference { case: "area/case".to_owned(), step: Some(1), reason: "because".to_owned() }]
    }

    #[test]
    fn an_equal_response_is_not_a_failure() {
        let report = compare(&[case()], &answer(json!({"a": 1})), &[]);
        assert_eq!(report.summary, "conformance: 1 cases, 1 steps, 0 differ");
        assert_eq!(report.failures, "");
    }

    #[test]
    fn a_difference_names_the_path_and_both_values() {
        let report = compare(&[case()], &answer(json!({"a": 2})), &[]);
        assert!(report.failures.contains("area/case step 1: GET /a"), "{}", report.failures);
        assert!(
            report.failures.contains("/body/a\n      expected 1\n      actual   2"),
            "{}",
            report.failures
        );
    }

    #[test]
    fn an_accepted_difference_is_counted_and_is_not_a_failure() {
        let report = compare(&[case()], &answer(json!({})), &known());
        assert_eq!(report.summary, "conformance: 1 cases, 1 steps, 1 differ");
        assert_eq!(report.failures, "");
    }

    #[test]
    fn an_accepted_difference_that_no_longer_exists_is_a_failure() {
        let report = compare(&[case()], &answer(json!({"a": 1})), &known());
        assert!(report.failures.contains("no longer differs"), "{}", report.failures);
    }
}
