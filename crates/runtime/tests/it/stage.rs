//! Test environment: one server for all tests, one namespace per test, and the operator as a process.

use std::{
    fmt::Debug,
    future::Future,
    path::PathBuf,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{ConfigMap, Namespace},
        events::v1::Event,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config, CustomResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    client::Body,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::sync::OnceCell;
use vitistack_runtime::permissions::{PERMISSIONS, Permission, PermissionScope};
use vitistack_testkit::{Guarded, KubeServer, Options, User};

use crate::widget::{Widget, WidgetSpec};

/// Maximum time to wait for anything. Reached only if something is broken.
const LIMIT: Duration = Duration::from_mins(2);
/// The user of the operators, with exactly the permissions that the runtime and the example declare.
pub const OPERATOR: &str = "operator";

static SERVER: OnceCell<KubeServer> = OnceCell::const_new();

/// Returns the server that all tests share.
pub async fn shared_server() -> &'static KubeServer {
    SERVER.get_or_init(new_server).await
}

/// Starts a separate server, for a test that stops it.
pub async fn new_server() -> KubeServer {
    let users = vec![User::new(OPERATOR, &[]), User::new("scraper", &[]), User::new("stranger", &[])];
    let server = KubeServer::start(&Options { users, ..Options::default() }).await.unwrap();
    let client = server.client().await.unwrap();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.create(&PostParams::default(), &Widget::crd()).await.unwrap();
    eventually("the kind to be served", async || {
        let crd = crds.get("widgets.example.io").await.ok()?;
        let conditions = crd.status?.conditions?;
        conditions.iter().any(|each| each.type_ == "Established" && each.status == "True").then_some(())
    })
    .await;
    bind(&client, "runtime", None, rules(|permission| permission.scope != PermissionScope::OwnNamespace))
        .await;
    let example = json!([
        {"apiGroups": ["example.io"], "resources": ["widgets", "widgets/status"], "verbs": ["list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
    ]);
    bind(&client, "example", None, example).await;
    server
}

/// Returns the rules that the runtime declares.
fn rules(is_wanted: impl Fn(&Permission) -> bool) -> Value {
    let wanted = PERMISSIONS.iter().filter(|permission| is_wanted(permission));
    wanted
        .map(|rule| json!({"apiGroups": [rule.group], "resources": rule.resources, "verbs": rule.verbs}))
        .collect()
}

/// Grants these permissions to the operator's user, in one namespace or in all.
async fn bind(client: &Client, name: &str, namespace: Option<&str>, rules: Value) {
    let prefix = if namespace.is_some() { "" } else { "Cluster" };
    let group = "rbac.authorization.k8s.io";
    let role = json!({"metadata": {"name": name}, "rules": rules});
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": format!("{prefix}Role"), "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": OPERATOR}],
    });
    for (kind, object) in [("Role", role), ("RoleBinding", binding)] {
        let kind = GroupVersionKind::gvk(group, "v1", &format!("{prefix}{kind}"));
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }
}

/// Waits until `look` returns a value.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let limit = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < limit, "waited too long for {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A namespace and its APIs.
pub struct Stage<'a> {
    pub server: &'a KubeServer,
    pub namespace: String,
    pub client: Client,
    pub widgets: Api<Widget>,
    pub maps: Api<ConfigMap>,
    pub leases: Api<Lease>,
}

impl<'a> Stage<'a> {
    pub async fn new(server: &'a KubeServer, namespace: &str) -> Self {
        let client = server.client().await.unwrap();
        let object: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
        bind(
            &client,
            "runtime",
            Some(namespace),
            rules(|permission| permission.scope == PermissionScope::OwnNamespace),
        )
        .await;
        Self {
            server,
            namespace: namespace.to_owned(),
            widgets: Api::namespaced(client.clone(), namespace),
            maps: Api::namespaced(client.clone(), namespace),
            leases: Api::namespaced(client.clone(), namespace),
            client,
        }
    }

    pub async fn create(&self, name: &str, text: &str, copies: usize) {
        let widget = Widget::new(name, WidgetSpec { text: text.to_owned(), copies });
        self.widgets.create(&PostParams::default(), &widget).await.unwrap();
    }

    pub async fn patch(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.widgets.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Returns the text of a config map, if it exists.
    pub async fn text(&self, name: &str) -> Option<String> {
        self.maps.get_opt(name).await.unwrap()?.data?.remove("text")
    }

    pub async fn await_text(&self, name: &str, text: &str) {
        eventually(&format!("{name} to contain {text:?}"), async || {
            (self.text(name).await.as_deref() == Some(text)).then_some(())
        })
        .await;
    }

    /// Waits until the Ready condition of the current generation has this status, and returns its message.
    pub async fn await_ready(&self, name: &str, is_ready: bool) -> String {
        eventually(&format!("{name} to be ready: {is_ready}"), async || {
            let widget = self.widgets.get(name).await.unwrap();
            let condition = widget.status?.conditions.into_iter().find(|each| each.type_ == "Ready")?;
            let is_current = condition.observed_generation == widget.metadata.generation;
            let wanted = if is_ready { "True" } else { "False" };
            (is_current && condition.status == wanted).then_some(condition.message)
        })
        .await
    }

    /// Waits for an Event about an object.
    pub async fn await_event(&self, name: &str, reason: &str) -> Event {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        eventually(&format!("an Event {reason} about {name}"), async || {
            let found = events.list(&ListParams::default()).await.unwrap().items;
            found.into_iter().find(|event| {
                let about = event.regarding.as_ref().and_then(|about| about.name.as_deref());
                about == Some(name) && event.reason.as_deref() == Some(reason)
            })
        })
        .await
    }

    /// Returns an API that accepts any object of the kind, including one that the Rust type cannot decode.
    pub fn loose_widgets(&self) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<Widget>(&());
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// Starts the operator in this namespace.
    pub fn operator(&self, variables: &[(&str, &str)]) -> Replica {
        let log = NamedTempFile::new().unwrap();
        let kubeconfig = self.server.kubeconfig_of(OPERATOR);
        let settings = [
            ("KUBECONFIG", kubeconfig.to_str().unwrap()),
            ("NAMESPACE", &self.namespace),
            ("WIDGETS_NAMESPACE", &self.namespace),
            ("METRICS_BIND_ADDRESS", "127.0.0.1:0"),
            ("HEALTH_PROBE_BIND_ADDRESS", "127.0.0.1:0"),
            ("LOG_FORMAT", "json"),
            ("RECONCILE_INTERVAL", "1s"),
        ];
        let variables = settings.iter().chain(variables).map(|(name, value)| format!("{name}={value}"));
        let arguments: Vec<String> = variables.chain([widgets().to_str().unwrap().to_owned()]).collect();
        let program = std::path::Path::new("/usr/bin/env");
        let process = Guarded::start(program, arguments, log.reopen().unwrap(), None).unwrap();
        Replica { process, log }
    }
}

fn widgets() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples/widgets")
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

    pub fn is_alive(&self) -> bool {
        self.process.is_running()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.process.pid()).unwrap()
    }

    pub async fn await_end(&self) {
        eventually("the operator to end", async || (!self.is_alive()).then_some(())).await;
    }

    /// Waits for a line of the log whose message starts like this.
    pub async fn await_line(&self, message: &str) -> Value {
        eventually(&format!("the operator to log {message:?}"), async || {
            assert!(self.is_alive(), "the operator ended: {:?}", self.log());
            let is_it = |line: &Value| line["message"].as_str().is_some_and(|text| text.starts_with(message));
            self.log().into_iter().find(is_it)
        })
        .await
    }

    /// Returns the address of a server of the operator.
    async fn address(&self, setting: &str) -> String {
        eventually(&format!("{setting} to be listened on"), async || {
            let log = self.log();
            let line =
                log.iter().find(|line| line["setting"] == setting && line["message"] == "listening")?;
            Some(line["address"].as_str()?.to_owned())
        })
        .await
    }

    /// Returns the response of a probe.
    pub async fn probe(&self, path: &str) -> (u16, String) {
        let address = self.address("HEALTH_PROBE_BIND_ADDRESS").await;
        fetch(&format!("http://{address}"), path, None).await
    }

    /// Returns the response of the metrics server.
    pub async fn metrics(&self, scheme: &str, token: Option<&str>) -> (u16, String) {
        let address = self.address("METRICS_BIND_ADDRESS").await;
        fetch(&format!("{scheme}://{address}"), "/metrics", token).await
    }

    /// Waits until a probe responds with this code, and returns the body.
    pub async fn await_probe(&self, path: &str, code: u16) -> String {
        eventually(&format!("{path} to respond with {code}"), async || {
            let (response, text) = self.probe(path).await;
            (response == code).then_some(text)
        })
        .await
    }
}

async fn fetch(base: &str, path: &str, token: Option<&str>) -> (u16, String) {
    let mut config = Config::new(base.parse().unwrap());
    config.accept_invalid_certs = true;
    let client = Client::try_from(config).unwrap();
    let mut request = http::Request::get(path);
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let response = client.send(request.body(Body::empty()).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let text = response.into_body().collect_bytes().await.unwrap();
    (code, String::from_utf8(text.to_vec()).unwrap())
}

/// Asserts that a text contains all of these.
#[track_caller]
pub fn assert_contains(text: &(impl Debug + AsRef<str>), parts: &[&str]) {
    for part in parts {
        assert!(text.as_ref().contains(part), "{part:?} is missing in {text:?}");
    }
}
