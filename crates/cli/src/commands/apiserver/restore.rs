//! Restores a backup to a new data directory.

use std::{
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
};

use clap::Args;
use snafu::{ResultExt, Snafu};
use vitistack_apiserver::backup::{self, ArchiveError, Contents, DEFAULT_BUMP, Reader};

use super::read_secret;
use crate::{
    age::{AgeError, Identity, Key, Passphrase, decrypt},
    commands::Ending,
    printing::Console,
};

/// The arguments of `vitistack apiserver restore`.
#[derive(Args, Debug)]
#[command(
    after_help = "Stop the server that was backed up, and do not start it again: only one of the two may act on machines.

Examples:
  # Restore a backup and start it
  vitistack apiserver restore --from backup.age --data-dir .vitistack --passphrase-file passphrase
  vitistack up

  # Restore a backup that was encrypted to a public key
  vitistack apiserver restore --from backup.age --data-dir ./data --identity-file key.txt"
)]
pub struct RestoreArgs {
    /// Backup to restore
    #[arg(long, value_name = "FILE")]
    from: PathBuf,

    /// Data directory to create; it must not contain a store
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: PathBuf,

    #[command(flatten)]
    key: KeyArgs,

    /// Raise the version of the store by this number, so that no version that clients know is used again
    #[arg(long, value_name = "NUMBER", default_value_t = DEFAULT_BUMP)]
    bump_revision: u64,
}

/// What opens the file.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct KeyArgs {
    /// File with the passphrase in its first line
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,

    /// File with the private key of a recipient (AGE-SECRET-KEY-1…), as age-keygen writes it
    #[arg(long, value_name = "FILE")]
    identity_file: Option<PathBuf>,
}

/// Errors of `vitistack apiserver restore`.
#[derive(Debug, Snafu)]
pub enum RestoreError {
    /// The passphrase or the keys cannot be read.
    #[snafu(display("failed to read {flag} \"{}\": {source}", path.display()))]
    ReadKey { flag: &'static str, path: PathBuf, source: io::Error },
    /// The passphrase or the keys are not valid.
    #[snafu(display("{flag} \"{}\": {source}", path.display()))]
    ParseKey { flag: &'static str, path: PathBuf, source: AgeError },
    /// The backup cannot be read.
    #[snafu(display("failed to read --from \"{}\": {source}", path.display()))]
    ReadFile { path: PathBuf, source: io::Error },
    /// The backup cannot be decrypted.
    #[snafu(display("--from \"{}\": {source}", path.display()))]
    Decrypt { path: PathBuf, source: AgeError },
    /// The content is not a backup.
    #[snafu(display("--from \"{}\": {source}", path.display()))]
    ReadArchive { path: PathBuf, source: ArchiveError },
    /// The data directory cannot be written.
    #[snafu(display("{source}"), context(false))]
    WriteDirectory { source: backup::RestoreError },
    /// The output is closed or full.
    #[snafu(display("failed to write the output: {source}"))]
    WriteOutput { source: io::Error },
}

/// Restores the backup, or nothing.
pub async fn run(arguments: &RestoreArgs, console: &mut Console<'_>) -> Result<Ending, RestoreError> {
    let RestoreArgs { from, data_dir, key, bump_revision } = arguments;
    let contents = read(from, &key.read()?)?;
    let (created, has_identity) = (contents.created, contents.identity.is_some());
    let restored = backup::restore(data_dir, contents, *bump_revision).await?;
    writeln!(
        console.output,
        "data directory \"{}\" restored: {} objects as of {created}, version {}",
        data_dir.display(),
        restored.objects,
        restored.version
    )
    .context(WriteOutputSnafu)?;
    if !has_identity {
        writeln!(
            console.errors,
            "the backup has no certificate authority and token: the server creates new ones when it starts"
        )
        .context(WriteOutputSnafu)?;
    }
    Ok(Ending::Done)
}

/// A failure to read the file.
enum ReadFailure {
    Age(AgeError),
    Archive(ArchiveError),
}

impl From<AgeError> for ReadFailure {
    fn from(error: AgeError) -> Self {
        Self::Age(error)
    }
}

/// Decrypts and reads the whole backup.
fn read(path: &Path, key: &Key) -> Result<Contents, RestoreError> {
    let file = File::open(path).context(ReadFileSnafu { path })?;
    let mut reader = Reader::default();
    let decrypted =
        decrypt(key, BufReader::new(file), |content| reader.push(content).map_err(ReadFailure::Archive));
    match decrypted {
        Ok(()) => reader.finish().context(ReadArchiveSnafu { path }),
        Err(ReadFailure::Age(error)) => Err(error).context(DecryptSnafu { path }),
        Err(ReadFailure::Archive(error)) => Err(error).context(ReadArchiveSnafu { path }),
    }
}

impl KeyArgs {
    /// Reads what opens the file.
    fn read(&self) -> Result<Key, RestoreError> {
        if let Some(path) = &self.passphrase_file {
            let flag = "--passphrase-file";
            let content = read_secret(path).context(ReadKeySnafu { flag, path })?;
            Ok(Key::Passphrase(Passphrase::parse(&content).context(ParseKeySnafu { flag, path })?))
        } else {
            let (flag, path) = ("--identity-file", self.identity_file.clone().unwrap_or_default());
            let content = read_secret(&path).context(ReadKeySnafu { flag, path: &path })?;
            Ok(Key::Identities(Identity::parse_all(&content).context(ParseKeySnafu { flag, path })?))
        }
    }
}
