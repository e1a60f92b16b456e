//! What a user does: a list of actions that follows from a seed.
//!
//! The end must be the same however slow the operator is. So a user waits until everything has settled before
//! an action whose result depends on what exists by then: removing a retained disk, pausing a Machine,
//! reusing a name.

use std::{fmt, time::Duration};

use serde_json::{Value, json};

use super::random::Random;

/// What a user does to the cluster.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Creates an object of one of our kinds, or a Secret.
    Create { kind: &'static str, name: String, content: Value },
    /// Patches an object.
    Change { kind: &'static str, name: String, patch: Value },
    /// Deletes a Machine.
    Delete { name: String },
    /// Loses the control plane and restores a Machine from a backup, with another UID.
    Restore { name: String },
    /// Adopts a restored Machine.
    Adopt { name: String },
}

/// How long the user waits after an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Waits for this time.
    For(Duration),
    /// Waits until everything has settled.
    UntilSettled,
}

/// One action of the user.
#[derive(Clone, Debug)]
pub struct UserAction {
    pub description: String,
    pub operation: Operation,
    pub wait: Wait,
}

impl fmt::Display for UserAction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wait {
            Wait::For(pause) => write!(formatter, "{}, then waits {pause:?}", self.description),
            Wait::UntilSettled => {
                write!(formatter, "{}, then waits until everything has settled", self.description)
            }
        }
    }
}

/// The providers of the Datacenter `dc`, to which Machines may refer instead of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Each provider with the maximum number of its machines, by priority.
    pub providers: Vec<(String, Option<u64>)>,
    /// The maximum number of Machines in the Datacenter.
    pub quota: Option<u64>,
    /// Whether not all Machines fit. Which ones get in depends on who comes first, so all of them are alike.
    pub is_contested: bool,
}

impl Pool {
    fn new(random: &mut Random) -> Self {
        let is_contested = random.chance(50);
        let (first, second) = match (is_contested, random.below(3)) {
            (false, _) => (Some(1), None),
            (true, 0) => (Some(1), Some(1)),
            (true, 1) => (Some(2), None),
            (true, _) => (None, None),
        };
        let is_unlimited = second.is_none();
        Self {
            providers: vec![("pool-a".to_owned(), first), ("pool-b".to_owned(), second)],
            quota: (is_contested && is_unlimited).then_some(2),
            is_contested,
        }
    }

    /// Whether the provider belongs to the pool.
    pub fn contains(&self, provider: &str) -> bool {
        self.providers.iter().any(|(name, _)| name == provider)
    }

    /// Returns the maximum number of machines of a provider.
    pub fn capacity(&self, provider: &str) -> Option<u64> {
        self.providers.iter().find(|(name, _)| name == provider)?.1
    }

    /// Returns the Datacenter of the pool.
    pub fn datacenter(&self) -> Value {
        let providers: Vec<Value> = (1..)
            .zip(&self.providers)
            .map(|(priority, (name, _))| json!({ "name": name, "priority": priority }))
            .collect();
        let quotas = self.quota.map(|most| json!({ "maxMachines": most }));
        json!({ "spec": { "region": "here", "machineProviders": providers, "resourceQuotas": quotas } })
    }
}

/// Everything that a user does in one run, and the providers it is done with.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub providers: Vec<String>,
    pub pool: Option<Pool>,
    pub latency: Duration,
    pub reuse_ids: bool,
    pub actions: Vec<UserAction>,
    /// Whether the user waits after every action, so that even what depends on the order of events is the
    /// same at the end.
    pub is_sequential: bool,
}

/// A Machine as the generator models it.
#[derive(Clone, Default)]
struct MachineModel {
    spec: Option<Value>,
    is_paused: bool,
    is_deleted: bool,
    /// The number of the next data disk.
    disks: u64,
    restarts: u64,
}

/// Generates the actions of a scenario.
struct ScenarioGenerator {
    random: Random,
    seed: u64,
    /// The providers to which Machines refer directly.
    providers: Vec<String>,
    pool: Option<Pool>,
    machines: Vec<MachineModel>,
    /// Objects that Machines refer to and that do not exist yet.
    missing: Vec<(&'static str, String, Value)>,
    actions: Vec<UserAction>,
    is_sequential: bool,
    /// The Machine of the last action.
    last: usize,
}

impl Scenario {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, 1);
        let pool = random.chance(40).then(|| Pool::new(&mut random));
        let count = match &pool {
            None => 1 + random.index(2),
            Some(pool) if pool.is_contested => 0,
            Some(_) => random.index(2),
        };
        let named: Vec<String> =
            ["provider-a", "provider-b"][..count].iter().map(ToString::to_string).collect();
        let mut providers = named.clone();
        providers.extend(pool.iter().flat_map(|pool| &pool.providers).map(|(name, _)| name.clone()));

        let latency = Duration::from_millis(random.pick(&[0, 0, 300, 2_000]));
        let (reuse_ids, is_sequential) = (random.chance(50), random.chance(30));
        let machines = vec![MachineModel::default(); 3 + usize::from(random.chance(25))];
        let mut generator = ScenarioGenerator {
            random,
            seed,
            providers: named,
            pool: pool.clone(),
            machines,
            missing: Vec::new(),
            actions: Vec::new(),
            is_sequential,
            last: 0,
        };

        generator.create_initial_objects();
        for _ in 0..4 + generator.random.below(7) {
            generator.add_action();
        }
        generator.finish();
        Self { providers, pool, latency, reuse_ids, actions: generator.actions, is_sequential }
    }
}

fn create(kind: &'static str, name: &str, content: Value) -> Operation {
    Operation::Create { kind, name: name.to_owned(), content }
}

fn change(name: &str, patch: Value) -> Operation {
    Operation::Change { kind: "Machine", name: name.to_owned(), patch }
}

fn annotated(key: &str, value: &Value) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

fn name(slot: usize) -> String {
    format!("vm-{slot}")
}

/// Name of the MachineClass of a scenario; classes have no namespace.
fn class(seed: u64) -> String {
    format!("class-{seed}")
}

impl ScenarioGenerator {
    /// Draws how long the user waits after an action.
    fn wait(&mut self) -> Wait {
        if self.is_sequential || self.random.chance(25) {
            return Wait::UntilSettled;
        }
        Wait::For(Duration::from_millis(self.random.pick(&[0, 0, 1, 60, 400, 3_000, 20_000])))
    }

    /// Adds an action.
    fn act(&mut self, description: impl Into<String>, operation: Operation) {
        let wait = self.wait();
        self.actions.push(UserAction { description: description.into(), operation, wait });
    }

    /// Lets the last action wait: the result of the next one depends on what exists by then.
    fn settle_first(&mut self) {
        if let Some(last) = self.actions.last_mut() {
            last.wait = Wait::UntilSettled;
        }
    }

    /// Creates some of the objects that Machines refer to, and some of the Machines.
    fn create_initial_objects(&mut self) {
        let class_spec = json!({
            "resources": { "cpu": { "cores": 3 }, "memory": { "size": "3Gi" } },
            "disks": [{ "name": "root", "size": "15Gi" }, { "name": "scratch", "size": "5Gi" }],
        });
        let datacenter = self.pool.as_ref().map(|pool| ("Datacenter", "dc".to_owned(), pool.datacenter()));
        let references = [
            ("NetworkConfiguration", "lan".to_owned(), json!({ "spec": { "bridge": "br0", "vlan": 7 } })),
            ("Secret", "boot".to_owned(), json!({ "stringData": { "userdata": "#cloud-config" } })),
            ("MachineClass", class(self.seed), json!({ "spec": class_spec })),
        ];
        for (kind, name, content) in datacenter.into_iter().chain(references) {
            if self.random.chance(60) {
                self.act(format!("creates {kind} {name}"), create(kind, &name, content));
            } else {
                self.missing.push((kind, name, content));
            }
        }

        for slot in 0..self.machines.len() {
            if self.random.chance(70) {
                self.create_machine(slot);
            }
        }
    }

    /// Adds an action: a missing object, or something about one Machine.
    fn add_action(&mut self) {
        if !self.missing.is_empty() && self.random.chance(25) {
            self.create_missing();
            return;
        }

        // Often the same Machine again: what is still in progress breaks most easily.
        let slot = if self.random.chance(40) { self.last } else { self.random.index(self.machines.len()) };
        self.last = slot;

        let machine = self.machines[slot].clone();
        match (&machine.spec, machine.is_deleted, machine.is_paused) {
            (None, ..) => self.create_machine(slot),
            (Some(_), true, true) => self.resume(slot),
            (Some(_), true, false) => {
                self.settle_first();
                self.machines[slot] = MachineModel::default();
                self.create_machine(slot);
            }
            (Some(_), false, true) if self.random.chance(50) => self.resume(slot),
            (Some(spec), false, _) => self.edit(slot, spec.clone()),
        }
    }

    /// Mostly resumes what is paused and creates what is missing; what stays wrong must stay wrong in the
    /// same way.
    fn finish(&mut self) {
        while !self.missing.is_empty() && self.random.chance(80) {
            self.create_missing();
        }
        for slot in 0..self.machines.len() {
            if self.machines[slot].is_paused && self.random.chance(70) {
                self.resume(slot);
            }
        }
        self.settle_first();
    }

    fn create_missing(&mut self) {
        let (kind, name, content) = self.missing.remove(0);
        self.act(format!("creates the missing {kind} {name}"), create(kind, &name, content));
    }

    fn is_contested(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.is_contested)
    }

    /// Creates a Machine with a spec that is drawn.
    fn create_machine(&mut self, slot: usize) {
        let is_pooled = self.providers.is_empty() || self.pool.is_some() && self.random.chance(70);
        let (reference, target) = if is_pooled {
            ("datacenterRef", "dc".to_owned())
        } else {
            ("providerRef", self.random.pick(&self.providers))
        };
        if self.is_contested() {
            let spec = json!({ "template": "small", "datacenterRef": { "name": "dc" } });
            self.create_with_spec(slot, &spec);
            return;
        }

        let template = match self.random.below(5) {
            0 | 1 => json!("small"),
            2 => json!("medium"),
            3 => json!(class(self.seed)),
            _ => Value::Null,
        };
        let mut spec = json!({ reference: { "name": target } });
        if template.is_null() {
            spec["resources"] = json!({ "cpu": { "cores": 1 }, "memory": { "size": "1Gi" } });
            spec["disks"] = json!([{ "name": "root", "size": "8Gi" }]);
        } else {
            spec["template"] = template;
            spec["disks"] = json!([]);
            if self.random.chance(30) {
                spec["resources"] = json!({ "cpu": { "sockets": 2 } });
            }
        }

        if self.random.chance(40) {
            let policy = self.policy(&spec);
            let disk = json!({ "name": "data-0", "size": "4Gi", "reclaimPolicy": policy });
            spec["disks"].as_array_mut().unwrap().push(disk);
        }
        if self.random.chance(30) {
            spec["networks"] = json!([{ "name": "eth0", "networkName": "lan" }]);
        }
        if self.random.chance(30) {
            spec["cloudInit"] = json!({ "secretRef": { "name": "boot", "key": "userdata" } });
        }
        if self.random.chance(15) {
            spec["powerState"] = json!("Stopped");
        }
        self.create_with_spec(slot, &spec);
    }

    /// Draws the reclaim policy of a disk. A Machine of a Datacenter retains no disk: whether the next
    /// Machine of its name finds the disk would depend on where each of them is placed.
    fn policy(&mut self, spec: &Value) -> &'static str {
        if spec["datacenterRef"].is_null() { self.random.pick(&["Retain", "Delete"]) } else { "Delete" }
    }

    fn create_with_spec(&mut self, slot: usize, spec: &Value) {
        self.last = slot;
        self.machines[slot] = MachineModel { spec: Some(spec.clone()), disks: 1, ..MachineModel::default() };
        let description = format!("creates Machine {}: {spec}", name(slot));
        self.act(description, create("Machine", &name(slot), json!({ "spec": spec })));
    }

    fn resume(&mut self, slot: usize) {
        self.machines[slot].is_paused = false;
        let patch = annotated("vitistack.io/paused", &Value::Null);
        self.act(format!("resumes {}", name(slot)), change(&name(slot), patch));
    }

    /// Sets a field of the spec of a Machine.
    fn set_field(&mut self, slot: usize, mut spec: Value, field: &str, value: &Value) {
        spec[field] = value.clone();
        self.machines[slot].spec = Some(spec);
        let description = format!("sets {field} of {} to {value}", name(slot));
        self.act(description, change(&name(slot), json!({ "spec": { field: value } })));
    }

    /// Changes a Machine that exists, or what it refers to.
    fn edit(&mut self, slot: usize, spec: Value) {
        let disks = spec["disks"].as_array().cloned().unwrap_or_default();
        let is_data = |disk: &&Value| disk["name"].as_str().is_some_and(|name| name.starts_with("data-"));
        let choice = if self.is_contested() { 11 } else { self.random.below(12) };
        match choice {
            0 | 1 => {
                let cores = 1 + self.random.below(6);
                let memory = format!("{}Gi", 1 + self.random.below(8));
                let resources = json!({ "cpu": { "cores": cores }, "memory": { "size": memory } });
                self.set_field(slot, spec, "resources", &resources);
            }
            2 | 3 => {
                let state = if spec["powerState"] == "Stopped" { "Running" } else { "Stopped" };
                self.set_field(slot, spec, "powerState", &json!(state));
            }
            4 => {
                self.machines[slot].restarts += 1;
                let request = format!("2030-01-01T00:{:02}:00Z", self.machines[slot].restarts);
                let patch = annotated("vitistack.io/restart-at", &json!(request));
                self.act(format!("restarts {}", name(slot)), change(&name(slot), patch));
            }
            5 | 6 => {
                let number = self.machines[slot].disks;
                self.machines[slot].disks += 1;
                let policy = self.policy(&spec);
                let disk =
                    json!({ "name": format!("data-{number}"), "size": "3Gi", "reclaimPolicy": policy });
                let mut disks = disks;
                disks.push(disk);
                self.set_field(slot, spec, "disks", &json!(disks));
            }
            7 => {
                if let Some(position) = disks.iter().position(|disk| is_data(&disk)) {
                    let mut disks = disks;
                    // Whether a retained disk was ever created depends on how far the operator got.
                    if disks.remove(position)["reclaimPolicy"] == "Retain" {
                        self.settle_first();
                    }
                    self.set_field(slot, spec, "disks", &json!(disks));
                }
            }
            8 => {
                if let Some(position) = disks.iter().position(|disk| is_data(&disk)) {
                    let mut disks = disks;
                    disks[position]["size"] = json!(format!("{}Gi", 10 + self.actions.len()));
                    self.set_field(slot, spec, "disks", &json!(disks));
                }
            }
            9 if !self.machines[slot].is_paused => {
                // Whatever happens before the pause must happen in every run.
                self.settle_first();
                self.machines[slot].is_paused = true;
                let patch = annotated("vitistack.io/paused", &json!("true"));
                self.act(format!("pauses {}", name(slot)), change(&name(slot), patch));
                // The operator may see the next action before it sees the pause.
                self.settle_first();
            }
            10 if !self.missing.iter().any(|(kind, ..)| *kind == "NetworkConfiguration") => {
                let vlan = 8 + self.actions.len();
                let patch = json!({ "spec": { "vlan": vlan } });
                let operation =
                    Operation::Change { kind: "NetworkConfiguration", name: "lan".to_owned(), patch };
                self.act(format!("moves the network lan to VLAN {vlan}"), operation);
            }
            _ => {
                if disks.iter().any(|disk| disk["reclaimPolicy"] == "Retain") {
                    self.settle_first();
                }
                self.machines[slot].is_deleted = true;
                self.act(format!("deletes {}", name(slot)), Operation::Delete { name: name(slot) });
            }
        }
    }
}
