//! Benchmarks: one line per figure, `name value unit`, next to a baseline of the same run if there is one. They fail only
//! if something could not be measured: machines are shared and noisy, so no figure is a test.

mod apiserver;
mod bare;
mod crowd;
mod kubevirt;
mod load;
mod machines;
mod standin;
mod up;

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use clap::Subcommand;
use snafu::{ResultExt, Whatever, whatever};

/// The benchmarks.
#[derive(Clone, Debug, Subcommand)]
pub enum Bench {
    /// The embedded Kubernetes API compared with a real kube-apiserver in the same run
    Apiserver {
        /// Objects to create for each figure
        #[arg(long, default_value_t = 20_000)]
        count: usize,
        /// Print one JSON object instead of lines
        #[arg(long)]
        json: bool,
    },
    /// Machines on the embedded API with the simulated backend, created until Ready and deleted again
    Machines {
        /// Number of machines
        #[arg(long, default_value_t = 10_000)]
        count: usize,
        /// Print one JSON object instead of lines
        #[arg(long)]
        json: bool,
    },
    /// Machines on a real kube-apiserver with KubeVirt's CRDs and a stand-in that responds instantly
    Kubevirt {
        /// Number of machines
        #[arg(long, default_value_t = 1_000)]
        count: usize,
        /// Seconds for which idle requests are counted; in five minutes every watch is reopened once
        #[arg(long, default_value_t = 300)]
        rest: u64,
        /// Print one JSON object instead of lines
        #[arg(long)]
        json: bool,
    },
    /// `vitistack up` with its samples, and `vitistack get` over many Machines
    Up {
        /// Machines to list
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

    /// Adds our figure, that of the real server, and how many times better ours is.
    fn beside(&mut self, name: &str, ours: f64, real: f64, unit: &'static str, more_is_better: bool) {
        self.add(name, ours, unit);
        self.add(format!("{name}_real"), real, unit);
        self.add(format!("{name}_ratio"), if more_is_better { ours / real } else { real / ours }, "times");
    }

    /// Adds our figure, that of the Go operator, and how many times smaller ours is.
    fn beside_go(&mut self, name: &str, ours: f64, go: f64, unit: &'static str) {
        self.add(name, ours, unit);
        self.add(format!("{name}_go"), go, unit);
        self.add(format!("{name}_ratio"), go / ours, "times");
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

/// Runs a benchmark, always in a release build.
pub fn run(root: &Path, bench: &Bench) -> Result<(), Whatever> {
    if cfg!(debug_assertions) {
        return rerun_in_release(root);
    }
    let runtime = tokio::runtime::Runtime::new().whatever_context("failed to start a runtime")?;
    let (figures, json) = match bench {
        Bench::Apiserver { count, json } => (runtime.block_on(apiserver::measure(root, *count))?, json),
        Bench::Machines { count, json } => (runtime.block_on(machines::measure(*count))?, json),
        Bench::Kubevirt { count, rest, json } => {
            (runtime.block_on(kubevirt::measure(*count, Duration::from_secs(*rest)))?, json)
        }
        Bench::Up { count, json } => (runtime.block_on(up::measure(*count))?, json),
    };
    figures.print(*json).whatever_context("failed to print the figures")
}

fn as_float(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::NAN, f64::from)
}

/// Returns the path of the measured program, which is built next to this one.
fn program() -> Result<PathBuf, Whatever> {
    let own = std::env::current_exe().whatever_context("failed to find this program")?;
    Ok(own.with_file_name("vitistack"))
}

/// Builds everything in release mode and runs this command again with it.
fn rerun_in_release(root: &Path) -> Result<(), Whatever> {
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
