//! The tasks behind the Makefile: generated files, the arrows between the crates, the rules of the API, the lints.

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

/// As in the binary that is measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tasks of the workspace.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Write the generated files: definitions, RBAC, samples, reference
    Gen {
        /// Write nothing; fail if a file is not as it would be written
        #[arg(long)]
        check: bool,
    },
    /// Fail on a dependency between crates that the design does not allow
    Arrows,
    /// Fail on a field of the API that is not described, not bounded or not standard
    ApiRules,
    /// Measure, in a release build
    Bench {
        #[command(subcommand)]
        bench: bench::Bench,
    },
    /// Run the platform and draw what it says, for the README
    Record,
    /// Run every lint and every check of generated files
    Lint,
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let result = match Arguments::parse().task {
        Task::Gen { check } => generate::run(&root, check),
        Task::Arrows => arrows::run(&root),
        Task::ApiRules => api_rules::run(),
        Task::Bench { bench } => bench::run(&root, &bench),
        Task::Record => record::run(&root),
        Task::Lint => lint::run(&root),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            // Nothing is left to do when even this cannot be said.
            let _ = writeln!(io::stderr(), "{problem}");
            ExitCode::FAILURE
        }
    }
}
