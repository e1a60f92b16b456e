//! Writes a backup to a data directory.

use std::{
    fs::File,
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use snafu::{ResultExt, Snafu, ensure};

use super::{CREDENTIALS, Contents, Identity, STORE};
use crate::store::{
    Snapshot,
    sqlite::{OpenError, write},
};

/// The default step by which the version is raised: that of etcd's documentation for `snapshot restore
/// --bump-revision`. It is more than a thousand writes per second for a week, so no version that the lost server has
/// given out after the backup is given out again.
pub const DEFAULT_BUMP: u64 = 1_000_000_000;

/// The highest version after a restore: clients that read versions as numbers of JavaScript or JSON round higher ones.
const MAX_VERSION: u64 = (1 << 53) - 1;

/// Indicates that a backup could not be restored.
#[derive(Debug, Snafu)]
pub enum RestoreError {
    /// There is a store, or a part of one.
    #[snafu(display(
        "\"{}\" exists; set --data-dir to a new directory, or stop the server and move the files store.* and credentials.json away",
        path.display()
    ))]
    FindFile {
        /// The file.
        path: PathBuf,
    },
    /// The version would be too high.
    #[snafu(display("--bump-revision {bump} is too large: the version {version} can be raised by at most {}", MAX_VERSION.saturating_sub(*version)))]
    RaiseVersion {
        /// The step.
        bump: u64,
        /// The version of the backup.
        version: u64,
    },
    /// A file could not be written.
    #[snafu(display("failed to write \"{}\"; set --data-dir to a writable directory: {source}", path.display()))]
    WriteFile {
        /// The file.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
    /// The store could not be written, or is not what the backup contains.
    #[snafu(display("{source}"))]
    WriteStore {
        /// The underlying error.
        source: OpenError,
    },
    /// An object is contained twice.
    #[snafu(display("the backup contains {found} of its {expected} objects; use another copy"))]
    CountObjects {
        /// The number of objects in the store.
        found: usize,
        /// The number of objects in the backup.
        expected: usize,
    },
}

/// What was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The number of objects.
    pub objects: usize,
    /// The version of the store from now on.
    pub version: u64,
}

/// Writes a backup to a data directory without a store, and raises the version of the store.
///
/// All versions up to the new one are compacted: a watch from one of them gets 410, so its client lists again.
pub async fn restore(data_dir: &Path, contents: Contents, bump: u64) -> Result<Restored, RestoreError> {
    let Contents { snapshot, identity, .. } = contents;
    let before = snapshot.version;
    let version = before.checked_add(bump).filter(|version| *version <= MAX_VERSION);
    let Some(version) = version else { return RaiseVersionSnafu { bump, version: before }.fail() };
    std::fs::create_dir_all(data_dir).context(WriteFileSnafu { path: data_dir })?;
    check_free(data_dir, identity.as_ref())?;

    // In a directory of its own, which is removed if anything fails.
    let draft = tempfile::Builder::new()
        .prefix(".restore-")
        .tempdir_in(data_dir)
        .context(WriteFileSnafu { path: data_dir })?;
    let store = draft.path().join(STORE);
    let expected = snapshot.objects.len();
    let snapshot = Snapshot { version, ..snapshot };
    let found = write(&store, &snapshot).await.context(WriteStoreSnafu)?;
    ensure!(
        found.version == version && found.objects.len() == expected,
        CountObjectsSnafu { found: found.objects.len(), expected }
    );
    sync(&store)?;

    // The store comes last: a directory without one can be restored to again.
    if let Some(identity) = &identity {
        install_identity(data_dir, identity)?;
    }
    let path = data_dir.join(STORE);
    install(&store, &path)?;
    sync(data_dir)?;
    Ok(Restored { objects: expected, version })
}

/// Refuses a directory with objects or with another identity. The log of another store would be applied to this one.
fn check_free(data_dir: &Path, identity: Option<&Identity>) -> Result<(), RestoreError> {
    for name in [STORE, "store.sqlite-wal", "store.sqlite-journal"] {
        let path = data_dir.join(name);
        let is_empty = std::fs::metadata(&path).map_or(true, |found| found.len() == 0);
        ensure!(is_empty, FindFileSnafu { path });
    }

    let path = data_dir.join(CREDENTIALS);
    if let (Some(identity), Ok(found)) = (identity, std::fs::read(&path)) {
        ensure!(found == text(identity), FindFileSnafu { path });
    }
    Ok(())
}

/// The file of an identity.
fn text(identity: &Identity) -> Vec<u8> {
    serde_json::to_vec(&identity.0).unwrap_or_default()
}

fn install_identity(data_dir: &Path, identity: &Identity) -> Result<(), RestoreError> {
    let path = data_dir.join(CREDENTIALS);
    let written = tempfile::NamedTempFile::new_in(data_dir).and_then(|mut file| {
        file.write_all(&text(identity))?;
        file.as_file().sync_all()?;
        file.persist(&path).map_err(|error| error.error)
    });
    written.map(drop).context(WriteFileSnafu { path })
}

/// Moves the store to the data directory, unless a server has created one in the meantime.
fn install(store: &Path, path: &Path) -> Result<(), RestoreError> {
    if std::fs::metadata(path).is_ok_and(|found| found.len() == 0) {
        std::fs::remove_file(path).context(WriteFileSnafu { path })?;
    }
    match std::fs::hard_link(store, path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => FindFileSnafu { path }.fail(),
        result => result.context(WriteFileSnafu { path }),
    }
}

/// Flushes a file or a directory to the disk.
fn sync(path: &Path) -> Result<(), RestoreError> {
    File::open(path).and_then(|file| file.sync_all()).context(WriteFileSnafu { path })
}
