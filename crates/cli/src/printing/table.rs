//! A table in aligned columns, as kubectl prints it.

use std::io::{self, Write};

use super::{Terminal, Tone, escaped};

/// Rows under headings, in aligned columns. All cells share one buffer, which avoids an allocation per cell in lists of
/// many thousand objects.
#[derive(Debug)]
pub struct Table {
    headings: Vec<String>,
    text: String,
    /// The end of each cell in `text`, row by row.
    ends: Vec<usize>,
    widths: Vec<usize>,
    has_headings: bool,
}

/// The number of spaces between two columns.
const GAP: usize = 3;

impl Table {
    /// Creates an empty table. The headings are printed in upper case.
    pub fn new<'a>(headings: impl IntoIterator<Item = &'a str>) -> Self {
        let headings: Vec<String> = headings.into_iter().map(str::to_uppercase).collect();
        let widths = headings.iter().map(|heading| heading.chars().count()).collect();
        Self { headings, text: String::new(), ends: Vec::new(), widths, has_headings: true }
    }

    /// Removes the headings, which then do not count for the widths of the columns.
    pub fn without_headings(mut self) -> Self {
        self.has_headings = false;
        self.widths.fill(0);
        self
    }

    /// Adds the next cell. A row is complete when every column has a cell.
    pub fn cell(&mut self, text: &str) {
        let text = escaped(text);
        let column = self.ends.len() % self.headings.len().max(1);
        if let Some(width) = self.widths.get_mut(column) {
            *width = (*width).max(text.chars().count());
        }
        self.text.push_str(&text);
        self.ends.push(self.text.len());
    }

    /// Adds a row.
    pub fn row<'a>(&mut self, cells: impl IntoIterator<Item = &'a str>) {
        for cell in cells {
            self.cell(cell);
        }
    }

    /// Removes all rows. The columns keep their widths.
    pub fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// Returns whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Writes headings and rows.
    pub fn write(&self, output: &mut dyn Write, terminal: Terminal) -> io::Result<()> {
        self.write_headings(output, terminal)?;
        self.write_rows(output, terminal)
    }

    /// Writes the headings, unless there are none.
    pub fn write_headings(&self, output: &mut dyn Write, terminal: Terminal) -> io::Result<()> {
        if !self.has_headings {
            return Ok(());
        }
        let mut line = String::new();
        for (column, heading) in self.headings.iter().enumerate() {
            self.pad(&mut line, column, heading, Tone::Plain, terminal);
        }
        end_line(&mut line, output)
    }

    /// Writes the rows without the headings.
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
        match tone.code().filter(|_| terminal.has_color) {
            Some(code) => line.extend([code, cell, "\x1b[0m"]),
            None => line.push_str(cell),
        }
        let width = self.widths.get(column).copied().unwrap_or_default();
        let spaces = (width + GAP).saturating_sub(cell.chars().count());
        line.extend(std::iter::repeat_n(' ', spaces));
    }
}

/// Writes a line without trailing spaces and clears it.
fn end_line(line: &mut String, output: &mut dyn Write) -> io::Result<()> {
    line.truncate(line.trim_end().len());
    line.push('\n');
    output.write_all(line.as_bytes())?;
    line.clear();
    Ok(())
}
