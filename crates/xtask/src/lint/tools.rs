//! The tools that dev/setup.sh installs for lints.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use snafu::{OptionExt, ResultExt, Whatever};

/// A tool: the package on crates.io, which is also the name of its version in dev/setup.sh, and its program.
pub struct Tool {
    package: &'static str,
    program: &'static str,
}

/// Checks licenses, bans and sources of dependencies.
pub const CARGO_DENY: Tool = Tool { package: "cargo-deny", program: "cargo-deny" };
/// Checks the spelling.
pub const TYPOS: Tool = Tool { package: "typos-cli", program: "typos" };

impl Tool {
    /// Where dev/setup.sh installs the tool. The script is the only place that knows the version.
    pub fn path(&self, root: &Path) -> Result<PathBuf, Whatever> {
        let script =
            fs::read_to_string(root.join("dev/setup.sh")).whatever_context("failed to read dev/setup.sh")?;
        let version = self.version(&script).with_whatever_context(|| {
            format!("failed to find the version of {} in dev/setup.sh", self.package)
        })?;
        let cache = env::var_os("VITISTACK_CACHE")
            .map(PathBuf::from)
            .or_else(|| env::var_os("XDG_CACHE_HOME").map(|cache| PathBuf::from(cache).join("vitistack")))
            .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/vitistack")))
            .whatever_context("failed to find the cache of tools: set VITISTACK_CACHE or HOME")?;
        Ok(cache.join(format!("{}-{version}/bin/{}", self.package, self.program)))
    }

    /// The version that the script assigns: `cargo_deny=1.2.3`.
    fn version<'a>(&self, script: &'a str) -> Option<&'a str> {
        let name = self.package.replace('-', "_");
        script.lines().find_map(|line| line.strip_prefix(name.as_str())?.strip_prefix('='))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setup_pins_every_tool() {
        let script = include_str!("../../../../dev/setup.sh");
        for tool in [CARGO_DENY, TYPOS] {
            let version = tool.version(script).unwrap();
            assert!(version.split('.').count() == 3, "{}: {version}", tool.package);
        }
        assert_eq!(TYPOS.version("typos_cli_other=1\n"), None);
    }
}
