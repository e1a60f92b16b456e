//! One run of a scenario: the user acts, everything settles, and the result is checked.

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
    context::RunContext,
    control_plane::ControlPlane,
    plan::Plan,
    process::Processes,
    random::Random,
    scenario::{Operation, Pool, Scenario, UserAction, Wait},
    settled_state::{ProviderRecords, SettledState, summarize, violations},
};

/// The longest wait for anything, on the clock of the run; the longest backoff is five minutes.
const LIMIT: Duration = Duration::from_mins(40);
/// After this time no retry is pending because of a fault.
const LONGEST_BACKOFF: Duration = Duration::from_mins(5);
/// The interval between two comparisons with the expected state.
const POLL_INTERVAL: Duration = Duration::from_millis(700);
/// Everything has settled once nothing has changed for this time. Longer than any task and any early backoff.
const QUIET_PERIOD: Duration = Duration::from_secs(12);
/// The same where the health of providers is checked, which can change something half a minute later.
const QUIET_PERIOD_WITH_HEALTH_CHECKS: Duration = Duration::from_secs(35);
/// Three resyncs, and a second.
const THREE_RESYNCS: Duration = Duration::from_secs(31);

/// One run of a scenario.
#[derive(Clone)]
pub struct Run {
    pub namespace: String,
    pub client: Client,
    pub context: Arc<RunContext>,
    /// The stores of the simulated providers, by provider name.
    pub stores: BTreeMap<String, MemoryStore>,
    pub pool: Option<Pool>,
    pub is_sequential: bool,
}

impl Run {
    /// Returns the API of a kind: one of ours, or Secret.
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
        created.unwrap_or_else(|error| panic!("failed to create {kind} {name}: {error}"));
    }

    async fn change(&self, kind: &str, name: &str, patch: &Value) {
        match self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => {}
            // A Machine for which nothing was created is deleted at once, even while it is paused.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("failed to patch {kind} {name} with {patch}: {error}"),
        }
    }

    /// Returns the stored Machines.
    fn machines(&self) -> Vec<Arc<Machine>> {
        self.context.checker.machines()
    }

    async fn providers(&self) -> Vec<ProviderRecords> {
        let mut providers = Vec::new();
        for (name, store) in &self.stores {
            let records = store.load().await.unwrap().records;
            providers.push(ProviderRecords { name: name.clone(), records, settings: Settings::default() });
        }
        providers
    }

    /// Returns the current state in the form that is compared with the fault-free run.
    async fn state(&self) -> SettledState {
        let now = self.context.clock.now();
        let mut state =
            summarize(&self.machines(), &self.providers().await, now, self.is_sequential, self.pool.as_ref());

        for datacenter in self.context.checker.datacenters() {
            let status = datacenter.status.unwrap_or_default();
            let machines = status.used.map(|used| used.machines);
            state.0.insert("Datacenter".to_owned(), format!("{:?}, {machines:?} machines", status.phase));
        }
        let unreported = self.context.checker.unreported();
        state.0.extend(unreported.into_iter().map(|name| (name, "not reported as usable".to_owned())));
        state
    }

    /// Fails if an invariant was violated.
    fn check_invariants(&self) -> Result<(), String> {
        let problems = self.context.checker.problems();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }

    /// Waits until nothing has changed for a while, and returns the state.
    async fn wait_until_quiet(&self) -> Result<SettledState, String> {
        let started = self.context.clock.elapsed();
        let quiet = if self.pool.is_some() { QUIET_PERIOD_WITH_HEALTH_CHECKS } else { QUIET_PERIOD };
        loop {
            let before = self.context.activity();
            tokio::time::sleep(quiet).await;
            self.check_invariants()?;

            if self.context.activity() == before && self.context.crashed.load(Ordering::SeqCst) == 0 {
                return Ok(self.state().await);
            }
            if self.context.clock.since(started) > LIMIT {
                return Err("the operators never settle".to_owned());
            }
        }
    }

    /// Waits until the state is the expected one.
    async fn wait_until_state(&self, expected: &SettledState) -> Result<(), String> {
        let mut started = self.context.clock.elapsed();
        let (mut compared, mut before) = (None, self.context.activity());
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            self.check_invariants()?;

            // A comparison costs more than a wait, so it is made only when something has changed and nothing
            // changes any more. Time alone ends the tasks of a provider: it is also made now and then without
            // a change.
            let activity = self.context.activity();
            let is_late = self.context.clock.since(started) > LIMIT;
            let has_settled = compared != Some(activity) && before == activity;
            before = activity;
            let is_due = self.context.clock.elapsed().as_secs().is_multiple_of(32);
            if !has_settled && !is_late && !is_due {
                continue;
            }

            compared = Some(activity);
            match self.state().await.difference(expected) {
                None => return Ok(()),
                // Most requests fail, and minutes pass between two attempts: this proves nothing about the
                // operators.
                Some(_) if is_late && self.context.is_faulty() => {
                    self.context.log("the faults end early: too many of them to get anything done");
                    self.context.end_faults();
                    started = self.context.clock.elapsed();
                }
                Some(difference) if is_late => {
                    return Err(format!("the state of the fault-free run is never reached:\n{difference}"));
                }
                Some(_) => {}
            }
        }
    }

    /// Waits until everything has settled: in the fault-free run until nothing changes, else until the
    /// expected state.
    async fn settle(
        &self,
        settled: &mut Vec<SettledState>,
        expected: Option<&[SettledState]>,
    ) -> Result<(), String> {
        let number = settled.len();
        match expected.map(|expected| &expected[number]) {
            None => settled.push(self.wait_until_quiet().await?),
            Some(expected) => {
                self.wait_until_state(expected).await?;
                settled.push(expected.clone());
            }
        }
        Ok(())
    }

    /// Returns the spec of a provider, with the faults of the plan if `is_faulty`.
    fn provider_spec(
        scenario: &Scenario,
        plan: &Plan,
        provider: &str,
        is_faulty: bool,
        is_unreachable: bool,
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
                "unreachable": is_unreachable,
            },
        })
    }

    /// Executes the run. `expected` are the settled states of the fault-free run; without them this is the
    /// fault-free run.
    pub async fn execute(
        &self,
        control_plane: &ControlPlane,
        scenario: &Scenario,
        plan: &Plan,
        expected: Option<&[SettledState]>,
    ) -> Result<Vec<SettledState>, String> {
        self.create_namespace().await;
        for provider in &scenario.providers {
            let spec = Self::provider_spec(scenario, plan, provider, true, false);
            self.create("MachineProvider", provider, &json!({ "spec": spec })).await;
        }

        let mut processes = Processes::start(control_plane, self, plan);
        let result = self.perform_all(scenario, plan, expected, &mut processes).await;

        processes.set_running(false).await;
        drop(processes);
        control_plane.store.clear().await;
        result
    }

    async fn create_namespace(&self) {
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Namespace>(&());
        let object: DynamicObject = serde_json::from_value(
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.namespace } }),
        )
        .unwrap();
        // It exists already if the seed has run before.
        let _ = Api::<DynamicObject>::all_with(self.client.clone(), &resource)
            .create(&PostParams::default(), &object)
            .await;
    }

    /// Performs the actions of the user under faults, ends the faults and checks the result.
    async fn perform_all(
        &self,
        scenario: &Scenario,
        plan: &Plan,
        expected: Option<&[SettledState]>,
        processes: &mut Processes,
    ) -> Result<Vec<SettledState>, String> {
        let context = &self.context;
        let mut settled = Vec::new();
        let mut random = Random::new(plan.seed, 8);
        let mut operator_pause = None;
        for (number, action) in scenario.actions.iter().enumerate() {
            context.log(&format!("the user {action}"));
            self.perform(action, processes).await;
            drop(operator_pause.take());

            if let Some((provider, pause)) = plan.outages.get(&number).filter(|_| expected.is_some()) {
                let provider = &scenario.providers[provider % scenario.providers.len()];
                self.interrupt(scenario, plan, provider, *pause).await;
            }

            match action.wait {
                Wait::For(pause) if plan.is_interleaved && expected.is_some() => {
                    let (operations, limit) = (random.below(7), pause.max(Duration::from_millis(300)));
                    operator_pause = context.pause_operator(operations, limit).await;
                }
                Wait::For(pause) => tokio::time::sleep(pause).await,
                Wait::UntilSettled => self
                    .settle(&mut settled, expected)
                    .await
                    .map_err(|problem| format!("after the user {}: {problem}", action.description))?,
            }
        }
        drop(operator_pause);

        self.end_faults(scenario, plan).await;
        processes.wait_until_up().await;
        if let Some(expected) = expected.and_then(<[SettledState]>::last) {
            self.wait_until_state(expected).await.map_err(|problem| format!("at the end: {problem}"))?;
            self.wait_until_quiet().await?;
        }

        self.check_end(settled.last()).await?;
        if plan.deletes_machines {
            self.delete_all().await?;
        }
        self.check_invariants()?;
        Ok(settled)
    }

    /// Makes a provider unreachable for a while.
    async fn interrupt(&self, scenario: &Scenario, plan: &Plan, provider: &str, pause: Duration) {
        self.context.log(&format!("{provider} does not answer for {pause:?}"));
        let spec = Self::provider_spec(scenario, plan, provider, true, true);
        self.change("MachineProvider", provider, &json!({ "spec": spec })).await;

        tokio::time::sleep(pause).await;
        let spec = Self::provider_spec(scenario, plan, provider, true, false);
        self.change("MachineProvider", provider, &json!({ "spec": spec })).await;
    }

    /// Ends all faults, those of the providers too.
    async fn end_faults(&self, scenario: &Scenario, plan: &Plan) {
        self.context.log("the faults end");
        self.context.end_faults();
        for provider in &scenario.providers {
            let spec = Self::provider_spec(scenario, plan, provider, false, false);
            if spec != Self::provider_spec(scenario, plan, provider, true, false) {
                self.change("MachineProvider", provider, &json!({ "spec": spec })).await;
            }
        }
    }

    /// Performs one action of the user.
    async fn perform(&self, action: &UserAction, processes: &mut Processes) {
        match &action.operation {
            Operation::Create { kind, name, content } => self.create(kind, name, content).await,
            Operation::Change { kind, name, patch } => self.change(kind, name, patch).await,
            Operation::Delete { name } => {
                let deleted = self.api("Machine").delete(name, &DeleteParams::default()).await;
                deleted.unwrap_or_else(|error| panic!("failed to delete {name}: {error}"));
            }
            Operation::Restore { name } => {
                processes.set_running(false).await;
                let saved = self.api("Machine").get(name).await.unwrap();
                self.change("Machine", name, &json!({ "metadata": { "finalizers": null } })).await;
                self.api("Machine").delete(name, &DeleteParams::default()).await.unwrap();
                let metadata = &saved.metadata;
                let restored =
                    json!({ "annotations": metadata.annotations, "finalizers": metadata.finalizers });
                self.create("Machine", name, &json!({ "metadata": restored, "spec": saved.data["spec"] }))
                    .await;
                processes.set_running(true).await;
            }
            Operation::Adopt { name } => {
                let uid = self.api("Machine").get(name).await.unwrap().metadata.uid;
                let patch = json!({ "metadata": { "annotations": { labels::ADOPTED: uid } } });
                self.change("Machine", name, &patch).await;
            }
        }
    }

    /// Checks that nothing is written while nothing is requested, that nothing is left over and nothing
    /// exists twice.
    async fn check_end(&self, expected: Option<&SettledState>) -> Result<(), String> {
        // A Datacenter decides for all its Machines at once, so that its last failure can delay the status of
        // any of them.
        if self.pool.is_some() {
            tokio::time::sleep(LONGEST_BACKOFF).await;
        }
        let counts = || (self.context.counts(), self.context.events.load(Ordering::SeqCst));
        let before = counts();
        tokio::time::sleep(THREE_RESYNCS).await;
        let after = counts();
        if after != before {
            return Err(format!(
                "((writes, provider calls), Events) went from {before:?} to {after:?} while nothing was requested"
            ));
        }
        self.check_invariants()?;

        let mut problems = violations(&self.machines(), &self.providers().await, self.context.clock.now());
        if let Some(expected) = expected {
            problems.extend(self.state().await.difference(expected));
        }
        let zombie_operations = self.context.zombie_operations.load(Ordering::SeqCst);
        if zombie_operations > 0 {
            problems.push(format!("a stopped operator attempted {zombie_operations} operations"));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }

    /// Deletes every Machine and checks that only retained disks are left.
    async fn delete_all(&self) -> Result<(), String> {
        self.context.log("the user deletes every Machine");
        for machine in self.machines() {
            let name = machine.metadata.name.clone().unwrap_or_default();
            let resumed = json!({ "metadata": { "annotations": { labels::PAUSED: null } } });
            self.change("Machine", &name, &resumed).await;
            let _ = self.api("Machine").delete(&name, &DeleteParams::default()).await;
        }

        let started = self.context.clock.elapsed();
        loop {
            let machines = self.machines();
            if machines.is_empty() {
                break;
            }
            if self.context.clock.since(started) > LIMIT {
                let left: Vec<_> =
                    machines.iter().map(|machine| (&machine.metadata, &machine.status)).collect();
                return Err(format!("Machines are never deleted: {left:#?}"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }

        let problems = violations(&[], &self.providers().await, self.context.clock.now());
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }
}
