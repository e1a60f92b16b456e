//! A shared, watched copy of all objects of one kind.

use std::{
    collections::HashMap,
    fmt::Debug,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource,
    runtime::{
        reflector::{
            ObjectRef,
            store::{Store, Writer},
        },
        watcher,
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::{SetOnce, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    feed::{Feed, Reports, whole_objects},
    lane::Urgency,
};

/// What a kind has to be for a cache. Every typed kind and every dynamic object is.
pub trait Kind:
    Resource<DynamicType: Clone + Debug + Eq + Hash + Send + Sync + Unpin>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType: Clone + Debug + Eq + Hash + Send + Sync + Unpin>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// One change, as listeners hear of it.
#[derive(Clone, Debug)]
pub struct Change<K> {
    /// The object after the change, or as it was last seen if it is gone.
    pub object: Arc<K>,
    /// The object before the change, if it was there and stays.
    pub before: Option<Arc<K>>,
    /// Resync for the first list, Change if somebody changed what is desired, Event for everything else.
    pub urgency: Urgency,
    /// Whether the object is gone.
    pub is_gone: bool,
}

/// An object that does not fit its kind.
#[derive(Clone, Debug)]
pub struct Unfit {
    /// The object.
    pub reference: ObjectReference,
    /// Why it cannot be decoded.
    pub error: String,
    pub(crate) version: Option<String>,
}

/// How well a cache is filled.
#[derive(Clone, Debug)]
pub enum Feeding {
    /// The first list is under way.
    Listing,
    /// Everything is there, and changes come in.
    Watching,
    /// What is there may be old: it could not be listed or watched, and is tried again.
    Failing(Arc<watcher::Error>),
}

type Listener<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// The reading half: cheap to clone, never blocks.
pub struct Cache<K: Kind>(pub(crate) Arc<Shared<K>>);

pub(crate) struct Shared<K: Kind> {
    store: Store<K>,
    listeners: Mutex<Vec<Listener<K>>>,
    pub(crate) unfit: Mutex<HashMap<ObjectRef<K>, Unfit>>,
    pub(crate) resource: K::DynamicType,
    pub(crate) feeding: watch::Sender<Feeding>,
    /// Set by the first complete list. The store's own mark wakes only the last of those who wait for it.
    pub(crate) listed: SetOnce<()>,
}

impl<K: Kind> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Kind> Cache<K> {
    /// An empty cache and the half that fills it.
    #[must_use]
    pub(crate) fn new(resource: K::DynamicType) -> (Self, Feed<K>) {
        let writer = Writer::new(resource.clone());
        let cache = Self(Arc::new(Shared {
            store: writer.as_reader(),
            listeners: Mutex::default(),
            unfit: Mutex::default(),
            resource,
            feeding: watch::Sender::new(Feeding::Listing),
            listed: SetOnce::new(),
        }));
        (cache.clone(), Feed::new(cache, writer))
    }

    /// A cache that nobody fills, for whoever is given caches and does not need this one.
    #[must_use]
    pub fn unfilled(resource: K::DynamicType) -> Self {
        Self::new(resource).0
    }

    /// The object, as it was last seen.
    #[must_use]
    pub fn get(&self, reference: &ObjectRef<K>) -> Option<Arc<K>> {
        self.0.store.get(reference)
    }

    /// All objects, in no order.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<K>> {
        self.0.store.state()
    }

    /// All objects, by namespace and name, for whoever does something with one after another: it is the same every time.
    pub(crate) fn sorted(&self) -> Vec<Arc<K>> {
        let mut objects = self.list();
        objects.sort_by_cached_key(|object| (object.meta().namespace.clone(), object.meta().name.clone()));
        objects
    }

    /// Waits until the first list is complete.
    pub async fn ready(&self) {
        self.0.listed.wait().await;
    }

    /// Calls `listener` with every change from now on. It must not block.
    pub fn listen(&self, listener: impl Fn(&Change<K>) + Send + Sync + 'static) {
        lock(&self.0.listeners).push(Box::new(listener));
    }

    /// The objects that do not fit the kind, which are skipped.
    #[must_use]
    pub fn unfit(&self) -> Vec<Unfit> {
        lock(&self.0.unfit).values().cloned().collect()
    }

    /// The kind's name.
    #[must_use]
    pub fn kind(&self) -> String {
        K::kind(&self.0.resource).into_owned()
    }

    /// What tells this kind's API apart, for dynamic kinds.
    #[must_use]
    pub fn resource(&self) -> &K::DynamicType {
        &self.0.resource
    }

    /// How well it is filled, now and from now on.
    #[must_use]
    pub fn feeding(&self) -> watch::Receiver<Feeding> {
        self.0.feeding.subscribe()
    }

    pub(crate) fn tell(&self, change: &Change<K>) {
        for listener in lock(&self.0.listeners).iter() {
            listener(change);
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A cache of a foreign cluster, which may come and go while the process runs and is no part of its own health: whoever
/// reads from it asks [`Cache::feeding`] first. It is filled until this is dropped.
pub struct ForeignCache<K: Kind> {
    cache: Cache<K>,
    _end: DropGuard,
}

impl<K: Kind> ForeignCache<K> {
    /// Begins to fill a cache with the objects that `selection` selects in the cluster of `client`, and tells every
    /// change to `listener`. What `prune` takes out of an object is not kept: a foreign cluster may hold any number.
    pub fn start(
        client: Client,
        resource: K::DynamicType,
        selection: watcher::Config,
        prune: impl Fn(&mut K) + Send + Sync + 'static,
        listener: impl Fn(&Change<K>) + Send + Sync + 'static,
    ) -> Self {
        let source = whole_objects(client, &resource, selection);
        let (cache, feed) = Cache::new(resource);
        let feed = feed.pruning(prune);
        cache.listen(listener);
        let end = CancellationToken::new();
        tokio::spawn(feed.run(source, Reports::default(), end.clone()));
        Self { cache, _end: end.drop_guard() }
    }

    /// The reading half.
    #[must_use]
    pub fn cache(&self) -> &Cache<K> {
        &self.cache
    }
}
