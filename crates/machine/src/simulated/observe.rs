//! What a world has for one identity, read and never changed.

use vitistack_plan::{
    Refusal,
    machine::{CpuShape, Elsewhere, Observed, ObservedDisk, ObservedMachine, Power, Problem},
};

use super::world::{Concern, Definition, Machine, NAME_TAKEN, Volume, Work, World, volume_name};
use crate::Target;

/// Everything the world has for the target.
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

/// What carries the identity and was made for a Machine of another namespace.
pub(super) fn elsewhere(world: &World, target: &Target) -> Option<Elsewhere> {
    let tag = target.identity.as_str();
    let machine = world.machine_of(tag).map(|machine| ("machine", &machine.name, &machine.namespace));
    let volumes = world.volumes_of(tag).map(|volume| ("volume", &volume.name, &volume.namespace));
    let strange = machine.into_iter().chain(volumes).find(|(.., namespace)| **namespace != target.namespace);
    strange.map(|(kind, name, namespace)| Elsewhere {
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
    let is_made = volume.ready_at.is_none_or(|at| at <= world.time());
    ObservedDisk {
        name: disk.clone(),
        size: is_made.then(|| volume.shape.size.clone()),
        is_ready: is_made && volume.task.is_none(),
        is_attached: machine.is_some_and(|machine| machine.attached.iter().any(|other| other.disk == *disk)),
        is_blank: false,
        reclaim_policy: volume.shape.reclaim_policy,
    }
}

/// Something of the right name that carries another identity or none.
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

fn task(world: &World, tag: &str, machine: Option<&Machine>) -> Option<String> {
    if let Some((machine, task)) = machine.and_then(|machine| Some((machine, machine.task.as_ref()?))) {
        return Some(format!("{} machine {:?}", task.work.verb(), machine.name));
    }
    world.volumes_of(tag).find_map(|volume| {
        let task = volume.task.as_ref()?;
        Some(format!("{} volume {:?}", task.work.verb(), volume.name))
    })
}

fn problem(world: &World, definition: &Definition) -> Option<Problem> {
    let (concern, error) = world.obstacle(definition)?;
    // What is of the right name and not ours is told as foreign.
    if error.reason == NAME_TAKEN {
        return None;
    }
    let refusal = Refusal::new(error.reason, error.message);
    Some(match concern {
        Concern::Machine => Problem::Machine(refusal),
        Concern::Storage => Problem::Storage(refusal),
    })
}
