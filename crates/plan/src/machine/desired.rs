//! A machine as it shall be: everything decided, nothing optional that has a default, no bad state possible.

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

/// The name by which a real thing knows its Machine: the UID of the Machine that made it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Identity(String);

impl Identity {
    /// The identity as the annotation or the real thing's tag spells it.
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

/// A machine as it shall be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Desired {
    /// The name the real machine gets, and the stem of the names of its parts.
    pub name: String,
    /// The namespace of the Machine.
    pub namespace: String,
    /// Processors.
    pub cpu: CpuShape,
    /// Memory.
    pub memory: Size,
    /// Disks, the template's first.
    pub disks: Vec<DesiredDisk>,
    /// Network interfaces; none means the provider's own default network.
    pub interfaces: Vec<DesiredInterface>,
    /// Kinds of device to boot from; empty means the disks in their order.
    pub boot_order: Vec<BootDevice>,
    /// First-boot configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_init: Option<DesiredCloudInit>,
    /// Settings of the virtual hardware, as the user wrote them.
    pub domain: Domain,
    /// Zone of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Whether it shall run.
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
    /// Virtual CPUs in all, which is what quotas and prices count.
    #[must_use]
    pub fn total(self) -> u32 {
        self.cores.saturating_mul(self.threads).saturating_mul(self.sockets)
    }
}

/// A disk as it shall be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DesiredDisk {
    /// Name, unique in the machine.
    pub name: String,
    /// Size.
    pub size: Size,
    /// Storage class; none means the provider's default. The word `default` means the class of that name if there is
    /// one, else the provider's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// Who may use the volume at the same time.
    pub access_mode: AccessMode,
    /// What the volume looks like to the host.
    pub volume_mode: VolumeMode,
    /// What it holds at first; blank if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<DiskSource>,
    /// How the machine sees it.
    pub device: DiskDevice,
    /// What becomes of it when it is no longer used.
    pub reclaim_policy: ReclaimPolicy,
}

/// A network interface as it shall be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DesiredInterface {
    /// Name, unique in the machine.
    pub name: String,
    /// The network it is attached to.
    pub network: AttachedNetwork,
    /// Model of the card.
    pub model: NetworkModel,
    /// MAC address, if the user chose one.
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
    /// VLAN tag; untagged if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
}

/// First-boot configuration with the Secret's content at hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DesiredCloudInit {
    /// User data written in the Machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// Network configuration written in the Machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<String>,
    /// User data from a Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretPart>,
}

/// User data in a Secret of the Machine's namespace. Its content never prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SecretPart {
    /// Name of the Secret.
    pub name: String,
    /// Key in its data.
    pub key: String,
    /// What stands there.
    #[serde(skip)]
    pub content: Redacted<String>,
}
