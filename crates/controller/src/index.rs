//! Finds objects by what they refer to, without a scan over all of them.

use std::{
    hash::Hash,
    marker::PhantomData,
    sync::{Arc, Mutex},
};

use kube::{Resource, runtime::reflector::ObjectRef};
use vitistack_runtime::{Cache, cache::Kind, lock};
use vitistack_types::ObjectName;

use crate::inverted::Inverted;

/// What a key of an index has to be.
pub trait Key: Ord + Hash + Clone + Send + Sync + 'static {}

impl<T: Ord + Hash + Clone + Send + Sync + 'static> Key for T {}

/// An inverted index over a cache. Clones share it.
pub struct Index<K: Kind<DynamicType = ()>, By: Key> {
    entries: Arc<Mutex<Inverted<By>>>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind<DynamicType = ()>, By: Key> Clone for Index<K, By> {
    fn clone(&self) -> Self {
        Self { entries: Arc::clone(&self.entries), kind: PhantomData }
    }
}

impl<K: Kind<DynamicType = ()>, By: Key> Index<K, By> {
    /// Indexes the objects of a cache by their keys, from before its first list on.
    pub fn new(cache: &Cache<K>, keys: impl Fn(&K) -> Vec<By> + Send + Sync + 'static) -> Self {
        let index = Self { entries: Arc::default(), kind: PhantomData };
        let listening = index.clone();
        cache.listen(move |change| {
            let keys = if change.is_gone { Vec::new() } else { keys(&change.object) };
            lock(&listening.entries).put(&ObjectName::of(change.object.as_ref()), keys);
        });
        index
    }

    /// Returns the objects with a key, by namespace and name.
    #[must_use]
    pub fn get(&self, key: &By) -> Vec<ObjectRef<K>> {
        lock(&self.entries).objects(key).map(reference).collect()
    }
}

/// Returns the reference by which caches know an object.
pub(crate) fn reference<K: Resource<DynamicType = ()>>(name: &ObjectName) -> ObjectRef<K> {
    let reference = ObjectRef::new(&name.name);
    if name.namespace.is_empty() { reference } else { reference.within(&name.namespace) }
}
