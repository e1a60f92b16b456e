//! Every lint, the cheap ones first.

mod advisories;
mod backends;
mod files;
mod rust;
mod sentences;
mod tools;
mod words;

use std::{path::Path, process::Command};

use clap::ValueEnum;
use snafu::{ResultExt, Whatever, whatever};

use self::tools::{CARGO_DENY, TYPOS};
use crate::{api_rules, arrows, generate};

/// One lint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Check {
    /// Generated files are up to date
    Gen,
    /// Crates depend on each other as designed, and CONTRIBUTING.md describes it
    Arrows,
    /// The API follows its own rules
    ApiRules,
    /// Nothing outside a backend names it
    Backends,
    /// Controllers build no sentences for users
    Sentences,
    /// Text follows the word list of docs/style.md
    Words,
    /// Text is spelled correctly
    Typos,
    /// Code is formatted
    Fmt,
    /// Dependencies have allowed licenses and sources
    Deny,
    /// No dependency has a known vulnerability; reported as not run if the database cannot be fetched
    Advisories,
    /// Clippy has no warnings
    Clippy,
    /// Documentation builds without warnings
    Doc,
}

/// Runs one check, or all of them; the first that fails ends the run.
pub fn run(root: &Path, only: Option<Check>) -> Result<(), Whatever> {
    match only {
        Some(check) => check.run(root),
        None => Check::value_variants().iter().try_for_each(|check| check.run(root)),
    }
}

impl Check {
    fn run(self, root: &Path) -> Result<(), Whatever> {
        match self {
            Self::Gen => generate::run(root, true),
            Self::Arrows => arrows::run(root),
            Self::ApiRules => api_rules::run(),
            Self::Backends => backends::run(root),
            Self::Sentences => sentences::run(root),
            Self::Words => words::run(root),
            Self::Typos => call(root, &TYPOS.path(root)?, &["--format=brief"]),
            Self::Fmt => call(root, "cargo".as_ref(), &["fmt", "--all", "--check"]),
            Self::Deny => call(
                root,
                &CARGO_DENY.path(root)?,
                &["--log-level=error", "--locked", "check", "licenses", "bans", "sources"],
            ),
            Self::Advisories => advisories::run(root),
            Self::Clippy => call(
                root,
                "cargo".as_ref(),
                &[
                    "clippy",
                    "--workspace",
                    "--all-targets",
                    "--all-features",
                    "--locked",
                    "--",
                    "-D",
                    "warnings",
                ],
            ),
            Self::Doc => {
                call(root, "cargo".as_ref(), &["doc", "--workspace", "--no-deps", "--locked", "--quiet"])
            }
        }
    }
}

fn call(root: &Path, program: &Path, arguments: &[&str]) -> Result<(), Whatever> {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let status = Command::new(program)
        .args(arguments)
        .env("RUSTDOCFLAGS", "-D warnings")
        .current_dir(root)
        .status()
        .with_whatever_context(|error| format!("failed to run {name}: {error}: run dev/setup.sh lint"))?;
    if !status.success() {
        whatever!("{name} {} failed", arguments.join(" "));
    }
    Ok(())
}
