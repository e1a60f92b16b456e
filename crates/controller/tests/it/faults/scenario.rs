//! What a user does: a list of actions that follows from a seed.
//!
//! The end must be the same however late the operator is, so a user who does something whose result depends on what was
//! made before (a kept disk removed, a pause, a name used again) waits first until things have settled.

use std::{fmt, time::Duration};

use serde_json::{Value, json};

use super::random::Random;

/// What is done.
#[derive(Clone, Debug)]
pub enum Deed {
    /// Creates an object of ours, or a Secret.
    Create { kind: &'static str, name: String, content: Value },
    /// Changes an object.
    Change { kind: &'static str, name: String, patch: Value },
    /// Deletes a Machine.
    Delete { name: String },
    /// Loses the control plane and restores a Machine, which gets another UID, from what it was.
    Restore { name: String },
    /// Adopts a restored Machine.
    Adopt { name: String },
}

/// What the user does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Goes on after this time.
    GoOn(Duration),
    /// Waits until everything has come to rest.
    Settle,
}

/// One action.
#[derive(Clone, Debug)]
pub struct Action {
    pub words: String,
    pub deed: Deed,
    pub then: Then,
}

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.then {
            Then::GoOn(pause) => write!(formatter, "{}, goes on after {pause:?}", self.words),
            Then::Settle => write!(formatter, "{}, waits until things have settled", self.words),
        }
    }
}

/// The providers of the Datacenter `dc`, which Machines may name instead of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The most machines that each has room for, in the order of their priority.
    pub providers: Vec<(String, Option<u64>)>,
    /// The most machines that the Datacenter lets in.
    pub quota: Option<u64>,
    /// Whether not all Machines get in: who does depends on who comes first, and all are alike.
    pub is_contested: bool,
}

impl Pool {
    fn new(random: &mut Random) -> Self {
        let is_contested = random.is(50);
        let (first, second) = match (is_contested, random.below(3)) {
            (false, _) => (Some(1), None),
            (true, 0) => (Some(1), Some(1)),
            (true, 1) => (Some(2), None),
            (true, _) => (None, None),
        };
        let is_roomy = second.is_none();
        Self {
            providers: vec![("pool-a".to_owned(), first), ("pool-b".to_owned(), second)],
            quota: (is_contested && is_roomy).then_some(2),
            is_contested,
        }
    }

    /// Whether the provider is one of them.
    pub fn has(&self, provider: &str) -> bool {
        self.providers.iter().any(|(name, _)| name == provider)
    }

    /// The most machines that the provider has room for.
    pub fn capacity(&self, provider: &str) -> Option<u64> {
        self.providers.iter().find(|(name, _)| name == provider)?.1
    }

    /// The Datacenter.
    pub fn datacenter(&self) -> Value {
        let rank = |(place, (name, _)): (usize, &(String, Option<u64>))| json!({ "name": name, "priority": place + 1 });
        let providers: Vec<Value> = self.providers.iter().enumerate().map(rank).collect();
        let quotas = self.quota.map(|most| json!({ "maxMachines": most }));
        json!({ "spec": { "region": "here", "machineProviders": providers, "resourceQuotas": quotas } })
    }
}

/// Everything that a user does.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub providers: Vec<String>,
    pub pool: Option<Pool>,
    pub latency: Duration,
    pub reuse_ids: bool,
    pub actions: Vec<Action>,
    /// Whether the user always waits, so that even what depends on the order of things is the same in the end.
    pub is_patient: bool,
}

/// A Machine as the user knows it.
#[derive(Clone, Default)]
struct Known {
    spec: Option<Value>,
    is_paused: bool,
    is_deleted: bool,
    disks: u64,
    restarts: u64,
}

struct Author {
    random: Random,
    seed: u64,
    /// The providers that Machines name themselves.
    providers: Vec<String>,
    pool: Option<Pool>,
    machines: Vec<Known>,
    missing: Vec<(&'static str, String, Value)>,
    actions: Vec<Action>,
    is_patient: bool,
    /// The Machine that was last touched.
    last: usize,
}

impl Scenario {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, 1);
        let pool = random.is(40).then(|| Pool::new(&mut random));
        let count = match &pool {
            None => 1 + random.place(2),
            Some(pool) if pool.is_contested => 0,
            Some(_) => random.place(2),
        };
        let named: Vec<String> =
            ["provider-a", "provider-b"][..count].iter().map(ToString::to_string).collect();
        let mut providers = named.clone();
        providers.extend(pool.iter().flat_map(|pool| &pool.providers).map(|(name, _)| name.clone()));
        let latency = Duration::from_millis(random.one(&[0, 0, 300, 2_000]));
        let (reuse_ids, is_patient) = (random.is(50), random.is(30));
        let machines = vec![Known::default(); 3 + usize::from(random.is(25))];
        let mut author = Author {
            random,
            seed,
            providers: named,
            pool: pool.clone(),
            machines,
            missing: Vec::new(),
            actions: Vec::new(),
            is_patient,
            last: 0,
        };
        author.begin();
        for _ in 0..4 + author.random.below(7) {
            author.go_on();
        }
        author.finish();
        Self { providers, pool, latency, reuse_ids, actions: author.actions, is_patient }
    }
}

fn create(kind: &'static str, name: &str, content: Value) -> Deed {
    Deed::Create { kind, name: name.to_owned(), content }
}

fn change(name: &str, patch: Value) -> Deed {
    Deed::Change { kind: "Machine", name: name.to_owned(), patch }
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

impl Author {
    fn then(&mut self) -> Then {
        if self.is_patient || self.random.is(25) {
            return Then::Settle;
        }
        Then::GoOn(Duration::from_millis(self.random.one(&[0, 0, 1, 60, 400, 3_000, 20_000])))
    }

    fn act(&mut self, words: impl Into<String>, deed: Deed) {
        let then = self.then();
        self.actions.push(Action { words: words.into(), deed, then });
    }

    /// What comes next depends on what was made: the user waits for it.
    fn settle_first(&mut self) {
        if let Some(last) = self.actions.last_mut() {
            last.then = Then::Settle;
        }
    }

    /// What Machines refer to: some of it is there from the beginning.
    fn begin(&mut self) {
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
            if self.random.is(60) {
                self.act(format!("creates {kind} {name}"), create(kind, &name, content));
            } else {
                self.missing.push((kind, name, content));
            }
        }
        for slot in 0..self.machines.len() {
            if self.random.is(70) {
                self.make(slot);
            }
        }
    }

    fn go_on(&mut self) {
        if !self.missing.is_empty() && self.random.is(25) {
            self.provide();
            return;
        }
        // Often the same again: what is not yet done is what is easily broken.
        let slot = if self.random.is(40) { self.last } else { self.random.place(self.machines.len()) };
        self.last = slot;
        let machine = self.machines[slot].clone();
        match (&machine.spec, machine.is_deleted, machine.is_paused) {
            (None, ..) => self.make(slot),
            (Some(_), true, true) => self.resume(slot),
            (Some(_), true, false) => {
                self.settle_first();
                self.machines[slot] = Known::default();
                self.make(slot);
            }
            (Some(_), false, true) if self.random.is(50) => self.resume(slot),
            (Some(spec), false, _) => self.edit(slot, spec.clone()),
        }
    }

    /// Ends pauses and gives what is missing, mostly: what stays wrong must stay wrong in the same way.
    fn finish(&mut self) {
        while !self.missing.is_empty() && self.random.is(80) {
            self.provide();
        }
        for slot in 0..self.machines.len() {
            if self.machines[slot].is_paused && self.random.is(70) {
                self.resume(slot);
            }
        }
        self.settle_first();
    }

    fn provide(&mut self) {
        let (kind, name, content) = self.missing.remove(0);
        self.act(format!("creates {kind} {name} at last"), create(kind, &name, content));
    }

    fn is_contested(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.is_contested)
    }

    fn make(&mut self, slot: usize) {
        let is_pooled = self.providers.is_empty() || self.pool.is_some() && self.random.is(70);
        let place = if is_pooled {
            ("datacenterRef", "dc".to_owned())
        } else {
            ("providerRef", self.random.one(&self.providers))
        };
        if self.is_contested() {
            let spec = json!({ "template": "small", "datacenterRef": { "name": "dc" } });
            self.put(slot, &spec);
            return;
        }
        let template = match self.random.below(5) {
            0 | 1 => json!("small"),
            2 => json!("medium"),
            3 => json!(class(self.seed)),
            _ => Value::Null,
        };
        let mut spec = json!({ place.0: { "name": place.1 } });
        if template.is_null() {
            spec["resources"] = json!({ "cpu": { "cores": 1 }, "memory": { "size": "1Gi" } });
            spec["disks"] = json!([{ "name": "root", "size": "8Gi" }]);
        } else {
            spec["template"] = template;
            spec["disks"] = json!([]);
            if self.random.is(30) {
                spec["resources"] = json!({ "cpu": { "sockets": 2 } });
            }
        }
        if self.random.is(40) {
            let policy = self.policy(&spec);
            let disk = json!({ "name": "data-0", "size": "4Gi", "reclaimPolicy": policy });
            spec["disks"].as_array_mut().unwrap().push(disk);
        }
        if self.random.is(30) {
            spec["networks"] = json!([{ "name": "eth0", "networkName": "lan" }]);
        }
        if self.random.is(30) {
            spec["cloudInit"] = json!({ "secretRef": { "name": "boot", "key": "userdata" } });
        }
        if self.random.is(15) {
            spec["powerState"] = json!("Stopped");
        }
        self.put(slot, &spec);
    }

    /// Where a Machine of a Datacenter leaves what is kept depends on where it was, and the next one of its name finds it
    /// or not.
    fn policy(&mut self, spec: &Value) -> &'static str {
        if spec["datacenterRef"].is_null() { self.random.one(&["Retain", "Delete"]) } else { "Delete" }
    }

    fn put(&mut self, slot: usize, spec: &Value) {
        self.last = slot;
        self.machines[slot] = Known { spec: Some(spec.clone()), disks: 1, ..Known::default() };
        let words = format!("creates Machine {}: {spec}", name(slot));
        self.act(words, create("Machine", &name(slot), json!({ "spec": spec })));
    }

    fn resume(&mut self, slot: usize) {
        self.machines[slot].is_paused = false;
        let patch = annotated("vitistack.io/paused", &Value::Null);
        self.act(format!("resumes {}", name(slot)), change(&name(slot), patch));
    }

    /// Gives the Machine a member of its spec.
    fn give(&mut self, slot: usize, mut spec: Value, member: &str, value: &Value) {
        spec[member] = value.clone();
        self.machines[slot].spec = Some(spec);
        let words = format!("gives {} {member} {value}", name(slot));
        self.act(words, change(&name(slot), json!({ "spec": { member: value } })));
    }

    fn edit(&mut self, slot: usize, spec: Value) {
        let disks = spec["disks"].as_array().cloned().unwrap_or_default();
        let own = |disk: &&Value| disk["name"].as_str().is_some_and(|name| name.starts_with("data-"));
        let choice = if self.is_contested() { 11 } else { self.random.below(12) };
        match choice {
            0 | 1 => {
                let cores = 1 + self.random.below(6);
                let memory = format!("{}Gi", 1 + self.random.below(8));
                let resources = json!({ "cpu": { "cores": cores }, "memory": { "size": memory } });
                self.give(slot, spec, "resources", &resources);
            }
            2 | 3 => {
                let state = if spec["powerState"] == "Stopped" { "Running" } else { "Stopped" };
                self.give(slot, spec, "powerState", &json!(state));
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
                self.give(slot, spec, "disks", &json!(disks));
            }
            7 => {
                if let Some(position) = disks.iter().position(|disk| own(&disk)) {
                    let mut disks = disks;
                    // Whether a disk that is kept was ever made depends on how far the operator is.
                    if disks.remove(position)["reclaimPolicy"] == "Retain" {
                        self.settle_first();
                    }
                    self.give(slot, spec, "disks", &json!(disks));
                }
            }
            8 => {
                if let Some(position) = disks.iter().position(|disk| own(&disk)) {
                    let mut disks = disks;
                    disks[position]["size"] = json!(format!("{}Gi", 10 + self.actions.len()));
                    self.give(slot, spec, "disks", &json!(disks));
                }
            }
            9 if !self.machines[slot].is_paused => {
                // What is done before the pause is done in every play.
                self.settle_first();
                self.machines[slot].is_paused = true;
                let patch = annotated("vitistack.io/paused", &json!("true"));
                self.act(format!("pauses {}", name(slot)), change(&name(slot), patch));
                // What comes after it may be heard of before it.
                self.settle_first();
            }
            10 if !self.missing.iter().any(|(kind, ..)| *kind == "NetworkConfiguration") => {
                let vlan = 8 + self.actions.len();
                let patch = json!({ "spec": { "vlan": vlan } });
                let deed = Deed::Change { kind: "NetworkConfiguration", name: "lan".to_owned(), patch };
                self.act(format!("moves the network lan to VLAN {vlan}"), deed);
            }
            _ => {
                if disks.iter().any(|disk| disk["reclaimPolicy"] == "Retain") {
                    self.settle_first();
                }
                self.machines[slot].is_deleted = true;
                self.act(format!("deletes {}", name(slot)), Deed::Delete { name: name(slot) });
            }
        }
    }
}
