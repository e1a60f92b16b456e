//! One life of an operator's process: everything that it can reach goes through here, so that it can be ended between any
//! two things it does, and so that nothing it does after its end stays unnoticed.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    future::{Future, pending},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use axum::body::Body;
use http::{Method, Request, Response};
use serde_json::Value;
use tokio::sync::Notify;
use tower::{Layer, Service, ServiceExt};
use vitistack_apiserver::{
    ApiService,
    faults::{Crash, FaultLayer, FaultPlan, Faulty},
};
use vitistack_controller::backends::{Opened, Opener, SimulatedOpener, Source};
use vitistack_machine::{
    Backend, BackendError, Order, Part, Progress, Target, Update,
    simulated::{MemoryStore, StoreError, Stored, WorldStore},
};
use vitistack_plan::{
    Refusal,
    machine::{Capabilities, Observed},
};
use vitistack_types::v1alpha1::ProviderType;

use super::random::{Random, RuntimeClock};

/// Something that the process does and that can be its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// Before the n-th write to the API, counted from 1 over all lives.
    BeforeWrite(u64),
    /// After it, unheard.
    AfterWrite(u64),
    /// Before the n-th step in a provider.
    BeforeStep(u64),
    /// After it, unheard.
    AfterStep(u64),
}

/// What all lives of one play share.
pub struct Script {
    pub clock: RuntimeClock,
    began: Duration,
    crashes: BTreeSet<Point>,
    /// Whether API and stores have faults now.
    pub is_faulty: AtomicBool,
    store_faults: Mutex<Option<(Random, u64)>>,
    writes: AtomicU64,
    steps: AtomicU64,
    pub events: AtomicU64,
    activity: AtomicU64,
    pub ghosts: AtomicU64,
    told: Mutex<Vec<String>>,
    /// Who is where: identities by provider and number, as the journals of the worlds have them.
    seen: Mutex<BTreeMap<(String, String), String>>,
    /// Identities that were in two places at a time.
    pub doubles: Mutex<BTreeSet<String>>,
}

impl Script {
    pub fn new(
        clock: RuntimeClock,
        crashes: BTreeSet<Point>,
        store_faults: Option<(Random, u64)>,
    ) -> Arc<Self> {
        Arc::new(Self {
            clock,
            began: clock.elapsed(),
            crashes,
            is_faulty: AtomicBool::new(true),
            store_faults: Mutex::new(store_faults),
            writes: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            events: AtomicU64::new(0),
            activity: AtomicU64::new(0),
            ghosts: AtomicU64::new(0),
            told: Mutex::default(),
            seen: Mutex::default(),
            doubles: Mutex::default(),
        })
    }

    /// How many writes and steps there were.
    pub fn counts(&self) -> (u64, u64) {
        (self.writes.load(Ordering::SeqCst), self.steps.load(Ordering::SeqCst))
    }

    /// A number that grows with everything that is changed anywhere.
    pub fn activity(&self) -> u64 {
        self.activity.load(Ordering::SeqCst)
    }

    /// Adds a line to the story.
    pub fn tell(&self, line: &str) {
        let time = self.clock.since(self.began).as_secs_f64();
        let line = format!("{time:9.3} s  {line}");
        lock(&self.told).push(line);
    }

    /// Everything that happened.
    pub fn story(&self) -> Vec<String> {
        lock(&self.told).clone()
    }

    /// Notes who is where after a world was saved.
    fn saved(&self, provider: &str, record: &[u8]) {
        self.activity.fetch_add(1, Ordering::SeqCst);
        let record: Value = serde_json::from_slice(record).unwrap();
        let mut seen = lock(&self.seen);
        for (id, machine) in record["machines"].as_object().unwrap() {
            let place = (provider.to_owned(), id.clone());
            match machine["tag"].as_str() {
                Some(tag) => seen.insert(place, tag.to_owned()),
                None => seen.remove(&place),
            };
        }
        let mut tags = BTreeSet::new();
        lock(&self.doubles).extend(seen.values().filter(|tag| !tags.insert(*tag)).cloned());
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One life. Ends at a point of the script, or when it is told to.
pub struct Life {
    script: Arc<Script>,
    is_over: AtomicBool,
    is_buried: AtomicBool,
    pub over: Notify,
}

impl Life {
    pub fn new(script: &Arc<Script>) -> Arc<Self> {
        let (is_over, is_buried) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { script: Arc::clone(script), is_over, is_buried, over: Notify::new() })
    }

    /// From here on everything that it still does is told as the work of a ghost.
    pub fn bury(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.is_buried.store(true, Ordering::SeqCst);
    }

    /// Ends here if this is the point; nothing after it is reached.
    async fn pass(&self, point: Option<Point>) {
        if let Some(point) = point.filter(|point| self.script.crashes.contains(point)) {
            self.script.tell(&format!("the operator dies: {point:?}"));
            self.is_over.store(true, Ordering::SeqCst);
            self.over.notify_one();
        }
        if self.is_buried.load(Ordering::SeqCst) {
            self.script.tell("a dead operator does something");
            self.script.ghosts.fetch_add(1, Ordering::SeqCst);
        }
        if self.is_over.load(Ordering::SeqCst) {
            pending::<()>().await;
        }
    }
}

impl Life {
    /// Takes an Event without storing it: nobody here reads it, and it would take half of the time. To die at an Event is
    /// to die after the write before it.
    async fn hear(&self, request: Request<kube::client::Body>) -> Response<Body> {
        self.pass(None).await;
        self.script.events.fetch_add(1, Ordering::SeqCst);
        let event = request.into_body().collect_bytes().await.unwrap();
        Response::builder().status(201).body(Body::from(event)).unwrap()
    }
}

/// The API as one life sees it.
#[derive(Clone)]
pub struct Gate {
    life: Arc<Life>,
    calm: ApiService,
    faulty: Faulty<ApiService>,
    /// For reads of one object, which may be stale; a list never is.
    stale: Faulty<ApiService>,
}

/// The faults of the API, for all lives.
#[derive(Clone)]
pub struct Faults {
    faulty: Faulty<ApiService>,
    stale: Faulty<ApiService>,
}

impl Faults {
    pub fn new(service: &ApiService, plan: &FaultPlan, stale: &FaultPlan) -> Self {
        let layered = |plan: &FaultPlan| FaultLayer::new(plan.clone()).layer(service.clone());
        Self { faulty: layered(plan), stale: layered(stale) }
    }
}

impl Gate {
    pub fn new(life: &Arc<Life>, service: &ApiService, faults: &Faults) -> Self {
        let Faults { faulty, stale } = faults.clone();
        Self { life: Arc::clone(life), calm: service.clone(), faulty, stale }
    }

    async fn handle(self, request: Request<kube::client::Body>) -> Result<Response<Body>, Crash> {
        let Self { life, calm, faulty, stale } = self;
        let script = &life.script;
        let is_write = !matches!(*request.method(), Method::GET | Method::HEAD);
        let path = request.uri().path().to_owned();
        if is_write && path.ends_with("/events") {
            return Ok(life.hear(request).await);
        }
        let is_counted = is_write && !life.is_over.load(Ordering::SeqCst);
        let number = is_counted.then(|| script.writes.fetch_add(1, Ordering::SeqCst) + 1);
        life.pass(number.map(Point::BeforeWrite)).await;
        let what = format!(
            "{} {}",
            request.method(),
            path.rsplit_once("/namespaces/").map_or(&*path, |(_, tail)| tail)
        );
        let answer = if !script.is_faulty.load(Ordering::SeqCst) {
            let Ok(answer): Result<_, Infallible> = calm.oneshot(request).await;
            Ok(answer)
        } else if !is_write && names_one(&path) {
            stale.oneshot(request).await
        } else {
            faulty.oneshot(request).await
        };
        if let Some(number) = number {
            script.activity.fetch_add(1, Ordering::SeqCst);
            let how = match &answer {
                Ok(answer) => answer.status().as_u16().to_string(),
                Err(crash) => crash.to_string(),
            };
            script.tell(&format!("write {number}: {what}: {how}"));
        }
        life.pass(number.map(Point::AfterWrite)).await;
        answer
    }
}

/// Whether the path is that of one object.
fn names_one(path: &str) -> bool {
    path.starts_with("/api/v1/namespaces/") && path.split('/').count() == 7
}

impl Service<Request<kube::client::Body>> for Gate {
    type Response = Response<Body>;
    type Error = Crash;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Crash>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Crash>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        Box::pin(self.clone().handle(request))
    }
}

/// Opens simulated providers for one life.
pub struct LifeOpener {
    pub life: Arc<Life>,
    pub inner: SimulatedOpener,
}

#[async_trait]
impl Opener for LifeOpener {
    fn provider_type(&self) -> ProviderType {
        self.inner.provider_type()
    }

    fn fingerprint(&self, source: &Source) -> String {
        self.inner.fingerprint(source)
    }

    async fn open(&self, source: &Source) -> Result<Opened, Refusal> {
        let Opened { backend, changes } = self.inner.open(source).await?;
        let backend = Arc::new(LifeBackend { life: Arc::clone(&self.life), inner: backend });
        Ok(Opened { backend, changes })
    }

    fn close(&self) {
        self.inner.close();
    }
}

/// A provider as one life sees it.
struct LifeBackend {
    life: Arc<Life>,
    inner: Arc<dyn Backend>,
}

impl LifeBackend {
    async fn step<R>(
        &self,
        what: String,
        work: impl Future<Output = Result<R, BackendError>> + Send,
    ) -> Result<R, BackendError>
    where
        R: std::fmt::Debug + Send,
    {
        let script = &self.life.script;
        let is_over = self.life.is_over.load(Ordering::SeqCst);
        let number = (!is_over).then(|| script.steps.fetch_add(1, Ordering::SeqCst) + 1);
        self.life.pass(number.map(Point::BeforeStep)).await;
        let answer = work.await;
        let how = match &answer {
            Ok(progress) => format!("{progress:?}"),
            Err(error) => error.to_string(),
        };
        script.tell(&format!("step {}: {what}: {how}", number.unwrap_or_default()));
        self.life.pass(number.map(Point::AfterStep)).await;
        answer
    }
}

#[async_trait]
impl Backend for LifeBackend {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn observe(&self, target: &Target, order: Option<&Order>) -> Result<Observed, BackendError> {
        self.life.pass(None).await;
        self.inner.observe(target, order).await
    }

    async fn create(&self, order: &Order) -> Result<Progress, BackendError> {
        self.step(format!("create {}", order.target.name), self.inner.create(order)).await
    }

    async fn update(&self, order: &Order, update: &Update) -> Result<Progress, BackendError> {
        self.step(format!("{update:?} {}", order.target.name), self.inner.update(order, update)).await
    }

    async fn delete(&self, target: &Target, part: &Part) -> Result<Progress, BackendError> {
        self.step(format!("delete {part:?} {}", target.name), self.inner.delete(target, part)).await
    }
}

/// The store of a world as one life sees it.
pub struct LifeStore {
    pub life: Arc<Life>,
    pub provider: String,
    pub inner: MemoryStore,
}

impl LifeStore {
    async fn write(&self, expected: u64, record: Vec<u8>, is_all: bool) -> Result<u64, StoreError> {
        self.life.pass(None).await;
        let script = &self.life.script;
        let fault = if script.is_faulty.load(Ordering::SeqCst) {
            let mut faults = lock(&script.store_faults);
            faults.as_mut().and_then(|(random, percent)| {
                let percent = *percent;
                random.is(percent).then(|| random.is(50))
            })
        } else {
            None
        };
        if fault == Some(false) {
            script.tell("the store of the world fails before it wrote");
            return Err(broken(&self.provider));
        }
        let written = if is_all {
            self.inner.replace(expected, record.clone()).await
        } else {
            self.inner.append(expected, record.clone()).await
        };
        if written.is_ok() {
            script.saved(&self.provider, &record);
        }
        if fault == Some(true) {
            script.tell("the store of the world fails after it wrote");
            return Err(broken(&self.provider));
        }
        written
    }
}

fn broken(provider: &str) -> StoreError {
    let source = std::io::Error::other("planned fault");
    StoreError::ReachStore { action: "write", path: provider.to_owned(), source }
}

#[async_trait]
impl WorldStore for LifeStore {
    async fn load(&self) -> Result<Stored, StoreError> {
        self.life.pass(None).await;
        self.inner.load().await
    }

    async fn append(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError> {
        self.write(expected, record, false).await
    }

    async fn replace(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError> {
        self.write(expected, record, true).await
    }

    async fn delete_all(&self) -> Result<(), StoreError> {
        self.inner.delete_all().await
    }
}
