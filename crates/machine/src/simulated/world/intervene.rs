//! Changes that a third party makes in a world, for tests that prove that the operators tolerate them.

use jiff::Timestamp;
use vitistack_types::{
    Size,
    v1alpha1::{AccessMode, ReclaimPolicy, VolumeMode},
};

use super::{Hardware, Machine, Volume, VolumeShape, World};

/// A change made by a third party.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intervention {
    /// Creates a machine without an identity.
    CreateMachine {
        /// Namespace of the name.
        namespace: String,
        /// Name.
        name: String,
        /// Memory size.
        memory: Size,
    },
    /// Creates a volume without an identity.
    CreateVolume {
        /// Namespace of the name.
        namespace: String,
        /// Name.
        name: String,
        /// Size.
        size: Size,
    },
    /// Deletes the machine with this name, whatever its identity.
    Delete {
        /// Namespace of the name.
        namespace: String,
        /// Name.
        name: String,
    },
    /// Deletes the machine with this identity and gives its ID and name to a new machine without an identity.
    Replace {
        /// The identity.
        tag: String,
    },
}

impl World {
    /// Applies a change of a third party, without random faults and without a task.
    pub fn intervene(&mut self, now: Timestamp, intervention: &Intervention) {
        self.advance(now);
        match intervention {
            Intervention::CreateMachine { namespace, name, memory } => {
                // Names are unique for every client.
                if self.machine_named(namespace, name).is_some() {
                    return;
                }
                let id = self.take_machine_id();
                let foreign = foreign(self.place(None), id, namespace, name, memory.clone(), now);
                self.put_machine(foreign);
            }
            Intervention::CreateVolume { namespace, name, size } => {
                if self.volume_named(namespace, name).is_some() {
                    return;
                }
                let volume = Volume {
                    id: self.take_volume_id(),
                    tag: None,
                    namespace: namespace.clone(),
                    name: name.clone(),
                    shape: VolumeShape {
                        disk: name.clone(),
                        size: size.clone(),
                        storage_class: None,
                        access_mode: AccessMode::ReadWriteOnce,
                        volume_mode: VolumeMode::Filesystem,
                        source: None,
                        reclaim_policy: ReclaimPolicy::Retain,
                    },
                    ready_at: None,
                    task: None,
                };
                self.put_volume(volume);
            }
            Intervention::Delete { namespace, name } => {
                if let Some(id) = self.machine_named(namespace, name).map(|machine| machine.id) {
                    self.remove_machine(id);
                }
            }
            Intervention::Replace { tag } => {
                let Some(machine) = self.machine_of(tag).cloned() else { return };
                self.remove_machine(machine.id);
                self.index.free_ids.remove(&machine.id);
                let location = (machine.zone, machine.host);
                let memory = machine.given.memory;
                self.put_machine(foreign(
                    location,
                    machine.id,
                    &machine.namespace,
                    &machine.name,
                    memory,
                    now,
                ));
            }
        }
        self.count_change();
    }
}

/// Returns a running machine without an identity.
fn foreign(
    (zone, host): (Option<String>, String),
    id: u64,
    namespace: &str,
    name: &str,
    memory: Size,
    now: Timestamp,
) -> Machine {
    let hardware = Hardware {
        cores: 1,
        threads: 1,
        sockets: 1,
        memory,
        boot_order: Vec::new(),
        domain: vitistack_types::v1alpha1::Domain::default(),
        first_boot: None,
    };
    Machine {
        id,
        tag: None,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        zone,
        host,
        running: Some(hardware.clone()),
        given: hardware,
        interfaces: Vec::new(),
        attached: Vec::new(),
        started: Some(now),
        starts: 1,
        restarted_for: None,
        task: None,
    }
}
