//! The command line of VitiStack: one binary that contains the control plane, the operators and the client commands.

mod age;
mod args;
mod cluster;
mod commands;
mod inventory;
pub mod manifests;
mod printing;
mod tree;

use std::{
    ffi::OsString,
    fmt::Display,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use clap::{CommandFactory, FromArgMatches, error::ErrorKind};
use vitistack_runtime::settings::{self, SettingsError};

use crate::{args::Arguments, commands::Ending, printing::Console};

/// Exit codes, as `vitistack --help` documents them.
mod exit {
    /// The command failed.
    pub const FAILED: u8 = 1;
    /// Changes are pending.
    pub const CHANGE: u8 = 2;
    /// The result is partial.
    pub const PARTIAL: u8 = 3;
    /// The command line is invalid.
    pub const USAGE: u8 = 64;
}

/// The name under which kubectl finds its plugin: a link with this name to the binary provides `kubectl vitistack`.
const PLUGIN: &str = "kubectl-vitistack";

/// Returns the command line as clap describes it, for generated documentation.
#[must_use]
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Returns the command line for the name under which the binary was started.
fn command_named(program: Option<&OsString>) -> clap::Command {
    let is_plugin =
        program.is_some_and(|program| Path::new(program).file_name().is_some_and(|name| name == PLUGIN));
    if !is_plugin {
        return command();
    }

    command().name(PLUGIN).bin_name("kubectl vitistack").mut_subcommands(with_plugin_examples)
}

/// Rewrites the examples of a command for use as a kubectl plugin.
fn with_plugin_examples(command: clap::Command) -> clap::Command {
    match command.get_after_help() {
        Some(examples) => {
            let examples = examples.to_string().replace("  vitistack ", "  kubectl vitistack ");
            command.after_help(examples)
        }
        None => command,
    }
}

/// Parses the arguments. Those of `vitistack run` may also come from a settings file.
fn parse(arguments: &[OsString]) -> Result<Arguments, SettingsError> {
    let command = command_named(arguments.first());
    if arguments.get(1).is_some_and(|argument| argument == "run") {
        return settings::parse_from(command, arguments);
    }

    let mut matches = command.try_get_matches_from(arguments)?;
    Ok(Arguments::from_arg_matches_mut(&mut matches)?)
}

/// Prints an error and returns the exit code for it.
fn fail(error: &dyn Display) -> ExitCode {
    // It may contain text of a cluster.
    let _ = printing::write_line(&mut io::stderr(), format_args!("vitistack: {error}"));
    ExitCode::from(exit::FAILED)
}

/// Runs the command line and returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let arguments = match parse(&arguments) {
        Ok(arguments) => arguments,
        Err(SettingsError::ParseArguments { source }) => {
            // Nothing can be done about a closed terminal.
            let _ = source.print();
            return match source.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(exit::USAGE),
            };
        }
        Err(error) => return fail(&error),
    };

    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("failed to start the runtime: {error}")),
    };
    let mut output = io::BufWriter::new(io::stdout().lock());
    let mut console = Console { output: &mut output, errors: &mut io::stderr(), terminal: args::terminal() };
    let ending = runtime.block_on(commands::run(&arguments.command, &mut console));

    // Background tasks, such as open watches, must not keep the process alive.
    runtime.shutdown_background();
    let ending = ending.and_then(|ending| match output.flush() {
        Ok(()) => Ok(ending),
        Err(source) => Err(commands::Error::WriteOutput { source }),
    });

    match ending {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::Change) => ExitCode::from(exit::CHANGE),
        Ok(Ending::Partial) => ExitCode::from(exit::PARTIAL),
        // A reader that closes the pipe early, as in `vitistack crds | head`, is not a failure.
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}
