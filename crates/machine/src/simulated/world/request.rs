//! The requests that a world accepts, and their effects.

use jiff::Timestamp;
use vitistack_types::conditions::reason;

use super::{
    Attachment, Definition, Disk, Machine, Volume, Work, World, capacity::refused, model::volume_name,
    task::SIMULATED_PROVIDER_ERROR,
};
use crate::{BackendError, ErrorKind, Progress, simulated::faults};

/// The answer to a request.
pub type Answer = Result<Progress, BackendError>;

/// The ID of a machine, and the identity it must carry: another machine may have the ID by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The ID of the machine.
    pub id: u64,
    /// The identity it must carry.
    pub tag: String,
}

/// A request to a world.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Create a machine, unless one with its identity exists.
    Create(Definition),
    /// Change everything about a machine that can be changed.
    Change(Reference, Definition),
    /// Start it.
    Start(Reference),
    /// Stop it.
    Stop(Reference),
    /// Restart it, once per request ID.
    Restart(Reference, String),
    /// Delete it, but not its volumes.
    Destroy(Reference),
    /// Delete volumes with an identity.
    DestroyVolumes {
        /// The identity.
        tag: String,
        /// The names of their disks.
        disks: Vec<String>,
    },
}

/// The difference between a machine and a definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Whether changeable fields differ.
    pub is_changeable: bool,
    /// The fields that differ and cannot be changed on an existing machine.
    pub fixed: Vec<String>,
}

impl World {
    /// Returns an error if the world is set unreachable or rejects the credentials.
    pub fn check_reachable(&self) -> Result<(), BackendError> {
        if self.settings.unreachable || self.faults.unreachable {
            let message = "the simulated provider is set unreachable (spec.simulated.unreachable: true): set it to false";
            return Err(BackendError::new(ErrorKind::Unreachable, SIMULATED_PROVIDER_ERROR, message));
        }
        if self.faults.unauthenticated {
            let message = "the simulated provider rejected the credentials";
            return Err(BackendError::new(ErrorKind::Unauthenticated, SIMULATED_PROVIDER_ERROR, message));
        }
        Ok(())
    }

    /// Carries out a request at this time; the answer may get lost afterwards.
    pub fn request(&mut self, now: Timestamp, request: &Request) -> Answer {
        self.advance(now);
        self.check_reachable()?;
        let dice = self.counters.dice;
        let answer = self.carry_out(self.time, request);
        let is_lost = faults::take(&mut self.faults.lost_replies)
            || self.counters.dice.hit(self.settings.seed, self.settings.lost_replies_percent);
        if self.counters.dice != dice {
            self.count_change();
        }
        if is_lost {
            let message = "the simulated provider did not reply, and the request may have been carried out: set spec.simulated.lostRepliesPercent of the provider to 0 to stop simulated losses";
            return Err(BackendError::new(ErrorKind::Unreachable, SIMULATED_PROVIDER_ERROR, message));
        }
        answer
    }

    fn carry_out(&mut self, now: Timestamp, request: &Request) -> Answer {
        match request {
            Request::Create(definition) => self.create(now, definition),
            Request::Change(reference, definition) => self.change(now, reference, definition),
            Request::Start(reference) => match self.idle(reference)? {
                Err(working) => Ok(working),
                Ok(machine) if machine.running.is_some() => Ok(Progress::Done),
                Ok(_) => self.roll_and_begin(now, reference.id, Work::Start),
            },
            Request::Stop(reference) => match self.idle(reference)? {
                Err(working) => Ok(working),
                Ok(machine) if machine.running.is_none() => Ok(Progress::Done),
                Ok(_) => self.roll_and_begin(now, reference.id, Work::Stop),
            },
            Request::Restart(reference, request) => self.restart(now, reference, request),
            Request::Destroy(reference) => {
                if !self.machines.contains_key(&reference.id) {
                    return Ok(Progress::Done);
                }
                match self.idle(reference)? {
                    Err(working) => Ok(working),
                    Ok(_) => self.roll_and_begin(now, reference.id, Work::Destroy),
                }
            }
            Request::DestroyVolumes { tag, disks } => self.destroy_volumes(now, tag, disks),
        }
    }

    /// Returns the machine if it carries the identity; the inner error is the task that has to end first.
    fn idle(&self, reference: &Reference) -> Result<Result<&Machine, Progress>, BackendError> {
        let Some(machine) = self.machines.get(&reference.id) else {
            let message = format!("machine {} not found at the provider: create it first", reference.id);
            return Err(BackendError::new(ErrorKind::Failed, SIMULATED_PROVIDER_ERROR, message));
        };
        if machine.tag.as_ref() != Some(&reference.tag) {
            let message = format!(
                "machine {} at the provider now has another identity and was not changed",
                reference.id
            );
            return Err(refused(SIMULATED_PROVIDER_ERROR, message));
        }
        Ok(match &machine.task {
            Some(task) => Err(Progress::Working(task.work.awaited().to_owned())),
            None => Ok(machine),
        })
    }

    fn roll_and_begin(&mut self, now: Timestamp, id: u64, work: Work) -> Answer {
        let fails = self.task_fails();
        self.begin(now, id, work, fails)
    }

    fn create(&mut self, now: Timestamp, definition: &Definition) -> Answer {
        if let Some(machine) = self.machine_of(&definition.tag) {
            return Ok(match &machine.task {
                Some(task) => Progress::Working(task.work.awaited().to_owned()),
                None => Progress::Done,
            });
        }
        if let Some(working) = self.volume_in_deletion(definition) {
            return Ok(working);
        }
        if let Some((_, error)) = self.obstacle(definition) {
            return Err(error);
        }

        let fails = self.task_fails();
        self.create_volumes(now, definition);
        let (zone, host) = self.place(definition.zone.as_deref());
        let id = self.take_machine_id();
        self.put_machine(Machine {
            id,
            tag: Some(definition.tag.clone()),
            namespace: definition.namespace.clone(),
            name: definition.name.clone(),
            zone,
            host,
            given: definition.hardware.clone(),
            running: None,
            interfaces: definition.interfaces.clone(),
            attached: attachments(definition),
            started: None,
            starts: 0,
            restarted_for: None,
            task: None,
        });
        self.begin(now, id, Work::Create { is_on: definition.is_on }, fails)
    }

    fn change(&mut self, now: Timestamp, reference: &Reference, definition: &Definition) -> Answer {
        let difference = match self.idle(reference)? {
            Err(working) => return Ok(working),
            Ok(machine) => self.difference(machine, definition),
        };
        if let Some(working) = self.volume_in_deletion(definition) {
            return Ok(working);
        }
        let mut answer = Ok(Progress::Done);
        if difference.is_changeable {
            if let Some((_, error)) = self.obstacle(definition) {
                return Err(error);
            }
            let fails = self.task_fails();
            if !fails {
                self.create_volumes(now, definition);
                self.edit_machine(reference.id, |machine| {
                    machine.given.clone_from(&definition.hardware);
                    machine.interfaces.clone_from(&definition.interfaces);
                    machine.attached = attachments(definition);
                });
            }
            answer = self.begin(now, reference.id, Work::Change, fails);
        }
        if difference.fixed.is_empty() || answer.is_err() {
            return answer;
        }
        let fields: Vec<String> = difference.fixed.iter().map(|field| format!("spec.{field}")).collect();
        let message = format!(
            "{} cannot be changed on an existing machine: revert the change, or recreate the machine",
            fields.join(", ")
        );
        Err(refused(reason::INVALID_SPEC, message))
    }

    fn restart(&mut self, now: Timestamp, reference: &Reference, request: &str) -> Answer {
        let is_running = match self.idle(reference)? {
            Ok(machine) if machine.restarted_for.as_deref() == Some(request) => return Ok(Progress::Done),
            Err(working) => return Ok(working),
            Ok(machine) => machine.running.is_some(),
        };
        if is_running {
            return self.roll_and_begin(now, reference.id, Work::Restart { request: request.to_owned() });
        }
        // A stopped machine has nothing to restart: pending changes take effect when it is started.
        self.count_change();
        self.unsaved.machines.insert(reference.id);
        self.edit_machine(reference.id, |machine| machine.restarted_for = Some(request.to_owned()));
        Ok(Progress::Done)
    }

    fn destroy_volumes(&mut self, now: Timestamp, tag: &str, disks: &[String]) -> Answer {
        let attached = self.machine_of(tag).map_or(&[][..], |machine| &machine.attached);
        if let Some(disk) = disks.iter().find(|disk| attached.iter().any(|other| other.disk == **disk)) {
            let message = format!(
                "disk {disk:?} is attached to the machine: delete the machine or detach the disk first"
            );
            return Err(refused(SIMULATED_PROVIDER_ERROR, message));
        }
        let mut answer = Ok(Progress::Done);
        for disk in disks {
            let Some(volume) = self.volume_of(tag, disk) else { continue };
            let id = volume.id;
            let one = if volume.task.is_some() {
                Ok(Progress::Working(volume.awaited_deletion()))
            } else {
                let fails = self.task_fails();
                self.begin_volume(now, id, fails)
            };
            if answer == Ok(Progress::Done) {
                answer = one;
            }
        }
        answer
    }

    /// Returns the deletion of a volume that the definition needs: it has to end before the volume can be recreated.
    fn volume_in_deletion(&self, definition: &Definition) -> Option<Progress> {
        definition.disks.iter().find_map(|disk| {
            let volume = self.volume_of(&definition.tag, &disk.volume.disk)?;
            volume.task.as_ref()?;
            Some(Progress::Working(volume.awaited_deletion()))
        })
    }

    /// Creates missing volumes and expands those that are too small.
    fn create_volumes(&mut self, now: Timestamp, definition: &Definition) {
        let ready_at = (!self.settings.latency.is_zero()).then(|| self.end_of_task(now));
        for Disk { volume: shape, .. } in &definition.disks {
            let id = match self.volume_of(&definition.tag, &shape.disk) {
                Some(volume) => volume.id,
                None => self.take_volume_id(),
            };
            self.unsaved.volumes.insert(id);
            if self.volumes.contains_key(&id) {
                self.edit_volume(id, |volume| {
                    if shape.size > volume.shape.size {
                        volume.shape.size = shape.size.clone();
                    }
                    volume.shape.reclaim_policy = shape.reclaim_policy;
                });
            } else {
                self.put_volume(Volume {
                    id,
                    tag: Some(definition.tag.clone()),
                    namespace: definition.namespace.clone(),
                    name: volume_name(&definition.name, &shape.disk),
                    shape: shape.clone(),
                    ready_at,
                    task: None,
                });
            }
        }
    }

    /// Returns the difference between a machine and a definition.
    #[must_use]
    pub fn difference(&self, machine: &Machine, definition: &Definition) -> Difference {
        let mut difference = Difference {
            is_changeable: machine.given != definition.hardware
                || machine.interfaces != definition.interfaces
                || machine.attached != attachments(definition),
            fixed: Vec::new(),
        };

        if definition.zone.is_some() && definition.zone != machine.zone {
            difference.fixed.push("zone".to_owned());
        }

        for Disk { volume: wanted, .. } in &definition.disks {
            let Some(Volume { shape, .. }) = self.volume_of(&definition.tag, &wanted.disk) else {
                difference.is_changeable = true;
                continue;
            };
            difference.is_changeable |=
                wanted.size > shape.size || wanted.reclaim_policy != shape.reclaim_policy;
            let fields = [
                ("size", wanted.size < shape.size),
                ("storageClass", wanted.storage_class != shape.storage_class),
                ("accessMode", wanted.access_mode != shape.access_mode),
                ("volumeMode", wanted.volume_mode != shape.volume_mode),
                ("source", wanted.source != shape.source),
            ];
            let changed = fields.into_iter().filter(|(_, is_changed)| *is_changed);
            difference.fixed.extend(changed.map(|(field, _)| format!("disks[{}].{field}", wanted.disk)));
        }
        difference
    }
}

fn attachments(definition: &Definition) -> Vec<Attachment> {
    let attach = |disk: &Disk| Attachment { disk: disk.volume.disk.clone(), device: disk.device };
    definition.disks.iter().map(attach).collect()
}
