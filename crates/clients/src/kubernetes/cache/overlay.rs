//! This process's own writes to the objects of a cache, until the watch has caught up with them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use kube::{Resource, runtime::reflector::ObjectRef};
use tokio::time::Instant;

use super::Kind;

/// How long a write is read back although the watch does not show it. A watch that lags longer than this is believed
/// again: the object may have been changed or deleted while the watch was interrupted.
pub const WRITE_EXPIRY: Duration = Duration::from_secs(30);

/// The writes that the watch has not shown yet, by object.
#[derive(Debug)]
pub(super) struct Overlay<K: Kind> {
    entries: HashMap<ObjectRef<K>, Entry<K>>,
    /// When the watch reported the deletion of each UID. A response to our own request that arrives afterwards is stale.
    deleted: HashMap<String, Instant>,
}

#[derive(Debug)]
struct Entry<K> {
    /// The server's latest answer.
    answer: Answer<K>,
    expires: Instant,
}

#[derive(Debug)]
enum Answer<K> {
    Written(Arc<K>),
    Deleted { uid: Option<String> },
}

/// An object whose writes expired: what was read until now, if it was there.
pub(super) struct Expired<K: Kind> {
    pub(super) key: ObjectRef<K>,
    pub(super) before: Option<Arc<K>>,
}

impl<K: Kind> Default for Overlay<K> {
    fn default() -> Self {
        Self { entries: HashMap::new(), deleted: HashMap::new() }
    }
}

impl<K: Kind> Overlay<K> {
    /// Whether reads are those of the watch.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Records the server's answer to a write, unless something newer is known.
    pub(super) fn wrote(&mut self, key: ObjectRef<K>, object: Arc<K>, watched: Option<&K>, now: Instant) {
        let uid = &object.meta().uid;
        let is_deleted = uid.as_ref().is_some_and(|uid| self.deleted.contains_key(uid));
        let is_shown = watched.is_some_and(|watched| has_reached(watched, object.as_ref()));
        let is_outdated = match self.answer(&key) {
            Some(Answer::Written(known)) => is_newer(known.as_ref(), object.as_ref()),
            Some(Answer::Deleted { uid: deleted }) => deleted == uid,
            None => false,
        };

        if !is_deleted && !is_shown && !is_outdated {
            self.insert(key, Answer::Written(object), now);
        }
    }

    /// Records that exactly this object is deleted, unless its successor is known.
    pub(super) fn deleted(&mut self, key: ObjectRef<K>, object: &K, now: Instant) {
        let uid = object.meta().uid.clone();
        let is_shown = uid.as_ref().is_some_and(|uid| self.deleted.contains_key(uid));
        let has_successor = match self.answer(&key) {
            Some(Answer::Written(known)) => known.meta().uid != uid && is_newer(known.as_ref(), object),
            _ => false,
        };

        if !is_shown && !has_successor {
            self.insert(key, Answer::Deleted { uid }, now);
        }
    }

    fn answer(&self, key: &ObjectRef<K>) -> Option<&Answer<K>> {
        self.entries.get(key).map(|entry| &entry.answer)
    }

    fn insert(&mut self, key: ObjectRef<K>, answer: Answer<K>, now: Instant) {
        self.entries.insert(key, Entry { answer, expires: now + WRITE_EXPIRY });
    }

    /// Ends the entries that the watch has caught up with.
    pub(super) fn observed(&mut self, key: &ObjectRef<K>, object: &K, is_gone: bool, now: Instant) {
        let uid = &object.meta().uid;
        if is_gone && let Some(uid) = uid {
            self.deleted.insert(uid.clone(), now + WRITE_EXPIRY);
        }

        let is_answered = self.answer(key).is_some_and(|answer| match answer {
            Answer::Written(written) if is_gone => written.meta().uid == *uid,
            Answer::Written(written) => has_reached(object, written.as_ref()),
            Answer::Deleted { uid: deleted } => is_gone == (deleted == uid),
        });
        if is_answered {
            self.entries.remove(key);
        }
    }

    /// Returns what readers see of an object of which the watch has shown `watched`.
    pub(super) fn resolve(&self, key: &ObjectRef<K>, watched: Option<Arc<K>>) -> Option<Arc<K>> {
        match self.entries.get(key) {
            Some(entry) => entry.resolve(watched),
            None => watched,
        }
    }

    /// The objects with writes that the watch has not shown.
    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectRef<K>> {
        self.entries.keys()
    }

    /// Removes and returns the entries that were not confirmed in time.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Expired<K>> {
        self.deleted.retain(|_, expires| *expires > now);
        let expired = self.entries.extract_if(|_, entry| entry.expires <= now);
        expired.map(|(key, entry)| Expired { key, before: entry.resolve(None) }).collect()
    }
}

impl<K: Kind> Entry<K> {
    fn resolve(&self, watched: Option<Arc<K>>) -> Option<Arc<K>> {
        match &self.answer {
            Answer::Written(written) => {
                let is_shown =
                    watched.as_ref().is_some_and(|watched| has_reached(watched.as_ref(), written.as_ref()));
                if is_shown { watched } else { Some(Arc::clone(written)) }
            }
            Answer::Deleted { uid } => watched.filter(|watched| watched.meta().uid != *uid),
        }
    }
}

/// Whether an object is at least as new as another of the same name. The versions of one kind grow across its objects;
/// of versions that are not numbers only an equal one counts.
fn has_reached(seen: &impl Resource, other: &impl Resource) -> bool {
    match (version(seen), version(other)) {
        (Some(seen), Some(other)) => seen >= other,
        _ => seen.meta().resource_version == other.meta().resource_version,
    }
}

/// Whether an object is certainly newer than another of the same name.
fn is_newer(object: &impl Resource, other: &impl Resource) -> bool {
    version(object).zip(version(other)).is_some_and(|(version, other)| version > other)
}

fn version(object: &impl Resource) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn key() -> ObjectRef<ConfigMap> {
        ObjectRef::new("vm").within("apps")
    }

    fn object(uid: &str, version: &str) -> Arc<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.name = Some("vm".to_owned());
        object.metadata.namespace = Some("apps".to_owned());
        object.metadata.uid = Some(uid.to_owned());
        object.metadata.resource_version = Some(version.to_owned());
        Arc::new(object)
    }

    fn version_of(found: Option<Arc<ConfigMap>>) -> Option<String> {
        found?.metadata.resource_version.clone()
    }

    fn read(overlay: &Overlay<ConfigMap>, watched: Option<Arc<ConfigMap>>) -> Option<String> {
        version_of(overlay.resolve(&key(), watched))
    }

    #[test]
    fn a_write_is_read_until_the_watch_shows_it() {
        let (mut overlay, now) = (Overlay::default(), Instant::now());
        overlay.wrote(key(), object("a", "10"), None, now);
        assert_eq!(read(&overlay, None).as_deref(), Some("10"));
        let old = object("a", "9");
        overlay.observed(&key(), &old, false, now);
        assert_eq!(read(&overlay, Some(old)).as_deref(), Some("10"));
        let new = object("a", "11");
        assert_eq!(
            read(&overlay, Some(Arc::clone(&new))).as_deref(),
            Some("11"),
            "the store is ahead of the event"
        );
        overlay.observed(&key(), &new, false, now);
        assert_eq!(read(&overlay, Some(new)).as_deref(), Some("11"));
        assert_eq!(overlay.resolve(&key(), None), None);
        assert!(overlay.is_empty());
    }

    #[test]
    fn an_answer_after_its_event_leaves_no_entry() {
        let mut overlay = Overlay::default();
        let seen = object("a", "10");
        overlay.wrote(key(), object("a", "10"), Some(&seen), Instant::now());
        assert!(overlay.is_empty());
    }

    #[test]
    fn an_answer_after_the_deletion_event_is_not_believed() {
        let (mut overlay, now) = (Overlay::default(), Instant::now());
        overlay.observed(&key(), &object("a", "12"), true, now);
        overlay.wrote(key(), object("a", "11"), None, now);
        assert_eq!(overlay.resolve(&key(), None), None);
        overlay.deleted(key(), &object("a", "10"), now);
        assert!(overlay.is_empty());
        overlay.wrote(key(), object("b", "13"), None, now);
        assert!(overlay.resolve(&key(), None).is_some(), "its successor exists");
        overlay.wrote(key(), object("a", "11"), None, now);
        overlay.deleted(key(), &object("a", "11"), now);
        assert_eq!(read(&overlay, None).as_deref(), Some("13"), "late answers do not hide the successor");
        overlay.expire(now + WRITE_EXPIRY);
        assert!(overlay.deleted.is_empty(), "deletions are remembered for a limited time");
    }

    #[test]
    fn an_older_answer_replaces_neither_a_newer_one_nor_a_deletion() {
        let (mut overlay, now) = (Overlay::default(), Instant::now());
        overlay.wrote(key(), object("a", "10"), None, now);
        overlay.wrote(key(), object("a", "9"), None, now);
        assert_eq!(read(&overlay, Some(object("a", "8"))).as_deref(), Some("10"));
        overlay.deleted(key(), &object("a", "10"), now);
        overlay.wrote(key(), object("a", "9"), None, now);
        assert_eq!(read(&overlay, Some(object("a", "8"))), None);
    }

    #[test]
    fn a_deleted_object_is_hidden_and_its_successor_is_not() {
        let (mut overlay, now) = (Overlay::default(), Instant::now());
        overlay.deleted(key(), &object("a", "10"), now);
        assert_eq!(read(&overlay, Some(object("a", "10"))), None);
        assert!(overlay.resolve(&key(), Some(object("b", "12"))).is_some());
        overlay.observed(&key(), &object("a", "10"), false, now);
        assert!(!overlay.is_empty());
        overlay.observed(&key(), &object("a", "10"), true, now);
        assert!(overlay.is_empty());
    }

    #[test]
    fn the_deletion_of_a_predecessor_does_not_hide_its_successor() {
        let (mut overlay, now) = (Overlay::default(), Instant::now());
        overlay.wrote(key(), object("b", "12"), Some(&object("a", "10")), now);
        overlay.observed(&key(), &object("a", "10"), true, now);
        assert!(overlay.resolve(&key(), None).is_some());
        overlay.observed(&key(), &object("b", "12"), true, now);
        assert_eq!(overlay.resolve(&key(), None), None);
    }

    #[test]
    fn an_unconfirmed_write_expires_and_is_reported() {
        let (mut overlay, now) = (Overlay::default(), Instant::now());
        overlay.wrote(key(), object("a", "10"), None, now);
        overlay.wrote(key(), object("a", "11"), None, now + Duration::from_secs(5));
        assert!(overlay.expire(now + WRITE_EXPIRY).is_empty(), "the second write is younger");
        let expired = overlay.expire(now + WRITE_EXPIRY + Duration::from_secs(5));
        assert_eq!(expired.len(), 1);
        assert_eq!(version_of(expired[0].before.clone()).as_deref(), Some("11"));
        assert_eq!(overlay.resolve(&key(), None), None);
    }

    #[test]
    fn versions_that_are_not_numbers_are_only_compared_for_equality() {
        let reached = |seen, other| has_reached(object("a", seen).as_ref(), object("a", other).as_ref());
        assert!(reached("10", "9") && !reached("9", "10"));
        assert!(reached("x", "x") && !reached("y", "x"));
        assert!(!is_newer(object("a", "y").as_ref(), object("a", "x").as_ref()));
    }
}
