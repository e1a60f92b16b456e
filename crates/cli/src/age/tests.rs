//! The format: what is written can be read by those who should, and by no others.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::*;

/// A key pair that age-keygen has written.
const RECIPIENT: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
const SECRET: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";

fn passphrase(text: &str) -> Passphrase {
    Passphrase::parse(text.as_bytes()).unwrap().with_work(4)
}

fn encrypt(lock: &Lock, content: &[u8]) -> Vec<u8> {
    let mut encryptor = Encryptor::new(lock, Vec::new()).unwrap();
    for part in content.chunks(1000) {
        encryptor.write(part).unwrap();
    }
    encryptor.finish().unwrap()
}

fn open(key: &Key, file: &[u8]) -> Result<Vec<u8>, AgeError> {
    let mut content = Vec::new();
    decrypt(key, file, |part| {
        content.extend_from_slice(part);
        Ok::<(), AgeError>(())
    })?;
    Ok(content)
}

fn identities() -> Key {
    let file = format!("# created: today\n# public key: {RECIPIENT}\n{SECRET}\n");
    Key::Identities(Identity::parse_all(file.as_bytes()).unwrap())
}

#[test]
fn content_of_every_size_is_read_as_it_was_written() {
    let lock = Lock::Passphrase(passphrase("secret"));
    let key = Key::Passphrase(passphrase("secret"));
    for size in [0, 1, 65_535, 65_536, 65_537, 131_072, 200_000] {
        let content: Vec<u8> = (0..size).map(|index: u32| index.to_le_bytes()[1]).collect();
        let file = encrypt(&lock, &content);
        assert_eq!(open(&key, &file).unwrap(), content, "{size}");
    }
}

#[test]
fn files_of_the_program_age_are_opened() {
    let text = "YWdlLWVuY3J5cHRpb24ub3JnL3YxCi0+IFgyNTUxOSBiMW1DUmRBNHFXM2dLd0Rma05LelFORFlFV3NsUlFTNTNwNWovWEdzMTNNCmc5NG5MRldK\
        SjREeGFsL2dJVzd1MllJYzI2MTBod1pwNEJjaU9Zc25wbDQKLS0tIHFVbU9xMzFjaW8yaW9UT2VLQytIN1ZnT2VlaU5CTlo1UHgvc0pMN0ZHK0kK\
        LYOYL4u5te18VOGz1AuTfaIYgZVEZ+Kg3P4Z9TeLdsVpwi10zDScfe1miONSHA==";
    assert_eq!(open(&identities(), &STANDARD.decode(text).unwrap()).unwrap(), b"content of age");

    let text = "YWdlLWVuY3J5cHRpb24ub3JnL3YxCi0+IHNjcnlwdCBxY1F1S3ZkclpMYmd1OEpwN3ZwL2p3IDE4CkJ5S1pFMGdrdytWOEV3UzlWZE9GUWNVMC96\
        aG5Bc1pnQXJvM09DeWNtOUkKLS0tIEdPZGJQUGNPWDFyVWRET2FVekc3SEErMUxJNTVEcmRicURFTHluTFBlOFEKWAWgCy5FoGLxEpdHdeEKEOXv\
        2bxcdOI2bq0HEP15wZSNAmttcxNG4tPuSk8RtA==";
    let key = Key::Passphrase(passphrase("secret"));
    assert_eq!(open(&key, &STANDARD.decode(text).unwrap()).unwrap(), b"content of age");
}

#[test]
fn each_of_several_recipients_can_open_a_file() {
    let other = PrivateKeyPair::generate();
    let lock = Lock::Recipients(vec![other.recipient(), Recipient::parse(RECIPIENT).unwrap()]);
    let file = encrypt(&lock, b"content");
    assert_eq!(open(&identities(), &file).unwrap(), b"content");
    assert_eq!(open(&Key::Identities(vec![other.identity()]), &file).unwrap(), b"content");

    let stranger = Key::Identities(vec![PrivateKeyPair::generate().identity()]);
    assert!(matches!(open(&stranger, &file), Err(AgeError::OpenKey)));
    let passphrase = Key::Passphrase(passphrase("content"));
    assert!(matches!(open(&passphrase, &file), Err(AgeError::RequireIdentity)));
}

#[test]
fn a_wrong_passphrase_is_refused() {
    let file = encrypt(&Lock::Passphrase(passphrase("secret")), b"content");
    for wrong in ["Secret", "secret ", "s"] {
        assert!(matches!(open(&Key::Passphrase(passphrase(wrong)), &file), Err(AgeError::OpenKey)));
    }
    assert!(matches!(open(&identities(), &file), Err(AgeError::RequirePassphrase)));
}

#[test]
fn every_flipped_bit_and_every_missing_byte_is_noticed() {
    let key = Key::Passphrase(passphrase("secret"));
    let file = encrypt(&Lock::Passphrase(passphrase("secret")), &[7; 100]);
    for index in 0..file.len() {
        for bit in [0, 3, 7] {
            let mut damaged = file.clone();
            damaged[index] ^= 1 << bit;
            // The work factor 4 with another bit may be a number that takes long, or too long.
            if damaged[index].is_ascii_digit() && file[index] == b'4' && file[index - 1] == b' ' {
                continue;
            }
            assert!(open(&key, &damaged).is_err(), "byte {index}, bit {bit}");
        }
        assert!(open(&key, &file[..index]).is_err(), "{index} bytes");
    }
    assert!(open(&key, &[file.as_slice(), b"x"].concat()).is_err());
}

#[test]
fn chunks_cannot_be_removed_or_exchanged() {
    let key = identities();
    let content: Vec<u8> = (0..300_000_u32).map(|index| index.to_le_bytes()[2]).collect();
    let file = encrypt(&Lock::Recipients(vec![Recipient::parse(RECIPIENT).unwrap()]), &content);
    let start = file.len() - (content.len() + 5 * 16);
    let chunk = |number: usize| start + number * stream::SEALED..start + (number + 1) * stream::SEALED;

    let cut = &file[..start + stream::SEALED];
    assert!(matches!(open(&key, cut), Err(AgeError::OpenContent)));
    let mut exchanged = file.clone();
    let (one, two) = (file[chunk(0)].to_vec(), file[chunk(1)].to_vec());
    exchanged[chunk(0)].copy_from_slice(&two);
    exchanged[chunk(1)].copy_from_slice(&one);
    assert!(matches!(open(&key, &exchanged), Err(AgeError::OpenContent)));
    let removed = [&file[..start], &file[start + stream::SEALED..]].concat();
    assert!(matches!(open(&key, &removed), Err(AgeError::OpenContent)));
}

#[test]
fn a_work_factor_that_takes_too_long_is_refused_at_once() {
    let file = encrypt(&Lock::Passphrase(passphrase("secret")), b"content");
    let line = file.iter().position(|byte| *byte == b'4').filter(|at| file[at + 1] == b'\n');
    let mut file = file;
    let at = line.unwrap_or_else(|| file.windows(3).position(|part| part == b" 4\n").unwrap() + 1);
    file.splice(at..=at, *b"40");
    assert!(matches!(open(&Key::Passphrase(passphrase("secret")), &file), Err(AgeError::LimitWork)));
}

#[test]
fn other_files_and_keys_are_refused() {
    let key = identities();
    for other in [&b""[..], b"hello", b"\x00\x01\n", b"age-encryption.org/v2\n"] {
        assert!(matches!(open(&key, other), Err(AgeError::RecognizeFile)), "{other:?}");
    }
    for wrong in ["", "age1", &RECIPIENT.replace("zv", "vz"), SECRET, "ssh-ed25519 AAAA"] {
        assert!(Recipient::parse(wrong).is_err(), "{wrong}");
    }
    for wrong in ["", "# comment\n", RECIPIENT, "AGE-SECRET-KEY-1GFPY"] {
        assert!(Identity::parse_all(wrong.as_bytes()).is_err(), "{wrong}");
    }
    assert!(Passphrase::parse(b"\nsecond line\n").is_err());
    assert_eq!(format!("{:?} {:?}", passphrase("secret"), key), "Passphrase(…) Identities([Identity(…)])");
}

/// A key pair as age-keygen writes it.
struct PrivateKeyPair([u8; 32]);

impl PrivateKeyPair {
    fn generate() -> Self {
        let (one, two) = (keys::random().unwrap(), keys::random().unwrap());
        Self([one, two].concat().try_into().unwrap())
    }

    fn identity(&self) -> Identity {
        let prefix = bech32::Hrp::parse("age-secret-key-").unwrap();
        let text = bech32::encode_upper::<bech32::Bech32>(prefix, &self.0).unwrap();
        Identity::parse_all(text.as_bytes()).unwrap().pop().unwrap()
    }

    fn recipient(&self) -> Recipient {
        self.identity().recipient()
    }
}
