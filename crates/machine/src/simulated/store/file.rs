//! A store in one file: eight bytes that say at which version it starts, then one frame for each record.
//!
//! A record is added at the end and flushed to the disk; everything is replaced by a new file that takes the place of the
//! old one in one step. A frame cut short by a crash was never answered for and is dropped when the file is next read.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use sha2::{Digest, Sha256};
use snafu::{ResultExt, ensure};

use super::{
    LockFileSnafu, MeetVersionSnafu, ReachStoreSnafu, ReadFrameSnafu, StoreError, Stored, WorldStore,
};

/// A store in one file, which only this process has while it is open.
#[derive(Debug)]
pub struct FileStore {
    journal: Arc<Mutex<Journal>>,
}

#[derive(Debug)]
struct Journal {
    path: PathBuf,
    /// Held for as long as the store is; the file itself cannot be locked, since another takes its place.
    _lock: File,
    /// None until something was written.
    file: Option<File>,
    /// How much of the file is whole; what is behind it was cut short.
    length: u64,
    version: u64,
}

impl FileStore {
    /// Opens the store at this path, for the owner of the process alone to read; what is not there is made with the first write.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let path = path.into();
        let lock_path = path.with_added_extension("lock");
        let failed = |action| ReachStoreSnafu { action, path: path.display().to_string() };
        let lock =
            private().create(true).truncate(false).open(&lock_path).with_context(|_| failed("lock"))?;
        ensure!(lock.try_lock().is_ok(), LockFileSnafu { path: lock_path.display().to_string() });
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            opened => Some(opened.with_context(|_| failed("open"))?),
        };
        let journal = Journal { path, _lock: lock, file, length: 0, version: 0 };
        Ok(Self { journal: Arc::new(Mutex::new(journal)) })
    }

    /// Does something with the file where waiting for the disk holds up nobody.
    async fn with<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Journal) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let journal = Arc::clone(&self.journal);
        let path = journal.lock().unwrap_or_else(PoisonError::into_inner).path.display().to_string();
        let worked = tokio::task::spawn_blocking(move || {
            work(&mut journal.lock().unwrap_or_else(PoisonError::into_inner))
        });
        worked.await.map_err(io::Error::other).context(ReachStoreSnafu { action: "reach", path })?
    }
}

#[async_trait]
impl WorldStore for FileStore {
    async fn load(&self) -> Result<Stored, StoreError> {
        self.with(Journal::load).await
    }

    async fn append(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError> {
        self.with(move |journal| journal.append(expected, &record)).await
    }

    async fn replace(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError> {
        self.with(move |journal| journal.replace(expected, &record)).await
    }

    async fn delete_all(&self) -> Result<(), StoreError> {
        self.with(Journal::delete).await
    }
}

impl Journal {
    fn load(&mut self) -> Result<Stored, StoreError> {
        let mut bytes = Vec::new();
        if let Some(file) = &mut self.file {
            let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes));
            read.with_context(|_| self.failed("read"))?;
        } else {
            return Ok(Stored::default());
        }
        let damaged = || ReadFrameSnafu { path: self.path.display().to_string() }.build();
        let (first, mut rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
        let mut stored = Stored { version: u64::from_be_bytes(*first), records: Vec::new() };
        while let Some((record, behind)) = read_frame(rest).map_err(|Damaged| damaged())? {
            stored.records.push(record.to_vec());
            stored.version = stored.version.saturating_add(1);
            rest = behind;
        }
        self.length = size(&bytes).saturating_sub(size(rest));
        self.version = stored.version;
        Ok(stored)
    }

    fn append(&mut self, expected: u64, record: &[u8]) -> Result<u64, StoreError> {
        ensure!(self.version == expected, MeetVersionSnafu { expected });
        let Some(file) = &mut self.file else { return self.replace(expected, record) };
        let frame = frame(record);
        let written = file
            // What an earlier write left half done is cut off, not written behind.
            .set_len(self.length)
            .and_then(|()| file.seek(SeekFrom::Start(self.length)))
            .and_then(|_| file.write_all(&frame))
            .and_then(|()| file.sync_data());
        written.with_context(|_| self.failed("write"))?;
        self.length = self.length.saturating_add(size(&frame));
        self.version = expected.saturating_add(1);
        Ok(self.version)
    }

    fn replace(&mut self, expected: u64, record: &[u8]) -> Result<u64, StoreError> {
        ensure!(self.version == expected, MeetVersionSnafu { expected });
        let content = [&expected.to_be_bytes()[..], &frame(record)].concat();
        let file = put_in_place(&self.path, &content).with_context(|_| self.failed("replace"))?;
        self.file = Some(file);
        self.length = size(&content);
        self.version = expected.saturating_add(1);
        Ok(self.version)
    }

    fn delete(&mut self) -> Result<(), StoreError> {
        (self.file, self.length, self.version) = (None, 0, 0);
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.with_context(|_| self.failed("delete")),
        }
    }

    fn failed(&self, action: &'static str) -> ReachStoreSnafu<&'static str, String> {
        ReachStoreSnafu { action, path: self.path.display().to_string() }
    }
}

/// Options for a file that nobody else may read.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

/// Writes a new file and lets it take the place of the old one in one step.
fn put_in_place(path: &Path, content: &[u8]) -> io::Result<File> {
    let beside = path.with_added_extension("new");
    let mut file = private().create(true).truncate(true).open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    // The new name is on the disk only when its folder is.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(file)
}

/// A frame that does not match its checksum and is not the last.
struct Damaged;

const LENGTH: usize = 8;
const CHECKSUM: usize = 8;

fn frame(record: &[u8]) -> Vec<u8> {
    [&size(record).to_be_bytes()[..], &checksum(record), record].concat()
}

/// A record and what is behind it.
type Split<'bytes> = (&'bytes [u8], &'bytes [u8]);

/// The first record and what is behind it; none at the end, or where a write was cut short.
fn read_frame(bytes: &[u8]) -> Result<Option<Split<'_>>, Damaged> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH>() else { return Ok(None) };
    let Some((sum, rest)) = rest.split_first_chunk::<CHECKSUM>() else { return Ok(None) };
    let length = usize::try_from(u64::from_be_bytes(*length)).map_err(|_| Damaged)?;
    let Some((record, behind)) = rest.split_at_checked(length) else { return Ok(None) };
    match (checksum(record) == *sum, behind.is_empty()) {
        (true, _) => Ok(Some((record, behind))),
        (false, true) => Ok(None),
        (false, false) => Err(Damaged),
    }
}

fn checksum(record: &[u8]) -> [u8; CHECKSUM] {
    let digest: [u8; 32] = Sha256::digest(record).into();
    digest.first_chunk().copied().unwrap_or_default()
}

fn size(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn records(stored: &Stored) -> Vec<&str> {
        stored.records.iter().map(|record| str::from_utf8(record).unwrap()).collect()
    }

    fn reopen(store: FileStore, path: &Path) -> FileStore {
        drop(store);
        FileStore::open(path).unwrap()
    }

    #[tokio::test]
    async fn what_was_written_is_there_after_a_restart_and_only_the_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("world");
        let store = FileStore::open(&path).unwrap();
        assert_eq!(store.load().await.unwrap(), Stored::default());
        assert_eq!(store.append(0, b"one".to_vec()).await.unwrap(), 1);
        assert_eq!(store.append(1, b"two\n".to_vec()).await.unwrap(), 2);
        let store = reopen(store, &path);
        let stored = store.load().await.unwrap();
        assert_eq!((stored.version, records(&stored)), (2, vec!["one", "two\n"]));
        assert_eq!(store.replace(2, b"all".to_vec()).await.unwrap(), 3);
        assert_eq!(store.append(3, b"more".to_vec()).await.unwrap(), 4);
        let store = reopen(store, &path);
        let stored = store.load().await.unwrap();
        assert_eq!((stored.version, records(&stored)), (4, vec!["all", "more"]));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn a_write_with_an_old_version_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path().join("world")).unwrap();
        store.append(0, b"one".to_vec()).await.unwrap();
        for result in [store.append(0, b"late".to_vec()).await, store.replace(7, b"early".to_vec()).await] {
            assert!(matches!(result, Err(StoreError::MeetVersion { .. })), "{result:?}");
        }
        assert_eq!(records(&store.load().await.unwrap()), ["one"]);
    }

    #[tokio::test]
    async fn a_write_that_was_cut_short_is_dropped_wherever_it_was_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("world");
        let store = FileStore::open(&path).unwrap();
        store.append(0, b"one".to_vec()).await.unwrap();
        let whole = fs::metadata(&path).unwrap().len();
        store.append(1, b"second".to_vec()).await.unwrap();
        drop(store);
        let bytes = fs::read(&path).unwrap();
        for cut in usize::try_from(whole).unwrap()..bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            let store = FileStore::open(&path).unwrap();
            let stored = store.load().await.unwrap();
            assert_eq!((stored.version, records(&stored)), (1, vec!["one"]));
            store.append(1, b"again".to_vec()).await.unwrap();
            let store = reopen(store, &path);
            assert_eq!(records(&store.load().await.unwrap()), ["one", "again"]);
        }
    }

    #[tokio::test]
    async fn damage_is_told_rather_than_taken_for_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("world");
        let store = FileStore::open(&path).unwrap();
        store.append(0, b"one".to_vec()).await.unwrap();
        store.append(1, b"two".to_vec()).await.unwrap();
        drop(store);
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.windows(3).position(|window| window == b"one").unwrap();
        bytes[at] = b'0';
        fs::write(&path, &bytes).unwrap();
        let error = FileStore::open(&path).unwrap().load().await.unwrap_err().to_string();
        assert!(error.contains("remove it to begin anew"), "{error}");
    }

    #[tokio::test]
    async fn two_cannot_have_it_at_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("world");
        let _first = FileStore::open(&path).unwrap();
        let error = FileStore::open(&path).unwrap_err().to_string();
        assert!(error.contains("another process has this world"), "{error}");
    }
}
