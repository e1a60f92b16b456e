//! The state that two runs of a scenario are compared by, without what differs between runs: IDs, times and
//! hosts.

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

/// One line for each Machine, machine and volume, by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettledState(pub BTreeMap<String, String>);

impl SettledState {
    /// Describes what differs from the expected state, if anything does.
    pub fn difference(&self, expected: &Self) -> Option<String> {
        let mut text = String::new();
        for key in self.0.keys().chain(expected.0.keys()).collect::<BTreeSet<_>>() {
            let (actual, wanted) = (self.0.get(key), expected.0.get(key));
            if actual != wanted {
                let text_of = |line: Option<&String>| line.cloned().unwrap_or_else(|| "absent".to_owned());
                let (actual, wanted) = (text_of(actual), text_of(wanted));
                writeln!(text, "{key}\n    actual    {actual}\n    expected  {wanted}").unwrap();
            }
        }
        (!text.is_empty()).then_some(text)
    }
}

/// The stored records of a simulated provider.
pub struct ProviderRecords {
    pub name: String,
    pub records: Vec<Vec<u8>>,
    pub settings: Settings,
}

/// Summarizes the current state. `is_sequential` adds what depends on the order of events. Two more things
/// depend on it and are left out: which provider of a pool has a machine, and which Machines get in where not
/// all do.
pub fn summarize(
    machines: &[Arc<Machine>],
    providers: &[ProviderRecords],
    now: Timestamp,
    is_sequential: bool,
    pool: Option<&Pool>,
) -> SettledState {
    let mut lines = BTreeMap::new();
    let names: BTreeMap<String, String> =
        machines.iter().map(|machine| (identity(machine).as_str().to_owned(), machine.name_any())).collect();
    let shown = |name: &str| match pool {
        Some(pool) if pool.is_contested => "any".to_owned(),
        _ => name.to_owned(),
    };

    for machine in machines {
        insert(
            &mut lines,
            format!("Machine {}", shown(&machine.name_any())),
            reported(machine, is_sequential),
        );
    }

    for provider in providers {
        let records = provider.records.iter().map(Vec::as_slice);
        let world = World::restore(provider.settings.clone(), records, now).unwrap();
        let owner = |tag: &Option<String>| {
            tag.as_ref().and_then(|tag| names.get(tag)).map_or_else(|| "none".to_owned(), |name| shown(name))
        };
        let location =
            if pool.is_some_and(|pool| pool.contains(&provider.name)) { "pool" } else { &provider.name };
        for machine in world.machines() {
            let mut line = format!("owner {}, {}", owner(&machine.tag), hardware(&machine.given));
            let disks: Vec<&str> = machine.attached.iter().map(|disk| disk.disk.as_str()).collect();
            let cards: Vec<String> =
                machine.interfaces.iter().map(|card| format!("{}@{:?}", card.name, card.vlan)).collect();
            let power = if machine.running.is_some() { "on" } else { "off" };
            write!(line, ", {power}, disks {disks:?}, cards {cards:?}").unwrap();
            if let Some(task) = &machine.task {
                write!(line, ", {}", task.work.verb()).unwrap();
            }
            if is_sequential {
                let running = machine.running.as_ref().map(hardware);
                write!(line, ", runs with {running:?}").unwrap();
            }
            // A stopped machine may be started before or after a restart that was requested meanwhile.
            if machine.running.is_some() || is_sequential {
                write!(line, ", restarted for {:?}", machine.restarted_for).unwrap();
            }
            insert(&mut lines, format!("{location} machine {}", shown(&machine.name)), line);
        }

        for volume in world.volumes() {
            let shape = &volume.shape;
            let line = format!("owner {}, {}, {:?}", owner(&volume.tag), shape.size, shape.reclaim_policy);
            let name = if pool.is_some_and(|pool| pool.is_contested) { &shape.disk } else { &volume.name };
            insert(&mut lines, format!("{location} volume {name}"), line);
        }
    }
    SettledState(lines)
}

/// Adds a line. Retained volumes of deleted machines may share a name, and so do machines whose name is left
/// out: their lines are sorted by content.
fn insert(lines: &mut BTreeMap<String, String>, mut key: String, mut line: String) {
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

/// Describes the status of a Machine.
fn reported(machine: &Machine, is_sequential: bool) -> String {
    let status = machine.status.clone().unwrap_or_default();
    let mut conditions: Vec<String> = status
        .conditions
        .iter()
        .filter(|condition| is_sequential || condition.type_ != "UpToDate")
        .map(|condition| format!("{} {} {}", condition.type_, condition.status, condition.reason))
        .collect();
    conditions.sort();
    let mut line = format!("{:?}, {}", status.phase, conditions.join(", "));
    if status.observed_generation != machine.metadata.generation {
        line.push_str(", out of date");
    }
    if machine.metadata.deletion_timestamp.is_some() {
        line.push_str(", being deleted");
    }
    line
}

/// Returns what must not exist, whatever the user did: orphans, duplicates and repeated conditions.
pub fn violations(machines: &[Arc<Machine>], providers: &[ProviderRecords], now: Timestamp) -> Vec<String> {
    let live: BTreeSet<String> =
        machines.iter().map(|machine| identity(machine).as_str().to_owned()).collect();
    let is_live = |tag: &Option<String>| tag.as_ref().is_some_and(|tag| live.contains(tag));
    let mut found = Vec::new();

    for machine in machines {
        let mut kinds = BTreeSet::new();
        let conditions = machine.status.iter().flat_map(|status| &status.conditions);
        for condition in conditions {
            if !kinds.insert(&condition.type_) {
                found.push(format!("{} has condition {} twice", machine.name_any(), condition.type_));
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
                found.push(format!("{}: machine {} is a duplicate", provider.name, machine.name));
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
