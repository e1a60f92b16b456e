//! Reads from caches: observing a machine sends no request to the cluster.

mod owners;
mod stored;
mod subscribers;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures::{
    FutureExt, future,
    stream::{self, BoxStream, StreamExt},
};
use kube::{
    Api, Client,
    core::{DeserializeGuard, DynamicObject},
    runtime::{reflector::ObjectRef, watcher},
};
use tokio::sync::watch;
use vitistack_clients::kubernetes::cache::{Budget, Cache, Change, FeedState, ForeignCache};
use vitistack_plan::{machine::Identity, refusals};
use vitistack_types::{ObjectName, WatchedNamespaces, conditions::reason, labels};

use self::{
    owners::Owners,
    stored::StoredObject,
    subscribers::{Subscriber, Subscribers},
};
use super::{
    kind::{Kind, Object, belongs_to, identity_of},
    read::{ReadError, Reader},
};
use crate::{BackendError, ErrorKind, ProviderChange};

/// How long after opening a cluster its first answer is waited for, so that a restart of this process does not look like
/// an outage of every machine. Later reads fail at once while the cluster does not answer.
const FIRST_ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The number of objects in a page of a list: with it, pages of ordinary objects are far smaller than the limit.
const PAGE_SIZE: u32 = 100;

/// Caches of everything that the backend reads in one cluster. They are filled until this is dropped.
///
/// Of Secrets only those with an identity are stored. A foreign Secret with a name that a machine needs is noticed when
/// the machine's own is written, which reads the name from the cluster first.
pub struct CachedReader {
    kinds: [KindCache; Kind::ALL.len()],
    indexes: Arc<Indexes>,
    watched: WatchedNamespaces,
    /// Until when the first answer is waited for.
    first_answer_by: tokio::time::Instant,
}

/// The cache of one kind.
struct KindCache {
    kind: Kind,
    cache: ForeignCache<StoredObject>,
    state: watch::Receiver<FeedState>,
}

/// What is known beside the content of the caches, by kind.
struct Indexes {
    kinds: [(Kind, Mutex<Index>); Kind::ALL.len()],
    subscribers: Subscribers,
}

/// What is known of the objects of one kind.
#[derive(Default)]
struct Index {
    owners: Owners,
    /// Names at which a machine found a foreign object, or missed an object that it needs: all machines are observed
    /// again when such a name changes.
    awaited: HashSet<ObjectName>,
}

/// Whether the cache of a kind can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    Listing,
    Ready,
    NotServed,
    Failed(ErrorKind),
}

impl CachedReader {
    /// Starts to fill the caches from the watched namespaces in the cluster of `client`, within a budget of memory. Must be
    /// called inside a tokio runtime.
    #[must_use]
    pub fn start(client: &Client, watched: &WatchedNamespaces, budget: &Budget) -> Self {
        let indexes = Arc::new(Indexes {
            kinds: Kind::ALL.map(|kind| (kind, Mutex::default())),
            subscribers: Subscribers::default(),
        });
        let kinds =
            Kind::ALL.map(|kind| KindCache::start(apis(client, kind, watched), kind, budget, &indexes));
        let watched = watched.clone();
        Self { kinds, indexes, watched, first_answer_by: tokio::time::Instant::now() + FIRST_ANSWER_LIMIT }
    }

    /// Returns the changes in the cluster from now on.
    #[must_use]
    pub fn changes(self: &Arc<Self>) -> BoxStream<'static, ProviderChange> {
        let follower = Follower {
            readiness: self.kinds.iter().map(KindCache::readiness).collect(),
            states: self.kinds.iter().map(|cached| cached.state.clone()).collect(),
            subscriber: self.indexes.subscribers.subscribe(),
            reader: Arc::clone(self),
        };
        stream::unfold(follower, |mut follower| async move { Some((follower.next().await, follower)) })
            .boxed()
    }

    fn cached(&self, kind: Kind) -> Option<&KindCache> {
        self.kinds.iter().find(|cached| cached.kind == kind)
    }

    /// Returns the cache of a kind once it can be read, if it contains a namespace. What is in another one is unknown, and
    /// must not be taken for absent.
    async fn ready_in(&self, kind: Kind, namespace: &str) -> Result<&KindCache, ReadError> {
        if self.watched.contains(namespace) || kind.is_read_in_whole_cluster() {
            return self.ready(kind).await;
        }
        let refusal = refusals::objects_not_watched(kind.name(), namespace);
        Err(ReadError::Failed(BackendError::new(ErrorKind::Failed, refusal.reason, refusal.message)))
    }

    /// Returns the cache of a kind once it can be read.
    async fn ready(&self, kind: Kind) -> Result<&KindCache, ReadError> {
        let Some(cached) = self.cached(kind) else {
            return Err(ReadError::NotServed);
        };
        let mut state = cached.state.clone();
        let is_listing = matches!(*state.borrow(), FeedState::Listing);
        if is_listing {
            let listed = state.wait_for(|state| !matches!(state, FeedState::Listing)).map(|_| ());
            let _ = tokio::time::timeout_at(self.first_answer_by, listed).await;
        }
        let error = read_error(kind, &state.borrow());
        error.map_or(Ok(cached), Err)
    }
}

impl KindCache {
    fn start(
        apis: Vec<Api<DeserializeGuard<StoredObject>>>,
        kind: Kind,
        budget: &Budget,
        indexes: &Arc<Indexes>,
    ) -> Self {
        let selection = watcher::Config::default().page_size(PAGE_SIZE);
        let selection = match kind {
            Kind::Secret => selection.labels(labels::IDENTITY),
            _ => selection,
        };
        let listening = Arc::clone(indexes);
        let cache = ForeignCache::start(
            apis,
            kind,
            selection,
            move |object: &mut StoredObject| object.shrink(kind),
            StoredObject::size,
            budget.clone(),
            move |cache, change| listening.changed(kind, cache, change),
        );
        let state = cache.cache().state();
        Self { kind, cache, state }
    }

    fn stored(&self, name: &ObjectName) -> Option<Arc<StoredObject>> {
        self.cache.cache().get(&reference(self.kind, name))
    }

    fn get(&self, name: &ObjectName) -> Option<Object> {
        self.stored(name)?.object()
    }

    fn readiness(&self) -> Readiness {
        readiness(self.kind, &self.state.borrow())
    }
}

/// Returns the API of each namespace in which objects of a kind are read, or of the whole cluster.
fn apis(
    client: &Client,
    kind: Kind,
    watched: &WatchedNamespaces,
) -> Vec<Api<DeserializeGuard<StoredObject>>> {
    match watched.listed().filter(|_| !kind.is_read_in_whole_cluster()) {
        None => vec![Api::all_with(client.clone(), &kind)],
        Some(names) => names.iter().map(|name| Api::namespaced_with(client.clone(), name, &kind)).collect(),
    }
}

fn reference(kind: Kind, name: &ObjectName) -> ObjectRef<StoredObject> {
    let mut reference = ObjectRef::new_with(&name.name, kind);
    reference.namespace = Some(name.namespace.clone()).filter(|namespace| !namespace.is_empty());
    reference
}

impl Indexes {
    /// Calls `work` with the index of a kind, while no change of the kind is processed.
    fn with<R: Default>(&self, kind: Kind, work: impl FnOnce(&mut Index) -> R) -> R {
        let index = self.kinds.iter().find(|(indexed, _)| *indexed == kind);
        index.map(|(_, index)| work(&mut lock(index))).unwrap_or_default()
    }

    /// Updates the index of a kind after a change in its cache, and reports the machines that the change concerns.
    fn changed(&self, kind: Kind, cache: &Cache<StoredObject>, change: &Change<StoredObject>) {
        let name = ObjectName::of(change.object.as_ref());
        let identity = change.object.identity();
        let (concerned, is_awaited) = self.with(kind, |index| {
            // Reads also show what was written since, such as the successor of a deleted object.
            let current = cache.get(&reference(kind, &name)).and_then(|object| object.identity());
            let before = index.owners.set(&name, current.as_ref());
            let concerned: HashSet<Identity> = before.into_iter().chain(identity).collect();
            (concerned, index.awaited.remove(&name))
        });

        let is_shared =
            matches!(kind, Kind::KubeVirt | Kind::StorageClass | Kind::NetworkAttachmentDefinition);
        if is_shared || (is_awaited && concerned.is_empty()) {
            return self.subscribers.send(&ProviderChange::All);
        }
        // CDI gives a claim the name of its DataVolume, and not always its labels.
        let filled = || self.with(Kind::DataVolume, |index| index.owners.owner(&name));
        let is_unlabeled = kind == Kind::PersistentVolumeClaim && concerned.is_empty();
        for identity in concerned.into_iter().chain(is_unlabeled.then(filled).flatten()) {
            self.subscribers.send(&ProviderChange::Machine(identity));
        }
    }
}

/// Returns why a cache cannot be read now.
fn read_error(kind: Kind, state: &FeedState) -> Option<ReadError> {
    let failed = |error_kind, message: &str| {
        let message = format!("failed to read {}: {message}", kind.name());
        ReadError::Failed(BackendError::new(error_kind, reason::KUBEVIRT_API_ERROR, message))
    };
    let watch_error = match state {
        FeedState::Watching => return None,
        FeedState::Listing => {
            return Some(failed(ErrorKind::Unreachable, "the provider's cluster has not answered yet"));
        }
        FeedState::Failing(error) => error.as_ref(),
    };
    let (error, was_complete) = match watch_error {
        watcher::Error::InitialListFailed(error) => (ReadError::new(kind, error), false),
        watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => {
            (ReadError::new(kind, error), true)
        }
        watcher::Error::WatchError(status) => (ReadError::new(kind, &kube::Error::Api(status.clone())), true),
        watcher::Error::NoResourceVersion => {
            (failed(ErrorKind::Failed, "the response of the cluster has no resourceVersion"), false)
        }
    };

    // An interrupted watch is followed by a list at once. Until that fails too, the cache is only stale, as it is with a
    // slow watch.
    let is_definite = match &error {
        ReadError::NotServed => true,
        ReadError::Failed(error) => matches!(error.kind, ErrorKind::Refused | ErrorKind::Unauthenticated),
    };
    (!was_complete || (is_definite && !is_expired(watch_error))).then_some(error)
}

/// Whether a watch was only too far behind.
fn is_expired(error: &watcher::Error) -> bool {
    let is_gone = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 410);
    match error {
        watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => is_gone(error),
        watcher::Error::WatchError(status) => status.code == 410,
        _ => false,
    }
}

fn readiness(kind: Kind, state: &FeedState) -> Readiness {
    match (state, read_error(kind, state)) {
        (_, None) => Readiness::Ready,
        (FeedState::Listing, _) => Readiness::Listing,
        (_, Some(ReadError::NotServed)) => Readiness::NotServed,
        (_, Some(ReadError::Failed(error))) => Readiness::Failed(error.kind),
    }
}

#[async_trait]
impl Reader for CachedReader {
    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Object>, ReadError> {
        let cached = self.ready_in(kind, namespace).await?;
        let name = ObjectName::new(namespace, name);
        Ok(self.indexes.with(kind, |index| {
            let found = cached.get(&name);
            let is_awaited = match (&found, kind) {
                (_, Kind::Secret) => false,
                (Some(found), _) => identity_of(found).is_none(),
                // The source of a disk.
                (None, kind) => kind == Kind::PersistentVolumeClaim,
            };
            if is_awaited {
                index.awaited.insert(name);
            }
            found
        }))
    }

    async fn owned(
        &self,
        kind: Kind,
        namespace: &str,
        identity: &Identity,
    ) -> Result<Vec<Object>, ReadError> {
        let cached = self.ready_in(kind, namespace).await?;
        Ok(self.indexes.with(kind, |index| {
            let mut owned = Vec::new();
            for name in index.owners.objects(identity) {
                match cached.get(&name) {
                    Some(found) if belongs_to(&found, identity) => owned.push(found),
                    // A write that was never confirmed.
                    _ => drop(index.owners.set(&name, None)),
                }
            }
            owned.retain(|found| found.metadata.namespace.as_deref() == Some(namespace));
            owned
        }))
    }

    async fn all(&self, kind: Kind) -> Result<Vec<Object>, ReadError> {
        let cached = self.ready(kind).await?;
        Ok(cached.cache.cache().list().iter().filter_map(|stored| stored.object()).collect())
    }

    fn may_lag(&self) -> bool {
        true
    }

    fn is_namespaced(&self) -> bool {
        self.watched.listed().is_some()
    }

    fn wrote(&self, kind: Kind, object: DynamicObject) {
        let Some(cached) = self.cached(kind) else { return };
        let name = ObjectName::of(&object);
        self.indexes.with(kind, |index| {
            cached.cache.cache().wrote(StoredObject::from(object));
            let current = cached.stored(&name).and_then(|stored| stored.identity());
            index.owners.set(&name, current.as_ref());
        });
    }

    fn deleted(&self, kind: Kind, object: &DynamicObject) {
        if let Some(cached) = self.cached(kind) {
            cached.cache.cache().deleted(&StoredObject::from(object.clone()));
        }
    }
}

/// Follows the changes for one subscriber.
struct Follower {
    reader: Arc<CachedReader>,
    subscriber: Arc<Subscriber>,
    states: Vec<watch::Receiver<FeedState>>,
    readiness: Vec<Readiness>,
}

impl Follower {
    async fn next(&mut self) -> ProviderChange {
        loop {
            self.check_readiness();
            if let Some(change) = self.subscriber.take() {
                return change;
            }
            let changed = future::select_all(self.states.iter_mut().map(|state| state.changed().boxed()));
            tokio::select! {
                _ = changed => {}
                () = self.subscriber.woken() => {}
            }
        }
    }

    /// Adds a change of all machines if a cache became readable or unreadable.
    fn check_readiness(&mut self) {
        let kinds = self.reader.kinds.iter().map(|cached| cached.kind);
        let now: Vec<Readiness> = kinds
            .zip(&mut self.states)
            .map(|(kind, state)| readiness(kind, &state.borrow_and_update()))
            .collect();
        if now == self.readiness {
            return;
        }
        let mut changes = self.readiness.iter().zip(&now);
        let has_recovered = changes.any(|(before, after)| before != after && *after == Readiness::Ready);
        self.readiness = now;
        let change = if has_recovered { ProviderChange::Recovered } else { ProviderChange::All };
        self.subscriber.send(&change);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
