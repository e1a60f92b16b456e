//! The content of a backup: one JSON document per line, so that any tool can read it.
//!
//! The first line has the format, the version of the store and the number of objects; then follow the objects, as they
//! are stored; the last line has the identity of the server.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use snafu::{OptionExt, Snafu, ensure};

use super::Identity;
use crate::{
    store::{Entry, Key, Snapshot},
    tls::Credentials,
};

/// The format of the lines. A newer one is refused, because this program cannot know what it means.
const FORMAT: u32 = 1;

/// The size from which lines are passed on.
const CHUNK: usize = 64 << 10;

/// The maximum length of a line. Objects have at most 3 MiB.
const MAX_LINE: usize = 16 << 20;

/// Indicates that the lines are not a backup, or not a complete one.
#[derive(Debug, Snafu)]
pub enum ArchiveError {
    /// The first line is not that of a backup.
    #[snafu(display(
        "it is not a backup of an embedded Kubernetes API; use a file that vitistack apiserver backup has written"
    ))]
    RecognizeFormat,
    /// It was written by a newer version.
    #[snafu(display(
        "its format {found} is newer than {FORMAT}, the newest that this program supports; use the version that wrote it or a newer one"
    ))]
    ReadNewerFormat {
        /// Its format.
        found: u32,
    },
    /// A line is not what was written.
    #[snafu(display("it is damaged in line {line}; use another copy"))]
    ReadLine {
        /// The number of the line.
        line: u64,
    },
    /// Lines are missing.
    #[snafu(display("it is incomplete; use another copy"))]
    FindEnd,
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    /// The format; its name identifies the file.
    vitistack_backup: u32,
    /// The version of the store.
    version: u64,
    /// The number of objects.
    objects: u64,
    /// When the objects were read.
    created: Timestamp,
}

/// The line of an object.
#[derive(Debug, Serialize, Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    resource: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    version: u64,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
struct Footer {
    credentials: Option<Credentials>,
}

/// The objects to back up.
#[derive(Debug)]
pub struct Archive {
    snapshot: Snapshot,
    created: Timestamp,
}

impl Archive {
    /// Returns the backup of a store that was read at `created`.
    #[must_use]
    pub fn new(snapshot: Snapshot, created: Timestamp) -> Self {
        Self { snapshot, created }
    }

    /// Returns all lines except the last one, in pieces.
    pub fn into_chunks(self) -> impl Iterator<Item = Bytes> + Send {
        let Snapshot { version, objects } = self.snapshot;
        let header = Header {
            vitistack_backup: FORMAT,
            version,
            objects: objects.len() as u64,
            created: self.created,
        };
        let mut first = Some(header);
        let mut objects = objects.into_iter();

        std::iter::from_fn(move || {
            let mut chunk = Vec::with_capacity(CHUNK);
            if let Some(header) = first.take() {
                write_line(&mut chunk, &header);
            }
            while chunk.len() < CHUNK
                && let Some((key, entry)) = objects.next()
            {
                write_object(&mut chunk, &key, &entry);
            }
            (!chunk.is_empty()).then(|| Bytes::from(chunk))
        })
    }

    /// Returns the last line.
    #[must_use]
    pub fn end(identity: Option<&Identity>) -> Bytes {
        let mut line = Vec::new();
        write_line(&mut line, &Footer { credentials: identity.map(|identity| identity.0.clone()) });
        Bytes::from(line)
    }
}

fn write_line(into: &mut Vec<u8>, value: &impl Serialize) {
    // Serializing into memory cannot fail: the keys are strings, and a Vec accepts all bytes.
    let _ = serde_json::to_writer(&mut *into, value);
    into.push(b'\n');
}

/// Writes the line of an object, whose stored bytes are copied as they are: they are JSON in one line.
fn write_object(into: &mut Vec<u8>, key: &Key, entry: &Entry) {
    let Ok(object) = serde_json::from_slice::<&RawValue>(&entry.bytes) else { return };
    let line = Line {
        resource: Cow::Borrowed(&key.resource),
        namespace: Cow::Borrowed(&key.namespace),
        name: Cow::Borrowed(&key.name),
        version: entry.version,
        object,
    };
    write_line(into, &line);
}

/// What a backup contains.
#[derive(Debug)]
pub struct Contents {
    /// The objects and the version of the store.
    pub snapshot: Snapshot,
    /// The identity of the server, if it had one.
    pub identity: Option<Identity>,
    /// When the objects were read.
    pub created: Timestamp,
}

/// Reads the lines of a backup as they arrive.
#[derive(Debug, Default)]
pub struct Reader {
    pending: Vec<u8>,
    lines: u64,
    header: Option<Header>,
    names: HashMap<String, Arc<str>>,
    objects: Vec<(Key, Entry)>,
    /// The last line.
    footer: Option<Footer>,
}

impl Reader {
    /// Reads more bytes.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), ArchiveError> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            let mut pending = std::mem::take(&mut self.pending);
            pending.extend_from_slice(line);
            self.line(&pending)?;
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.pending.extend_from_slice(bytes);
        ensure!(self.pending.len() <= MAX_LINE, ReadLineSnafu { line: self.lines + 1 });
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), ArchiveError> {
        self.lines += 1;
        let damaged = ReadLineSnafu { line: self.lines };
        let Some(header) = &self.header else {
            self.header = Some(header(line)?);
            return Ok(());
        };
        ensure!(self.footer.is_none(), damaged);

        if (self.objects.len() as u64) < header.objects {
            let (version, names) = (header.version, &mut self.names);
            let object = object(line, names).filter(|(_, entry)| entry.version <= version);
            self.objects.push(object.context(damaged)?);
        } else {
            self.footer = Some(serde_json::from_slice(line).ok().context(damaged)?);
        }
        Ok(())
    }

    /// Checks that all objects have been read, of lines without the last one, and returns the version of the store and
    /// the number of objects.
    pub fn counts(&self) -> Result<(u64, u64), ArchiveError> {
        let header = self.header.as_ref().context(FindEndSnafu)?;
        let is_complete = self.pending.is_empty() && self.objects.len() as u64 == header.objects;
        ensure!(is_complete, FindEndSnafu);
        Ok((header.version, header.objects))
    }

    /// Returns what was read, if it is complete.
    pub fn finish(self) -> Result<Contents, ArchiveError> {
        self.counts()?;
        let (header, footer) = self.header.zip(self.footer).context(FindEndSnafu)?;
        let snapshot = Snapshot { version: header.version, objects: self.objects };
        let identity = footer.credentials.map(Identity);
        Ok(Contents { snapshot, identity, created: header.created })
    }
}

fn header(line: &[u8]) -> Result<Header, ArchiveError> {
    /// The part of the first line that no format changes.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Format {
        vitistack_backup: u32,
    }

    let format: Format = serde_json::from_slice(line).ok().context(RecognizeFormatSnafu)?;
    let found = format.vitistack_backup;
    ensure!(found <= FORMAT, ReadNewerFormatSnafu { found });
    serde_json::from_slice(line).ok().context(ReadLineSnafu { line: 1_u64 })
}

/// Returns the object of a line. `names` holds each resource once.
fn object(line: &[u8], names: &mut HashMap<String, Arc<str>>) -> Option<(Key, Entry)> {
    let line: Line<'_> = serde_json::from_slice(line).ok()?;
    let resource =
        names.entry(line.resource.into_owned()).or_insert_with_key(|name| Arc::from(name.as_str()));
    let key = Key {
        resource: Arc::clone(resource),
        namespace: line.namespace.into_owned(),
        name: line.name.into_owned(),
    };
    let bytes = Bytes::copy_from_slice(line.object.get().as_bytes());
    Some((key, Entry { version: line.version, bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let object = |name: &str, version: u64, text: &str| {
            let key = Key { resource: "/maps".into(), namespace: "a".into(), name: name.into() };
            (key, Entry { version, bytes: Bytes::copy_from_slice(text.as_bytes()) })
        };
        Snapshot {
            version: 9,
            objects: vec![
                object("one", 3, r#"{"b":1.0,"a":"\n","kind":"Line\u0000"}"#),
                object("two", 9, &format!("{{\"text\":\"{}\"}}", "x".repeat(CHUNK))),
            ],
        }
    }

    fn text(snapshot: Snapshot) -> Vec<u8> {
        let chunks = Archive::new(snapshot, Timestamp::UNIX_EPOCH).into_chunks();
        let mut text: Vec<u8> = chunks.flat_map(Vec::from).collect();
        text.extend_from_slice(&Archive::end(None));
        text
    }

    fn read(text: &[u8], step: usize) -> Result<Contents, ArchiveError> {
        let mut reader = Reader::default();
        for piece in text.chunks(step) {
            reader.push(piece)?;
        }
        reader.finish()
    }

    #[test]
    fn objects_are_read_as_they_were_written() {
        let text = text(snapshot());
        for step in [1, 7, text.len()] {
            let contents = read(&text, step).unwrap();
            assert_eq!(contents.snapshot, snapshot());
            assert!(contents.identity.is_none());
        }
    }

    #[test]
    fn a_part_is_not_a_backup() {
        let text = text(snapshot());
        for length in [0, 1, 50, text.len() / 2, text.len() - 20, text.len() - 1] {
            assert!(matches!(read(&text[..length], 4096), Err(ArchiveError::FindEnd)), "{length}");
        }
        let twice = [text.as_slice(), text.as_slice()].concat();
        assert!(matches!(read(&twice, 4096), Err(ArchiveError::ReadLine { line: 5 })));
    }

    #[test]
    fn a_newer_format_and_other_files_are_refused() {
        let newer = read(b"{\"vitistackBackup\":2,\"something\":\"else\"}\n", 64).unwrap_err();
        assert!(matches!(newer, ArchiveError::ReadNewerFormat { found: 2 }), "{newer}");
        for other in ["hello\n", "{}\n", "{\"apiVersion\":\"v1\"}\n"] {
            assert!(matches!(read(other.as_bytes(), 64), Err(ArchiveError::RecognizeFormat)), "{other}");
        }
    }
}
