//! The header: lines of text with the key of the file, encrypted for each recipient, and a code that authenticates them.

use std::io::{BufRead, Read as _};

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use snafu::{OptionExt, ResultExt, ensure};

use super::{
    AgeError, EncryptSnafu, OpenContentSnafu, ReadHeaderSnafu, RecognizeFileSnafu, TransferSnafu,
    keys::{FileKey, derive},
};

const VERSION: &[u8] = b"age-encryption.org/v1\n";
/// The number of base64 characters per line; a line with fewer is the last of a body.
const COLUMNS: usize = 64;
/// The maximum size of a header, which has about 150 bytes per recipient.
const MAX_SIZE: usize = 1 << 20;

/// The key of the file for one recipient.
#[derive(Debug)]
pub struct Stanza {
    /// The kind of recipient and its parameters.
    pub arguments: Vec<String>,
    /// The encrypted key.
    pub body: Vec<u8>,
}

impl Stanza {
    /// Returns the kind of recipient.
    pub fn kind(&self) -> &str {
        self.arguments.first().map_or("", String::as_str)
    }

    fn write(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(format!("-> {}\n", self.arguments.join(" ")).as_bytes());
        let body = STANDARD_NO_PAD.encode(&self.body);
        for line in body.as_bytes().chunks(COLUMNS) {
            into.extend_from_slice(line);
            into.push(b'\n');
        }
        if body.len().is_multiple_of(COLUMNS) {
            into.push(b'\n');
        }
    }
}

/// The key that authenticates the header.
fn authentication(file_key: &FileKey) -> Option<hmac::Key> {
    Some(hmac::Key::new(hmac::HMAC_SHA256, &derive(file_key.bytes(), &[], b"header")?))
}

/// Returns the bytes of a header.
pub fn write(stanzas: &[Stanza], file_key: &FileKey) -> Result<Vec<u8>, AgeError> {
    let mut header = VERSION.to_vec();
    for stanza in stanzas {
        stanza.write(&mut header);
    }
    header.extend_from_slice(b"---");
    let code = hmac::sign(&authentication(file_key).context(EncryptSnafu)?, &header);
    header.extend_from_slice(format!(" {}\n", STANDARD_NO_PAD.encode(code)).as_bytes());
    Ok(header)
}

/// A header as it was read.
#[derive(Debug)]
pub struct Header {
    /// The key of the file, for each recipient.
    pub stanzas: Vec<Stanza>,
    /// What is authenticated.
    text: Vec<u8>,
    code: Vec<u8>,
}

impl Header {
    /// Checks that the header is what was written.
    pub fn verify(&self, file_key: &FileKey) -> Result<(), AgeError> {
        let key = authentication(file_key).context(OpenContentSnafu)?;
        hmac::verify(&key, &self.text, &self.code).ok().context(OpenContentSnafu)
    }
}

/// Reads a header.
pub fn read(input: &mut impl BufRead) -> Result<Header, AgeError> {
    let mut text = Vec::new();
    let first = line(input, &mut text)?;
    ensure!(first.as_bytes() == VERSION.trim_ascii_end(), RecognizeFileSnafu);

    let mut stanzas: Vec<Stanza> = Vec::new();
    loop {
        let before = text.len();
        let line = line(input, &mut text)?;
        if let Some(code) = line.strip_prefix("--- ") {
            text.truncate(before + 3);
            let code = STANDARD_NO_PAD.decode(code).ok().context(ReadHeaderSnafu)?;
            ensure!(!stanzas.is_empty(), ReadHeaderSnafu);
            return Ok(Header { stanzas, text, code });
        }
        let arguments = line.strip_prefix("-> ").context(ReadHeaderSnafu)?;
        let arguments = arguments.split(' ').map(str::to_owned).collect();
        stanzas.push(Stanza { arguments, body: body(input, &mut text)? });
    }
}

/// Reads the body of a stanza: full lines and a shorter one.
fn body(input: &mut impl BufRead, text: &mut Vec<u8>) -> Result<Vec<u8>, AgeError> {
    let mut encoded = String::new();
    loop {
        let line = line(input, text)?;
        ensure!(line.len() <= COLUMNS, ReadHeaderSnafu);
        encoded.push_str(&line);
        if line.len() < COLUMNS {
            return STANDARD_NO_PAD.decode(encoded).ok().context(ReadHeaderSnafu);
        }
    }
}

/// Reads a line, and adds it to the text.
fn line(input: &mut impl BufRead, text: &mut Vec<u8>) -> Result<String, AgeError> {
    let before = text.len();
    let room = MAX_SIZE.saturating_sub(before) as u64;
    input.take(room).read_until(b'\n', text).context(TransferSnafu)?;
    // A file that ends or is binary within the first line is of another format.
    let failed = || if before == 0 { AgeError::RecognizeFile } else { AgeError::ReadHeader };
    let line = text.get(before..).unwrap_or_default().strip_suffix(b"\n").ok_or_else(failed)?;
    String::from_utf8(line.to_vec()).map_err(|_| failed())
}
