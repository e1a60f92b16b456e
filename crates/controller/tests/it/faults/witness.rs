//! Sees every write that reaches the store of the API and every call to a provider, and says at once what must never be,
//! whatever the end looks like.

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
    machine::{full_name, has_finalizer, identity, placement},
};
use vitistack_types::{
    conditions::READY,
    labels,
    v1alpha1::{Datacenter, Machine, MachinePhase, ReclaimPolicy},
};

use super::{life::lock, random::RuntimeClock};

/// So often the same write may be made again under faults: a lost answer and a late watch hide that it was made.
const REPEATS: u32 = 6;

/// The operator whose lease covers what is done to Machines and providers.
const ACTING: &str = "simulated-operator";
/// The operator whose lease covers placements.
const PLACING: &str = "datacenter-operator";

/// What an operator asks of a provider.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    /// To make a machine, or to change one.
    Make,
    /// To delete a part of it.
    Delete(&'a Part),
}

/// Everything that is seen in one play.
pub struct Witness {
    clock: RuntimeClock,
    /// Whether nothing goes wrong, so that nothing excuses a write too many.
    is_calm: bool,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    machines: BTreeMap<String, Arc<Machine>>,
    datacenters: BTreeMap<String, Datacenter>,
    /// Classes and networks of which nobody has said that they can be used as they are.
    untold: BTreeSet<String>,
    /// The life that wrote each lease last, while it is held.
    leases: BTreeMap<String, u64>,
    machines_of: BTreeMap<(String, u64), Real>,
    volumes_of: BTreeMap<(String, u64), Real>,
    repeated: BTreeMap<String, u32>,
    problems: Vec<String>,
}

/// What a world has, as far as it matters here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Real {
    tag: Option<String>,
    task: Option<Task>,
    running: Option<IgnoredAny>,
    reclaim_policy: Option<ReclaimPolicy>,
}

#[derive(Deserialize)]
struct Record {
    machines: BTreeMap<u64, Option<Real>>,
    volumes: BTreeMap<u64, Option<Real>>,
}

impl Real {
    /// How the task ended, if it has.
    fn ended(&self, now: Timestamp) -> Option<(&Work, bool)> {
        self.task.as_ref().filter(|task| task.due <= now).map(|task| (&task.work, !task.fails))
    }

    fn is_there(&self, now: Timestamp) -> bool {
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

impl Witness {
    pub fn new(clock: RuntimeClock, is_calm: bool) -> Arc<Self> {
        Arc::new(Self { clock, is_calm, seen: Mutex::default() })
    }

    /// What must never have been, in the order in which it was.
    pub fn problems(&self) -> Vec<String> {
        lock(&self.seen).problems.clone()
    }

    /// The Machines as they are stored.
    pub fn machines(&self) -> Vec<Arc<Machine>> {
        lock(&self.seen).machines.values().cloned().collect()
    }

    /// The Datacenters as they are stored.
    pub fn datacenters(&self) -> Vec<Datacenter> {
        lock(&self.seen).datacenters.values().cloned().collect()
    }

    /// The classes and networks of which nobody has said that they can be used as they are.
    pub fn untold(&self) -> Vec<String> {
        lock(&self.seen).untold.iter().cloned().collect()
    }

    /// A write was stored. `life` is that of the operator that made it; none for a user.
    pub fn stored(&self, life: Option<u64>, key: &Key, object: &[u8], is_removed: bool) {
        let mut seen = lock(&self.seen);
        match &*key.resource {
            "vitistack.io/machines" => {
                let after: Machine = serde_json::from_slice(object).unwrap();
                let before = seen.machines.get(&key.path()).cloned();
                if let (Some(before), Some(life)) = (&before, life) {
                    let told = Change { before, after: &after, is_removed, now: self.clock.now() };
                    let problems = seen.judge(&told, life);
                    seen.add(&key.path(), problems);
                }
                seen.repeated.retain(|what, _| !what.contains(&key.name));
                if is_removed {
                    seen.machines.remove(&key.path());
                } else {
                    seen.machines.insert(key.path(), Arc::new(after));
                }
            }
            "vitistack.io/datacenters" if is_removed => drop(seen.datacenters.remove(&key.path())),
            "vitistack.io/datacenters" => {
                seen.datacenters.insert(key.path(), serde_json::from_slice(object).unwrap());
            }
            "vitistack.io/machineclasses" | "vitistack.io/networkconfigurations" => {
                let object: Value = serde_json::from_slice(object).unwrap();
                let is_told = object["status"]["observedGeneration"] == object["metadata"]["generation"];
                if is_told || is_removed {
                    seen.untold.remove(&key.name);
                } else {
                    seen.untold.insert(key.name.clone());
                }
            }
            "coordination.k8s.io/leases" => {
                let lease: Value = serde_json::from_slice(object).unwrap();
                let is_held = lease["spec"]["holderIdentity"].as_str().is_some_and(|who| !who.is_empty());
                match life.filter(|_| is_held) {
                    Some(life) => seen.leases.insert(key.name.clone(), life),
                    None => seen.leases.remove(&key.name),
                };
            }
            _ => {}
        }
    }

    /// A write was taken that changed nothing.
    pub fn repeated(&self, what: &str) {
        let mut seen = lock(&self.seen);
        let times = seen.repeated.entry(what.to_owned()).or_default();
        *times += 1;
        let times = *times;
        if self.is_calm || times > REPEATS {
            seen.problems.push(format!("{what} changed nothing, {times} times"));
        }
    }

    /// A provider is asked for something.
    pub fn asked(&self, life: u64, provider: &str, call: Call<'_>, target: &Target) {
        let mut seen = lock(&self.seen);
        let path = format!("{}/{}", target.namespace, target.name);
        let mut problems = seen.foreign(life, ACTING);
        match seen.machines.get(&path).cloned() {
            None => problems.push("there is no such Machine".to_owned()),
            Some(machine) => {
                if machine.metadata.uid.as_ref() != Some(&target.uid) {
                    problems.push("the Machine is another one by now".to_owned());
                }
                if !has_finalizer(&machine) {
                    problems.push("the Machine has no finalizer".to_owned());
                }
                let carried = annotation(&machine, labels::IDENTITY);
                if carried != Some(target.identity.as_str()) {
                    problems.push(format!("the Machine's identity is {carried:?}"));
                }
                if placement(&machine) != Some(provider) {
                    problems.push(format!("the Machine is placed on {:?}", placement(&machine)));
                }
                problems.extend(wrongly_deleted(&machine, call));
            }
        }
        let now = self.clock.now();
        let elsewhere = |(place, real): (&(String, u64), &Real)| {
            !provider.ends_with(&format!("/{}", place.0))
                && real.tag.as_deref() == Some(target.identity.as_str())
                && real.is_there(now)
        };
        if seen.machines_of.iter().any(elsewhere) {
            problems.push("another provider has a machine of its identity".to_owned());
        }
        seen.add(&format!("{call:?} of {path} on {provider}"), problems);
    }

    /// A world was saved: what changed, or all of it.
    pub fn saved(&self, provider: &str, record: &[u8], is_all: bool) {
        let mut seen = lock(&self.seen);
        let Record { machines, volumes } = serde_json::from_slice(record).unwrap();
        merge(&mut seen.machines_of, provider, machines, is_all);
        merge(&mut seen.volumes_of, provider, volumes, is_all);
        let now = self.clock.now();
        let mut tags = BTreeSet::new();
        let there = seen.machines_of.values().filter(|real| real.is_there(now));
        let doubles: Vec<String> = there
            .filter_map(|real| real.tag.as_ref())
            .filter(|tag| !tags.insert(*tag))
            .map(|tag| format!("there are two machines of identity {tag}"))
            .collect();
        seen.add(provider, doubles);
    }
}

fn merge(
    things: &mut BTreeMap<(String, u64), Real>,
    provider: &str,
    read: BTreeMap<u64, Option<Real>>,
    is_all: bool,
) {
    if is_all {
        things.retain(|(place, _), _| place != provider);
    }
    for (id, thing) in read {
        let place = (provider.to_owned(), id);
        match thing {
            Some(thing) => things.insert(place, thing),
            None => things.remove(&place),
        };
    }
}

fn annotation<'a>(machine: &'a Machine, name: &str) -> Option<&'a str> {
    machine.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Why a part must not be deleted.
fn wrongly_deleted(machine: &Machine, call: Call<'_>) -> Option<String> {
    let is_leaving = machine.metadata.deletion_timestamp.is_some();
    match call {
        Call::Make => None,
        Call::Delete(_) if is_leaving => None,
        Call::Delete(Part::Machine) => Some("nobody has deleted the Machine".to_owned()),
        Call::Delete(Part::Disks(disks)) => {
            // Those of a class are never taken away.
            let is_wanted = |disk: &&String| {
                ["root", "scratch"].contains(&disk.as_str())
                    || machine.spec.disks.iter().any(|wanted| wanted.name == **disk)
            };
            disks.iter().find(is_wanted).map(|disk| format!("the Machine has a disk {disk}"))
        }
        // What a create without room left goes once it is noted that there was none.
        Call::Delete(Part::BlankDisks(_) | Part::Leftovers) => annotation(machine, labels::PASSED_OVER)
            .is_none()
            .then(|| "the Machine was not passed over".to_owned()),
    }
}

/// A write of an operator to a Machine.
struct Change<'a> {
    before: &'a Machine,
    after: &'a Machine,
    is_removed: bool,
    now: Timestamp,
}

impl Seen {
    fn add(&mut self, what: &str, problems: Vec<String>) {
        self.problems.extend(problems.into_iter().map(|problem| format!("{what}: {problem}")));
    }

    /// Somebody else has the lease, where there are leases.
    fn foreign(&self, life: u64, lease: &str) -> Vec<String> {
        let is_foreign = !self.leases.is_empty() && self.leases.get(lease) != Some(&life);
        if is_foreign { vec![format!("process {life} does not hold {lease}")] } else { Vec::new() }
    }

    fn judge(&self, change: &Change<'_>, life: u64) -> Vec<String> {
        let Change { before, after, .. } = *change;
        let mut problems = Vec::new();
        let (had, has) = (has_finalizer(before), has_finalizer(after));
        let carried = annotation(before, labels::IDENTITY);
        if carried.is_some() && carried != annotation(after, labels::IDENTITY) {
            problems.push("its identity changed".to_owned());
        }
        if had && has && placement(before) != placement(after) {
            problems.push(format!("it was moved from {:?} to {:?}", placement(before), placement(after)));
        }
        if had != has {
            problems.extend(self.foreign(life, ACTING));
        }
        if had && !has {
            problems.extend(self.left_behind(change));
        }
        if !had && has && (annotation(after, labels::IDENTITY).is_none() || placement(after).is_none()) {
            problems.push("it was claimed without identity or placement".to_owned());
        }
        if !has && !had && placement(after).is_some() && placement(before) != placement(after) {
            problems.extend(self.foreign(life, PLACING));
            problems.extend(self.over_quota(after));
        }
        if before.status != after.status && !change.is_removed {
            problems.extend(self.wrongly_told(change));
        }
        problems
    }

    /// What there still is of a Machine that is let go or given back.
    fn left_behind(&self, change: &Change<'_>) -> Vec<String> {
        let identity = identity(change.before);
        let is_leaving = change.before.metadata.deletion_timestamp.is_some();
        let is_its =
            |real: &&Real| real.tag.as_deref() == Some(identity.as_str()) && real.is_there(change.now);
        let mut problems = Vec::new();
        if self.machines_of.values().any(|real| is_its(&real)) {
            problems.push("its finalizer went while a provider has its machine".to_owned());
        }
        let is_kept = |real: &Real| is_leaving && real.reclaim_policy == Some(ReclaimPolicy::Retain);
        if self.volumes_of.values().filter(is_its).any(|real| !is_kept(real)) {
            problems.push("its finalizer went while a provider has its disks".to_owned());
        }
        problems
    }

    /// Whether a Machine was let in that does not fit.
    fn over_quota(&self, placed: &Machine) -> Option<String> {
        let datacenter_of = |machine: &Machine| {
            let own = machine.metadata.namespace.as_deref().unwrap_or_default();
            machine.spec.datacenter_ref.as_ref().map(|reference| full_name(reference, own))
        };
        let name = datacenter_of(placed)?;
        let quotas = self.datacenters.get(&name)?.spec.resource_quotas.as_ref()?;
        let used = self
            .machines
            .values()
            .map(Arc::as_ref)
            .filter(|other| other.metadata.uid != placed.metadata.uid && placement(other).is_some())
            .filter(|other| datacenter_of(other).as_ref() == Some(&name))
            .chain([placed])
            .map(|machine| usage_of(machine, None).unwrap_or(Usage { machines: 1, ..Usage::default() }))
            .fold(Usage::default(), Usage::plus);
        let is_over = quotas.max_machines.is_some_and(|most| used.machines > most)
            || quotas.max_cpu.is_some_and(|most| used.cpu > most);
        is_over.then(|| format!("it was let in, and {used:?} is more than {quotas:?}"))
    }

    /// What a status says that is not so.
    fn wrongly_told(&self, change: &Change<'_>) -> Vec<String> {
        let generation = |machine: &Machine| machine.status.as_ref()?.observed_generation;
        let mut problems = Vec::new();
        if generation(change.after) < generation(change.before) {
            problems.push("its status went back to an older generation".to_owned());
        }
        let phase = change.after.status.as_ref().and_then(|status| status.phase);
        let identity = identity(change.after);
        let place = placement(change.after).and_then(|name| name.split_once('/')).map(|(_, name)| name);
        let real = self.machines_of.iter().find(|((provider, _), real)| {
            Some(provider.as_str()) == place
                && real.tag.as_deref() == Some(identity.as_str())
                && real.is_there(change.now)
        });
        let is_on = real.map(|(_, real)| real.is_on(change.now));
        // Between a step whose answer was lost and the next look its power is that of the last one; a machine is not.
        let conditions = change.after.status.iter().flat_map(|status| &status.conditions);
        let is_sure = conditions.clone().any(|each| each.type_ == READY && each.status == "True");
        // One that goes keeps its last word while its provider does not answer.
        let is_gone = is_on.is_none() && change.after.metadata.deletion_timestamp.is_none();
        let is_wrong = match phase {
            Some(MachinePhase::Running) => is_gone || is_sure && is_on == Some(false),
            Some(MachinePhase::Stopped) => is_gone || is_sure && is_on == Some(true),
            _ => false,
        };
        if is_wrong {
            problems.push(format!("its status says {phase:?}, and {place:?} has it on: {is_on:?}"));
        }
        problems
    }
}
