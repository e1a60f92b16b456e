//! How a world behaves: everything it does follows from this, its saved state and the calls it gets.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use vitistack_types::{
    Quantity,
    v1alpha1::{MachineProviderSpec, ProviderCapacity, SimulatedProvider},
};

/// Settings of a world.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Where its dice start.
    pub seed: u64,
    /// How long a task takes.
    pub latency: Duration,
    /// How many of a hundred tasks fail.
    pub failed_tasks_percent: u8,
    /// How many of a hundred changing requests are carried out without an answer.
    pub lost_replies_percent: u8,
    /// Whether the number of a deleted machine is given to the next one.
    pub reuse_ids: bool,
    /// Whether it answers nothing at all.
    pub unreachable: bool,
    /// How far above the first number of all worlds its own begin.
    pub number_offset: u64,
    /// Zones it has.
    pub zones: Vec<String>,
    /// Most that fits into it; what is absent is unlimited.
    pub room: Room,
}

/// Most that fits into a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Machines.
    pub machines: Option<u64>,
    /// Virtual CPUs.
    pub cpu: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bytes of disk space.
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
            room: spec.capacity.as_ref().map(Room::from).unwrap_or_default(),
        }
    }
}

/// Blocks of numbers that worlds can have, and numbers in one: together as many as there are addresses for.
const BLOCKS: u64 = 1_000;
const BLOCK: u64 = 1_000;

impl Settings {
    /// The same for the world of this name, which always begins with the same number. Two worlds seldom share one, and so
    /// seldom an address, which is made of it.
    #[must_use]
    pub fn in_world(self, name: &str) -> Self {
        let digest: [u8; 32] = Sha256::digest(name).into();
        let number = u64::from_be_bytes(digest.first_chunk().copied().unwrap_or_default());
        Self { number_offset: number % BLOCKS * BLOCK, ..self }
    }
}

impl From<&ProviderCapacity> for Room {
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
