//! `NetworkConfiguration`: a network that machines can be attached to.

use kube_derive::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{ConfigurationStatus, checked_builder};

/// Desired state of a network, which Machines refer to in `networks[].networkName`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource, bon::Builder)]
#[builder(on(String, into), start_fn(name = start, vis = ""), finish_fn(name = finish, vis = ""))]
#[kube(
    group = "vitistack.io",
    version = "v1alpha1",
    kind = "NetworkConfiguration",
    doc = "A network that machines can be attached to.",
    namespaced,
    status = "ConfigurationStatus",
    derive = "PartialEq",
    shortname = "vsnc",
    category = "vitistack",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Bridge", type_ = "string", json_path = ".spec.bridge"),
    printcolumn(name = "VLAN", type_ = "integer", json_path = ".spec.vlan"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct NetworkConfigurationSpec {
    /// Linux bridge of the network on the provider's hosts.
    #[schemars(schema_with = "bridge_name")]
    pub bridge: String,

    /// VLAN tag of the network on the bridge, 1 to 4094. Untagged by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub vlan: Option<u16>,
}

pub(super) fn bridge_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 15,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^[A-Za-z0-9][-_.A-Za-z0-9]*$')",
            "message": "must be the name of a Linux bridge: letters, digits, '-', '_' and '.', such as br0",
        }],
    })
}

checked_builder!(
    NetworkConfiguration,
    NetworkConfigurationSpec,
    NetworkConfigurationSpecBuilder,
    network_configuration_spec_builder,
    namespace
);
