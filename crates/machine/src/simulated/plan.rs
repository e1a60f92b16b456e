//! Converts orders to requests. Pure.

use sha2::{Digest, Sha256};
use vitistack_plan::machine::{
    Capabilities, Desired, DesiredCloudInit, DesiredDisk, DesiredInterface, ObservedDisk, Problem, Support,
};
use vitistack_types::v1alpha1::PowerState;

use super::world::{Definition, Disk, FirstBoot, Hardware, Interface, Reference, Request, VolumeShape};
use crate::{Limits, Order, Part, Target, Update};

/// Returns the capabilities of the simulated backend: it supports every field, most of them while the machine runs.
pub(crate) fn capabilities() -> Capabilities {
    Capabilities {
        resize: Support::AtRestart,
        grow_disk: Support::InPlace,
        change_disks: Support::InPlace,
        change_interfaces: Support::InPlace,
        change_hardware: Support::AtRestart,
        power: true,
        zones: true,
        refused_fields: Vec::new(),
    }
}

/// Converts an order to a definition.
pub(super) fn definition(order: &Order) -> Definition {
    let Desired {
        name,
        namespace,
        cpu,
        memory,
        disks,
        interfaces,
        boot_order,
        cloud_init,
        domain,
        zone,
        power,
    } = &order.desired;
    let tag = order.target.identity.as_str();
    Definition {
        tag: tag.to_owned(),
        namespace: namespace.clone(),
        name: name.clone(),
        zone: zone.clone(),
        hardware: Hardware {
            cores: cpu.cores,
            threads: cpu.threads,
            sockets: cpu.sockets,
            memory: memory.clone(),
            boot_order: boot_order.clone(),
            domain: domain.clone(),
            first_boot: cloud_init.as_ref().map(|cloud_init| first_boot(tag, cloud_init)),
        },
        interfaces: interfaces.iter().map(interface).collect(),
        disks: disks.iter().map(disk).collect(),
        is_on: *power == PowerState::Running,
    }
}

fn first_boot(tag: &str, cloud_init: &DesiredCloudInit) -> FirstBoot {
    let DesiredCloudInit { user_data, network_data, secret } = cloud_init;
    FirstBoot {
        user_data: user_data.as_ref().map(|text| digest(tag, &[text])),
        network_data: network_data.as_ref().map(|text| digest(tag, &[text])),
        secret: secret.as_ref().map(|part| digest(tag, &[&part.name, &part.key, part.content.reveal()])),
    }
}

/// Returns a digest of the parts. It includes the identity, so that equal secrets of two machines have different digests.
fn digest(tag: &str, parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in [&[tag], parts].concat() {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    let digest: [u8; 32] = hash.finalize().into();
    format!("{:032x}", u128::from_be_bytes(digest.first_chunk().copied().unwrap_or_default()))
}

fn interface(interface: &DesiredInterface) -> Interface {
    let DesiredInterface { name, network, model, mac_address } = interface;
    Interface {
        name: name.clone(),
        network: network.name.clone(),
        bridge: network.bridge.clone(),
        vlan: network.vlan,
        model: *model,
        mac_address: *mac_address,
    }
}

fn disk(disk: &DesiredDisk) -> Disk {
    let DesiredDisk { name, size, storage_class, access_mode, volume_mode, source, device, reclaim_policy } =
        disk;
    Disk {
        device: *device,
        volume: VolumeShape {
            disk: name.clone(),
            size: size.clone(),
            storage_class: storage_class.clone(),
            access_mode: *access_mode,
            volume_mode: *volume_mode,
            source: source.clone(),
            reclaim_policy: *reclaim_policy,
        },
    }
}

/// Returns what the provider does not let Machines use. A disk that exists is not filled again.
pub(super) fn forbidden(order: &Order, limits: &Limits, disks: &[ObservedDisk]) -> Vec<Problem> {
    let exists = |disk: &&DesiredDisk| disks.iter().any(|each| each.name == disk.name);
    let new = order.desired.disks.iter().filter(|disk| !exists(disk));
    let sources = new.filter_map(|disk| limits.source_problem(disk)).map(Problem::Storage);
    let interfaces = order.desired.interfaces.iter();
    let networks = interfaces.filter_map(|each| limits.interface_problem(each)).map(Problem::Network);
    sources.chain(networks).collect()
}

/// Returns the request for an update of the machine with this ID.
pub(super) fn update(id: u64, order: &Order, update: &Update) -> Request {
    let reference = Reference { id, tag: order.target.identity.as_str().to_owned() };
    match update {
        Update::Specification => Request::Change(reference, definition(order)),
        Update::Start => Request::Start(reference),
        Update::Stop => Request::Stop(reference),
        Update::Restart { request } => Request::Restart(reference, request.clone()),
    }
}

/// Returns the request for a deletion; none if there is nothing to delete.
pub(super) fn delete(id: Option<u64>, target: &Target, part: &Part) -> Option<Request> {
    let tag = target.identity.as_str().to_owned();
    match part {
        Part::Machine => id.map(|id| Request::Destroy(Reference { id, tag })),
        // A creation without capacity leaves nothing behind here, and there are only machines and volumes.
        Part::BlankDisks(_) | Part::Leftovers => None,
        Part::Disks(disks) => Some(Request::DestroyVolumes { tag, disks: disks.clone() }),
    }
}
