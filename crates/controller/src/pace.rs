//! Does things once for many causes: reconciling an object for a burst of changes, writing totals that change all the time.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use kube::{Resource, runtime::reflector::ObjectRef};
use tokio::{sync::Notify, time::Instant};
use vitistack_runtime::{Urgency, lock};
use vitistack_types::ObjectName;

/// The shortest time between two triggers by changes of other objects.
const TRIGGER_INTERVAL: Duration = Duration::from_millis(100);
/// The shortest time between two writes that only change totals.
const TOTALS_INTERVAL: Duration = Duration::from_secs(2);

/// Objects to reconcile because of changes elsewhere. The first change triggers at once, a burst that follows triggers each
/// object once per interval. Clones share it.
pub(crate) struct Triggers<K: Resource<DynamicType = ()>>(Arc<Pending<K>>);

struct Pending<K: Resource<DynamicType = ()>> {
    objects: Mutex<HashSet<ObjectRef<K>>>,
    changed: Notify,
}

impl<K: Resource<DynamicType = ()>> Clone for Triggers<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Resource<DynamicType = ()> + 'static> Triggers<K> {
    /// No object is pending yet.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Pending { objects: Mutex::default(), changed: Notify::new() }))
    }

    /// Triggers a reconcile of an object.
    pub(crate) fn add(&self, object: ObjectRef<K>) {
        lock(&self.0.objects).insert(object);
        self.0.changed.notify_one();
    }

    /// The objects, as they are to be reconciled.
    pub(crate) fn stream(self) -> impl Stream<Item = (ObjectRef<K>, Urgency)> + Send + 'static
    where
        ObjectRef<K>: Send,
    {
        let batches = stream::unfold((self, false), |(triggers, is_later)| async move {
            if is_later {
                tokio::time::sleep(TRIGGER_INTERVAL).await;
            }
            triggers.0.changed.notified().await;
            let objects = std::mem::take(&mut *lock(&triggers.0.objects));
            Some((stream::iter(objects), (triggers, true)))
        });
        batches.flatten().map(|object| (object, Urgency::Event))
    }
}

/// When the status of each object was last written.
#[derive(Default)]
pub(crate) struct Pace(Mutex<HashMap<ObjectName, Instant>>);

impl Pace {
    /// Returns how long a write that only changes totals has to wait, if it has to.
    pub(crate) fn delay(&self, object: &impl Resource, now: Instant) -> Option<Duration> {
        let mut written = lock(&self.0);
        written.retain(|_, at| now.saturating_duration_since(*at) < TOTALS_INTERVAL);
        let at = written.get(&ObjectName::of(object))?;
        Some(TOTALS_INTERVAL.saturating_sub(now.saturating_duration_since(*at)))
    }

    /// Records that the status was written.
    pub(crate) fn wrote(&self, object: &impl Resource, now: Instant) {
        lock(&self.0).insert(ObjectName::of(object), now);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[tokio::test]
    async fn a_burst_of_changes_triggers_an_object_once() {
        let triggers: Triggers<ConfigMap> = Triggers::new();
        let mut stream = Box::pin(triggers.clone().stream());
        let object = |name: &str| ObjectRef::new(name).within("default");
        for _ in 0..1000 {
            triggers.add(object("a"));
        }
        assert_eq!(stream.next().await, Some((object("a"), Urgency::Event)));

        triggers.add(object("b"));
        assert_eq!(stream.next().await, Some((object("b"), Urgency::Event)));
    }

    #[test]
    fn totals_wait_for_two_seconds_after_a_write() {
        let object = |name: &str| {
            let mut object = ConfigMap::default();
            object.metadata.name = Some(name.to_owned());
            object
        };
        let (pace, start) = (Pace::default(), Instant::now());
        assert_eq!(pace.delay(&object("a"), start), None);

        pace.wrote(&object("a"), start);
        let half = start + Duration::from_millis(500);
        assert_eq!(pace.delay(&object("a"), half), Some(Duration::from_millis(1500)));
        assert_eq!(pace.delay(&object("b"), half), None);
        assert_eq!(pace.delay(&object("a"), start + TOTALS_INTERVAL), None);
    }
}
