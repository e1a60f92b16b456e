//! The KubeVirt operator as a separate process, on a real kube-apiserver.

use std::time::{Duration, Instant};

use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Namespace, storage::v1::StorageClass},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, api::PostParams, runtime::wait::await_condition};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use snafu::{ResultExt, Whatever, whatever};
use tempfile::NamedTempFile;
use vitistack_testkit::{AuditedRequest, Guarded, KubeServer, KubeVirt, Options, User};
use vitistack_types::{
    definitions,
    labels::SYSTEM_NAMESPACE,
    v1alpha1::{Machine, MachinePhase},
};

use super::{Figures, as_float, bare::Bare, crowd::Crowd, load::resident, program, standin::StandIn};

/// The user whose requests are counted.
const OPERATOR: &str = "kubevirt-operator";
/// The delay before idle requests are counted: one resync, so that pending work is finished.
const SETTLED: Duration = Duration::from_secs(35);
/// The maximum time for the operator to become the leader.
const LIMIT: Duration = Duration::from_mins(2);

/// The figures of the Go operator for a thousand Machines, measured the same way.
mod go {
    pub const ALL_RUNNING: f64 = 621.0;
    pub const REQUESTS: f64 = 19.3;
    pub const REQUESTS_AT_REST: f64 = 1500.0;
    pub const ONE_MORE: f64 = 599.0;
    pub const ALL_DELETED: f64 = 805.0;
    pub const RESIDENT: f64 = 112.0;
}

/// Measures everything.
pub async fn measure(count: usize, rest: Duration) -> Result<Figures, Whatever> {
    let mut figures = Figures::default();
    let users = vec![User::new(OPERATOR, &["system:masters"])];
    let options = Options { users, ..Options::default() };
    let server = KubeServer::start(&options).await.whatever_context("failed to start the kube-apiserver")?;
    let user = server.client().await.whatever_context("failed to create a client")?;
    install(&server, &user).await?;
    let mut standin = StandIn::start(&server.client().await.whatever_context("failed to create a client")?);
    let (operator, _log) = start(&server, &user).await?;
    let crowd = Crowd::new(&user, None);

    let before = requests(&server)?;
    let started = Instant::now();
    let (seen, created) = tokio::join!(crowd.until(count, is_running), crowd.create(count));
    created?;
    seen?;
    let all_running = started.elapsed().as_secs_f64();
    figures.beside_go("all_running", all_running, go::ALL_RUNNING, "s");
    let created = since(&before, requests(&server)?);
    figures.beside_go(
        "requests_until_running",
        created.requests / as_float(count),
        go::REQUESTS,
        "per_machine",
    );
    figures.add("writes_until_running", created.writes / as_float(count), "per_machine");

    tokio::time::sleep(SETTLED).await;
    figures.beside_go("rss_running", resident(operator.pid())?, go::RESIDENT, "MiB");
    let before = requests(&server)?;
    tokio::time::sleep(rest).await;
    let idle = since(&before, requests(&server)?);
    let minutes = rest.as_secs_f64() / 60.0;
    figures.beside_go("requests_at_rest", idle.requests / minutes, go::REQUESTS_AT_REST, "per_minute");
    figures.add("writes_at_rest", idle.writes, "writes");

    let started = Instant::now();
    crowd.create_one("one-more").await?;
    crowd.until(count + 1, is_running).await?;
    figures.beside_go("one_more_running", started.elapsed().as_secs_f64(), go::ONE_MORE, "s");
    let bare = Bare::read(&user, "vm-0").await?;

    let before = requests(&server)?;
    let started = Instant::now();
    crowd.delete().await?;
    crowd.until(0, |_| true).await?;
    figures.beside_go("all_deleted", started.elapsed().as_secs_f64(), go::ALL_DELETED, "s");
    let deleted = since(&before, requests(&server)?);
    figures.add("requests_until_deleted", deleted.requests / as_float(count), "per_machine");
    figures.add("writes_until_deleted", deleted.writes / as_float(count), "per_machine");
    figures.add("rss_deleted", resident(operator.pid())?, "MiB");
    if !standin.is_running() {
        whatever!("the stand-in for KubeVirt ended too early");
    }
    drop((operator, standin));
    let bare = bare.measure(count).await?.as_secs_f64();
    figures.add("all_written_bare", bare, "s");
    figures.add("all_running_over_bare", all_running / bare, "times");
    Ok(figures)
}

fn is_running(machine: &Machine) -> bool {
    machine.status.as_ref().is_some_and(|status| status.phase == Some(MachinePhase::Running))
}

/// Installs the CRDs, the operator's namespace and a default storage class.
async fn install(server: &KubeServer, client: &Client) -> Result<(), Whatever> {
    KubeVirt::install_crds(server).whatever_context("failed to install KubeVirt's CRDs")?;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions() {
        api.create(&PostParams::default(), &definition).await.whatever_context("failed to install a CRD")?;
    }
    let limit = format!("--timeout={}s", LIMIT.as_secs());
    let waited = server.kubectl(&["wait", "--for=condition=Established", &limit, "crd", "--all"]);
    if !waited.is_ok_and(|output| output.status.success()) {
        whatever!("the CRDs are not established");
    }
    let namespace: Namespace = object(json!({ "metadata": { "name": SYSTEM_NAMESPACE } }))?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .whatever_context("failed to create a namespace")?;
    let class: StorageClass = object(json!({
        "metadata": { "name": "standard", "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
        "provisioner": "example.io/none",
    }))?;
    let classes: Api<StorageClass> = Api::all(client.clone());
    classes
        .create(&PostParams::default(), &class)
        .await
        .whatever_context("failed to create a storage class")?;
    Ok(())
}

fn object<K: DeserializeOwned>(value: Value) -> Result<K, Whatever> {
    serde_json::from_value(value).whatever_context("failed to create an object")
}

/// Starts the operator with its defaults and waits until it is the leader.
async fn start(server: &KubeServer, client: &Client) -> Result<(Guarded, NamedTempFile), Whatever> {
    let log = NamedTempFile::new().whatever_context("failed to create a log file")?;
    let kubeconfig = server.kubeconfig_of(OPERATOR).display().to_string();
    let arguments =
        ["run", "kubevirt", "--metrics-bind-address=0", "--health-probe-bind-address=0", "--kubeconfig"];
    let output = log.reopen().whatever_context("failed to open the log file")?;
    let arguments = arguments.into_iter().chain([kubeconfig.as_str()]);
    let operator = Guarded::start(&program()?, arguments, output, None)
        .whatever_context("failed to start the operator")?;
    let leases: Api<Lease> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let is_held = |lease: Option<&Lease>| lease.is_some_and(|lease| lease.spec.is_some());
    let held = tokio::time::timeout(LIMIT, await_condition(leases, OPERATOR, is_held)).await;
    if !matches!(held, Ok(Ok(_))) {
        let text = std::fs::read_to_string(log.path()).unwrap_or_default();
        whatever!("the operator did not become the leader; its log:\n{text}");
    }
    Ok((operator, log))
}

/// Returns the requests of the operator so far.
fn requests(server: &KubeServer) -> Result<Vec<AuditedRequest>, Whatever> {
    let mut requests = server.audit().whatever_context("failed to read the audit log")?;
    requests.retain(|request| request.user == OPERATOR);
    Ok(requests)
}

/// The number of requests.
struct Counts {
    /// All requests, including Events and leases.
    requests: f64,
    /// Writes, without Events and leases.
    writes: f64,
}

/// Counts the requests that were added.
fn since(before: &[AuditedRequest], after: Vec<AuditedRequest>) -> Counts {
    let new = after.into_iter().skip(before.len()).collect::<Vec<_>>();
    let is_counted = |request: &&AuditedRequest| {
        request.is_write() && !["events", "leases"].contains(&request.resource.as_str())
    };
    Counts { requests: as_float(new.len()), writes: as_float(new.iter().filter(is_counted).count()) }
}
