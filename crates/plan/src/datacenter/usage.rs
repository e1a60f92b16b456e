//! What machines use.

use vitistack_types::{
    Quantity,
    v1alpha1::{Machine, MachineClass, UsedResources},
};

use crate::{Refusal, machine::shape};

/// What one or many machines use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Machines.
    pub machines: u32,
    /// Virtual CPUs.
    pub cpu: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of disk space.
    pub storage: u64,
}

impl Usage {
    /// What both use together.
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

/// What a Machine uses, or is going to use. `class` is the MachineClass that its template names, if there is one.
pub fn usage_of(machine: &Machine, class: Option<&MachineClass>) -> Result<Usage, Refusal> {
    let shape = shape(&machine.spec, class)?;
    Ok(Usage {
        machines: 1,
        cpu: shape.cpu.total(),
        memory: shape.memory.bytes(),
        storage: shape.disks.iter().fold(0, |sum, disk| sum.saturating_add(disk.size.bytes())),
    })
}
