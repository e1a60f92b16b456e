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
use vitistack_types::{Event, Outcome};

use crate::{
    cache::{Cache, Kind, Urgency, jitter},
    error::ReconcileError,
    events::Events,
    health::Health,
    lane::Lane,
    metrics::Metrics,
    queue::{Queue, Share},
};

/// Maximum time between heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// A reconcile that takes longer is stuck: to wait for something, it returns an [`Outcome`].
const RECONCILE_LIMIT: Duration = Duration::from_mins(5);
/// How long a shutdown waits for reconciles in flight.
const DRAIN_LIMIT: Duration = Duration::from_secs(20);

/// The reconcile function of a controller.
#[async_trait]
pub trait Reconciler<K: Kind>: Send + Sync + 'static {
    /// Returns which kind of work the object needs.
    fn lane(&self, object: &K) -> Lane;

    /// Returns whose work the object is. Tenants take turns, and a slow system delays only its own objects.
    fn share(&self, object: &K) -> Share {
        Share { tenant: object.meta().namespace.clone().unwrap_or_default(), system: None }
    }

    /// Moves the observed state of one object closer to its desired state. Idempotent; may be aborted at any await.
    async fn reconcile(&self, object: Arc<K>) -> Result<Outcome, ReconcileError>;

    /// Called when this replica starts to reconcile. No object is reconciled before it returns.
    async fn started_leading(&self) {}

    /// Called when this replica stops reconciling. Another replica may act from now on, so local state becomes stale.
    fn stopped_leading(&self) {}
}

/// A request to reconcile an object.
pub type Wake<K> = (ObjectRef<K>, Urgency);

/// One controller: its triggers and its reconciler.
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
    /// Creates a controller of the objects in `primary`. Its name appears in logs and metrics.
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

    /// Also reconciles the objects that `mapper` returns for a changed object of another kind. The controller starts only
    /// after that cache is filled, so an object that is not in the cache does not exist.
    #[must_use]
    pub fn watches<S: Kind>(
        mut self,
        cache: &Cache<S>,
        mapper: impl Fn(&S) -> Vec<ObjectRef<K>> + Send + Sync + 'static,
    ) -> Self {
        let wake = self.wake.clone();
        cache.listen(move |change| {
            for reference in mapper(&change.object) {
                // Fails only after the controller has ended.
                let _ = wake.send((reference, change.urgency));
            }
        });
        let cache = cache.clone();
        self.ready.push(async move { cache.ready().await }.boxed());
        self
    }

    /// Also reconciles the objects of a stream, with the given urgency, for changes in other systems.
    #[must_use]
    pub fn woken_by(mut self, stream: impl Stream<Item = Wake<K>> + Send + 'static) -> Self {
        self.streams.push(stream.boxed());
        self
    }

    /// Runs until the end of the context, and reconciles only while this replica is the leader.
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
            last_results: HashMap::new(),
            started: Instant::now(),
            is_active: false,
            kind: primary.kind().to_lowercase(),
            name,
            primary,
            reconciler,
            context,
        };
        // The sender stays open: a controller without caches waits instead of spinning on a closed channel.
        worker.run(woken, join_all(ready).map(drop).boxed()).await;
        drop(wake);
    }
}

/// What an operator passes to its controllers.
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
    /// The last result of every object, so that only changes are logged.
    last_results: HashMap<ObjectRef<K>, String>,
    started: Instant,
    is_active: bool,
}

impl<K: Kind> Worker<K> {
    async fn run(mut self, mut woken: mpsc::UnboundedReceiver<Wake<K>>, mut ready: BoxFuture<'static, ()>) {
        let heart = self.context.health.heart(format!("controller {}", self.name), Instant::now());
        let end = self.context.end.clone();
        let mut leads = self.context.leads.clone();
        let mut is_ready = false;
        let mut batch = Vec::new();
        let mut tick = tokio::time::interval(HEARTBEAT);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);

        loop {
            // If the election task ended for any reason, the lease counts as lost.
            let leading = *leads.borrow_and_update() && leads.has_changed().is_ok();
            self.set_active(is_ready && leading).await;
            self.start_reconciles();

            let now = Instant::now();
            heart.beat(now);
            let due = self.queue.next_due().unwrap_or(now + HEARTBEAT);
            tokio::select! {
                // A fixed order makes the behavior deterministic.
                biased;
                () = end.cancelled() => break,
                Ok(()) = leads.changed() => {}
                () = &mut ready, if !is_ready => is_ready = true,
                _ = tick.tick() => self.report_undecodable(),
                count = woken.recv_many(&mut batch, 1000) => {
                    if count > 0 {
                        self.enqueue(&mut batch);
                    }
                }
                Some(finished) = self.running.join_next(), if !self.running.is_empty() => {
                    if let Ok(finished) = finished {
                        self.record_result(finished);
                    }
                }
                () = sleep_until(due) => {}
            }

            // Every time, so that finished reconciles free their slots even under a flood of events.
            while let Some(finished) = self.running.try_join_next() {
                if let Ok(finished) = finished {
                    self.record_result(finished);
                }
            }
        }

        self.drain(&mut leads).await;
        heart.finish();
    }

    /// Starts or stops reconciling. Running reconciles are aborted, because only the leader may act.
    async fn set_active(&mut self, should_act: bool) {
        if self.is_active == should_act {
            return;
        }
        self.is_active = should_act;
        self.queue.clear();
        if should_act {
            self.reconciler.started_leading().await;
            let resource = self.primary.resource().clone();
            for object in self.primary.sorted() {
                let (share, lane) = (self.reconciler.share(&object), self.reconciler.lane(&object));
                let key = ObjectRef::from_obj_with(object.as_ref(), resource.clone());
                self.queue.add(bare(key), share, lane, Urgency::Resync);
            }
        } else {
            self.running = JoinSet::new();
            self.last_results.clear();
            self.reconciler.stopped_leading();
        }
    }

    fn enqueue(&mut self, batch: &mut Vec<Wake<K>>) {
        for (key, urgency) in batch.drain(..) {
            // An object that is not in the cache yet triggers its own event later.
            if self.is_active
                && let Some(object) = self.primary.get(&key)
            {
                let (share, lane) = (self.reconciler.share(&object), self.reconciler.lane(&object));
                self.queue.add(bare(key), share, lane, urgency);
            }
        }
    }

    fn start_reconciles(&mut self) {
        while self.is_active
            && let Some(key) = self.queue.pick(Instant::now())
        {
            if let Some(object) = self.primary.get(&key) {
                self.start(key, object);
            } else {
                self.queue.forget(&key);
                self.last_results.remove(&key);
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
                        format!("aborted after {} s", RECONCILE_LIMIT.as_secs()),
                    )),
                    Err(panic) => Err(ReconcileError::new("Panic", panic_message(panic.as_ref()))),
                };
                Finished { key, span: outer, took: started.elapsed(), result }
            }
            .instrument(span),
        );
    }

    /// Queues a finished object again, counts its result and logs it if it changed.
    fn record_result(&mut self, finished: Finished<K>) {
        let Finished { key, span, took, result } = finished;
        let now = Instant::now();
        let metrics = &self.context.metrics;
        let elapsed = now.saturating_duration_since(self.started);
        let resync = resync_delay(&key, elapsed, self.context.interval);

        let (summary, is_failure) = match &result {
            Ok(outcome) => {
                match outcome {
                    Outcome::Retry { reason, .. } => metrics.failed(&self.name, reason, took),
                    outcome => metrics.reconciled(&self.name, outcome.name(), took),
                }
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

        let is_changed =
            self.last_results.insert(key, summary.clone()).is_none_or(|before| before != summary);
        span.in_scope(|| match (is_changed, is_failure) {
            (true, true) => tracing::warn!("{summary}"),
            (true, false) => tracing::info!("{summary}"),
            (false, _) => tracing::debug!("{summary}"),
        });
    }

    /// Publishes an Event for every object that cannot be decoded; [`Events`] drops repetitions.
    fn report_undecodable(&mut self) {
        if !self.is_active {
            return;
        }
        for unfit in self.primary.decode_failures() {
            let events = self.context.events.clone();
            tokio::spawn(async move {
                let note =
                    format!("Skipped until it is fixed: the object cannot be decoded: {}", unfit.error);
                events.publish(&unfit.reference, &Event::warning("Undecodable", note)).await;
            });
        }
    }

    /// Waits for running reconciles for a limited time, and only while this replica is the leader.
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

/// Returns a key without the uid and version of its object, which change while the key is in use.
fn bare<K: Kind>(mut key: ObjectRef<K>) -> ObjectRef<K> {
    key.extra = ObjectRefExtra::default();
    key
}

/// Returns the time until the next resync of an object. Each object has its own point in the interval, so that resyncs
/// are spread evenly over it.
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

/// Returns the message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.as_deref().unwrap_or("without a message"))
}

#[cfg(test)]
mod tests;
