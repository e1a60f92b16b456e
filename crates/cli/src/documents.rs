//! The YAML documents of a file that a user gives.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use serde_json::Value;
use snafu::{ResultExt, Snafu};

/// Indicates that a file could not be read.
#[derive(Debug, Snafu)]
pub enum ReadError {
    /// Indicates that the file could not be read.
    #[snafu(display("failed to read {}: {source}", path.display()))]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Indicates that the file holds something else than manifests.
    #[snafu(display("failed to read {}: {message}", path.display()))]
    ParseFile {
        /// The file.
        path: PathBuf,
        /// Why.
        message: String,
    },
}

/// Every document of a file; `-` is standard input.
pub fn read(path: &Path) -> Result<Vec<Value>, ReadError> {
    let mut text = String::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map(|_| ())
    } else {
        std::fs::read_to_string(path).map(|content| text = content)
    };
    read.context(ReadFileSnafu { path })?;
    // The parser draws a picture below its first line.
    let first_line = |error: String| error.lines().next().unwrap_or_default().replacen("error: ", "", 1);
    serde_saphyr::from_multiple(&text).map_err(|error| ReadError::ParseFile {
        path: path.to_owned(),
        message: first_line(error.to_string()),
    })
}
