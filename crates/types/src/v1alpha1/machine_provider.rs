//! `MachineProvider`: a hypervisor, a cloud or a rack that machines can be made on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{Phase, UsedResources, checked_builder};
use crate::{Amount, Duration, Quantity, SecretKeyReference, Size, Version};

/// Where machines are made, and how to reach it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource, bon::Builder)]
#[builder(on(String, into), start_fn(name = start, vis = ""), finish_fn(name = finish, vis = ""))]
#[kube(
    group = "vitistack.io",
    version = "v1alpha1",
    kind = "MachineProvider",
    doc = "Where machines are made, and how to reach it.",
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
      "message": "cannot change once set: make another MachineProvider instead" },
    { "rule": "!has(self.kubevirt) || self.type == 'kubevirt'", "fieldPath": ".kubevirt",
      "message": "is only for type kubevirt: set type to kubevirt or remove the block" },
    { "rule": "!has(self.simulated) || self.type == 'simulated'", "fieldPath": ".simulated",
      "message": "is only for type simulated: set type to simulated or remove the block" },
]))]
#[serde(rename_all = "camelCase")]
pub struct MachineProviderSpec {
    /// Kind of provider: which backend talks to it.
    #[serde(rename = "type")]
    #[builder(name = provider_type)]
    pub type_: ProviderType,

    /// Settings of a KubeVirt cluster; only with type kubevirt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubevirt: Option<KubeVirtProvider>,

    /// Settings of the simulated hypervisor; only with type simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<SimulatedProvider>,

    /// How to log in; not needed for a provider in the cluster the operator runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<ProviderCredentials>,

    /// Zones the provider has, by the names that Machines and Datacenters use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::place_names")]
    #[builder(default, into)]
    pub zones: Vec<String>,

    /// Sizes the provider sells, with their prices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[builder(default, into)]
    pub instance_types: Vec<InstanceType>,

    /// Most of the provider that may be used; what it offers itself where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<ProviderCapacity>,

    /// How often and how patiently the provider's health is checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
}

checked_builder!(
    MachineProvider,
    MachineProviderSpec,
    MachineProviderSpecBuilder,
    machine_provider_spec_builder,
    namespace
);

/// Kind of provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::described_by_its_field)]
#[serde(rename_all = "lowercase")]
pub enum ProviderType {
    /// Virtual machines of KubeVirt, in this cluster or another.
    Kubevirt,
    /// A hypervisor that exists only in the process.
    Simulated,
}

/// Settings of a KubeVirt cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[builder(on(String, into))]
#[serde(rename_all = "camelCase")]
pub struct KubeVirtProvider {
    /// Namespace in which virtual machines are made; the Machine's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::namespace_name")]
    pub namespace: Option<String>,
}

/// Settings of the simulated hypervisor. All it does follows from these, so a run can be repeated exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct SimulatedProvider {
    /// Where its dice start; 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub seed: Option<u64>,

    /// How long a task takes; at once when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Duration>,

    /// How many of a hundred tasks fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub failed_tasks_percent: Option<u8>,

    /// How many of a hundred requests are carried out without an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub lost_replies_percent: Option<u8>,

    /// Whether the number of a deleted machine is given to the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse_ids: Option<bool>,

    /// Whether it answers nothing at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<bool>,
}

/// How to log in to a provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct ProviderCredentials {
    /// Secret that holds the credentials, in the provider's namespace; for type kubevirt a kubeconfig.
    pub secret_ref: SecretKeyReference,
}

/// A size that a provider sells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[builder(on(String, into))]
#[serde(rename_all = "camelCase")]
pub struct InstanceType {
    /// Name of the size, as the provider has it.
    #[schemars(schema_with = "crate::schema::place_name")]
    pub name: String,

    /// Virtual CPUs.
    #[schemars(range(min = 1, max = 65_536))]
    pub cpu: u32,

    /// Memory.
    pub memory: Size,

    /// What it costs; unknown when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

/// A price per hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[builder(on(String, into))]
#[serde(rename_all = "camelCase")]
pub struct Price {
    /// Amount for one hour, such as "0.0416".
    pub per_hour: Amount,

    /// Currency by its three letters, such as EUR.
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
            "message": "must be the three capital letters of a currency, such as EUR or USD",
        }],
    })
}

/// Most of a provider that may be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct ProviderCapacity {
    /// Most machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub machines: Option<u32>,

    /// Most virtual CPUs of all machines together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000_000))]
    pub cpu: Option<u32>,

    /// Most memory of all machines together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,

    /// Most disk space of all machines together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Quantity>,
}

/// How a provider's health is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// Time between two checks; 30s when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Duration>,

    /// Longest wait for an answer; 10s when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,

    /// Failed checks in a row after which nothing new is placed on the provider; 3 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub failure_threshold: Option<u16>,
}

/// What is known of a provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineProviderStatus {
    /// How far the provider is; the Ready condition says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// The standard conditions; Ready is always among them once the provider was looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Version of the software the provider runs, as last observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,

    /// What the machines placed here use together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<UsedResources>,
}
