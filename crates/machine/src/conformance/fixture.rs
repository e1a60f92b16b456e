//! The machines that the suite creates.

use std::str::FromStr;

use vitistack_plan::machine::{AttachedNetwork, CpuShape, Desired, DesiredDisk, DesiredInterface, Identity};
use vitistack_types::{
    Size,
    v1alpha1::{AccessMode, DiskDevice, Domain, NetworkModel, PowerState, ReclaimPolicy, VolumeMode},
};

use super::{Failure, UseTestbedSnafu};
use crate::{Order, Target, simulated::faults::mix};

/// The namespace of most machines of the suite.
pub const NAMESPACE: &str = "conformance";

/// A second namespace.
pub const OTHER_NAMESPACE: &str = "conformance-other";

/// A storage class that the provider has in addition to its default one.
pub const STORAGE_CLASS: &str = "conformance-fast";

/// A foreign volume that can be used as a source.
pub const CLAIM: &str = "conformance-source";

/// The networks of the provider: name, bridge, VLAN.
pub const NETWORKS: [(&str, &str, Option<u16>); 2] =
    [("conformance-a", "br0", None), ("conformance-b", "br1", Some(100))];

/// Parses a value of the suite.
pub(super) fn parse<Value: FromStr>(text: &str) -> Result<Value, Failure> {
    text.parse().map_err(|_| UseTestbedSnafu { problem: format!("{text:?} is not a valid value") }.build())
}

/// Returns the target with this name; its identity is derived from namespace and name.
pub(super) fn target(namespace: &str, name: &str) -> Target {
    let number = format!("{namespace}/{name}").bytes().fold(0, |number, byte| mix(number ^ u64::from(byte)));
    let uid = format!("c0f0c0f0-0000-4000-8000-{:012x}", number >> 16);
    Target {
        identity: Identity::new(uid.clone()),
        uid,
        name: name.to_owned(),
        namespace: namespace.to_owned(),
    }
}

/// Returns an order for a small machine with one interface and two disks, the second with reclaim policy Retain.
pub(super) fn order(name: &str) -> Result<Order, Failure> {
    order_in(NAMESPACE, name)
}

pub(super) fn order_in(namespace: &str, name: &str) -> Result<Order, Failure> {
    Ok(Order {
        target: target(namespace, name),
        desired: Desired {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            cpu: CpuShape { cores: 1, threads: 1, sockets: 1 },
            memory: parse("1Gi")?,
            disks: vec![
                disk("root", parse("1Gi")?, ReclaimPolicy::Delete),
                disk("data", parse("1Gi")?, ReclaimPolicy::Retain),
            ],
            interfaces: vec![interface("eth0", 0)],
            boot_order: Vec::new(),
            cloud_init: None,
            domain: Domain::default(),
            zone: None,
            power: PowerState::Running,
        },
    })
}

pub(super) fn disk(name: &str, size: Size, reclaim_policy: ReclaimPolicy) -> DesiredDisk {
    DesiredDisk {
        name: name.to_owned(),
        size,
        storage_class: None,
        access_mode: AccessMode::ReadWriteOnce,
        volume_mode: VolumeMode::Filesystem,
        source: None,
        device: DiskDevice::Disk,
        reclaim_policy,
    }
}

/// Returns an interface on one of [`NETWORKS`].
pub(super) fn interface(name: &str, network: usize) -> DesiredInterface {
    DesiredInterface {
        name: name.to_owned(),
        network: attached_network(network),
        model: NetworkModel::Virtio,
        mac_address: None,
    }
}

pub(super) fn attached_network(number: usize) -> AttachedNetwork {
    let (name, bridge, vlan) = NETWORKS.get(number).copied().unwrap_or_default();
    AttachedNetwork { name: name.to_owned(), bridge: bridge.to_owned(), vlan }
}
