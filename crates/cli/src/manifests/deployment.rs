//! The Deployments of the operators, with namespace, service accounts, bindings, Service and NetworkPolicy.

use clap::ValueEnum;
use serde_json::{Value, json};
use vitistack_machine::backend_type;
use vitistack_runtime::permissions::PermissionScope;
use vitistack_types::{OperatorName, WatchedNamespaces, labels::SYSTEM_NAMESPACE};

use super::roles::{self, OperatorRole};

/// The default image.
pub const IMAGE: &str = concat!("ghcr.io/vitistack/vitistack:", env!("CARGO_PKG_VERSION"));

/// The name of the Deployment that runs all operators, of its service account and of what all Deployments share.
pub const NAME: &str = "vitistack-manager";

/// Selects all Deployments of operators.
pub const SELECTOR: &str = "app.kubernetes.io/name=vitistack,app.kubernetes.io/component=manager";

/// The default ports of metrics and probes.
const METRICS_PORT: u16 = 8080;
const PROBE_PORT: u16 = 8081;

/// The ports of API servers, which operators and the kubeconfigs of providers connect to.
const API_PORTS: [u16; 2] = [443, 6443];
const DNS_PORT: u16 = 53;

/// The user and the group of the image.
const USER: u32 = 65532;

/// How many service accounts the operators use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Accounts {
    /// One Deployment with one account, which has the permissions of all of its operators
    Shared,
    /// One Deployment and one account for each operator, which has the permissions of that operator only
    PerOperator,
}

/// The options of an installation.
#[derive(Clone, Debug)]
pub struct Deployment<'a> {
    /// The image.
    pub image: &'a str,
    /// The number of pods of each Deployment; one is the leader, the others stand by.
    pub replicas: u16,
    /// The operators that run.
    pub operators: Vec<OperatorName>,
    /// The namespaces that they work in.
    pub namespaces: WatchedNamespaces,
    /// How many service accounts they use.
    pub accounts: Accounts,
    /// The ports that the pods may connect to, besides those of API servers and DNS.
    pub egress_ports: &'a [u16],
    /// The addresses that the pods may connect to; all if empty.
    pub egress_cidrs: &'a [String],
}

/// A Deployment and its service account, of the same name.
struct Unit {
    name: String,
    operators: Vec<OperatorName>,
}

/// Returns the operators of an installation unless others are chosen.
#[must_use]
pub fn default_operators() -> Vec<OperatorName> {
    let is_default = |operator: &OperatorName| match operator {
        OperatorName::Machine(provider_type) => backend_type(*provider_type).is_installed_by_default(),
        OperatorName::Datacenter | OperatorName::MachineProvider => true,
    };
    OperatorName::all().filter(is_default).collect()
}

impl<'a> Deployment<'a> {
    /// The installation without any choice.
    #[must_use]
    pub fn new(image: &'a str) -> Self {
        Self {
            image,
            replicas: 1,
            operators: default_operators(),
            namespaces: WatchedNamespaces::ALL,
            accounts: Accounts::Shared,
            egress_ports: &[],
            egress_cidrs: &[],
        }
    }

    /// Returns every object, in the order in which they are applied.
    pub fn objects(&self) -> Vec<Value> {
        let units = self.units();
        let mut objects = vec![namespace()];
        objects.extend(units.iter().map(service_account));
        objects.extend(roles::operator_roles().iter().flat_map(|role| self.bindings(role, &units)));
        objects.extend([service(), self.network_policy()]);
        for unit in &units {
            objects.push(self.deployment(unit));
            if self.replicas > 1 {
                objects.push(disruption_budget(&self.selector(unit), &unit.name));
            }
        }
        objects
    }

    fn units(&self) -> Vec<Unit> {
        match self.accounts {
            Accounts::Shared => vec![Unit { name: NAME.to_owned(), operators: self.operators.clone() }],
            Accounts::PerOperator => {
                let unit = |operator: &OperatorName| Unit {
                    name: format!("vitistack-{}", operator.lease()),
                    operators: vec![*operator],
                };
                self.operators.iter().map(unit).collect()
            }
        }
    }

    /// Grants a role to the accounts of the operators that have it: in their own namespace, in the namespaces that they work
    /// in, or in the whole cluster.
    fn bindings(&self, role: &OperatorRole, units: &[Unit]) -> Vec<Value> {
        let has_role = |unit: &&Unit| role.operator.is_none_or(|operator| unit.operators.contains(&operator));
        let subject = |unit: &Unit| json!({ "kind": "ServiceAccount", "name": unit.name, "namespace": SYSTEM_NAMESPACE });
        let subjects: Vec<Value> = units.iter().filter(has_role).map(subject).collect();
        if subjects.is_empty() {
            return Vec::new();
        }

        let name = role.role.metadata.name.as_deref().unwrap_or_default();
        let listed = self.namespaces.listed();
        match (role.scope, listed) {
            (PermissionScope::OwnNamespace, _) => vec![binding(name, Some(SYSTEM_NAMESPACE), &subjects)],
            (PermissionScope::Cluster, _) | (PermissionScope::Namespaces, None) => {
                vec![binding(name, None, &subjects)]
            }
            (PermissionScope::Namespaces, Some(names)) => {
                names.iter().map(|namespace| binding(name, Some(namespace), &subjects)).collect()
            }
        }
    }

    fn deployment(&self, unit: &Unit) -> Value {
        let selector = self.selector(unit);
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata(&unit.name),
            "spec": {
                "replicas": self.replicas,
                "selector": { "matchLabels": selector },
                "template": {
                    "metadata": { "labels": self.pod_labels(unit) },
                    "spec": {
                        "serviceAccountName": unit.name,
                        "enableServiceLinks": false,
                        // Longer than the operators take to finish running requests.
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
                            "labelSelector": { "matchLabels": selector },
                        }],
                        "containers": [self.container(unit)],
                    },
                },
            },
        })
    }

    /// The labels by which a Deployment finds its pods.
    fn selector(&self, unit: &Unit) -> Value {
        match self.accounts {
            Accounts::Shared => selector(),
            Accounts::PerOperator => with(selector(), "app.kubernetes.io/instance", json!(unit.name)),
        }
    }

    fn pod_labels(&self, unit: &Unit) -> Value {
        with(self.selector(unit), "app.kubernetes.io/version", json!(env!("CARGO_PKG_VERSION")))
    }

    fn args(&self, unit: &Unit) -> Vec<String> {
        let operators = unit.operators.iter().map(ToString::to_string);
        let namespaces = self.namespaces.to_setting().map(|names| format!("--namespaces={names}"));
        std::iter::once("run".to_owned()).chain(operators).chain(namespaces).collect()
    }

    /// Allows ingress to metrics and probes, and egress to DNS and to the ports that operators and providers use.
    fn network_policy(&self) -> Value {
        let tcp = |port: &u16| json!({ "port": port, "protocol": "TCP" });
        let ports: Vec<Value> = API_PORTS.iter().chain(self.egress_ports).map(tcp).collect();
        let mut servers = json!({ "ports": ports });
        if !self.egress_cidrs.is_empty() {
            let block = |cidr: &String| json!({ "ipBlock": { "cidr": cidr } });
            servers = with(servers, "to", self.egress_cidrs.iter().map(block).collect());
        }
        let dns = json!({ "ports": [{ "port": DNS_PORT, "protocol": "UDP" }, tcp(&DNS_PORT)] });
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(NAME),
            "spec": {
                "podSelector": { "matchLabels": selector() },
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{ "ports": [tcp(&METRICS_PORT), tcp(&PROBE_PORT)] }],
                "egress": [dns, servers],
            },
        })
    }

    fn container(&self, unit: &Unit) -> Value {
        let probe = |path: &str| json!({ "httpGet": { "path": path, "port": "probes" } });
        json!({
            "name": "manager",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "args": self.args(unit),
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

/// Returns a JSON object with one more member.
fn with(mut object: Value, name: &str, member: Value) -> Value {
    if let Value::Object(members) = &mut object {
        members.insert(name.to_owned(), member);
    }
    object
}

fn selector() -> Value {
    json!({ "app.kubernetes.io/name": "vitistack", "app.kubernetes.io/component": "manager" })
}

/// The labels of all objects, by which they are selected for removal.
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

/// The namespace has no component label: it also holds providers and credentials and stays when operators are removed.
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

fn service_account(unit: &Unit) -> Value {
    json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(&unit.name) })
}

/// Binds a role to service accounts, in a namespace or in the whole cluster.
fn binding(role: &str, namespace: Option<&str>, subjects: &[Value]) -> Value {
    let metadata = json!({ "name": role, "labels": labels() });
    let metadata = match namespace {
        Some(namespace) => with(metadata, "namespace", json!(namespace)),
        None => metadata,
    };
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" },
        "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": subjects,
    })
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

fn disruption_budget(selector: &Value, name: &str) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(name),
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": selector } },
    })
}
