//! The store of the API, which reports every write to the invariant checker of the current run.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use vitistack_apiserver::store::{
    Compacted, Entry, Expect, Key, Page, Scope, Snapshot, Start, Store, Subscription, Write, WriteError,
    document::{self, Draft},
    memory::MemoryStore,
};

use super::{context::lock, invariants::InvariantChecker};

/// The incarnation of an operator process that sends a request.
#[derive(Clone, Debug)]
pub struct Writer {
    pub incarnation: u64,
    /// Whether the request has stored anything.
    pub has_stored: Arc<AtomicBool>,
}

tokio::task_local! {
    /// Set around every request of an operator; requests of users have none.
    pub static WRITER: Writer;
}

/// The resources of which a run can leave objects.
const RESOURCES: [&str; 7] = [
    "vitistack.io/machines",
    "vitistack.io/machineproviders",
    "vitistack.io/datacenters",
    "vitistack.io/networkconfigurations",
    "vitistack.io/machineclasses",
    "coordination.k8s.io/leases",
    "/secrets",
];

/// An in-memory store that reports every write to the invariant checker. A clone is the same store.
#[derive(Clone, Default)]
pub struct CheckedStore {
    inner: Arc<MemoryStore>,
    checker: Arc<Mutex<Option<Arc<InvariantChecker>>>>,
}

impl CheckedStore {
    /// Sets the checker to which writes are reported from now on.
    pub fn set_checker(&self, checker: &Arc<InvariantChecker>) {
        *lock(&self.checker) = Some(Arc::clone(checker));
    }

    /// Deletes, past the API and the checker, everything that a run can leave, so that the next run starts
    /// empty.
    pub async fn clear(&self) {
        lock(&self.checker).take();
        for resource in RESOURCES {
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
impl Store for CheckedStore {
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

    fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }

    async fn write(&self, write: Write) -> Result<Entry, WriteError> {
        let (key, is_removed) = (write.key.clone(), write.remove);
        let entry = self.inner.write(write).await?;

        let incarnation = WRITER.try_with(|writer| {
            writer.has_stored.store(true, Ordering::SeqCst);
            writer.incarnation
        });

        if let Some(checker) = &*lock(&self.checker) {
            checker.record_write(incarnation.ok(), &key, &entry.bytes, is_removed);
        }
        Ok(entry)
    }

    fn compact(&self) {
        self.inner.compact();
    }
}
