//! Controllers build no sentences for users: those belong in `plan`, where golden files show them.

use std::path::Path;

use snafu::Whatever;

use super::{
    files::{File, Problem, files, is_rust, report},
    rust::{Kind, Token, tokens, without_tests},
};

/// The name of the rule in exceptions.
const RULE: &str = "sentence";

/// What is checked.
const FOLDER: &str = "crates/controller/src";

/// A text with this many words is a sentence.
const SENTENCE: usize = 3;

/// Macros whose text no user reads: log lines and assertions.
const MACROS: [&str; 20] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "debug_span",
    "error",
    "error_span",
    "event",
    "info",
    "info_span",
    "span",
    "todo",
    "trace",
    "trace_span",
    "unreachable",
    "warn",
    "warn_span",
];

/// How the text of an error starts.
const ERROR: &str = "failed to ";

/// Checks the sources of the controllers.
pub fn run(root: &Path) -> Result<(), Whatever> {
    let files = files(root, &[FOLDER], |path| is_rust(path) && !path.ends_with("/tests.rs"))?;
    report(files.iter().flat_map(check).collect())
}

fn check(file: &File) -> Vec<Problem> {
    sentences(&without_tests(&tokens(&file.text)))
        .into_iter()
        .filter(|token| !file.allows(RULE, token.line))
        .map(|token| Problem {
            path: file.path.clone(),
            line: token.line,
            message: format!("builds the sentence {:?}: move it to crates/plan", token.text),
        })
        .collect()
}

/// What an open bracket belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bracket {
    /// An attribute other than a display text.
    Attribute,
    /// One of [`MACROS`], or the registration of a metric with its help text.
    Quiet,
    /// The text of an error, `display(…)`.
    Display,
    /// Anything else.
    Code,
}

/// The string literals that are sentences for users.
fn sentences(tokens: &[Token]) -> Vec<&Token> {
    let code: Vec<&Token> = tokens.iter().filter(|token| token.kind != Kind::Comment).collect();
    let mut open: Vec<Bracket> = Vec::new();
    let mut found = Vec::new();
    for (index, token) in code.iter().enumerate() {
        match (token.kind, token.text.as_str()) {
            (Kind::Mark, "(" | "[" | "{") => {
                open.push(bracket(code.get(..index).unwrap_or_default(), &open));
            }
            (Kind::Mark, ")" | "]" | "}") => {
                open.pop();
            }
            (Kind::Text, text) if count(text) >= SENTENCE && !text.starts_with(ERROR) => {
                let is_quiet = open.contains(&Bracket::Quiet)
                    || (open.contains(&Bracket::Attribute) && !open.contains(&Bracket::Display));
                if !is_quiet {
                    found.push(*token);
                }
            }
            _ => {}
        }
    }
    found
}

/// What the bracket after these tokens belongs to.
fn bracket(before: &[&Token], open: &[Bracket]) -> Bracket {
    let last = |back: usize| before.len().checked_sub(back).and_then(|index| before.get(index));
    let text = |back: usize| last(back).map(|token| token.text.as_str()).unwrap_or_default();
    match (text(2), text(1)) {
        (_, "#") | ("#", "!") => Bracket::Attribute,
        (name, "!") if MACROS.contains(&name) => Bracket::Quiet,
        (_, "register") => Bracket::Quiet,
        (_, "display") if open.contains(&Bracket::Attribute) => Bracket::Display,
        _ => Bracket::Code,
    }
}

/// The number of words of a text, without its placeholders.
fn count(text: &str) -> usize {
    let mut depth = 0_usize;
    let outside: String = text
        .chars()
        .filter(|letter| {
            match letter {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0
        })
        .collect();
    outside.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(source: &str) -> Vec<usize> {
        let file = File { path: "crates/controller/src/a.rs".into(), text: source.into() };
        check(&file).into_iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn a_planted_sentence_is_found() {
        assert_eq!(lines("fn f() {\n    report(format!(\"the Secret {name} not found\"));\n}"), [2]);
        assert_eq!(lines("#[snafu(display(\"the Secret not found\"))]\nstruct A;"), [1]);
    }

    #[test]
    fn log_lines_errors_attributes_metrics_and_tests_are_fine() {
        for fine in [
            "tracing::info!(name, \"the Secret {} is read again\", f(1));",
            "#[snafu(display(\"failed to read the Secret {name}\"))]\nstruct A;",
            "error.context(\"failed to read the Secret\");",
            "#[expect(dead_code, reason = \"only tests use it\")]\nfn f() {}",
            "/// Reads the Secret of a provider.\nfn f() {}",
            "#[cfg(test)]\nmod tests { const A: &str = \"one two three\"; }",
            "f(\"{namespace}/{name} {}\", \"two words\");",
            "registry.register(\"name\", \"Machines per provider and phase\", series.clone());",
            "f(\"one two three\"); // sentence: allow, part of a file format",
        ] {
            assert!(lines(fine).is_empty(), "{fine}");
        }
    }
}
