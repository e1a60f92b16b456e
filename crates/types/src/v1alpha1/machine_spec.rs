//! The parts of a Machine's spec: resources, disks, networks, cloud-init, domain.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{MacAddress, SecretKeyReference, Size};

/// What a machine has instead of what its template says. Each value overrides its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// CPU of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,

    /// Memory of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
}

/// CPU of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct Cpu {
    /// Cores per socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub cores: Option<u32>,

    /// Threads per core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8))]
    pub threads: Option<u32>,

    /// Sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub sockets: Option<u32>,
}

/// Memory of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Size of the memory, such as 4Gi.
    pub size: Size,
}

/// A disk of a machine. One of a name that the template has too overrides the template's, value by value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[builder(on(String, into))]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(oldSelf.size) || (has(self.size) && (!isQuantity(self.size) || !isQuantity(oldSelf.size) || !quantity(self.size).isLessThan(quantity(oldSelf.size))))",
      "fieldPath": ".size", "message": "a disk only grows: give the old size or a larger one" },
    { "rule": "!has(oldSelf.storageClass) || (has(self.storageClass) && self.storageClass == oldSelf.storageClass)",
      "fieldPath": ".storageClass", "message": "cannot change once set: add a disk with another name instead" },
    { "rule": "!has(oldSelf.accessMode) || (has(self.accessMode) && self.accessMode == oldSelf.accessMode)",
      "fieldPath": ".accessMode", "message": "cannot change once set: add a disk with another name instead" },
    { "rule": "!has(oldSelf.volumeMode) || (has(self.volumeMode) && self.volumeMode == oldSelf.volumeMode)",
      "fieldPath": ".volumeMode", "message": "cannot change once set: add a disk with another name instead" },
    { "rule": "!has(oldSelf.source) || (has(self.source) && self.source == oldSelf.source)",
      "fieldPath": ".source", "message": "cannot change once set: add a disk with another name instead" },
]))]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Name of the disk, unique in the machine.
    #[schemars(schema_with = "crate::schema::part_name")]
    pub name: String,

    /// Size of the disk, such as 20Gi. Needed unless the template has a disk of this name. It may grow later, never shrink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,

    /// StorageClass the disk is made from. The word default means the class of that name if there is one, else the
    /// cluster's default class. Set once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::object_name")]
    pub storage_class: Option<String>,

    /// Who may use the volume at the same time; ReadWriteOnce when absent. Set once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<AccessMode>,

    /// Whether the volume is a file system or a raw block device; Filesystem when absent. Set once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<VolumeMode>,

    /// What the disk holds at first; blank when absent. Set once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<DiskSource>,

    /// How the machine sees it; disk when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DiskDevice>,

    /// What becomes of the volume when the disk or the machine is removed; Delete when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim_policy: Option<ReclaimPolicy>,
}

/// Who may use a volume at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
pub enum AccessMode {
    /// One node, reading and writing.
    ReadWriteOnce,
    /// Many nodes, reading and writing.
    ReadWriteMany,
    /// Many nodes, only reading.
    ReadOnlyMany,
}

/// What a volume looks like to the machine's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
pub enum VolumeMode {
    /// A file system with a disk image in it.
    Filesystem,
    /// A raw block device.
    Block,
}

/// How the machine sees a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
#[serde(rename_all = "lowercase")]
pub enum DiskDevice {
    /// A hard disk.
    Disk,
    /// A CD-ROM drive.
    Cdrom,
}

/// What becomes of a volume that is no longer used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
pub enum ReclaimPolicy {
    /// It is deleted.
    Delete,
    /// It is kept.
    Retain,
}

/// What a disk holds at first: exactly one of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "[has(self.image), has(self.url), has(self.claim)].filter(given, given).size() == 1",
      "message": "must have exactly one of image, url and claim" },
]))]
#[serde(rename_all = "camelCase")]
pub struct DiskSource {
    /// Container image that holds the disk, such as quay.io/containerdisks/debian:13.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "image_reference")]
    pub image: Option<String>,

    /// Address of a disk image, starting with http:// or https://.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "image_url")]
    pub url: Option<String>,

    /// Name of a PersistentVolumeClaim in the machine's namespace that is copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::object_name")]
    pub claim: Option<String>,
}

impl DiskSource {
    /// A container image that holds the disk.
    pub fn image(reference: impl Into<String>) -> Self {
        Self { image: Some(reference.into()), url: None, claim: None }
    }

    /// The address of a disk image.
    pub fn url(address: impl Into<String>) -> Self {
        Self { image: None, url: Some(address.into()), claim: None }
    }

    /// A claim that is copied.
    pub fn claim(name: impl Into<String>) -> Self {
        Self { image: None, url: None, claim: Some(name.into()) }
    }
}

fn image_reference(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 512,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^[A-Za-z0-9][-A-Za-z0-9_.:/@]*$')",
            "message": "must be a container image, such as quay.io/containerdisks/debian:13",
        }],
    })
}

fn image_url(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 2048,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^https?://[^/?#@ ]+([/?#][^ ]*)?$')",
            "message": "must be an address that starts with http:// or https://, without blanks, user or password",
        }],
    })
}

/// A network interface of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[builder(on(String, into))]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterface {
    /// Name of the interface, unique in the machine.
    #[schemars(schema_with = "crate::schema::part_name")]
    pub name: String,

    /// NetworkConfiguration in the machine's namespace that the interface is attached to.
    #[schemars(schema_with = "crate::schema::object_name")]
    pub network_name: String,

    /// Model of the network card; virtio when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<NetworkModel>,

    /// MAC address of the interface, such as 52:54:00:12:34:56; chosen by the provider when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<MacAddress>,
}

/// Model of a network card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
#[serde(rename_all = "lowercase")]
pub enum NetworkModel {
    /// Paravirtualised; fast, for modern systems.
    Virtio,
    /// Intel E1000; for older systems.
    E1000,
    /// Realtek RTL8139; for very old systems.
    Rtl8139,
}

/// A kind of device to boot from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
#[serde(rename_all = "lowercase")]
pub enum BootDevice {
    /// The first disk.
    Disk,
    /// The first network interface.
    Network,
    /// The first CD-ROM drive.
    Cdrom,
}

/// First-boot configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[builder(on(String, into))]
#[serde(rename_all = "camelCase")]
pub struct CloudInit {
    /// User data, as written. Anyone who can read the Machine can read it; put secrets into secretRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65_536))]
    pub user_data: Option<String>,

    /// Network configuration, as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65_536))]
    pub network_data: Option<String>,

    /// Secret in the machine's namespace that holds user data; with userData both are given to the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKeyReference>,
}

/// Settings of the virtual hardware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct Domain {
    /// The emulated board.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<DomainMachine>,

    /// Features the machine sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Features>,

    /// Firmware the machine starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Firmware>,
}

/// The emulated board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct DomainMachine {
    /// Type of the board.
    #[serde(rename = "type")]
    #[builder(name = machine_type)]
    pub type_: MachineType,
}

/// Type of the emulated board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
pub enum MachineType {
    /// A modern board with PCI Express.
    #[serde(rename = "pc-q35")]
    Q35,
    /// A board of the nineties; KubeVirt refuses it unless its configuration allows it.
    #[serde(rename = "pc-i440fx")]
    I440fx,
}

/// Features a machine sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct Features {
    /// Power management by ACPI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acpi: Option<bool>,

    /// Interrupts by APIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apic: Option<bool>,

    /// The usual set of Hyper-V enlightenments, for Windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hyperv: Option<bool>,
}

/// Firmware of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct Firmware {
    /// What starts the operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootloader: Option<Bootloader>,
}

/// What starts the operating system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.secureBoot) || !self.secureBoot || (has(self.efi) && self.efi)",
      "fieldPath": ".secureBoot", "message": "needs EFI: set efi to true or remove secureBoot" },
]))]
#[serde(rename_all = "camelCase")]
pub struct Bootloader {
    /// Start by EFI rather than by BIOS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub efi: Option<bool>,

    /// Start only what is signed; needs efi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure_boot: Option<bool>,
}
