//! What fills a cache.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, Resource,
    core::{DeserializeGuard, PartialObjectMeta, error_boundary::InvalidObject},
    runtime::{
        reflector::{ObjectRef, store::Writer},
        watcher,
    },
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use vitistack_clients::kubernetes::explain;

use crate::{
    backoff::{backoff, jitter},
    cache::{Cache, Change, Feeding, Kind, Unfit, lock},
    health::Health,
    lane::Urgency,
    metrics::Undecodable,
};

/// Longest pause between two attempts to list.
const PAUSE_LIMIT: Duration = Duration::from_secs(15);
/// Longest pause before a foreign cluster is asked again for a kind that it does not serve: somebody has to install that, so
/// it is looked for now and then, not all the time.
const ABSENT_PAUSE_LIMIT: Duration = Duration::from_mins(3);
/// The feed shows so often that it lives.
const TURN: Duration = Duration::from_secs(5);

/// Lists and watches from the beginning each time it is called.
pub(crate) type Source<K> = Box<
    dyn Fn() -> BoxStream<'static, Result<watcher::Event<DeserializeGuard<K>>, watcher::Error>> + Send + Sync,
>;

/// The objects that `selection` selects.
pub(crate) fn whole_objects<K: Kind>(
    client: Client,
    resource: &K::DynamicType,
    selection: watcher::Config,
) -> Source<K> {
    let api: Api<DeserializeGuard<K>> = Api::all_with(client, resource);
    Box::new(move || watcher(api.clone(), selection.clone()).boxed())
}

/// The metadata of the objects that `selection` selects, and nothing else of them.
pub(crate) fn metadata_only<K: Kind>(
    client: Client,
    resource: &K::DynamicType,
    selection: watcher::Config,
) -> Source<PartialObjectMeta<K>>
where
    PartialObjectMeta<K>: Kind + Resource<DynamicType = K::DynamicType>,
{
    // Without the guard, behind which the client would ask for whole objects.
    let api: Api<PartialObjectMeta<K>> = Api::all_with(client, resource);
    Box::new(move || watcher(api.clone(), selection.clone()).map(|event| event.map(guarded)).boxed())
}

/// Metadata always fits.
fn guarded<K>(event: watcher::Event<K>) -> watcher::Event<DeserializeGuard<K>> {
    use watcher::Event;
    let fits = |object| DeserializeGuard(Ok(object));
    match event {
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
        Event::InitApply(object) => Event::InitApply(fits(object)),
        Event::Apply(object) => Event::Apply(fits(object)),
        Event::Delete(object) => Event::Delete(fits(object)),
    }
}

/// Where a feed tells how it is doing, besides its cache.
#[derive(Clone, Default)]
pub(crate) struct Reports {
    pub(crate) health: Option<Health>,
    pub(crate) undecodable: Option<Undecodable>,
}

/// Takes out of an object what is not to be kept.
type Prune<K> = Box<dyn Fn(&mut K) + Send + Sync>;

/// The writing half of a cache.
pub(crate) struct Feed<K: Kind> {
    cache: Cache<K>,
    writer: Writer<K>,
    prune: Prune<K>,
    /// The unfit objects of the list before the one that is being read, so that each is logged once.
    unfit_before: HashMap<ObjectRef<K>, Unfit>,
}

impl<K: Kind> Feed<K> {
    /// A feed that nothing was read into yet.
    pub(crate) fn new(cache: Cache<K>, writer: Writer<K>) -> Self {
        Self { cache, writer, prune: Box::new(|_| {}), unfit_before: HashMap::new() }
    }

    /// Keeps less of every object.
    pub(crate) fn pruning(self, prune: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        Self { prune: Box::new(prune), ..self }
    }

    /// Keeps the cache filled until told to end. An API server or a kind that is away is waited for, and told.
    ///
    /// After any failure everything is listed again: that costs one list, and is the only way to know that the
    /// connection works again, because a resumed watch says nothing until something changes.
    pub(crate) async fn run(mut self, source: Source<K>, reports: Reports, end: CancellationToken) {
        let kind = self.cache.kind();
        let name = format!("cache {}", K::plural(&self.cache.0.resource));
        let readiness = reports.health.as_ref().map(|health| health.readiness(&name));
        let heart = reports.health.as_ref().map(|health| health.heart(&name, Instant::now()));
        let started = Instant::now();
        let mut tick = tokio::time::interval(TURN);
        let (mut failures, mut listed) = (0, None);
        if let Some(readiness) = &readiness {
            readiness.fail("waiting for the first list");
        }
        'feed: loop {
            let mut events = source();
            let error = loop {
                let event = tokio::select! {
                    biased;
                    () = end.cancelled() => break 'feed,
                    _ = tick.tick() => {
                        if let Some(heart) = &heart {
                            heart.beat(Instant::now());
                        }
                        continue;
                    }
                    event = events.next() => event,
                };
                match event {
                    Some(Ok(event)) => {
                        let is_listed = matches!(event, watcher::Event::InitDone);
                        self.take(event);
                        if is_listed {
                            listed = Some(Instant::now());
                            self.cache.0.feeding.send_replace(Feeding::Watching);
                            if let Some(readiness) = &readiness {
                                readiness.pass("watching");
                            }
                        }
                        if let Some(undecodable) = &reports.undecodable {
                            undecodable.set(&kind, lock(&self.cache.0.unfit).len());
                        }
                    }
                    Some(Err(error)) => break error,
                    None => break watcher::Error::NoResourceVersion,
                }
            };
            // A list that is followed by a watch that fails at once is no success.
            let has_lived = listed.take().is_some_and(|listed| listed.elapsed() >= PAUSE_LIMIT);
            failures = if has_lived { 1 } else { failures + 1 };
            let limit =
                if readiness.is_none() && is_absent(&error) { ABSENT_PAUSE_LIMIT } else { PAUSE_LIMIT };
            let pause = backoff(failures, jitter(&name, started.elapsed())).min(limit);
            let words = explain_watch(&error);
            if let Some(readiness) = &readiness {
                tracing::warn!(kind, "failed to watch, trying again in {pause:?}: {words}");
                readiness.fail(format!("trying again: {words}"));
            } else {
                tracing::debug!(
                    kind,
                    "failed to watch a foreign cluster, trying again in {pause:?}: {words}"
                );
            }
            self.cache.0.feeding.send_replace(Feeding::Failing(Arc::new(error)));
            tokio::select! {
                () = end.cancelled() => break 'feed,
                () = tokio::time::sleep(pause) => {}
            }
        }
        if let Some(heart) = heart {
            heart.finish();
        }
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
                    Some(object) => self.apply(object, before),
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

    fn apply(&mut self, object: K, before: Option<Arc<K>>) {
        let urgency = urgency(before.as_ref().map(|before| before.meta()), object.meta());
        let reference = ObjectRef::from_obj_with(&object, self.cache.0.resource.clone());
        self.writer.apply_watcher_event(&watcher::Event::Apply(object));
        if let Some(object) = self.cache.get(&reference) {
            self.cache.tell(&Change { object, before, urgency, is_gone: false });
        }
    }

    fn remove(&mut self, before: Arc<K>) {
        self.writer.apply_watcher_event(&watcher::Event::Delete(K::clone(&before)));
        self.cache.tell(&Change { object: before, before: None, urgency: Urgency::Change, is_gone: true });
    }

    /// Swaps the new list in and tells what differs from the old one: a watch that was cut may have missed anything.
    fn finish_list(&mut self) {
        self.unfit_before.clear();
        let resource = self.cache.0.resource.clone();
        let key = |object: &K| ObjectRef::from_obj_with(object, resource.clone());
        let mut before: HashMap<_, _> =
            self.cache.list().into_iter().map(|object| (key(&object), object)).collect();
        self.writer.apply_watcher_event(&watcher::Event::InitDone);
        let is_first = !self.cache.0.listed.initialized();
        for object in self.cache.sorted() {
            let before = before.remove(&key(&object));
            let old = before.as_ref().map(|before| before.meta());
            if old.is_some_and(|old| old.resource_version == object.meta().resource_version) {
                continue;
            }
            let urgency = if is_first { Urgency::Resync } else { urgency(old, object.meta()) };
            self.cache.tell(&Change { object, before, urgency, is_gone: false });
        }
        for object in before.into_values() {
            self.cache.tell(&Change { object, before: None, urgency: Urgency::Change, is_gone: true });
        }
        // Last: whoever acts on the list also asks those who heard of it.
        let _ = self.cache.0.listed.set(());
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
                (self.prune)(&mut object);
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

/// Whether the server does not know the kind.
fn is_absent(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
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
    use std::sync::Mutex;

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

    #[tokio::test]
    async fn everybody_who_waits_for_the_first_list_is_woken() {
        let (cache, mut feed, _) = cache();
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let cache = cache.clone();
                tokio::spawn(async move { cache.ready().await })
            })
            .collect();
        tokio::task::yield_now().await;
        list(&mut feed, Vec::new());
        for waiter in waiters {
            tokio::time::timeout(Duration::from_mins(1), waiter).await.unwrap().unwrap();
        }
        list(&mut feed, Vec::new());
        cache.ready().await;
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
