//! Every refusal of operators and commands is constructed in one place: `crates/plan/src/refusals.rs`.

#![expect(clippy::disallowed_methods, reason = "it reads source files, and decides nothing")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The ways to construct a refusal.
const CONSTRUCTORS: [&str; 3] = ["Refusal::new(", "Refusal {", "Refusal{"];

/// Files that may construct refusals: the type and the list.
const ALLOWED: [&str; 2] = ["plan/src/refusal.rs", "plan/src/refusals.rs"];

/// The conversion of an error of a backend, which brings its own reason and sentence.
const CONVERSION: &str = "Refusal::new(error.reason, error.message)";

/// The lines of a source file that construct a refusal. Patterns, types and unit tests do not.
fn constructions(source: &str) -> Vec<&str> {
    let production = source.split("#[cfg(test)]").next().unwrap_or_default();
    let is_comment = |line: &&str| line.trim_start().starts_with("//");
    let is_construction = |line: &&str| CONSTRUCTORS.iter().any(|each| line.contains(each));
    let is_declaration = |line: &&str| {
        ["-> Refusal {", "-> &Refusal {", "struct Refusal {", "for Refusal {", "impl Refusal {"]
            .iter()
            .any(|each| line.contains(each))
    };
    let is_pattern = |line: &&str| line.contains("let Refusal {") || line.contains("(Refusal {");
    let is_conversion = |line: &&str| line.trim() == CONVERSION;
    production
        .lines()
        .filter(|line| !is_comment(line))
        .filter(|line| {
            is_construction(line) && !is_declaration(line) && !is_pattern(line) && !is_conversion(line)
        })
        .map(str::trim)
        .collect()
}

/// Every Rust file below a directory.
fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// The message texts of the functions of `refusals.rs`, each with the function.
fn messages(source: &str) -> Vec<(String, String)> {
    let mut messages = Vec::new();
    let mut function = String::new();
    for line in source.lines() {
        if let Some((_, rest)) = line.split_once("fn ") {
            rest.split('(').next().unwrap_or_default().clone_into(&mut function);
        }
        // Sentences have spaces; names of fields and objects do not.
        let text = line.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"')).map(|(text, _)| text);
        messages
            .extend(text.filter(|text| text.contains(' ')).map(|text| (text.to_owned(), function.clone())));
    }
    messages
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

#[test]
fn refusals_are_constructed_in_one_file() {
    let mut found = Vec::new();
    for source in ["plan/src", "controller/src", "cli/src"] {
        for file in rust_files(&crates().join(source)) {
            let name = file.strip_prefix(crates()).unwrap().display().to_string();
            let text = fs::read_to_string(&file).unwrap();
            if !ALLOWED.contains(&name.as_str()) {
                found.extend(constructions(&text).into_iter().map(|line| format!("{name}: {line}")));
            }
        }
    }
    assert_eq!(found, [""; 0], "construct refusals in plan/src/refusals.rs");
}

#[test]
fn no_two_refusals_have_the_same_message() {
    let source = fs::read_to_string(crates().join("plan/src/refusals.rs")).unwrap();
    let mut functions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (message, function) in messages(&source) {
        functions.entry(message).or_default().push(function);
    }
    assert!(functions.len() > 20, "the messages were not found: {functions:?}");
    functions.retain(|_, functions| functions.len() > 1);
    assert_eq!(functions, BTreeMap::new());
}

#[test]
fn a_planted_refusal_is_found() {
    let planted = "fn check() -> Refusal {\n    Refusal::new(reason::PAUSED, \"paused\")\n}\n";
    assert_eq!(constructions(planted), ["Refusal::new(reason::PAUSED, \"paused\")"]);
    let literal = "let refusal = Refusal { reason, message, missing: None };";
    assert_eq!(constructions(literal), [literal]);

    let allowed =
        "// Refusal::new(\nlet Refusal { reason, .. } = refusal;\n#[cfg(test)]\nRefusal::new(a, b);";
    assert_eq!(constructions(allowed), [""; 0]);
    assert_eq!(
        messages("pub fn gone() -> Refusal {\n    Refusal::new(reason::GONE, \"it is gone\")\n}"),
        [("it is gone".to_owned(), "gone".to_owned())]
    );
}
