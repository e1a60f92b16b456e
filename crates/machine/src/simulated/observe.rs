//! What a world has for one identity. Read-only.

use vitistack_plan::{
    Refusal,
    machine::{CpuShape, Elsewhere, Observed, ObservedDisk, ObservedMachine, Power, Problem},
};

use vitistack_types::conditions::reason;

use super::world::{Concern, Definition, Machine, Volume, Work, World, volume_name};
use crate::Target;

/// Returns everything the world has for the target.
pub(super) fn observe(world: &World, target: &Target, definition: Option<&Definition>) -> Observed {
    let tag = target.identity.as_str();
    if let Some(elsewhere) = elsewhere(world, target) {
        return Observed { elsewhere: Some(elsewhere), ..Observed::default() };
    }

    let machine = world.machine_of(tag);
    Observed {
        machine: machine.map(|machine| observed_machine(world, machine, definition)),
        disks: world.volumes_of(tag).map(|volume| observed_disk(world, machine, volume)).collect(),
        leftovers: Vec::new(),
        foreign: foreign(world, target, definition),
        elsewhere: None,
        task: task(world, tag, machine),
        failure: world.failure_of(tag).map(str::to_owned),
        problems: definition.and_then(|definition| problem(world, definition)).into_iter().collect(),
    }
}

/// Returns what carries the identity and was created for a Machine in another namespace.
pub(super) fn elsewhere(world: &World, target: &Target) -> Option<Elsewhere> {
    let tag = target.identity.as_str();
    let machine = world.machine_of(tag).map(|machine| ("machine", &machine.name, &machine.namespace));
    let volumes = world.volumes_of(tag).map(|volume| ("volume", &volume.name, &volume.namespace));
    let elsewhere =
        machine.into_iter().chain(volumes).find(|(.., namespace)| **namespace != target.namespace);
    elsewhere.map(|(kind, name, namespace)| Elsewhere {
        thing: format!("{kind} {name:?}"),
        namespace: Some(namespace.clone()),
    })
}

fn observed_machine(world: &World, machine: &Machine, definition: Option<&Definition>) -> ObservedMachine {
    let difference = definition.map(|definition| world.difference(machine, definition));
    ObservedMachine {
        id: machine.id.to_string(),
        instance: None,
        power: power(machine),
        cpu: Some(CpuShape {
            cores: machine.given.cores,
            threads: machine.given.threads,
            sockets: machine.given.sockets,
        }),
        memory: Some(machine.given.memory.clone()),
        is_current: difference.as_ref().is_none_or(|difference| !difference.is_changeable),
        unchangeable: difference.map(|difference| difference.fixed).unwrap_or_default(),
        restart_needed: machine.running.as_ref().is_some_and(|running| *running != machine.given),
        started: machine.started,
        restarted_for: machine.restarted_for.clone(),
        addresses: machine.addresses(),
        node: Some(machine.host.clone()),
        zone: machine.zone.clone(),
    }
}

fn power(machine: &Machine) -> Power {
    match machine.task.as_ref().map(|task| &task.work) {
        Some(Work::Create { is_on: true } | Work::Start | Work::Restart { .. }) => Power::Starting,
        Some(Work::Stop) => Power::Stopping,
        Some(Work::Destroy) if machine.running.is_some() => Power::Stopping,
        Some(Work::Create { is_on: false } | Work::Destroy | Work::Change) | None => {
            if machine.running.is_some() { Power::Running } else { Power::Stopped }
        }
    }
}

fn observed_disk(world: &World, machine: Option<&Machine>, volume: &Volume) -> ObservedDisk {
    let disk = &volume.shape.disk;
    let is_created = volume.ready_at.is_none_or(|at| at <= world.time());
    ObservedDisk {
        name: disk.clone(),
        size: is_created.then(|| volume.shape.size.clone()),
        is_ready: is_created && volume.task.is_none(),
        is_attached: machine.is_some_and(|machine| machine.attached.iter().any(|other| other.disk == *disk)),
        is_blank: false,
        reclaim_policy: volume.shape.reclaim_policy,
    }
}

/// Returns a machine or volume with the right name and another identity or none.
fn foreign(world: &World, target: &Target, definition: Option<&Definition>) -> Option<String> {
    let tag = Some(target.identity.as_str());
    let machine = world.machine_named(&target.namespace, &target.name);
    if let Some(machine) = machine.filter(|machine| machine.tag.as_deref() != tag) {
        return Some(format!("machine {} named {:?}", machine.id, machine.name));
    }
    definition?.disks.iter().find_map(|disk| {
        let name = volume_name(&target.name, &disk.volume.disk);
        let volume = world.volume_named(&target.namespace, &name)?;
        (volume.tag.as_deref() != tag).then(|| format!("volume {} named {name:?}", volume.id))
    })
}

/// Returns the running task as a noun phrase that completes "Waiting for …".
fn task(world: &World, tag: &str, machine: Option<&Machine>) -> Option<String> {
    if let Some(task) = machine.and_then(|machine| machine.task.as_ref()) {
        return Some(task.work.awaited().to_owned());
    }
    world.volumes_of(tag).find(|volume| volume.task.is_some()).map(Volume::awaited_deletion)
}

fn problem(world: &World, definition: &Definition) -> Option<Problem> {
    let (concern, error) = world.obstacle(definition)?;
    // Reported as foreign instead.
    if error.reason == reason::NAME_TAKEN {
        return None;
    }
    let refusal = Refusal::new(error.reason, error.message);
    Some(match concern {
        Concern::Machine => Problem::Machine(refusal),
        Concern::Storage => Problem::Storage(refusal),
    })
}
