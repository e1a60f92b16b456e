//! Where objects live: bytes under a key, each with the version that wrote it.
//!
//! A store knows nothing of Kubernetes but three things: one counter numbers all writes, a write is conditional
//! on the version it was computed from, and changes can be followed from any recent version.

pub mod document;
pub mod memory;
pub mod partition;
pub mod sqlite;

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use snafu::Snafu;
use tokio::sync::mpsc;

use self::document::Draft;

/// Which object: a resource (`group/plural`), a namespace (empty for cluster scope) and a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// `group/plural`; every version of a resource shares it.
    pub resource: Arc<str>,
    /// Empty for an object without namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl Key {
    /// The key inside its resource. Lists are in its order, which is that of the real server's storage keys.
    #[must_use]
    pub fn path(&self) -> String {
        if self.namespace.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }
}

/// One object as stored: the JSON a client gets, and the version inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The write that made these bytes.
    pub version: u64,
    /// The whole object as JSON, `metadata.resourceVersion` included.
    pub bytes: Bytes,
}

/// What must be true of the key for a write to happen.
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
    /// Where.
    pub key: Key,
    /// On what condition.
    pub expect: Expect,
    /// The new object, or for a removal the object as its watchers see it go.
    pub draft: Draft,
    /// Whether the key is emptied.
    pub remove: bool,
}

/// Why a write did not happen.
#[derive(Debug, Snafu)]
pub enum WriteError {
    /// The condition did not hold; here is what is stored instead.
    #[snafu(display("the stored object is not the expected one"))]
    Unexpected {
        /// What is there now.
        current: Option<Entry>,
    },
    /// The store could not make the write durable.
    #[snafu(display("failed to store the object: {message}"))]
    Fail {
        /// What the database said.
        message: String,
    },
}

/// A part of a resource: all of it, or one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// `group/plural`.
    pub resource: Arc<str>,
    /// One namespace only.
    pub namespace: Option<String>,
}

/// One page of a list.
#[derive(Debug, Default)]
pub struct Page {
    /// The objects with their key paths, in order.
    pub entries: Vec<(String, Entry)>,
    /// The version all of them were read at.
    pub version: u64,
    /// How many follow.
    pub remaining: usize,
}

/// One write, as those who follow the resource see it.
#[derive(Debug)]
pub struct Event {
    /// The version of the write.
    pub version: u64,
    /// The object after the write, or as it was removed.
    pub object: Bytes,
    /// The object before the write.
    pub previous: Option<Entry>,
    /// Whether the write removed the object.
    pub removed: bool,
    /// The namespace of the object.
    pub namespace: String,
    /// The key inside the resource.
    pub path: String,
    parsed: OnceLock<Value>,
    parsed_previous: OnceLock<Value>,
}

impl Event {
    /// An event of a write.
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

    /// The object parsed, once for all watchers that ask.
    pub fn parsed(&self) -> &Value {
        self.parsed.get_or_init(|| document::parse(&self.object))
    }

    /// The object before the write, parsed once for all watchers that ask.
    pub fn parsed_previous(&self) -> Option<&Value> {
        let previous = self.previous.as_ref()?;
        Some(self.parsed_previous.get_or_init(|| document::parse(&previous.bytes)))
    }
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the objects that are there, then every change.
    Objects,
    /// With the changes after this version.
    After(u64),
}

/// A running watch of a scope.
#[derive(Debug)]
pub struct Subscription {
    /// The objects at the start, if they were asked for.
    pub objects: Vec<Entry>,
    /// Changes since the version asked for.
    pub backlog: Vec<Arc<Event>>,
    /// Changes from now on. It ends when the watcher was too slow.
    pub changes: mpsc::Receiver<Arc<Event>>,
    /// The version of the store when the watch began.
    pub version: u64,
}

/// The version asked for is no longer known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("version {asked} is compacted, {oldest} is the oldest"))]
pub struct Compacted {
    /// What was asked for.
    pub asked: u64,
    /// The oldest version that still works.
    pub oldest: u64,
}

/// A place for objects.
///
/// Reads never wait: whatever a store does to be durable, its working set is in memory.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The version of the last write.
    fn version(&self) -> u64;
    /// One object.
    fn get(&self, key: &Key) -> Option<Entry>;
    /// The objects of a scope after the path `after`, at most `limit` of them, as they were at version `at`.
    fn list(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: Option<usize>,
        at: Option<u64>,
    ) -> Result<Page, Compacted>;
    /// Follows a scope.
    fn watch(&self, scope: &Scope, start: Start) -> Result<Subscription, Compacted>;
    /// Writes, and answers when the write is as durable as the store makes it.
    async fn write(&self, write: Write) -> Result<Entry, WriteError>;
    /// Forgets the history of changes made before the last call. Called every few minutes, so that each change can be
    /// resumed from for at least that long and a quiet server keeps no old versions.
    fn compact(&self);
}
