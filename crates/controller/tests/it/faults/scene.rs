//! What happens on the stage of one play: the user acts, things come to rest, and are looked at.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
    discovery::ApiResource,
};
use serde_json::{Value, json};
use vitistack_machine::simulated::{Clock, MemoryStore, Settings, WorldStore};
use vitistack_types::{labels, v1alpha1::Machine};

use super::{
    check::{Provider, State, state, violations},
    life::Script,
    plan::Plan,
    play::House,
    process::Processes,
    random::Random,
    scenario::{Action, Deed, Pool, Scenario, Then},
};

/// Longest wait, on the clock of the play, for anything; the longest backoff is five minutes.
const LIMIT: Duration = Duration::from_mins(40);
/// After so long nothing waits any more because of a fault.
const LONGEST_BACKOFF: Duration = Duration::from_mins(5);
/// How often things are looked at while they are waited for.
const LOOK: Duration = Duration::from_millis(700);
/// Nothing has changed for so long: things have come to rest. Longer than any task and any early backoff.
const REST: Duration = Duration::from_secs(12);
/// The same where providers are asked for their health, which may bring news half a minute later.
const REST_OF_PROVIDERS: Duration = Duration::from_secs(35);
/// Three resyncs, and a moment.
const RESYNCS: Duration = Duration::from_secs(31);

/// The stage of one play.
#[derive(Clone)]
pub struct Scene {
    pub namespace: String,
    pub client: Client,
    pub script: Arc<Script>,
    pub stores: BTreeMap<String, MemoryStore>,
    pub pool: Option<Pool>,
    pub is_patient: bool,
}

impl Scene {
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

    /// The Machines as they are stored.
    fn machines(&self) -> Vec<Arc<Machine>> {
        self.script.witness.machines()
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
        let now = self.script.clock.now();
        let mut state =
            state(&self.machines(), &self.providers().await, now, self.is_patient, self.pool.as_ref());
        for datacenter in self.script.witness.datacenters() {
            let status = datacenter.status.unwrap_or_default();
            let machines = status.used.map(|used| used.machines);
            state.0.insert("Datacenter".to_owned(), format!("{:?}, {machines:?} machines", status.phase));
        }
        let untold = self.script.witness.untold();
        state.0.extend(untold.into_iter().map(|name| (name, "not told to be usable".to_owned())));
        state
    }

    /// What was seen that must never be.
    fn problems(&self) -> Result<(), String> {
        let problems = self.script.witness.problems();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }

    /// Waits until nothing has changed for a while.
    async fn rest(&self) -> Result<State, String> {
        let began = self.script.clock.elapsed();
        let quiet = if self.pool.is_some() { REST_OF_PROVIDERS } else { REST };
        loop {
            let before = self.script.activity();
            tokio::time::sleep(quiet).await;
            self.problems()?;
            if self.script.activity() == before && self.script.dead.load(Ordering::SeqCst) == 0 {
                return Ok(self.state().await);
            }
            if self.script.clock.since(began) > LIMIT {
                return Err("things never come to rest".to_owned());
            }
        }
    }

    /// Waits until things stand so.
    async fn until(&self, expected: &State) -> Result<(), String> {
        let mut began = self.script.clock.elapsed();
        let (mut compared, mut before) = (None, self.script.activity());
        loop {
            tokio::time::sleep(LOOK).await;
            self.problems()?;
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
                    // With most requests failing and minutes between two attempts this says nothing.
                    Some(_) if is_late && self.script.is_faulty() => {
                        self.script.tell("the faults end early: too many of them for anything to be done");
                        self.script.end_faults();
                        began = self.script.clock.elapsed();
                    }
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

    fn provider_spec(
        scenario: &Scenario,
        plan: &Plan,
        provider: &str,
        is_faulty: bool,
        is_away: bool,
    ) -> Value {
        let percent = |percent: u64| if is_faulty { percent } else { 0 };
        let most = scenario.pool.as_ref().and_then(|pool| pool.capacity(provider));
        json!({
            "type": "simulated",
            "capacity": most.map(|most| json!({ "machines": most })),
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

    /// Plays it. `expected` is how things stood each time they had settled in the calm play; none is the calm play.
    pub async fn perform(
        &self,
        house: &House,
        scenario: &Scenario,
        plan: &Plan,
        expected: Option<&[State]>,
    ) -> Result<Vec<State>, String> {
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
            let spec = Self::provider_spec(scenario, plan, provider, true, false);
            self.create("MachineProvider", provider, &json!({ "spec": spec })).await;
        }
        let mut processes = Processes::start(house, self, plan);
        let played = self.act_out(scenario, plan, expected, &mut processes).await;
        processes.set(false).await;
        drop(processes);
        house.store.clear().await;
        played
    }

    async fn act_out(
        &self,
        scenario: &Scenario,
        plan: &Plan,
        expected: Option<&[State]>,
        processes: &mut Processes,
    ) -> Result<Vec<State>, String> {
        let script = &self.script;
        let mut settled = Vec::new();
        let mut random = Random::new(plan.seed, 8);
        let mut meeting = None;
        for (number, action) in scenario.actions.iter().enumerate() {
            script.tell(&format!("the user {action}"));
            self.act(action, processes).await;
            drop(meeting.take());
            if let Some((provider, pause)) = plan.outages.get(&number).filter(|_| expected.is_some()) {
                let provider = &scenario.providers[provider % scenario.providers.len()];
                script.tell(&format!("{provider} does not answer for {pause:?}"));
                let spec = Self::provider_spec(scenario, plan, provider, true, true);
                self.change("MachineProvider", provider, &json!({ "spec": spec })).await;
                tokio::time::sleep(*pause).await;
                let spec = Self::provider_spec(scenario, plan, provider, true, false);
                self.change("MachineProvider", provider, &json!({ "spec": spec })).await;
            }
            match action.then {
                Then::GoOn(pause) if plan.is_lurking && expected.is_some() => {
                    let (deeds, limit) = (random.below(7), pause.max(Duration::from_millis(300)));
                    meeting = script.lurk(deeds, limit).await;
                }
                Then::GoOn(pause) => tokio::time::sleep(pause).await,
                Then::Settle => self
                    .settle(&mut settled, expected)
                    .await
                    .map_err(|problem| format!("after the user {}: {problem}", action.words))?,
            }
        }
        drop(meeting);
        script.tell("the faults end");
        script.end_faults();
        for provider in &scenario.providers {
            let spec = Self::provider_spec(scenario, plan, provider, false, false);
            if spec != Self::provider_spec(scenario, plan, provider, true, false) {
                self.change("MachineProvider", provider, &json!({ "spec": spec })).await;
            }
        }
        processes.are_up().await;
        if let Some(expected) = expected.and_then(<[State]>::last) {
            self.until(expected).await.map_err(|problem| format!("in the end {problem}"))?;
            self.rest().await?;
        }
        self.check_rest(settled.last()).await?;
        if plan.is_emptied {
            self.leave().await?;
        }
        self.problems()?;
        Ok(settled)
    }

    async fn act(&self, action: &Action, processes: &mut Processes) {
        match &action.deed {
            Deed::Create { kind, name, content } => self.create(kind, name, content).await,
            Deed::Change { kind, name, patch } => self.change(kind, name, patch).await,
            Deed::Delete { name } => {
                let deleted = self.api("Machine").delete(name, &DeleteParams::default()).await;
                deleted.unwrap_or_else(|error| panic!("{name} cannot be deleted: {error}"));
            }
            Deed::Restore { name } => {
                processes.set(false).await;
                let saved = self.api("Machine").get(name).await.unwrap();
                self.change("Machine", name, &json!({ "metadata": { "finalizers": null } })).await;
                self.api("Machine").delete(name, &DeleteParams::default()).await.unwrap();
                let metadata = &saved.metadata;
                let kept = json!({ "annotations": metadata.annotations, "finalizers": metadata.finalizers });
                self.create("Machine", name, &json!({ "metadata": kept, "spec": saved.data["spec"] })).await;
                processes.set(true).await;
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
        // A Datacenter decides for all its machines at once, so that its last failure may delay a word about any of them.
        if self.pool.is_some() {
            tokio::time::sleep(LONGEST_BACKOFF).await;
        }
        let before = counts();
        tokio::time::sleep(RESYNCS).await;
        if counts() != before {
            let after = counts();
            return Err(format!("at rest ((writes, steps), Events) went from {before:?} to {after:?}"));
        }
        self.problems()?;
        let mut problems = violations(&self.machines(), &self.providers().await, self.script.clock.now());
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
        for machine in self.machines() {
            let name = machine.metadata.name.clone().unwrap_or_default();
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
            let machines = self.machines();
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
}
