//! Passphrases, recipients and their keys, and how each encrypts the key of a file.

use aws_lc_rs::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey},
    agreement::{PrivateKey, UnparsedPublicKey, X25519 as CURVE, agree},
    hkdf::{HKDF_SHA256, Salt},
    rand,
};
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use bech32::{Bech32, Hrp, primitives::decode::CheckedHrpstring};
use snafu::{OptionExt, ensure};

use super::{
    AgeError, EncryptSnafu, LimitWorkSnafu, OpenKeySnafu, ParseIdentitySnafu, ParsePassphraseSnafu,
    ParseRecipientSnafu, ReadHeaderSnafu, header::Stanza,
};

/// The stanza of a passphrase.
pub const SCRYPT: &str = "scrypt";
/// The stanza of a recipient.
pub const X25519: &str = "X25519";
/// The size of the random number before the content.
pub const NONCE: usize = 16;

/// The work factor of new files, as a power of two: 256 MiB and about a second, that of the program `age`.
const WORK: u8 = 18;
/// The highest work factor that is accepted, that of the program `age`.
const MAX_WORK: u8 = 22;
/// Distinguishes the uses of a key.
const SCRYPT_LABEL: &[u8] = b"age-encryption.org/v1/scrypt";
const X25519_LABEL: &[u8] = b"age-encryption.org/v1/X25519";

/// Returns random bytes.
pub fn random() -> Result<[u8; NONCE], AgeError> {
    let mut bytes = [0; NONCE];
    rand::fill(&mut bytes).ok().context(EncryptSnafu)?;
    Ok(bytes)
}

/// Derives a key for one purpose.
pub fn derive(secret: &[u8], salt: &[u8], purpose: &[u8]) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    let extracted = Salt::new(HKDF_SHA256, salt).extract(secret);
    extracted.expand(&[purpose], HKDF_SHA256).ok()?.fill(&mut key).ok()?;
    Some(key)
}

/// The key from which all keys of a file are derived.
pub struct FileKey([u8; 16]);

impl FileKey {
    /// Generates a key.
    pub fn generate() -> Result<Self, AgeError> {
        random().map(Self)
    }

    /// Returns the key.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Encrypts the key. The wrapping key is used once, so the nonce is constant.
    fn seal(&self, with: &[u8; 32]) -> Option<Vec<u8>> {
        let mut body = self.0.to_vec();
        let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, with).ok()?);
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key([0; 12]), Aad::empty(), &mut body).ok()?;
        Some(body)
    }

    /// Decrypts the key. A body of another size is refused first, as the format requires.
    fn open(body: &[u8], with: &[u8; 32]) -> Result<Option<Self>, AgeError> {
        ensure!(body.len() == 32, ReadHeaderSnafu);
        let mut body = body.to_vec();
        let Ok(key) = UnboundKey::new(&CHACHA20_POLY1305, with) else { return Ok(None) };
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        let opened = LessSafeKey::new(key).open_in_place(nonce, Aad::empty(), &mut body);
        Ok(opened.ok().and_then(|key| <[u8; 16]>::try_from(&*key).ok()).map(Self))
    }
}

/// A passphrase.
pub struct Passphrase {
    text: String,
    work: u8,
}

impl std::fmt::Debug for Passphrase {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Passphrase(…)")
    }
}

impl Passphrase {
    /// Parses the content of a file: its first line.
    pub fn parse(content: &[u8]) -> Result<Self, AgeError> {
        let text = std::str::from_utf8(content).ok().context(ParsePassphraseSnafu)?;
        let text = text.lines().next().unwrap_or_default();
        ensure!(!text.is_empty(), ParsePassphraseSnafu);
        Ok(Self { text: text.to_owned(), work: WORK })
    }

    /// Returns the same passphrase with less work, for tests.
    #[cfg(test)]
    pub fn with_work(self, work: u8) -> Self {
        Self { work, ..self }
    }

    fn key(&self, salt: &[u8], work: u8) -> Option<[u8; 32]> {
        let mut key = [0; 32];
        let parameters = scrypt::Params::new(work, 8, 1).ok()?;
        let salt = [SCRYPT_LABEL, salt].concat();
        scrypt::scrypt(self.text.as_bytes(), &salt, &parameters, &mut key).ok()?;
        Some(key)
    }

    /// Encrypts the key of a file.
    pub fn seal(&self, file_key: &FileKey) -> Result<Stanza, AgeError> {
        let salt = random()?;
        let body = self.key(&salt, self.work).and_then(|key| file_key.seal(&key)).context(EncryptSnafu)?;
        let arguments = vec![SCRYPT.to_owned(), STANDARD_NO_PAD.encode(salt), self.work.to_string()];
        Ok(Stanza { arguments, body })
    }

    /// Decrypts the key of a file.
    pub fn open(&self, stanza: &Stanza) -> Result<FileKey, AgeError> {
        let [_, salt, work] = stanza.arguments.as_slice() else { return ReadHeaderSnafu.fail() };
        let salt = STANDARD_NO_PAD.decode(salt).ok().filter(|salt| salt.len() == NONCE);
        let salt = salt.context(ReadHeaderSnafu)?;
        let is_number = work.bytes().all(|byte| byte.is_ascii_digit()) && !work.starts_with('0');
        ensure!(is_number && !work.is_empty(), ReadHeaderSnafu);
        let work = work.parse::<u8>().ok().filter(|work| *work <= MAX_WORK).context(LimitWorkSnafu)?;
        let key = self.key(&salt, work).context(OpenKeySnafu)?;
        FileKey::open(&stanza.body, &key)?.context(OpenKeySnafu)
    }
}

/// The public key of a recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipient([u8; 32]);

/// Decodes a key with this prefix, of any case.
fn decode(text: &str, prefix: &str) -> Option<[u8; 32]> {
    let decoded = CheckedHrpstring::new::<Bech32>(text).ok()?;
    let bytes: Vec<u8> = decoded.byte_iter().collect();
    (decoded.hrp() == Hrp::parse(prefix).ok()?).then(|| bytes.try_into().ok())?
}

impl Recipient {
    /// Parses a public key, such as age-keygen prints.
    pub fn parse(text: &str) -> Result<Self, AgeError> {
        decode(text, "age").map(Self).context(ParseRecipientSnafu)
    }

    /// Encrypts the key of a file.
    pub fn seal(&self, file_key: &FileKey) -> Result<Stanza, AgeError> {
        let wrapped = || {
            let ephemeral = PrivateKey::generate(&CURVE).ok()?;
            let share = ephemeral.compute_public_key().ok()?;
            let key = agreed(&ephemeral, &self.0, share.as_ref(), &self.0)?;
            let arguments = vec![X25519.to_owned(), STANDARD_NO_PAD.encode(share.as_ref())];
            Some(Stanza { arguments, body: file_key.seal(&key)? })
        };
        wrapped().context(EncryptSnafu)
    }
}

/// Returns the key that both sides can compute.
fn agreed(private: &PrivateKey, peer: &[u8], share: &[u8], recipient: &[u8]) -> Option<[u8; 32]> {
    let salt = [share, recipient].concat();
    agree(private, UnparsedPublicKey::new(&CURVE, peer), (), |secret| {
        derive(secret, &salt, X25519_LABEL).ok_or(())
    })
    .ok()
}

/// The private key of a recipient.
pub struct Identity {
    private: PrivateKey,
    public: [u8; 32],
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Identity(…)")
    }
}

impl Identity {
    /// Parses the content of a file: a key per line, comments and empty lines.
    pub fn parse_all(content: &[u8]) -> Result<Vec<Self>, AgeError> {
        let text = std::str::from_utf8(content).ok().context(ParseIdentitySnafu)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let identities: Option<Vec<Self>> = lines.map(Self::parse).collect();
        identities.filter(|identities| !identities.is_empty()).context(ParseIdentitySnafu)
    }

    fn parse(line: &str) -> Option<Self> {
        let private = PrivateKey::from_private_key(&CURVE, &decode(line, "age-secret-key-")?).ok()?;
        let public = private.compute_public_key().ok()?.as_ref().try_into().ok()?;
        Some(Self { private, public })
    }

    /// Returns the public key, for tests.
    #[cfg(test)]
    pub fn recipient(&self) -> Recipient {
        Recipient(self.public)
    }

    /// Decrypts the key of a file, if it is for this recipient.
    pub fn open(&self, stanza: &Stanza) -> Result<Option<FileKey>, AgeError> {
        let [_, share] = stanza.arguments.as_slice() else { return ReadHeaderSnafu.fail() };
        let share = STANDARD_NO_PAD.decode(share).ok().filter(|share| share.len() == 32);
        let share = share.context(ReadHeaderSnafu)?;
        let key = agreed(&self.private, &share, &share, &self.public).context(ReadHeaderSnafu)?;
        FileKey::open(&stanza.body, &key)
    }
}
