//! The in-process control plane on which scenarios run.

use std::sync::{Arc, Mutex};

use clap::Parser;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, api::PostParams};
use uuid::Uuid;
use vitistack_apiserver::ApiServer;
use vitistack_machine::simulated::{Clock, MemoryStore};
use vitistack_runtime::OperatorArgs;
use vitistack_types::definitions;

use super::{
    checked_store::CheckedStore,
    context::{RunContext, lock},
    plan::Plan,
    random::{Random, RuntimeClock},
    run::Run,
    scenario::Scenario,
    settled_state::SettledState,
};

/// Frequent resyncs prove that reconciling an object at rest writes nothing.
const FREQUENT_RESYNC: &str = "--reconcile-interval=10s";
/// Without resyncs a missed watch event is never made up for, so that a plan proves that none is missed.
const NO_RESYNC: &str = "--reconcile-interval=1000h";

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    kit: OperatorArgs,
}

/// An in-process control plane that many runs use one after another, each in its own namespace.
#[derive(Clone)]
pub struct ControlPlane {
    pub server: ApiServer,
    /// The settings of a process that resyncs often.
    pub frequent_resync: OperatorArgs,
    /// The settings of a process that never resyncs.
    pub no_resync: OperatorArgs,
    pub store: CheckedStore,
    client: Client,
    clock: RuntimeClock,
    uids: Arc<Mutex<Random>>,
}

impl ControlPlane {
    pub async fn new() -> Self {
        let clock = RuntimeClock::new();
        let uids = Arc::new(Mutex::new(Random::new(0, 0)));
        let random = Arc::clone(&uids);
        let store = CheckedStore::default();
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

        Self {
            server,
            frequent_resync: settings(FREQUENT_RESYNC),
            no_resync: settings(NO_RESYNC),
            store,
            client,
            clock,
            uids,
        }
    }

    /// Runs a scenario under a plan. `expected` are the settled states of the fault-free run; without them
    /// this is the fault-free run.
    pub async fn run(
        &self,
        scenario: &Scenario,
        plan: &Plan,
        expected: Option<&[SettledState]>,
    ) -> RunResult {
        *lock(&self.uids) = Random::new(plan.seed, 4);
        let context = RunContext::new(self.clock, plan, expected.is_none());
        self.store.set_checker(&context.checker);
        let run = Run {
            // API faults and backoff jitter follow from request paths and object names: another namespace
            // would turn every seed into another plan.
            namespace: format!("play-{}", plan.seed),
            client: self.client.clone(),
            context: Arc::clone(&context),
            stores: scenario.providers.iter().map(|name| (name.clone(), MemoryStore::default())).collect(),
            pool: scenario.pool.clone(),
            is_sequential: scenario.is_sequential,
        };

        let outcome = run.execute(self, scenario, plan, expected).await;
        let (settled, problem) = match outcome {
            Ok(settled) => (settled, None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        RunResult { settled, problem, counts: context.counts(), log: context.log_lines() }
    }
}

/// Returns the settings of a process without leader election and listeners.
fn settings(resync: &str) -> OperatorArgs {
    let quiet = ["--leader-election=false", "--metrics-bind-address=0", "--health-probe-bind-address=0"];
    Arguments::parse_from([&["test", resync], &quiet[..]].concat()).kit
}

/// The result of one run.
pub struct RunResult {
    /// The state each time everything had settled.
    pub settled: Vec<SettledState>,
    /// The first problem, if there was one.
    pub problem: Option<String>,
    /// The number of API writes and of provider calls.
    pub counts: (u64, u64),
    /// Everything that happened, one line each, with its time.
    pub log: Vec<String>,
}
