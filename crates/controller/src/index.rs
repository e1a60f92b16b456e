//! Finding objects by what they refer to, without looking through all of them.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::runtime::reflector::ObjectRef;
use vitistack_runtime::{Cache, cache::Kind};

/// The words that an object is found by.
type Words<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// An inverted index over a cache. A clone is the same index.
pub struct Index<K: Kind<DynamicType = ()>>(Arc<Inner<K>>);

struct Inner<K: Kind<DynamicType = ()>> {
    words: Words<K>,
    entries: Mutex<Entries<K>>,
}

struct Entries<K: Kind<DynamicType = ()>> {
    found: HashMap<String, HashSet<ObjectRef<K>>>,
    words: HashMap<ObjectRef<K>, BTreeSet<String>>,
}

impl<K: Kind<DynamicType = ()>> Clone for Index<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Kind<DynamicType = ()>> Index<K> {
    /// Keeps an index of the objects in a cache, from before its first list on.
    pub fn new(cache: &Cache<K>, words: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Self {
        let entries = Entries { found: HashMap::new(), words: HashMap::new() };
        let index = Self(Arc::new(Inner { words: Box::new(words), entries: Mutex::new(entries) }));
        let (listening, objects) = (index.clone(), cache.clone());
        cache.listen(move |change| {
            let key = ObjectRef::from_obj(change.object.as_ref());
            // A change does not say whether the object is gone; the cache does.
            let words = objects.get(&key).map(|object| (listening.0.words)(&object)).unwrap_or_default();
            listening.put(&key, words);
        });
        index
    }

    /// The objects that are found by a word, by namespace and name.
    #[must_use]
    pub fn get(&self, word: &str) -> Vec<ObjectRef<K>> {
        let mut found: Vec<ObjectRef<K>> =
            self.lock().found.get(word).map(|found| found.iter().cloned().collect()).unwrap_or_default();
        found.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
        found
    }

    fn lock(&self) -> MutexGuard<'_, Entries<K>> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, key: &ObjectRef<K>, words: Vec<String>) {
        let words: BTreeSet<String> = words.into_iter().collect();
        let mut entries = self.lock();
        let before = if words.is_empty() {
            entries.words.remove(key)
        } else {
            entries.words.insert(key.clone(), words.clone())
        };
        let before = before.unwrap_or_default();
        for word in before.difference(&words) {
            if let Some(found) = entries.found.get_mut(word) {
                found.remove(key);
                if found.is_empty() {
                    entries.found.remove(word);
                }
            }
        }
        for word in words.difference(&before) {
            entries.found.entry(word.clone()).or_default().insert(key.clone());
        }
    }
}
