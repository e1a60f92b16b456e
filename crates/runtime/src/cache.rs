//! A shared, watched copy of all objects of one kind.

use std::{
    collections::HashMap,
    fmt::Debug,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::StreamExt;
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, Resource,
    core::{DeserializeGuard, error_boundary::InvalidObject},
    runtime::{
        reflector::{
            ObjectRef,
            store::{Store, Writer},
        },
        watcher,
    },
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use vitistack_clients::kubernetes::explain;

use crate::{health::Health, lane::Urgency, metrics::Undecodable, queue::backoff};

/// Longest pause between two attempts to list.
const PAUSE_LIMIT: Duration = Duration::from_secs(15);
/// The feed shows so often that it lives.
const TURN: Duration = Duration::from_secs(5);

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
    /// Resync for the first list, Change if somebody changed what is desired, Event for everything else.
    pub urgency: Urgency,
}

/// An object that does not fit its kind.
#[derive(Clone, Debug)]
pub struct Unfit {
    /// The object.
    pub reference: ObjectReference,
    /// Why it cannot be decoded.
    pub error: String,
    version: Option<String>,
}

type Listener<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// The reading half: cheap to clone, never blocks.
pub struct Cache<K: Kind>(Arc<Shared<K>>);

struct Shared<K: Kind> {
    store: Store<K>,
    listeners: Mutex<Vec<Listener<K>>>,
    unfit: Mutex<HashMap<ObjectRef<K>, Unfit>>,
    resource: K::DynamicType,
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
        }));
        (cache.clone(), Feed { cache, writer, is_listed: false, unfit_before: HashMap::new() })
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

    /// Waits until the first list is complete.
    pub async fn ready(&self) {
        if self.0.store.wait_until_ready().await.is_err() {
            // The feed is gone, which happens only when the process ends.
            std::future::pending::<()>().await;
        }
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

    fn tell(&self, change: &Change<K>) {
        for listener in lock(&self.0.listeners).iter() {
            listener(change);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The writing half of a cache.
pub(crate) struct Feed<K: Kind> {
    cache: Cache<K>,
    writer: Writer<K>,
    is_listed: bool,
    /// The unfit objects of the list before the one that is being read, so that each is logged once.
    unfit_before: HashMap<ObjectRef<K>, Unfit>,
}

impl<K: Kind> Feed<K> {
    /// Keeps the cache filled until told to end. An API server or a kind that is away is waited for, and told.
    ///
    /// After any failure everything is listed again: that costs one list, and is the only way to know that the
    /// connection works again, because a resumed watch says nothing until something changes.
    pub(crate) async fn run(
        mut self,
        client: Client,
        config: watcher::Config,
        undecodable: Undecodable,
        health: Health,
        end: CancellationToken,
    ) {
        let api: Api<DeserializeGuard<K>> = Api::all_with(client, &self.cache.0.resource);
        let kind = self.cache.kind();
        let name = format!("cache {}", K::plural(&self.cache.0.resource));
        let readiness = health.readiness(&name);
        let heart = health.heart(&name, Instant::now());
        let mut tick = tokio::time::interval(TURN);
        let mut failures = 0;
        readiness.fail("waiting for the first list");
        'feed: loop {
            let mut events = watcher(api.clone(), config.clone()).boxed();
            let error = loop {
                let event = tokio::select! {
                    () = end.cancelled() => break 'feed,
                    _ = tick.tick() => {
                        heart.beat(Instant::now());
                        continue;
                    }
                    event = events.next() => event,
                };
                match event {
                    Some(Ok(event)) => {
                        if matches!(event, watcher::Event::InitDone) {
                            failures = 0;
                            readiness.pass("watching");
                        }
                        self.take(event);
                        undecodable.set(&kind, lock(&self.cache.0.unfit).len());
                    }
                    Some(Err(error)) => break explain_watch(&error),
                    None => break "the watch ended".to_owned(),
                }
            };
            failures += 1;
            let pause = backoff(failures, rand::random()).min(PAUSE_LIMIT);
            tracing::warn!(kind, "failed to watch, trying again in {pause:?}: {error}");
            readiness.fail(format!("trying again: {error}"));
            tokio::select! {
                () = end.cancelled() => break 'feed,
                () = tokio::time::sleep(pause) => {}
            }
        }
        heart.finish();
    }

    /// Takes one event in and tells the listeners what it changed.
    pub(crate) fn take(&mut self, event: watcher::Event<DeserializeGuard<K>>) {
        match event {
            watcher::Event::Init => {
                self.unfit_before = std::mem::take(&mut *lock(&self.cache.0.unfit));
                self.writer.apply_watcher_event(&watcher::Event::Init);
            }
            watcher::Event::InitApply(guarded) => {
                if let Some(object) = self.decode(guarded) {
                    self.writer.apply_watcher_event(&watcher::Event::InitApply(object));
                }
            }
            watcher::Event::InitDone => self.finish_list(),
            watcher::Event::Apply(guarded) => {
                let reference = ObjectRef::from_obj_with(&guarded, self.cache.0.resource.clone());
                let before = self.cache.get(&erase(reference));
                match self.decode(guarded) {
                    Some(object) => self.apply(object, before.as_deref()),
                    // What is desired can no longer be read, so acting on what was desired before would be wrong.
                    None => {
                        if let Some(before) = before {
                            self.remove(before);
                        }
                    }
                }
            }
            watcher::Event::Delete(guarded) => {
                let reference = erase(ObjectRef::from_obj_with(&guarded, self.cache.0.resource.clone()));
                lock(&self.cache.0.unfit).remove(&reference);
                if let Some(before) = self.cache.get(&reference) {
                    self.remove(before);
                }
            }
        }
    }

    fn apply(&mut self, object: K, before: Option<&K>) {
        let urgency = urgency(before.map(Resource::meta), object.meta());
        let reference = ObjectRef::from_obj_with(&object, self.cache.0.resource.clone());
        self.writer.apply_watcher_event(&watcher::Event::Apply(object));
        if let Some(object) = self.cache.get(&reference) {
            self.cache.tell(&Change { object, urgency });
        }
    }

    fn remove(&mut self, before: Arc<K>) {
        self.writer.apply_watcher_event(&watcher::Event::Delete(K::clone(&before)));
        self.cache.tell(&Change { object: before, urgency: Urgency::Change });
    }

    /// Swaps the new list in and tells what differs from the old one: a watch that was cut may have missed anything.
    fn finish_list(&mut self) {
        let is_first = !std::mem::replace(&mut self.is_listed, true);
        self.unfit_before.clear();
        let resource = self.cache.0.resource.clone();
        let key = |object: &K| ObjectRef::from_obj_with(object, resource.clone());
        let mut before: HashMap<_, _> =
            self.cache.list().into_iter().map(|object| (key(&object), object)).collect();
        self.writer.apply_watcher_event(&watcher::Event::InitDone);
        for object in self.cache.list() {
            let old = before.remove(&key(&object));
            let old = old.as_ref().map(|old| old.meta());
            if old.is_some_and(|old| old.resource_version == object.meta().resource_version) {
                continue;
            }
            let urgency = if is_first { Urgency::Resync } else { urgency(old, object.meta()) };
            self.cache.tell(&Change { object, urgency });
        }
        for object in before.into_values() {
            self.cache.tell(&Change { object, urgency: Urgency::Change });
        }
    }

    /// The object without its managed fields, which nothing reads and which are often the larger part of it.
    fn decode(&self, guarded: DeserializeGuard<K>) -> Option<K> {
        let mut unfit = lock(&self.cache.0.unfit);
        let resource = &self.cache.0.resource;
        let reference = ObjectRef::from_obj_with(&guarded, resource.clone());
        match guarded {
            DeserializeGuard(Ok(mut object)) => {
                unfit.remove(&erase(reference));
                object.meta_mut().managed_fields = None;
                Some(object)
            }
            DeserializeGuard(Err(InvalidObject { error, metadata })) => {
                let version = metadata.resource_version.clone();
                let reference = erase(reference);
                let before = unfit.get(&reference).or_else(|| self.unfit_before.get(&reference));
                if before.is_none_or(|before| before.version != version) {
                    tracing::warn!(
                        kind = %K::kind(resource),
                        namespace = metadata.namespace,
                        name = metadata.name,
                        "skipping an object that does not fit its kind: {error}"
                    );
                }
                let about = ObjectReference {
                    api_version: Some(K::api_version(resource).into_owned()),
                    kind: Some(K::kind(resource).into_owned()),
                    namespace: metadata.namespace,
                    name: metadata.name,
                    uid: metadata.uid,
                    ..ObjectReference::default()
                };
                unfit.insert(reference, Unfit { reference: about, error, version });
                None
            }
        }
    }
}

/// The same reference without the guard in its type.
fn erase<K: Kind>(reference: ObjectRef<DeserializeGuard<K>>) -> ObjectRef<K> {
    let mut erased = ObjectRef::new_with(&reference.name, reference.dyntype);
    erased.namespace = reference.namespace;
    erased
}

/// Says in one sentence why a watch failed.
pub(crate) fn explain_watch(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => explain(error),
        watcher::Error::WatchError(status) => status.message.clone(),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

/// How urgent a change is, from the metadata before and after it.
///
/// A new generation, label or annotation, a deletion, a new object: somebody changed what is desired. All else is
/// status. Kinds without a generation (`Secret`, `ConfigMap`) are nothing but what is desired.
fn urgency(before: Option<&ObjectMeta>, after: &ObjectMeta) -> Urgency {
    let Some(before) = before else { return Urgency::Change };
    let is_same = after.generation.is_some()
        && before.generation == after.generation
        && before.uid == after.uid
        && before.labels == after.labels
        && before.annotations == after.annotations
        && before.deletion_timestamp == after.deletion_timestamp;
    if is_same { Urgency::Event } else { Urgency::Change }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
    use serde_json::{Value, json};

    use super::*;

    type Told = Arc<Mutex<Vec<(String, Urgency)>>>;

    fn guarded<K: Kind>(object: Value) -> DeserializeGuard<K> {
        serde_json::from_value(object).unwrap()
    }

    fn map(name: &str, version: &str) -> DeserializeGuard<ConfigMap> {
        guarded(json!({"metadata": {"name": name, "namespace": "a", "uid": name, "resourceVersion": version,
            "managedFields": [{"manager": "somebody"}]}}))
    }

    fn poisoned(name: &str) -> DeserializeGuard<ConfigMap> {
        guarded(json!({"metadata": {"name": name, "namespace": "a", "resourceVersion": "9"}, "data": 5}))
    }

    fn cache() -> (Cache<ConfigMap>, Feed<ConfigMap>, Told) {
        let (cache, feed) = Cache::new(());
        let told = Told::default();
        let heard = Arc::clone(&told);
        cache.listen(move |change: &Change<ConfigMap>| {
            lock(&heard).push((change.object.metadata.name.clone().unwrap(), change.urgency));
        });
        (cache, feed, told)
    }

    fn list(feed: &mut Feed<ConfigMap>, objects: Vec<DeserializeGuard<ConfigMap>>) {
        feed.take(watcher::Event::Init);
        for object in objects {
            feed.take(watcher::Event::InitApply(object));
        }
        feed.take(watcher::Event::InitDone);
    }

    fn heard(told: &Told) -> Vec<(String, Urgency)> {
        let mut heard = std::mem::take(&mut *lock(told));
        heard.sort();
        heard
    }

    fn names(cache: &Cache<ConfigMap>) -> Vec<String> {
        let mut names: Vec<_> =
            cache.list().iter().map(|object| object.metadata.name.clone().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_first_list_is_told_as_resync_and_stored_without_managed_fields() {
        let (cache, mut feed, told) = cache();
        list(&mut feed, vec![map("x", "1"), map("y", "2")]);
        assert_eq!(heard(&told), [("x".into(), Urgency::Resync), ("y".into(), Urgency::Resync)]);
        assert!(cache.list().iter().all(|object| object.metadata.managed_fields.is_none()));
        assert!(cache.get(&ObjectRef::new("x").within("a")).is_some());
    }

    #[test]
    fn a_second_list_tells_only_what_the_watch_missed() {
        let (cache, mut feed, told) = cache();
        list(&mut feed, vec![map("same", "1"), map("changed", "2"), map("gone", "3")]);
        heard(&told);
        list(&mut feed, vec![map("same", "1"), map("changed", "4"), map("new", "5")]);
        assert_eq!(
            heard(&told),
            [
                ("changed".into(), Urgency::Change),
                ("gone".into(), Urgency::Change),
                ("new".into(), Urgency::Change)
            ]
        );
        assert_eq!(names(&cache), ["changed", "new", "same"]);
    }

    #[test]
    fn an_unfit_object_is_remembered_and_the_others_go_on() {
        let (cache, mut feed, told) = cache();
        list(&mut feed, vec![map("x", "1"), poisoned("bad")]);
        assert_eq!(names(&cache), ["x"]);
        let unfit = cache.unfit();
        assert_eq!(unfit.len(), 1);
        assert_eq!(unfit[0].reference.name.as_deref(), Some("bad"));
        assert_eq!(unfit[0].reference.kind.as_deref(), Some("ConfigMap"));
        feed.take(watcher::Event::Apply(map("bad", "10")));
        assert!(cache.unfit().is_empty());
        assert_eq!(names(&cache), ["bad", "x"]);
        heard(&told);
    }

    #[test]
    fn an_object_that_becomes_unfit_is_no_longer_acted_on() {
        let (cache, mut feed, told) = cache();
        list(&mut feed, vec![map("x", "1")]);
        heard(&told);
        feed.take(watcher::Event::Apply(poisoned("x")));
        assert_eq!(names(&cache), Vec::<String>::new());
        assert_eq!(heard(&told), [("x".into(), Urgency::Change)]);
        feed.take(watcher::Event::Delete(poisoned("x")));
        assert!(cache.unfit().is_empty());
    }

    #[test]
    fn a_deleted_object_is_told_with_its_last_content() {
        let (cache, mut feed, told) = cache();
        list(&mut feed, vec![map("x", "1")]);
        heard(&told);
        feed.take(watcher::Event::Delete(map("x", "2")));
        assert_eq!(heard(&told), [("x".into(), Urgency::Change)]);
        assert!(cache.list().is_empty());
    }

    #[test]
    fn only_status_changes_are_mere_events() {
        let meta = |change: Value| {
            let mut object = json!({"metadata": {"uid": "u", "generation": 1, "resourceVersion": "1"}});
            json_patch_merge(&mut object["metadata"], change);
            guarded::<Deployment>(object).0.unwrap().metadata
        };
        let before = meta(json!({}));
        assert_eq!(urgency(Some(&before), &meta(json!({"resourceVersion": "2"}))), Urgency::Event);
        for change in [
            json!({"generation": 2}),
            json!({"annotations": {"example.io/paused": "true"}}),
            json!({"labels": {"a": "b"}}),
            json!({"deletionTimestamp": "2024-01-01T00:00:00Z"}),
            json!({"uid": "another"}),
        ] {
            assert_eq!(urgency(Some(&before), &meta(change.clone())), Urgency::Change, "{change}");
        }
        assert_eq!(urgency(None, &before), Urgency::Change);
    }

    fn json_patch_merge(target: &mut Value, change: Value) {
        if let (Some(target), Value::Object(change)) = (target.as_object_mut(), change) {
            target.extend(change);
        }
    }
}
