//! Encryption of files in the age format, version 1 (<https://age-encryption.org/v1>), so that the program `age` can
//! open them too.
//!
//! A file begins with a header that holds its key, encrypted to a passphrase or to each recipient, and continues with
//! the content in encrypted chunks. The primitives are those of the TLS library; the crate `age` would add seventy
//! others.

mod header;
mod keys;
mod stream;

use std::io::{self, Read as _, Write};

use snafu::{ResultExt, Snafu};

pub use self::keys::{Identity, Passphrase, Recipient};
use self::{
    header::Stanza,
    keys::FileKey,
    stream::{Opener, Sealer},
};

/// Indicates that a file could not be encrypted or decrypted. The messages follow the name of the file.
#[derive(Debug, Snafu)]
pub enum AgeError {
    /// The system has no random numbers, or a key is not usable.
    #[snafu(display("failed to encrypt"))]
    Encrypt,
    /// The content could not be written or read.
    #[snafu(display("{source}"))]
    Transfer {
        /// The error of the system.
        source: io::Error,
    },
    /// It is not an age file.
    #[snafu(display(
        "it is not an encrypted backup: use a file that vitistack apiserver backup has written"
    ))]
    RecognizeFile,
    /// The header is not valid.
    #[snafu(display("its header is damaged: use another copy"))]
    ReadHeader,
    /// The work factor is too high.
    #[snafu(display(
        "its passphrase would take too long to check: it was not written by vitistack apiserver backup"
    ))]
    LimitWork,
    /// Other keys open it.
    #[snafu(display(
        "it is encrypted to recipients: set --identity-file to the file with the key of one of them"
    ))]
    RequireIdentity,
    /// A passphrase opens it.
    #[snafu(display("it is encrypted with a passphrase: set --passphrase-file"))]
    RequirePassphrase,
    /// The passphrase or the keys do not open it.
    #[snafu(display("the passphrase or key does not open it: use the one that it was encrypted with"))]
    OpenKey,
    /// The content is not what was written.
    #[snafu(display("it is damaged or incomplete: use another copy"))]
    OpenContent,
    /// The text is not a recipient.
    #[snafu(display(
        "it is not a recipient: use the public key that age-keygen prints, which begins with age1"
    ))]
    ParseRecipient,
    /// The file of keys has none.
    #[snafu(display(
        "it contains no valid key: use a file that age-keygen has written, with a line that begins with AGE-SECRET-KEY-1"
    ))]
    ParseIdentity,
    /// The file of the passphrase is empty.
    #[snafu(display("its first line is empty or not text: write the passphrase there"))]
    ParsePassphrase,
}

/// Who can open a file.
#[derive(Debug)]
pub enum Lock {
    /// Those who know the passphrase.
    Passphrase(Passphrase),
    /// Those who have the key of one of the recipients.
    Recipients(Vec<Recipient>),
}

/// What opens a file.
#[derive(Debug)]
pub enum Key {
    /// A passphrase.
    Passphrase(Passphrase),
    /// Keys, of which one has to fit.
    Identities(Vec<Identity>),
}

/// Encrypts what is written to it. A file is complete only after `finish`.
pub struct Encryptor<W> {
    output: W,
    sealer: Sealer,
}

impl<W: Write> Encryptor<W> {
    /// Writes the header.
    pub fn new(lock: &Lock, mut output: W) -> Result<Self, AgeError> {
        let file_key = FileKey::generate()?;
        let stanzas = match lock {
            Lock::Passphrase(passphrase) => vec![passphrase.seal(&file_key)?],
            Lock::Recipients(recipients) => {
                recipients.iter().map(|recipient| recipient.seal(&file_key)).collect::<Result<_, _>>()?
            }
        };
        let nonce = keys::random()?;
        output.write_all(&header::write(&stanzas, &file_key)?).context(TransferSnafu)?;
        output.write_all(&nonce).context(TransferSnafu)?;
        Ok(Self { output, sealer: Sealer::new(&file_key, &nonce)? })
    }

    /// Encrypts a part of the content.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), AgeError> {
        let sealed = self.sealer.push(bytes)?;
        self.output.write_all(&sealed).context(TransferSnafu)
    }

    /// Writes the last chunk and returns the output.
    pub fn finish(mut self) -> Result<W, AgeError> {
        let sealed = self.sealer.finish()?;
        self.output.write_all(&sealed).context(TransferSnafu)?;
        Ok(self.output)
    }
}

/// Decrypts a file and passes its content on in parts. If it fails at the end, the parts are not to be used.
pub fn decrypt<E: From<AgeError>>(
    key: &Key,
    mut input: impl io::BufRead,
    mut each: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let header = header::read(&mut input)?;
    let file_key = open(key, &header.stanzas)?;
    header.verify(&file_key)?;

    let mut nonce = [0; keys::NONCE];
    input.read_exact(&mut nonce).map_err(|_| AgeError::OpenContent)?;
    let mut opener = Opener::new(&file_key, &nonce)?;
    loop {
        let mut chunk = Vec::with_capacity(stream::SEALED);
        let limit = stream::SEALED as u64;
        input.by_ref().take(limit).read_to_end(&mut chunk).context(TransferSnafu)?;
        let is_last = input.fill_buf().context(TransferSnafu)?.is_empty();
        each(opener.open(&mut chunk, is_last)?)?;
        if is_last {
            return Ok(());
        }
    }
}

/// Returns the key of a file.
fn open(key: &Key, stanzas: &[Stanza]) -> Result<FileKey, AgeError> {
    let has_passphrase = stanzas.iter().any(|stanza| stanza.kind() == keys::SCRYPT);
    match key {
        Key::Passphrase(_) if !has_passphrase => RequireIdentitySnafu.fail(),
        Key::Identities(_) if has_passphrase => RequirePassphraseSnafu.fail(),
        Key::Passphrase(passphrase) => match stanzas {
            [stanza] => passphrase.open(stanza),
            _ => ReadHeaderSnafu.fail(),
        },
        Key::Identities(identities) => {
            for stanza in stanzas.iter().filter(|stanza| stanza.kind() == keys::X25519) {
                for identity in identities {
                    if let Some(file_key) = identity.open(stanza)? {
                        return Ok(file_key);
                    }
                }
            }
            OpenKeySnafu.fail()
        }
    }
}

#[cfg(test)]
mod tests;
