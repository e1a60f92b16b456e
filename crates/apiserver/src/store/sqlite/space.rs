//! Room for deletions on a full disk.
//!
//! SQLite needs space to delete, too. A file beside the store reserves some: when the disk is full it is removed, and
//! until it can be created again only deletions are accepted. This is what an administrator does by hand to an etcd
//! that has raised its NOSPACE alarm.

use std::{
    fs::OpenOptions,
    io::{self, ErrorKind},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::{FallocateFlags, fallocate};
use serde_json::Value;

use crate::store::{Write, document::Draft};

/// The size of the reserve: the log has up to 16 MiB, and before it can be removed, SQLite copies it to the file.
const RESERVE: u64 = 20 << 20;

/// The free space that is needed to hold the reserve, and as much again for other writes: with less, the disk would be
/// full again at once.
const MARGIN: u64 = 2 * RESERVE;

/// The number of unused pages in the file from which it is worth shrinking it.
pub const UNUSED_PAGES: i64 = 512;

/// The reserve of one store.
#[derive(Debug)]
pub struct Reserve {
    path: PathBuf,
    is_held: bool,
}

impl Reserve {
    /// The reserve of a store. On a full disk it is not held.
    pub fn new(store: &Path) -> Self {
        let mut reserve = Self { path: store.with_extension("reserve"), is_held: false };
        reserve.hold();
        reserve
    }

    /// Whether there is space for more than deletions.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Creates the file, if there is space for it.
    pub fn hold(&mut self) {
        let is_there = std::fs::metadata(&self.path).is_ok_and(|found| found.len() == RESERVE);
        let result = if is_there { Ok(()) } else { self.create() };
        // A file system that cannot reserve space is used without a reserve.
        let is_full =
            |error: io::Error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        self.is_held = !result.is_err_and(is_full);
        if !self.is_held {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn create(&self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&self.path)?;
        // A length that is only set takes no space.
        fallocate(&file, FallocateFlags::empty(), 0, MARGIN)?;
        file.set_len(RESERVE)
    }

    /// Removes the file, so that deletions have space.
    pub fn release(&mut self) {
        self.is_held = false;
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether a write helps to free space: a deletion, or a step of one.
pub fn is_deletion(write: &Write) -> bool {
    write.remove || is_deleting(&write.draft)
}

fn is_deleting(draft: &Draft) -> bool {
    let object: Value = serde_json::from_slice(draft.unstamped()).unwrap_or_default();
    object.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_takes_space_until_it_is_released() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store.sqlite");
        let mut reserve = Reserve::new(&store);
        let file = directory.path().join("store.reserve");
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 20 << 20);
        assert!(reserve.is_held());

        reserve.release();
        assert!(!reserve.is_held() && !file.exists());
        reserve.hold();
        assert!(reserve.is_held() && file.exists());
    }
}
