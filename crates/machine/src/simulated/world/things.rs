//! What there is in a world, as its hypervisor knows it: machines, volumes, tasks. Nothing here knows a custom resource.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use vitistack_types::{
    MacAddress, Size,
    v1alpha1::{
        AccessMode, BootDevice, DiskDevice, DiskSource, Domain, NetworkModel, ReclaimPolicy, VolumeMode,
    },
};

/// A machine as it is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// The identity that the machine and its volumes carry.
    pub tag: String,
    /// Where the name counts.
    pub namespace: String,
    /// Name; unique in its namespace.
    pub name: String,
    /// Zone; the emptiest if none.
    pub zone: Option<String>,
    /// What takes effect when the machine starts.
    pub hardware: Hardware,
    /// Network cards, in their order.
    pub interfaces: Vec<Interface>,
    /// Disks, in their order.
    pub disks: Vec<Disk>,
    /// Whether it is switched on as soon as it is made.
    pub is_on: bool,
}

/// What a machine starts with; changed while it runs, it takes effect with the next start.
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
    /// Kinds of device to boot from.
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
    /// Virtual CPUs in all.
    #[must_use]
    pub fn processors(&self) -> u32 {
        self.cores.saturating_mul(self.threads).saturating_mul(self.sockets)
    }
}

/// First-boot configuration as digests: a world is saved where anyone might read it, and only has to tell a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FirstBoot {
    /// Digest of the user data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// Digest of the network configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<String>,
    /// Digest of the Secret's part, with its name and key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// A network card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Name of the network.
    pub network: String,
    /// Bridge on the host.
    pub bridge: String,
    /// VLAN tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Model.
    pub model: NetworkModel,
    /// MAC address, if one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<MacAddress>,
}

/// A disk as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// How the machine sees it.
    pub device: DiskDevice,
    /// The volume behind it.
    pub volume: VolumeShape,
}

/// A volume without its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeShape {
    /// Name of the disk.
    pub disk: String,
    /// Size.
    pub size: Size,
    /// Storage class; the world's default if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// Who may use it at the same time.
    pub access_mode: AccessMode,
    /// File system or block device.
    pub volume_mode: VolumeMode,
    /// What it held at first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<DiskSource>,
    /// What becomes of it when it is no longer used. Noted for whoever asks; the world deletes nothing by itself.
    pub reclaim_policy: ReclaimPolicy,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// The world's number for it; given to another machine after this one is gone, if ids are reused.
    pub id: u64,
    /// The identity it carries; none if somebody else made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Where the name counts.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Zone it is in, where the world has zones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Host it is on.
    pub host: String,
    /// What it starts with next time.
    pub given: Hardware,
    /// What it was started with; none while it is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Hardware>,
    /// Network cards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Attached volumes, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<Attachment>,
    /// When it was last started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// How often it was started.
    #[serde(default)]
    pub starts: u32,
    /// The restart that was last carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarted_for: Option<String>,
    /// What is being done with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
}

impl Machine {
    /// Addresses it has while it runs, made up from its number: one for each card, one if it has none.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        if self.running.is_none() {
            return Vec::new();
        }
        let cards = u64::try_from(self.interfaces.len().max(1)).unwrap_or(1);
        (0..cards)
            .map(|card| {
                let [.., a, b, c] = (self.id.wrapping_mul(16).wrapping_add(card)).to_be_bytes();
                format!("10.{a}.{b}.{c}")
            })
            .collect()
    }
}

/// A volume in its place in a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// Name of the disk.
    pub disk: String,
    /// How the machine sees it.
    pub device: DiskDevice,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// The world's number for it; never reused.
    pub id: u64,
    /// The identity it carries; none if somebody else made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Where the name counts.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// What it is.
    #[serde(flatten)]
    pub shape: VolumeShape,
    /// When it can be used; at once if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Timestamp>,
    /// The deletion that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
}

/// Something that takes time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// What is done.
    pub work: Work,
    /// When it ends.
    pub due: Timestamp,
    /// Whether it will have failed by then: the dice are thrown when it begins, so that time alone decides nothing.
    #[serde(default)]
    pub fails: bool,
}

/// What a task does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Work {
    /// Makes the machine, and switches it on if so asked.
    Create {
        /// Whether it is switched on.
        is_on: bool,
    },
    /// Changes the machine. The change itself is stored when the task begins.
    Change,
    /// Switches it on.
    Start,
    /// Switches it off.
    Stop,
    /// Switches it off and on.
    Restart {
        /// For which request.
        request: String,
    },
    /// Deletes it.
    Destroy,
}

impl Work {
    /// The work in words, to be followed by what it is done with.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create { .. } => "creating",
            Self::Change => "changing",
            Self::Start => "starting",
            Self::Stop => "stopping",
            Self::Restart { .. } => "restarting",
            Self::Destroy => "deleting",
        }
    }

    /// The work in words that follow "failed to".
    #[must_use]
    pub fn infinitive(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Change => "change",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart { .. } => "restart",
            Self::Destroy => "delete",
        }
    }
}

/// The name of the volume behind a disk.
#[must_use]
pub fn volume_name(machine: &str, disk: &str) -> String {
    format!("{machine}-{disk}")
}
