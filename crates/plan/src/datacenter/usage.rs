//! The resources that machines use.

use vitistack_types::{
    Quantity,
    v1alpha1::{Machine, MachineClass, UsedResources},
};

use crate::{
    Refusal,
    machine::{has_finalizer, is_held_by_others, shape},
};

/// The resources that one or more machines use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of machines.
    pub machines: u32,
    /// Virtual CPUs.
    pub cpu: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of disk space.
    pub storage: u64,
}

impl Usage {
    /// One machine of unknown size.
    pub const ONE_MACHINE: Self = Self { machines: 1, cpu: 0, memory: 0, storage: 0 };

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            machines: self.machines.saturating_add(other.machines),
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
            storage: self.storage.saturating_add(other.storage),
        }
    }
}

impl Usage {
    /// What is left without the other.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            machines: self.machines.saturating_sub(other.machines),
            cpu: self.cpu.saturating_sub(other.cpu),
            memory: self.memory.saturating_sub(other.memory),
            storage: self.storage.saturating_sub(other.storage),
        }
    }

    /// The larger of each.
    #[must_use]
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            machines: self.machines.max(other.machines),
            cpu: self.cpu.max(other.cpu),
            memory: self.memory.max(other.memory),
            storage: self.storage.max(other.storage),
        }
    }
}

impl From<&UsedResources> for Usage {
    fn from(used: &UsedResources) -> Self {
        let UsedResources { machines, cpu, memory, storage } = used;
        Self { machines: *machines, cpu: *cpu, memory: memory.units(), storage: storage.units() }
    }
}

impl From<Usage> for UsedResources {
    fn from(usage: Usage) -> Self {
        Self {
            machines: usage.machines,
            cpu: usage.cpu,
            memory: Quantity::from_units(usage.memory),
            storage: Quantity::from_units(usage.storage),
        }
    }
}

/// Returns what a Machine uses, or is going to use. `class` is the MachineClass that its template refers to, if it exists. A
/// machine that exists keeps using what it was given when the class is deleted; one that only foreign finalizers hold
/// uses nothing.
pub fn usage_of(machine: &Machine, class: Option<&MachineClass>) -> Result<Usage, Refusal> {
    if is_held_by_others(machine) {
        return Ok(Usage::default());
    }
    let shape = match shape(&machine.spec, class) {
        Ok(shape) => shape,
        Err(refusal) => return given(machine).ok_or(refusal),
    };
    Ok(Usage {
        machines: 1,
        cpu: shape.cpu.total(),
        memory: shape.memory.bytes(),
        storage: shape.disks.iter().fold(0, |sum, disk| sum.saturating_add(disk.size.bytes())),
    })
}

/// What the operators last reported that a machine was given, if it may exist.
pub(super) fn given(machine: &Machine) -> Option<Usage> {
    let given = machine.status.as_ref()?.resources.as_ref().filter(|_| has_finalizer(machine))?;
    let (memory, storage) = (given.memory.units(), given.storage.units());
    Some(Usage { machines: 1, cpu: given.cpu, memory, storage })
}
