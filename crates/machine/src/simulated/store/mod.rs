//! Persistent storage for worlds.
//!
//! A world is stored as a journal instead of one document: the cost of a change is proportional to the change, not to the
//! world, and the change is durable before the call returns. From time to time one record that holds everything replaces
//! the journal.

mod kubernetes;
mod memory;

use std::io;

use async_trait::async_trait;
use snafu::Snafu;

pub use kubernetes::{KubernetesStore, world_name};
pub use memory::{MemoryStore, Traffic};

/// Why a world could not be read or written.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub))]
pub enum StoreError {
    /// Another process wrote since the last read, so the write is out of date.
    #[snafu(display("failed to write version {expected} of the world: another process wrote it first"))]
    MatchVersion {
        /// The expected version.
        expected: u64,
    },
    /// The storage failed.
    #[snafu(display("failed to {action} the world at {path:?}"))]
    ReachStore {
        /// The attempted action.
        action: &'static str,
        /// The location of the world.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The stored world is damaged.
    #[snafu(display("failed to read the world at {path:?}: it is damaged; delete it to start over"))]
    ReadWorld {
        /// The location of the world.
        path: String,
    },
}

/// A stored world: records that are applied in order. The first one may hold everything before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The version to pass to the next write.
    pub version: u64,
    /// The records, oldest first.
    pub records: Vec<Vec<u8>>,
}

/// Storage for one world. A write is durable when the call returns. A write with an outdated version changes nothing and
/// returns [`StoreError::MatchVersion`].
#[async_trait]
pub trait WorldStore: Send + Sync + 'static {
    /// Returns everything that is stored; no records and version 0 if nothing is.
    async fn load(&self) -> Result<Stored, StoreError>;

    /// Appends a record and returns the new version.
    async fn append(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError>;

    /// Atomically replaces all records with one and returns the new version.
    async fn replace(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError>;

    /// Deletes the world after its provider was deleted. Can be repeated, also after an interruption.
    async fn delete_all(&self) -> Result<(), StoreError>;
}
