//! The command line of VitiStack: one binary that plays every role.

mod args;
mod change;
mod cluster;
mod columns;
mod commands;
pub mod deployment;
mod documents;
mod events;
mod kinds;
mod listing;
pub mod manifests;
mod output;
mod policies;
mod roles;
mod summary_of;
mod tree;
mod watching;
mod world;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use clap::{CommandFactory, FromArgMatches, error::ErrorKind};
use vitistack_runtime::settings::{self, SettingsError};

use crate::{args::Arguments, commands::Ending, output::Console};

/// Exit codes, as `vitistack --help` documents them.
mod exit {
    /// The command could not do what was asked.
    pub const FAILED: u8 = 1;
    /// There is a change to be made.
    pub const CHANGE: u8 = 2;
    /// Only a part of the answer could be had.
    pub const PARTIAL: u8 = 3;
    /// The command line is wrong.
    pub const USAGE: u8 = 64;
}

/// The name by which kubectl finds its plugin: a link of that name to the binary makes `kubectl vitistack`.
const PLUGIN: &str = "kubectl-vitistack";

/// The command line as clap describes it, for generated documentation.
#[must_use]
pub fn command() -> clap::Command {
    Arguments::command()
}

/// The command line, by the name it was called.
fn called(name: Option<&OsString>) -> clap::Command {
    let is_plugin = name.is_some_and(|name| Path::new(name).file_name().is_some_and(|name| name == PLUGIN));
    if !is_plugin {
        return command();
    }
    let renamed = |command: clap::Command| match command.get_after_help() {
        Some(examples) => {
            let examples = examples.to_string().replace("  vitistack ", "  kubectl vitistack ");
            command.after_help(examples)
        }
        None => command,
    };
    command().name(PLUGIN).bin_name("kubectl vitistack").mut_subcommands(renamed)
}

/// The arguments. Those of `vitistack run` may also come from a settings file.
fn parse(arguments: &[OsString]) -> Result<Arguments, SettingsError> {
    let command = called(arguments.first());
    if arguments.get(1).is_some_and(|word| word == "run") {
        return settings::parse_from(command, arguments);
    }
    let mut matches = command.try_get_matches_from(arguments)?;
    Ok(Arguments::from_arg_matches_mut(&mut matches)?)
}

/// Runs the command line and returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let failed = |error: &dyn std::fmt::Display| {
        let _ = writeln!(io::stderr(), "vitistack: {error}");
        ExitCode::from(exit::FAILED)
    };
    let arguments = match parse(&arguments) {
        Ok(arguments) => arguments,
        Err(SettingsError::ParseArguments { source }) => {
            // Help and version are answers, not errors; neither can do anything about a closed terminal.
            let _ = source.print();
            return match source.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(exit::USAGE),
            };
        }
        Err(error) => return failed(&error),
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("failed to start: {error}")),
    };
    let mut output = io::BufWriter::new(io::stdout().lock());
    let mut console = Console { output: &mut output, errors: &mut io::stderr(), terminal: args::terminal() };
    let ending = runtime.block_on(commands::run(&arguments.command, &mut console));
    // What a watch left behind must not keep the process.
    runtime.shutdown_background();
    let ending = ending.and_then(|ending| match output.flush() {
        Ok(()) => Ok(ending),
        Err(source) => Err(commands::Error::WriteOutput { source }),
    });
    match ending {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::Change) => ExitCode::from(exit::CHANGE),
        Ok(Ending::Partial) => ExitCode::from(exit::PARTIAL),
        // Whoever reads has enough: `vitistack crds | head` is no failure.
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}
