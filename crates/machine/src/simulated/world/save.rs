//! A world as bytes: one form for the whole and for what changed since, so that loading is reading them one after another.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use snafu::{ResultExt, Snafu};

use super::{FIRST_ID, Machine, Volume, World, failure::Failed};
use crate::simulated::{Settings, faults::Dice};

/// Indicates that bytes are not a saved world.
#[derive(Debug, Snafu)]
pub enum RestoreError {
    /// A record could not be read.
    #[snafu(display(
        "failed to read record {number} of the saved world: remove the saved world to begin anew"
    ))]
    ReadRecord {
        /// Which record, counted from 0.
        number: usize,
        /// Why.
        source: serde_json::Error,
    },
}

/// What is counted rather than found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Counters {
    /// Kept, because other settings would say another; worlds that were saved without it began with the lowest.
    #[serde(default = "lowest")]
    pub(super) first_machine: u64,
    pub(super) next_machine: u64,
    pub(super) next_volume: u64,
    pub(super) dice: Dice,
}

fn lowest() -> u64 {
    FIRST_ID
}

/// Numbers of the things that changed since the last save, and identities whose last task ended otherwise than before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsaved {
    pub(super) machines: BTreeSet<u64>,
    pub(super) volumes: BTreeSet<u64>,
    pub(super) failures: BTreeSet<String>,
}

/// Things by number; none for those that are gone.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'world> {
    counters: Counters,
    machines: BTreeMap<u64, Option<&'world Machine>>,
    volumes: BTreeMap<u64, Option<&'world Volume>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    failures: BTreeMap<&'world str, Option<&'world Failed>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Read {
    counters: Counters,
    machines: BTreeMap<u64, Option<Machine>>,
    volumes: BTreeMap<u64, Option<Volume>>,
    #[serde(default)]
    failures: BTreeMap<String, Option<Failed>>,
}

impl World {
    /// A number that grows with every request that changed something; what is saved is compared with it.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Notes that something changed which time alone would not have changed, and which therefore has to be saved.
    pub(super) fn count_change(&mut self) {
        self.revision = self.revision.saturating_add(1);
    }

    /// Takes over from a world that is given up, so that revisions only grow: this one's is new.
    #[must_use]
    pub fn continuing(mut self, predecessor: &Self) -> Self {
        self.revision = predecessor.revision.saturating_add(1);
        self.faults = predecessor.faults;
        self.changed = predecessor.machines.values().filter_map(|machine| machine.tag.clone()).collect();
        self
    }

    /// The numbers of what changed since this was last asked. Whoever takes them has to save them or [`World::give_back`] them.
    pub fn take_unsaved(&mut self) -> Unsaved {
        std::mem::take(&mut self.unsaved)
    }

    /// Marks things as not saved after all.
    pub fn give_back(&mut self, unsaved: Unsaved) {
        self.unsaved.machines.extend(unsaved.machines);
        self.unsaved.volumes.extend(unsaved.volumes);
        self.unsaved.failures.extend(unsaved.failures);
    }

    /// These things as bytes.
    pub fn record(&self, unsaved: &Unsaved) -> Result<Vec<u8>, serde_json::Error> {
        let Unsaved { machines, volumes, failures } = unsaved;
        serde_json::to_vec(&Written {
            counters: self.counters,
            machines: machines.iter().map(|id| (*id, self.machines.get(id))).collect(),
            volumes: volumes.iter().map(|id| (*id, self.volumes.get(id))).collect(),
            failures: failures.iter().map(|tag| (tag.as_str(), self.failures.get(tag))).collect(),
        })
    }

    /// The whole world as bytes.
    pub fn snapshot(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&Written {
            counters: self.counters,
            machines: self.machines.iter().map(|(id, machine)| (*id, Some(machine))).collect(),
            volumes: self.volumes.iter().map(|(id, volume)| (*id, Some(volume))).collect(),
            failures: self.failures.iter().map(|(tag, failed)| (tag.as_str(), Some(failed))).collect(),
        })
    }

    /// The world that these bytes, oldest first, were saved from. No bytes at all are a new world.
    pub fn restore<'bytes>(
        settings: Settings,
        records: impl IntoIterator<Item = &'bytes [u8]>,
        now: Timestamp,
    ) -> Result<Self, RestoreError> {
        let mut world = Self::new(settings);
        for (number, record) in records.into_iter().enumerate() {
            let read: Read = serde_json::from_slice(record).context(ReadRecordSnafu { number })?;
            world.counters = read.counters;
            merge(&mut world.machines, read.machines);
            merge(&mut world.volumes, read.volumes);
            merge(&mut world.failures, read.failures);
        }
        world.machines.values().for_each(|machine| world.index.add_machine(machine));
        world.volumes.values().for_each(|volume| world.index.add_volume(volume));
        world.index.free_ids = (world.counters.first_machine..world.counters.next_machine)
            .filter(|id| !world.machines.contains_key(id))
            .collect();
        world.advance(now);
        Ok(world)
    }
}

fn merge<Key: Ord, Thing>(things: &mut BTreeMap<Key, Thing>, read: BTreeMap<Key, Option<Thing>>) {
    for (id, thing) in read {
        match thing {
            Some(thing) => things.insert(id, thing),
            None => things.remove(&id),
        };
    }
}
