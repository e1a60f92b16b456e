//! The arrows between the crates: which crate may use which, and what the pure ones must not import.
//! The table in CONTRIBUTING.md shows the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
};

use serde::Deserialize;
use snafu::{ResultExt, Whatever, whatever};

/// The crates that each crate may use; nothing else is allowed. Test code may also use testkit and apiserver.
const ARROWS: [(&str, &[&str]); 10] = [
    ("schema", &[]),
    ("types", &["schema"]),
    ("plan", &["types"]),
    ("clients", &[]),
    ("runtime", &["clients", "types"]),
    ("machine", &["clients", "plan", "types"]),
    ("controller", &["runtime", "machine", "clients", "plan", "types"]),
    ("apiserver", &["schema"]),
    ("testkit", &["clients", "types"]),
    // Assembles everything; only xtask uses it.
    ("cli", &["*"]),
];

/// Crates that must not use a clock, a socket, a file or the environment, and the paths that lead there.
const PURE: [&str; 3] = ["schema", "types", "plan"];
const IMPURE: [&str; 9] = [
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::time::SystemTime",
    "std::time::Instant",
    "tokio",
    "reqwest",
    "Timestamp::now",
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

/// The table of crates that contributors read.
const TABLE: &str = "CONTRIBUTING.md";

/// Checks the manifests, the sources of the pure crates and the table in CONTRIBUTING.md.
pub fn run(root: &Path) -> Result<(), Whatever> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version=1", "--no-deps", "--locked"])
        .current_dir(root)
        .output()
        .whatever_context("failed to run cargo metadata")?;
    if !output.status.success() {
        whatever!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).whatever_context("failed to read cargo metadata")?;

    let mut problems = forbidden(&metadata);
    let table = fs::read_to_string(root.join(TABLE))
        .with_whatever_context(|error| format!("failed to read {TABLE}: {error}"))?;
    problems.push_str(&undocumented(&table, &ARROWS));
    for name in PURE {
        impure(&root.join("crates").join(name).join("src"), &mut problems)?;
    }

    if !problems.is_empty() {
        whatever!("{problems}");
    }
    Ok(())
}

/// The dependencies that no arrow allows.
fn forbidden(metadata: &Metadata) -> String {
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.into_iter().collect();
    let mut problems = String::new();
    for package in &metadata.packages {
        let Some(name) = package.name.strip_prefix("vitistack-").filter(|name| *name != "xtask") else {
            continue;
        };
        let Some(allowed) = arrows.get(name) else {
            let _ = writeln!(
                problems,
                "crates/{name}: unknown crate: add its arrows to crates/xtask/src/arrows.rs and {TABLE}"
            );
            continue;
        };
        for dependency in &package.dependencies {
            let Some(target) = dependency.name.strip_prefix("vitistack-") else { continue };
            let for_tests = dependency.kind.as_deref() == Some("dev");
            let is_allowed = allowed.contains(&target)
                || (for_tests && matches!(target, "testkit" | "apiserver"))
                || (allowed.contains(&"*") && (for_tests || target != "testkit"));
            if !is_allowed {
                let _ = writeln!(
                    problems,
                    "crates/{name} must not use {target}: move the code, or change the arrows after a review"
                );
            }
        }
    }
    problems
}

/// Compares the table of crates with the arrows: every crate has a row, and its last column lists the same crates.
fn undocumented(table: &str, arrows: &[(&str, &[&str])]) -> String {
    let rows: BTreeMap<&str, (usize, BTreeSet<&str>)> =
        table.lines().zip(1..).filter_map(|(line, number)| row(line, number)).collect();
    let mut problems = String::new();
    for (name, allowed) in arrows {
        let expected = match *allowed {
            [] => "–".to_owned(),
            ["*"] => "everything".to_owned(),
            allowed => {
                allowed.iter().copied().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
            }
        };
        let problem = match rows.get(name) {
            None => {
                format!("{TABLE}:1: no row for `crates/{name}`: add it, with {expected:?} in the last column")
            }
            Some((line, listed)) if *listed != expected.split(", ").collect() => {
                format!("{TABLE}:{line}: wrong crates for `crates/{name}`: write {expected:?}")
            }
            Some(_) => continue,
        };
        let _ = writeln!(problems, "{problem}");
    }

    let is_known = |name: &str| name == "xtask" || arrows.iter().any(|(known, _)| *known == name);
    for (name, (line, _)) in rows.iter().filter(|(name, _)| !is_known(name)) {
        let _ = writeln!(
            problems,
            "{TABLE}:{line}: `crates/{name}` has no arrows: add them to crates/xtask/src/arrows.rs, or remove the row"
        );
    }
    problems
}

/// The crate of a row, its line and the crates in its last column.
fn row(line: &str, number: usize) -> Option<(&str, (usize, BTreeSet<&str>))> {
    let (name, rest) = line.strip_prefix("| `crates/")?.split_once("` |")?;
    let last = rest.trim_end().strip_suffix('|')?.rsplit('|').next()?.trim();
    Some((name, (number, last.split(", ").collect())))
}

/// Adds what the sources below a folder must not use.
fn impure(folder: &Path, problems: &mut String) -> Result<(), Whatever> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder).whatever_context("failed to list sources")? {
        let path = entry.whatever_context("failed to list sources")?.path();
        if path.is_dir() {
            impure(&path, problems)?;
        } else {
            let source = fs::read_to_string(&path).whatever_context("failed to read a source file")?;
            for word in IMPURE.iter().filter(|word| source.contains(**word)) {
                let _ = writeln!(
                    problems,
                    "{}: a pure crate must not use {word}: take it as an argument",
                    path.display()
                );
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARROWS: [(&str, &[&str]); 3] = [("types", &[]), ("plan", &["types", "clients"]), ("cli", &["*"])];

    #[test]
    fn a_table_that_equals_the_arrows_is_fine() {
        let table = "| `crates/types` | kinds | – |\n| `crates/plan` | decisions | clients, types |\n\
                     | `crates/cli` | the binary | everything |\n| `crates/xtask` | tasks | everything |\n\
                     | `dev` | scripts | – |\n";
        assert_eq!(undocumented(table, &ARROWS), "");
    }

    #[test]
    fn a_missing_wrong_or_unknown_row_is_reported_with_the_fix() {
        let table = "| `crates/plan` | decisions | types |\n| `crates/cli` | the binary | everything |\n\
                     | `crates/cluster` | clusters | – |\n";
        assert_eq!(
            undocumented(table, &ARROWS),
            "CONTRIBUTING.md:1: no row for `crates/types`: add it, with \"–\" in the last column\n\
             CONTRIBUTING.md:1: wrong crates for `crates/plan`: write \"clients, types\"\n\
             CONTRIBUTING.md:3: `crates/cluster` has no arrows: add them to crates/xtask/src/arrows.rs, or remove the row\n"
        );
    }

    #[test]
    fn a_planted_dependency_is_reported() {
        let metadata = serde_json::from_value(serde_json::json!({"packages": [
            {"name": "vitistack-plan", "dependencies": [
                {"name": "vitistack-types"},
                {"name": "vitistack-runtime"},
                {"name": "vitistack-testkit", "kind": "dev"},
            ]},
        ]}));
        let problems = forbidden(&metadata.unwrap());
        assert_eq!(
            problems,
            "crates/plan must not use runtime: move the code, or change the arrows after a review\n"
        );
    }
}
