//! The store of the API, under the eyes of the witness of the play that is on.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use vitistack_apiserver::store::{
    Compacted, Entry, Key, Page, Scope, Start, Store, Subscription, Write, WriteError, memory::MemoryStore,
};

use super::{life::lock, witness::Witness};

/// Who makes a request: the life of an operator.
#[derive(Clone, Debug)]
pub struct Writer {
    pub life: u64,
    /// Whether anything was stored for it.
    pub wrote: Arc<AtomicBool>,
}

tokio::task_local! {
    /// Set around every request of an operator; a user's has none.
    pub static WRITER: Writer;
}

/// A store in memory that tells of every write. A clone is the same store.
#[derive(Clone, Default)]
pub struct WitnessedStore {
    inner: Arc<MemoryStore>,
    witness: Arc<Mutex<Option<Arc<Witness>>>>,
}

impl WitnessedStore {
    /// From here on this one is told.
    pub fn tell(&self, witness: &Arc<Witness>) {
        *lock(&self.witness) = Some(Arc::clone(witness));
    }
}

#[async_trait]
impl Store for WitnessedStore {
    fn version(&self) -> u64 {
        self.inner.version()
    }

    fn get(&self, key: &Key) -> Option<Entry> {
        self.inner.get(key)
    }

    fn list(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: Option<usize>,
        at: Option<u64>,
    ) -> Result<Page, Compacted> {
        self.inner.list(scope, after, limit, at)
    }

    fn watch(&self, scope: &Scope, start: Start) -> Result<Subscription, Compacted> {
        self.inner.watch(scope, start)
    }

    async fn write(&self, write: Write) -> Result<Entry, WriteError> {
        let (key, is_removed) = (write.key.clone(), write.remove);
        let entry = self.inner.write(write).await?;
        let life = WRITER.try_with(|writer| {
            writer.wrote.store(true, Ordering::SeqCst);
            writer.life
        });
        if let Some(witness) = &*lock(&self.witness) {
            witness.stored(life.ok(), &key, &entry.bytes, is_removed);
        }
        Ok(entry)
    }

    fn compact(&self) {
        self.inner.compact();
    }
}
