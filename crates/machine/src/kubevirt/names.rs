//! The names of objects in the provider's cluster: deterministic, valid, and unique per object. Where two Machines could
//! have the same name, the identity label decides which of them an object belongs to.

use serde_json::json;
use vitistack_clients::kubernetes::fingerprint;
use vitistack_plan::machine::AttachedNetwork;

/// The disk and volume with the first-boot configuration.
pub const CLOUD_INIT_DISK: &str = "cloudinitdisk";

/// The interface and network of a machine without networks.
pub const POD_NETWORK: &str = "default";

/// The maximum length of a label value: every object of a machine is labeled with its name.
pub const NAME_LIMIT: usize = 63;

/// Volumes that KubeVirt adds to the pod of every machine. A disk with such a name passes admission, but its pod is
/// rejected because two volumes have the same name.
const POD_VOLUMES: [&str; 13] = [
    "private",
    "private-libvirt",
    "private-libvirt-qemu",
    "public",
    "sockets",
    "virt-bin-share-dir",
    "libvirt-runtime",
    "ephemeral-disks",
    "container-disks",
    "hotplug-disks",
    "hook-sidecar-sockets",
    "network-info-annotation",
    "vm-state",
];

/// Returns the name of the claim of a disk, or of the DataVolume that creates it.
#[must_use]
pub fn claim(machine: &str, disk: &str) -> String {
    format!("{machine}-{disk}")
}

/// Returns the name of the Secret with the first-boot configuration.
#[must_use]
pub fn cloud_init_secret(machine: &str) -> String {
    format!("{machine}-cloudinit")
}

/// Returns the name of the attachment of a network. It contains a hash of the network: a changed network gets another
/// attachment, so that nothing changes under running machines, and Machines of two namespaces that are created in one
/// namespace never conflict.
#[must_use]
pub fn attachment(network: &AttachedNetwork) -> String {
    let print = fingerprint(&json!([network.name, network.bridge, network.vlan]));
    let tag = network.vlan.map_or_else(|| "untagged".to_owned(), |vlan| format!("vlan{vlan}"));
    // Multus accepts no dots in a name, and the label of an interface has at most 63 characters.
    let stem: String = network.name.replace('.', "-").chars().take(36).collect();
    let print: String = print.chars().take(8).collect();
    format!("{}-{tag}-{print}", stem.trim_end_matches('-'))
}

/// Returns the address of an interface without one in the spec: a locally administered address derived from the identity.
/// Without it KubeVirt generates another one at every start, which breaks leases and the network configuration of the guest.
#[must_use]
pub fn mac_address(identity: &str, interface: &str) -> String {
    let print = fingerprint(&json!([identity, interface]));
    let octets = print.as_bytes().chunks(2).take(5).filter_map(|pair| std::str::from_utf8(pair).ok());
    // The first octet marks a unicast, locally administered address.
    std::iter::once("02").chain(octets).collect::<Vec<_>>().join(":")
}

/// Returns why a disk cannot have this name, with the fix.
#[must_use]
pub fn refuse_disk(disk: &str, has_cloud_init: bool) -> Option<String> {
    let by_cloud_init = has_cloud_init
        && disk.strip_prefix(CLOUD_INIT_DISK).is_some_and(|rest| ["", "-udata", "-ndata"].contains(&rest));
    let is_label = is_dns_label(disk);
    if by_cloud_init || POD_VOLUMES.contains(&disk) {
        Some(format!("disks[{disk}].name {disk:?} is used by KubeVirt itself: choose another name"))
    } else if is_label {
        None
    } else {
        Some(format!(
            "disks[{disk}].name {disk:?} is not accepted by KubeVirt: use at most 63 lower-case letters, digits and '-'"
        ))
    }
}

/// Whether a text is a DNS label, as KubeVirt requires for disks.
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    let is_inner = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
    !text.is_empty()
        && text.len() <= NAME_LIMIT
        && text.bytes().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(name: &str, bridge: &str, vlan: Option<u16>) -> AttachedNetwork {
        AttachedNetwork { name: name.to_owned(), bridge: bridge.to_owned(), vlan }
    }

    #[test]
    fn an_attachment_name_contains_the_network_and_is_valid() {
        for (network, expected) in [
            (network("prod-network", "br0", Some(100)), "prod-network-vlan100-"),
            (network("storage.network", "br1", None), "storage-network-untagged-"),
            (network(&"n".repeat(253), "br0", Some(4094)), &format!("{}-vlan4094-", "n".repeat(36))),
            (
                network(&format!("{}-x", "n".repeat(35)), "BR_0", None),
                &format!("{}-untagged-", "n".repeat(35)),
            ),
        ] {
            let name = attachment(&network);
            assert!(name.starts_with(expected), "{name}");
            assert!(is_dns_label(&name), "{name}");
        }
    }

    #[test]
    fn two_networks_never_share_an_attachment() {
        let networks = [
            network("a", "br0", None),
            network("a", "br0", Some(1)),
            network("a", "br0", Some(11)),
            network("a", "br1", None),
            network("a.b", "br0", None),
            network("a-b", "br0", None),
            network("a", "Br0", None),
            network(&format!("{}a", "n".repeat(40)), "br0", None),
            network(&format!("{}b", "n".repeat(40)), "br0", None),
        ];
        let names: std::collections::BTreeSet<String> = networks.iter().map(attachment).collect();
        assert_eq!(names.len(), networks.len());
    }

    #[test]
    fn a_reserved_or_invalid_disk_name_is_refused_with_the_fix() {
        for disk in ["private", "hotplug-disks", "cloudinitdisk", "cloudinitdisk-udata", "a.b", "A", "", "-a"]
        {
            let message = refuse_disk(disk, true).unwrap();
            assert!(message.contains("choose another") || message.contains("use at most"), "{message}");
        }
        assert_eq!(refuse_disk("cloudinitdisk", false), None);
        assert_eq!(refuse_disk("root", true), None);
    }

    #[test]
    fn an_address_depends_on_the_identity_and_the_interface_only() {
        let address = mac_address("6f9619ff-8b86-4d01-b42d-00cf4fc964ff", "eth0");
        assert_eq!(address, mac_address("6f9619ff-8b86-4d01-b42d-00cf4fc964ff", "eth0"));
        assert_ne!(address, mac_address("6f9619ff-8b86-4d01-b42d-00cf4fc964ff", "eth1"));
        assert_ne!(address, mac_address("another", "eth0"));
        assert_eq!(
            address.parse::<vitistack_types::MacAddress>().map(|parsed| parsed.to_string()),
            Ok(address)
        );
    }

    #[test]
    fn a_claim_is_named_after_machine_and_disk() {
        assert_eq!(claim("web-1.example", "root"), "web-1.example-root");
        assert_eq!(cloud_init_secret("web-1"), "web-1-cloudinit");
    }
}
