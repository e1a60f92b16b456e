//! A shared, watched copy of all objects of one kind, in which this process reads its own writes.
//!
//! A watch lags behind. A controller that writes an object reports the server's answer with [`Cache::wrote`] or
//! [`Cache::deleted`]; from then on every read returns it, until the watch has caught up or [`WRITE_EXPIRY`] has passed.

mod backoff;
mod budget;
mod feed;
mod foreign;
mod merge;
mod overlay;
mod urgency;

use std::{
    collections::HashMap,
    fmt::Debug,
    hash::Hash,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Resource,
    runtime::{
        reflector::{
            ObjectRef,
            store::{Store, Writer},
        },
        watcher,
    },
};
use serde::de::DeserializeOwned;
use tokio::{
    sync::{SetOnce, watch},
    time::Instant,
};

use self::overlay::{Expired, Overlay};
pub use self::{
    backoff::{backoff, jitter},
    budget::Budget,
    feed::{Feed, FeedReporter, Source, explain_watch, metadata_only, whole_objects},
    foreign::ForeignCache,
    overlay::WRITE_EXPIRY,
    urgency::Urgency,
};

/// What a cache requires of a kind. Every typed kind and every dynamic object has it.
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

/// A change that is reported to listeners.
#[derive(Clone, Debug)]
pub struct Change<K> {
    /// The object after the change, or as last seen if it is deleted.
    pub object: Arc<K>,
    /// The object before the change; none if it is new or deleted.
    pub before: Option<Arc<K>>,
    /// Resync for the first list, Change if the desired state changed, Event for everything else.
    pub urgency: Urgency,
    /// Whether the object is deleted.
    pub is_gone: bool,
}

/// An object that cannot be decoded as its kind.
#[derive(Clone, Debug)]
pub struct DecodeFailure {
    /// The object.
    pub reference: ObjectReference,
    /// Why it cannot be decoded.
    pub error: String,
    version: Option<String>,
}

/// How current a cache is.
#[derive(Clone, Debug)]
pub enum FeedState {
    /// The first list is under way.
    Listing,
    /// The list is complete and changes arrive.
    Watching,
    /// The content may be stale: listing or watching failed and is retried.
    Failing(Arc<watcher::Error>),
}

type Listener<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// Removes from an object what is not to be stored.
type Prune<K> = Box<dyn Fn(&mut K) + Send + Sync>;

/// The reading half of a cache. Cheap to clone, never blocks on the network.
pub struct Cache<K: Kind>(Arc<Shared<K>>);

struct Shared<K: Kind> {
    store: Store<K>,
    overlay: Mutex<Overlay<K>>,
    /// Whether the overlay has entries: reads take its lock only then.
    has_overlay: AtomicBool,
    listeners: Mutex<Vec<Listener<K>>>,
    decode_failures: Mutex<HashMap<ObjectRef<K>, DecodeFailure>>,
    resource: K::DynamicType,
    prune: Prune<K>,
    state: watch::Sender<FeedState>,
    /// Set by the first complete list. [`Store::wait_until_ready`] is not used because of several tasks that wait for it
    /// only the last one is woken. Until it wakes all of them: <https://github.com/kube-rs/kube/issues/1226>.
    listed: SetOnce<()>,
}

impl<K: Kind> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Kind> Cache<K> {
    /// Returns an empty cache and the half that fills it.
    #[must_use]
    pub fn new(resource: K::DynamicType) -> (Self, Feed<K>) {
        Self::pruned(resource, |_| {})
    }

    /// Returns an empty cache that stores objects without what `prune` removes, and the half that fills it.
    #[must_use]
    pub fn pruned(
        resource: K::DynamicType,
        prune: impl Fn(&mut K) + Send + Sync + 'static,
    ) -> (Self, Feed<K>) {
        let writer = Writer::new(resource.clone());
        let cache = Self(Arc::new(Shared {
            store: writer.as_reader(),
            overlay: Mutex::default(),
            has_overlay: AtomicBool::new(false),
            listeners: Mutex::default(),
            decode_failures: Mutex::default(),
            resource,
            prune: Box::new(prune),
            state: watch::Sender::new(FeedState::Listing),
            listed: SetOnce::new(),
        }));
        (cache.clone(), Feed::new(cache, writer))
    }

    /// Returns a cache that stays empty, for code that takes a cache it does not need. It counts as complete, so that
    /// a controller that watches it does not wait for it.
    #[must_use]
    pub fn unfilled(resource: K::DynamicType) -> Self {
        let cache = Self::new(resource).0;
        let _ = cache.0.listed.set(());
        cache
    }

    /// Returns the object as last seen or written.
    #[must_use]
    pub fn get(&self, reference: &ObjectRef<K>) -> Option<Arc<K>> {
        if self.has_overlay() {
            let overlay = lock(&self.0.overlay);
            return overlay.resolve(reference, self.watched(reference));
        }
        self.watched(reference)
    }

    /// Returns all objects as last seen or written, in no particular order.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<K>> {
        let mut objects = self.0.store.state();
        if self.has_overlay() {
            let overlay = lock(&self.0.overlay);
            let ahead: HashMap<_, _> =
                overlay.keys().map(|key| (key, overlay.resolve(key, self.watched(key)))).collect();
            objects.retain(|object| !ahead.contains_key(&self.reference(object)));
            objects.extend(ahead.into_values().flatten());
        }
        objects
    }

    /// Returns all objects by namespace and name.
    #[must_use]
    pub fn sorted(&self) -> Vec<Arc<K>> {
        let mut objects = self.list();
        objects.sort_by_cached_key(|object| (object.meta().namespace.clone(), object.meta().name.clone()));
        objects
    }

    /// Waits until the first list is complete.
    pub async fn ready(&self) {
        self.0.listed.wait().await;
    }

    /// Calls `listener` with every change from now on: what the watch reports, and writes that expire. The listener must
    /// not block.
    pub fn listen(&self, listener: impl Fn(&Change<K>) + Send + Sync + 'static) {
        lock(&self.0.listeners).push(Box::new(listener));
    }

    /// Returns the objects that cannot be decoded, which are skipped.
    #[must_use]
    pub fn decode_failures(&self) -> Vec<DecodeFailure> {
        lock(&self.0.decode_failures).values().cloned().collect()
    }

    /// The name of the kind.
    #[must_use]
    pub fn kind(&self) -> String {
        K::kind(&self.0.resource).into_owned()
    }

    /// What identifies the API of a dynamic kind.
    #[must_use]
    pub fn resource(&self) -> &K::DynamicType {
        &self.0.resource
    }

    /// How current the cache is, now and from now on.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<FeedState> {
        self.0.state.subscribe()
    }

    /// Records the server's answer to a write or a live read: reads return it until the watch shows it. An answer that is
    /// older than what is known, or of an object whose deletion was reported, changes nothing. An object that is being
    /// deleted and has lost its last finalizer is gone.
    pub fn wrote(&self, object: K) {
        let metadata = object.meta();
        let has_finalizers = metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
        let has_grace_period = metadata.deletion_grace_period_seconds.is_some_and(|seconds| seconds > 0);
        if metadata.deletion_timestamp.is_some() && !has_finalizers && !has_grace_period {
            return self.deleted(&object);
        }

        let (key, object) = self.prepare(object);
        self.change_overlay(|overlay| {
            overlay.wrote(key.clone(), object, self.watched(&key).as_deref(), Instant::now());
        });
    }

    /// Records that exactly this object, by its UID, is deleted: reads no longer return it.
    pub fn deleted(&self, object: &K) {
        self.change_overlay(|overlay| overlay.deleted(self.reference(object), object, Instant::now()));
    }

    /// Returns the objects, as written, that differ from what the watch has shown.
    #[must_use]
    pub fn ahead(&self) -> Vec<Arc<K>> {
        self.overlaid(|_, _| true)
    }

    /// Returns the objects, as written, that the watch does not show at all.
    #[must_use]
    pub fn unshown(&self) -> Vec<Arc<K>> {
        self.overlaid(|watched, object| watched.is_none_or(|watched| watched.meta().uid != object.meta().uid))
    }

    /// Ends the writes that the watch has not shown in time and reports them to the listeners. The feed calls this every
    /// few seconds.
    pub fn expire(&self, now: Instant) {
        let expired = {
            let mut overlay = lock(&self.0.overlay);
            let expired = overlay.expire(now);
            self.0.has_overlay.store(!overlay.is_empty(), Ordering::Release);
            expired
        };
        for Expired { key, before } in expired {
            let urgency = Urgency::Event;
            match (self.watched(&key), before) {
                (Some(object), before) => self.report(&Change { object, before, urgency, is_gone: false }),
                (None, Some(object)) => self.report(&Change { object, before: None, urgency, is_gone: true }),
                (None, None) => {}
            }
        }
    }

    /// The object as the watch has shown it.
    fn watched(&self, reference: &ObjectRef<K>) -> Option<Arc<K>> {
        self.0.store.get(reference)
    }

    fn reference(&self, object: &K) -> ObjectRef<K> {
        ObjectRef::from_obj_with(object, self.0.resource.clone())
    }

    /// The object as the cache stores it: without managed fields, which nothing reads and which are often its larger part.
    fn shrink(&self, object: &mut K) {
        object.meta_mut().managed_fields = None;
        (self.0.prune)(object);
    }

    fn prepare(&self, mut object: K) -> (ObjectRef<K>, Arc<K>) {
        self.shrink(&mut object);
        (self.reference(&object), Arc::new(object))
    }

    fn has_overlay(&self) -> bool {
        self.0.has_overlay.load(Ordering::Acquire)
    }

    fn change_overlay(&self, change: impl FnOnce(&mut Overlay<K>)) {
        let mut overlay = lock(&self.0.overlay);
        change(&mut overlay);
        self.0.has_overlay.store(!overlay.is_empty(), Ordering::Release);
    }

    fn overlaid(&self, is_selected: impl Fn(Option<&K>, &K) -> bool) -> Vec<Arc<K>> {
        if !self.has_overlay() {
            return Vec::new();
        }
        let overlay = lock(&self.0.overlay);
        let objects = overlay.keys().filter_map(|key| {
            let watched = self.watched(key);
            let object = overlay.resolve(key, watched.clone())?;
            let is_ahead = watched.as_ref().is_none_or(|watched| !Arc::ptr_eq(watched, &object));
            (is_ahead && is_selected(watched.as_deref(), &object)).then_some(object)
        });
        objects.collect()
    }

    /// Ends the writes that a change of the watch confirms, and reports the change to the listeners.
    fn observed(&self, change: &Change<K>) {
        let key = self.reference(&change.object);
        self.change_overlay(|overlay| overlay.observed(&key, &change.object, change.is_gone, Instant::now()));
        self.report(change);
    }

    fn report(&self, change: &Change<K>) {
        for listener in lock(&self.0.listeners).iter() {
            listener(change);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
