//! Caches of other clusters.

use std::sync::Arc;

use kube::{Api, core::DeserializeGuard, runtime::watcher};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Budget, Cache, Change, Kind, feed::whole_objects};

/// A cache of a foreign cluster. It is filled until this is dropped, and is not part of the health of the process:
/// readers check [`Cache::state`] first.
pub struct ForeignCache<K: Kind> {
    cache: Cache<K>,
    _end: DropGuard,
}

impl<K: Kind> ForeignCache<K> {
    /// Starts to fill a cache with the objects that `selection` selects in each of `apis`, and reports every change to `listener`, with the cache. What `prune` removes from an object is not stored, and the cache cannot be read
    /// while the objects, whose `size` is in bytes, exceed the budget, because a foreign cluster may hold any number of
    /// objects. Must be called inside a tokio runtime.
    pub fn start(
        apis: Vec<Api<DeserializeGuard<K>>>,
        resource: K::DynamicType,
        selection: watcher::Config,
        prune: impl Fn(&mut K) + Send + Sync + 'static,
        size: impl Fn(&K) -> usize + Send + Sync + 'static,
        budget: Budget,
        listener: impl Fn(&Cache<K>, &Change<K>) + Send + Sync + 'static,
    ) -> Self {
        let source = whole_objects(apis, selection);
        let (cache, feed) = Cache::pruned(resource, prune);
        let feed = feed.within(budget, size);
        // Weak: the cache owns its listeners.
        let shared = Arc::downgrade(&cache.0);
        cache.listen(move |change| {
            if let Some(shared) = shared.upgrade() {
                listener(&Cache(shared), change);
            }
        });
        let end = CancellationToken::new();
        tokio::spawn(feed.run(source, None, end.clone()));
        Self { cache, _end: end.drop_guard() }
    }

    /// The cache.
    #[must_use]
    pub fn cache(&self) -> &Cache<K> {
        &self.cache
    }
}
