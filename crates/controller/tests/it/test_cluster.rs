//! An in-process control plane with an operator, and the actions of a user on them.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use clap::Parser;
use http::{Method, Request, Response};
use k8s_openapi::{
    api::{core::v1::Secret, events::v1::Event},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
    discovery::ApiResource,
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tower::Service;
use vitistack_apiserver::{ApiServer, ApiService};
use vitistack_controller::{Caches, Needs, machine::MachineOperator};
use vitistack_machine::{
    BackendOpener,
    simulated::{MemoryStore, Settings, SimulatedOpener, WorldStore, world::World},
};
use vitistack_runtime::{OperatorArgs, Process};
use vitistack_types::{definitions, v1alpha1::Machine};

use crate::unreachable::UnreachableOpener;

/// Fills every cache.
pub const EVERYTHING: Needs = Needs { datacenters: true, networks: true, secrets: true, namespaces: true };

/// The longest wait for anything; reached only when something is broken.
const LIMIT: Duration = Duration::from_mins(1);

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    kit: OperatorArgs,
}

/// Returns the settings of an operator without lease and listeners that resyncs every second.
pub fn settings() -> OperatorArgs {
    settings_every("1s")
}

/// Returns the settings of an operator without lease and listeners that resyncs at this interval.
pub fn settings_every(interval: &str) -> OperatorArgs {
    let quiet = ["--leader-election=false", "--metrics-bind-address=0", "--health-probe-bind-address=0"];
    let interval = format!("--reconcile-interval={interval}");
    Arguments::parse_from([&["test", &interval], &quiet[..]].concat()).kit
}

/// Forwards requests to the API and counts the writes by method and path.
#[derive(Clone)]
pub struct WriteCounter {
    inner: ApiService,
    writes: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl WriteCounter {
    pub fn new(server: &ApiServer) -> Self {
        Self { inner: server.service(), writes: Arc::default() }
    }

    /// Returns how often each write was sent, without Events.
    pub fn writes(&self) -> BTreeMap<String, u64> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn total(&self) -> u64 {
        self.writes().values().sum()
    }
}

impl Service<Request<kube::client::Body>> for WriteCounter {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <ApiService as Service<Request<kube::client::Body>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let path = request.uri().path();
        if *request.method() != Method::GET && !path.contains("/events") {
            let what = format!("{} {path}", request.method());
            *self.writes.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
        }
        self.inner.call(request)
    }
}

/// A control plane with our CRDs.
pub struct TestCluster {
    pub server: ApiServer,
    pub client: Client,
    /// The store of the simulated providers.
    pub store: MemoryStore,
}

/// A running process with its operators.
pub struct RunningProcess {
    end: CancellationToken,
    task: JoinHandle<()>,
}

impl RunningProcess {
    /// Starts a process.
    pub fn start(process: Process) -> Self {
        let end = CancellationToken::new();
        let ended = end.clone();
        let task = tokio::spawn(async move { process.run(ended).await.unwrap() });
        Self { end, task }
    }

    /// Stops the process gracefully and waits for its end.
    pub async fn stop(self) {
        self.end.cancel();
        self.task.await.unwrap();
    }
}

/// Starts the operator of simulated providers with this opener.
fn run_with_opener(client: Client, opener: Arc<dyn BackendOpener>) -> RunningProcess {
    let mut process = Process::new(settings(), client.clone());
    let caches = Caches::new(&mut process, client, EVERYTHING);
    MachineOperator {
        name: "simulated-operator".to_owned(),
        opener,
        is_own_cluster_offered: false,
        reports_unplaceable: true,
    }
    .add(&mut process, &caches);
    RunningProcess::start(process)
}

impl TestCluster {
    pub async fn new() -> Self {
        let server = ApiServer::builder().build().await.unwrap();
        let client = Client::new(server.service(), "default");
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in definitions() {
            api.create(&PostParams::default(), &definition).await.unwrap();
        }
        Self { server, client, store: MemoryStore::default() }
    }

    /// Starts the operator of simulated providers.
    pub fn run(&self) -> RunningProcess {
        self.run_with(self.client.clone())
    }

    /// Starts the operator of simulated providers with this client.
    pub fn run_with(&self, client: Client) -> RunningProcess {
        run_with_opener(client, Arc::new(self.opener()))
    }

    /// Starts the operator of simulated providers that do not answer while `is_unreachable` is true.
    pub fn run_unreachable(&self, is_unreachable: &watch::Sender<bool>) -> RunningProcess {
        run_with_opener(self.client.clone(), Arc::new(UnreachableOpener::new(self.opener(), is_unreachable)))
    }

    fn opener(&self) -> SimulatedOpener {
        let store: Arc<dyn WorldStore> = Arc::new(self.store.clone());
        SimulatedOpener::new(Arc::new(move |_| Arc::clone(&store)))
    }

    fn dynamic(&self, kind: &str) -> Api<DynamicObject> {
        let definition =
            definitions().into_iter().find(|definition| definition.spec.names.kind == kind).unwrap();
        let names = &definition.spec.names;
        let resource = ApiResource {
            group: "vitistack.io".into(),
            version: "v1alpha1".into(),
            api_version: "vitistack.io/v1alpha1".into(),
            kind: kind.into(),
            plural: names.plural.clone(),
        };

        if definition.spec.scope == "Namespaced" {
            Api::namespaced_with(self.client.clone(), "default", &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        }
    }

    /// Creates an object of one of our kinds in the namespace default.
    pub async fn create(&self, kind: &str, name: &str, spec: Value) {
        self.create_annotated(kind, name, spec, &BTreeMap::new()).await;
    }

    /// Creates an object of one of our kinds with annotations.
    pub async fn create_annotated(
        &self,
        kind: &str,
        name: &str,
        spec: Value,
        annotations: &BTreeMap<String, String>,
    ) {
        let manifest = json!({
            "apiVersion": "vitistack.io/v1alpha1", "kind": kind, "spec": spec,
            "metadata": { "name": name, "annotations": annotations },
        });
        let object: DynamicObject = serde_json::from_value(manifest).unwrap();
        self.dynamic(kind).create(&PostParams::default(), &object).await.unwrap();
    }

    /// Patches an object of one of our kinds.
    pub async fn patch(&self, kind: &str, name: &str, patch: Value) {
        self.dynamic(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn delete(&self, kind: &str, name: &str) {
        self.dynamic(kind).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Creates a Secret.
    pub async fn create_secret(&self, name: &str, data: &[(&str, &str)]) {
        let data: BTreeMap<&str, &str> = data.iter().copied().collect();
        let secret: Secret =
            serde_json::from_value(json!({ "metadata": { "name": name }, "stringData": data })).unwrap();
        let api: Api<Secret> = Api::namespaced(self.client.clone(), "default");
        api.create(&PostParams::default(), &secret).await.unwrap();
    }

    /// Adds keys to a Secret.
    pub async fn patch_secret(&self, name: &str, data: &[(&str, &str)]) {
        let data: BTreeMap<&str, &str> = data.iter().copied().collect();
        let api: Api<Secret> = Api::namespaced(self.client.clone(), "default");
        let patch = Patch::Merge(json!({ "stringData": data }));
        api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Returns the disks that the simulated provider has for machines of this name, with their sizes.
    pub async fn disks(&self, machine: &str) -> Vec<String> {
        let stored = self.store.load().await.unwrap();
        let records = stored.records.iter().map(Vec::as_slice);
        let world = World::restore(Settings::default(), records, jiff::Timestamp::now()).unwrap();
        let prefix = format!("{machine}-");
        let mut disks: Vec<String> = world
            .volumes()
            .filter(|volume| volume.name.starts_with(&prefix))
            .map(|volume| format!("{} {}", volume.shape.disk, volume.shape.size))
            .collect();
        disks.sort();
        disks
    }

    pub fn machines(&self) -> Api<Machine> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Waits until the Machine satisfies the condition, and returns it; panics with its status if it never
    /// does.
    pub async fn wait_until(&self, name: &str, is_met: impl Fn(&Machine) -> bool) -> Machine {
        let started = std::time::Instant::now();
        loop {
            let machine = self.machines().get(name).await.unwrap();
            if is_met(&machine) {
                return machine;
            }
            assert!(
                started.elapsed() < LIMIT,
                "{name} never reached the expected state: {:#?}",
                machine.status
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the Ready condition of the Machine has this reason; returns its message.
    pub async fn wait_for_reason(&self, name: &str, reason: &str) -> String {
        let machine = self.wait_until(name, |machine| ready(machine).0 == reason).await;
        ready(&machine).1
    }

    /// Waits until the Machine is deleted.
    pub async fn wait_for_deletion(&self, name: &str) {
        let started = std::time::Instant::now();
        while let Some(machine) = self.machines().get_opt(name).await.unwrap() {
            assert!(started.elapsed() < LIMIT, "{name} was never deleted: {machine:#?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns type, reason and note of the Events about an object, oldest first.
    pub async fn events(&self, name: &str) -> Vec<String> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let mut events = api.list(&ListParams::default()).await.unwrap().items;
        events.retain(|event| {
            event.regarding.as_ref().is_some_and(|about| about.name.as_deref() == Some(name))
        });
        events.sort_by_key(|event| event.event_time.as_ref().map(|time| time.0));
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        events
            .iter()
            .map(|event| format!("{} {}: {}", text(&event.type_), text(&event.reason), text(&event.note)))
            .collect()
    }
}

/// Returns the reason and the message of the Ready condition.
pub fn ready(machine: &Machine) -> (String, String) {
    let conditions = machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    ready.map(|ready| (ready.reason.clone(), ready.message.clone())).unwrap_or_default()
}

/// Returns a condition of the Machine.
pub fn condition<'a>(machine: &'a Machine, type_: &str) -> Option<&'a Condition> {
    machine.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_)
}
