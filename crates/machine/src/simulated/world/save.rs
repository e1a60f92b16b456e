//! Serialization. Snapshots and changes have the same format, so that a world is loaded by applying records in order.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use snafu::{ResultExt, Snafu};

use super::{FIRST_ID, Machine, Volume, World, failure::Failed};
use crate::simulated::{Settings, faults::Dice};

/// Why bytes could not be read as a saved world.
#[derive(Debug, Snafu)]
pub enum RestoreError {
    /// A record could not be read.
    #[snafu(display(
        "failed to read record {number} of the saved world: delete the saved world to start over"
    ))]
    ReadRecord {
        /// The index of the record.
        number: usize,
        /// The cause.
        source: serde_json::Error,
    },
}

/// Counters that cannot be derived from machines and volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Counters {
    /// Saved, because it would change with the settings; worlds that were saved without it started at the lowest ID.
    #[serde(default = "lowest")]
    pub(super) first_machine: u64,
    pub(super) next_machine: u64,
    pub(super) next_volume: u64,
    pub(super) dice: Dice,
}

fn lowest() -> u64 {
    FIRST_ID
}

/// The IDs that changed since the last save, and the identities whose last task ended with another result than before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsaved {
    pub(super) machines: BTreeSet<u64>,
    pub(super) volumes: BTreeSet<u64>,
    pub(super) failures: BTreeSet<String>,
}

/// A record to write: machines and volumes by ID; none for those that were deleted.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordRef<'world> {
    counters: Counters,
    machines: BTreeMap<u64, Option<&'world Machine>>,
    volumes: BTreeMap<u64, Option<&'world Volume>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    failures: BTreeMap<&'world str, Option<&'world Failed>>,
}

/// A record that was read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    counters: Counters,
    machines: BTreeMap<u64, Option<Machine>>,
    volumes: BTreeMap<u64, Option<Volume>>,
    #[serde(default)]
    failures: BTreeMap<String, Option<Failed>>,
}

impl World {
    /// Returns a number that grows with every change, to compare with what is saved.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Counts a change that does not follow from time alone, and therefore has to be saved.
    pub(super) fn count_change(&mut self) {
        self.revision = self.revision.saturating_add(1);
    }

    /// Replaces a discarded world: revisions continue to grow, and this world has a new one.
    #[must_use]
    pub fn continuing(mut self, predecessor: &Self) -> Self {
        self.revision = predecessor.revision.saturating_add(1);
        self.faults = predecessor.faults;
        self.changed = predecessor.machines.values().filter_map(|machine| machine.tag.clone()).collect();
        self
    }

    /// Returns what changed since the last call. The caller has to save it or call [`World::mark_unsaved`].
    pub fn take_unsaved(&mut self) -> Unsaved {
        std::mem::take(&mut self.unsaved)
    }

    /// Marks changes as unsaved.
    pub fn mark_unsaved(&mut self, unsaved: Unsaved) {
        self.unsaved.machines.extend(unsaved.machines);
        self.unsaved.volumes.extend(unsaved.volumes);
        self.unsaved.failures.extend(unsaved.failures);
    }

    /// Serializes changes.
    pub fn record(&self, unsaved: &Unsaved) -> Result<Vec<u8>, serde_json::Error> {
        let Unsaved { machines, volumes, failures } = unsaved;
        serde_json::to_vec(&RecordRef {
            counters: self.counters,
            machines: machines.iter().map(|id| (*id, self.machines.get(id))).collect(),
            volumes: volumes.iter().map(|id| (*id, self.volumes.get(id))).collect(),
            failures: failures.iter().map(|tag| (tag.as_str(), self.failures.get(tag))).collect(),
        })
    }

    /// Serializes the whole world.
    pub fn snapshot(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&RecordRef {
            counters: self.counters,
            machines: self.machines.iter().map(|(id, machine)| (*id, Some(machine))).collect(),
            volumes: self.volumes.iter().map(|(id, volume)| (*id, Some(volume))).collect(),
            failures: self.failures.iter().map(|(tag, failed)| (tag.as_str(), Some(failed))).collect(),
        })
    }

    /// Restores a world from its records, oldest first. Without records the world is new.
    pub fn restore<'bytes>(
        settings: Settings,
        records: impl IntoIterator<Item = &'bytes [u8]>,
        now: Timestamp,
    ) -> Result<Self, RestoreError> {
        let mut world = Self::new(settings);
        for (number, record) in records.into_iter().enumerate() {
            let read: Record = serde_json::from_slice(record).context(ReadRecordSnafu { number })?;
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

fn merge<Key: Ord, Item>(items: &mut BTreeMap<Key, Item>, read: BTreeMap<Key, Option<Item>>) {
    for (id, item) in read {
        match item {
            Some(item) => items.insert(id, item),
            None => items.remove(&id),
        };
    }
}
