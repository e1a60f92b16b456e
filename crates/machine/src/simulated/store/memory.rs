//! A store in memory, for tests and for worlds that do not have to outlive their process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::{MatchVersionSnafu, StoreError, Stored, WorldStore};

/// A store in memory. Clones share their content.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    stored: Arc<Mutex<(Stored, Traffic)>>,
}

/// The amount of data written to a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of writes.
    pub writes: u64,
    /// The number of bytes.
    pub bytes: u64,
}

impl MemoryStore {
    /// Returns the amount of data written so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.lock().1
    }

    fn lock(&self) -> MutexGuard<'_, (Stored, Traffic)> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, expected: u64, record: Vec<u8>, replaces: bool) -> Result<u64, StoreError> {
        let (stored, traffic) = &mut *self.lock();
        if stored.version != expected {
            return MatchVersionSnafu { expected }.fail();
        }
        traffic.writes += 1;
        traffic.bytes += u64::try_from(record.len()).unwrap_or(u64::MAX);
        if replaces {
            stored.records.clear();
        }
        stored.records.push(record);
        stored.version += 1;
        Ok(stored.version)
    }
}

#[async_trait]
impl WorldStore for MemoryStore {
    async fn load(&self) -> Result<Stored, StoreError> {
        Ok(self.lock().0.clone())
    }

    async fn append(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError> {
        self.write(expected, record, false)
    }

    async fn replace(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError> {
        self.write(expected, record, true)
    }

    async fn delete_all(&self) -> Result<(), StoreError> {
        self.lock().0 = Stored::default();
        Ok(())
    }
}
