//! How much memory the objects of a foreign cluster may take.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// What an entry of a cache takes besides its object.
const OVERHEAD: usize = 1 << 10;

/// How many bytes the objects in all caches of one cluster may take. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    /// What the caches hold.
    stored: AtomicUsize,
    /// What the lists hold that are being read and will replace the content of the caches.
    listed: AtomicUsize,
}

impl Budget {
    /// Returns a budget of this number of bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Shared { limit, stored: AtomicUsize::new(0), listed: AtomicUsize::new(0) }))
    }

    /// Returns a budget that is never exceeded.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(usize::MAX)
    }
}

/// Counts the objects of one cache.
pub(super) struct Meter<K> {
    budget: Budget,
    size: Box<dyn Fn(&K) -> usize + Send + Sync>,
    is_listing: bool,
    stored: usize,
    listed: usize,
}

impl<K> Meter<K> {
    pub(super) fn new(budget: Budget, size: impl Fn(&K) -> usize + Send + Sync + 'static) -> Self {
        Self { budget, size: Box::new(size), is_listing: false, stored: 0, listed: 0 }
    }

    /// Whether the caches of the cluster hold more than they may. While a list is read, only the lists count: they replace
    /// what the caches hold.
    pub(super) fn is_exceeded(&self) -> bool {
        let Shared { limit, stored, listed } = self.budget.0.as_ref();
        let held = if self.is_listing { listed } else { stored };
        held.load(Ordering::Relaxed) > *limit
    }

    /// A list starts, or the last one is given up.
    pub(super) fn list_started(&mut self) {
        self.is_listing = true;
        self.budget.0.listed.fetch_sub(std::mem::take(&mut self.listed), Ordering::Relaxed);
    }

    /// An object of a list, none if it cannot be decoded.
    pub(super) fn listed(&mut self, object: Option<&K>) {
        let size = self.size_of(object);
        self.listed += size;
        self.budget.0.listed.fetch_add(size, Ordering::Relaxed);
    }

    /// The list has replaced the content of the cache.
    pub(super) fn list_finished(&mut self) {
        let listed = self.listed;
        self.list_started();
        self.is_listing = false;
        self.budget.0.stored.fetch_add(listed, Ordering::Relaxed);
        self.budget.0.stored.fetch_sub(std::mem::replace(&mut self.stored, listed), Ordering::Relaxed);
    }

    /// An object was added or replaced, or removed.
    pub(super) fn changed(&mut self, before: Option<&K>, after: Option<&K>) {
        let added = after.map_or(0, |after| self.size_of(Some(after)));
        let removed = before.map_or(0, |before| self.size_of(Some(before))).min(self.stored + added);
        self.stored = self.stored + added - removed;
        self.budget.0.stored.fetch_add(added, Ordering::Relaxed);
        self.budget.0.stored.fetch_sub(removed, Ordering::Relaxed);
    }

    fn size_of(&self, object: Option<&K>) -> usize {
        OVERHEAD + object.map_or(0, |object| (self.size)(object))
    }
}

impl<K> Drop for Meter<K> {
    fn drop(&mut self) {
        self.list_started();
        self.budget.0.stored.fetch_sub(self.stored, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_of_one_cluster_share_a_budget_and_a_list_replaces_the_last_one() {
        let budget = Budget::new(10 * OVERHEAD);
        let meter = || Meter::new(budget.clone(), |size: &usize| *size);
        let (mut first, mut second) = (meter(), meter());
        for _ in 0..2 {
            first.list_started();
            first.listed(Some(&(4 * OVERHEAD)));
            first.list_finished();
            assert!(!first.is_exceeded());
        }
        second.changed(None, Some(&(4 * OVERHEAD)));
        assert!(!second.is_exceeded(), "exactly as much as allowed");
        second.changed(None, Some(&0));
        assert!(first.is_exceeded() && second.is_exceeded());
        second.changed(Some(&(4 * OVERHEAD)), Some(&0));
        assert!(!second.is_exceeded());
        drop(second);
        first.list_started();
        first.listed(Some(&(20 * OVERHEAD)));
        assert!(first.is_exceeded());
        first.list_started();
        assert!(!first.is_exceeded(), "the list was given up");
    }
}
