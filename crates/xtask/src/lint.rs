//! Every lint, in the order in which they are cheap.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use snafu::{OptionExt, ResultExt, Whatever, whatever};

use crate::{api_rules, arrows, generate};

/// Runs them all; the first that fails ends it.
pub fn run(root: &Path) -> Result<(), Whatever> {
    generate::run(root, true)?;
    arrows::run(root)?;
    api_rules::run()?;
    call(root, "cargo", &["fmt", "--all", "--check"])?;
    let deny = cargo_deny(root)?;
    call(
        root,
        &deny.to_string_lossy(),
        &["--log-level=error", "--locked", "check", "licenses", "bans", "sources"],
    )?;
    call(
        root,
        "cargo",
        &["clippy", "--workspace", "--all-targets", "--all-features", "--locked", "--", "-D", "warnings"],
    )?;
    call(root, "cargo", &["doc", "--workspace", "--no-deps", "--locked", "--quiet"])
}

/// Where dev/setup.sh puts cargo-deny; the script is the one place that knows its version.
fn cargo_deny(root: &Path) -> Result<PathBuf, Whatever> {
    let script =
        std::fs::read_to_string(root.join("dev/setup.sh")).whatever_context("failed to read dev/setup.sh")?;
    let version = script
        .lines()
        .find_map(|line| line.strip_prefix("cargo_deny="))
        .whatever_context("dev/setup.sh names no version of cargo-deny")?;
    let cache = env::var_os("VITISTACK_CACHE")
        .map(PathBuf::from)
        .or_else(|| env::var_os("XDG_CACHE_HOME").map(|cache| PathBuf::from(cache).join("vitistack")))
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/vitistack")))
        .whatever_context("neither VITISTACK_CACHE nor HOME is set")?;
    Ok(cache.join(format!("cargo-deny-{version}/bin/cargo-deny")))
}

fn call(root: &Path, program: &str, arguments: &[&str]) -> Result<(), Whatever> {
    let status = Command::new(program)
        .args(arguments)
        .env("RUSTDOCFLAGS", "-D warnings")
        .current_dir(root)
        .status()
        .with_whatever_context(|error| format!("failed to run {program}: {error}: run dev/setup.sh lint"))?;
    if !status.success() {
        whatever!("{program} {} failed", arguments.join(" "));
    }
    Ok(())
}
