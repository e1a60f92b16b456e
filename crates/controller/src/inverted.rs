//! Which objects have which keys, in little memory: there may be a key and more for every machine.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
    sync::Arc,
};

use vitistack_types::ObjectName;

/// An inverted index. A key and a name are stored once each, however often they are used.
#[derive(Debug)]
pub struct Inverted<Key> {
    found: BTreeSet<(Arc<Key>, Arc<ObjectName>)>,
    keys: HashMap<Arc<ObjectName>, Box<[Arc<Key>]>>,
}

impl<Key> Default for Inverted<Key> {
    fn default() -> Self {
        Self { found: BTreeSet::new(), keys: HashMap::new() }
    }
}

impl<Key: Ord + Hash + Clone> Inverted<Key> {
    /// The objects with a key, in order.
    pub fn objects<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a ObjectName> {
        let first = (Arc::new(key.clone()), Arc::default());
        self.found.range(first..).take_while(move |(found, _)| **found == *key).map(|(_, name)| &**name)
    }

    /// The keys of an object.
    pub fn keys(&self, name: &ObjectName) -> impl Iterator<Item = &Key> {
        self.keys.get(name).into_iter().flatten().map(AsRef::as_ref)
    }

    /// Gives an object these keys and no others.
    pub fn put(&mut self, name: &ObjectName, mut keys: Vec<Key>) {
        keys.sort();
        keys.dedup();
        if self.keys(name).eq(keys.iter()) {
            return;
        }

        let (name, before) =
            self.keys.remove_entry(name).unwrap_or_else(|| (Arc::new(name.clone()), Box::default()));
        for key in before {
            self.found.remove(&(key, Arc::clone(&name)));
        }

        let keys: Box<[Arc<Key>]> = keys.into_iter().map(|key| self.shared(key)).collect();
        self.found.extend(keys.iter().map(|key| (Arc::clone(key), Arc::clone(&name))));
        if !keys.is_empty() {
            self.keys.insert(name, keys);
        }
    }

    /// The stored copy of a key, if there is one.
    fn shared(&self, key: Key) -> Arc<Key> {
        let key = Arc::new(key);
        let first = (Arc::clone(&key), Arc::default());
        let known = self.found.range(first..).next().map(|(known, _)| known).filter(|known| **known == key);
        known.map_or(key, Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> ObjectName {
        ObjectName::new("apps", name)
    }

    fn found<'a>(index: &'a Inverted<&'static str>, key: &'a &'static str) -> Vec<&'a str> {
        index.objects(key).map(|name| name.name.as_str()).collect()
    }

    #[test]
    fn an_object_is_found_by_its_keys_and_by_no_others() {
        let mut index = Inverted::default();
        index.put(&name("b"), vec!["small", "one"]);
        index.put(&name("a"), vec!["small", "small"]);
        assert_eq!(found(&index, &"small"), ["a", "b"], "in order");
        assert_eq!(found(&index, &"smal"), [""; 0], "whole keys only");

        index.put(&name("b"), vec!["large", "one"]);
        assert_eq!((found(&index, &"small"), found(&index, &"large")), (vec!["a"], vec!["b"]));
        assert_eq!(index.keys(&name("b")).collect::<Vec<_>>(), [&"large", &"one"]);

        index.put(&name("a"), vec![]);
        index.put(&name("b"), vec![]);
        assert!(index.found.is_empty() && index.keys.is_empty(), "nothing is left of deleted objects");
    }

    #[test]
    fn a_key_of_many_objects_is_stored_once() {
        let mut index = Inverted::default();
        for each in ["a", "b", "c"] {
            index.put(&name(each), vec!["small"]);
        }
        let keys: Vec<&Arc<&str>> = index.found.iter().map(|(key, _)| key).collect();
        assert!(keys.iter().all(|key| Arc::ptr_eq(key, keys[0])));
    }
}
