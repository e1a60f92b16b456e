//! The run loop of one controller.

use std::{
    any::Any,
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures::{
    FutureExt, Stream, StreamExt,
    future::{BoxFuture, join_all},
    stream::BoxStream,
};
use kube::runtime::reflector::{ObjectRef, ObjectRefExtra};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, field::Empty};

use crate::{
    backoff::jitter,
    cache::{Cache, Kind},
    events::{Events, Severity},
    health::Health,
    lane::{Lane, Urgency},
    metrics::Metrics,
    outcome::{Outcome, ReconcileError},
    queue::Queue,
};

/// The loop turns at least so often, to show that it lives.
const TURN: Duration = Duration::from_secs(5);
/// A reconcile that takes longer hangs: waiting is an [`Outcome`], not something to do inside.
const RECONCILE_LIMIT: Duration = Duration::from_mins(5);
/// How long a shutdown waits for reconciles in flight.
const DRAIN_LIMIT: Duration = Duration::from_secs(20);

/// What a controller does with one object.
#[async_trait]
pub trait Reconciler<K: Kind>: Send + Sync + 'static {
    /// Which kind of work the object needs.
    fn lane(&self, object: &K) -> Lane;

    /// Looks at one object and brings the world closer to it. Idempotent; may be aborted at any await.
    async fn reconcile(&self, object: Arc<K>) -> Result<Outcome, ReconcileError>;

    /// This replica begins to act. Nothing is reconciled before it returns.
    async fn begin(&self) {}

    /// This replica no longer acts, and another may: what is only known here is out of date from now on.
    fn rest(&self) {}
}

/// A request to look at an object.
pub type Wake<K> = (ObjectRef<K>, Urgency);

/// One controller: what wakes it, and what it does then.
pub struct Controller<K: Kind> {
    name: String,
    primary: Cache<K>,
    reconciler: Arc<dyn Reconciler<K>>,
    wake: mpsc::UnboundedSender<Wake<K>>,
    woken: mpsc::UnboundedReceiver<Wake<K>>,
    ready: Vec<BoxFuture<'static, ()>>,
    streams: Vec<BoxStream<'static, Wake<K>>>,
}

impl<K: Kind> Controller<K> {
    /// A controller of the objects in `primary`. Its name appears in logs and metrics.
    pub fn new(name: &str, primary: &Cache<K>, reconciler: impl Reconciler<K>) -> Self {
        let (wake, woken) = mpsc::unbounded_channel();
        let controller = Self {
            name: name.to_owned(),
            primary: primary.clone(),
            reconciler: Arc::new(reconciler),
            wake,
            woken,
            ready: Vec::new(),
            streams: Vec::new(),
        };
        let resource = primary.resource().clone();
        controller.watches(primary, move |object| vec![ObjectRef::from_obj_with(object, resource.clone())])
    }

    /// Also wakes the objects that `mapper` names for a changed object of another kind. It starts only when that
    /// cache is filled, so that what is not there is really absent.
    #[must_use]
    pub fn watches<S: Kind>(
        mut self,
        cache: &Cache<S>,
        mapper: impl Fn(&S) -> Vec<ObjectRef<K>> + Send + Sync + 'static,
    ) -> Self {
        let wake = self.wake.clone();
        cache.listen(move |change| {
            for reference in mapper(&change.object) {
                // Fails only when the controller has ended.
                let _ = wake.send((reference, change.urgency));
            }
        });
        let cache = cache.clone();
        self.ready.push(async move { cache.ready().await }.boxed());
        self
    }

    /// Also wakes the objects of a stream, as urgently as it says, for changes in foreign systems.
    #[must_use]
    pub fn woken_by(mut self, stream: impl Stream<Item = Wake<K>> + Send + 'static) -> Self {
        self.streams.push(stream.boxed());
        self
    }

    /// Runs until `end`, acting only while `leads`.
    pub(crate) async fn run(self, context: Context) {
        let Self { name, primary, reconciler, wake, woken, ready, streams } = self;
        let mut forwarding = JoinSet::new();
        for mut stream in streams {
            let wake = wake.clone();
            forwarding.spawn(async move {
                while let Some(woken) = stream.next().await {
                    let _ = wake.send(woken);
                }
            });
        }
        let worker = Worker {
            queue: Queue::new(context.slots),
            running: JoinSet::new(),
            said: HashMap::new(),
            started: Instant::now(),
            is_acting: false,
            kind: primary.kind().to_lowercase(),
            name,
            primary,
            reconciler,
            context,
        };
        // The sender is kept: a controller whose caches are all gone waits, it does not spin on a closed channel.
        worker.run(woken, join_all(ready).map(drop).boxed()).await;
        drop(wake);
    }
}

/// What a controller gets from its operator.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) interval: Duration,
    pub(crate) slots: usize,
    pub(crate) metrics: Metrics,
    pub(crate) events: Events,
    pub(crate) health: Health,
    pub(crate) leads: watch::Receiver<bool>,
    pub(crate) end: CancellationToken,
}

struct Finished<K: Kind> {
    key: ObjectRef<K>,
    span: Span,
    took: Duration,
    result: Result<Outcome, ReconcileError>,
}

struct Worker<K: Kind> {
    name: String,
    kind: String,
    primary: Cache<K>,
    reconciler: Arc<dyn Reconciler<K>>,
    context: Context,
    queue: Queue<ObjectRef<K>>,
    running: JoinSet<Finished<K>>,
    /// How the last reconcile of an object ended, so that only news is logged.
    said: HashMap<ObjectRef<K>, String>,
    started: Instant,
    is_acting: bool,
}

impl<K: Kind> Worker<K> {
    async fn run(mut self, mut woken: mpsc::UnboundedReceiver<Wake<K>>, mut ready: BoxFuture<'static, ()>) {
        let heart = self.context.health.heart(format!("controller {}", self.name), Instant::now());
        let end = self.context.end.clone();
        let mut leads = self.context.leads.clone();
        let mut is_ready = false;
        let mut batch = Vec::new();
        let mut tick = tokio::time::interval(TURN);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // An election that is gone, by whatever mishap, is an election that is lost.
            let leading = *leads.borrow_and_update() && leads.has_changed().is_ok();
            self.act_or_rest(is_ready && leading).await;
            self.start_reconciles();
            let now = Instant::now();
            heart.beat(now);
            let due = self.queue.next_due().unwrap_or(now + TURN);
            tokio::select! {
                // In this order, so that the same happens every time.
                biased;
                () = end.cancelled() => break,
                Ok(()) = leads.changed() => {}
                () = &mut ready, if !is_ready => is_ready = true,
                _ = tick.tick() => self.tell_unfit(),
                count = woken.recv_many(&mut batch, 1000) => {
                    if count > 0 {
                        self.enqueue(&mut batch);
                    }
                }
                Some(finished) = self.running.join_next(), if !self.running.is_empty() => {
                    if let Ok(finished) = finished {
                        self.settle(finished);
                    }
                }
                () = sleep_until(due) => {}
            }
            // With every turn, so that however much wakes the controller, what has finished makes room for more.
            while let Some(finished) = self.running.try_join_next() {
                if let Ok(finished) = finished {
                    self.settle(finished);
                }
            }
        }
        self.drain(&mut leads).await;
        heart.finish();
    }

    /// Begins to act, or stops at once: whoever does not lead must not finish what it began.
    async fn act_or_rest(&mut self, should_act: bool) {
        if self.is_acting == should_act {
            return;
        }
        self.is_acting = should_act;
        self.queue.clear();
        if should_act {
            self.reconciler.begin().await;
            let resource = self.primary.resource().clone();
            for object in self.primary.sorted() {
                let lane = self.reconciler.lane(&object);
                let key = ObjectRef::from_obj_with(object.as_ref(), resource.clone());
                self.queue.add(bare(key), lane, Urgency::Resync);
            }
        } else {
            self.running = JoinSet::new();
            self.said.clear();
            self.reconciler.rest();
        }
    }

    fn enqueue(&mut self, batch: &mut Vec<Wake<K>>) {
        for (key, urgency) in batch.drain(..) {
            // What is woken before it is in the cache comes again with its own event.
            if self.is_acting
                && let Some(object) = self.primary.get(&key)
            {
                self.queue.add(bare(key), self.reconciler.lane(&object), urgency);
            }
        }
    }

    fn start_reconciles(&mut self) {
        while self.is_acting
            && let Some(key) = self.queue.pick(Instant::now())
        {
            if let Some(object) = self.primary.get(&key) {
                self.start(key, object);
            } else {
                self.queue.forget(&key);
                self.said.remove(&key);
            }
        }
        for lane in Lane::ALL {
            self.context.metrics.waiting(&self.name, lane, self.queue.depth(lane));
        }
    }

    fn start(&mut self, key: ObjectRef<K>, object: Arc<K>) {
        let span = tracing::info_span!(
            "reconcile",
            otel.name = format!("{}.reconcile", self.kind),
            controller = self.name,
            kind = self.kind,
            namespace = key.namespace,
            name = key.name,
            phase = Empty,
        );
        let reconciler = Arc::clone(&self.reconciler);
        let outer = span.clone();
        self.running.spawn(
            async move {
                let started = Instant::now();
                let attempt = AssertUnwindSafe(timeout(RECONCILE_LIMIT, reconciler.reconcile(object)));
                let result = match attempt.catch_unwind().await {
                    Ok(Ok(result)) => result,
                    Ok(Err(_)) => Err(ReconcileError::new(
                        "TimedOut",
                        format!("gave up after {} s", RECONCILE_LIMIT.as_secs()),
                    )),
                    Err(panic) => Err(ReconcileError::new("Panic", panic_message(panic.as_ref()))),
                };
                Finished { key, span: outer, took: started.elapsed(), result }
            }
            .instrument(span),
        );
    }

    /// Puts a finished object back and says how it went, if that is news.
    fn settle(&mut self, finished: Finished<K>) {
        let Finished { key, span, took, result } = finished;
        let now = Instant::now();
        let metrics = &self.context.metrics;
        let elapsed = now.saturating_duration_since(self.started);
        let resync = resync_delay(&key, elapsed, self.context.interval);
        let (sentence, is_failure) = match &result {
            Ok(outcome) => {
                metrics.reconciled(&self.name, outcome.name(), took);
                if let Outcome::Blocked { reason, .. } = outcome {
                    metrics.refused(&self.name, reason);
                }
                (outcome.to_string(), matches!(outcome, Outcome::Retry { .. }))
            }
            Err(error) => {
                metrics.failed(&self.name, error.category, took);
                (format!("failed: {error}"), true)
            }
        };
        match result {
            Ok(Outcome::Done | Outcome::Blocked { .. }) => {
                self.queue.succeed(&key, resync, Urgency::Resync, now);
            }
            Ok(Outcome::Wait { after, .. }) if after < resync => {
                self.queue.succeed(&key, after, Urgency::Event, now);
            }
            Ok(Outcome::Wait { .. }) => self.queue.succeed(&key, resync, Urgency::Resync, now),
            Ok(Outcome::Retry { after, .. }) => {
                self.queue.fail(&key, after, jitter(&key, elapsed), now);
            }
            Err(error) => {
                self.queue.fail(&key, error.after, jitter(&key, elapsed), now);
            }
        }
        let is_news = self.said.insert(key, sentence.clone()).is_none_or(|before| before != sentence);
        span.in_scope(|| match (is_news, is_failure) {
            (true, true) => tracing::warn!("{sentence}"),
            (true, false) => tracing::info!("{sentence}"),
            (false, _) => tracing::debug!("{sentence}"),
        });
    }

    /// Tells the owners of objects that cannot be decoded; repeats are swallowed by [`Events`].
    fn tell_unfit(&mut self) {
        if !self.is_acting {
            return;
        }
        for unfit in self.primary.unfit() {
            let events = self.context.events.clone();
            tokio::spawn(async move {
                let note = format!("skipped until it is fixed: it does not fit its kind: {}", unfit.error);
                events.publish(Severity::Warning, &unfit.reference, "Undecodable", &note).await;
            });
        }
    }

    /// Lets reconciles in flight end, for a while, and only as long as this replica leads.
    async fn drain(&mut self, leads: &mut watch::Receiver<bool>) {
        let lost = async {
            while *leads.borrow_and_update() {
                if leads.changed().await.is_err() {
                    return;
                }
            }
        };
        let all = async { while self.running.join_next().await.is_some() {} };
        tokio::select! {
            () = all => {}
            () = lost => {}
            () = tokio::time::sleep(DRAIN_LIMIT) => {}
        }
        self.running.shutdown().await;
    }
}

/// A key without what was true of one version of its object: it is kept as long as the object exists.
fn bare<K: Kind>(mut key: ObjectRef<K>) -> ObjectRef<K> {
    key.extra = ObjectRefExtra::default();
    key
}

/// The time until an object's own point in the interval, by which resyncs are spread evenly over it.
fn resync_delay<H: Hash>(key: &H, elapsed: Duration, interval: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let length = interval.as_nanos().max(1);
    let point = u128::from(hasher.finish()) % length;
    let position = elapsed.as_nanos() % length;
    let ahead = (point + length - position) % length;
    let ahead = if ahead == 0 { length } else { ahead };
    Duration::from_nanos(u64::try_from(ahead).unwrap_or(u64::MAX))
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.as_deref().unwrap_or("without a message"))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Client, core::DeserializeGuard, runtime::watcher};
    use prometheus_client::registry::Registry;
    use serde_json::json;
    use tokio::{sync::Semaphore, task::JoinHandle};

    use super::*;
    use crate::feed::Feed;

    const INTERVAL: Duration = Duration::from_secs(30);
    /// Longest wait for anything; reached only when something is broken.
    const LIMIT: Duration = Duration::from_mins(1);

    #[test]
    fn an_object_comes_once_per_interval_at_its_own_point() {
        let first = resync_delay(&"a", Duration::ZERO, INTERVAL);
        assert!(first <= INTERVAL);
        assert_eq!(resync_delay(&"a", first, INTERVAL), INTERVAL, "exactly at its point: the next one");
        let late = first + Duration::from_secs(1);
        assert_eq!(resync_delay(&"a", late, INTERVAL), Duration::from_secs(29));
    }

    #[test]
    fn resyncs_are_spread_over_the_interval() {
        let mut tenths = [0; 10];
        for key in 0..1000 {
            let delay = resync_delay(&key, Duration::ZERO, INTERVAL);
            let tenth = usize::try_from(delay.as_millis() / 3000).unwrap().min(9);
            tenths[tenth] += 1;
        }
        assert!(tenths.iter().all(|count| *count > 50), "{tenths:?}");
    }

    #[test]
    fn panics_are_told_with_their_words() {
        let caught = std::panic::catch_unwind(|| panic!("no {}", "way")).unwrap_err();
        assert_eq!(panic_message(caught.as_ref()), "panicked: no way");
    }

    /// What a reconcile did, in the order in which it did it.
    #[derive(Debug, PartialEq, Eq)]
    enum Step {
        Started(String),
        Finished,
        Dropped,
    }

    /// Reconciles as long as the test wants.
    struct Slow {
        steps: mpsc::UnboundedSender<Step>,
        permits: Arc<Semaphore>,
    }

    struct Watched<'a>(&'a Slow);

    impl Drop for Watched<'_> {
        fn drop(&mut self) {
            let _ = self.0.steps.send(Step::Dropped);
        }
    }

    #[async_trait]
    impl Reconciler<ConfigMap> for Slow {
        fn lane(&self, _: &ConfigMap) -> Lane {
            Lane::Observe
        }

        async fn reconcile(&self, object: Arc<ConfigMap>) -> Result<Outcome, ReconcileError> {
            let _watched = Watched(self);
            let _ = self.steps.send(Step::Started(object.metadata.name.clone().unwrap()));
            self.permits.acquire().await.unwrap().forget();
            let _ = self.steps.send(Step::Finished);
            Ok(Outcome::Done)
        }
    }

    struct Bench {
        feed: Feed<ConfigMap>,
        steps: mpsc::UnboundedReceiver<Step>,
        permits: Arc<Semaphore>,
        leads: watch::Sender<bool>,
        wake: mpsc::UnboundedSender<Wake<ConfigMap>>,
        end: CancellationToken,
        running: JoinHandle<()>,
    }

    impl Bench {
        fn start(leads: bool) -> Self {
            let (cache, feed) = Cache::new(());
            let (sender, steps) = mpsc::unbounded_channel();
            let permits = Arc::new(Semaphore::new(0));
            let (wake, mut woken) = mpsc::unbounded_channel();
            let (leads, led) = watch::channel(leads);
            let end = CancellationToken::new();
            let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
            let context = Context {
                interval: Duration::from_hours(1),
                slots: 3,
                metrics: Metrics::register(&mut Registry::default()),
                events: Events::new(client, "test", "test"),
                health: Health::default(),
                leads: led,
                end: end.clone(),
            };
            let slow = Slow { steps: sender, permits: Arc::clone(&permits) };
            let woken = futures::stream::poll_fn(move |task| woken.poll_recv(task));
            let controller = Controller::new("Test", &cache, slow).woken_by(woken);
            let running = tokio::spawn(controller.run(context));
            Self { feed, steps, permits, leads, wake, end, running }
        }

        fn list(&mut self, name: &str) {
            let object = json!({"metadata": {"name": name, "namespace": "a", "resourceVersion": "1"}});
            let guarded: DeserializeGuard<ConfigMap> = serde_json::from_value(object).unwrap();
            for event in [watcher::Event::Init, watcher::Event::InitApply(guarded), watcher::Event::InitDone]
            {
                self.feed.take(event);
            }
        }

        async fn step(&mut self) -> Step {
            timeout(LIMIT, self.steps.recv()).await.unwrap().unwrap()
        }

        async fn ended(self) {
            timeout(LIMIT, self.running).await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn it_acts_only_when_the_cache_is_filled_and_it_leads() {
        let mut bench = Bench::start(false);
        bench.list("x");
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(bench.steps.is_empty());
        bench.leads.send_replace(true);
        assert_eq!(bench.step().await, Step::Started("x".into()));
    }

    #[tokio::test]
    async fn losing_the_lease_aborts_what_is_in_flight_and_leading_again_starts_anew() {
        let mut bench = Bench::start(true);
        bench.list("x");
        assert_eq!(bench.step().await, Step::Started("x".into()));
        bench.leads.send_replace(false);
        assert_eq!(bench.step().await, Step::Dropped);
        bench.leads.send_replace(true);
        assert_eq!(bench.step().await, Step::Started("x".into()));
    }

    #[tokio::test]
    async fn an_end_lets_reconciles_in_flight_finish() {
        let mut bench = Bench::start(true);
        bench.list("x");
        assert_eq!(bench.step().await, Step::Started("x".into()));
        bench.end.cancel();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!bench.running.is_finished());
        bench.permits.add_permits(1);
        assert_eq!(bench.step().await, Step::Finished);
        bench.ended().await;
    }

    #[tokio::test]
    async fn an_end_after_the_lease_is_lost_waits_for_nothing() {
        let mut bench = Bench::start(true);
        bench.list("x");
        assert_eq!(bench.step().await, Step::Started("x".into()));
        bench.end.cancel();
        bench.leads.send_replace(false);
        assert_eq!(bench.step().await, Step::Dropped);
        bench.ended().await;
    }

    #[tokio::test]
    async fn a_stream_wakes_objects_that_exist() {
        let mut bench = Bench::start(true);
        bench.list("x");
        bench.permits.add_permits(2);
        for expected in [Step::Started("x".into()), Step::Finished, Step::Dropped] {
            assert_eq!(bench.step().await, expected);
        }
        for name in ["absent", "x"] {
            bench.wake.send((ObjectRef::new(name).within("a"), Urgency::Event)).unwrap();
        }
        assert_eq!(bench.step().await, Step::Started("x".into()));
    }
}
