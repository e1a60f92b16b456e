//! The content: chunks of 64 KiB, each encrypted with its number and whether it is the last one, so that a chunk cannot
//! be changed, moved or removed unnoticed.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use snafu::{OptionExt, ensure};

use super::{
    AgeError, EncryptSnafu, OpenContentSnafu,
    keys::{FileKey, NONCE, derive},
};

/// The size of a chunk.
const CHUNK: usize = 64 << 10;
/// The size of an encrypted chunk.
pub const SEALED: usize = CHUNK + 16;

fn key(file_key: &FileKey, nonce: &[u8; NONCE]) -> Option<LessSafeKey> {
    let key = derive(file_key.bytes(), nonce, b"payload")?;
    Some(LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &key).ok()?))
}

/// Returns the nonce of a chunk: eleven bytes of its number, and whether it is the last one.
fn nonce(number: u64, is_last: bool) -> Nonce {
    let mut bytes = [0; 12];
    for (byte, value) in bytes.iter_mut().skip(3).zip(number.to_be_bytes()) {
        *byte = value;
    }
    if let Some(flag) = bytes.last_mut() {
        *flag = u8::from(is_last);
    }
    Nonce::assume_unique_for_key(bytes)
}

/// Encrypts content.
pub struct Sealer {
    key: LessSafeKey,
    number: u64,
    pending: Vec<u8>,
}

impl Sealer {
    /// Starts with the first chunk.
    pub fn new(file_key: &FileKey, nonce: &[u8; NONCE]) -> Result<Self, AgeError> {
        let key = key(file_key, nonce).context(EncryptSnafu)?;
        Ok(Self { key, number: 0, pending: Vec::with_capacity(SEALED) })
    }

    /// Returns the chunks that are complete. A full chunk waits, because it may be the last one.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<u8>, AgeError> {
        let mut sealed = Vec::new();
        while !bytes.is_empty() {
            if self.pending.len() == CHUNK {
                self.seal(false, &mut sealed)?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK - self.pending.len()));
            self.pending.extend_from_slice(now);
            bytes = later;
        }
        Ok(sealed)
    }

    /// Returns the last chunk.
    pub fn finish(mut self) -> Result<Vec<u8>, AgeError> {
        let mut sealed = Vec::new();
        self.seal(true, &mut sealed)?;
        Ok(sealed)
    }

    fn seal(&mut self, is_last: bool, into: &mut Vec<u8>) -> Result<(), AgeError> {
        let mut chunk = std::mem::replace(&mut self.pending, Vec::with_capacity(SEALED));
        let nonce = nonce(self.number, is_last);
        self.key.seal_in_place_append_tag(nonce, Aad::empty(), &mut chunk).ok().context(EncryptSnafu)?;
        self.number += 1;
        into.append(&mut chunk);
        Ok(())
    }
}

/// Decrypts content.
pub struct Opener {
    key: LessSafeKey,
    number: u64,
}

impl Opener {
    /// Starts with the first chunk.
    pub fn new(file_key: &FileKey, nonce: &[u8; NONCE]) -> Result<Self, AgeError> {
        Ok(Self { key: key(file_key, nonce).context(OpenContentSnafu)?, number: 0 })
    }

    /// Decrypts the next chunk. Only the content of an empty file is an empty chunk.
    pub fn open<'a>(&mut self, chunk: &'a mut [u8], is_last: bool) -> Result<&'a [u8], AgeError> {
        let nonce = nonce(self.number, is_last);
        let opened = self.key.open_in_place(nonce, Aad::empty(), chunk).ok().context(OpenContentSnafu)?;
        ensure!(!opened.is_empty() || self.number == 0, OpenContentSnafu);
        self.number += 1;
        Ok(opened)
    }
}
