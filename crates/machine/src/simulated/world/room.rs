//! What fits into a world, and where a new machine goes.

use vitistack_types::{Quantity, conditions::reason};

use super::{Definition, Machine, Volume, World, things::volume_name};
use crate::{BackendError, ErrorKind};

/// How many hosts a zone has.
const HOSTS: u64 = 3;

/// What is used together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Machines.
    pub machines: u64,
    /// Virtual CPUs.
    pub cpu: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of disk space.
    pub storage: u64,
}

impl Used {
    pub(super) fn add_machine(&mut self, machine: &Machine) {
        self.machines = self.machines.saturating_add(1);
        self.cpu = self.cpu.saturating_add(machine.given.processors().into());
        self.memory = self.memory.saturating_add(machine.given.memory.bytes());
    }

    pub(super) fn remove_machine(&mut self, machine: &Machine) {
        self.machines = self.machines.saturating_sub(1);
        self.cpu = self.cpu.saturating_sub(machine.given.processors().into());
        self.memory = self.memory.saturating_sub(machine.given.memory.bytes());
    }

    pub(super) fn add_volume(&mut self, volume: &Volume) {
        self.storage = self.storage.saturating_add(volume.shape.size.bytes());
    }

    pub(super) fn remove_volume(&mut self, volume: &Volume) {
        self.storage = self.storage.saturating_sub(volume.shape.size.bytes());
    }
}

/// What an obstacle concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// The machine itself.
    Machine,
    /// Its disks.
    Storage,
}

impl World {
    /// The first thing that keeps a machine from being made, or from becoming as defined, told with the fix.
    #[must_use]
    pub fn obstacle(&self, definition: &Definition) -> Option<(Concern, BackendError)> {
        let exists = self.machine_of(&definition.tag);
        if exists.is_none() {
            if let Some(zone) = &definition.zone
                && !self.settings.zones.contains(zone)
            {
                let known = self.settings.zones.join(", ");
                let message = format!("the provider has no zone {zone:?}: use one of [{known}], or none");
                return Some((Concern::Machine, refused(reason::INVALID_SPEC, message)));
            }
            if self.machine_named(&definition.namespace, &definition.name).is_some() {
                return Some((Concern::Machine, name_taken("machine", &definition.name)));
            }
        }
        self.missing_room(definition, exists).or_else(|| self.storage_obstacle(definition))
    }

    fn storage_obstacle(&self, definition: &Definition) -> Option<(Concern, BackendError)> {
        definition.disks.iter().find_map(|disk| {
            if self.volume_of(&definition.tag, &disk.volume.disk).is_some() {
                return None;
            }
            let name = volume_name(&definition.name, &disk.volume.disk);
            if self.volume_named(&definition.namespace, &name).is_some() {
                return Some((Concern::Storage, name_taken("volume", &name)));
            }
            let claim = disk.volume.source.as_ref()?.claim.as_ref()?;
            if self.volume_named(&definition.namespace, claim).is_some() {
                return None;
            }
            let message = format!(
                "disks[{}].source.claim {claim:?} names no volume of the provider: name one that is there",
                disk.volume.disk
            );
            Some((Concern::Storage, refused(reason::INVALID_SPEC, message)))
        })
    }

    fn missing_room(
        &self,
        definition: &Definition,
        exists: Option<&Machine>,
    ) -> Option<(Concern, BackendError)> {
        let (room, used) = (&self.settings.room, &self.index.used);
        let had_cpu = exists.map_or(0, |machine| u64::from(machine.given.processors()));
        let had_memory = exists.map_or(0, |machine| machine.given.memory.bytes());
        let more_storage: u64 = definition
            .disks
            .iter()
            .map(|disk| {
                let had = self.volume_of(&definition.tag, &disk.volume.disk);
                disk.volume.size.bytes().saturating_sub(had.map_or(0, |had| had.shape.size.bytes()))
            })
            .sum();
        let cpu = u64::from(definition.hardware.processors()).saturating_sub(had_cpu);
        let memory = definition.hardware.memory.bytes().saturating_sub(had_memory);
        let machines = u64::from(exists.is_none());
        let binary = |bytes| Quantity::from_units(bytes).to_string();
        let checks = [
            (Concern::Machine, "machines", room.machines, used.machines, machines, machines.to_string()),
            (Concern::Machine, "cpu", room.cpu, used.cpu, cpu, cpu.to_string()),
            (Concern::Machine, "memory", room.memory, used.memory, memory, binary(memory)),
            (Concern::Storage, "storage", room.storage, used.storage, more_storage, binary(more_storage)),
        ];
        checks.into_iter().find_map(|(concern, what, most, used, more, words)| {
            let most = most?;
            if more == 0 || used.saturating_add(more) <= most {
                return None;
            }
            let message = format!(
                "the provider has no room for {words} more of {what}: use less, delete machines, or raise capacity.{what} of the provider"
            );
            Some((concern, BackendError::new(ErrorKind::NoCapacity, reason::INSUFFICIENT_RESOURCES, message)))
        })
    }

    /// Zone and host for a new machine: the emptiest, the first of equals.
    pub(super) fn place(&self, zone: Option<&str>) -> (Option<String>, String) {
        let load = |host: &String| self.index.on_host.get(host).copied().unwrap_or_default();
        let zone_load = |zone: &&str| hosts(Some(zone)).iter().map(load).sum::<u64>();
        let zone = zone.or_else(|| self.settings.zones.iter().map(String::as_str).min_by_key(zone_load));
        let host = hosts(zone).into_iter().min_by_key(load).unwrap_or_default();
        (zone.map(str::to_owned), host)
    }
}

fn hosts(zone: Option<&str>) -> Vec<String> {
    (1..=HOSTS)
        .map(|number| match zone {
            Some(zone) => format!("{zone}-host-{number}"),
            None => format!("host-{number}"),
        })
        .collect()
}

pub(super) fn refused(reason: &'static str, message: impl Into<String>) -> BackendError {
    BackendError::new(ErrorKind::Refused, reason, message)
}

fn name_taken(kind: &str, name: &str) -> BackendError {
    refused(
        NAME_TAKEN,
        format!(
            "a {kind} named {name:?} is there already and is not ours: rename the Machine, or remove that {kind} by hand"
        ),
    )
}

/// The reason when something of the right name belongs to somebody else.
pub const NAME_TAKEN: &str = "NameTaken";
