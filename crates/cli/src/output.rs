//! How answers are written: formats, tables, colours, ages.

use std::io::{self, Write};

use clap::ValueEnum;
use k8s_openapi::jiff::Timestamp;
use vitistack_apiserver::printing;

/// In which form objects are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// The columns that matter
    Table,
    /// More columns
    Wide,
    /// The whole objects as JSON
    Json,
    /// The whole objects as YAML
    Yaml,
    /// Only KIND/NAME
    Name,
}

/// In which form something is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AnswerFormat {
    /// For people
    Text,
    /// The same as JSON
    Json,
    /// The same as YAML
    Yaml,
}

/// What standard output is.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// Whether a person looks at it.
    pub is_terminal: bool,
    /// Whether it shows colours, and the person wants them.
    pub has_colour: bool,
}

/// Where a command writes.
pub struct Console<'a> {
    /// The answer.
    pub output: &'a mut dyn Write,
    /// What is wrong or missing.
    pub errors: &'a mut dyn Write,
    /// What the output is.
    pub terminal: Terminal,
}

/// How a word is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing to note.
    #[default]
    Plain,
    /// As it shall be.
    Good,
    /// On its way, or stopped by somebody.
    Waiting,
    /// Not as it shall be.
    Bad,
    /// Of less interest.
    Faint,
}

impl Tone {
    /// How a status, a phase or a reason is meant.
    pub fn of(word: &str) -> Self {
        match word {
            "True" | "Running" | "Ready" => Self::Good,
            "False" | "Failed" | "Warning" => Self::Bad,
            "Unknown" | "Pending" | "Creating" | "Paused" => Self::Waiting,
            _ => Self::Plain,
        }
    }

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

/// Lines of a terminal that does not say how many it has.
const HEIGHT: usize = 24;

/// How many lines the terminal has.
pub fn terminal_height() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.ok().map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0).unwrap_or(HEIGHT)
}

impl Terminal {
    /// The text in the colour of its tone, where colours are shown.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        match tone.code().filter(|_| self.has_colour) {
            Some(code) => format!("{code}{text}\x1b[0m"),
            None => text.to_owned(),
        }
    }
}

/// Rows under headings, in aligned columns. All cells share one buffer, so that ten thousand rows are not ten thousand
/// times a few strings.
#[derive(Debug)]
pub struct Table {
    headings: Vec<String>,
    text: String,
    /// Where each cell ends in `text`, row by row.
    ends: Vec<usize>,
    widths: Vec<usize>,
}

/// The blanks between two columns.
const GAP: usize = 3;

impl Table {
    /// A table with these headings, which are written in capitals.
    pub fn new<'a>(headings: impl IntoIterator<Item = &'a str>) -> Self {
        let headings: Vec<String> = headings.into_iter().map(str::to_uppercase).collect();
        let widths = headings.iter().map(|heading| heading.chars().count()).collect();
        Self { headings, text: String::new(), ends: Vec::new(), widths }
    }

    /// Adds the next cell; a row is full when every column has one.
    pub fn cell(&mut self, text: &str) {
        let column = self.ends.len() % self.headings.len().max(1);
        if let Some(width) = self.widths.get_mut(column) {
            *width = (*width).max(text.chars().count());
        }
        // A line break in a cell would tear the table.
        self.text.extend(text.chars().map(|character| if character.is_control() { ' ' } else { character }));
        self.ends.push(self.text.len());
    }

    /// Adds a row.
    pub fn row<'a>(&mut self, cells: impl IntoIterator<Item = &'a str>) {
        for cell in cells {
            self.cell(cell);
        }
    }

    /// Takes out all rows; the columns stay as wide as they are.
    pub fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Writes headings and rows.
    pub fn write(&self, output: &mut dyn Write, terminal: Terminal) -> io::Result<()> {
        let mut line = String::new();
        for (column, heading) in self.headings.iter().enumerate() {
            self.pad(&mut line, column, heading, Tone::Plain, terminal);
        }
        end_line(&mut line, output)?;
        self.write_rows(output, terminal)
    }

    /// Writes the rows alone, under headings that were written before.
    pub fn write_rows(&self, output: &mut dyn Write, terminal: Terminal) -> io::Result<()> {
        let (mut line, mut start) = (String::new(), 0);
        let columns = self.headings.len().max(1);
        for (number, end) in self.ends.iter().enumerate() {
            let cell = self.text.get(start..*end).unwrap_or_default();
            start = *end;
            self.pad(&mut line, number % columns, cell, Tone::of(cell), terminal);
            if number % columns == columns - 1 {
                end_line(&mut line, output)?;
            }
        }
        Ok(())
    }

    fn pad(&self, line: &mut String, column: usize, cell: &str, tone: Tone, terminal: Terminal) {
        match tone.code().filter(|_| terminal.has_colour) {
            Some(code) => line.extend([code, cell, "\x1b[0m"]),
            None => line.push_str(cell),
        }
        let width = self.widths.get(column).copied().unwrap_or_default();
        let blanks = (width + GAP).saturating_sub(cell.chars().count());
        line.extend(std::iter::repeat_n(' ', blanks));
    }
}

fn end_line(line: &mut String, output: &mut dyn Write) -> io::Result<()> {
    line.truncate(line.trim_end().len());
    line.push('\n');
    output.write_all(line.as_bytes())?;
    line.clear();
    Ok(())
}

/// How long ago that was, as kubectl says it.
pub fn age(then: Option<Timestamp>, now: Timestamp) -> String {
    then.map_or_else(|| "<unknown>".to_owned(), |then| printing::duration(now.as_second() - then.as_second()))
}
