//! The objects, the recent changes and the watchers of one resource.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use super::{
    Compacted, Entry, Event, Page, Start, Subscription,
    queue::{Sender, queue},
};

/// The maximum number of changes in the history, from which watches resume and lists continue.
const HISTORY_EVENTS: usize = 4096;
/// The maximum size of the history in bytes.
const HISTORY_BYTES: usize = 8 << 20;

/// One resource.
#[derive(Debug, Default)]
pub struct Partition {
    objects: BTreeMap<String, Entry>,
    history: VecDeque<Arc<Event>>,
    history_bytes: usize,
    /// The newest version that is no longer in the history.
    forgotten: u64,
    /// The value of `forgotten` after the next compaction.
    forget_next: u64,
    watchers: HashMap<Option<String>, Vec<Sender>>,
}

impl Partition {
    /// Returns a resource whose changes up to `version` are unknown.
    #[must_use]
    pub fn starting_at(version: u64) -> Self {
        Self { forgotten: version, forget_next: version, ..Self::default() }
    }

    /// Returns one object.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.objects.get(path)
    }

    /// Returns all objects with their paths, in order.
    pub fn objects(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.objects.iter()
    }

    /// Inserts an object without notifying watchers: used when a store is loaded.
    pub fn load(&mut self, path: String, entry: Entry) {
        self.objects.insert(path, entry);
    }

    /// Applies a change and notifies the watchers of its scope.
    pub fn apply(&mut self, event: Event) {
        if event.removed {
            self.objects.remove(&event.path);
        } else {
            let entry = Entry { version: event.version, bytes: event.object.clone() };
            self.objects.insert(event.path.clone(), entry);
        }

        let event = Arc::new(event);
        for scope in [None, Some(event.namespace.clone())] {
            if let Some(watchers) = self.watchers.get_mut(&scope) {
                watchers.retain(|watcher| watcher.send(&event));
                if watchers.is_empty() {
                    self.watchers.remove(&scope);
                }
            }
        }

        self.history_bytes += event.object.len();
        self.history.push_back(event);
        while self.history.len() > HISTORY_EVENTS || self.history_bytes > HISTORY_BYTES {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(event) = self.history.pop_front() {
            self.history_bytes -= event.object.len();
            self.forgotten = event.version;
        }
    }

    /// Compacts what was already old at the last call; `version` is the current version of the store.
    pub fn compact(&mut self, version: u64) {
        while self.history.front().is_some_and(|event| event.version <= self.forget_next) {
            self.forget_oldest();
        }
        self.forgotten = self.forgotten.max(self.forget_next);
        self.forget_next = version;
        self.history.shrink_to_fit();
    }

    fn known(&self, asked: u64) -> Result<(), Compacted> {
        if asked < self.forgotten {
            return Err(Compacted { asked, oldest: self.forgotten });
        }
        Ok(())
    }

    /// Returns a page as it was at `at`; `version` is the current version of the store.
    pub fn list(
        &self,
        namespace: Option<&str>,
        after: Option<&str>,
        limit: Option<usize>,
        at: Option<u64>,
        version: u64,
    ) -> Result<Page, Compacted> {
        let at = at.unwrap_or(version);
        self.known(at)?;
        let prefix = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let start = match after {
            Some(after) if after >= prefix.as_str() => Bound::Excluded(after),
            _ => Bound::Included(prefix.as_str()),
        };

        let within = |path: &str| path.starts_with(&prefix);
        let changed = self.history.back().is_some_and(|event| event.version > at);
        let now =
            self.objects.range::<str, _>((start, Bound::Unbounded)).take_while(|(path, _)| within(path));
        if !changed {
            return Ok(page(now, limit, at));
        }

        // The past is the present with the changes since then reverted, newest first.
        let mut then: BTreeMap<&String, &Entry> = now.collect();
        for event in self.history.iter().rev().take_while(|event| event.version > at) {
            if !within(&event.path) || after.is_some_and(|after| event.path.as_str() <= after) {
                continue;
            }
            match &event.previous {
                Some(previous) => then.insert(&event.path, previous),
                None => then.remove(&event.path),
            };
        }

        Ok(page(then.into_iter(), limit, at))
    }

    /// Starts watching the resource.
    pub fn watch(
        &mut self,
        namespace: Option<&str>,
        start: Start,
        version: u64,
    ) -> Result<Subscription, Compacted> {
        let (objects, backlog) = match start {
            Start::Objects => {
                let page = self.list(namespace, None, None, None, version)?;
                (page.entries.into_iter().map(|(_, entry)| entry).collect(), Vec::new())
            }
            Start::After(asked) => {
                self.known(asked)?;
                let newer = self.history.iter().rev().take_while(|event| event.version > asked);
                let mut backlog: Vec<_> = newer
                    .filter(|event| namespace.is_none_or(|namespace| event.namespace == namespace))
                    .cloned()
                    .collect();
                backlog.reverse();
                (Vec::new(), backlog)
            }
        };

        let (sender, changes) = queue();
        let watchers = self.watchers.entry(namespace.map(str::to_owned)).or_default();
        watchers.retain(|watcher| !watcher.is_closed());
        watchers.push(sender);
        Ok(Subscription { objects, backlog, changes, version })
    }
}

fn page<'a>(
    mut objects: impl Iterator<Item = (&'a String, &'a Entry)>,
    limit: Option<usize>,
    version: u64,
) -> Page {
    let entries = objects
        .by_ref()
        .take(limit.unwrap_or(usize::MAX))
        .map(|(path, entry)| (path.clone(), entry.clone()))
        .collect();
    Page { entries, version, remaining: objects.count() }
}
