//! `Datacenter`: a region, the providers that serve it and its quotas.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Phase, checked_builder};
use crate::Quantity;

/// Desired state of a datacenter: its region, its providers and its quotas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource, bon::Builder)]
#[builder(on(String, into), start_fn(name = start, vis = ""), finish_fn(name = finish, vis = ""))]
#[kube(
    group = "vitistack.io",
    version = "v1alpha1",
    kind = "Datacenter",
    doc = "A logical datacenter: its region, the providers that serve it and its quotas.",
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
    /// Region of the datacenter, such as us-west-2 or headquarters.
    #[schemars(schema_with = "crate::schema::location_name")]
    pub region: String,

    /// Zones that machines are spread over. Defaults to the zones of the providers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::location_names")]
    #[builder(default, into)]
    pub zones: Vec<String>,

    /// Machine providers that serve the datacenter, tried in order of priority.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[builder(default, into)]
    pub machine_providers: Vec<ProviderReference>,

    /// Kubernetes providers that serve the datacenter, tried in order of priority. Not implemented yet: the
    /// condition FieldsHonoured reports it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[builder(default, into)]
    pub kubernetes_providers: Vec<ProviderReference>,

    /// Limits on the total resources of the Machines that refer to this datacenter. Unlimited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_quotas: Option<ResourceQuotas>,
}

checked_builder!(Datacenter, DatacenterSpec, DatacenterSpecBuilder, datacenter_spec_builder, namespace);

/// A provider of a datacenter and its priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[builder(on(String, into))]
#[serde(rename_all = "camelCase")]
pub struct ProviderReference {
    /// Name of the provider.
    #[schemars(schema_with = "crate::schema::object_name")]
    pub name: String,

    /// Namespace of the provider. Defaults to the Datacenter's namespace. A provider in another namespace
    /// must permit the reference with its annotation vitistack.io/allow-references-from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::namespace_name")]
    pub namespace: Option<String>,

    /// Priority of the provider: 1 is tried first. A provider without a priority is tried last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub priority: Option<u16>,
}

/// Limits on total resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, bon::Builder)]
#[serde(rename_all = "camelCase")]
pub struct ResourceQuotas {
    /// Maximum number of machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub max_machines: Option<u32>,

    /// Maximum number of clusters. Not implemented yet: the condition FieldsHonoured reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub max_clusters: Option<u32>,

    /// Maximum total of virtual CPUs (cores times threads times sockets) of all machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000_000))]
    pub max_cpu: Option<u32>,

    /// Maximum total memory of all machines, such as 512Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<Quantity>,

    /// Maximum total disk space of all machines, such as 20Ti.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_storage: Option<Quantity>,
}

/// Observed state of a datacenter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatacenterStatus {
    /// Summary of the conditions; the Ready condition has the details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// Standard conditions. Ready is always present once the datacenter has been reconciled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Total resources of the Machines that refer to this datacenter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<UsedResources>,
}

/// Total resources of a set of machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
// One controller writes all of it, so it has one owner under server-side apply.
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
