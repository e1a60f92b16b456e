//! Stores: bytes under a key, each with the version that wrote it.
//!
//! A store knows only three things about Kubernetes: one counter numbers all writes, a write is conditional
//! on the version that it was computed from, and changes can be watched from any recent version.

pub mod document;
pub mod memory;
pub mod partition;
pub mod queue;
pub mod sqlite;

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use snafu::Snafu;

use self::{document::Draft, queue::Changes};

/// The key of an object: a resource (`group/plural`), a namespace (empty for cluster scope) and a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// `group/plural`; every version of a resource shares it.
    pub resource: Arc<str>,
    /// Empty for a cluster-scoped object.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl Key {
    /// The key inside its resource. Lists are in this order, which is that of kube-apiserver's storage keys.
    #[must_use]
    pub fn path(&self) -> String {
        if self.namespace.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }
}

/// One object as stored: the JSON that a client receives, and the version inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The version of the write.
    pub version: u64,
    /// The whole object as JSON, `metadata.resourceVersion` included.
    pub bytes: Bytes,
}

/// The condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing is stored there.
    Absent,
    /// What is stored has this version.
    Version(u64),
}

/// One conditional write.
#[derive(Debug)]
pub struct Write {
    /// The key.
    pub key: Key,
    /// The condition.
    pub expect: Expect,
    /// The new object, or for a deletion, the object as watchers see it.
    pub draft: Draft,
    /// Whether the object is deleted.
    pub remove: bool,
}

/// Indicates that a write did not happen.
#[derive(Debug, Snafu)]
pub enum WriteError {
    /// The condition did not hold.
    #[snafu(display("the stored object is not the expected one"))]
    Unexpected {
        /// The stored object.
        current: Option<Entry>,
    },
    /// The store could not make the write durable.
    #[snafu(display("failed to store the object: {message}"))]
    Fail {
        /// The error of the database.
        message: String,
    },
}

/// A part of a resource: all of it, or one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// `group/plural`.
    pub resource: Arc<str>,
    /// The namespace, if only one is included.
    pub namespace: Option<String>,
}

/// One page of a list.
#[derive(Debug, Default)]
pub struct Page {
    /// The objects with their key paths, in order.
    pub entries: Vec<(String, Entry)>,
    /// The version at which all of them were read.
    pub version: u64,
    /// The number of remaining objects.
    pub remaining: usize,
}

/// All objects of a store at one version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The version of the last write.
    pub version: u64,
    /// The objects, in the order of their keys.
    pub objects: Vec<(Key, Entry)>,
}

/// One write, as watchers of the resource see it.
#[derive(Debug)]
pub struct Event {
    /// The version of the write.
    pub version: u64,
    /// The object after the write, or as it was when it was deleted.
    pub object: Bytes,
    /// The object before the write.
    pub previous: Option<Entry>,
    /// Whether the write deleted the object.
    pub removed: bool,
    /// The namespace of the object.
    pub namespace: String,
    /// The key inside the resource.
    pub path: String,
    parsed: OnceLock<Value>,
    parsed_previous: OnceLock<Value>,
}

impl Event {
    /// Returns the event of a write.
    #[must_use]
    pub fn new(version: u64, key: &Key, object: Bytes, previous: Option<Entry>, removed: bool) -> Self {
        Self {
            version,
            object,
            previous,
            removed,
            namespace: key.namespace.clone(),
            path: key.path(),
            parsed: OnceLock::new(),
            parsed_previous: OnceLock::new(),
        }
    }

    /// Returns the parsed object; it is parsed once for all watchers.
    pub fn parsed(&self) -> &Value {
        self.parsed.get_or_init(|| document::parse(&self.object))
    }

    /// Returns the parsed object before the write; it is parsed once for all watchers.
    pub fn parsed_previous(&self) -> Option<&Value> {
        let previous = self.previous.as_ref()?;
        Some(self.parsed_previous.get_or_init(|| document::parse(&previous.bytes)))
    }
}

/// The start of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Starts with the existing objects, followed by every change.
    Objects,
    /// Starts with the changes after this version.
    After(u64),
}

/// A running watch of a scope.
#[derive(Debug)]
pub struct Subscription {
    /// The existing objects, if they were requested.
    pub objects: Vec<Entry>,
    /// The changes since the requested version.
    pub backlog: Vec<Arc<Event>>,
    /// Future changes. The stream ends if the watcher was too slow.
    pub changes: Changes,
    /// The version of the store when the watch started.
    pub version: u64,
}

/// Indicates that the requested version has been compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("version {asked} has been compacted, the oldest available version is {oldest}"))]
pub struct Compacted {
    /// The requested version.
    pub asked: u64,
    /// The oldest version that is still available.
    pub oldest: u64,
}

/// A store of objects.
///
/// Reads never block: however a store makes writes durable, its working set is in memory.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Returns the version of the last write.
    fn version(&self) -> u64;
    /// Returns one object.
    fn get(&self, key: &Key) -> Option<Entry>;
    /// Returns at most `limit` objects of a scope after the path `after`, as they were at version `at`.
    fn list(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: Option<usize>,
        at: Option<u64>,
    ) -> Result<Page, Compacted>;
    /// Watches a scope.
    fn watch(&self, scope: &Scope, start: Start) -> Result<Subscription, Compacted>;
    /// Returns all objects. Every write that was acknowledged before is included.
    fn snapshot(&self) -> Snapshot;
    /// Writes, and returns once the write is durable.
    async fn write(&self, write: Write) -> Result<Entry, WriteError>;
    /// Compacts the history of changes before the last call. Called every few minutes, so that a watch can
    /// resume from each change for at least that long, and a quiet server keeps no old versions.
    fn compact(&self);
    /// Returns why writes fail, if they do.
    fn problem(&self) -> Option<String> {
        None
    }
}
