//! `Machine`: one machine, virtual or real.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BootDevice, CloudInit, Disk, Domain, NetworkInterface, Resources, checked_builder};
use crate::{ObjectReference, Quantity};

/// What a machine shall be.
#[derive(
    Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource, bon::Builder,
)]
#[builder(on(String, into), start_fn(name = start, vis = ""), finish_fn(name = finish, vis = ""))]
#[kube(
    group = "vitistack.io",
    version = "v1alpha1",
    kind = "Machine",
    doc = "One machine, made and kept on a provider.",
    namespaced,
    status = "MachineStatus",
    derive = "PartialEq",
    shortname = "vsm",
    category = "vitistack",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Template", type_ = "string", json_path = ".spec.template"),
    printcolumn(name = "Provider", type_ = "string", json_path = ".status.provider.name"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.ipAddresses[0]"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeName", priority = 1),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.template) || (has(self.resources) && has(self.resources.cpu) && has(self.resources.cpu.cores) && has(self.resources.memory) && has(self.disks) && self.disks.size() > 0 && self.disks.all(disk, has(disk.size)))",
      "message": "needs a template (small, medium, large or the name of a MachineClass), or else resources.cpu.cores, resources.memory.size and disks that each have a size" },
    { "rule": "!has(self.networks) || self.networks.all(one, !has(one.macAddress) || self.networks.exists_one(other, has(other.macAddress) && other.macAddress == one.macAddress))",
      "fieldPath": ".networks", "message": "two interfaces have one macAddress: give each its own, or leave it out" },
    { "rule": "!has(oldSelf.providerRef) || (has(self.providerRef) && self.providerRef == oldSelf.providerRef)",
      "fieldPath": ".providerRef", "message": "cannot change once set: make another Machine instead" },
    { "rule": "!has(oldSelf.datacenterRef) || (has(self.datacenterRef) && self.datacenterRef == oldSelf.datacenterRef)",
      "fieldPath": ".datacenterRef", "message": "cannot change once set: make another Machine instead" },
    { "rule": "!has(oldSelf.zone) || (has(self.zone) && self.zone == oldSelf.zone)",
      "fieldPath": ".zone", "message": "cannot change once set: make another Machine instead" },
]))]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    /// Size of the machine: small, medium, large, or the name of a MachineClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "template_name")]
    pub template: Option<String>,

    /// What the machine has instead of what its template says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// Disks of the machine, merged by name into those of its template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[builder(default, into)]
    pub disks: Vec<Disk>,

    /// Network interfaces of the machine; one on the pod network when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[builder(default, into)]
    pub networks: Vec<NetworkInterface>,

    /// Kinds of device to boot from, first one first; the disks in their order when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), extend("x-kubernetes-list-type" = "set"))]
    #[builder(default, into)]
    pub boot_order: Vec<BootDevice>,

    /// First-boot configuration of the operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_init: Option<CloudInit>,

    /// Settings of the virtual hardware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Domain>,

    /// MachineProvider the machine is made on. Set once. Without it and without datacenterRef the default provider is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_ref: Option<ObjectReference>,

    /// Datacenter that places the machine on one of its providers. Set once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datacenter_ref: Option<ObjectReference>,

    /// Zone of the provider the machine is made in; chosen for an even spread when absent. Set once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::place_name")]
    pub zone: Option<String>,

    /// Whether the machine shall run; Running when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_state: Option<PowerState>,
}

checked_builder!(Machine, MachineSpec, MachineSpecBuilder, machine_spec_builder, namespace);

fn template_name(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    crate::schema::text(
        253,
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        "must be small, medium, large or the name of a MachineClass: lower-case letters, digits, '-' and '.'",
    )
}

/// Whether a machine shall run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
pub enum PowerState {
    /// It runs.
    Running,
    /// It is powered off and kept.
    Stopped,
}

/// How far a machine is; derived from its conditions, never read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
pub enum MachinePhase {
    /// Not looked at yet, or waiting for something it needs.
    Pending,
    /// Being made.
    Creating,
    /// Running.
    Running,
    /// Powered off.
    Stopped,
    /// Not as it shall be; left as soon as the cause is gone or the spec is mended.
    Failed,
}

/// What is known of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// How far the machine is; the Ready condition says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<MachinePhase>,

    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// The standard conditions; Ready is always among them once the machine was looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,

    /// The provider the machine was placed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<ObjectReference>,

    /// The name by which the real machine knows this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub identity: Option<String>,

    /// Name of the VirtualMachine that was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub vm_name: Option<String>,

    /// Name of the VirtualMachineInstance while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub vmi_name: Option<String>,

    /// Addresses the machine has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 64)), extend("x-kubernetes-list-type" = "atomic"))]
    pub ip_addresses: Vec<String>,

    /// Node that hosts the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node_name: Option<String>,

    /// What the machine was last given, which is what quotas count where its template is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<GivenResources>,

    /// When this status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,

    /// The resourceVersion of the spec that was last acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub resource_version: Option<String>,
}

/// What a machine was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
// Told as a whole, by one writer.
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct GivenResources {
    /// Virtual CPUs.
    #[schemars(range(min = 0))]
    pub cpu: u32,

    /// Memory.
    pub memory: Quantity,

    /// Disk space.
    pub storage: Quantity,
}
