//! What the cluster answered to our own writes, until the cache has seen it too.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use kube::core::DynamicObject;
use vitistack_machine::kubevirt::{Object, identity_of};
use vitistack_plan::machine::Identity;

use crate::place::Place;

/// A cache that is so late will not be believed sooner for waiting longer: then it is right, whatever it says.
const LIFETIME: Duration = Duration::from_secs(10);

/// What is assumed of the objects of one kind.
#[derive(Debug, Default)]
pub struct Assumed {
    entries: HashMap<Place, Entry>,
    /// When each was made, oldest first; some are of entries that are no longer there.
    ends: VecDeque<(Instant, Place)>,
    /// What the cache saw go a moment ago, by UID and oldest first: an answer to our delete that comes after it is the past.
    gone: VecDeque<(Instant, String)>,
}

#[derive(Debug)]
struct Entry {
    what: What,
    end: Instant,
}

#[derive(Debug)]
enum What {
    There(Object),
    Gone { uid: Option<String>, identity: Option<Identity> },
}

impl Assumed {
    /// Assumes that the object is as the cluster answered, unless the cache knows better already.
    pub fn put(&mut self, place: &Place, object: Object, cached: Option<&DynamicObject>, now: Instant) {
        let is_gone =
            object.metadata.uid.as_ref().is_some_and(|uid| self.gone.iter().any(|(_, gone)| gone == uid));
        if is_gone || cached.is_some_and(|cached| has_reached(cached, &object)) {
            self.entries.remove(place);
        } else {
            self.insert(place, What::There(object), now);
        }
    }

    /// Assumes that exactly this object is gone.
    pub fn forget(&mut self, place: &Place, object: &DynamicObject, now: Instant) {
        let gone = What::Gone { uid: object.metadata.uid.clone(), identity: identity_of(object) };
        self.insert(place, gone, now);
    }

    fn insert(&mut self, place: &Place, what: What, now: Instant) {
        let end = now + LIFETIME;
        self.entries.insert(place.clone(), Entry { what, end });
        self.ends.push_back((end, place.clone()));
    }

    /// Hears what the cache has seen, and ends what is no longer needed.
    pub fn heard(&mut self, place: &Place, object: &DynamicObject, is_gone: bool, now: Instant) {
        while self.gone.front().is_some_and(|(end, _)| *end <= now) {
            self.gone.pop_front();
        }
        if is_gone {
            self.gone.extend(object.metadata.uid.clone().map(|uid| (now + LIFETIME, uid)));
        }
        let Some(entry) = self.entries.get(place) else { return };
        let uid = &object.metadata.uid;
        let is_over = match &entry.what {
            What::There(assumed) if is_gone => assumed.metadata.uid == *uid,
            What::There(assumed) => has_reached(object, assumed),
            What::Gone { uid: gone, .. } => is_gone == (gone == uid),
        };
        if is_over {
            self.entries.remove(place);
        }
    }

    /// What is there, from what the cache says and what is assumed.
    #[must_use]
    pub fn resolve(&self, place: &Place, cached: Option<Object>) -> Option<Object> {
        match self.entries.get(place).map(|entry| &entry.what) {
            None => cached,
            Some(What::There(assumed)) => Some(Object::clone(assumed)),
            Some(What::Gone { uid, .. }) => cached.filter(|cached| cached.metadata.uid != *uid),
        }
    }

    /// The identity of the object that is assumed to be there.
    #[must_use]
    pub fn identity_at(&self, place: &Place) -> Option<Identity> {
        match self.entries.get(place).map(|entry| &entry.what) {
            Some(What::There(assumed)) => identity_of(assumed),
            _ => None,
        }
    }

    /// Where something is assumed.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        self.entries.keys()
    }

    /// Ends what was not confirmed in time, and returns whom it concerned.
    pub fn expire(&mut self, now: Instant) -> Vec<Identity> {
        let mut concerned = Vec::new();
        while self.next_end().is_some_and(|end| end <= now) {
            let Some((_, place)) = self.ends.pop_front() else { break };
            concerned.extend(self.entries.remove(&place).and_then(|entry| match entry.what {
                What::There(object) => identity_of(&object),
                What::Gone { identity, .. } => identity,
            }));
        }
        concerned
    }

    /// When the next assumption ends by itself.
    pub fn next_end(&mut self) -> Option<Instant> {
        while let Some((end, place)) = self.ends.front() {
            if self.entries.get(place).is_some_and(|entry| entry.end == *end) {
                return Some(*end);
            }
            self.ends.pop_front();
        }
        None
    }
}

/// Whether an object that was seen is at least as new as another of its name. Versions of one kind grow, whichever object
/// they are of; a server whose versions are no numbers is waited for.
fn has_reached(seen: &DynamicObject, other: &DynamicObject) -> bool {
    let version = |object: &DynamicObject| object.metadata.resource_version.clone();
    let number = |object: &DynamicObject| version(object)?.parse::<u64>().ok();
    match (number(seen), number(other)) {
        (Some(seen), Some(other)) => seen >= other,
        _ => version(seen) == version(other),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn place() -> Place {
        Place { namespace: "apps".to_owned(), name: "vm".to_owned() }
    }

    fn object(uid: &str, version: &str) -> Object {
        let object = json!({ "metadata": { "name": "vm", "namespace": "apps", "uid": uid, "resourceVersion": version,
            "labels": { "vitistack.io/identity": "one" } } });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn version(found: Option<&Object>) -> Option<String> {
        found?.metadata.resource_version.clone()
    }

    #[test]
    fn what_was_written_is_read_until_the_cache_has_it() {
        let mut assumed = Assumed::default();
        let now = Instant::now();
        assumed.put(&place(), object("a", "10"), None, now);
        assert_eq!(version(assumed.resolve(&place(), None).as_ref()).as_deref(), Some("10"));
        let old = object("a", "9");
        assumed.heard(&place(), &old, false, Instant::now());
        assert_eq!(version(assumed.resolve(&place(), Some(old)).as_ref()).as_deref(), Some("10"));
        let new = object("a", "11");
        assumed.heard(&place(), &new, false, Instant::now());
        assert_eq!(version(assumed.resolve(&place(), Some(new)).as_ref()).as_deref(), Some("11"));
        assert_eq!(assumed.resolve(&place(), None), None);
        assert_eq!(assumed.next_end(), None);
    }

    #[test]
    fn an_answer_that_comes_after_the_event_is_not_needed() {
        let mut assumed = Assumed::default();
        let seen = object("a", "10");
        assumed.put(&place(), object("a", "10"), Some(&seen), Instant::now());
        assert_eq!(assumed.places().count(), 0);
    }

    #[test]
    fn an_answer_to_a_delete_that_comes_after_the_end_is_the_past() {
        let mut assumed = Assumed::default();
        let now = Instant::now();
        assumed.heard(&place(), &object("a", "12"), true, now);
        assumed.put(&place(), object("a", "11"), None, now);
        assert_eq!(assumed.resolve(&place(), None), None);
        assumed.put(&place(), object("b", "13"), None, now);
        assert!(assumed.resolve(&place(), None).is_some(), "its successor is there");
        assumed.heard(&place(), &object("c", "14"), true, now + LIFETIME);
        assert_eq!(assumed.gone.len(), 1, "nothing is kept for long");
    }

    #[test]
    fn what_was_deleted_is_not_read_and_its_successor_is() {
        let mut assumed = Assumed::default();
        assumed.forget(&place(), &object("a", "10"), Instant::now());
        assert_eq!(assumed.resolve(&place(), Some(object("a", "10"))), None);
        assert!(assumed.resolve(&place(), Some(object("b", "12"))).is_some());
        assumed.heard(&place(), &object("a", "10"), false, Instant::now());
        assert_eq!(assumed.places().count(), 1);
        assumed.heard(&place(), &object("a", "10"), true, Instant::now());
        assert_eq!(assumed.places().count(), 0);
    }

    #[test]
    fn the_end_of_a_predecessor_does_not_hide_what_was_made() {
        let mut assumed = Assumed::default();
        assumed.put(&place(), object("b", "12"), Some(&object("a", "10")), Instant::now());
        assumed.heard(&place(), &object("a", "10"), true, Instant::now());
        assert!(assumed.resolve(&place(), None).is_some());
        assumed.heard(&place(), &object("b", "12"), true, Instant::now());
        assert_eq!(assumed.resolve(&place(), None), None);
    }

    #[test]
    fn an_assumption_that_is_never_confirmed_ends_and_is_told() {
        let mut assumed = Assumed::default();
        let now = Instant::now();
        assumed.put(&place(), object("a", "10"), None, now);
        assumed.put(&place(), object("a", "11"), None, now + Duration::from_secs(5));
        assert_eq!(assumed.expire(now + Duration::from_secs(11)), []);
        assert_eq!(assumed.next_end(), Some(now + Duration::from_secs(15)));
        assert_eq!(assumed.expire(now + Duration::from_secs(15)), [Identity::new("one")]);
        assert_eq!(assumed.resolve(&place(), None), None);
    }

    #[test]
    fn versions_that_are_no_numbers_are_only_ever_equal() {
        assert!(has_reached(&object("a", "10"), &object("a", "9")));
        assert!(!has_reached(&object("a", "9"), &object("a", "10")));
        assert!(has_reached(&object("a", "x"), &object("a", "x")));
        assert!(!has_reached(&object("a", "y"), &object("a", "x")));
    }
}
