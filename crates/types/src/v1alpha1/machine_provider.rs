//! `MachineProvider`: a system that hosts machines, such as a hypervisor or a cloud.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{Phase, UsedResources, checked_builder};
use crate::{Amount, Duration, Quantity, SecretKeyReference, Size, Version};

/// Desired state of a provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource, bon::Builder)]
#[builder(on(String, into), start_fn(name = start, vis = ""), finish_fn(name = finish, vis = ""))]
#[kube(
    group = "vitistack.io",
    version = "v1alpha1",
    kind = "MachineProvider",
    doc = "A system that hosts machines, and how to connect to it.",
    namespaced,
    status = "MachineProviderStatus",
    derive = "PartialEq",
    shortname = "vsmp",
    category = "vitistack",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Machines", type_ = "integer", json_path = ".status.used.machines"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "self.type == oldSelf.type", "fieldPath": ".type",
      "message": "is immutable: create another MachineProvider instead" },
    { "rule": "!has(self.kubevirt) || self.type == 'kubevirt'", "fieldPath": ".kubevirt",
      "message": "is only valid for type kubevirt: set type to kubevirt or remove the block" },
    { "rule": "!has(self.simulated) || self.type == 'simulated'", "fieldPath": ".simulated",
      "message": "is only valid for type simulated: set type to simulated or remove the block" },
]))]
#[serde(rename_all = "camelCase")]
pub struct MachineProviderSpec {
    /// Type of the provider, which selects the backend. Immutable.
    #[serde(rename = "type")]
    #[builder(name = provider_type)]
    pub type_: ProviderType,

    /// Settings of a KubeVirt cluster. Only valid for type kubevirt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubevirt: Option<KubeVirtProvider>,

    /// Settings of a simulated provider. Only valid for type simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<SimulatedProvider>,

    /// Credentials for the provider. Not required for a provider in the cluster that the operator runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<ProviderCredentials>,

    /// Zones of the provider, by the names that Machines and Datacenters use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::location_names")]
    #[builder(default, into)]
    pub zones: Vec<String>,

    /// Sizes that the provider offers, with their prices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[builder(default, into)]
    pub instance_types: Vec<InstanceType>,

    /// Maximum capacity to use. Defaults to the capacity of the provider itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<ProviderCapacity>,

    /// Bridges of the provider's hosts that machines may be attached to. Defaults to every bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["bridge"]))]
    pub allowed_bridges: Option<Vec<AllowedBridge>>,

    /// Hosts that the images of disks may come from, such as images.example.com, or *.example.com for every host below a
    /// domain. Defaults to every host in a well-known public domain. Any other host has to be listed; link-local addresses
    /// are always refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "source_hosts")]
    pub allowed_source_hosts: Option<Vec<String>>,

    /// How the provider's health is checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
}

impl MachineProviderSpec {
    /// The namespace of the operator's own cluster that all machines of the provider are created in. None if the provider
    /// is another cluster, or creates each machine in the namespace of its Machine.
    #[must_use]
    pub fn own_cluster_namespace(&self) -> Option<&str> {
        let settings = self.kubevirt.as_ref().filter(|_| self.credentials.is_none())?;
        settings.namespace.as_deref()
    }
}

checked_builder!(
    MachineProvider,
    MachineProviderSpec,
    MachineProviderSpecBuilder,
    machine_provider_spec_builder,
    namespace
);

/// Type of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
#[serde(rename_all = "lowercase")]
pub enum ProviderType {
    /// KubeVirt virtual machines, in this cluster or another.
    Kubevirt,
    /// A simulated hypervisor inside the operator's process.
    Simulated,
}

impl ProviderType {
    /// Every type.
    pub const ALL: [Self; 2] = [Self::Kubevirt, Self::Simulated];

    /// The type that the operator's own cluster is when it hosts machines without a MachineProvider.
    pub const OWN_CLUSTER: Self = Self::Kubevirt;

    /// The type as written in `spec.type`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kubevirt => "kubevirt",
            Self::Simulated => "simulated",
        }
    }
}

impl fmt::Display for ProviderType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Settings of a KubeVirt cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[builder(on(String, into))]
#[serde(rename_all = "camelCase")]
pub struct KubeVirtProvider {
    /// Namespace of the virtual machines. Defaults to the Machine's namespace. Without credentials, a namespace other than
    /// those of the Machine and the provider must permit it with its annotation vitistack.io/allow-references-from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::namespace_name")]
    pub namespace: Option<String>,
}

/// Settings of a simulated provider. They determine its behavior, so that a run can be repeated exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct SimulatedProvider {
    /// Seed of the random number generator. Defaults to 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub seed: Option<u64>,

    /// Duration of a task. By default tasks complete immediately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Duration>,

    /// Percentage of tasks that fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub failed_tasks_percent: Option<u8>,

    /// Percentage of requests that are carried out but not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub lost_replies_percent: Option<u8>,

    /// Whether the ID of a deleted machine is reused for the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse_ids: Option<bool>,

    /// Whether the provider is unreachable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<bool>,
}

/// Credentials for a provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct ProviderCredentials {
    /// Secret with the credentials, in the provider's namespace. For type kubevirt it contains a kubeconfig.
    pub secret_ref: SecretKeyReference,
}

/// A size that a provider offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[builder(on(String, into))]
#[serde(rename_all = "camelCase")]
pub struct InstanceType {
    /// Name of the size at the provider.
    #[schemars(schema_with = "crate::schema::location_name")]
    pub name: String,

    /// Virtual CPUs.
    #[schemars(range(min = 1, max = 65_536))]
    pub cpu: u32,

    /// Memory.
    pub memory: Size,

    /// Price of the size, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

/// A price per hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[builder(on(String, into))]
#[serde(rename_all = "camelCase")]
pub struct Price {
    /// Amount per hour, such as "0.0416".
    pub per_hour: Amount,

    /// Three-letter currency code, such as EUR.
    #[schemars(schema_with = "currency")]
    pub currency: String,
}

fn currency(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 3,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^[A-Z]{3}$')",
            "message": "must be a currency code of three capital letters, such as EUR or USD",
        }],
    })
}

/// Maximum capacity of a provider to use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct ProviderCapacity {
    /// Maximum number of machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub machines: Option<u32>,

    /// Maximum total of virtual CPUs of all machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000_000))]
    pub cpu: Option<u32>,

    /// Maximum total memory of all machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,

    /// Maximum total disk space of all machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Quantity>,
}

/// A bridge that machines may be attached to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[builder(on(String, into))]
#[serde(rename_all = "camelCase")]
pub struct AllowedBridge {
    /// Linux bridge on the provider's hosts.
    #[schemars(schema_with = "super::network_configuration::bridge_name")]
    pub bridge: String,

    /// VLAN tags on the bridge that may be used; 0 allows untagged traffic. Defaults to all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "vlans")]
    pub vlans: Option<Vec<u16>>,
}

fn vlans(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 4095,
        "x-kubernetes-list-type": "set",
        "items": { "type": "integer", "format": "int32", "minimum": 0, "maximum": 4094 },
    })
}

fn source_hosts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 256,
        "x-kubernetes-list-type": "set",
        "items": crate::schema::text(
            253,
            "^([*][.])?[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
            "must be a host name in lowercase letters, such as images.example.com or *.example.com",
        ),
    })
}

/// How a provider's health is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// Time between two checks. Defaults to 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Duration>,

    /// Timeout of a check. Defaults to 10s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,

    /// Number of consecutive failed checks after which no new machine is placed on the provider. Defaults to
    /// 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub failure_threshold: Option<u16>,
}

/// Observed state of a provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineProviderStatus {
    /// Summary of the conditions; the Ready condition has the details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// Standard conditions. Ready is always present once the provider has been reconciled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Software version of the provider, as last observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,

    /// Total resources of the machines that are placed on this provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<UsedResources>,
}
