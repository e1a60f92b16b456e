//! The parts of a Machine's spec: resources, disks, networks, cloud-init, domain.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{MacAddress, SecretKeyReference, Size};

/// CPU and memory of a machine. Each field overrides the same field of the template.
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

/// A disk of a machine. It overrides a disk of the same name in the template, field by field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[builder(on(String, into))]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(oldSelf.size) || (has(self.size) && (!isQuantity(self.size) || !isQuantity(oldSelf.size) || !quantity(self.size).isLessThan(quantity(oldSelf.size))))",
      "fieldPath": ".size", "message": "a disk cannot shrink: keep the current size or set a larger one" },
    { "rule": "!has(oldSelf.storageClass) || (has(self.storageClass) && self.storageClass == oldSelf.storageClass)",
      "fieldPath": ".storageClass", "message": "is immutable: add a disk with another name instead" },
    { "rule": "!has(oldSelf.accessMode) || (has(self.accessMode) && self.accessMode == oldSelf.accessMode)",
      "fieldPath": ".accessMode", "message": "is immutable: add a disk with another name instead" },
    { "rule": "!has(oldSelf.volumeMode) || (has(self.volumeMode) && self.volumeMode == oldSelf.volumeMode)",
      "fieldPath": ".volumeMode", "message": "is immutable: add a disk with another name instead" },
    { "rule": "!has(oldSelf.source) || (has(self.source) && self.source == oldSelf.source)",
      "fieldPath": ".source", "message": "is immutable: add a disk with another name instead" },
]))]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Name of the disk, unique in the machine.
    #[schemars(schema_with = "crate::schema::part_name")]
    pub name: String,

    /// Size of the disk, such as 20Gi. Required unless the template has a disk of this name. It can grow
    /// later but not shrink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,

    /// StorageClass of the disk. The value default selects the class of that name if it exists, or else the
    /// cluster's default class. Immutable once set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::object_name")]
    pub storage_class: Option<String>,

    /// Access mode of the volume. Defaults to ReadWriteOnce. Immutable once set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<AccessMode>,

    /// Whether the volume is a file system or a raw block device. Defaults to Filesystem. Immutable once set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<VolumeMode>,

    /// Initial content of the disk. Blank by default. Immutable once set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<DiskSource>,

    /// Type of device that the machine sees. Defaults to disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DiskDevice>,

    /// What happens to the volume when the disk or the machine is deleted. Defaults to Delete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim_policy: Option<ReclaimPolicy>,
}

/// Which nodes can use a volume at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
pub enum AccessMode {
    /// One node, reading and writing.
    ReadWriteOnce,
    /// Many nodes, reading and writing.
    ReadWriteMany,
    /// Many nodes, reading only.
    ReadOnlyMany,
}

/// How a volume is presented to the machine's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
pub enum VolumeMode {
    /// A file system with a disk image in it.
    Filesystem,
    /// A raw block device.
    Block,
}

/// Type of device that a machine sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
#[serde(rename_all = "lowercase")]
pub enum DiskDevice {
    /// A hard disk.
    Disk,
    /// A CD-ROM drive.
    Cdrom,
}

/// What happens to a volume that is no longer used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
pub enum ReclaimPolicy {
    /// It is deleted.
    Delete,
    /// It is retained.
    Retain,
}

/// Initial content of a disk: exactly one of image, url and claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "[has(self.image), has(self.url), has(self.claim)].filter(given, given).size() == 1",
      "message": "must set exactly one of image, url and claim" },
]))]
#[serde(rename_all = "camelCase")]
pub struct DiskSource {
    /// Container image that contains the disk, such as quay.io/containerdisks/debian:13.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "image_reference")]
    pub image: Option<String>,

    /// URL of a disk image, starting with http:// or https://.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "image_url")]
    pub url: Option<String>,

    /// Name of a PersistentVolumeClaim to copy, in the namespace of the backing machine. It must belong to a Machine of the
    /// same namespace, be in the Machine's namespace, or permit it with its annotation
    /// vitistack.io/allow-references-from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::object_name")]
    pub claim: Option<String>,
}

impl DiskSource {
    /// A container image that contains the disk.
    pub fn image(reference: impl Into<String>) -> Self {
        Self { image: Some(reference.into()), url: None, claim: None }
    }

    /// The URL of a disk image.
    pub fn url(address: impl Into<String>) -> Self {
        Self { image: None, url: Some(address.into()), claim: None }
    }

    /// A claim to copy.
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
            "message": "must be a URL that starts with http:// or https://, without spaces, user name or password",
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

    /// NetworkConfiguration in the Machine's namespace that the interface is attached to.
    #[schemars(schema_with = "crate::schema::object_name")]
    pub network_name: String,

    /// Model of the network card. Defaults to virtio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<NetworkModel>,

    /// MAC address of the interface, such as 52:54:00:12:34:56. Chosen by the provider by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<MacAddress>,
}

/// Model of a network card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
#[serde(rename_all = "lowercase")]
pub enum NetworkModel {
    /// Paravirtualized; fast, for modern systems.
    Virtio,
    /// Intel E1000; for older systems.
    E1000,
    /// Realtek RTL8139; for very old systems.
    Rtl8139,
}

/// A type of device to boot from.
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
    /// User data, passed on unchanged. Anyone who can read the Machine can read it: use secretRef for
    /// secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65_536))]
    pub user_data: Option<String>,

    /// Network configuration, passed on unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65_536))]
    pub network_data: Option<String>,

    /// Secret in the Machine's namespace that contains user data. If userData is set too, the machine gets
    /// both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKeyReference>,
}

/// Settings of the virtual hardware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct Domain {
    /// Emulated mainboard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<DomainMachine>,

    /// CPU and platform features of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Features>,

    /// Firmware of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Firmware>,
}

/// Emulated mainboard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct DomainMachine {
    /// Type of the mainboard.
    #[serde(rename = "type")]
    #[builder(name = machine_type)]
    pub type_: MachineType,
}

/// Type of the emulated mainboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
pub enum MachineType {
    /// A modern mainboard with PCI Express.
    #[serde(rename = "pc-q35")]
    Q35,
    /// A legacy mainboard; KubeVirt rejects it unless its configuration permits it.
    #[serde(rename = "pc-i440fx")]
    I440fx,
}

/// CPU and platform features of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct Features {
    /// ACPI power management.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acpi: Option<bool>,

    /// APIC interrupt controller.
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
    /// Boot loader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootloader: Option<Bootloader>,
}

/// Boot loader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.secureBoot) || !self.secureBoot || (has(self.efi) && self.efi)",
      "fieldPath": ".secureBoot", "message": "requires EFI: set efi to true or remove secureBoot" },
]))]
#[serde(rename_all = "camelCase")]
pub struct Bootloader {
    /// Boot with EFI instead of BIOS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub efi: Option<bool>,

    /// Boot only signed software. Requires efi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure_boot: Option<bool>,
}
