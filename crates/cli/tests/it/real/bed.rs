//! A real cluster with KubeVirt's own programs, and the operator as a process with exactly the permissions of its roles.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    client::Body,
    core::GroupVersionKind,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use vitistack_testkit::{AuditedRequest, Guarded, KubeServer, Options, User};

/// Longest wait for anything. Reached only when something is broken.
pub const LIMIT: Duration = Duration::from_mins(3);

/// The users as whom replicas of the operator run: one each, so that the audit log distinguishes them.
pub const OPERATORS: [&str; 3] = ["operator-a", "operator-b", "operator-c"];

/// The users as whom the operator works on clusters that it has a kubeconfig for.
pub const REMOTES: [&str; 2] = ["remote-a", "remote-b"];

/// Where operators live.
const HOME: &str = "vitistack-system";

/// A cluster with our kinds and roles.
pub struct Bed {
    pub server: KubeServer,
    pub client: Client,
}

/// Waits until `look` returns a value; `describe` is the state for the message of a timeout.
pub async fn eventually<T>(
    what: &str,
    look: impl AsyncFn() -> Option<T>,
    describe: impl AsyncFn() -> String,
) -> T {
    let limit = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < limit, "waited too long for {what}:\n{}", describe().await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What an object was asked to say, for the message of a failing test.
fn text(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

impl Bed {
    pub async fn start() -> Self {
        let users = OPERATORS.iter().chain(&REMOTES).map(|name| User::new(name, &[])).collect();
        let options = Options { has_controller_manager: true, users, ..Options::default() };
        let server = KubeServer::start(&options).await.unwrap();
        let client = server.client().await.unwrap();
        let bed = Self { server, client };
        bed.namespace(HOME).await;
        bed.kubectl_apply(&printed(&["crds"]));
        bed.kubectl_apply(&printed(&["rbac"]));
        bed.kubectl(&["wait", "crd", "--all", "--for=condition=Established", "--timeout=120s"]);
        for role in ["common", "common-cluster", "kubevirt", "kubevirt-cluster"] {
            bed.bind(&format!("vitistack-operator-{role}"), None, &OPERATORS).await;
        }
        bed.bind("vitistack-operator-common-own-namespace", Some(HOME), &OPERATORS).await;
        bed
    }

    pub async fn namespace(&self, name: &str) {
        let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        Api::all(self.client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    }

    /// Gives users a role, in one namespace or everywhere.
    pub async fn bind(&self, role: &str, namespace: Option<&str>, users: &[&str]) {
        let group = "rbac.authorization.k8s.io";
        let subjects: Vec<Value> =
            users.iter().map(|user| json!({ "apiGroup": group, "kind": "User", "name": user })).collect();
        self.create(&json!({
            "apiVersion": format!("{group}/v1"),
            "kind": if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" },
            "metadata": { "name": format!("{role}-{}", users[0]), "namespace": namespace },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": role },
            "subjects": subjects,
        }))
        .await;
    }

    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.server.kubectl(arguments).unwrap();
        let report = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {}: {report}", arguments.join(" "));
        String::from_utf8(output.stdout).unwrap()
    }

    fn kubectl_apply(&self, manifests: &str) {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), manifests).unwrap();
        self.kubectl(&["apply", "--server-side", "-f", file.path().to_str().unwrap()]);
    }

    pub fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let (group, version) = match kind {
            "VirtualMachine" | "VirtualMachineInstance" => ("kubevirt.io", "v1"),
            "StorageClass" => ("storage.k8s.io", "v1"),
            "PersistentVolumeClaim" | "Secret" => ("", "v1"),
            "Event" => ("events.k8s.io", "v1"),
            "Lease" => ("coordination.k8s.io", "v1"),
            _ => ("vitistack.io", "v1alpha1"),
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            "" => Api::all_with(self.client.clone(), &resource),
            _ => Api::namespaced_with(self.client.clone(), namespace, &resource),
        }
    }

    /// Creates an object and returns it.
    pub async fn create(&self, object: &Value) -> DynamicObject {
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match object.metadata.namespace.as_deref() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let name = object.name_any();
        api.create(&PostParams::default(), &object).await.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The first document of a sample, in another namespace.
    pub fn sample(name: &str, namespace: &str) -> Vec<Value> {
        let printed = printed(&["samples", name]);
        let documents = printed.split("---\n").filter(|document| document.contains("kind:"));
        let in_namespace = |document: &str| {
            let mut object: Value = serde_saphyr::from_str(document).unwrap();
            object["metadata"]["namespace"] = json!(namespace);
            object
        };
        documents.map(in_namespace).collect()
    }

    /// A Machine.
    pub async fn machine(&self, namespace: &str, name: &str, spec: Value) -> DynamicObject {
        let metadata = json!({ "name": name, "namespace": namespace });
        self.create(&json!({
            "apiVersion": "vitistack.io/v1alpha1", "kind": "Machine", "metadata": metadata, "spec": spec,
        }))
        .await
    }

    pub async fn patch(&self, kind: &str, namespace: &str, name: &str, patch: Value) -> DynamicObject {
        let api = self.api(kind, namespace);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    pub async fn delete(&self, kind: &str, namespace: &str, name: &str) {
        self.api(kind, namespace).delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<DynamicObject> {
        self.api(kind, namespace).get_opt(name).await.unwrap()
    }

    pub async fn count(&self, kind: &str, namespace: &str) -> usize {
        self.api(kind, namespace).list(&ListParams::default()).await.unwrap().items.len()
    }

    /// Waits until an object is as asked.
    pub async fn until<T>(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        what: &str,
        look: impl Fn(&DynamicObject) -> Option<T>,
    ) -> T {
        let find = async || look(&self.find(kind, namespace, name).await?);
        let describe = async || text(&self.find(kind, namespace, name).await);
        eventually(&format!("{kind} {namespace}/{name}: {what}"), find, describe).await
    }

    /// Waits until the Machine says of its present generation that it is ready, for this reason.
    pub async fn reach(&self, namespace: &str, name: &str, reason: &str) -> DynamicObject {
        self.until("Machine", namespace, name, reason, |machine| {
            let ready = condition(machine, "Ready")?;
            let is_current = ready["observedGeneration"] == json!(machine.metadata.generation);
            (is_current && ready["status"] == "True" && ready["reason"] == reason).then(|| machine.clone())
        })
        .await
    }

    /// Waits until the Machine's Ready condition is false for this reason and says this, and returns what
    /// `kubectl describe` shows of it.
    pub async fn refused(&self, namespace: &str, name: &str, reason: &str, text: &str) -> String {
        self.until("Machine", namespace, name, &format!("{reason}: {text}"), |machine| {
            let ready = condition(machine, "Ready")?;
            let message = ready["message"].as_str()?;
            (ready["status"] == "False" && ready["reason"] == reason && message.contains(text)).then_some(())
        })
        .await;
        self.described(namespace, name)
    }

    /// What `kubectl describe machine` shows of the phase and of the Ready condition.
    pub fn described(&self, namespace: &str, name: &str) -> String {
        let all = self.kubectl(&["describe", "machine", "-n", namespace, name]);
        let wanted = ["Message:", "Reason:", "Status:", "Type:"];
        let status = all.split("\nStatus:").nth(1).unwrap_or_default();
        let mut report = vec![format!("$ kubectl describe machine {name}")];
        for block in status.split("Last Transition Time:").skip(1) {
            let block = block.split("Identity:").next().unwrap_or_default();
            let lines: Vec<&str> = block
                .lines()
                .map(str::trim)
                .filter(|line| wanted.iter().any(|word| line.starts_with(word)))
                .collect();
            if lines.iter().any(|line| line.starts_with("Type:") && line.ends_with(" Ready")) {
                report.extend(
                    lines.into_iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")),
                );
            }
        }
        let phase = status.lines().map(str::trim).find(|line| line.starts_with("Phase:"));
        report.extend(phase.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")));
        report.join("\n")
    }

    /// Waits until a quota takes effect.
    pub async fn until_quota(&self, quota: &DynamicObject) {
        let (namespace, name) = (quota.namespace().unwrap(), quota.name_any());
        let counts = async || {
            let report = self.kubectl(&[
                "get",
                "resourcequota",
                "-n",
                &namespace,
                &name,
                "-o",
                "jsonpath={.status.hard}",
            ]);
            (!report.is_empty()).then_some(())
        };
        eventually("the quota to take effect", counts, async || String::new()).await;
    }

    pub async fn await_gone(&self, kind: &str, namespace: &str, name: &str) {
        let gone = async || self.find(kind, namespace, name).await.is_none().then_some(());
        let describe = async || text(&self.find(kind, namespace, name).await);
        eventually(&format!("{kind} {namespace}/{name} to be gone"), gone, describe).await;
    }

    /// Waits until nothing of a kind is left in a namespace.
    pub async fn await_none(&self, kind: &str, namespace: &str) {
        let none = async || (self.count(kind, namespace).await == 0).then_some(());
        let describe = async || self.kubectl(&["get", kind, "-n", namespace]);
        eventually(&format!("no {kind} in {namespace}"), none, describe).await;
    }

    /// Returns the requests of these users, without leases and Events.
    pub fn asked_by(&self, users: &[&str]) -> Vec<AuditedRequest> {
        let is_counted = |request: &AuditedRequest| {
            users.contains(&request.user.as_str())
                && !["leases", "events"].contains(&request.resource.as_str())
        };
        self.server.audit().unwrap().into_iter().filter(is_counted).collect()
    }

    /// Starts the operator as one of its users.
    pub fn operator(&self, user: &str, settings: &[(&str, &str)]) -> Replica {
        let log = NamedTempFile::new().unwrap();
        let kubeconfig = self.server.kubeconfig_of(user);
        let all = [
            ("KUBECONFIG", kubeconfig.to_str().unwrap()),
            ("NAMESPACE", HOME),
            ("METRICS_BIND_ADDRESS", "127.0.0.1:0"),
            ("HEALTH_PROBE_BIND_ADDRESS", "127.0.0.1:0"),
            ("LOG_FORMAT", "json"),
            // Long enough that every reconcile is caused by a change, not by the resync.
            ("RECONCILE_INTERVAL", "10m"),
        ];
        let variables = all.iter().chain(settings).map(|(name, value)| format!("{name}={value}"));
        let command = [env!("CARGO_BIN_EXE_vitistack"), "run", "kubevirt"].map(str::to_owned);
        let arguments: Vec<String> = variables.chain(command).collect();
        let process =
            Guarded::start(Path::new("/usr/bin/env"), arguments, log.reopen().unwrap(), None).unwrap();
        Replica { process, log }
    }
}

/// What the binary prints.
fn printed(arguments: &[&str]) -> String {
    let output = crate::vitistack(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A condition of an object.
pub fn condition<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a Value> {
    object.data.pointer("/status/conditions")?.as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// The operator as a process.
pub struct Replica {
    process: Guarded,
    log: NamedTempFile,
}

impl Replica {
    pub fn log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.log.path()).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The last lines of the log, for the message of a failing test.
    pub fn last_words(&self) -> String {
        let text = std::fs::read_to_string(self.log.path()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.process.pid()).unwrap(), signal).unwrap();
    }

    /// Waits for a line of the log.
    pub async fn await_line(&self, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let find = async || {
            assert!(self.process.is_running(), "the operator ended: {}", self.last_words());
            self.log().into_iter().find(|line| is_wanted(line))
        };
        eventually(&format!("the operator to say: {what}"), find, async || self.last_words()).await
    }

    pub async fn await_leading(&self) {
        self.await_line("leading", |line| line["message"] == "started leading").await;
    }

    pub async fn await_end(&self) {
        let ended = async || (!self.process.is_running()).then_some(());
        eventually("the operator to end", ended, async || self.last_words()).await;
    }

    pub async fn metrics(&self) -> String {
        let line = self
            .await_line("metrics are listened for", |line| {
                line["setting"] == "METRICS_BIND_ADDRESS" && line["message"] == "listening"
            })
            .await;
        let config = Config::new(format!("http://{}", line["address"].as_str().unwrap()).parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let request = http::Request::get("/metrics").body(Body::empty()).unwrap();
        let response = client.send(request).await.unwrap();
        let bytes = response.into_body().collect_bytes().await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    /// The value of a series.
    pub async fn metric(&self, series: &str) -> Option<f64> {
        let text = self.metrics().await;
        text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }
}
