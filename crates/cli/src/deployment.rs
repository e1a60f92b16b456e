//! The operators in a cluster: their namespace, account, bindings, pods, and what may reach them.

use k8s_openapi::api::rbac::v1::ClusterRole;
use serde_json::{Value, json};
use vitistack_types::labels::SYSTEM_NAMESPACE;

use crate::roles;

/// The image of this version, unless another one is asked for.
pub const IMAGE: &str = concat!("ghcr.io/vitistack/vitistack:", env!("CARGO_PKG_VERSION"));

/// Name of the account, the pods and everything else that is theirs.
pub const NAME: &str = "vitistack-manager";

/// Ports of the metrics and probe servers, as the settings have them by default.
const METRICS_PORT: u16 = 8080;
const PROBE_PORT: u16 = 8081;

/// The user and group of the image.
const USER: u32 = 65532;

/// What differs between one cluster and another.
#[derive(Clone, Debug)]
pub struct Deployment<'a> {
    /// The image.
    pub image: &'a str,
    /// How many pods; one acts, the others stand by.
    pub replicas: u16,
}

impl Deployment<'_> {
    /// Every object, in the order in which a cluster takes them.
    pub fn objects(&self) -> Vec<Value> {
        let mut objects = vec![namespace(), service_account()];
        objects.extend(roles::roles().iter().filter_map(binding));
        objects.extend([service(), network_policy(), self.deployment()]);
        if self.replicas > 1 {
            objects.push(disruption_budget());
        }
        objects
    }

    fn deployment(&self) -> Value {
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata(NAME),
            "spec": {
                "replicas": self.replicas,
                "selector": { "matchLabels": selector() },
                "template": {
                    "metadata": { "labels": labels() },
                    "spec": {
                        "serviceAccountName": NAME,
                        "enableServiceLinks": false,
                        // Longer than the operators take to finish what they have begun.
                        "terminationGracePeriodSeconds": 30,
                        "securityContext": {
                            "runAsNonRoot": true,
                            "runAsUser": USER,
                            "runAsGroup": USER,
                            "seccompProfile": { "type": "RuntimeDefault" },
                        },
                        "topologySpreadConstraints": [{
                            "maxSkew": 1,
                            "topologyKey": "kubernetes.io/hostname",
                            "whenUnsatisfiable": "ScheduleAnyway",
                            "labelSelector": { "matchLabels": selector() },
                        }],
                        "containers": [self.container()],
                    },
                },
            },
        })
    }

    fn container(&self) -> Value {
        let probe = |path: &str| json!({ "httpGet": { "path": path, "port": "probes" } });
        json!({
            "name": "manager",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "args": ["run", "all"],
            "env": [{
                "name": "NAMESPACE",
                "valueFrom": { "fieldRef": { "fieldPath": "metadata.namespace" } },
            }],
            "ports": [
                { "name": "metrics", "containerPort": METRICS_PORT },
                { "name": "probes", "containerPort": PROBE_PORT },
            ],
            "livenessProbe": probe("/healthz"),
            "readinessProbe": probe("/readyz"),
            "resources": {
                "limits": { "cpu": "500m", "memory": "512Mi" },
                "requests": { "cpu": "100m", "memory": "256Mi" },
            },
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"] },
                "readOnlyRootFilesystem": true,
            },
        })
    }
}

fn selector() -> Value {
    json!({ "app.kubernetes.io/name": "vitistack", "app.kubernetes.io/component": "manager" })
}

/// The labels by which everything here is found again, to be removed.
fn labels() -> Value {
    json!({
        "app.kubernetes.io/name": "vitistack",
        "app.kubernetes.io/component": "manager",
        "app.kubernetes.io/version": env!("CARGO_PKG_VERSION"),
    })
}

fn metadata(name: &str) -> Value {
    json!({ "name": name, "namespace": SYSTEM_NAMESPACE, "labels": labels() })
}

/// Without the component's label: providers and their credentials live here too, so it stays when the operators go.
fn namespace() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": SYSTEM_NAMESPACE,
            "labels": {
                "app.kubernetes.io/name": "vitistack",
                "pod-security.kubernetes.io/enforce": "restricted",
            },
        },
    })
}

fn service_account() -> Value {
    json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(NAME) })
}

/// Gives the account a role of the operators: in its own namespace if the role is meant for that, else everywhere.
fn binding(role: &ClusterRole) -> Option<Value> {
    let name = role.metadata.name.as_deref().filter(|name| name.starts_with(roles::OPERATOR_PREFIX))?;
    let is_local = name.ends_with(roles::OWN_NAMESPACE_SUFFIX);
    let metadata = if is_local { metadata(name) } else { json!({ "name": name, "labels": labels() }) };
    Some(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": if is_local { "RoleBinding" } else { "ClusterRoleBinding" },
        "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": SYSTEM_NAMESPACE }],
    }))
}

fn service() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata("vitistack-metrics"),
        "spec": {
            "selector": selector(),
            "ports": [{ "name": "https", "port": METRICS_PORT, "targetPort": "metrics" }],
        },
    })
}

/// In: metrics and probes. Out: everything, for providers are wherever their owners have them.
fn network_policy() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(NAME),
        "spec": {
            "podSelector": { "matchLabels": selector() },
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{ "ports": [
                { "port": METRICS_PORT, "protocol": "TCP" },
                { "port": PROBE_PORT, "protocol": "TCP" },
            ] }],
            "egress": [{}],
        },
    })
}

fn disruption_budget() -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(NAME),
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": selector() } },
    })
}
