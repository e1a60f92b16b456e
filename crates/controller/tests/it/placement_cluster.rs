//! An in-process control plane with the Datacenter and the MachineProvider operator.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::events::v1::Event;
use kube::{
    Api, Client, Resource,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use vitistack_controller::{Caches, datacenter, machine_provider};
use vitistack_machine::{
    BackendContext, backend_type,
    simulated::{KubernetesStore, Stores, world_of},
};
use vitistack_runtime::{OperatorArgs, Process};
use vitistack_types::{
    ObjectReference, labels,
    v1alpha1::{Datacenter, Machine, MachineProvider, ProviderReference, ProviderType, ResourceQuotas},
};

use crate::test_cluster::{EVERYTHING, RunningProcess, TestCluster, WriteCounter, settings, settings_every};

/// The longest wait for anything; reached only when something is broken.
const LIMIT: Duration = Duration::from_mins(1);
/// The interval between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A control plane with the Datacenter and the MachineProvider operator.
pub struct PlacementCluster {
    pub client: Client,
    counter: WriteCounter,
    running: Option<RunningProcess>,
    settings: OperatorArgs,
}

impl PlacementCluster {
    /// Starts a control plane and both operators, which resync every second.
    pub async fn new() -> Self {
        Self::with(settings()).await
    }

    /// Starts a control plane and both operators, which reconcile only what has changed.
    pub async fn without_resync() -> Self {
        Self::with(settings_every("1h")).await
    }

    async fn with(settings: OperatorArgs) -> Self {
        let TestCluster { client, server, .. } = TestCluster::new().await;
        let mut cluster = Self { client, counter: WriteCounter::new(&server), running: None, settings };
        cluster.start();
        cluster
    }

    /// Starts the operators.
    pub fn start(&mut self) {
        let client = Client::new(self.counter.clone(), "default");
        let mut process = Process::new(self.settings.clone(), client.clone());
        let caches = Caches::new(&mut process, client, EVERYTHING);
        datacenter::add(&mut process, &caches);
        let backend = backend_type(ProviderType::Simulated);
        let context = BackendContext {
            client: self.client.clone(),
            watched: vitistack_types::WatchedNamespaces::ALL,
            stores: self.stores(),
        };
        machine_provider::add(&mut process, &caches, [backend], context);
        self.running = Some(RunningProcess::start(process));
    }

    /// Returns the stores of the simulated providers.
    pub fn stores(&self) -> Stores {
        let client = self.client.clone();
        Arc::new(move |provider| {
            Arc::new(KubernetesStore::new(client.clone(), "default", &world_of(provider)))
        })
    }

    /// Stops the operators.
    pub async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop().await;
        }
    }

    /// Returns how many writes the operators have sent so far, without Events.
    pub fn writes(&self) -> u64 {
        self.counter.total()
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    pub async fn create<K>(&self, object: &K) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        self.api().create(&PostParams::default(), object).await.unwrap()
    }

    pub async fn patch<K>(&self, name: &str, patch: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Adds our finalizer, as the backend does before its first create.
    pub async fn claim(&self, machine: &str) {
        self.patch::<Machine>(machine, json!({"metadata": {"finalizers": [labels::MACHINE_CLEANUP]}})).await;
    }

    pub async fn machine(&self, name: &str) -> Machine {
        self.api().get(name).await.unwrap()
    }

    pub async fn machines(&self) -> Vec<Machine> {
        self.api().list(&ListParams::default()).await.unwrap().items
    }

    /// Returns the reasons of the Events about an object, in no particular order.
    pub async fn events(&self, name: &str) -> Vec<String> {
        let events = self.api::<Event>().list(&ListParams::default()).await.unwrap().items;
        let about =
            |event: &Event| event.regarding.as_ref().is_some_and(|it| it.name.as_deref() == Some(name));
        events.into_iter().filter(about).filter_map(|event| event.reason).collect()
    }

    /// Waits until the condition holds.
    pub async fn wait_until<F: Future<Output = bool>>(&self, what: &str, mut holds: impl FnMut() -> F) {
        let waiting = async {
            while !holds().await {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        assert!(tokio::time::timeout(LIMIT, waiting).await.is_ok(), "the condition was never met: {what}");
    }

    /// Waits until several resyncs have caused no write; panics if that never happens.
    pub async fn wait_until_quiet(&self) {
        let waiting = async {
            loop {
                let before = self.writes();
                tokio::time::sleep(Duration::from_secs(4)).await;
                if self.writes() == before {
                    return;
                }
            }
        };
        assert!(tokio::time::timeout(LIMIT, waiting).await.is_ok(), "the operators never stop writing");
    }
}

pub fn provider(name: &str) -> MachineProvider {
    let check = json!({"interval": "100ms", "timeout": "5s", "failureThreshold": 2});
    let builder = MachineProvider::builder().provider_type(ProviderType::Simulated);
    builder.health_check(serde_json::from_value(check).unwrap()).build(name, "default").unwrap()
}

pub fn datacenter(providers: &[&str], max_machines: Option<u32>) -> Datacenter {
    let references: Vec<ProviderReference> = (1..)
        .zip(providers)
        .map(|(priority, name)| ProviderReference::builder().name(*name).priority(priority).build())
        .collect();
    Datacenter::builder()
        .region("west")
        .machine_providers(references)
        .resource_quotas(ResourceQuotas::builder().maybe_max_machines(max_machines).build())
        .build("west", "default")
        .unwrap()
}

pub fn machine(name: &str) -> Machine {
    let datacenter = ObjectReference::builder().name("west").build();
    Machine::builder().template("small").datacenter_ref(datacenter).build(name, "default").unwrap()
}

pub fn placement(machine: &Machine) -> Option<String> {
    vitistack_plan::machine::placement(machine).map(|placement| placement.to_string())
}

/// Returns the reason of the Ready condition.
pub fn reason(conditions: Option<&[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition]>) -> String {
    let ready = conditions.unwrap_or_default().iter().find(|condition| condition.type_ == "Ready");
    ready.map(|ready| ready.reason.clone()).unwrap_or_default()
}

pub fn machine_reason(machine: &Machine) -> String {
    reason(machine.status.as_ref().map(|status| status.conditions.as_slice()))
}
