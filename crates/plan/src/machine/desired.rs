//! The desired state of a machine: every default filled in, no invalid state possible.

use std::fmt;

use serde::Serialize;
use vitistack_types::{
    MacAddress, Size,
    v1alpha1::{
        AccessMode, BootDevice, DiskDevice, DiskSource, Domain, NetworkModel, PowerState, ReclaimPolicy,
        VolumeMode,
    },
};

use crate::Redacted;

/// Links a backing machine to its Machine: the UID of the Machine that created it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Identity(String);

impl Identity {
    /// The identity as the annotation or the backing machine's tag spells it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text of the identity.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The desired state of a machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Desired {
    /// The name of the backing machine, and the prefix of the names of its parts.
    pub name: String,
    /// The namespace of the Machine.
    pub namespace: String,
    /// Processors.
    pub cpu: CpuShape,
    /// Memory.
    pub memory: Size,
    /// Disks, those of the template first.
    pub disks: Vec<DesiredDisk>,
    /// Network interfaces; none means the provider's default network.
    pub interfaces: Vec<DesiredInterface>,
    /// Device types to boot from; empty means the disks in their order.
    pub boot_order: Vec<BootDevice>,
    /// First-boot configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_init: Option<DesiredCloudInit>,
    /// Settings of the virtual hardware, as specified.
    pub domain: Domain,
    /// Zone of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Whether it should run.
    pub power: PowerState,
}

/// Processors of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CpuShape {
    /// Cores per socket.
    pub cores: u32,
    /// Threads per core.
    pub threads: u32,
    /// Sockets.
    pub sockets: u32,
}

impl CpuShape {
    /// The total number of virtual CPUs, which quotas and prices count.
    #[must_use]
    pub fn total(self) -> u32 {
        self.cores.saturating_mul(self.threads).saturating_mul(self.sockets)
    }
}

/// The desired state of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DesiredDisk {
    /// Name, unique in the machine.
    pub name: String,
    /// Size.
    pub size: Size,
    /// Storage class; absent means the provider's default. The value `default` means the class of that name if it exists,
    /// otherwise the provider's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// Who may use the volume at the same time.
    pub access_mode: AccessMode,
    /// What the volume looks like to the host.
    pub volume_mode: VolumeMode,
    /// Its initial content; blank if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<DiskSource>,
    /// How the machine sees it.
    pub device: DiskDevice,
    /// What happens to it when it is no longer used.
    pub reclaim_policy: ReclaimPolicy,
}

/// The desired state of a network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DesiredInterface {
    /// Name, unique in the machine.
    pub name: String,
    /// The network it is attached to.
    pub network: AttachedNetwork,
    /// Model of the card.
    pub model: NetworkModel,
    /// MAC address, if specified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<MacAddress>,
}

/// A network as a NetworkConfiguration describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttachedNetwork {
    /// Name of the NetworkConfiguration.
    pub name: String,
    /// Bridge on the hosts.
    pub bridge: String,
    /// VLAN tag; untagged if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
}

/// First-boot configuration, with the content of the Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DesiredCloudInit {
    /// User data from the Machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// Network configuration from the Machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<String>,
    /// User data from a Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretPart>,
}

/// User data in a Secret of the Machine's namespace. Its content is never printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SecretPart {
    /// Name of the Secret.
    pub name: String,
    /// Key in its data.
    pub key: String,
    /// The content.
    #[serde(skip)]
    pub content: Redacted<String>,
}
