//! Selectors of any text: none panics, and one that is accepted means the same after it is printed and parsed again.

use serde_json::json;
use vitistack_testkit::fuzz::{Draw, Target};

use super::{FieldSelector, LabelSelector, Requirement};

const WORDS: [&str; 36] = [
    "a",
    "b",
    "example.com/a",
    "in",
    "notin",
    "exists",
    "=",
    "==",
    "!=",
    "!",
    ",",
    "(",
    ")",
    "<",
    ">",
    " ",
    "\t",
    "1",
    "-5",
    "9223372036854775808",
    "metadata.name",
    "metadata.namespace",
    "spec.x",
    "\\",
    "\\,",
    "\\=",
    "é",
    "\u{0}",
    "A_b.c-d",
    "/",
    "//",
    ".",
    "-",
    "\"",
    "x,y",
    "",
];

/// The fields that can be selected.
fn supported() -> Vec<String> {
    ["metadata.name", "metadata.namespace", "spec.x"].map(str::to_owned).to_vec()
}

fn print_labels(selector: &LabelSelector) -> String {
    let listed = |values: &std::collections::BTreeSet<String>| {
        values.iter().map(String::as_str).collect::<Vec<_>>().join(",")
    };
    let print = |requirement: &Requirement| match requirement {
        Requirement::In(key, values) => format!("{key} in ({})", listed(values)),
        Requirement::NotIn(key, values) => format!("{key} notin ({})", listed(values)),
        Requirement::Exists(key) => key.clone(),
        Requirement::Missing(key) => format!("!{key}"),
        Requirement::Above(key, limit) => format!("{key}>{limit}"),
        Requirement::Below(key, limit) => format!("{key}<{limit}"),
    };
    selector.requirements.iter().map(print).collect::<Vec<_>>().join(",")
}

fn print_fields(selector: &FieldSelector) -> String {
    let print = |(field, value, is_equal): &(String, String, bool)| {
        let value = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
        format!("{field}{}{value}", if *is_equal { "=" } else { "!=" })
    };
    selector.terms.iter().map(print).collect::<Vec<_>>().join(",")
}

fn build(draw: &mut Draw<'_>, corpus: &[String]) -> String {
    if draw.chance(30) {
        let text = draw.one_of(corpus).cloned().unwrap_or_default();
        return draw.mutated_text(&text, &WORDS);
    }
    if draw.chance(50) {
        // Requirements that are whole.
        let count = draw.below(5);
        let terms: Vec<String> = (0..count)
            .map(|_| {
                let key = draw.pick(&["a", "b.c/d", "in", "metadata.name", "spec.x", "notin"]);
                let operator = draw.pick(&["=", "==", "!=", " in (", " notin (", ">", "<", ""]);
                let value = draw.pick(&["", "a", "1", "-1", "in", "a,b", "x\\,y", "a=b"]);
                format!("{key}{operator}{value}{}", if operator.ends_with('(') { ")" } else { "" })
            })
            .collect();
        return terms.join(",");
    }
    let count = draw.below(12);
    (0..count).map(|_| draw.text(&WORDS)).collect()
}

fn check(text: &str) {
    let object =
        json!({"metadata": {"name": "a", "labels": {"a": "1", "example.com/a": ""}}, "spec": {"x": "x,y"}});
    match LabelSelector::parse(text) {
        Err(failure) => assert!(!failure.message.is_empty()),
        Ok(selector) => {
            let printed = print_labels(&selector);
            let again = LabelSelector::parse(&printed).map_err(|failure| failure.message);
            assert_eq!(again.as_ref(), Ok(&selector), "{printed:?}");
            assert_eq!(again.unwrap().matches(&object), selector.matches(&object));
        }
    }
    match FieldSelector::parse(text, &supported()) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(selector) => {
            let printed = print_fields(&selector);
            assert_eq!(FieldSelector::parse(&printed, &supported()), Ok(selector), "{printed:?}");
        }
    }
}

#[test]
fn selectors() {
    let target = Target::new(env!("CARGO_MANIFEST_DIR"), "selectors");
    let read =
        |content: &[u8]| String::from_utf8(content.to_vec()).unwrap().trim_end_matches('\n').to_owned();
    let corpus = target.corpus(read);
    target.run(read, |draw| build(draw, &corpus), |text| check(text));
}
