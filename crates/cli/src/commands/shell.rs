//! What a shell and `man` want to know of the command line.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;
use snafu::ResultExt;

use super::{Ending, Error, WriteManSnafu, WriteOutputSnafu};
use crate::{command, output::Console};

/// Which shell.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vitistack completion bash > /etc/bash_completion.d/vitistack\n  vitistack completion zsh > \"${fpath[1]}/_vitistack\"\n  vitistack completion fish > ~/.config/fish/completions/vitistack.fish"
)]
pub struct CompletionArgs {
    /// The shell
    shell: Shell,
}

/// Where to write pages.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vitistack man --dir /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Directory to write a page for each command to; it is made if it is not there
    #[arg(long, value_name = "DIRECTORY")]
    dir: PathBuf,
}

/// Prints the script that completes our commands.
pub fn completion(arguments: &CompletionArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command(), "vitistack", &mut script);
    console.output.write_all(&script).context(WriteOutputSnafu)?;
    Ok(Ending::Done)
}

/// Writes a page for each command.
pub fn man(arguments: &ManArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let ManArgs { dir } = arguments;
    std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(command(), dir))
        .context(WriteManSnafu { dir })?;
    writeln!(console.output, "the pages are in {}", dir.display()).context(WriteOutputSnafu)?;
    Ok(Ending::Done)
}
