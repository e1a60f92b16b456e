//! Machines, volumes and tasks as the hypervisor sees them. Nothing here depends on custom resources.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use vitistack_types::{
    MacAddress, Size,
    v1alpha1::{
        AccessMode, BootDevice, DiskDevice, DiskSource, Domain, NetworkModel, ReclaimPolicy, VolumeMode,
    },
};

/// The desired state of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// The identity that the machine and its volumes carry.
    pub tag: String,
    /// Namespace of the name.
    pub namespace: String,
    /// Name; unique in its namespace.
    pub name: String,
    /// Zone; the one with the fewest machines if none.
    pub zone: Option<String>,
    /// Configuration that takes effect when the machine starts.
    pub hardware: Hardware,
    /// Network interfaces, in order.
    pub interfaces: Vec<Interface>,
    /// Disks, in order.
    pub disks: Vec<Disk>,
    /// Whether it is started after its creation.
    pub is_on: bool,
}

/// Configuration that a machine starts with. A change takes effect at the next start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hardware {
    /// Cores per socket.
    pub cores: u32,
    /// Threads per core.
    pub threads: u32,
    /// Sockets.
    pub sockets: u32,
    /// Memory.
    pub memory: Size,
    /// Device kinds to boot from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub boot_order: Vec<BootDevice>,
    /// Board, features, firmware.
    #[serde(default)]
    pub domain: Domain,
    /// First-boot configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_boot: Option<FirstBoot>,
}

impl Hardware {
    /// Returns the total number of virtual CPUs.
    #[must_use]
    pub fn processors(&self) -> u32 {
        self.cores.saturating_mul(self.threads).saturating_mul(self.sockets)
    }
}

/// Digests of the first-boot configuration. They only serve to detect changes, and a world may be saved where others
/// can read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FirstBoot {
    /// Digest of the user data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// Digest of the network configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<String>,
    /// Digest of the content of the Secret, with its name and key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Network name.
    pub network: String,
    /// Bridge on the host.
    pub bridge: String,
    /// VLAN tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Model.
    pub model: NetworkModel,
    /// MAC address, if one was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<MacAddress>,
}

/// The desired state of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// How the disk is presented to the machine.
    pub device: DiskDevice,
    /// The volume behind it.
    pub volume: VolumeShape,
}

/// A volume without its ID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeShape {
    /// Name of the disk.
    pub disk: String,
    /// Size.
    pub size: Size,
    /// Storage class; the default of the world if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// Access mode.
    pub access_mode: AccessMode,
    /// Volume mode: file system or block device.
    pub volume_mode: VolumeMode,
    /// Initial content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<DiskSource>,
    /// Reclaim policy. The world only records it and never deletes a volume by itself.
    pub reclaim_policy: ReclaimPolicy,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// ID; given to another machine after this one was deleted, if IDs are reused.
    pub id: u64,
    /// Identity; none if a third party created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Namespace of the name.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Zone, if the world has zones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Host.
    pub host: String,
    /// Configuration for the next start.
    pub given: Hardware,
    /// Configuration it was started with; none while it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Hardware>,
    /// Network interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Attached volumes, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<Attachment>,
    /// Time of the last start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// Number of starts.
    #[serde(default)]
    pub starts: u32,
    /// The last restart request that was carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarted_for: Option<String>,
    /// The running task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
}

impl Machine {
    /// Returns its addresses while it runs, derived from its ID: one per interface, at least one.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        if self.running.is_none() {
            return Vec::new();
        }
        let interfaces = u64::try_from(self.interfaces.len().max(1)).unwrap_or(1);
        (0..interfaces)
            .map(|interface| {
                let [.., a, b, c] = (self.id.wrapping_mul(16).wrapping_add(interface)).to_be_bytes();
                format!("10.{a}.{b}.{c}")
            })
            .collect()
    }
}

/// A volume that is attached to a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// Name of the disk.
    pub disk: String,
    /// How the disk is presented to the machine.
    pub device: DiskDevice,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// ID; never reused.
    pub id: u64,
    /// Identity; none if a third party created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Namespace of the name.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Size, source and modes.
    #[serde(flatten)]
    pub shape: VolumeShape,
    /// When it is ready; immediately if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Timestamp>,
    /// The running deletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
}

impl Volume {
    /// Returns a noun phrase that completes "Waiting for …" while the volume is being deleted.
    #[must_use]
    pub fn awaited_deletion(&self) -> String {
        format!("the provider to delete disk {:?}", self.shape.disk)
    }
}

/// Work that takes time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// The work.
    pub work: Work,
    /// When it ends.
    pub due: Timestamp,
    /// Whether it fails. Decided when it starts, so that the passage of time is deterministic.
    #[serde(default)]
    pub fails: bool,
}

/// The work of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Work {
    /// Creates the machine and starts it if requested.
    Create {
        /// Whether it is started.
        is_on: bool,
    },
    /// Updates the machine. The change itself is stored when the task starts.
    Change,
    /// Starts it.
    Start,
    /// Stops it.
    Stop,
    /// Restarts it.
    Restart {
        /// The ID of the restart request.
        request: String,
    },
    /// Deletes it.
    Destroy,
}

impl Work {
    /// Returns a noun phrase that completes "Waiting for …" while the task of a machine runs.
    #[must_use]
    pub fn awaited(&self) -> &'static str {
        match self {
            Self::Create { .. } => "the provider to create the machine",
            Self::Change => "the provider to update the machine",
            Self::Start => "the machine to start",
            Self::Stop => "the machine to stop",
            Self::Restart { .. } => "the machine to restart",
            Self::Destroy => "the provider to delete the machine",
        }
    }

    /// Returns the verb that completes "failed to …".
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Change => "update",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart { .. } => "restart",
            Self::Destroy => "delete",
        }
    }
}

/// Returns the name of the volume of a disk.
#[must_use]
pub fn volume_name(machine: &str, disk: &str) -> String {
    format!("{machine}-{disk}")
}
