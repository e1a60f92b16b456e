//! A control plane in the process, an operator on it, and what a user does with both.

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
use vitistack_controller::{
    Caches, Needs,
    backends::{Opener, SimulatedOpener},
    machine::MachineOperator,
};
use vitistack_machine::simulated::{MemoryStore, Settings, WorldStore, world::World};
use vitistack_runtime::{KitArgs, Process};
use vitistack_types::{definitions, v1alpha1::Machine};

use crate::away::AwayOpener;

/// Every cache is filled.
pub const EVERYTHING: Needs = Needs { datacenters: true, networks: true, secrets: true };

/// Longest wait for anything; reached only when something is broken.
const LIMIT: Duration = Duration::from_mins(1);

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    kit: KitArgs,
}

/// Settings of an operator without lease and listeners that looks again every second.
pub fn settings() -> KitArgs {
    settings_every("1s")
}

/// Settings of an operator without lease and listeners that looks again after this time.
pub fn settings_every(interval: &str) -> KitArgs {
    let quiet = ["--leader-election=false", "--metrics-bind-address=0", "--health-probe-bind-address=0"];
    let interval = format!("--reconcile-interval={interval}");
    Arguments::parse_from([&["test", &interval], &quiet[..]].concat()).kit
}

/// Counts the writes that go through it, by method and path.
#[derive(Clone)]
pub struct Counted {
    inner: ApiService,
    writes: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Counted {
    pub fn new(server: &ApiServer) -> Self {
        Self { inner: server.service(), writes: Arc::default() }
    }

    /// All writes but Events, and how often.
    pub fn writes(&self) -> BTreeMap<String, u64> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn total(&self) -> u64 {
        self.writes().values().sum()
    }
}

impl Service<Request<kube::client::Body>> for Counted {
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

/// A control plane that knows the kinds.
pub struct Stage {
    pub server: ApiServer,
    pub client: Client,
    pub world: MemoryStore,
}

/// A running process with operators in it.
pub struct Running {
    end: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    /// Starts a process.
    pub fn start(process: Process) -> Self {
        let end = CancellationToken::new();
        let ended = end.clone();
        let task = tokio::spawn(async move { process.run(ended).await.unwrap() });
        Self { end, task }
    }

    /// Stops it as a user would.
    pub async fn stop(self) {
        self.end.cancel();
        self.task.await.unwrap();
    }
}

fn run_opening(client: Client, opener: Arc<dyn Opener>) -> Running {
    let mut process = Process::new(settings(), client.clone());
    let caches = Caches::new(&mut process, client, EVERYTHING);
    MachineOperator {
        name: "simulated-operator",
        opener,
        is_own_cluster_offered: false,
        tells_homeless: true,
    }
    .add(&mut process, &caches);
    Running::start(process)
}

impl Stage {
    pub async fn new() -> Self {
        let server = ApiServer::builder().build().await.unwrap();
        let client = Client::new(server.service(), "default");
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in definitions() {
            api.create(&PostParams::default(), &definition).await.unwrap();
        }
        Self { server, client, world: MemoryStore::default() }
    }

    /// Starts the operator of simulated providers.
    pub fn run(&self) -> Running {
        self.run_with(self.client.clone())
    }

    /// Starts the operator of simulated providers with a client of its own.
    pub fn run_with(&self, client: Client) -> Running {
        run_opening(client, Arc::new(self.opener()))
    }

    /// Starts the operator of simulated providers that can be away.
    pub fn run_away(&self, away: &watch::Sender<bool>) -> Running {
        run_opening(self.client.clone(), Arc::new(AwayOpener::new(self.opener(), away)))
    }

    fn opener(&self) -> SimulatedOpener {
        let store: Arc<dyn WorldStore> = Arc::new(self.world.clone());
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

    /// Creates an object of ours in the namespace default.
    pub async fn create(&self, kind: &str, name: &str, spec: Value) {
        self.create_annotated(kind, name, spec, &BTreeMap::new()).await;
    }

    /// Creates an object of ours that has annotations already.
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

    /// Changes fields of an object of ours.
    pub async fn change(&self, kind: &str, name: &str, patch: Value) {
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

    /// Adds to a Secret.
    pub async fn change_secret(&self, name: &str, data: &[(&str, &str)]) {
        let data: BTreeMap<&str, &str> = data.iter().copied().collect();
        let api: Api<Secret> = Api::namespaced(self.client.clone(), "default");
        let patch = Patch::Merge(json!({ "stringData": data }));
        api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// The disks that the simulated world has for machines of this name, with their sizes.
    pub async fn disks(&self, machine: &str) -> Vec<String> {
        let stored = self.world.load().await.unwrap();
        let records = stored.records.iter().map(Vec::as_slice);
        let world = World::restore(Settings::default(), records, jiff::Timestamp::now()).unwrap();
        let stem = format!("{machine}-");
        let mut disks: Vec<String> = world
            .volumes()
            .filter(|volume| volume.name.starts_with(&stem))
            .map(|volume| format!("{} {}", volume.shape.disk, volume.shape.size))
            .collect();
        disks.sort();
        disks
    }

    pub fn machines(&self) -> Api<Machine> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Waits until the Machine is so; tells how it is when it never gets there.
    pub async fn until(&self, name: &str, is_so: impl Fn(&Machine) -> bool) -> Machine {
        let started = std::time::Instant::now();
        loop {
            let machine = self.machines().get(name).await.unwrap();
            if is_so(&machine) {
                return machine;
            }
            assert!(started.elapsed() < LIMIT, "{name} never got there: {:#?}", machine.status);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the Ready condition of the Machine has this reason; returns its message.
    pub async fn until_reason(&self, name: &str, reason: &str) -> String {
        let machine = self.until(name, |machine| ready(machine).0 == reason).await;
        ready(&machine).1
    }

    /// Waits until there is no such Machine.
    pub async fn until_gone(&self, name: &str) {
        let started = std::time::Instant::now();
        while let Some(machine) = self.machines().get_opt(name).await.unwrap() {
            assert!(started.elapsed() < LIMIT, "{name} never went: {machine:#?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Reasons and notes of the Events about an object, oldest first.
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

/// Reason and message of the Ready condition.
pub fn ready(machine: &Machine) -> (String, String) {
    let conditions = machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    ready.map(|ready| (ready.reason.clone(), ready.message.clone())).unwrap_or_default()
}

/// A condition of the Machine.
pub fn condition<'a>(machine: &'a Machine, type_: &str) -> Option<&'a Condition> {
    machine.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_)
}
