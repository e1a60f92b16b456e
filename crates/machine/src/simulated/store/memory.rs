//! A store that lasts as long as somebody holds it: for tests, and for worlds that need not outlive their process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::{MeetVersionSnafu, StoreError, Stored, WorldStore};

/// A store in memory; a clone is the same store.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    stored: Arc<Mutex<(Stored, Traffic)>>,
}

/// What was written to a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many writes.
    pub writes: u64,
    /// How many bytes.
    pub bytes: u64,
}

impl MemoryStore {
    /// What was written so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.lock().1
    }

    fn lock(&self) -> MutexGuard<'_, (Stored, Traffic)> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, expected: u64, record: Vec<u8>, is_all: bool) -> Result<u64, StoreError> {
        let (stored, traffic) = &mut *self.lock();
        if stored.version != expected {
            return MeetVersionSnafu { expected }.fail();
        }
        traffic.writes += 1;
        traffic.bytes += u64::try_from(record.len()).unwrap_or(u64::MAX);
        if is_all {
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
