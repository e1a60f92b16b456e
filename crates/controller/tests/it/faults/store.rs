//! The store of the API, under the eyes of the witness of the play that is on.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use vitistack_apiserver::store::{
    Compacted, Entry, Expect, Key, Page, Scope, Start, Store, Subscription, Write, WriteError,
    document::{self, Draft},
    memory::MemoryStore,
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

/// What a play can leave.
const LEFT: [&str; 7] = [
    "vitistack.io/machines",
    "vitistack.io/machineproviders",
    "vitistack.io/datacenters",
    "vitistack.io/networkconfigurations",
    "vitistack.io/machineclasses",
    "coordination.k8s.io/leases",
    "/secrets",
];

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

    /// Takes away everything that a play can leave, past the API, so that the next one begins with nothing. Nobody is told.
    pub async fn clear(&self) {
        lock(&self.witness).take();
        for resource in LEFT {
            let scope = Scope { resource: Arc::from(resource), namespace: None };
            for (path, entry) in self.inner.list(&scope, None, None, None).unwrap().entries {
                let (namespace, name) = path.split_once('/').unwrap_or(("", &path));
                let (namespace, name) = (namespace.to_owned(), name.to_owned());
                let key = Key { resource: Arc::clone(&scope.resource), namespace, name };
                let draft = Draft::new(&document::parse(&entry.bytes));
                let expect = Expect::Version(entry.version);
                self.inner.write(Write { key, expect, draft, remove: true }).await.unwrap();
            }
        }
        self.inner.compact();
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
