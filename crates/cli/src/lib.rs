//! The command line of VitiStack: one binary that plays every role.

mod args;
mod commands;
pub mod deployment;
pub mod manifests;
mod roles;

use std::{ffi::OsString, io, process::ExitCode};

use clap::{CommandFactory, Parser, error::ErrorKind};

use crate::args::Arguments;

/// Exit codes, as `vitistack --help` documents them.
mod exit {
    /// The command could not do what was asked.
    pub const FAILED: u8 = 1;
    /// The command line is wrong.
    pub const USAGE: u8 = 64;
}

/// The command line as clap describes it, for generated documentation.
#[must_use]
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the command line and returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(refusal) => {
            // Help and version are answers, not errors; neither can do anything about a closed terminal.
            let _ = refusal.print();
            return match refusal.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(exit::USAGE),
            };
        }
    };
    match commands::run(&arguments.command, &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads has enough: `vitistack crds | head` is no failure.
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            use io::Write as _;
            let _ = writeln!(io::stderr(), "vitistack: {error}");
            ExitCode::from(exit::FAILED)
        }
    }
}
