//! Benchmarks: one line per figure, `name value unit`, beside a baseline of the same run where there is one. They fail only
//! when something could not be measured: machines are shared and noisy, so no figure is a test.

mod apiserver;
mod load;
mod machines;

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    path::Path,
    process::Command,
};

use clap::Subcommand;
use snafu::{ResultExt, Whatever, whatever};

/// What can be measured.
#[derive(Clone, Debug, Subcommand)]
pub enum Bench {
    /// The embedded Kubernetes API beside the real kube-apiserver of the same run
    Apiserver {
        /// Objects that are created for each figure
        #[arg(long, default_value_t = 20_000)]
        count: usize,
        /// Print one JSON object instead of lines
        #[arg(long)]
        json: bool,
    },
    /// Machines on the embedded API with the simulated backend, from nothing to Ready and back
    Machines {
        /// How many
        #[arg(long, default_value_t = 10_000)]
        count: usize,
        /// Print one JSON object instead of lines
        #[arg(long)]
        json: bool,
    },
}

/// Figures in the order in which they were measured.
#[derive(Debug, Default)]
pub struct Figures(Vec<(String, f64, &'static str)>);

impl Figures {
    fn add(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.0.push((name.into(), value, unit));
    }

    /// Adds ours, the real server's and how many times better ours is.
    fn beside(&mut self, name: &str, ours: f64, real: f64, unit: &'static str, more_is_better: bool) {
        self.add(name, ours, unit);
        self.add(format!("{name}_real"), real, unit);
        self.add(format!("{name}_ratio"), if more_is_better { ours / real } else { real / ours }, "times");
    }

    fn print(&self, json: bool) -> io::Result<()> {
        let mut output = io::stdout().lock();
        if json {
            let object: BTreeMap<&str, f64> =
                self.0.iter().map(|(name, value, _)| (name.as_str(), *value)).collect();
            return writeln!(output, "{}", serde_json::json!(object));
        }
        for (name, value, unit) in &self.0 {
            writeln!(output, "{name:<36} {value:>12.2} {unit}")?;
        }
        Ok(())
    }
}

/// Measures in a release build; anything else would measure the compiler's debug output.
pub fn run(root: &Path, bench: &Bench) -> Result<(), Whatever> {
    if cfg!(debug_assertions) {
        return again_in_release(root);
    }
    let runtime = tokio::runtime::Runtime::new().whatever_context("failed to start a runtime")?;
    let (figures, json) = match bench {
        Bench::Apiserver { count, json } => (runtime.block_on(apiserver::measure(root, *count))?, json),
        Bench::Machines { count, json } => (runtime.block_on(machines::measure(*count))?, json),
    };
    figures.print(*json).whatever_context("failed to print the figures")
}

fn again_in_release(root: &Path) -> Result<(), Whatever> {
    let build = ["build", "--release", "--workspace", "--bins", "--quiet", "--locked"];
    for arguments in [build.map(str::to_owned).to_vec(), rerun()] {
        let status = Command::new("cargo")
            .args(&arguments)
            .current_dir(root)
            .status()
            .whatever_context("failed to run cargo")?;
        if !status.success() {
            whatever!("cargo {} failed", arguments.join(" "));
        }
    }
    Ok(())
}

fn rerun() -> Vec<String> {
    let release = ["run", "--release", "--quiet", "--locked", "--bin", "xtask", "--"].map(str::to_owned);
    release.into_iter().chain(std::env::args().skip(1)).collect()
}
