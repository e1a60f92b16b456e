//! The in-memory store: for tests, and the working set of the durable store.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    Compacted, Entry, Event, Expect, Key, Page, Scope, Snapshot, Start, Store, Subscription, Write,
    WriteError, partition::Partition,
};

/// Objects in memory behind one lock, which is held only for map operations: never while parsing or
/// serializing.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    /// Changes before this version are unknown for every resource.
    started_at: u64,
    partitions: HashMap<Arc<str>, Partition>,
}

impl State {
    fn partition(&mut self, resource: &Arc<str>) -> &mut Partition {
        let started_at = self.started_at;
        self.partitions.entry(Arc::clone(resource)).or_insert_with(|| Partition::starting_at(started_at))
    }

    fn get(&self, key: &Key) -> Option<&Entry> {
        self.partitions.get(&key.resource)?.get(&key.path())
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A store with these objects, at `version`.
    #[must_use]
    pub fn load(version: u64, objects: impl IntoIterator<Item = (Key, Entry)>) -> Self {
        let mut state = State { version, started_at: version, partitions: HashMap::new() };
        for (key, entry) in objects {
            state.partition(&key.resource).load(key.path(), entry);
        }
        Self { state: RwLock::new(state) }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies changes that were decided and numbered elsewhere, in order.
    pub fn install(&self, changes: impl IntoIterator<Item = (Key, u64, Bytes, bool)>) {
        let mut state = self.lock();
        for (key, version, object, removed) in changes {
            let previous = state.get(&key).cloned();
            state.version = version;
            state.partition(&key.resource).apply(Event::new(version, &key, object, previous, removed));
        }
    }
}

/// Checks the condition of a write against what is stored.
#[must_use]
pub fn allowed(expect: Expect, current: Option<u64>) -> bool {
    match expect {
        Expect::Absent => current.is_none(),
        Expect::Version(version) => current == Some(version),
    }
}

/// Returns the key of a path inside a resource. No name contains a slash.
fn key(resource: &Arc<str>, path: &str) -> Key {
    let (namespace, name) = path.split_once('/').unwrap_or(("", path));
    Key { resource: Arc::clone(resource), namespace: namespace.to_owned(), name: name.to_owned() }
}

#[async_trait]
impl Store for MemoryStore {
    fn version(&self) -> u64 {
        self.read().version
    }

    fn get(&self, key: &Key) -> Option<Entry> {
        self.read().get(key).cloned()
    }

    fn list(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: Option<usize>,
        at: Option<u64>,
    ) -> Result<Page, Compacted> {
        let state = self.read();
        if let Some(partition) = state.partitions.get(&scope.resource) {
            return partition.list(scope.namespace.as_deref(), after, limit, at, state.version);
        }
        let at = at.unwrap_or(state.version);
        if at < state.started_at {
            return Err(Compacted { asked: at, oldest: state.started_at });
        }
        Ok(Page { version: at, ..Page::default() })
    }

    fn watch(&self, scope: &Scope, start: Start) -> Result<Subscription, Compacted> {
        let mut state = self.lock();
        let version = state.version;
        state.partition(&scope.resource).watch(scope.namespace.as_deref(), start, version)
    }

    fn snapshot(&self) -> Snapshot {
        let state = self.read();
        let mut partitions: Vec<_> = state.partitions.iter().collect();
        partitions.sort_by_key(|(resource, _)| Arc::clone(resource));
        let objects = partitions.into_iter().flat_map(|(resource, partition)| {
            partition.objects().map(move |(path, entry)| (key(resource, path), entry.clone()))
        });
        Snapshot { version: state.version, objects: objects.collect() }
    }

    async fn write(&self, write: Write) -> Result<Entry, WriteError> {
        let mut state = self.lock();
        let previous = state.get(&write.key).cloned();
        if !allowed(write.expect, previous.as_ref().map(|entry| entry.version)) {
            return Err(WriteError::Unexpected { current: previous });
        }
        state.version += 1;
        let version = state.version;
        let object = write.draft.stamp(version);
        let event = Event::new(version, &write.key, object.clone(), previous, write.remove);
        state.partition(&write.key.resource).apply(event);
        Ok(Entry { version, bytes: object })
    }

    fn compact(&self) {
        let mut state = self.lock();
        let version = state.version;
        for partition in state.partitions.values_mut() {
            partition.compact(version);
        }
    }
}
