//! Generates shell completions and man pages.

use std::{fs, io, path::PathBuf};

use clap::Args;
use clap_complete::Shell;
use clap_mangen::Man;
use snafu::ResultExt;

use super::{Ending, Error, WriteManSnafu, WriteOutputSnafu};
use crate::{command, printing::Console};

/// The arguments of `vitistack completion`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  # Install completions for bash
  vitistack completion bash > /etc/bash_completion.d/vitistack

  # Install completions for zsh
  vitistack completion zsh > \"${fpath[1]}/_vitistack\"

  # Install completions for fish
  vitistack completion fish > ~/.config/fish/completions/vitistack.fish")]
pub struct CompletionArgs {
    /// Shell
    shell: Shell,
}

/// The arguments of `vitistack man`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  vitistack man --dir /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Directory for the man pages, one per command; created if it does not exist
    #[arg(long, value_name = "DIRECTORY")]
    dir: PathBuf,
}

/// Prints a completion script.
pub fn completion(arguments: &CompletionArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command(), "vitistack", &mut script);
    console.output.write_all(&script).context(WriteOutputSnafu)?;
    Ok(Ending::Done)
}

/// Writes a man page for each command.
pub fn man(arguments: &ManArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let ManArgs { dir } = arguments;
    let mut root = command().disable_help_subcommand(true);
    root.build();

    fs::create_dir_all(dir).context(WriteManSnafu { dir })?;
    for command in with_subcommands(root) {
        let (file, page) = page(command).context(WriteManSnafu { dir })?;
        fs::write(dir.join(file), page).context(WriteManSnafu { dir })?;
    }

    writeln!(console.output, "man pages written to {}", dir.display()).context(WriteOutputSnafu)?;
    Ok(Ending::Done)
}

/// Returns a command and all commands below it, except those that are hidden.
fn with_subcommands(command: clap::Command) -> Vec<clap::Command> {
    let is_shown = |below: &&clap::Command| !below.is_hide_set() && below.get_name() != "help";
    let below = command.get_subcommands().filter(is_shown).cloned();
    let mut commands: Vec<clap::Command> = below.flat_map(with_subcommands).collect();
    commands.push(command);
    commands
}

/// Returns the file name and the content of the man page of a command.
fn page(command: clap::Command) -> io::Result<(String, Vec<u8>)> {
    let after_help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let has_subcommands = command.has_subcommands();
    let source = concat!("vitistack ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command).source(source).manual("VitiStack Manual");

    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    let sections = sections(&after_help);
    for paragraph in &sections.description {
        page.extend(format!(".PP\n{}\n", escaped(paragraph)).bytes());
    }
    man.render_options_section(&mut page)?;
    if has_subcommands {
        man.render_subcommands_section(&mut page)?;
    }
    for (title, lines) in [("EXAMPLES", &sections.examples), ("EXIT STATUS", &sections.exit_status)] {
        if !lines.is_empty() {
            page.extend(format!(".SH \"{title}\"\n.nf\n{}\n.fi\n", escaped(&lines.join("\n"))).bytes());
        }
    }
    Ok((man.get_filename(), page))
}

/// The sections of a man page that come from the text after the help of a command.
#[derive(Debug, Default)]
struct Sections {
    description: Vec<String>,
    examples: Vec<String>,
    exit_status: Vec<String>,
}

/// Splits the text after the help into sections: each starts with a line such as `Examples:` and is indented.
fn sections(text: &str) -> Sections {
    let mut sections = Sections::default();
    for paragraph in text.split("\n\n") {
        let is_example = paragraph.starts_with("  ") && !sections.examples.is_empty();
        if let Some(examples) = paragraph.strip_prefix("Examples:\n") {
            sections.examples.extend(examples.lines().map(ToOwned::to_owned));
        } else if is_example {
            sections.examples.push(String::new());
            sections.examples.extend(paragraph.lines().map(ToOwned::to_owned));
        } else if let Some(status) = paragraph.strip_prefix("Exit status:") {
            let lines = status.trim_matches('\n').lines().map(|line| line.trim_start().to_owned());
            sections.exit_status.extend(lines);
        } else if !paragraph.is_empty() {
            sections.description.push(paragraph.to_owned());
        }
    }
    sections
}

/// Escapes text for roff.
fn escaped(text: &str) -> String {
    let line = |line: &str| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        // A line that starts with a control character would be a request.
        if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_after_the_help_is_split_into_sections() {
        let text =
            "A note.\n\nExamples:\n  # One\n  one\n\n  # Two\n  two\n\nExit status: 0 success, 1 failure";
        let Sections { description, examples, exit_status } = sections(text);
        assert_eq!(description, ["A note."]);
        assert_eq!(examples, ["  # One", "  one", "", "  # Two", "  two"]);
        assert_eq!(exit_status, ["0 success, 1 failure"]);
    }

    #[test]
    fn text_is_escaped_for_roff() {
        assert_eq!(escaped("a -b\n.c"), "a \\-b\n\\&.c");
    }
}
