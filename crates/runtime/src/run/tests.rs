use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, core::DeserializeGuard, runtime::watcher};
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::{sync::Semaphore, task::JoinHandle};

use super::*;
use crate::cache::Feed;

const INTERVAL: Duration = Duration::from_secs(30);
/// Maximum time to wait for anything; reached only if something is broken.
const LIMIT: Duration = Duration::from_mins(1);

#[test]
fn an_object_is_resynced_once_per_interval_at_its_own_point() {
    let first = resync_delay(&"a", Duration::ZERO, INTERVAL);
    assert!(first <= INTERVAL);
    assert_eq!(resync_delay(&"a", first, INTERVAL), INTERVAL, "exactly at its point: a whole interval");
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
fn the_message_of_a_panic_is_reported() {
    let caught = std::panic::catch_unwind(|| panic!("no {}", "way")).unwrap_err();
    assert_eq!(panic_message(caught.as_ref()), "panicked: no way");
}

/// What happened to a reconcile, in order.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Started(String),
    Finished,
    Dropped,
}

/// A reconciler that runs until the test lets it finish.
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
            events: Events::new(client, "test", "test", vitistack_types::WatchedNamespaces::ALL),
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
        for event in [watcher::Event::Init, watcher::Event::InitApply(guarded), watcher::Event::InitDone] {
            self.feed.handle(event);
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
async fn it_reconciles_only_after_the_cache_is_filled_and_while_leading() {
    let mut bench = Bench::start(false);
    bench.list("x");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(bench.steps.is_empty());
    bench.leads.send_replace(true);
    assert_eq!(bench.step().await, Step::Started("x".into()));
}

#[tokio::test]
async fn losing_the_lease_aborts_reconciles_and_leading_again_restarts_them() {
    let mut bench = Bench::start(true);
    bench.list("x");
    assert_eq!(bench.step().await, Step::Started("x".into()));
    bench.leads.send_replace(false);
    assert_eq!(bench.step().await, Step::Dropped);
    bench.leads.send_replace(true);
    assert_eq!(bench.step().await, Step::Started("x".into()));
}

#[tokio::test]
async fn a_shutdown_lets_running_reconciles_finish() {
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
async fn a_shutdown_without_the_lease_aborts_running_reconciles() {
    let mut bench = Bench::start(true);
    bench.list("x");
    assert_eq!(bench.step().await, Step::Started("x".into()));
    bench.end.cancel();
    bench.leads.send_replace(false);
    assert_eq!(bench.step().await, Step::Dropped);
    bench.ended().await;
}

#[tokio::test]
async fn a_stream_triggers_only_objects_that_exist() {
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
