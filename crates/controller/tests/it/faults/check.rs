//! How things stand, without what differs from play to play: ids, times, hosts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::Arc,
};

use jiff::Timestamp;
use kube::ResourceExt;
use vitistack_machine::simulated::{
    Settings,
    world::{Hardware, World},
};
use vitistack_plan::machine::identity;
use vitistack_types::v1alpha1::{Machine, ReclaimPolicy};

use super::scenario::Pool;

/// How things stand: a line for each thing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State(pub BTreeMap<String, String>);

impl State {
    /// What differs, in words.
    pub fn difference(&self, expected: &Self) -> Option<String> {
        let mut text = String::new();
        for key in self.0.keys().chain(expected.0.keys()).collect::<BTreeSet<_>>() {
            let (is, shall) = (self.0.get(key), expected.0.get(key));
            if is != shall {
                let word = |line: Option<&String>| line.cloned().unwrap_or_else(|| "nothing".to_owned());
                writeln!(text, "{key}\n    is     {}\n    shall  {}", word(is), word(shall)).unwrap();
            }
        }
        (!text.is_empty()).then_some(text)
    }
}

/// A world as its store has it.
pub struct Provider {
    pub name: String,
    pub records: Vec<Vec<u8>>,
    pub settings: Settings,
}

/// How things stand. `is_patient` adds what depends on the order in which things were done. Which provider of a pool has
/// a machine, and who is let in where not all are, depends on it too and is left out.
pub fn state(
    machines: &[Arc<Machine>],
    providers: &[Provider],
    now: Timestamp,
    is_patient: bool,
    pool: Option<&Pool>,
) -> State {
    let mut lines = BTreeMap::new();
    let names: BTreeMap<String, String> =
        machines.iter().map(|machine| (identity(machine).as_str().to_owned(), machine.name_any())).collect();
    let called = |name: &str| match pool {
        Some(pool) if pool.is_contested => "somebody".to_owned(),
        _ => name.to_owned(),
    };
    for machine in machines {
        put(&mut lines, format!("Machine {}", called(&machine.name_any())), told(machine, is_patient));
    }
    for provider in providers {
        let records = provider.records.iter().map(Vec::as_slice);
        let world = World::restore(provider.settings.clone(), records, now).unwrap();
        let owner = |tag: &Option<String>| {
            tag.as_ref()
                .and_then(|tag| names.get(tag))
                .map_or_else(|| "nobody".to_owned(), |name| called(name))
        };
        let place = if pool.is_some_and(|pool| pool.has(&provider.name)) { "pool" } else { &provider.name };
        for machine in world.machines() {
            let mut line = format!("of {}, {}", owner(&machine.tag), hardware(&machine.given));
            let disks: Vec<&str> = machine.attached.iter().map(|disk| disk.disk.as_str()).collect();
            let cards: Vec<String> =
                machine.interfaces.iter().map(|card| format!("{}@{:?}", card.name, card.vlan)).collect();
            let power = if machine.running.is_some() { "on" } else { "off" };
            write!(line, ", {power}, disks {disks:?}, cards {cards:?}").unwrap();
            if let Some(task) = &machine.task {
                write!(line, ", {}", task.work.verb()).unwrap();
            }
            if is_patient {
                let running = machine.running.as_ref().map(hardware);
                write!(line, ", runs with {running:?}").unwrap();
            }
            // What is off may be switched on before or after the restart that was asked for meanwhile.
            if machine.running.is_some() || is_patient {
                write!(line, ", restarted for {:?}", machine.restarted_for).unwrap();
            }
            put(&mut lines, format!("{place} machine {}", called(&machine.name)), line);
        }
        for volume in world.volumes() {
            let shape = &volume.shape;
            let line = format!("of {}, {}, {:?}", owner(&volume.tag), shape.size, shape.reclaim_policy);
            let name = if pool.is_some_and(|pool| pool.is_contested) { &shape.disk } else { &volume.name };
            put(&mut lines, format!("{place} volume {name}"), line);
        }
    }
    State(lines)
}

/// Adds a line. Kept volumes of machines that are gone may have one name, and so may machines of which only the number is
/// told: the lines then stand in the order of what they say.
fn put(lines: &mut BTreeMap<String, String>, mut key: String, mut line: String) {
    while let Some(other) = lines.get_mut(&key) {
        if line < *other {
            std::mem::swap(other, &mut line);
        }
        key.push('+');
    }
    lines.insert(key, line);
}

fn hardware(hardware: &Hardware) -> String {
    let Hardware { cores, threads, sockets, memory, first_boot, .. } = hardware;
    let boot = if first_boot.is_some() { " with first boot" } else { "" };
    format!("{cores}x{threads}x{sockets} {memory}{boot}")
}

fn told(machine: &Machine, is_patient: bool) -> String {
    let status = machine.status.clone().unwrap_or_default();
    let mut conditions: Vec<String> = status
        .conditions
        .iter()
        .filter(|condition| is_patient || condition.type_ != "UpToDate")
        .map(|condition| format!("{} {} {}", condition.type_, condition.status, condition.reason))
        .collect();
    conditions.sort();
    let mut line = format!("{:?}, {}", status.phase, conditions.join(", "));
    if status.observed_generation != machine.metadata.generation {
        line.push_str(", out of date");
    }
    if machine.metadata.deletion_timestamp.is_some() {
        line.push_str(", leaving");
    }
    line
}

/// What must never be, whatever was asked for.
pub fn violations(machines: &[Arc<Machine>], providers: &[Provider], now: Timestamp) -> Vec<String> {
    let live: BTreeSet<String> =
        machines.iter().map(|machine| identity(machine).as_str().to_owned()).collect();
    let is_live = |tag: &Option<String>| tag.as_ref().is_some_and(|tag| live.contains(tag));
    let mut found = Vec::new();
    for machine in machines {
        let mut kinds = BTreeSet::new();
        let conditions = machine.status.iter().flat_map(|status| &status.conditions);
        for condition in conditions {
            if !kinds.insert(&condition.type_) {
                found.push(format!("{} tells {} twice", machine.name_any(), condition.type_));
            }
        }
    }
    let mut tags = BTreeSet::new();
    for provider in providers {
        let records = provider.records.iter().map(Vec::as_slice);
        let world = World::restore(provider.settings.clone(), records, now).unwrap();
        for machine in world.machines() {
            if !is_live(&machine.tag) {
                found.push(format!("{}: machine {} is an orphan", provider.name, machine.name));
            }
            if !tags.insert(machine.tag.clone()) {
                found.push(format!("{}: machine {} is a double", provider.name, machine.name));
            }
        }
        for volume in world.volumes() {
            if !is_live(&volume.tag) && volume.shape.reclaim_policy != ReclaimPolicy::Retain {
                found.push(format!("{}: volume {} is an orphan", provider.name, volume.name));
            }
        }
    }
    found
}
