//! Where a world is kept while no process has it.
//!
//! A journal rather than one document: a change costs bytes in proportion to what changed, not to the size of the world,
//! and is on disk before it is answered. Now and then the journal is replaced by one record that holds everything.

mod file;
mod kubernetes;
mod memory;

use std::io;

use async_trait::async_trait;
use snafu::Snafu;

pub use file::FileStore;
pub use kubernetes::{KubernetesStore, world_name};
pub use memory::{MemoryStore, Traffic};

/// Indicates that a world could not be read or kept.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub))]
pub enum StoreError {
    /// Somebody else wrote since this was last read: what was to be written is out of date.
    #[snafu(display("failed to write version {expected} of the world: somebody else wrote meanwhile"))]
    MeetVersion {
        /// The version that was expected.
        expected: u64,
    },
    /// Another process has the world.
    #[snafu(display("failed to lock {path:?}: another process has this world, stop it first"))]
    LockFile {
        /// The lock file.
        path: String,
    },
    /// The file system or server failed.
    #[snafu(display("failed to {action} the world at {path:?}"))]
    ReachStore {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: String,
        /// Why it failed.
        source: io::Error,
    },
    /// What is there is damaged.
    #[snafu(display("failed to read the world at {path:?}: it is damaged; remove it to begin anew"))]
    ReadFrame {
        /// Where.
        path: String,
    },
}

/// A world as it was kept: records to be read one after another, the first of which may hold everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The version to be given with the next write.
    pub version: u64,
    /// The records, oldest first.
    pub records: Vec<Vec<u8>>,
}

/// Keeps the bytes of one world. What was written is kept when the call returns. A write that was given another version
/// than the last one changes nothing and answers [`StoreError::MeetVersion`].
#[async_trait]
pub trait WorldStore: Send + Sync + 'static {
    /// Everything that is kept; nothing and version 0 if nothing is.
    async fn load(&self) -> Result<Stored, StoreError>;

    /// Adds a record and returns the new version.
    async fn append(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError>;

    /// Puts one record in the place of all, wholly or not at all, and returns the new version.
    async fn replace(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError>;

    /// Deletes the world, for when its provider is gone. Can be asked again, also after it was cut short.
    async fn delete_all(&self) -> Result<(), StoreError>;
}
