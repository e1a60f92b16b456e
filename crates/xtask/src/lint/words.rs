//! The word list of docs/style.md: words and phrases that have a plainer replacement.
//!
//! Comments, strings and names in Rust are checked, and every line of the other files that people write. Generated
//! files are not: the problem is in their source. Neither is text that others wrote or that a server answered.

use std::path::Path;

use snafu::Whatever;

use super::{
    files::{File, Problem, files, report},
    rust::{Kind, Token, tokens},
};

/// The name of the rule in exceptions.
const RULE: &str = "words";

/// Where people write.
const STARTS: [&str; 14] = [
    ".ci",
    ".github",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.toml",
    "Dockerfile",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "charts",
    "crates",
    "deny.toml",
    "dev",
    "docs",
];

/// Files by how their names end.
const ENDINGS: [&str; 11] =
    [".go", ".md", ".py", ".rs", ".sh", ".toml", ".yaml", ".yml", "/run", "Dockerfile", "Makefile"];

/// Files that quote the words, are generated, or hold text of others.
const FOREIGN: [&str; 8] = [
    "crates/apiserver/src/protobuf/",
    "crates/apiserver/tests/cases/",
    "crates/xtask/src/lint/words.rs",
    "dev/clients/chart/",
    "dev/kube/protobuf/",
    "dev/kubevirt/crds/",
    "docs/reference/",
    "docs/style.md",
];

/// Recorded answers of a real kube-apiserver; what is written by hand beside them is checked.
const RECORDED: &str = "crates/apiserver/tests/conformance/";

/// A word or phrase, and what to write instead.
struct Phrase {
    words: &'static str,
    instead: &'static str,
    /// Not a problem before one of these words.
    unless_before: &'static [&'static str],
    /// Not a problem after one of these words.
    unless_after: &'static [&'static str],
}

const fn phrase(words: &'static str, instead: &'static str) -> Phrase {
    Phrase { words, instead, unless_before: &[], unless_after: &[] }
}

/// What is checked in all text. Each of these is almost never right; a use that is gets an exception on its line.
const PHRASES: [Phrase; 43] = [
    Phrase { unless_before: &["apart"], ..phrase("told", "reported, recorded or given") },
    phrase("shall", "must, should or the plain present tense"),
    phrase("whoever", "the client, the user or the controller that"),
    phrase("anew", "again, or recreate"),
    phrase("somebody", "another client, a user or someone"),
    phrase("somebody's", "another client's or someone's"),
    phrase("nobody", "no one, no client or nothing"),
    phrase("nobody's", "no one's"),
    phrase("anybody", "any client, any user or anyone"),
    phrase("names nothing", "not found"),
    phrase("name nothing", "not found"),
    Phrase {
        unless_before: &["different", "larger", "less", "longer", "more", "need", "older", "way"],
        unless_after: &["here", "there"],
        ..phrase("is no", "is not a")
    },
    Phrase {
        unless_before: &["different", "larger", "less", "longer", "more", "older"],
        unless_after: &["there"],
        ..phrase("are no", "are not")
    },
    phrase("is not there", "not found, does not exist or is absent"),
    phrase("are not there", "do not exist or are absent"),
    phrase("let go", "released"),
    phrase("lets go", "releases"),
    phrase("letting go", "releasing"),
    phrase("stand in the way", "block"),
    phrase("stands in the way", "blocks"),
    phrase("is in the way", "blocks"),
    phrase("are in the way", "block"),
    phrase("stands in its way", "blocks it"),
    phrase("for ever", "forever"),
    phrase("in vain", "without success"),
    phrase("homeless", "unplaced"),
    phrase("the own", "its own"),
    phrase("an own", "its own"),
    phrase("mend", "fix"),
    phrase("mends", "fixes"),
    phrase("mended", "fixed"),
    phrase("so many", "the number of, or at most this many"),
    phrase("so often", "at this interval"),
    phrase("on its way", "in progress, or pending"),
    phrase("on their way", "in progress, or pending"),
    phrase("is looked at", "is reconciled, checked or read"),
    phrase("are looked at", "are reconciled, checked or read"),
    phrase("look again", "retry, or check again"),
    phrase("looks again", "retries, or checks again"),
    phrase("to be had", "available"),
    phrase("news", "a change, or an event"),
    phrase("the house", "the project"),
    phrase("the kit", "the runtime"),
];

/// What is checked in names, part by part.
const NAMES: [Phrase; 10] = [
    phrase("told", "reported, recorded or sent"),
    phrase("tell", "report, record or send"),
    phrase("tells", "reports, records or sends"),
    phrase("shall", "must or should"),
    phrase("whoever", "client, user or owner"),
    phrase("anew", "again"),
    phrase("somebody", "another client or someone"),
    phrase("nobody", "no one"),
    phrase("homeless", "unplaced"),
    phrase("news", "changes or events"),
];

/// Checks every file that people write.
pub fn run(root: &Path) -> Result<(), Whatever> {
    let files = files(root, &STARTS, is_checked)?;
    report(files.iter().flat_map(check).collect())
}

fn is_checked(path: &str) -> bool {
    let is_recorded = path.starts_with(RECORDED)
        && !["README.md", "differences.yaml"].iter().any(|own| path == format!("{RECORDED}{own}"));
    ENDINGS.iter().any(|ending| path.ends_with(ending))
        && !FOREIGN.iter().any(|foreign| path.starts_with(foreign))
        && !is_recorded
}

fn check(file: &File) -> Vec<Problem> {
    let is_rust = Path::new(&file.path).extension().is_some_and(|extension| extension == "rs");
    let mut found = if is_rust { in_rust(&tokens(&file.text)) } else { in_prose([(1, file.text.as_str())]) };
    found.sort_unstable();
    found.dedup();
    found
        .into_iter()
        .filter(|(line, _)| !file.allows(RULE, *line))
        .map(|(line, message)| Problem { path: file.path.clone(), line, message })
        .collect()
}

/// A line and what is wrong with it.
type Found = (usize, String);

fn in_rust(tokens: &[Token]) -> Vec<Found> {
    let mut found = Vec::new();
    // Comments on adjacent lines are one text: a phrase may be wrapped.
    let mut comment: Vec<(usize, &str)> = Vec::new();
    for token in tokens {
        match token.kind {
            Kind::Comment => {
                if comment.last().is_some_and(|(line, _)| line + 1 != token.line) {
                    found.extend(in_prose(comment.drain(..)));
                }
                comment.push((token.line, &token.text));
            }
            Kind::Text => found.extend(in_prose([(token.line, token.text.as_str())])),
            Kind::Name => found.extend(in_name(token)),
            Kind::Mark => {}
        }
    }
    found.extend(in_prose(comment));
    found
}

/// Finds phrases in texts that follow each other, each with the line on which it starts.
fn in_prose<'a>(texts: impl IntoIterator<Item = (usize, &'a str)>) -> Vec<Found> {
    let words: Vec<(usize, String)> = texts
        .into_iter()
        .flat_map(|(first, text)| text.lines().zip(first..))
        .flat_map(|(text, line)| words(text).into_iter().map(move |word| (line, word)))
        .collect();
    let mut found = Vec::new();
    for phrase in &PHRASES {
        found.extend(occurrences(&words, phrase));
    }
    found
}

fn in_name(token: &Token) -> Vec<Found> {
    let words: Vec<(usize, String)> = parts(&token.text).into_iter().map(|part| (token.line, part)).collect();
    NAMES.iter().flat_map(|phrase| occurrences(&words, phrase)).collect()
}

fn occurrences(words: &[(usize, String)], phrase: &Phrase) -> Vec<Found> {
    let wanted: Vec<&str> = phrase.words.split(' ').collect();
    let word = |index: Option<usize>| index.and_then(|index| words.get(index)).map(|(_, word)| word.as_str());
    words
        .windows(wanted.len())
        .enumerate()
        .filter(|(_, window)| window.iter().map(|(_, word)| word.as_str()).eq(wanted.iter().copied()))
        .filter(|(start, _)| {
            let before = word(start.checked_sub(1));
            let after = word(start.checked_add(wanted.len()));
            !before.is_some_and(|before| phrase.unless_after.contains(&before))
                && !after.is_some_and(|after| phrase.unless_before.contains(&after))
        })
        .filter_map(|(_, window)| window.first())
        .map(|(line, _)| (*line, format!("{:?} is not in the style: write {}", phrase.words, phrase.instead)))
        .collect()
}

/// The words of a text in lower case. A hyphen and an apostrophe belong to the word around them.
fn words(text: &str) -> Vec<String> {
    text.split(|letter: char| !letter.is_alphanumeric() && !['\'', '’', '-', '_'].contains(&letter))
        .map(|word| word.trim_matches(['\'', '’', '-', '_']).replace('’', "'").to_lowercase())
        .filter(|word| !word.is_empty())
        .collect()
}

/// The parts of a name in lower case: `told_at` and `ToldAt` are both "told", "at".
fn parts(name: &str) -> Vec<String> {
    let mut parts: Vec<String> = vec![String::new()];
    for letter in name.chars() {
        if (letter == '_' || letter.is_uppercase()) && parts.last().is_some_and(|part| !part.is_empty()) {
            let is_acronym = letter != '_'
                && name.chars().all(|letter| letter.is_uppercase() || letter == '_' || letter.is_numeric());
            if !is_acronym {
                parts.push(String::new());
            }
        }
        if letter != '_'
            && let Some(part) = parts.last_mut()
        {
            part.extend(letter.to_lowercase());
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        let file = File { path: path.into(), text: text.into() };
        check(&file).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_planted_word_is_found_in_comments_strings_and_names() {
        let source =
            "//! Told once.\n\n/// Fine.\nfn tell_it() {\n    f(\"whoever\\nasked\");\n}\nstruct NewsFeed;\n";
        assert_eq!(
            problems("crates/plan/src/a.rs", source),
            [
                "crates/plan/src/a.rs:1: \"told\" is not in the style: write reported, recorded or given",
                "crates/plan/src/a.rs:4: \"tell\" is not in the style: write report, record or send",
                "crates/plan/src/a.rs:5: \"whoever\" is not in the style: write the client, the user or the controller that",
                "crates/plan/src/a.rs:7: \"news\" is not in the style: write changes or events",
            ]
        );
    }

    #[test]
    fn a_planted_phrase_is_found_in_other_files() {
        let text = "# Page\n\nThe template names\nnothing.\n";
        assert_eq!(
            problems("docs/a.md", text),
            ["docs/a.md:3: \"names nothing\" is not in the style: write not found"]
        );
        assert_eq!(problems("dev/a.sh", "# nobody reads it\n").len(), 1);
    }

    #[test]
    fn a_phrase_is_found_when_a_comment_wraps_it() {
        assert_eq!(problems("a.rs", "// This is not\n// there.\nfn f() {}\n").len(), 1);
        assert!(problems("a.rs", "// This is not\n\n// there.\nfn f() {}\n").is_empty());
    }

    #[test]
    fn whole_words_count_and_some_neighbors_make_a_phrase_fine() {
        for fine in [
            "newsletter",
            "it is no longer used",
            "there is no such setting",
            "they cannot be told apart",
            "a marshaled value",
            "the owner",
            "recommended",
        ] {
            assert!(problems("docs/a.md", fine).is_empty(), "{fine}");
        }
        assert_eq!(problems("docs/a.md", "x is no machine").len(), 1);
    }

    #[test]
    fn an_exception_with_a_reason_is_honored() {
        assert!(problems("a.rs", "f(\"nobody\"); // words: allow, a Unix user\n").is_empty());
        assert!(problems("a.md", "user nobody <!-- words: allow, a Unix user -->\n").is_empty());
        assert!(problems("a.sh", "# words: allow, a Unix user\nuser=nobody\n").is_empty());
        assert_eq!(problems("a.rs", "f(\"nobody\"); // words: allow\n").len(), 1);
    }

    #[test]
    fn names_are_split_at_underscores_and_capitals() {
        assert_eq!(parts("told_at"), ["told", "at"]);
        assert_eq!(parts("ToldAt"), ["told", "at"]);
        assert_eq!(parts("TOLD_AT"), ["told", "at"]);
        assert_eq!(parts("intelligence"), ["intelligence"]);
    }

    #[test]
    fn generated_recorded_and_foreign_files_are_left_out() {
        for path in [
            "docs/reference/machine.md",
            "docs/style.md",
            "crates/apiserver/tests/conformance/watch/too-old.yaml",
            "dev/kubevirt/crds/kubevirt.yaml",
            "dev/kube/go.sum",
            "crates/plan/tests/it/snapshots/a.snap",
        ] {
            assert!(!is_checked(path), "{path}");
        }
        for path in [
            "crates/plan/src/lib.rs",
            "crates/apiserver/tests/conformance/differences.yaml",
            "docs/deploy.md",
            ".ci/run",
            "Makefile",
        ] {
            assert!(is_checked(path), "{path}");
        }
    }
}
