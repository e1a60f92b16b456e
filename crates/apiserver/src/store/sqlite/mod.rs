//! The durable store: one SQLite file, and the working set in memory.
//!
//! WAL with `synchronous=FULL`: every commit is flushed to disk, so neither `kill -9` nor a power loss loses
//! a write that was acknowledged (`NORMAL` would survive only the former). The flush is the main cost, so one
//! writer task commits all pending writes in one transaction and acknowledges them afterwards. Readers use
//! the memory, which receives a change only when it is on disk: no reader sees a change that a crash could
//! revert.
//!
//! After a failed commit the file is opened again, which shows whether the commit was made. While the disk is
//! full, only deletions are accepted.

mod commit;
mod copy;
mod failpoints;
mod open;
mod space;
mod writer;

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};

pub(crate) use self::copy::{read, write};
use self::{
    commit::Order,
    writer::{Health, Writer},
};
pub use self::{failpoints::Failpoints, open::OpenError};
use super::{
    Compacted, Entry, Key, Page, Scope, Snapshot, Start, Store, Subscription, Write, WriteError,
    memory::MemoryStore,
};

/// The maximum number of writes in one commit.
const BATCH: usize = 512;

/// Objects in a SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    memory: Arc<MemoryStore>,
    orders: mpsc::Sender<Order>,
    health: Health,
}

impl SqliteStore {
    /// Opens or creates the file, with mode 0600, for this process only. A file that is damaged, or missing where
    /// objects were, is refused.
    pub async fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_with(path, None).await
    }

    /// Like [`SqliteStore::open`], on a disk that fails as a test wants.
    pub async fn open_with_failpoints(path: &Path, disk: Arc<dyn Failpoints>) -> Result<Self, OpenError> {
        Self::open_with(path, Some(disk)).await
    }

    async fn open_with(path: &Path, disk: Option<Arc<dyn Failpoints>>) -> Result<Self, OpenError> {
        let (connection, memory) = open::open(path).await?;
        let (memory, health) = (Arc::new(memory), Health::default());
        let (orders, waiting) = mpsc::channel(4 * BATCH);
        let writer = Writer::new(path.to_owned(), connection, Arc::clone(&memory), health.clone(), disk);
        tokio::spawn(writer.run(waiting));
        Ok(Self { memory, orders, health })
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn version(&self) -> u64 {
        self.memory.version()
    }

    fn get(&self, key: &Key) -> Option<Entry> {
        self.memory.get(key)
    }

    fn list(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: Option<usize>,
        at: Option<u64>,
    ) -> Result<Page, Compacted> {
        self.memory.list(scope, after, limit, at)
    }

    fn watch(&self, scope: &Scope, start: Start) -> Result<Subscription, Compacted> {
        self.memory.watch(scope, start)
    }

    fn snapshot(&self) -> Snapshot {
        self.memory.snapshot()
    }

    async fn write(&self, write: Write) -> Result<Entry, WriteError> {
        let (answer, answered) = oneshot::channel();
        let stopped = || WriteError::Fail { message: "the store has stopped; restart the server".to_owned() };
        self.orders.send(Order { write, answer }).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }

    fn compact(&self) {
        self.memory.compact();
    }

    fn problem(&self) -> Option<String> {
        self.health.get()
    }
}
