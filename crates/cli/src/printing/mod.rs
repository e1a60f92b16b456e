//! Output of the commands: formats, tables, colors, ages.

pub mod columns;
pub mod describe_fields;
mod escape;
mod table;

use std::io::{self, Write};

use clap::{
    ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use k8s_openapi::jiff::Timestamp;
use vitistack_apiserver::printing;

pub use self::{
    escape::{Escaped, escaped, write_line},
    table::Table,
};

/// The output formats. A command accepts those that it supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Human-readable text
    #[value(alias = "table")]
    Text,
    /// Text with additional columns
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// Object names only, as KIND.GROUP/NAME
    Name,
}

impl OutputFormat {
    /// Returns a parser that accepts some of the formats only.
    pub fn parser(accepted: &[Self]) -> impl TypedValueParser<Value = Self> + use<> {
        let names = accepted.iter().filter_map(Self::to_possible_value);
        PossibleValuesParser::new(names).try_map(|name| Self::from_str(&name, true))
    }
}

/// What standard output is connected to.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// Whether it is a terminal.
    pub is_terminal: bool,
    /// Whether colors are displayed and wanted.
    pub has_color: bool,
}

/// Where a command writes.
pub struct Console<'a> {
    /// Results.
    pub output: &'a mut dyn Write,
    /// Warnings and errors.
    pub errors: &'a mut dyn Write,
    /// What the output is connected to.
    pub terminal: Terminal,
}

/// The meaning of a text, which selects its color.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Neutral.
    #[default]
    Plain,
    /// Healthy.
    Good,
    /// In progress, or paused.
    Waiting,
    /// Failed.
    Bad,
    /// Secondary.
    Faint,
}

impl Tone {
    /// Returns the tone of a status, a phase or a reason.
    pub fn of(text: &str) -> Self {
        match text {
            "True" | "Running" | "Ready" => Self::Good,
            "False" | "Failed" | "Warning" => Self::Bad,
            "Unknown" | "Pending" | "Creating" | "Paused" => Self::Waiting,
            _ => Self::Plain,
        }
    }

    /// Returns the escape sequence of the color.
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Good => Some("\x1b[32m"),
            Self::Waiting => Some("\x1b[33m"),
            Self::Bad => Some("\x1b[31m"),
            Self::Faint => Some("\x1b[2m"),
        }
    }
}

/// The height of a terminal that does not report one.
const DEFAULT_HEIGHT: usize = 24;

/// Returns the number of lines of the terminal.
pub fn terminal_height() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.ok().map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0).unwrap_or(DEFAULT_HEIGHT)
}

impl Terminal {
    /// Returns the text, which may come from a cluster, in the color of its tone, if colors are displayed.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        let text = escaped(text);
        match tone.code().filter(|_| self.has_color) {
            Some(code) => format!("{code}{text}\x1b[0m"),
            None => text.into_owned(),
        }
    }
}

/// Returns the time since `then` in the notation of kubectl.
pub fn age(then: Option<Timestamp>, now: Timestamp) -> String {
    then.map_or_else(|| "<unknown>".to_owned(), |then| printing::duration(now.as_second() - then.as_second()))
}
