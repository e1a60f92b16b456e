//! An embedded API with test objects and no operators, and the binary as its client.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Output, Stdio},
    sync::Arc,
};

use axum::{Router, body::Body, response::IntoResponse};
use http::{Request, Response, StatusCode};
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{Event, Namespace, ObjectReference},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, ObjectMeta, Time},
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tower::ServiceExt as _;
use vitistack_apiserver::ApiServer;
use vitistack_types::{
    conditions::{self, Statement},
    definitions, labels,
    v1alpha1::Machine,
};

use crate::Killed;

/// Intercepts requests: returns the status of a refusal, or `None` to pass the request to the API.
type Intercept = dyn Fn(&Request<Body>) -> Option<StatusCode> + Send + Sync;

/// A running API and the kubeconfig for it.
pub struct Stage {
    pub client: Client,
    pub directory: tempfile::TempDir,
    /// The creation time of all objects: long enough ago that ages do not change during a test.
    pub created: Timestamp,
}

/// The exit code, standard output and standard error of a command.
pub struct CommandOutput {
    pub code: i32,
    pub output: String,
    pub errors: String,
}

impl Stage {
    /// Starts an API with the CRDs.
    pub async fn new() -> Self {
        Self::with(|_| None).await
    }

    /// Starts an API with the CRDs that refuses some requests.
    pub async fn with(
        intercept: impl Fn(&Request<Body>) -> Option<StatusCode> + Send + Sync + 'static,
    ) -> Self {
        let stage = Self::bare(Arc::new(intercept)).await;
        let api: Api<CustomResourceDefinition> = Api::all(stage.client.clone());
        for definition in definitions() {
            api.create(&PostParams::default(), &definition).await.unwrap();
        }
        stage
    }

    /// Starts an API without the CRDs.
    pub async fn bare(intercept: Arc<Intercept>) -> Self {
        let created = Timestamp::now() - SignedDuration::from_mins(3 * 24 * 60 + 2 * 60 + 30);
        let server = ApiServer::builder().clock(move || created).build().await.unwrap();
        let service = server.service();
        let client = Client::new(server.service(), "default");
        let answer = tower::service_fn(move |request: Request<Body>| {
            let refusal = intercept(&request);
            let service = service.clone();
            async move {
                let response: Response<Body> = match refusal {
                    Some(code) => (code, refused(code).to_string()).into_response(),
                    None => service.oneshot(request).await?,
                };
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            axum::serve(listener, Router::new().fallback_service(answer)).await.unwrap();
        });
        let directory = tempfile::TempDir::new().unwrap();
        write_kubeconfig(&directory.path().join("kubeconfig"), &format!("http://{address}"));
        Self { client, directory, created }
    }

    /// Creates an object with its status.
    pub async fn create<K>(&self, object: K)
    where
        K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
    {
        let document = serde_json::to_value(&object).unwrap();
        let resource = kube::api::ApiResource::erase::<K>(&());
        let dynamic: kube::api::DynamicObject = serde_json::from_value(document.clone()).unwrap();
        let api: Api<kube::api::DynamicObject> = match &object.meta().namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let name = object.meta().name.clone().unwrap();
        api.create(&PostParams::default(), &dynamic).await.unwrap();
        if let Some(status) = document.get("status") {
            let patch = Patch::Merge(json!({"status": status}));
            api.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
        }
    }

    /// Creates a namespace.
    pub async fn namespace(&self, name: &str) {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &namespace).await.unwrap();
    }

    /// Creates the lease of a running operator.
    pub async fn operator(&self, name: &str) {
        let renewed = Timestamp::now() + SignedDuration::from_hours(1);
        let metadata = ObjectMeta { name: Some(format!("{name}-operator")), ..ObjectMeta::default() };
        let spec = LeaseSpec {
            holder_identity: Some("host_1".to_owned()),
            renew_time: Some(MicroTime(renewed)),
            ..LeaseSpec::default()
        };
        let api: Api<Lease> = Api::namespaced(self.client.clone(), labels::SYSTEM_NAMESPACE);
        api.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await.unwrap();
    }

    /// Creates an Event of an operator about a Machine.
    pub async fn event(&self, machine: &str, type_: &str, reason: &str, message: &str) {
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!("{machine}.{}", reason.to_lowercase())),
                namespace: Some("default".to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some(Machine::api_version(&()).into_owned()),
                kind: Some("Machine".to_owned()),
                name: Some(machine.to_owned()),
                namespace: Some("default".to_owned()),
                ..ObjectReference::default()
            },
            type_: Some(type_.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_timestamp: Some(Time(self.created)),
            ..Event::default()
        };
        let api: Api<Event> = Api::namespaced(self.client.clone(), "default");
        api.create(&PostParams::default(), &event).await.unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vitistack"));
        command
            .args(arguments)
            .env("KUBECONFIG", self.directory.path().join("kubeconfig"))
            .env("COLUMNS", "100");
        command
    }

    /// Runs the binary. The API is served by this process, so the test must not block.
    pub async fn run(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = self.command(arguments);
        CommandOutput::from(tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap())
    }

    /// Runs the binary and returns a transcript, with placeholders for what differs between runs.
    pub async fn transcript(&self, arguments: &[&str]) -> String {
        let report = self.run(arguments).await;
        let text = format!(
            "$ vitistack {}\n{}{}(exit {})",
            arguments.join(" "),
            report.output,
            report.errors,
            report.code
        );
        let kubeconfig = std::fs::read_to_string(self.directory.path().join("kubeconfig")).unwrap();
        let server = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("- cluster: {server: \""));
        let server = server.unwrap().trim_end_matches("\"}");
        text.replace(server, "http://the-server")
            .replace(self.directory.path().to_str().unwrap(), "/the/directory")
    }

    /// Starts the binary and returns its lines.
    pub fn start(&self, arguments: &[&str]) -> (Killed, impl Iterator<Item = String> + use<>) {
        let mut process = self.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        (Killed(process), output.lines().map(Result::unwrap))
    }
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap(), output: text(output.stdout), errors: text(output.stderr) }
    }
}

/// A kubeconfig for a server without TLS.
pub fn write_kubeconfig(path: &Path, server: &str) {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: stage\nclusters:\n- cluster: {{server: \"{server}\"}}\n  name: stage\ncontexts:\n- context: {{cluster: stage, user: stage}}\n  name: stage\nusers:\n- name: stage\n  user: {{}}\n"
    );
    std::fs::write(path, text).unwrap();
}

fn refused(code: StatusCode) -> serde_json::Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(),
        "reason": code.canonical_reason().unwrap_or_default().replace(' ', ""), "message": "refused by the test",
    })
}

/// Returns a condition as an operator writes it.
pub fn condition(stage: &Stage, type_: &str, status: bool, reason: &str, message: &str) -> Condition {
    let mut conditions = Vec::new();
    let statement = Statement { type_, status: Some(status), reason, message };
    conditions::set(&mut conditions, &statement, Some(1), stage.created);
    conditions.remove(0)
}
