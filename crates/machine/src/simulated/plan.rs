//! From an order to what the world is asked for, purely.

use sha2::{Digest, Sha256};
use vitistack_plan::machine::{
    Capabilities, Desired, DesiredCloudInit, DesiredDisk, DesiredInterface, Support,
};
use vitistack_types::v1alpha1::PowerState;

use super::world::{Definition, Disk, FirstBoot, Hardware, Interface, Reference, Request, VolumeShape};
use crate::{Order, Part, Target, Update};

/// What the simulated backend can do: every field there is, most of it while the machine runs.
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

/// The machine of an order in the world's own words.
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
    // The identity goes in too, so that equal secrets of two machines cannot be told from their digests.
    let digest = |parts: &[&str]| {
        let mut hash = Sha256::new();
        for part in [&[tag], parts].concat() {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        let digest: [u8; 32] = hash.finalize().into();
        format!("{:032x}", u128::from_be_bytes(digest.first_chunk().copied().unwrap_or_default()))
    };
    FirstBoot {
        user_data: user_data.as_ref().map(|text| digest(&[text])),
        network_data: network_data.as_ref().map(|text| digest(&[text])),
        secret: secret.as_ref().map(|part| digest(&[&part.name, &part.key, part.content.reveal()])),
    }
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

/// The request behind an update of the machine of this number.
pub(super) fn update(id: u64, order: &Order, update: &Update) -> Request {
    let reference = Reference { id, tag: order.target.identity.as_str().to_owned() };
    match update {
        Update::Specification => Request::Change(reference, definition(order)),
        Update::Start => Request::Start(reference),
        Update::Stop => Request::Stop(reference),
        Update::Restart { request } => Request::Restart(reference, request.clone()),
    }
}

/// The request behind a deletion; none if what is to be deleted is not there.
pub(super) fn delete(id: Option<u64>, target: &Target, part: &Part) -> Option<Request> {
    let tag = target.identity.as_str().to_owned();
    match part {
        Part::Machine => id.map(|id| Request::Destroy(Reference { id, tag })),
        // A creation that finds no room makes nothing here, and nothing is made beside machines and volumes.
        Part::BlankDisks(_) | Part::Leftovers => None,
        Part::Disks(disks) => Some(Request::DestroyVolumes { tag, disks: disks.clone() }),
    }
}
