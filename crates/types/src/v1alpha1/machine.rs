//! `Machine`: one virtual or physical machine.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BootDevice, CloudInit, Disk, Domain, NetworkInterface, Resources, checked_builder};
use crate::{ObjectReference, Quantity};

/// Desired state of a machine.
#[derive(
    Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource, bon::Builder,
)]
#[builder(on(String, into), start_fn(name = start, vis = ""), finish_fn(name = finish, vis = ""))]
#[kube(
    group = "vitistack.io",
    version = "v1alpha1",
    kind = "Machine",
    doc = "A machine on a provider.",
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
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Template", type_ = "string", json_path = ".spec.template"),
    printcolumn(name = "Provider", type_ = "string", json_path = ".status.provider.name"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.ipAddresses[0]"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeName", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.template) || (has(self.resources) && has(self.resources.cpu) && has(self.resources.cpu.cores) && has(self.resources.memory) && has(self.disks) && self.disks.size() > 0 && self.disks.all(disk, has(disk.size)))",
      "message": "requires a template (small, medium, large or the name of a MachineClass), or resources.cpu.cores, resources.memory.size and disks that each have a size" },
    { "rule": "!has(self.networks) || self.networks.all(one, !has(one.macAddress) || self.networks.exists_one(other, has(other.macAddress) && other.macAddress == one.macAddress))",
      "fieldPath": ".networks", "message": "two interfaces have the same macAddress: use a different one for each, or remove it" },
    { "rule": "has(self.providerRef) == has(oldSelf.providerRef) && (!has(self.providerRef) || self.providerRef == oldSelf.providerRef)",
      "fieldPath": ".providerRef", "message": "cannot be added, changed or removed after creation: revert the change, or create another Machine" },
    { "rule": "has(self.datacenterRef) == has(oldSelf.datacenterRef) && (!has(self.datacenterRef) || self.datacenterRef == oldSelf.datacenterRef)",
      "fieldPath": ".datacenterRef", "message": "cannot be added, changed or removed after creation: revert the change, or create another Machine" },
    { "rule": "has(self.zone) == has(oldSelf.zone) && (!has(self.zone) || self.zone == oldSelf.zone)",
      "fieldPath": ".zone", "message": "cannot be added, changed or removed after creation: revert the change, or create another Machine" },
]))]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    /// Size of the machine: small, medium, large, or the name of a MachineClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "template_name")]
    pub template: Option<String>,

    /// CPU and memory that override those of the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// Disks of the machine, merged by name into those of its template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[builder(default, into)]
    pub disks: Vec<Disk>,

    /// Network interfaces of the machine. Defaults to one interface on the pod network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[builder(default, into)]
    pub networks: Vec<NetworkInterface>,

    /// Types of device to boot from, in order. Defaults to the disks in the order in which they are listed.
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

    /// MachineProvider that hosts the machine. Decided at creation: it cannot be added, changed or removed later. Without
    /// providerRef and datacenterRef the default provider is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_ref: Option<ObjectReference>,

    /// Datacenter that places the machine on one of its providers. Decided at creation: it cannot be added, changed or
    /// removed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datacenter_ref: Option<ObjectReference>,

    /// Zone of the provider that hosts the machine. By default one is chosen so that machines are spread evenly. Decided at
    /// creation: it cannot be added, changed or removed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::location_name")]
    pub zone: Option<String>,

    /// Desired power state of the machine. Defaults to Running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_state: Option<PowerState>,
}

checked_builder!(Machine, MachineSpec, MachineSpecBuilder, machine_spec_builder, namespace);

fn template_name(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    crate::schema::text(
        253,
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        "must be small, medium, large or the name of a MachineClass: lowercase letters, digits, '-' and '.'",
    )
}

/// Desired power state of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
pub enum PowerState {
    /// Powered on.
    Running,
    /// Powered off; the machine and its disks remain.
    Stopped,
}

/// Summary of a machine's conditions. Derived from them; for display only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
pub enum MachinePhase {
    /// Not reconciled yet, or waiting for a dependency.
    Pending,
    /// Being created.
    Creating,
    /// Running.
    Running,
    /// Powered off.
    Stopped,
    /// Not in the desired state. The machine leaves this phase when the cause is resolved or the spec is
    /// fixed.
    Failed,
}

/// Observed state of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// Summary of the conditions; the Ready condition has the details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<MachinePhase>,

    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// Standard conditions. Ready is always present once the machine has been reconciled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Provider that the machine is placed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<ObjectReference>,

    /// Identity that marks the backing machine as belonging to this Machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub identity: Option<String>,

    /// Name of the VirtualMachine at the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub vm_name: Option<String>,

    /// Name of the VirtualMachineInstance, while one exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub vmi_name: Option<String>,

    /// IP addresses of the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 64)), extend("x-kubernetes-list-type" = "atomic"))]
    pub ip_addresses: Vec<String>,

    /// Node that hosts the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node_name: Option<String>,

    /// Resources last allocated to the machine. Quotas count these if its template has been deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<GivenResources>,

    /// When this status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,

    /// The resourceVersion of the Machine that was last acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub resource_version: Option<String>,
}

/// Resources allocated to a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
// One controller writes all of it, so it has one owner under server-side apply.
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
