//! What fits into a world, and where a new machine is placed.

use vitistack_plan::refusals;
use vitistack_types::{Quantity, conditions::reason};

use super::{Definition, Machine, Volume, World, model::volume_name};
use crate::{BackendError, ErrorKind};

/// The number of hosts in a zone.
const HOSTS: u64 = 3;

/// The total usage of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Number of machines.
    pub machines: u64,
    /// Number of virtual CPUs.
    pub cpu: u64,
    /// Memory in bytes.
    pub memory: u64,
    /// Disk space in bytes.
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

/// What an obstacle is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// The machine itself.
    Machine,
    /// Its disks.
    Storage,
}

/// One dimension of the capacity: how much there is, how much is used and how much more is requested.
struct Dimension {
    concern: Concern,
    /// The name of the field in `spec.capacity`.
    field: &'static str,
    limit: Option<u64>,
    used: u64,
    requested: u64,
}

impl Dimension {
    fn is_exceeded(&self) -> bool {
        self.requested > 0 && self.limit.is_some_and(|limit| self.used.saturating_add(self.requested) > limit)
    }

    fn refusal(&self) -> BackendError {
        let Self { field, limit, used, requested, .. } = self;
        let limit = limit.unwrap_or_default();
        let bytes = |bytes: u64| Quantity::from_units(bytes).to_string();
        let usage = match *field {
            "machines" => format!("{used} of {limit} machines in use"),
            "cpu" => format!("{used} of {limit} CPUs in use, {requested} more requested"),
            _ => format!(
                "{} of {} {field} in use, {} more requested",
                bytes(*used),
                bytes(limit),
                bytes(*requested)
            ),
        };
        let message = format!(
            "provider full: {usage} (spec.capacity.{field}): delete machines, request less, or raise the capacity"
        );
        BackendError::new(ErrorKind::NoCapacity, reason::INSUFFICIENT_RESOURCES, message)
    }
}

impl World {
    /// Returns the first obstacle to creating a machine, or to changing it as defined, with the fix.
    #[must_use]
    pub fn obstacle(&self, definition: &Definition) -> Option<(Concern, BackendError)> {
        let existing = self.machine_of(&definition.tag);
        if existing.is_none() {
            if let Some(zone) = &definition.zone
                && !self.settings.zones.contains(zone)
            {
                return Some((Concern::Machine, unknown_zone(zone, &self.settings.zones)));
            }
            if self.machine_named(&definition.namespace, &definition.name).is_some() {
                return Some((Concern::Machine, name_taken("machine", &definition.name)));
            }
        }
        self.missing_capacity(definition, existing).or_else(|| self.storage_obstacle(definition))
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
                "spec.disks[{}].source.claim: volume {claim:?} not found at the provider: use the name of an existing volume",
                disk.volume.disk
            );
            Some((Concern::Storage, refused(reason::INVALID_SPEC, message)))
        })
    }

    fn missing_capacity(
        &self,
        definition: &Definition,
        existing: Option<&Machine>,
    ) -> Option<(Concern, BackendError)> {
        let (limits, used) = (&self.settings.capacity, &self.index.used);
        let current_cpu = existing.map_or(0, |machine| u64::from(machine.given.processors()));
        let current_memory = existing.map_or(0, |machine| machine.given.memory.bytes());
        let storage: u64 = definition
            .disks
            .iter()
            .map(|disk| {
                let volume = self.volume_of(&definition.tag, &disk.volume.disk);
                let current = volume.map_or(0, |volume| volume.shape.size.bytes());
                disk.volume.size.bytes().saturating_sub(current)
            })
            .sum();

        let dimensions = [
            Dimension {
                concern: Concern::Machine,
                field: "machines",
                limit: limits.machines,
                used: used.machines,
                requested: u64::from(existing.is_none()),
            },
            Dimension {
                concern: Concern::Machine,
                field: "cpu",
                limit: limits.cpu,
                used: used.cpu,
                requested: u64::from(definition.hardware.processors()).saturating_sub(current_cpu),
            },
            Dimension {
                concern: Concern::Machine,
                field: "memory",
                limit: limits.memory,
                used: used.memory,
                requested: definition.hardware.memory.bytes().saturating_sub(current_memory),
            },
            Dimension {
                concern: Concern::Storage,
                field: "storage",
                limit: limits.storage,
                used: used.storage,
                requested: storage,
            },
        ];
        let exceeded = dimensions.iter().find(|dimension| dimension.is_exceeded())?;
        Some((exceeded.concern, exceeded.refusal()))
    }

    /// Returns zone and host for a new machine: the ones with the fewest machines, the first of equals.
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

fn unknown_zone(zone: &str, zones: &[String]) -> BackendError {
    let fix = match zones {
        [] => "remove the field, because the provider has no zones".to_owned(),
        zones => format!("use one of {}, or remove the field", zones.join(", ")),
    };
    refused(reason::INVALID_SPEC, format!("spec.zone: zone {zone:?} not found at the provider: {fix}"))
}

fn name_taken(kind: &str, name: &str) -> BackendError {
    BackendError::refused(refusals::name_taken(&format!("{kind} {name:?}")))
}
