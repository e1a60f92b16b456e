//! Plays a scenario on a control plane in the process, with an operator that may die, and sees how it ends.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use clap::Parser;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
    discovery::ApiResource,
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vitistack_apiserver::ApiServer;
use vitistack_controller::{Caches, Needs, backends::SimulatedOpener, machine::MachineOperator};
use vitistack_machine::simulated::{Clock, MemoryStore, Settings, WorldStore};
use vitistack_runtime::{KitArgs, Process};
use vitistack_types::{definitions, labels, v1alpha1::Machine};

use super::{
    check::{Provider, State, state, violations},
    life::{Faults, Gate, Life, LifeOpener, LifeStore, Script, lock},
    plan::Plan,
    random::{Random, RuntimeClock},
    scenario::{Action, Deed, Scenario, Then},
};

/// Longest wait, on the clock of the play, for anything; the longest backoff is five minutes.
const LIMIT: Duration = Duration::from_mins(40);
/// How often things are looked at while they are waited for.
const LOOK: Duration = Duration::from_millis(700);
/// Nothing has changed for so long: things have come to rest. Longer than any task and any early backoff.
const REST: Duration = Duration::from_secs(12);
/// Time between two looks of the operator at a Machine at which nothing happens: often, so that looking is shown to write
/// nothing, or never, so that everything is shown to be heard of.
const OFTEN: &str = "--reconcile-interval=10s";
const NEVER: &str = "--reconcile-interval=1000h";
/// What the operator reads.
const NEEDS: Needs = Needs { datacenters: true, networks: true, secrets: true };
/// Three of them, and a moment.
const RESYNCS: Duration = Duration::from_secs(31);

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    kit: KitArgs,
}

/// A control plane in the process that many plays use one after another, each in a namespace of its own.
#[derive(Clone)]
pub struct House {
    server: ApiServer,
    client: Client,
    often: KitArgs,
    never: KitArgs,
    clock: RuntimeClock,
    uids: Arc<Mutex<Random>>,
}

impl House {
    pub async fn new() -> Self {
        let clock = RuntimeClock::new();
        let uids = Arc::new(Mutex::new(Random::new(0, 0)));
        let random = Arc::clone(&uids);
        let server = ApiServer::builder()
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
        Self { server, client, often: settings(OFTEN), never: settings(NEVER), clock, uids }
    }

    /// Plays a scenario. `expected` is how things stood each time they had settled in the calm play; none is the calm play.
    pub async fn play(&self, scenario: &Scenario, plan: &Plan, expected: Option<&[State]>) -> Play {
        *lock(&self.uids) = Random::new(plan.seed, 4);
        let script = Script::new(self.clock, plan.crashes.clone(), plan.store_faults.clone());
        let stage = Stage {
            namespace: format!("play-{}", plan.seed),
            client: self.client.clone(),
            script: Arc::clone(&script),
            stores: scenario.providers.iter().map(|name| (name.clone(), MemoryStore::default())).collect(),
            is_patient: scenario.is_patient,
        };
        let outcome = stage.perform(self, scenario, plan, expected).await;
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

#[derive(Clone)]
struct Stage {
    namespace: String,
    client: Client,
    script: Arc<Script>,
    stores: BTreeMap<String, MemoryStore>,
    is_patient: bool,
}

/// Keeps an operator alive: starts it again when it died.
struct Supervisor {
    task: JoinHandle<()>,
    wanted: watch::Sender<bool>,
    is_up: watch::Receiver<bool>,
}

impl Supervisor {
    async fn set(&mut self, wanted: bool) {
        self.wanted.send_replace(wanted);
        self.is_up.wait_for(|is_up| *is_up == wanted).await.unwrap();
    }
}

fn start_process(
    house: &House,
    stage: &Stage,
    life: &Arc<Life>,
    faults: &Faults,
    is_resynced: bool,
) -> Process {
    let settings = if is_resynced { &house.often } else { &house.never };
    let client = Client::new(Gate::new(life, &house.server.service(), faults), "default");
    let mut process = Process::new(settings.clone(), client.clone());
    let mut caches = Caches::new(&mut process, client, NEEDS);
    let clock = stage.script.clock;
    caches.clock = Arc::new(move || clock.now());
    let (stores, keeping) = (stage.stores.clone(), Arc::clone(life));
    let opener = SimulatedOpener::with_clock(
        Arc::new(move |provider| {
            let provider = provider.metadata.name.clone().unwrap_or_default();
            let inner = stores[&provider].clone();
            let store: Arc<dyn WorldStore> =
                Arc::new(LifeStore { life: Arc::clone(&keeping), provider, inner });
            store
        }),
        Arc::new(clock),
    );
    let opener = Arc::new(LifeOpener { life: Arc::clone(life), inner: opener });
    MachineOperator {
        name: "simulated-operator",
        opener,
        is_own_cluster_offered: false,
        tells_homeless: true,
    }
    .add(&mut process, &caches);
    process
}

impl Stage {
    /// Starts the operator, again and again if need be.
    fn supervise(&self, house: &House, plan: &Plan) -> Supervisor {
        let (wanted, mut wants) = watch::channel(true);
        let (up, is_up) = watch::channel(false);
        let (house, stage) = (house.clone(), self.clone());
        let faults = Faults::new(&house.server.service(), &plan.api, &plan.stale);
        let is_resynced = plan.is_resynced;
        let mut random = Random::new(plan.seed, 7);
        let task = tokio::spawn(async move {
            loop {
                if wants.wait_for(|wanted| *wanted).await.is_err() {
                    return;
                }
                let life = Life::new(&stage.script);
                let process = start_process(&house, &stage, &life, &faults, is_resynced);
                let end = CancellationToken::new();
                let running = tokio::spawn({
                    let end = end.clone();
                    async move { process.run(end).await.unwrap() }
                });
                up.send_replace(true);
                let is_ended = tokio::select! {
                    () = life.over.notified() => false,
                    changed = wants.wait_for(|wanted| !*wanted) => { drop(changed); true },
                };
                running.abort();
                let _ = running.await;
                // What the process had spawned is dropped before it is polled again.
                tokio::task::yield_now().await;
                life.bury();
                up.send_replace(false);
                if !is_ended {
                    let pause = Duration::from_millis(random.one(&[0, 10, 1_000, 30_000]));
                    tokio::time::sleep(pause).await;
                    stage.script.tell("the operator is started again");
                }
            }
        });
        Supervisor { task, wanted, is_up }
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        if kind == "Secret" {
            let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&());
            return Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        }
        let plural = match kind {
            "MachineClass" => "machineclasses".to_owned(),
            _ => format!("{}s", kind.to_lowercase()),
        };
        let resource = ApiResource {
            group: "vitistack.io".into(),
            version: "v1alpha1".into(),
            api_version: "vitistack.io/v1alpha1".into(),
            kind: kind.into(),
            plural,
        };
        if kind == "MachineClass" {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
        }
    }

    async fn create(&self, kind: &str, name: &str, content: &Value) {
        let mut manifest = json!({ "metadata": { "name": name } });
        let group = if kind == "Secret" || kind == "Namespace" { "v1" } else { "vitistack.io/v1alpha1" };
        manifest["apiVersion"] = json!(group);
        manifest["kind"] = json!(kind);
        for (member, value) in content.as_object().unwrap() {
            match (member.as_str(), value) {
                ("metadata", Value::Object(members)) => {
                    for (member, value) in members {
                        manifest["metadata"][member] = value.clone();
                    }
                }
                _ => manifest[member] = value.clone(),
            }
        }
        let object: DynamicObject = serde_json::from_value(manifest).unwrap();
        let created = self.api(kind).create(&PostParams::default(), &object).await;
        created.unwrap_or_else(|error| panic!("{kind} {name} was refused: {error}"));
    }

    async fn change(&self, kind: &str, name: &str, patch: &Value) {
        match self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => {}
            // A Machine that was never begun is gone at once, also while it is paused.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{kind} {name} cannot become {patch}: {error}"),
        }
    }

    async fn machines(&self) -> Vec<Machine> {
        let api: Api<Machine> = Api::namespaced(self.client.clone(), &self.namespace);
        api.list(&ListParams::default()).await.unwrap().items
    }

    async fn providers(&self) -> Vec<Provider> {
        let mut providers = Vec::new();
        for (name, store) in &self.stores {
            let records = store.load().await.unwrap().records;
            providers.push(Provider { name: name.clone(), records, settings: Settings::default() });
        }
        providers
    }

    async fn state(&self) -> State {
        state(&self.machines().await, &self.providers().await, self.script.clock.now(), self.is_patient)
    }

    /// Waits until nothing has changed for a while.
    async fn rest(&self) -> Result<State, String> {
        let began = self.script.clock.elapsed();
        loop {
            let before = self.script.activity();
            tokio::time::sleep(REST).await;
            if self.script.activity() == before {
                return Ok(self.state().await);
            }
            if self.script.clock.since(began) > LIMIT {
                return Err("things never come to rest".to_owned());
            }
        }
    }

    /// Waits until things stand so.
    async fn until(&self, expected: &State) -> Result<(), String> {
        let began = self.script.clock.elapsed();
        let (mut compared, mut before) = (None, self.script.activity());
        loop {
            tokio::time::sleep(LOOK).await;
            let activity = self.script.activity();
            let is_late = self.script.clock.since(began) > LIMIT;
            // Looking costs more than waiting: only when something has changed and nothing changes any more. Time alone
            // ends the tasks of a provider, so that it is looked at now and then anyway.
            let is_news = compared != Some(activity) && before == activity;
            before = activity;
            if is_news || is_late || self.script.clock.elapsed().as_secs().is_multiple_of(32) {
                compared = Some(activity);
                let difference = self.state().await.difference(expected);
                match difference {
                    None => return Ok(()),
                    Some(difference) if is_late => {
                        return Err(format!("things never came to stand as in the calm play:\n{difference}"));
                    }
                    Some(_) => {}
                }
            }
        }
    }

    async fn settle(&self, settled: &mut Vec<State>, expected: Option<&[State]>) -> Result<(), String> {
        let number = settled.len();
        match expected.map(|expected| &expected[number]) {
            None => settled.push(self.rest().await?),
            Some(expected) => {
                self.until(expected).await?;
                settled.push(expected.clone());
            }
        }
        Ok(())
    }

    fn provider_spec(scenario: &Scenario, plan: &Plan, is_faulty: bool, is_away: bool) -> Value {
        let percent = |percent: u64| if is_faulty { percent } else { 0 };
        json!({
            "type": "simulated",
            "simulated": {
                "seed": plan.seed % 1000,
                "latency": (!scenario.latency.is_zero()).then(|| format!("{}ms", scenario.latency.as_millis())),
                "reuseIds": scenario.reuse_ids,
                "failedTasksPercent": percent(plan.failed_tasks),
                "lostRepliesPercent": percent(plan.lost_replies),
                "unreachable": is_away,
            },
        })
    }

    async fn perform(
        &self,
        house: &House,
        scenario: &Scenario,
        plan: &Plan,
        expected: Option<&[State]>,
    ) -> Result<Vec<State>, String> {
        let script = &self.script;
        script.is_faulty.store(expected.is_some(), Ordering::SeqCst);
        let namespace = ApiResource::erase::<k8s_openapi::api::core::v1::Namespace>(&());
        let object: DynamicObject = serde_json::from_value(
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.namespace } }),
        )
        .unwrap();
        // It is there already if the seed was played before.
        let _ = Api::<DynamicObject>::all_with(self.client.clone(), &namespace)
            .create(&PostParams::default(), &object)
            .await;
        for provider in &scenario.providers {
            let spec = Self::provider_spec(scenario, plan, true, false);
            self.create("MachineProvider", provider, &json!({ "spec": spec })).await;
        }
        let mut supervisor = self.supervise(house, plan);
        let played = self.act_out(scenario, plan, expected, &mut supervisor).await;
        supervisor.set(false).await;
        supervisor.task.abort();
        self.clear(scenario).await;
        played
    }

    async fn act_out(
        &self,
        scenario: &Scenario,
        plan: &Plan,
        expected: Option<&[State]>,
        supervisor: &mut Supervisor,
    ) -> Result<Vec<State>, String> {
        let script = &self.script;
        let mut settled = Vec::new();
        for (number, action) in scenario.actions.iter().enumerate() {
            script.tell(&format!("the user {action}"));
            self.act(action, supervisor).await;
            if let Some((provider, pause)) = plan.outages.get(&number).filter(|_| expected.is_some()) {
                let provider = &scenario.providers[provider % scenario.providers.len()];
                script.tell(&format!("{provider} does not answer for {pause:?}"));
                let spec = Self::provider_spec(scenario, plan, true, true);
                self.change("MachineProvider", provider, &json!({ "spec": spec })).await;
                tokio::time::sleep(*pause).await;
                let spec = Self::provider_spec(scenario, plan, true, false);
                self.change("MachineProvider", provider, &json!({ "spec": spec })).await;
            }
            match action.then {
                Then::GoOn(pause) => tokio::time::sleep(pause).await,
                Then::Settle => self
                    .settle(&mut settled, expected)
                    .await
                    .map_err(|problem| format!("after the user {}: {problem}", action.words))?,
            }
        }
        script.tell("the faults end");
        script.is_faulty.store(false, Ordering::SeqCst);
        for provider in &scenario.providers {
            let spec = Self::provider_spec(scenario, plan, false, false);
            self.change("MachineProvider", provider, &json!({ "spec": spec })).await;
        }
        supervisor.is_up.wait_for(|is_up| *is_up).await.unwrap();
        if let Some(expected) = expected.and_then(<[State]>::last) {
            self.until(expected).await.map_err(|problem| format!("in the end {problem}"))?;
            self.rest().await?;
        }
        self.check_rest(settled.last()).await?;
        if plan.is_emptied {
            self.leave().await?;
        }
        Ok(settled)
    }

    async fn act(&self, action: &Action, supervisor: &mut Supervisor) {
        match &action.deed {
            Deed::Create { kind, name, content } => self.create(kind, name, content).await,
            Deed::Change { kind, name, patch } => self.change(kind, name, patch).await,
            Deed::Delete { name } => {
                let deleted = self.api("Machine").delete(name, &DeleteParams::default()).await;
                deleted.unwrap_or_else(|error| panic!("{name} cannot be deleted: {error}"));
            }
            Deed::Restore { name } => {
                supervisor.set(false).await;
                let saved = self.api("Machine").get(name).await.unwrap();
                self.change("Machine", name, &json!({ "metadata": { "finalizers": null } })).await;
                self.api("Machine").delete(name, &DeleteParams::default()).await.unwrap();
                let metadata = &saved.metadata;
                let kept = json!({ "annotations": metadata.annotations, "finalizers": metadata.finalizers });
                self.create("Machine", name, &json!({ "metadata": kept, "spec": saved.data["spec"] })).await;
                supervisor.set(true).await;
            }
            Deed::Adopt { name } => {
                let uid = self.api("Machine").get(name).await.unwrap().metadata.uid;
                let patch = json!({ "metadata": { "annotations": { labels::ADOPTED: uid } } });
                self.change("Machine", name, &patch).await;
            }
        }
    }

    /// Nothing is written while nothing is asked, nothing is left over, nothing was ever there twice.
    async fn check_rest(&self, expected: Option<&State>) -> Result<(), String> {
        let counts = || (self.script.counts(), self.script.events.load(Ordering::SeqCst));
        let before = counts();
        tokio::time::sleep(RESYNCS).await;
        if counts() != before {
            let after = counts();
            return Err(format!("at rest ((writes, steps), Events) went from {before:?} to {after:?}"));
        }
        let mut problems =
            violations(&self.machines().await, &self.providers().await, self.script.clock.now());
        problems.extend(lock(&self.script.doubles).iter().map(|tag| format!("{tag} was there twice")));
        if let Some(expected) = expected {
            problems.extend(self.state().await.difference(expected));
        }
        let ghosts = self.script.ghosts.load(Ordering::SeqCst);
        if ghosts > 0 {
            problems.push(format!("a dead operator did {ghosts} things"));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }

    /// Deletes every Machine: nothing but what is to be kept stays.
    async fn leave(&self) -> Result<(), String> {
        self.script.tell("the user deletes everything");
        for machine in self.machines().await {
            let name = machine.metadata.name.unwrap_or_default();
            self.change(
                "Machine",
                &name,
                &json!({ "metadata": { "annotations": { labels::PAUSED: null } } }),
            )
            .await;
            let _ = self.api("Machine").delete(&name, &DeleteParams::default()).await;
        }
        let began = self.script.clock.elapsed();
        loop {
            let machines = self.machines().await;
            if machines.is_empty() {
                break;
            }
            if self.script.clock.since(began) > LIMIT {
                let told: Vec<_> =
                    machines.iter().map(|machine| (&machine.metadata, &machine.status)).collect();
                return Err(format!("Machines never go: {told:#?}"));
            }
            tokio::time::sleep(LOOK).await;
        }
        let problems = violations(&[], &self.providers().await, self.script.clock.now());
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }

    /// Takes everything away, so that the next play begins with nothing.
    async fn clear(&self, scenario: &Scenario) {
        for machine in self.machines().await {
            let name = machine.metadata.name.unwrap_or_default();
            self.change("Machine", &name, &json!({ "metadata": { "finalizers": null } })).await;
            let _ = self.api("Machine").delete(&name, &DeleteParams::default()).await;
        }
        for provider in &scenario.providers {
            let _ = self.api("MachineProvider").delete(provider, &DeleteParams::default()).await;
        }
        for action in &scenario.actions {
            if let Deed::Create { kind, name, .. } = &action.deed
                && *kind != "Machine"
            {
                let _ = self.api(kind).delete(name, &DeleteParams::default()).await;
            }
        }
    }
}
