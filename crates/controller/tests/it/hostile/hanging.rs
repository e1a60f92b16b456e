//! Providers that accept requests and never answer them.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use vitistack_controller::{Caches, datacenter, machine::MachineOperator, machine_provider};
use vitistack_machine::{
    Backend, BackendContext, BackendError, BackendOpener, ErrorKind, OpenBackend, Order, Part, Progress,
    ProviderConfig, Target, Update, backend_type,
    simulated::{MemoryStore, SimulatedOpener, Stores},
};
use vitistack_plan::{
    Refusal,
    machine::{Capabilities, Observed, placement},
};
use vitistack_runtime::Process;
use vitistack_types::v1alpha1::{Machine, MachineProvider, ProviderType};

use crate::test_cluster::{EVERYTHING, RunningProcess, TestCluster, ready, settings};

/// How long a request to a cluster is waited for.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// The Machines of the attacker.
const MACHINES: usize = 30;

/// Opens simulated providers, of which those in the namespace `default` whose name starts with `hanging` hang on writes.
struct HangingOpener(SimulatedOpener);

#[async_trait]
impl BackendOpener for HangingOpener {
    fn provider_type(&self) -> ProviderType {
        self.0.provider_type()
    }

    fn fingerprint(&self, source: &ProviderConfig) -> String {
        self.0.fingerprint(source)
    }

    async fn open(&self, source: &ProviderConfig) -> Result<OpenBackend, Refusal> {
        let name = source.provider.as_ref().and_then(|provider| provider.metadata.name.clone());
        let open = self.0.open(source).await?;
        if !name.is_some_and(|name| name.starts_with("hanging")) {
            return Ok(open);
        }
        Ok(OpenBackend { backend: Arc::new(HangingBackend(open.backend)), changes: open.changes })
    }

    fn close(&self) {
        self.0.close();
    }
}

struct HangingBackend(Arc<dyn Backend>);

async fn hang() -> Result<Progress, BackendError> {
    tokio::time::sleep(ANSWER_LIMIT).await;
    Err(BackendError::new(
        ErrorKind::Unreachable,
        "SimulatedProviderError",
        "the provider did not answer in time",
    ))
}

#[async_trait]
impl Backend for HangingBackend {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn observe(&self, target: &Target, order: Option<&Order>) -> Result<Observed, BackendError> {
        self.0.observe(target, order).await
    }

    async fn create(&self, _: &Order) -> Result<Progress, BackendError> {
        hang().await
    }

    async fn update(&self, _: &Order, _: &Update) -> Result<Progress, BackendError> {
        hang().await
    }

    async fn delete(&self, _: &Target, _: &Part) -> Result<Progress, BackendError> {
        hang().await
    }
}

/// Starts all operators in one process, with the default number of concurrent reconciles.
fn run(cluster: &TestCluster) -> RunningProcess {
    let client = cluster.client.clone();
    let mut process = Process::new(settings(), client.clone());
    let caches = Caches::new(&mut process, client.clone(), EVERYTHING);
    datacenter::add(&mut process, &caches);
    let stores: Stores = Arc::new(|_| Arc::new(MemoryStore::default()));
    let context = BackendContext {
        client,
        watched: vitistack_types::WatchedNamespaces::ALL,
        stores: Arc::clone(&stores),
    };
    machine_provider::add(&mut process, &caches, [backend_type(ProviderType::Simulated)], context);
    MachineOperator {
        name: "simulated-operator".to_owned(),
        opener: Arc::new(HangingOpener(SimulatedOpener::new(stores))),
        is_own_cluster_offered: false,
        reports_unplaceable: true,
    }
    .add(&mut process, &caches);
    RunningProcess::start(process)
}

/// Creates a Machine of another tenant, on a provider of its own, and returns how long it takes until it runs.
async fn time_to_create(cluster: &TestCluster, name: &str) -> Duration {
    let machines: Api<Machine> = Api::namespaced(cluster.client.clone(), "other");
    let machine: Machine = serde_json::from_value(json!({
        "apiVersion": "vitistack.io/v1alpha1", "kind": "Machine", "metadata": { "name": name },
        "spec": { "template": "small", "providerRef": { "name": "well" } },
    }))
    .unwrap();
    let started = Instant::now();
    machines.create(&PostParams::default(), &machine).await.unwrap();
    loop {
        let machine = machines.get(name).await.unwrap();
        if ready(&machine).0 == "Running" {
            return started.elapsed();
        }
        assert!(started.elapsed() < Duration::from_mins(10), "{name} never ran: {:#?}", machine.status);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Creates the other tenant's namespace and provider.
async fn create_other_tenant(cluster: &TestCluster) {
    let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": "other" } })).unwrap();
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let provider: MachineProvider = serde_json::from_value(json!({
        "apiVersion": "vitistack.io/v1alpha1", "kind": "MachineProvider", "metadata": { "name": "well" },
        "spec": { "type": "simulated" },
    }))
    .unwrap();
    let providers: Api<MachineProvider> = Api::namespaced(cluster.client.clone(), "other");
    providers.create(&PostParams::default(), &provider).await.unwrap();
}

async fn create_machines(cluster: &TestCluster, spec: &Value) {
    for number in 0..MACHINES {
        cluster.create("Machine", &format!("machine-{number}"), spec.clone()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn thirty_machines_on_a_hanging_provider_do_not_delay_another_tenant() {
    let cluster = TestCluster::new().await;
    create_other_tenant(&cluster).await;
    let running = run(&cluster);
    let before = time_to_create(&cluster, "before").await;

    for provider in ["hanging-1", "hanging-2", "hanging-3"] {
        cluster.create("MachineProvider", provider, json!({ "type": "simulated" })).await;
        for number in 0..MACHINES {
            let spec = json!({ "template": "small", "providerRef": { "name": provider } });
            cluster.create("Machine", &format!("{provider}-{number}"), spec).await;
        }
    }
    // Long enough for the queue to be full of them, and for the first requests to end.
    for (round, wait) in [1, 10, 20, 30].into_iter().enumerate() {
        tokio::time::sleep(Duration::from_secs(wait)).await;
        let during = time_to_create(&cluster, &format!("during-{round}")).await;
        assert!(during <= before * 2 + Duration::from_millis(600), "{during:?}, {before:?} before");
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn machines_that_a_hanging_provider_was_not_asked_for_fail_over_within_ten_seconds() {
    let cluster = TestCluster::new().await;
    for provider in ["hanging", "well"] {
        cluster.create("MachineProvider", provider, json!({ "type": "simulated" })).await;
    }
    let providers = json!([{ "name": "hanging", "priority": 1 }, { "name": "well", "priority": 2 }]);
    cluster.create("Datacenter", "west", json!({ "region": "west", "machineProviders": providers })).await;
    let running = run(&cluster);
    let all: Api<MachineProvider> = Api::namespaced(cluster.client.clone(), "default");
    let is_ready = |provider: &MachineProvider| {
        let conditions = provider.status.as_ref().map(|status| status.conditions.as_slice());
        conditions.unwrap_or_default().iter().any(|each| each.type_ == "Ready" && each.status == "True")
    };
    while !all.list(&ListParams::default()).await.unwrap().items.iter().all(is_ready) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    let started = Instant::now();
    create_machines(&cluster, &json!({ "template": "small", "datacenterRef": { "name": "west" } })).await;
    let on_well = async || {
        let machines = cluster.machines().list(&ListParams::default()).await.unwrap().items;
        let is_on_well =
            |machine: &&Machine| placement(machine).is_some_and(|at| at.to_string() == "default/well");
        machines.iter().filter(is_on_well).count()
    };
    // As many as there are slots were requested at once, and stay until the provider answers.
    while on_well().await < MACHINES - 5 {
        assert!(started.elapsed() < Duration::from_secs(10), "{} failed over", on_well().await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    running.stop().await;
}
