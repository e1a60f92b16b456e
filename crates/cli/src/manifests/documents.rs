//! Reads the YAML documents of a file.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use serde_json::Value;
use snafu::{ResultExt, Snafu};

/// Errors of reading manifests.
#[derive(Debug, Snafu)]
pub enum ReadError {
    /// The file cannot be read.
    #[snafu(display("failed to read {}: {source}", path.display()))]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file does not contain valid manifests.
    #[snafu(display("failed to parse {}: {message}", path.display()))]
    ParseFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        message: String,
    },
}

/// Returns the documents of a file; `-` is standard input.
pub fn read(path: &Path) -> Result<Vec<Value>, ReadError> {
    let mut text = String::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map(|_| ())
    } else {
        std::fs::read_to_string(path).map(|content| text = content)
    };
    read.context(ReadFileSnafu { path })?;

    serde_saphyr::from_multiple(&text).map_err(|error| ReadError::ParseFile {
        path: path.to_owned(),
        message: first_line(&error.to_string()),
    })
}

/// Returns the first line of an error of the parser, which is followed by an excerpt of the file.
fn first_line(error: &str) -> String {
    error.lines().next().unwrap_or_default().replacen("error: ", "", 1)
}
