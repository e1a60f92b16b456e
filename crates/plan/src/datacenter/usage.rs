//! What machines use.

use vitistack_types::{
    Quantity,
    v1alpha1::{Machine, MachineClass, UsedResources},
};

use crate::{
    Refusal,
    machine::{has_finalizer, is_let_go, shape},
};

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

/// What a Machine uses, or is going to use. `class` is the MachineClass that its template names, if there is one. A machine
/// that was made goes on using what it was given when the class is deleted; one that only others still hold uses nothing.
pub fn usage_of(machine: &Machine, class: Option<&MachineClass>) -> Result<Usage, Refusal> {
    if is_let_go(machine) {
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

/// What the operators last said that a machine was given, if something was made for it.
fn given(machine: &Machine) -> Option<Usage> {
    let given = machine.status.as_ref()?.resources.as_ref().filter(|_| has_finalizer(machine))?;
    let (memory, storage) = (given.memory.units(), given.storage.units());
    Some(Usage { machines: 1, cpu: given.cpu, memory, storage })
}
