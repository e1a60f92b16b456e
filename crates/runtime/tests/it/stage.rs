//! A namespace of its own for every test, on one server for all of them, and the operator as a process.

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
use vitistack_runtime::permissions::{PERMISSIONS, Permission};
use vitistack_testkit::{Guarded, KubeServer, Options, User};

use crate::widget::{Widget, WidgetSpec};

/// Longest wait for anything. Reached only when something is broken.
const LIMIT: Duration = Duration::from_mins(2);
/// The user as whom operators run, with exactly the rights that the kit and the example say they need.
pub const OPERATOR: &str = "operator";

static SERVER: OnceCell<KubeServer> = OnceCell::const_new();

/// The server that all tests share.
pub async fn shared_server() -> &'static KubeServer {
    SERVER.get_or_init(new_server).await
}

/// A server of its own, for a test that stops it.
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
    bind(&client, "kit", None, rules(|permission| !permission.own_namespace_only)).await;
    let example = json!([
        {"apiGroups": ["example.io"], "resources": ["widgets", "widgets/status"], "verbs": ["list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
    ]);
    bind(&client, "example", None, example).await;
    server
}

/// The rules that the kit says it needs.
fn rules(is_wanted: impl Fn(&Permission) -> bool) -> Value {
    let wanted = PERMISSIONS.iter().filter(|permission| is_wanted(permission));
    wanted
        .map(|rule| json!({"apiGroups": [rule.group], "resources": rule.resources, "verbs": rule.verbs}))
        .collect()
}

/// Gives the operator's user these rights, in one namespace or everywhere.
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

/// Waits until `look` finds something.
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

/// A namespace with what a test looks at.
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
        bind(&client, "kit", Some(namespace), rules(|permission| permission.own_namespace_only)).await;
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

    /// The text in a config map, if it is there.
    pub async fn text(&self, name: &str) -> Option<String> {
        self.maps.get_opt(name).await.unwrap()?.data?.remove("text")
    }

    pub async fn await_text(&self, name: &str, text: &str) {
        eventually(&format!("{name} to say {text:?}"), async || {
            (self.text(name).await.as_deref() == Some(text)).then_some(())
        })
        .await;
    }

    /// Waits until the widget says of its present generation whether it is ready, and returns the message.
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

    /// Any object of the test's kind, also one that does not fit the Rust type.
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

    /// Waits for a line of the log with this message.
    pub async fn await_line(&self, message: &str) -> Value {
        eventually(&format!("the operator to say {message:?}"), async || {
            assert!(self.is_alive(), "the operator ended: {:?}", self.log());
            self.log().into_iter().find(|line| line["message"] == message)
        })
        .await
    }

    /// The address of a server of the operator.
    async fn address(&self, setting: &str) -> String {
        eventually(&format!("{setting} to be listened on"), async || {
            let log = self.log();
            let line =
                log.iter().find(|line| line["setting"] == setting && line["message"] == "listening")?;
            Some(line["address"].as_str()?.to_owned())
        })
        .await
    }

    /// The answer of a probe.
    pub async fn probe(&self, path: &str) -> (u16, String) {
        let address = self.address("HEALTH_PROBE_BIND_ADDRESS").await;
        fetch(&format!("http://{address}"), path, None).await
    }

    /// The answer of the metrics server.
    pub async fn metrics(&self, scheme: &str, token: Option<&str>) -> (u16, String) {
        let address = self.address("METRICS_BIND_ADDRESS").await;
        fetch(&format!("{scheme}://{address}"), "/metrics", token).await
    }

    /// Waits until a probe answers so, and returns what it says.
    pub async fn await_probe(&self, path: &str, code: u16) -> String {
        eventually(&format!("{path} to answer {code}"), async || {
            let (answered, text) = self.probe(path).await;
            (answered == code).then_some(text)
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
pub fn says(text: &(impl Debug + AsRef<str>), words: &[&str]) {
    for word in words {
        assert!(text.as_ref().contains(word), "{word:?} is missing in {text:?}");
    }
}
