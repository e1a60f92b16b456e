//! `MachineClass`: a size that Machines refer to in `spec.template`.

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ConfigurationStatus, Disk, Memory, checked_builder};

/// The built-in classes. Their names are reserved.
pub const BUILT_IN_CLASSES: [&str; 3] = ["small", "medium", "large"];

/// Desired state of a MachineClass, which adds a size to the built-in small, medium and large.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource, bon::Builder)]
#[builder(on(String, into), start_fn(name = start, vis = ""), finish_fn(name = finish, vis = ""))]
#[kube(
    group = "vitistack.io",
    version = "v1alpha1",
    kind = "MachineClass",
    plural = "machineclasses",
    doc = "A machine size that Machines refer to in spec.template. The classes small, medium and large are built in.",
    status = "ConfigurationStatus",
    derive = "PartialEq",
    shortname = "vsmc",
    category = "vitistack",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Cores", type_ = "integer", json_path = ".spec.resources.cpu.cores"),
    printcolumn(name = "Memory", type_ = "string", json_path = ".spec.resources.memory.size"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.disks) || self.disks.all(disk, has(disk.size))",
      "fieldPath": ".disks", "message": "each disk of a MachineClass requires a size, such as 20Gi" },
]))]
#[serde(rename_all = "camelCase")]
pub struct MachineClassSpec {
    /// Purpose of the class, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub description: Option<String>,

    /// CPU and memory of a machine of this class.
    pub resources: ClassResources,

    /// Disks of a machine of this class. The disks of a Machine are merged into these by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[builder(default, into)]
    pub disks: Vec<Disk>,
}

checked_builder!(MachineClass, MachineClassSpec, MachineClassSpecBuilder, machine_class_spec_builder);

/// CPU and memory of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct ClassResources {
    /// CPU of the machine.
    pub cpu: ClassCpu,

    /// Memory of the machine.
    pub memory: Memory,
}

/// CPU of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct ClassCpu {
    /// Cores per socket.
    #[schemars(range(min = 1, max = 1024))]
    pub cores: u32,

    /// Threads per core. Defaults to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8))]
    pub threads: Option<u32>,

    /// Sockets. Defaults to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub sockets: Option<u32>,
}
