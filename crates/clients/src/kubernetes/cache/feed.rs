//! Fills a cache from a watch.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Resource,
    core::{DeserializeGuard, PartialObjectMeta, error_boundary::InvalidObject},
    runtime::{
        reflector::{ObjectRef, store::Writer},
        watcher,
    },
};
use tokio::time::{Instant, Interval};
use tokio_util::sync::CancellationToken;

use super::{
    Cache, Change, DecodeFailure, FeedState, Kind, Urgency,
    backoff::{backoff, jitter},
    budget::{Budget, Meter},
    lock,
    merge::merge,
};
use crate::kubernetes::{explain, limits::AnswerTooLarge};

/// Longest pause between two attempts to list.
const PAUSE_LIMIT: Duration = Duration::from_secs(15);
/// Longest pause before a foreign cluster is asked again for a kind that it does not serve: installing that takes a
/// person, so the cluster is asked only now and then.
const ABSENT_PAUSE_LIMIT: Duration = Duration::from_mins(3);
/// How often a feed reports that it is alive and ends expired writes.
const TICK: Duration = Duration::from_secs(5);

/// What a watch reports of objects that may not be decodable.
type WatchStream<K> = BoxStream<'static, Result<watcher::Event<DeserializeGuard<K>>, watcher::Error>>;

/// Lists and watches from the beginning each time it is called.
pub type Source<K> = Box<dyn Fn() -> WatchStream<K> + Send + Sync>;

/// Returns a source of the objects that `selection` selects, in each of `apis`: one for the whole cluster, or one for each
/// namespace.
#[must_use]
pub fn whole_objects<K: Kind>(apis: Vec<Api<DeserializeGuard<K>>>, selection: watcher::Config) -> Source<K> {
    source(apis, move |api| watcher(api, selection.clone()).boxed())
}

/// Returns a source of nothing but the metadata of the objects that `selection` selects, in each of `apis`.
#[must_use]
pub fn metadata_only<K: Kind>(
    // Without the guard, because with it the client would request whole objects.
    apis: Vec<Api<PartialObjectMeta<K>>>,
    selection: watcher::Config,
) -> Source<PartialObjectMeta<K>>
where
    PartialObjectMeta<K>: Kind + Resource<DynamicType = K::DynamicType>,
{
    source(apis, move |api| watcher(api, selection.clone()).map(|event| event.map(guarded)).boxed())
}

/// Returns a source that watches each of `apis`.
fn source<T: Clone + Send + Sync + 'static, K: Kind>(
    apis: Vec<Api<T>>,
    watch: impl Fn(Api<T>) -> WatchStream<K> + Send + Sync + 'static,
) -> Source<K> {
    Box::new(move || match apis.as_slice() {
        [only] => watch(only.clone()),
        several => merge(several.iter().cloned().map(&watch).collect()).boxed(),
    })
}

/// Wraps an event about metadata, which can always be decoded.
fn guarded<K>(event: watcher::Event<K>) -> watcher::Event<DeserializeGuard<K>> {
    use watcher::Event;
    let decoded = |object| DeserializeGuard(Ok(object));
    match event {
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
        Event::InitApply(object) => Event::InitApply(decoded(object)),
        Event::Apply(object) => Event::Apply(decoded(object)),
        Event::Delete(object) => Event::Delete(decoded(object)),
    }
}

/// Receives how a feed is doing. It is dropped without [`FeedReporter::finished`] if the feed panics.
pub trait FeedReporter: Send + 'static {
    /// The feed is alive. Called every few seconds.
    fn alive(&mut self);

    /// The cache is complete and changes arrive.
    fn watching(&mut self);

    /// Listing or watching failed and is retried.
    fn failing(&mut self, error: &str);

    /// The number of objects that cannot be decoded.
    fn decode_failures(&mut self, count: usize);

    /// The feed ended because it was asked to.
    fn finished(&mut self);
}

/// The writing half of a cache.
pub struct Feed<K: Kind> {
    cache: Cache<K>,
    writer: Writer<K>,
    /// The decode failures of the list before the one that is being read, so that each is logged once.
    failures_before: HashMap<ObjectRef<K>, DecodeFailure>,
    /// Counts what the cache holds, if that is limited.
    meter: Option<Meter<K>>,
}

impl<K: Kind> Feed<K> {
    /// Returns the feed of an empty cache.
    pub(super) fn new(cache: Cache<K>, writer: Writer<K>) -> Self {
        Self { cache, writer, failures_before: HashMap::new(), meter: None }
    }

    /// Returns the same feed, which fails when the caches of a cluster exceed their budget. `size` returns the bytes that an
    /// object takes.
    pub(super) fn within(self, budget: Budget, size: impl Fn(&K) -> usize + Send + Sync + 'static) -> Self {
        Self { meter: Some(Meter::new(budget, size)), ..self }
    }

    /// Fills the cache until `end`. An API server or a kind that is unavailable is waited for, and reported: as a warning
    /// where there is a reporter, because the process then depends on the cache.
    ///
    /// After any failure everything is listed again. That costs one list, and is the only way to know that the connection
    /// works again: a resumed watch sends nothing until something changes.
    pub async fn run(
        mut self,
        source: Source<K>,
        mut reporter: Option<Box<dyn FeedReporter>>,
        end: CancellationToken,
    ) {
        let name = format!("cache {}", K::plural(&self.cache.0.resource));
        let started = Instant::now();
        let mut tick = tokio::time::interval(TICK);
        let mut failures = 0;

        loop {
            let mut listed = None;
            let watching = self.watch(&source, &mut reporter, &mut tick, &mut listed);
            let error = tokio::select! {
                biased;
                () = end.cancelled() => break,
                error = watching => error,
            };

            // A list that is followed by a watch that fails at once is not a success.
            let has_lived = listed.is_some_and(|listed: Instant| listed.elapsed() >= PAUSE_LIMIT);
            failures = if has_lived { 1 } else { failures + 1 };
            let limit =
                if reporter.is_none() && is_absent(&error) { ABSENT_PAUSE_LIMIT } else { PAUSE_LIMIT };
            let pause = backoff(failures, jitter(&name, started.elapsed())).min(limit);
            self.report_failure(error, pause, reporter.as_mut());

            let paused = tokio::time::sleep(pause);
            tokio::pin!(paused);
            let is_ended = loop {
                tokio::select! {
                    () = end.cancelled() => break true,
                    () = &mut paused => break false,
                    _ = tick.tick() => self.tick(reporter.as_mut()),
                }
            };
            if is_ended {
                break;
            }
        }
        if let Some(reporter) = &mut reporter {
            reporter.finished();
        }
    }

    /// Lists and watches until that fails. Sets `listed` to when the list was complete.
    async fn watch(
        &mut self,
        source: &Source<K>,
        reporter: &mut Option<Box<dyn FeedReporter>>,
        tick: &mut Interval,
        listed: &mut Option<Instant>,
    ) -> watcher::Error {
        let mut events = source();
        loop {
            let event = tokio::select! {
                biased;
                _ = tick.tick() => {
                    self.tick(reporter.as_mut());
                    continue;
                }
                event = events.next() => event,
            };
            match event {
                Some(Ok(event)) => {
                    let is_listed = matches!(event, watcher::Event::InitDone);
                    self.handle(event);
                    if self.meter.as_ref().is_some_and(Meter::is_exceeded) {
                        return self.give_up();
                    }
                    if is_listed {
                        *listed = Some(Instant::now());
                        self.cache.0.state.send_replace(FeedState::Watching);
                    }
                    if let Some(reporter) = reporter {
                        if is_listed {
                            reporter.watching();
                        }
                        reporter.decode_failures(lock(&self.cache.0.decode_failures).len());
                    }
                }
                Some(Err(error)) => return error,
                None => return watcher::Error::NoResourceVersion,
            }
        }
    }

    /// Drops the list that is being read, because the cluster has more objects than are accepted.
    fn give_up(&mut self) -> watcher::Error {
        self.handle(watcher::Event::Init);
        watcher::Error::InitialListFailed(kube::Error::Service(Box::new(AnswerTooLarge)))
    }

    fn tick(&self, reporter: Option<&mut Box<dyn FeedReporter>>) {
        if let Some(reporter) = reporter {
            reporter.alive();
        }
        self.cache.expire(Instant::now());
    }

    fn report_failure(
        &self,
        error: watcher::Error,
        pause: Duration,
        reporter: Option<&mut Box<dyn FeedReporter>>,
    ) {
        let kind = self.cache.kind();
        let message = explain_watch(&error);
        if let Some(reporter) = reporter {
            tracing::warn!(kind, "failed to watch, retrying in {pause:?}: {message}");
            reporter.failing(&message);
        } else {
            tracing::debug!(kind, "failed to watch a foreign cluster, retrying in {pause:?}: {message}");
        }
        self.cache.0.state.send_replace(FeedState::Failing(Arc::new(error)));
    }

    /// Applies one event to the cache and reports the change to the listeners.
    pub fn handle(&mut self, event: watcher::Event<DeserializeGuard<K>>) {
        match event {
            watcher::Event::Init => {
                self.failures_before = std::mem::take(&mut *lock(&self.cache.0.decode_failures));
                self.measure(Meter::list_started);
                self.writer.apply_watcher_event(&watcher::Event::Init);
            }
            watcher::Event::InitApply(guarded) => {
                let object = self.decode(guarded);
                self.measure(|meter| meter.listed(object.as_ref()));
                if let Some(object) = object {
                    self.writer.apply_watcher_event(&watcher::Event::InitApply(object));
                }
            }
            watcher::Event::InitDone => self.finish_list(),
            watcher::Event::Apply(guarded) => {
                let reference = ObjectRef::from_obj_with(&guarded, self.cache.0.resource.clone());
                let before = self.cache.watched(&unguarded(reference));
                match self.decode(guarded) {
                    Some(object) => self.apply(object, before),
                    // The desired state can no longer be read, and acting on the previous one would be wrong.
                    None => {
                        if let Some(before) = before {
                            self.remove(before);
                        }
                    }
                }
            }
            watcher::Event::Delete(guarded) => {
                let reference = unguarded(ObjectRef::from_obj_with(&guarded, self.cache.0.resource.clone()));
                lock(&self.cache.0.decode_failures).remove(&reference);
                if let Some(before) = self.cache.watched(&reference) {
                    self.remove(before);
                }
            }
        }
    }

    fn apply(&mut self, object: K, before: Option<Arc<K>>) {
        let urgency = urgency(before.as_ref().map(|before| before.meta()), object.meta());
        let reference = self.cache.reference(&object);
        self.measure(|meter| meter.changed(before.as_deref(), Some(&object)));
        self.writer.apply_watcher_event(&watcher::Event::Apply(object));
        if let Some(object) = self.cache.watched(&reference) {
            self.cache.observed(&Change { object, before, urgency, is_gone: false });
        }
    }

    fn measure(&mut self, measure: impl FnOnce(&mut Meter<K>)) {
        if let Some(meter) = &mut self.meter {
            measure(meter);
        }
    }

    fn remove(&mut self, before: Arc<K>) {
        self.measure(|meter| meter.changed(Some(&*before), None));
        self.writer.apply_watcher_event(&watcher::Event::Delete(K::clone(&before)));
        self.cache.observed(&Change {
            object: before,
            before: None,
            urgency: Urgency::Change,
            is_gone: true,
        });
    }

    /// Replaces the content with the new list and reports the differences: an interrupted watch may have missed any change.
    fn finish_list(&mut self) {
        self.failures_before.clear();
        let mut before: HashMap<_, _> = self
            .cache
            .0
            .store
            .state()
            .into_iter()
            .map(|object| (self.cache.reference(&object), object))
            .collect();
        self.writer.apply_watcher_event(&watcher::Event::InitDone);
        self.measure(Meter::list_finished);

        let is_first = !self.cache.0.listed.initialized();
        let mut objects = self.cache.0.store.state();
        objects.sort_by_cached_key(|object| (object.meta().namespace.clone(), object.meta().name.clone()));
        for object in objects {
            let before = before.remove(&self.cache.reference(&object));
            let old = before.as_ref().map(|before| before.meta());
            if old.is_some_and(|old| old.resource_version == object.meta().resource_version) {
                continue;
            }
            let urgency = if is_first { Urgency::Resync } else { urgency(old, object.meta()) };
            self.cache.observed(&Change { object, before, urgency, is_gone: false });
        }
        for object in before.into_values() {
            self.cache.observed(&Change { object, before: None, urgency: Urgency::Change, is_gone: true });
        }

        // Last, because those who wait for the list also read what the listeners maintain.
        let _ = self.cache.0.listed.set(());
    }

    /// Returns the object as the cache stores it, or records why it cannot be decoded.
    fn decode(&self, guarded: DeserializeGuard<K>) -> Option<K> {
        let mut failures = lock(&self.cache.0.decode_failures);
        let resource = &self.cache.0.resource;
        let reference = unguarded(ObjectRef::from_obj_with(&guarded, resource.clone()));

        let InvalidObject { error, metadata } = match guarded {
            DeserializeGuard(Ok(mut object)) => {
                failures.remove(&reference);
                self.cache.shrink(&mut object);
                return Some(object);
            }
            DeserializeGuard(Err(invalid)) => invalid,
        };
        let version = metadata.resource_version.clone();
        let before = failures.get(&reference).or_else(|| self.failures_before.get(&reference));
        if before.is_none_or(|before| before.version != version) {
            tracing::warn!(
                kind = %K::kind(resource),
                namespace = metadata.namespace,
                name = metadata.name,
                "skipping an object that cannot be decoded: {error}"
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
        failures.insert(reference, DecodeFailure { reference: about, error, version });
        None
    }
}

/// Returns the same reference without the guard in its type.
fn unguarded<K: Kind>(reference: ObjectRef<DeserializeGuard<K>>) -> ObjectRef<K> {
    let mut unguarded = ObjectRef::new_with(&reference.name, reference.dyntype);
    unguarded.namespace = reference.namespace;
    unguarded
}

/// Whether the server does not serve the kind.
fn is_absent(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}

/// Returns in one sentence why a watch failed.
#[must_use]
pub fn explain_watch(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => explain(error),
        watcher::Error::WatchError(status) => status.message.clone(),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

/// Returns how urgent a change is, from the metadata before and after it.
///
/// A new generation, label or annotation, a deletion and a new object change the desired state. Everything else is
/// status. Kinds without a generation (`Secret`, `ConfigMap`) consist of desired state only.
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
mod tests;
