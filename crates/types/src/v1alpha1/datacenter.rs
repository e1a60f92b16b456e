//! `Datacenter`: a region, the providers in it and what may be used of them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Phase, checked_builder};
use crate::Quantity;

/// A logical datacenter: where it is, which providers serve it, and how much may be used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource, bon::Builder)]
#[builder(on(String, into), start_fn(name = start, vis = ""), finish_fn(name = finish, vis = ""))]
#[kube(
    group = "vitistack.io",
    version = "v1alpha1",
    kind = "Datacenter",
    doc = "A logical datacenter: where it is, which providers serve it, and how much may be used.",
    namespaced,
    status = "DatacenterStatus",
    derive = "PartialEq",
    shortname = "vsdc",
    category = "vitistack",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Region", type_ = "string", json_path = ".spec.region"),
    printcolumn(name = "Machines", type_ = "integer", json_path = ".status.used.machines"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct DatacenterSpec {
    /// Region the datacenter stands for, such as us-west-2 or headquarters.
    #[schemars(schema_with = "crate::schema::place_name")]
    pub region: String,

    /// Zones of the datacenter that machines are spread over; those of its providers when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::place_names")]
    #[builder(default, into)]
    pub zones: Vec<String>,

    /// Machine providers that serve the datacenter, tried in the order of their priority.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[builder(default, into)]
    pub machine_providers: Vec<ProviderReference>,

    /// Kubernetes providers that serve the datacenter, tried in the order of their priority. Not acted on yet, and
    /// told so in a condition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[builder(default, into)]
    pub kubernetes_providers: Vec<ProviderReference>,

    /// How much the Machines that name this datacenter may use together; no limit where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_quotas: Option<ResourceQuotas>,
}

checked_builder!(Datacenter, DatacenterSpec, DatacenterSpecBuilder, datacenter_spec_builder, namespace);

/// A provider of a datacenter and its rank among the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[builder(on(String, into))]
#[serde(rename_all = "camelCase")]
pub struct ProviderReference {
    /// Name of the provider.
    #[schemars(schema_with = "crate::schema::object_name")]
    pub name: String,

    /// Namespace of the provider; the datacenter's own when absent. Another namespace must allow it with the annotation
    /// vitistack.io/allow-references-from on the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::namespace_name")]
    pub namespace: Option<String>,

    /// Rank among the providers, 1 is tried first; one without a priority is tried last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub priority: Option<u16>,
}

/// Limits on what is used together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct ResourceQuotas {
    /// Most machines there may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub max_machines: Option<u32>,

    /// Most clusters there may be. Not acted on yet, and told so in a condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub max_clusters: Option<u32>,

    /// Most virtual CPUs (cores times threads times sockets) of all machines together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000_000))]
    pub max_cpu: Option<u32>,

    /// Most memory of all machines together, such as 512Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<Quantity>,

    /// Most disk space of all machines together, such as 20Ti.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_storage: Option<Quantity>,
}

/// What is known of a datacenter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatacenterStatus {
    /// How far the datacenter is; the Ready condition says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// The standard conditions; Ready is always among them once the datacenter was looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,

    /// What the Machines that name this datacenter use together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<UsedResources>,
}

/// What machines use together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
// Told as a whole, by one writer.
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct UsedResources {
    /// Number of machines.
    #[schemars(range(min = 0))]
    pub machines: u32,

    /// Virtual CPUs of all machines.
    #[schemars(range(min = 0))]
    pub cpu: u32,

    /// Memory of all machines.
    pub memory: Quantity,

    /// Disk space of all machines.
    pub storage: Quantity,
}
