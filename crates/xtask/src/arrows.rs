//! The arrows between the crates: which may use which, and what the pure ones may not import.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path, process::Command};

use serde::Deserialize;
use snafu::{ResultExt, Whatever, whatever};

/// Who may use whom, as the design draws it; nothing else is allowed. Test code may use testkit besides.
const ARROWS: [(&str, &[&str]); 10] = [
    ("types", &[]),
    ("plan", &["types"]),
    ("clients", &[]),
    ("runtime", &["clients", "types"]),
    ("machine", &["clients", "plan", "types"]),
    ("cluster", &["clients", "plan", "types"]),
    ("controller", &["runtime", "machine", "cluster", "clients", "plan", "types"]),
    ("apiserver", &[]),
    ("testkit", &["clients", "types"]),
    // Puts everything together; nothing but xtask uses it.
    ("cli", &["*"]),
];

/// Crates that must not reach a clock, a socket, a file or the environment, and what would give it to them.
const PURE: [&str; 2] = ["types", "plan"];
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

/// Checks every manifest and every source file of the pure crates.
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
    for name in PURE {
        impure(&root.join("crates").join(name).join("src"), &mut problems)?;
    }
    if !problems.is_empty() {
        whatever!("{problems}");
    }
    Ok(())
}

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
                "crates/{name}: the design has no such crate: add its arrows to xtask/src/arrows.rs"
            );
            continue;
        };
        for dependency in &package.dependencies {
            let Some(target) = dependency.name.strip_prefix("vitistack-") else { continue };
            let for_tests = dependency.kind.as_deref() == Some("dev");
            let fine = allowed.contains(&target)
                || (for_tests && matches!(target, "testkit" | "apiserver"))
                || (allowed.contains(&"*") && (for_tests || target != "testkit"));
            if !fine {
                let _ =
                    writeln!(problems, "crates/{name} must not use {target}: the design has no such arrow");
            }
        }
    }
    problems
}

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
