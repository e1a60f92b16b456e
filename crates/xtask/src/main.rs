//! The tasks behind the Makefile: generated files, dependency rules, API rules, lints and benchmarks.

mod api_rules;
mod arrows;
mod bench;
mod generate;
mod lint;
mod record;

use std::{
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use clap::{Parser, Subcommand};

/// The allocator of the binary that the benchmarks measure.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tasks of the workspace
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Write the generated files: CRDs, RBAC, samples, reference
    Gen {
        /// Write nothing; fail if a file is out of date
        #[arg(long)]
        check: bool,
    },
    /// Check the dependencies between crates
    Arrows,
    /// Check that every API field is described, bounded and standard
    ApiRules,
    /// Run a benchmark in a release build
    Bench {
        #[command(subcommand)]
        bench: bench::Bench,
    },
    /// Run the platform and draw its output for the README
    Record,
    /// Run every lint, and the checks of generated files, dependencies and the API
    Lint {
        /// Run only this check
        #[arg(long, value_name = "CHECK")]
        only: Option<lint::Check>,
    },
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");

    let result = match Arguments::parse().task {
        Task::Gen { check } => generate::run(&root, check),
        Task::Arrows => arrows::run(&root),
        Task::ApiRules => api_rules::run(),
        Task::Bench { bench } => bench::run(&root, &bench),
        Task::Record => record::run(&root),
        Task::Lint { only } => lint::run(&root, only),
    };

    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            // If stderr is closed too, only the exit code is left.
            let _ = writeln!(io::stderr(), "{problem}");
            ExitCode::FAILURE
        }
    }
}
