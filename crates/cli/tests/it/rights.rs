//! Operators with exactly the permissions that `vitistack manager` prints, on a real kube-apiserver.
//!
//! The operators run as the service accounts of the printed Deployments, with their arguments. One Machine lives its whole
//! life without a forbidden request; then one permission is taken away, and its operator is refused.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use vitistack_testkit::{AuditedRequest, Guarded, KubeServer, Options, User};

use crate::{
    guide::{ROOT, succeed},
    vitistack,
};

/// Longest wait for anything. Reached only when something is broken.
const LIMIT: Duration = Duration::from_mins(2);

/// The operators that run; those of the simulated backend are enough to create a machine.
const OPERATORS: [&str; 3] = ["datacenter", "machine-provider", "simulated"];

/// The service account of an operator.
fn account(operator: &str) -> String {
    format!("system:serviceaccount:vitistack-system:vitistack-{operator}-operator")
}

/// A server with our kinds and roles.
struct Cluster {
    server: KubeServer,
}

/// A running operator. Its kubeconfig is a copy: the name of an account has colons, which separate the paths of kubeconfigs.
struct Running {
    _process: Guarded,
    log: NamedTempFile,
    _kubeconfig: NamedTempFile,
}

impl Cluster {
    async fn start() -> Self {
        let groups =
            ["system:serviceaccounts", "system:serviceaccounts:vitistack-system", "system:authenticated"];
        let users = OPERATORS.iter().map(|operator| User::new(&account(operator), &groups)).collect();
        let server = KubeServer::start(&Options { users, ..Options::default() }).await.unwrap();
        let cluster = Self { server };
        for folder in ["crd", "rbac"] {
            cluster.kubectl(&["apply", "--server-side", "-k", &format!("{ROOT}/config/{folder}")]);
        }
        cluster.kubectl(&["wait", "crd", "--all", "--for=condition=Established", "--timeout=60s"]);
        for namespace in ["infra", "shop", "other"] {
            cluster.kubectl(&["create", "namespace", namespace]);
        }
        cluster
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        succeed(&self.server.kubectl(arguments).unwrap())
    }

    fn apply(&self, manifests: &str) {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), manifests).unwrap();
        self.kubectl(&["apply", "--server-side", "-f", file.path().to_str().unwrap()]);
    }

    /// Installs the operators as printed, and runs them as printed.
    fn install(&self, flags: &[&str]) -> Vec<Running> {
        let operators = OPERATORS.join(",");
        let fixed = ["manager", "--account", "per-operator", "--operators", operators.as_str()];
        self.apply(&succeed(&vitistack(&[&fixed[..], flags].concat())));
        OPERATORS.iter().map(|operator| self.run(operator)).collect()
    }

    /// Runs the pod of a Deployment as a process.
    fn run(&self, operator: &str) -> Running {
        let name = format!("vitistack-{operator}-operator");
        let found = ["get", "deployment", "-n", "vitistack-system", &name, "-o", "json"];
        let deployment: Value = serde_json::from_str(&self.kubectl(&found)).unwrap();
        let pod = deployment.pointer("/spec/template/spec").unwrap();
        assert_eq!(pod["serviceAccountName"], json!(name));
        let arguments: Vec<String> = serde_json::from_value(pod["containers"][0]["args"].clone()).unwrap();

        let (log, kubeconfig) = (NamedTempFile::new().unwrap(), NamedTempFile::new().unwrap());
        std::fs::copy(self.server.kubeconfig_of(&account(operator)), kubeconfig.path()).unwrap();
        let settings = [
            "NAMESPACE=vitistack-system".to_owned(),
            "METRICS_BIND_ADDRESS=127.0.0.1:0".to_owned(),
            "HEALTH_PROBE_BIND_ADDRESS=127.0.0.1:0".to_owned(),
            env!("CARGO_BIN_EXE_vitistack").to_owned(),
        ];
        let flag = format!("--kubeconfig={}", kubeconfig.path().display());
        let all = settings.into_iter().chain(arguments).chain([flag]);
        let process = Guarded::start(Path::new("/usr/bin/env"), all, log.reopen().unwrap(), None).unwrap();
        Running { _process: process, log, _kubeconfig: kubeconfig }
    }

    /// The requests of the operators that were forbidden.
    fn forbidden(&self) -> Vec<AuditedRequest> {
        let is_forbidden = |request: &AuditedRequest| {
            request.code == 403 && OPERATORS.iter().any(|operator| account(operator) == request.user)
        };
        self.server.audit().unwrap().into_iter().filter(is_forbidden).collect()
    }

    /// The reason and the message of a Machine's Ready condition.
    fn ready(&self, namespace: &str, name: &str) -> Option<(String, String)> {
        let found = ["get", "machine", "-n", namespace, name, "-o", "json", "--ignore-not-found"];
        let machine: Value = serde_json::from_str(&self.kubectl(&found)).ok()?;
        let conditions = machine.pointer("/status/conditions")?.as_array()?;
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
        let text = |key: &str| ready[key].as_str().unwrap_or_default().to_owned();
        Some((text("reason"), text("message")))
    }

    async fn until<T>(&self, what: &str, operators: &[Running], look: impl Fn() -> Option<T>) -> T {
        let limit = Instant::now() + LIMIT;
        loop {
            if let Some(found) = look() {
                return found;
            }
            let logs: Vec<String> = operators
                .iter()
                .map(|running| std::fs::read_to_string(running.log.path()).unwrap())
                .collect();
            assert!(Instant::now() < limit, "{what}: {:#?}\n{}", self.forbidden(), logs.join("\n"));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Creates a Machine, waits until it runs, deletes it and waits until it is gone.
    async fn live(&self, operators: &[Running], name: &str) {
        self.apply(&machine("shop", name, "datacenterRef: {name: west, namespace: infra}"));
        let runs = || self.ready("shop", name).filter(|(reason, _)| reason == "Running");
        self.until("the machine to run", operators, runs).await;
        self.kubectl(&["delete", "machine", "-n", "shop", name, "--wait=false"]);
        let gone = ["get", "machine", "-n", "shop", name, "-o", "name", "--ignore-not-found"];
        self.until("the machine to be gone", operators, || self.kubectl(&gone).is_empty().then_some(()))
            .await;
    }

    /// Creates a Machine that an operator cannot serve any more, and waits until the server refuses it.
    async fn is_refused(&self, operators: &[Running], name: &str) {
        assert_eq!(self.forbidden(), [], "before the permission was taken away");
        self.apply(&machine("shop", name, "datacenterRef: {name: west, namespace: infra}"));
        let refused = || self.forbidden().into_iter().find(|request| request.user == account("simulated"));
        self.until("a forbidden request", operators, refused).await;
        assert_ne!(self.ready("shop", name).map(|(reason, _)| reason).as_deref(), Some("Running"));
    }

    fn may(&self, operator: &str, action: &[&str]) -> bool {
        let user = format!("--as={}", account(operator));
        let asked = [&["auth", "can-i", user.as_str()], action].concat();
        self.server.kubectl(&asked).unwrap().status.success()
    }
}

fn machine(namespace: &str, name: &str, reference: &str) -> String {
    format!(
        "{{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{template: small, {reference}}}}}"
    )
}

/// A provider with a Secret is read by the operator `machine-provider`; both may be used from everywhere.
const PLATFORM: &str = "
apiVersion: vitistack.io/v1alpha1
kind: MachineProvider
metadata: {name: sim, namespace: infra, annotations: {vitistack.io/allow-references-from: shop}}
spec: {type: simulated, simulated: {latency: 10ms}}
---
apiVersion: vitistack.io/v1alpha1
kind: Datacenter
metadata: {name: west, namespace: infra, annotations: {vitistack.io/allow-references-from: shop}}
spec: {region: west, machineProviders: [{name: sim, priority: 1}]}
";

#[tokio::test(flavor = "multi_thread")]
async fn operators_work_with_exactly_the_printed_account_each() {
    let cluster = Cluster::start().await;
    let operators = cluster.install(&[]);
    cluster.apply(PLATFORM);
    cluster.live(&operators, "web").await;

    // Each account has the permissions of its operator and no others.
    assert!(cluster.may("machine-provider", &["list", "secrets", "-n", "other"]));
    assert!(!cluster.may("datacenter", &["get", "secrets", "-n", "infra"]));
    assert!(!cluster.may("datacenter", &["patch", "machineproviders.vitistack.io", "-n", "infra"]));
    for verb in ["create", "patch", "delete"] {
        assert!(!cluster.may("simulated", &[verb, "secrets", "-n", "infra"]), "{verb}");
    }

    let role = "clusterrole/vitistack-operator-simulated";
    let mut rules: Value =
        serde_json::from_str(&cluster.kubectl(&["get", role, "-o", "jsonpath={.rules}"])).unwrap();
    let rules = rules.as_array_mut().unwrap();
    let before = rules.len();
    rules.retain(|rule| !rule["resources"].as_array().unwrap().contains(&json!("machines/status")));
    assert_eq!(rules.len(), before - 1);
    let patch = json!({ "rules": rules }).to_string();
    cluster.kubectl(&["patch", role, "--type=merge", "-p", &patch]);
    cluster.is_refused(&operators, "late").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_work_in_their_namespaces_with_exactly_the_printed_bindings() {
    let cluster = Cluster::start().await;
    let operators = cluster.install(&["--namespaces", "shop,infra,vitistack-system"]);
    cluster.apply(PLATFORM);
    cluster.apply(&machine("other", "unseen", "providerRef: {name: sim, namespace: infra}"));
    cluster.apply(&machine("shop", "lost", "providerRef: {name: sim, namespace: other}"));
    cluster.live(&operators, "web").await;

    let lost = || cluster.ready("shop", "lost");
    let (reason, message) = cluster.until("a refusal", &operators, lost).await;
    assert_eq!(reason, "NamespaceNotWatched");
    assert!(
        message.contains("is not watched by this operator: add the namespace to --namespaces"),
        "{message}"
    );
    assert_eq!(cluster.ready("other", "unseen"), None);

    for operator in OPERATORS {
        assert!(!cluster.may(operator, &["list", "machines.vitistack.io", "-n", "other"]), "{operator}");
        assert!(!cluster.may(operator, &["get", "secrets", "-n", "other"]), "{operator}");
        assert!(cluster.may(operator, &["list", "machineclasses.vitistack.io"]), "{operator}");
    }
    let lease = [
        "get",
        "lease",
        "-n",
        "vitistack-system",
        "simulated-operator",
        "-o",
        "jsonpath={.metadata.annotations}",
    ];
    assert!(cluster.kubectl(&lease).contains("infra,shop,vitistack-system"));

    // Without its binding in one namespace an operator is refused there.
    cluster.kubectl(&["delete", "rolebinding", "-n", "shop", "vitistack-operator-simulated"]);
    cluster.is_refused(&operators, "late").await;
}
