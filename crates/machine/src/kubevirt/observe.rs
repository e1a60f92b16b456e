//! The state of a machine, from the objects in the provider's cluster. Pure.

use std::net::IpAddr;

use jiff::Timestamp;
use kube::{ResourceExt, core::DynamicObject};
use serde::Deserialize;
use serde_json::Value;
use vitistack_plan::machine::{CpuShape, Observed, ObservedDisk, ObservedMachine};
use vitistack_types::labels;

use super::{
    Settings,
    changes::{changes, foreign, place},
    foreign_text,
    kind::{Kind, Object, belongs_to, named, part},
    names,
    plan::{Planned, plan},
    power::{condition, is_final, is_halted, power},
    read::{Found, uid},
    storage,
    virtual_machine::ZONE,
};
use crate::{Order, Target};

/// The maximum number of addresses in the status: the guest may report any number.
const ADDRESS_LIMIT: usize = 64;

/// Returns the observed state of a machine.
#[must_use]
pub fn observe(
    settings: &Settings,
    target: &Target,
    order: Option<&Order>,
    found: &Found,
    now: Timestamp,
) -> Observed {
    let planned = order.map(|order| plan(settings, order, found));
    let mine = |object: &&Object| belongs_to(object, &target.identity);
    let machine = found.virtual_machine.as_ref().filter(mine);
    let instance = found.instance.as_ref().filter(mine);
    let mut problems = planned.as_ref().map(|planned| planned.problems.clone()).unwrap_or_default();

    let observed = machine.map(|machine| {
        let (power, problem) = power(machine, instance.map(AsRef::as_ref), found, now);
        problems.extend(problem);
        // An instance that has ended no longer has addresses and a node.
        let running = instance.filter(|instance| !is_final(instance));
        let is_current = order
            .zip(planned.as_ref())
            .is_none_or(|(order, planned)| changes(settings, order, planned, found, None).is_empty());
        ObservedMachine {
            // Both have the name of the Machine. Their own text is that of the cluster.
            id: target.name.clone(),
            instance: running.map(|_| target.name.clone()),
            power,
            cpu: cpu(machine),
            memory: part(machine, "/spec/template/spec/domain/memory/guest"),
            is_current,
            unchangeable: planned.as_ref().map(|planned| unchangeable(planned, found)).unwrap_or_default(),
            restart_needed: restart_needed(machine, running.map(AsRef::as_ref)),
            started: running.and_then(|instance| started(instance)),
            restarted_for: restarted_for(machine, instance),
            addresses: running.map(|instance| addresses(instance)).unwrap_or_default(),
            node: running
                .and_then(|instance| part::<Option<String>>(instance, "/status/nodeName"))
                .map(|node| foreign_text::name(&node).to_owned()),
            zone: part::<Value>(machine, "/spec/template/spec/nodeSelector")
                .get(ZONE)
                .and_then(Value::as_str)
                .map(|zone| foreign_text::name(zone).to_owned()),
        }
    });

    Observed {
        machine: observed,
        disks: disks(target, found),
        leftovers: leftovers(target, order, found),
        foreign: foreign(target, planned.as_ref(), found),
        elsewhere: found.elsewhere.clone(),
        task: task(target, planned.as_ref(), found),
        // KubeVirt has no tasks: a failure is in the status of the objects, and reported as power or as a problem.
        failure: None,
        problems,
    }
}

/// Returns the deletion that has to finish before anything else starts.
fn task(target: &Target, planned: Option<&Planned>, found: &Found) -> Option<String> {
    let deletion = |kind: Kind, object: &Object| format!("{} {} to be deleted", kind.name(), place(object));
    let terminating = |kind: Kind, object: &Object| {
        let is_terminating =
            object.metadata.deletion_timestamp.is_some() && belongs_to(object, &target.identity);
        is_terminating.then(|| deletion(kind, object))
    };

    let machine = found.virtual_machine.as_ref();
    if let Some(machine) = machine.and_then(|machine| terminating(Kind::VirtualMachine, machine)) {
        return Some(machine);
    }
    // An instance without its VirtualMachine is being deleted, and still uses the disks.
    let has_machine = machine.is_some_and(|machine| belongs_to(machine, &target.identity));
    let orphan =
        found.instance.as_ref().filter(|instance| !has_machine && belongs_to(instance, &target.identity));
    if let Some(orphan) = orphan {
        return Some(deletion(Kind::VirtualMachineInstance, orphan));
    }

    let volumes = planned.map(|planned| planned.volumes.as_slice()).unwrap_or_default();
    volumes.iter().find_map(|volume| {
        let name = volume.child.object.name_any();
        let claim =
            named(&found.claims, &name).and_then(|claim| terminating(Kind::PersistentVolumeClaim, claim));
        claim.or_else(|| {
            named(&found.data_volumes, &name).and_then(|volume| terminating(Kind::DataVolume, volume))
        })
    })
}

fn unchangeable(planned: &Planned, found: &Found) -> Vec<String> {
    let fields = planned.volumes.iter().filter_map(|volume| {
        let claim = named(&found.claims, &volume.child.object.name_any())?;
        Some(storage::unchangeable(volume, claim, found))
    });
    fields.flatten().collect()
}

fn cpu(machine: &DynamicObject) -> Option<CpuShape> {
    let number = |name: &str| -> u32 {
        part::<Option<u32>>(machine, &format!("/spec/template/spec/domain/cpu/{name}")).unwrap_or(1)
    };
    machine.data.pointer("/spec/template/spec/domain/cpu")?;
    Some(CpuShape { cores: number("cores"), threads: number("threads"), sockets: number("sockets") })
}

/// Whether the instance runs without a change of its VirtualMachine. KubeVirt applies some changes by a migration, which may
/// be impossible or disabled; a restart applies them as well.
fn restart_needed(machine: &DynamicObject, instance: Option<&DynamicObject>) -> bool {
    let awaits_migration = |instance: &DynamicObject| {
        ["True", "False"].iter().any(|status| condition(instance, "MigrationRequired", status).is_some())
    };
    condition(machine, "RestartRequired", "True").is_some() || instance.is_some_and(awaits_migration)
}

/// Returns when the instance started to run, or else when it was created.
fn started(instance: &DynamicObject) -> Option<Timestamp> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Transition {
        phase: String,
        phase_transition_timestamp: String,
    }
    let transitions: Vec<Transition> = part(instance, "/status/phaseTransitionTimestamps");
    let running = transitions.iter().find(|transition| transition.phase == "Running");
    running
        .and_then(|running| running.phase_transition_timestamp.parse().ok())
        .or_else(|| instance.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

/// Returns the restart request that was carried out: its instance is deleted or being deleted.
fn restarted_for(machine: &DynamicObject, instance: Option<&Object>) -> Option<String> {
    let annotations = machine.annotations();
    let request = annotations.get(labels::RESTART_AT)?;
    let stopped = annotations.get(labels::RESTARTED_INSTANCE)?;
    let is_running = instance
        .is_some_and(|instance| uid(instance) == *stopped && instance.metadata.deletion_timestamp.is_none());
    (!is_running).then(|| request.clone())
}

/// Returns the addresses that can be reached from outside. The guest reports them, so they are validated.
fn addresses(instance: &DynamicObject) -> Vec<String> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Interface {
        ip_address: Option<String>,
        ip_addresses: Vec<String>,
    }
    let interfaces: Vec<Interface> = part(instance, "/status/interfaces");
    let mut addresses: Vec<String> = Vec::new();
    for text in
        interfaces.iter().flat_map(|interface| interface.ip_address.iter().chain(&interface.ip_addresses))
    {
        let Ok(address) = text.parse::<IpAddr>() else { continue };
        let is_local = match address {
            IpAddr::V4(address) => address.is_loopback() || address.is_link_local(),
            IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local(),
        };
        let text = address.to_string();
        if !is_local && !addresses.contains(&text) && addresses.len() < ADDRESS_LIMIT {
            addresses.push(text);
        }
    }
    addresses
}

/// Returns the volumes of the machine, including those that outlived it.
fn disks(target: &Target, found: &Found) -> Vec<ObservedDisk> {
    let mine = |object: &&Object| belongs_to(object, &target.identity);
    let is_off = found.instance.is_none()
        && found.virtual_machine.as_ref().filter(mine).is_some_and(|machine| is_halted(machine));
    let is_alone = |volume: &&Object| named(&found.claims, &volume.name_any()).is_none();
    let claims = found.claims.iter().filter(mine);
    let pending = found.data_volumes.iter().filter(mine).filter(is_alone);
    let mut disks: Vec<ObservedDisk> = claims
        .chain(pending)
        .map(|volume| {
            let name = volume.name_any();
            let is_filled = named(&found.data_volumes, &name)
                .is_none_or(|filled| part::<String>(filled, "/status/phase") == "Succeeded");
            ObservedDisk {
                name: disk_name(target, volume),
                size: storage::capacity(volume),
                is_ready: (storage::is_bound(volume) && is_filled)
                    || (is_off && storage::waits_for_start(volume, found)),
                is_attached: is_attached(&name, found),
                is_blank: storage::is_blank(&name, found) && !is_attached(&name, found),
                reclaim_policy: storage::reclaim_policy(volume),
            }
        })
        .collect();
    disks.sort_by(|left, right| left.name.cmp(&right.name));
    disks
}

/// Returns what is left of an absent machine beside its volumes. Without an order the Machine is being deleted, and the
/// garbage collector deletes what it owns.
fn leftovers(target: &Target, order: Option<&Order>, found: &Found) -> Vec<String> {
    let is_collected =
        |secret: &&Object| secret.owner_references().iter().any(|owner| owner.uid == target.uid);
    let left = left_secret(target, found).filter(|secret| order.is_some() || !is_collected(secret));
    left.map(|secret| format!("{} {}", Kind::Secret.name(), secret.name_any())).into_iter().collect()
}

/// Returns the Secret of a machine that is deleted or was never created.
#[must_use]
pub fn left_secret<'a>(target: &Target, found: &'a Found) -> Option<&'a Object> {
    let mine = |object: &&Object| belongs_to(object, &target.identity);
    let has_machine = found.virtual_machine.iter().chain(&found.instance).any(|object| mine(&object));
    found.secret.as_ref().filter(mine).filter(|_| !has_machine)
}

/// Returns the name of the disk of a volume.
#[must_use]
pub fn disk_name(target: &Target, volume: &DynamicObject) -> String {
    let name = volume.name_any();
    let stem = names::claim(&target.name, "");
    let labeled = volume.labels().get(labels::DISK).map(String::as_str);
    let found = labeled.unwrap_or_else(|| name.strip_prefix(&stem).unwrap_or(&name));
    foreign_text::name(found).to_owned()
}

/// Whether the machine or its running instance uses a volume.
#[must_use]
pub fn is_attached(claim: &str, found: &Found) -> bool {
    let uses = |object: Option<&Object>, pointer: &str| {
        let volumes: Vec<Value> = object.map(|object| part(object, pointer)).unwrap_or_default();
        volumes.iter().any(|volume| {
            ["/persistentVolumeClaim/claimName", "/dataVolume/name"]
                .iter()
                .any(|pointer| volume.pointer(pointer).and_then(Value::as_str) == Some(claim))
        })
    };
    uses(found.virtual_machine.as_ref(), "/spec/template/spec/volumes")
        || uses(found.instance.as_ref(), "/spec/volumes")
}
