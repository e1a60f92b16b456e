//! Plays scenarios on a control plane in the process.

use std::sync::{Arc, Mutex};

use clap::Parser;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, api::PostParams};
use uuid::Uuid;
use vitistack_apiserver::ApiServer;
use vitistack_machine::simulated::{Clock, MemoryStore};
use vitistack_runtime::KitArgs;
use vitistack_types::definitions;

use super::{
    check::State,
    life::{Script, lock},
    plan::Plan,
    random::{Random, RuntimeClock},
    scenario::Scenario,
    scene::Scene,
    store::WitnessedStore,
};

/// Time between two looks of the operator at a Machine at which nothing happens: often, so that looking is shown to write
/// nothing, or never, so that everything is shown to be heard of.
const OFTEN: &str = "--reconcile-interval=10s";
const NEVER: &str = "--reconcile-interval=1000h";

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    kit: KitArgs,
}

/// A control plane in the process that many plays use one after another, each in a namespace of its own.
#[derive(Clone)]
pub struct House {
    pub server: ApiServer,
    pub often: KitArgs,
    pub never: KitArgs,
    pub store: WitnessedStore,
    client: Client,
    clock: RuntimeClock,
    uids: Arc<Mutex<Random>>,
}

impl House {
    pub async fn new() -> Self {
        let clock = RuntimeClock::new();
        let uids = Arc::new(Mutex::new(Random::new(0, 0)));
        let random = Arc::clone(&uids);
        let store = WitnessedStore::default();
        let server = ApiServer::builder()
            .store(store.clone())
            .clock(move || clock.now())
            .uids(move || {
                let mut random = lock(&random);
                Uuid::from_u64_pair(random.below(u64::MAX), random.below(u64::MAX))
            })
            .build()
            .await
            .unwrap();
        let client = Client::new(server.service(), "default");
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in definitions() {
            api.create(&PostParams::default(), &definition).await.unwrap();
        }
        let quiet = ["--leader-election=false", "--metrics-bind-address=0", "--health-probe-bind-address=0"];
        let settings = |resync| Arguments::parse_from([&["test", resync], &quiet[..]].concat()).kit;
        Self { server, store, client, often: settings(OFTEN), never: settings(NEVER), clock, uids }
    }

    /// Plays a scenario. `expected` is how things stood each time they had settled in the calm play; none is the calm play.
    pub async fn play(&self, scenario: &Scenario, plan: &Plan, expected: Option<&[State]>) -> Play {
        *lock(&self.uids) = Random::new(plan.seed, 4);
        let script = Script::new(self.clock, plan, expected.is_none());
        self.store.tell(&script.witness);
        let scene = Scene {
            namespace: format!("play-{}", plan.seed),
            client: self.client.clone(),
            script: Arc::clone(&script),
            stores: scenario.providers.iter().map(|name| (name.clone(), MemoryStore::default())).collect(),
            pool: scenario.pool.clone(),
            is_patient: scenario.is_patient,
        };
        let outcome = scene.perform(self, scenario, plan, expected).await;
        let (settled, problem) = match outcome {
            Ok(settled) => (settled, None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        Play { settled, problem, counts: script.counts(), story: script.story() }
    }
}

/// How a play went.
pub struct Play {
    /// How things stood each time they had settled.
    pub settled: Vec<State>,
    /// What was wrong, if anything.
    pub problem: Option<String>,
    /// Writes and steps.
    pub counts: (u64, u64),
    /// Everything that happened.
    pub story: Vec<String>,
}
