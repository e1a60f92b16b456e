//! Doing things once for many causes: waking an object for a crowd of changes, writing totals that move all the time.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use kube::{Resource, runtime::reflector::ObjectRef};
use tokio::{sync::Notify, time::Instant};
use vitistack_runtime::Urgency;

use crate::caches::name_of;

/// Shortest time between two wakes for changes of other objects.
const WAKE_EVERY: Duration = Duration::from_millis(100);
/// Shortest time between two writes that only tell new totals.
const TOTALS_EVERY: Duration = Duration::from_secs(2);

/// Objects that are to be looked at because of changes elsewhere. The first change wakes at once, a crowd that follows
/// it wakes each object once per tenth of a second. A clone is the same.
pub(crate) struct Wakes<K: Resource<DynamicType = ()>>(Arc<Marked<K>>);

struct Marked<K: Resource<DynamicType = ()>> {
    objects: Mutex<HashSet<ObjectRef<K>>>,
    changed: Notify,
}

impl<K: Resource<DynamicType = ()>> Clone for Wakes<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Resource<DynamicType = ()> + 'static> Wakes<K> {
    /// Nobody is to be woken yet.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Marked { objects: Mutex::default(), changed: Notify::new() }))
    }

    /// Has an object looked at.
    pub(crate) fn mark(&self, object: ObjectRef<K>) {
        self.0.objects.lock().unwrap_or_else(PoisonError::into_inner).insert(object);
        self.0.changed.notify_one();
    }

    /// The objects, as they are to be looked at.
    pub(crate) fn stream(self) -> impl Stream<Item = (ObjectRef<K>, Urgency)> + Send + 'static
    where
        ObjectRef<K>: Send,
    {
        let batches = stream::unfold((self, false), |(wakes, is_later)| async move {
            if is_later {
                tokio::time::sleep(WAKE_EVERY).await;
            }
            wakes.0.changed.notified().await;
            let marked = std::mem::take(&mut *wakes.0.objects.lock().unwrap_or_else(PoisonError::into_inner));
            Some((stream::iter(marked), (wakes, true)))
        });
        batches.flatten().map(|object| (object, Urgency::Event))
    }
}

/// The last write of the status of each object.
#[derive(Default)]
pub(crate) struct Pace(Mutex<HashMap<String, LastWrite>>);

struct LastWrite {
    at: Instant,
    /// The version of the object that was seen before it.
    seen: Option<String>,
}

impl Pace {
    /// How long a write has to wait; none if it need not. One waits until the cache shows the last one, and one that
    /// tells nothing but new totals until a while after that.
    pub(crate) fn hold(&self, object: &impl Resource, is_totals: bool, now: Instant) -> Option<Duration> {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        written.retain(|_, last| now.saturating_duration_since(last.at) < TOTALS_EVERY);
        let last = written.get(&name_of(object))?;
        if last.seen == object.meta().resource_version {
            return Some(WAKE_EVERY);
        }
        is_totals.then(|| TOTALS_EVERY.saturating_sub(now.saturating_duration_since(last.at)))
    }

    /// Notes that the status was written.
    pub(crate) fn wrote(&self, object: &impl Resource, now: Instant) {
        let last = LastWrite { at: now, seen: object.meta().resource_version.clone() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name_of(object), last);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[tokio::test]
    async fn a_crowd_of_changes_wakes_an_object_once() {
        let wakes: Wakes<ConfigMap> = Wakes::new();
        let mut stream = Box::pin(wakes.clone().stream());
        let object = |name: &str| ObjectRef::new(name).within("default");
        for _ in 0..1000 {
            wakes.mark(object("a"));
        }
        assert_eq!(stream.next().await, Some((object("a"), Urgency::Event)));
        wakes.mark(object("b"));
        assert_eq!(stream.next().await, Some((object("b"), Urgency::Event)));
    }

    #[test]
    fn a_write_waits_for_the_echo_of_the_last_one_and_totals_for_two_seconds() {
        let object = |name: &str, version: &str| {
            let mut object = ConfigMap::default();
            object.metadata.name = Some(name.to_owned());
            object.metadata.resource_version = Some(version.to_owned());
            object
        };
        let (pace, start) = (Pace::default(), Instant::now());
        assert_eq!(pace.hold(&object("a", "1"), true, start), None);
        pace.wrote(&object("a", "1"), start);
        let half = start + Duration::from_millis(500);
        assert_eq!(pace.hold(&object("a", "1"), false, half), Some(WAKE_EVERY));
        assert_eq!(pace.hold(&object("a", "2"), false, half), None);
        assert_eq!(pace.hold(&object("a", "2"), true, half), Some(Duration::from_millis(1500)));
        assert_eq!(pace.hold(&object("b", "1"), true, half), None);
        assert_eq!(pace.hold(&object("a", "1"), true, start + TOTALS_EVERY), None);
    }
}
