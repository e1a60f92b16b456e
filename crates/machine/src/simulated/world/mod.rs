//! An in-process hypervisor as plain data. Its state and answers depend only on its requests and their times.

mod capacity;
mod failure;
mod intervene;
mod model;
mod request;
mod save;
mod task;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;

pub use capacity::{Concern, Used};
pub use intervene::Intervention;
pub use model::{
    Attachment, Definition, Disk, FirstBoot, Hardware, Interface, Machine, Task, Volume, VolumeShape, Work,
    volume_name,
};
pub use request::{Answer, Difference, Reference, Request};
pub use save::{RestoreError, Unsaved};
pub use task::SIMULATED_PROVIDER_ERROR;

use super::{
    Settings,
    faults::{Dice, InjectedFaults},
};

/// The lowest ID of a machine.
const FIRST_ID: u64 = 100;

/// A world: its machines, volumes and tasks.
#[derive(Clone, Debug)]
pub struct World {
    settings: Settings,
    faults: InjectedFaults,
    /// The current time; it never goes back.
    time: Timestamp,
    counters: save::Counters,
    machines: BTreeMap<u64, Machine>,
    volumes: BTreeMap<u64, Volume>,
    /// The failure of the last task of an identity, if that task failed.
    failures: BTreeMap<String, failure::Failed>,
    index: Index,
    unsaved: Unsaved,
    revision: u64,
    changed: BTreeSet<String>,
}

/// Lookup tables that are derived from machines and volumes.
#[derive(Clone, Debug, Default)]
struct Index {
    machine_of: HashMap<String, u64>,
    machine_named: HashMap<String, u64>,
    volumes_of: HashMap<String, BTreeMap<String, u64>>,
    volume_named: HashMap<String, u64>,
    due: BTreeSet<(Timestamp, Key)>,
    free_ids: BTreeSet<u64>,
    on_host: BTreeMap<String, u64>,
    used: Used,
}

/// What a task works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Machine(u64),
    Volume(u64),
}

/// Returns namespace and name as one key.
fn full_name(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

impl World {
    /// Returns an empty world.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let first_machine = FIRST_ID.saturating_add(settings.number_offset);
        Self {
            settings,
            faults: InjectedFaults::default(),
            time: Timestamp::MIN,
            counters: save::Counters {
                first_machine,
                next_machine: first_machine,
                next_volume: 1,
                dice: Dice::default(),
            },
            machines: BTreeMap::new(),
            volumes: BTreeMap::new(),
            failures: BTreeMap::new(),
            index: Index::default(),
            unsaved: Unsaved::default(),
            revision: 0,
            changed: BTreeSet::new(),
        }
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the settings. Existing machines are not affected.
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Returns the faults that a test injects.
    pub fn faults_mut(&mut self) -> &mut InjectedFaults {
        &mut self.faults
    }

    /// Returns the current time of the world.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// Returns all machines, sorted by ID.
    pub fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.machines.values()
    }

    /// Returns all volumes, sorted by ID.
    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.values()
    }

    /// Returns the total usage of all machines and volumes.
    #[must_use]
    pub fn used(&self) -> Used {
        self.index.used
    }

    /// Returns the machine that carries this identity.
    #[must_use]
    pub fn machine_of(&self, tag: &str) -> Option<&Machine> {
        self.machines.get(self.index.machine_of.get(tag)?)
    }

    /// Returns the machine with this name, whatever its identity.
    #[must_use]
    pub fn machine_named(&self, namespace: &str, name: &str) -> Option<&Machine> {
        self.machines.get(self.index.machine_named.get(&full_name(namespace, name))?)
    }

    /// Returns the volumes that carry this identity, sorted by disk name.
    pub fn volumes_of(&self, tag: &str) -> impl Iterator<Item = &Volume> {
        let ids = self.index.volumes_of.get(tag).into_iter().flat_map(BTreeMap::values);
        ids.filter_map(|id| self.volumes.get(id))
    }

    /// Returns the volume with this name, whatever its identity.
    #[must_use]
    pub fn volume_named(&self, namespace: &str, name: &str) -> Option<&Volume> {
        self.volumes.get(self.index.volume_named.get(&full_name(namespace, name))?)
    }

    /// Returns the identities whose machine or volumes changed since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }

    fn volume_of(&self, tag: &str, disk: &str) -> Option<&Volume> {
        self.volumes.get(self.index.volumes_of.get(tag)?.get(disk)?)
    }

    /// Returns an ID for a new machine.
    fn take_machine_id(&mut self) -> u64 {
        if self.settings.reuse_ids
            && let Some(id) = self.index.free_ids.pop_first()
        {
            return id;
        }
        let id = self.counters.next_machine;
        self.counters.next_machine = id.saturating_add(1);
        id
    }

    fn take_volume_id(&mut self) -> u64 {
        let id = self.counters.next_volume;
        self.counters.next_volume = id.saturating_add(1);
        id
    }

    fn put_machine(&mut self, machine: Machine) {
        self.index.add_machine(&machine);
        self.unsaved.machines.insert(machine.id);
        self.changed.extend(machine.tag.clone());
        self.machines.insert(machine.id, machine);
    }

    /// Changes a machine and updates the index. Changes caused by time alone are not marked for saving, because they
    /// follow from what is saved.
    fn edit_machine(&mut self, id: u64, edit: impl FnOnce(&mut Machine)) {
        if let Some(machine) = self.machines.get_mut(&id) {
            self.index.remove_machine(machine);
            edit(machine);
            self.index.add_machine(machine);
            self.changed.extend(machine.tag.clone());
        }
    }

    fn remove_machine(&mut self, id: u64) {
        if let Some(machine) = self.machines.remove(&id) {
            self.index.remove_machine(&machine);
            self.index.free_ids.insert(id);
            // Always marked: another machine may have the ID or the identity before the world is loaded again.
            self.unsaved.machines.insert(id);
            self.changed.extend(machine.tag);
        }
    }

    fn put_volume(&mut self, volume: Volume) {
        self.index.add_volume(&volume);
        self.unsaved.volumes.insert(volume.id);
        self.changed.extend(volume.tag.clone());
        self.volumes.insert(volume.id, volume);
    }

    fn edit_volume(&mut self, id: u64, edit: impl FnOnce(&mut Volume)) {
        if let Some(volume) = self.volumes.get_mut(&id) {
            self.index.remove_volume(volume);
            edit(volume);
            self.index.add_volume(volume);
            self.changed.extend(volume.tag.clone());
        }
    }

    fn remove_volume(&mut self, id: u64) {
        if let Some(volume) = self.volumes.remove(&id) {
            self.index.remove_volume(&volume);
            self.unsaved.volumes.insert(id);
            self.changed.extend(volume.tag);
        }
    }
}

impl Index {
    fn add_machine(&mut self, machine: &Machine) {
        if let Some(tag) = &machine.tag {
            self.machine_of.insert(tag.clone(), machine.id);
        }
        self.machine_named.insert(full_name(&machine.namespace, &machine.name), machine.id);
        if let Some(task) = &machine.task {
            self.due.insert((task.due, Key::Machine(machine.id)));
        }
        *self.on_host.entry(machine.host.clone()).or_default() += 1;
        self.used.add_machine(machine);
    }

    fn remove_machine(&mut self, machine: &Machine) {
        if let Some(tag) = &machine.tag {
            self.machine_of.remove(tag);
        }
        self.machine_named.remove(&full_name(&machine.namespace, &machine.name));
        if let Some(task) = &machine.task {
            self.due.remove(&(task.due, Key::Machine(machine.id)));
        }
        if let Some(count) = self.on_host.get_mut(&machine.host) {
            *count = count.saturating_sub(1);
        }
        self.used.remove_machine(machine);
    }

    fn add_volume(&mut self, volume: &Volume) {
        if let Some(tag) = &volume.tag {
            let disk = volume.shape.disk.clone();
            self.volumes_of.entry(tag.clone()).or_default().insert(disk, volume.id);
        }
        self.volume_named.insert(full_name(&volume.namespace, &volume.name), volume.id);
        if let Some(task) = &volume.task {
            self.due.insert((task.due, Key::Volume(volume.id)));
        }
        self.used.add_volume(volume);
    }

    fn remove_volume(&mut self, volume: &Volume) {
        if let Some(tag) = &volume.tag
            && let Some(disks) = self.volumes_of.get_mut(tag)
        {
            disks.remove(&volume.shape.disk);
            if disks.is_empty() {
                self.volumes_of.remove(tag);
            }
        }
        self.volume_named.remove(&full_name(&volume.namespace, &volume.name));
        if let Some(task) = &volume.task {
            self.due.remove(&(task.due, Key::Volume(volume.id)));
        }
        self.used.remove_volume(volume);
    }
}
