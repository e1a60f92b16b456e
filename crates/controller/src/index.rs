//! Finding objects by what they refer to, without looking through all of them.

use std::{
    marker::PhantomData,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::runtime::reflector::ObjectRef;
use vitistack_runtime::{Cache, cache::Kind};

use crate::{inverted::Inverted, place::Place};

/// An inverted index over a cache. A clone is the same index.
pub struct Index<K: Kind<DynamicType = ()>> {
    entries: Arc<Mutex<Inverted>>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind<DynamicType = ()>> Clone for Index<K> {
    fn clone(&self) -> Self {
        Self { entries: Arc::clone(&self.entries), kind: PhantomData }
    }
}

impl<K: Kind<DynamicType = ()>> Index<K> {
    /// Keeps an index of the objects in a cache by their words, from before its first list on.
    pub fn new(cache: &Cache<K>, words: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Self {
        let index = Self { entries: Arc::default(), kind: PhantomData };
        let listening = index.clone();
        cache.listen(move |change| {
            let words = if change.is_gone { Vec::new() } else { words(&change.object) };
            listening.lock().put(&Place::of(change.object.as_ref()), words);
        });
        index
    }

    /// The objects that are found by a word, by namespace and name.
    #[must_use]
    pub fn get(&self, word: &str) -> Vec<ObjectRef<K>> {
        self.lock().places(word).map(|place| place.reference(())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inverted> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
