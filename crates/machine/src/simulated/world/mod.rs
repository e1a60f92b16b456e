//! An in-process hypervisor as plain data: requests and the time go in, answers come out, and nothing else has a say.

mod failure;
mod intervene;
mod request;
mod room;
mod save;
mod task;
mod things;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;

pub use intervene::Intervention;
pub use request::{Answer, Difference, Reference, Request};
pub use room::{Concern, NAME_TAKEN, Used};
pub use save::{RestoreError, Unsaved};
pub use task::SIMULATED_PROVIDER_ERROR;
pub use things::{
    Attachment, Definition, Disk, FirstBoot, Hardware, Interface, Machine, Task, Volume, VolumeShape, Work,
    volume_name,
};

use super::{
    Settings,
    faults::{Dice, OrderedFaults},
};

/// The lowest number of a machine.
const FIRST_ID: u64 = 100;

/// A world: its machines and volumes, and the order in which things are found and end.
#[derive(Clone, Debug)]
pub struct World {
    settings: Settings,
    faults: OrderedFaults,
    /// How far time has come here; it never goes back.
    time: Timestamp,
    counters: save::Counters,
    machines: BTreeMap<u64, Machine>,
    volumes: BTreeMap<u64, Volume>,
    /// What the last task of an identity failed with, for those whose last task failed.
    failures: BTreeMap<String, failure::Failed>,
    index: Index,
    unsaved: Unsaved,
    revision: u64,
    changed: BTreeSet<String>,
}

/// What follows from machines and volumes and is kept so that nothing has to be searched for.
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

/// Something that a task is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Machine(u64),
    Volume(u64),
}

/// The name of a thing and the namespace where it counts, as one text.
fn full_name(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

impl World {
    /// A world with nothing in it.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let first_machine = FIRST_ID.saturating_add(settings.number_offset);
        Self {
            settings,
            faults: OrderedFaults::default(),
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

    /// The settings it follows.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Gives it other settings; what is there stays.
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// The faults that a test ordered.
    pub fn faults_mut(&mut self) -> &mut OrderedFaults {
        &mut self.faults
    }

    /// How far time has come here.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// All machines, by number.
    pub fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.machines.values()
    }

    /// All volumes, by number.
    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.values()
    }

    /// What all machines and volumes use together.
    #[must_use]
    pub fn used(&self) -> Used {
        self.index.used
    }

    /// The machine that carries this identity.
    #[must_use]
    pub fn machine_of(&self, tag: &str) -> Option<&Machine> {
        self.machines.get(self.index.machine_of.get(tag)?)
    }

    /// The machine of this name, whoever made it.
    #[must_use]
    pub fn machine_named(&self, namespace: &str, name: &str) -> Option<&Machine> {
        self.machines.get(self.index.machine_named.get(&full_name(namespace, name))?)
    }

    /// The volumes that carry this identity, by the names of their disks.
    pub fn volumes_of(&self, tag: &str) -> impl Iterator<Item = &Volume> {
        let ids = self.index.volumes_of.get(tag).into_iter().flat_map(BTreeMap::values);
        ids.filter_map(|id| self.volumes.get(id))
    }

    /// The volume of this name, whoever made it.
    #[must_use]
    pub fn volume_named(&self, namespace: &str, name: &str) -> Option<&Volume> {
        self.volumes.get(self.index.volume_named.get(&full_name(namespace, name))?)
    }

    /// The identities whose things changed since this was last asked.
    pub fn take_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }

    fn volume_of(&self, tag: &str, disk: &str) -> Option<&Volume> {
        self.volumes.get(self.index.volumes_of.get(tag)?.get(disk)?)
    }

    /// A number for a new machine.
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

    /// Changes a machine and everything that follows from it. What time alone does is not marked for saving: it follows
    /// from what is saved.
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
            // Always marked: the number or the identity may be another machine's before this is next loaded.
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
