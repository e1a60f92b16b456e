//! The files that lints read, the problems they report, and the exceptions that a line can ask for.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use snafu::{ResultExt, Whatever, whatever};

/// Folders that are never read: build output and what a run of the platform leaves behind.
const SKIPPED: [&str; 4] = [".git", ".vitistack", "node_modules", "target"];

/// One file of the project.
#[derive(Debug)]
pub struct File {
    /// Path below the root, with slashes.
    pub path: String,
    /// Content.
    pub text: String,
}

/// One line that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Path below the root.
    pub path: String,
    /// Line, counted from one.
    pub line: usize,
    /// What is wrong, a colon, the fix.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
    }
}

impl File {
    /// Whether the line, or a comment alone on the line above, asks for an exception: `RULE: allow, <reason>`.
    #[must_use]
    pub fn allows(&self, rule: &str, line: usize) -> bool {
        let above = line.checked_sub(2).and_then(|index| self.text.lines().nth(index));
        let above =
            above.filter(|above| ["//", "#", "<!--"].iter().any(|start| above.trim().starts_with(start)));
        let same = line.checked_sub(1).and_then(|index| self.text.lines().nth(index));
        let marker = format!("{rule}: allow, ");
        [above, same]
            .into_iter()
            .flatten()
            .filter_map(|text| text.split_once(&marker))
            .any(|(_, reason)| reason.chars().any(char::is_alphabetic))
    }
}

/// Whether a path is that of a Rust source file.
pub fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "rs")
}

/// Every file below these folders or files whose path `is_wanted` accepts, sorted by path.
pub fn files(root: &Path, starts: &[&str], is_wanted: impl Fn(&str) -> bool) -> Result<Vec<File>, Whatever> {
    let mut paths = Vec::new();
    for start in starts {
        collect(&root.join(start), &mut paths)?;
    }
    paths.sort();
    paths.dedup();

    let mut files = Vec::new();
    for path in paths {
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        if is_wanted(&name) {
            let text = fs::read_to_string(&path)
                .with_whatever_context(|error| format!("failed to read {name}: {error}"))?;
            files.push(File { path: name, text });
        }
    }
    Ok(files)
}

fn collect(path: &Path, paths: &mut Vec<PathBuf>) -> Result<(), Whatever> {
    if path.is_file() {
        paths.push(path.to_owned());
    }
    if !path.is_dir() {
        return Ok(());
    }
    let entries = fs::read_dir(path)
        .with_whatever_context(|error| format!("failed to list {}: {error}", path.display()))?;
    for entry in entries {
        let entry =
            entry.with_whatever_context(|error| format!("failed to list {}: {error}", path.display()))?;
        if !SKIPPED.iter().any(|skipped| entry.file_name() == *skipped) {
            collect(&entry.path(), paths)?;
        }
    }
    Ok(())
}

/// Fails with every problem, and with their number per crate or folder, if there are any.
pub fn report(mut problems: Vec<Problem>) -> Result<(), Whatever> {
    if problems.is_empty() {
        return Ok(());
    }
    problems.sort();
    let mut totals: BTreeMap<String, usize> = BTreeMap::new();
    for problem in &problems {
        *totals.entry(area(&problem.path)).or_default() += 1;
    }
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let totals: Vec<String> = totals.into_iter().map(|(area, count)| format!("{area} {count}")).collect();
    whatever!("{}\n{} problems: {}", lines.join("\n"), lines.len(), totals.join(", "));
}

/// The crate or the top-level folder of a path.
fn area(path: &str) -> String {
    let depth = if path.starts_with("crates/") { 2 } else { 1 };
    path.split('/').take(depth).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> File {
        File { path: "a.rs".into(), text: text.into() }
    }

    #[test]
    fn an_exception_needs_the_rule_and_a_reason() {
        let file = file(
            "x(); // words: allow, quotes kubectl\n// words: allow, a user name\ny();\nz(); // words: allow,\n",
        );
        assert!(file.allows("words", 1));
        assert!(!file.allows("backend", 1));
        assert!(file.allows("words", 3), "a comment alone above the line");
        assert!(!file.allows("words", 4), "without a reason");
        assert!(!file.allows("words", 2 + 3));
    }

    #[test]
    fn a_report_lists_problems_in_order_and_counts_them_per_crate() {
        let problem = |path: &str, line| Problem { path: path.into(), line, message: "bad: fix it".into() };
        let problems = vec![
            problem("docs/b.md", 2),
            problem("crates/plan/src/a.rs", 20),
            problem("crates/plan/src/a.rs", 3),
        ];
        assert_eq!(
            report(problems).unwrap_err().to_string(),
            "crates/plan/src/a.rs:3: bad: fix it\ncrates/plan/src/a.rs:20: bad: fix it\ndocs/b.md:2: bad: fix it\n\
             3 problems: crates/plan 2, docs 1"
        );
        assert!(report(Vec::new()).is_ok());
    }
}
