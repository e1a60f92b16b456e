//! Checks every write that reaches the API store and every call to a provider against the invariants, at the
//! moment it happens: a violation fails the run even if its end looks right.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use jiff::Timestamp;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use vitistack_apiserver::store::Key;
use vitistack_machine::{
    Part, Target,
    simulated::{
        Clock,
        world::{Task, Work},
    },
};
use vitistack_plan::{
    datacenter::{Usage, usage_of},
    machine::{datacenter_of, has_finalizer, identity, placement},
};
use vitistack_types::{
    Placement,
    conditions::READY,
    labels,
    v1alpha1::{Datacenter, Machine, MachinePhase, ReclaimPolicy},
};

use super::{context::lock, random::RuntimeClock};

/// How often a write may be repeated under faults: a lost response and a late watch hide that it was stored.
const MAX_REPEATS: u32 = 6;

/// The operator whose lease covers Machines and calls to providers.
const MACHINE_LEASE: &str = "simulated-operator";
/// The operator whose lease covers placements.
const PLACEMENT_LEASE: &str = "datacenter-operator";

/// A call of an operator to a provider that changes something.
#[derive(Clone, Copy, Debug)]
pub enum ProviderCall<'a> {
    /// Creates or updates a machine.
    CreateOrUpdate,
    /// Deletes a part of a machine.
    Delete(&'a Part),
}

/// Records what happens in one run and checks it against the invariants.
pub struct InvariantChecker {
    clock: RuntimeClock,
    /// Whether no faults are injected, so that nothing excuses a needless write.
    is_fault_free: bool,
    recorded: Mutex<Recorded>,
}

/// What was written so far, and the violations found in it.
#[derive(Default)]
struct Recorded {
    machines: BTreeMap<String, Arc<Machine>>,
    datacenters: BTreeMap<String, Datacenter>,
    /// MachineClasses and NetworkConfigurations whose current generation is not reported as usable.
    unreported: BTreeSet<String>,
    /// The incarnation that holds each lease, by lease name.
    leases: BTreeMap<String, u64>,
    /// Machines at the providers, by provider and ID.
    backing_machines: BTreeMap<(String, u64), Backing>,
    /// Volumes at the providers, by provider and ID.
    backing_volumes: BTreeMap<(String, u64), Backing>,
    /// How often each write was repeated without a change.
    repeated: BTreeMap<String, u32>,
    problems: Vec<String>,
}

/// A machine or volume at a provider, as far as the invariants need it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Backing {
    tag: Option<String>,
    task: Option<Task>,
    running: Option<IgnoredAny>,
    reclaim_policy: Option<ReclaimPolicy>,
}

/// One record of the store of a simulated provider.
#[derive(Deserialize)]
struct Record {
    machines: BTreeMap<u64, Option<Backing>>,
    volumes: BTreeMap<u64, Option<Backing>>,
}

impl Backing {
    /// Returns the work of a task that has ended, and whether it succeeded.
    fn ended(&self, now: Timestamp) -> Option<(&Work, bool)> {
        self.task.as_ref().filter(|task| task.due <= now).map(|task| (&task.work, !task.fails))
    }

    fn exists(&self, now: Timestamp) -> bool {
        !matches!(self.ended(now), Some((Work::Create { .. }, false) | (Work::Destroy, true)))
    }

    fn is_on(&self, now: Timestamp) -> bool {
        match self.ended(now) {
            Some((Work::Create { is_on }, true)) => *is_on,
            Some((Work::Start | Work::Restart { .. }, true)) => true,
            Some((Work::Stop, true)) => false,
            _ => self.running.is_some(),
        }
    }
}

impl InvariantChecker {
    pub fn new(clock: RuntimeClock, is_fault_free: bool) -> Arc<Self> {
        Arc::new(Self { clock, is_fault_free, recorded: Mutex::default() })
    }

    /// Returns the violations, oldest first.
    pub fn problems(&self) -> Vec<String> {
        lock(&self.recorded).problems.clone()
    }

    /// Returns the stored Machines.
    pub fn machines(&self) -> Vec<Arc<Machine>> {
        lock(&self.recorded).machines.values().cloned().collect()
    }

    /// Returns the stored Datacenters.
    pub fn datacenters(&self) -> Vec<Datacenter> {
        lock(&self.recorded).datacenters.values().cloned().collect()
    }

    /// Returns the MachineClasses and NetworkConfigurations whose current generation is not reported as
    /// usable.
    pub fn unreported(&self) -> Vec<String> {
        lock(&self.recorded).unreported.iter().cloned().collect()
    }

    /// Records a stored write. `incarnation` is that of the operator; a user has none.
    pub fn record_write(&self, incarnation: Option<u64>, key: &Key, object: &[u8], is_removed: bool) {
        let mut recorded = lock(&self.recorded);
        match &*key.resource {
            "vitistack.io/machines" => {
                let after: Machine = serde_json::from_slice(object).unwrap();
                let before = recorded.machines.get(&key.path()).cloned();
                if let (Some(before), Some(incarnation)) = (&before, incarnation) {
                    let change = Change { before, after: &after, is_removed, now: self.clock.now() };
                    let problems = recorded.check_machine_write(&change, incarnation);
                    recorded.add(&key.path(), problems);
                }
                recorded.repeated.retain(|what, _| !what.contains(&key.name));
                if is_removed {
                    recorded.machines.remove(&key.path());
                } else {
                    recorded.machines.insert(key.path(), Arc::new(after));
                }
            }
            "vitistack.io/datacenters" if is_removed => drop(recorded.datacenters.remove(&key.path())),
            "vitistack.io/datacenters" => {
                recorded.datacenters.insert(key.path(), serde_json::from_slice(object).unwrap());
            }
            "vitistack.io/machineclasses" | "vitistack.io/networkconfigurations" => {
                let object: Value = serde_json::from_slice(object).unwrap();
                let is_reported = object["status"]["observedGeneration"] == object["metadata"]["generation"];
                if is_reported || is_removed {
                    recorded.unreported.remove(&key.name);
                } else {
                    recorded.unreported.insert(key.name.clone());
                }
            }
            "coordination.k8s.io/leases" => {
                let lease: Value = serde_json::from_slice(object).unwrap();
                let is_held = lease["spec"]["holderIdentity"].as_str().is_some_and(|who| !who.is_empty());
                match incarnation.filter(|_| is_held) {
                    Some(incarnation) => recorded.leases.insert(key.name.clone(), incarnation),
                    None => recorded.leases.remove(&key.name),
                };
            }
            _ => {}
        }
    }

    /// Records an accepted write that changed nothing.
    pub fn record_no_op_write(&self, what: &str) {
        let mut recorded = lock(&self.recorded);
        let times = recorded.repeated.entry(what.to_owned()).or_default();
        *times += 1;
        let times = *times;
        if self.is_fault_free || times > MAX_REPEATS {
            recorded.problems.push(format!("{what} changed nothing, {times} times"));
        }
    }

    /// Records a call to a provider, and checks that it is allowed.
    pub fn record_provider_call(
        &self,
        incarnation: u64,
        provider: &str,
        call: ProviderCall<'_>,
        target: &Target,
    ) {
        let mut recorded = lock(&self.recorded);
        let path = format!("{}/{}", target.namespace, target.name);
        let mut problems = recorded.without_lease(incarnation, MACHINE_LEASE);
        match recorded.machines.get(&path).cloned() {
            None => problems.push("the Machine does not exist".to_owned()),
            Some(machine) => {
                if machine.metadata.uid.as_ref() != Some(&target.uid) {
                    problems.push("the Machine was replaced by another one of the same name".to_owned());
                }
                if !has_finalizer(&machine) {
                    problems.push("the Machine has no finalizer".to_owned());
                }
                let carried = annotation(&machine, labels::IDENTITY);
                if carried != Some(target.identity.as_str()) {
                    problems.push(format!("the Machine's identity is {carried:?}"));
                }
                let placed = placement(&machine).map(|placed| placed.to_string());
                if placed.as_deref() != Some(provider) {
                    problems.push(format!("the Machine is placed on {placed:?}"));
                }
                problems.extend(forbidden_deletion(&machine, call));
            }
        }

        let now = self.clock.now();
        let elsewhere = |(key, backing): (&(String, u64), &Backing)| {
            !provider.ends_with(&format!("/{}", key.0))
                && backing.tag.as_deref() == Some(target.identity.as_str())
                && backing.exists(now)
        };
        if recorded.backing_machines.iter().any(elsewhere) {
            problems.push("another provider has a machine with its identity".to_owned());
        }
        recorded.add(&format!("{call:?} of {path} on {provider}"), problems);
    }

    /// Records what a provider stored: a change, or, if `replaces`, its whole state.
    pub fn record_provider_state(&self, provider: &str, record: &[u8], replaces: bool) {
        let mut recorded = lock(&self.recorded);
        let Record { machines, volumes } = serde_json::from_slice(record).unwrap();
        merge(&mut recorded.backing_machines, provider, machines, replaces);
        merge(&mut recorded.backing_volumes, provider, volumes, replaces);

        let now = self.clock.now();
        let mut tags = BTreeSet::new();
        let existing = recorded.backing_machines.values().filter(|backing| backing.exists(now));
        let duplicates: Vec<String> = existing
            .filter_map(|backing| backing.tag.as_ref())
            .filter(|tag| !tags.insert(*tag))
            .map(|tag| format!("there are two machines with identity {tag}"))
            .collect();
        recorded.add(provider, duplicates);
    }
}

/// Merges a record of a provider into what is known of all providers.
fn merge(
    all: &mut BTreeMap<(String, u64), Backing>,
    provider: &str,
    read: BTreeMap<u64, Option<Backing>>,
    replaces: bool,
) {
    if replaces {
        all.retain(|(name, _), _| name != provider);
    }
    for (id, backing) in read {
        let key = (provider.to_owned(), id);
        match backing {
            Some(backing) => all.insert(key, backing),
            None => all.remove(&key),
        };
    }
}

fn annotation<'a>(machine: &'a Machine, name: &str) -> Option<&'a str> {
    machine.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Returns why a call must not delete what it deletes.
fn forbidden_deletion(machine: &Machine, call: ProviderCall<'_>) -> Option<String> {
    let is_deleted = machine.metadata.deletion_timestamp.is_some();
    match call {
        ProviderCall::CreateOrUpdate => None,
        ProviderCall::Delete(_) if is_deleted => None,
        ProviderCall::Delete(Part::Machine) => Some("the Machine is not being deleted".to_owned()),
        ProviderCall::Delete(Part::Disks(disks)) => {
            // Disks of a class are never removed.
            let is_wanted = |disk: &&String| {
                ["root", "scratch"].contains(&disk.as_str())
                    || machine.spec.disks.iter().any(|wanted| wanted.name == **disk)
            };
            disks.iter().find(is_wanted).map(|disk| format!("the Machine still has disk {disk}"))
        }
        // Leftovers of a create without capacity are deleted once the lack of capacity is recorded.
        ProviderCall::Delete(Part::BlankDisks(_) | Part::Leftovers) => {
            annotation(machine, labels::PASSED_OVER)
                .is_none()
                .then(|| "the Machine was not passed over".to_owned())
        }
    }
}

/// A write of an operator to a Machine.
struct Change<'a> {
    before: &'a Machine,
    after: &'a Machine,
    is_removed: bool,
    now: Timestamp,
}

impl Recorded {
    fn add(&mut self, what: &str, problems: Vec<String>) {
        self.problems.extend(problems.into_iter().map(|problem| format!("{what}: {problem}")));
    }

    /// Returns a problem if the process does not hold the lease, where leases are used.
    fn without_lease(&self, incarnation: u64, lease: &str) -> Vec<String> {
        let lacks_lease = !self.leases.is_empty() && self.leases.get(lease) != Some(&incarnation);
        if lacks_lease { vec![format!("process {incarnation} does not hold {lease}")] } else { Vec::new() }
    }

    /// Returns what is wrong with a write of an operator to a Machine.
    fn check_machine_write(&self, change: &Change<'_>, incarnation: u64) -> Vec<String> {
        let Change { before, after, .. } = *change;
        let mut problems = Vec::new();
        let (had, has) = (has_finalizer(before), has_finalizer(after));

        let carried = annotation(before, labels::IDENTITY);
        if carried.is_some() && carried != annotation(after, labels::IDENTITY) {
            problems.push("its identity changed".to_owned());
        }
        if had && has && placement(before) != placement(after) {
            problems.push(format!("it moved from {:?} to {:?}", placement(before), placement(after)));
        }
        if had != has {
            problems.extend(self.without_lease(incarnation, MACHINE_LEASE));
        }
        if had && !has {
            problems.extend(self.leftovers(change));
        }
        if !had && has && (annotation(after, labels::IDENTITY).is_none() || placement(after).is_none()) {
            problems.push("it was claimed without identity or placement".to_owned());
        }
        if !has && !had && placement(after).is_some() && placement(before) != placement(after) {
            problems.extend(self.without_lease(incarnation, PLACEMENT_LEASE));
            problems.extend(self.over_quota(after));
        }
        if before.status != after.status && !change.is_removed {
            problems.extend(self.false_status(change));
        }
        problems
    }

    /// Returns what still exists of a Machine whose finalizer is removed.
    fn leftovers(&self, change: &Change<'_>) -> Vec<String> {
        let identity = identity(change.before);
        let is_deleted = change.before.metadata.deletion_timestamp.is_some();
        let is_owned = |backing: &&Backing| {
            backing.tag.as_deref() == Some(identity.as_str()) && backing.exists(change.now)
        };
        let mut problems = Vec::new();

        if self.backing_machines.values().any(|backing| is_owned(&backing)) {
            problems.push("its finalizer was removed while a provider has its machine".to_owned());
        }
        let is_retained =
            |backing: &Backing| is_deleted && backing.reclaim_policy == Some(ReclaimPolicy::Retain);
        if self.backing_volumes.values().filter(is_owned).any(|backing| !is_retained(backing)) {
            problems.push("its finalizer was removed while a provider has its disks".to_owned());
        }
        problems
    }

    /// Returns a problem if a Machine was placed that exceeds the quota of its Datacenter.
    fn over_quota(&self, placed: &Machine) -> Option<String> {
        let name = datacenter_of(placed)?;
        let quotas = self.datacenters.get(&name.to_string())?.spec.resource_quotas.as_ref()?;
        let used = self
            .machines
            .values()
            .map(Arc::as_ref)
            .filter(|other| other.metadata.uid != placed.metadata.uid && placement(other).is_some())
            .filter(|other| datacenter_of(other).as_ref() == Some(&name))
            .chain([placed])
            .map(|machine| usage_of(machine, None).unwrap_or(Usage::ONE_MACHINE))
            .fold(Usage::default(), Usage::plus);

        let is_over = quotas.max_machines.is_some_and(|most| used.machines > most)
            || quotas.max_cpu.is_some_and(|most| used.cpu > most);
        is_over.then(|| format!("it was placed, and {used:?} exceeds {quotas:?}"))
    }

    /// Returns what a status reports that is not true.
    fn false_status(&self, change: &Change<'_>) -> Vec<String> {
        let generation = |machine: &Machine| machine.status.as_ref()?.observed_generation;
        let mut problems = Vec::new();
        if generation(change.after) < generation(change.before) {
            problems.push("its status went back to an older generation".to_owned());
        }

        let phase = change.after.status.as_ref().and_then(|status| status.phase);
        let identity = identity(change.after);
        let placement = placement(change.after);
        let provider = placement.as_ref().and_then(Placement::provider).map(|name| name.name.as_str());
        let backing = self.backing_machines.iter().find(|((name, _), backing)| {
            Some(name.as_str()) == provider
                && backing.tag.as_deref() == Some(identity.as_str())
                && backing.exists(change.now)
        });
        let is_on = backing.map(|(_, backing)| backing.is_on(change.now));

        // After a call whose response was lost the status may show the previous power until the next
        // observation, but not together with Ready=True. It never shows a machine that does not exist.
        let conditions = change.after.status.iter().flat_map(|status| &status.conditions);
        let is_ready = conditions.clone().any(|each| each.type_ == READY && each.status == "True");
        // A Machine that is being deleted keeps its last status while its provider does not answer.
        let is_absent = is_on.is_none() && change.after.metadata.deletion_timestamp.is_none();

        let is_wrong = match phase {
            Some(MachinePhase::Running) => is_absent || is_ready && is_on == Some(false),
            Some(MachinePhase::Stopped) => is_absent || is_ready && is_on == Some(true),
            _ => false,
        };
        if is_wrong {
            problems.push(format!(
                "its status reports {phase:?}, but at {provider:?} its power is on: {is_on:?}"
            ));
        }
        problems
    }
}
