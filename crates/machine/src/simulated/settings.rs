//! The settings of a world. With its saved state and its requests they determine everything it does.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use vitistack_types::{
    Quantity,
    v1alpha1::{MachineProviderSpec, ProviderCapacity, SimulatedProvider},
};

use crate::Limits;

/// The settings of a world.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Seed of the random faults.
    pub seed: u64,
    /// Duration of a task.
    pub latency: Duration,
    /// Percentage of tasks that fail.
    pub failed_tasks_percent: u8,
    /// Percentage of changing requests whose reply is lost after they were carried out.
    pub lost_replies_percent: u8,
    /// Whether the ID of a deleted machine is given to the next one.
    pub reuse_ids: bool,
    /// Whether it is unreachable.
    pub unreachable: bool,
    /// Offset of its machine IDs from the lowest one.
    pub number_offset: u64,
    /// Its zones.
    pub zones: Vec<String>,
    /// Its capacity.
    pub capacity: Capacity,
    /// What it lets Machines use.
    pub limits: Limits,
}

/// The capacity of a world; absent values are unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Number of machines.
    pub machines: Option<u64>,
    /// Number of virtual CPUs.
    pub cpu: Option<u64>,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Disk space in bytes.
    pub storage: Option<u64>,
}

impl From<&MachineProviderSpec> for Settings {
    fn from(spec: &MachineProviderSpec) -> Self {
        let simulated = spec.simulated.clone().unwrap_or_default();
        let SimulatedProvider {
            seed,
            latency,
            failed_tasks_percent,
            lost_replies_percent,
            reuse_ids,
            unreachable,
        } = simulated;
        Self {
            seed: seed.unwrap_or_default(),
            latency: latency.map(vitistack_types::Duration::get).unwrap_or_default(),
            failed_tasks_percent: failed_tasks_percent.unwrap_or_default(),
            lost_replies_percent: lost_replies_percent.unwrap_or_default(),
            reuse_ids: reuse_ids.unwrap_or_default(),
            unreachable: unreachable.unwrap_or_default(),
            number_offset: 0,
            zones: spec.zones.clone(),
            capacity: spec.capacity.as_ref().map(Capacity::from).unwrap_or_default(),
            limits: Limits::from(spec),
        }
    }
}

/// The number of ID ranges that worlds are spread over.
const BLOCKS: u64 = 1_000;
/// The size of an ID range. All ranges together cover the IDs that have an address.
const BLOCK: u64 = 1_000;

impl Settings {
    /// Returns the settings for the world with this name. Its machine IDs always start at the same offset, which two
    /// worlds rarely share; so they rarely share addresses, which are derived from the IDs.
    #[must_use]
    pub fn in_world(self, name: &str) -> Self {
        let digest: [u8; 32] = Sha256::digest(name).into();
        let number = u64::from_be_bytes(digest.first_chunk().copied().unwrap_or_default());
        Self { number_offset: number % BLOCKS * BLOCK, ..self }
    }
}

impl From<&ProviderCapacity> for Capacity {
    fn from(capacity: &ProviderCapacity) -> Self {
        let ProviderCapacity { machines, cpu, memory, storage } = capacity;
        Self {
            machines: machines.map(u64::from),
            cpu: cpu.map(u64::from),
            memory: memory.as_ref().map(Quantity::units),
            storage: storage.as_ref().map(Quantity::units),
        }
    }
}
