//! The commands that read objects.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use futures::StreamExt;
use http::StatusCode;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use vitistack_types::{
    ObjectReference, SecretKeyReference,
    conditions::reason,
    labels,
    v1alpha1::{
        CloudInit, Datacenter, DatacenterStatus, Disk, Machine, MachinePhase, MachineProvider,
        MachineProviderStatus, MachineStatus, Phase, ProviderReference, ProviderType, ResourceQuotas,
    },
};

use crate::stage::{Stage, condition, write_kubeconfig};

fn annotate(metadata: &mut ObjectMeta, name: &str, value: &str) {
    metadata.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

/// A Machine of the Datacenter `west`, placed on `provider`.
fn machine(
    stage: &Stage,
    name: &str,
    provider: Option<&str>,
    phase: MachinePhase,
    why: (&str, &str),
) -> Machine {
    let mut machine = Machine::builder()
        .template("small")
        .datacenter_ref(ObjectReference::builder().name("west").build())
        .build(name, "default")
        .unwrap();
    machine.metadata.labels = Some([("app".to_owned(), name.split('-').next().unwrap().to_owned())].into());
    let placed = provider.map(|provider| {
        annotate(&mut machine.metadata, labels::PLACEMENT, &format!("default/{provider}"));
        machine.metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
        ObjectReference::builder().name(provider).namespace("default").build()
    });
    let is_ready = phase == MachinePhase::Running;
    machine.status = Some(MachineStatus {
        phase: Some(phase),
        observed_generation: Some(1),
        conditions: vec![condition(stage, "Ready", is_ready, why.0, why.1)],
        provider: placed,
        ip_addresses: if is_ready { vec!["10.0.0.7".to_owned()] } else { Vec::new() },
        ..MachineStatus::default()
    });
    machine
}

/// A Datacenter with two providers, one of them unreachable, and six machines, one failed and one over quota.
async fn small_platform() -> Stage {
    let stage = Stage::new().await;
    stage.namespace("team-a").await;
    stage.namespace(labels::SYSTEM_NAMESPACE).await;
    create_providers(&stage).await;
    let runs = (reason::RUNNING, "The machine is running");
    for name in ["web-1", "web-2", "web-3"] {
        stage.create(machine(&stage, name, Some("simulated-a"), MachinePhase::Running, runs)).await;
    }
    let crashed = (reason::VM_FAILED, "The guest crashes: check its console");
    stage.create(machine(&stage, "db-1", Some("simulated-a"), MachinePhase::Failed, crashed)).await;
    let away = (reason::PROVIDER_UNREACHABLE, "default/simulated-b does not answer: check that it runs");
    stage.create(machine(&stage, "cache-1", Some("simulated-b"), MachinePhase::Pending, away)).await;
    let full = (
        reason::QUOTA_EXCEEDED,
        "the Datacenter's resourceQuotas.maxMachines is 5, of which 5 is used, and this machine needs 1 more: raise the quota, or delete or shrink machines",
    );
    stage.create(machine(&stage, "web-4", None, MachinePhase::Failed, full)).await;
    let disks = [Disk::builder().name("root").size("40Gi".parse().unwrap()).build()];
    stage.create(Machine::builder().template("large").disks(disks).build("lonely", "team-a").unwrap()).await;
    for operator in ["datacenter", "machine-provider", "simulated"] {
        stage.operator(operator).await;
    }
    stage.event("db-1", "Normal", "Created", "Waiting for the provider to create the machine").await;
    stage.event("db-1", "Warning", "VMFailed", "The guest crashes: check its console").await;
    stage
}

async fn create_providers(stage: &Stage) {
    let reference = |name: &str, rank: u16| ProviderReference::builder().name(name).priority(rank).build();
    let mut west = Datacenter::builder()
        .region("us-west")
        .machine_providers([reference("simulated-b", 2), reference("simulated-a", 1), reference("gone", 3)])
        .resource_quotas(ResourceQuotas::builder().max_machines(5).build())
        .build("west", "default")
        .unwrap();
    west.status = Some(DatacenterStatus {
        phase: Some(Phase::Ready),
        conditions: vec![condition(
            stage,
            "Ready",
            true,
            reason::AS_SPECIFIED,
            "1 of 3 providers accept machines",
        )],
        ..DatacenterStatus::default()
    });
    stage.create(west).await;
    for (name, phase, ready, reason, message) in [
        ("simulated-a", Phase::Ready, true, reason::AS_SPECIFIED, "The provider accepts machines"),
        (
            "simulated-b",
            Phase::Failed,
            false,
            reason::PROVIDER_UNREACHABLE,
            "10.0.0.1:8006 does not answer: check that it runs",
        ),
    ] {
        let mut provider =
            MachineProvider::builder().provider_type(ProviderType::Simulated).build(name, "default").unwrap();
        provider.status = Some(MachineProviderStatus {
            phase: Some(phase),
            conditions: vec![condition(stage, "Ready", ready, reason, message)],
            ..MachineProviderStatus::default()
        });
        stage.create(provider).await;
    }
}

async fn pages(stage: &Stage, commands: &[&[&str]]) -> String {
    let mut pages = Vec::new();
    for command in commands {
        pages.push(stage.transcript(command).await);
    }
    pages.join("\n\n")
}

/// Replaces timestamps, which differ between runs, by `TIME`.
fn timeless(text: &str) -> String {
    let is_time = |text: &str| text.trim_matches(['"', ',', ' ']).parse::<Timestamp>().is_ok();
    let line = |line: &str| match line.rsplit_once(": ") {
        Some((name, value)) if is_time(value) => format!("{name}: TIME"),
        _ => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn json_and_yaml_contain_the_same_as_text() {
    let stage = small_platform().await;
    let commands: [&[&str]; 5] = [
        &["why", "machine/db-1", "-o", "json"],
        &["why", "machine/web-1", "-o", "yaml"],
        &["describe", "machine/db-1", "-o", "json"],
        &["describe", "datacenter/west", "-o", "yaml"],
        &["why", "machine/web-1", "-o", "wide"],
    ];
    insta::assert_snapshot!(timeless(&pages(&stage, &commands).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn get_lists_objects() {
    let stage = small_platform().await;
    let commands: [&[&str]; 8] = [
        &["get"],
        &["get", "machines", "-A"],
        &["get", "vsm", "-l", "app=web", "-o", "wide"],
        &["get", "machine", "db-1"],
        &["get", "machine/db-1", "-o", "name"],
        &["get", "all", "-n", "team-a", "-o", "name"],
        &["get", "machineclass"],
        &["get", "machine", "unknown"],
    ];
    insta::assert_snapshot!(pages(&stage, &commands).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_printed_without_managed_fields() {
    let stage = small_platform().await;
    let list = stage.run(&["get", "machines", "-o", "json"]).await;
    let list: Value = serde_json::from_str(&list.output).unwrap();
    let names: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["cache-1", "db-1", "web-1", "web-2", "web-3", "web-4"]);
    assert_eq!(list["items"][0]["kind"], "Machine");
    assert_eq!(list["items"][0]["metadata"].get("managedFields"), None);
    let one = stage.run(&["get", "machine", "db-1", "-o", "yaml"]).await.output;
    assert!(one.contains("kind: Machine") && one.contains("reason: VMFailed"), "{one}");
    assert!(!one.contains("managedFields"), "{one}");
}

#[tokio::test(flavor = "multi_thread")]
async fn describe_shows_the_tree_with_failures_first() {
    let stage = small_platform().await;
    let commands: [&[&str]; 5] = [
        &["describe", "datacenter/west"],
        &["describe", "machineprovider", "simulated-a"],
        &["describe", "machine", "db-1"],
        &["describe", "machine/lonely", "-n", "team-a"],
        &["describe", "machine"],
    ];
    insta::assert_snapshot!(pages(&stage, &commands).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn why_names_the_blocking_object() {
    let stage = small_platform().await;
    let commands: [&[&str]; 7] = [
        &["why", "machine/web-1"],
        &["why", "machine/db-1"],
        &["why", "machine/cache-1"],
        &["why", "machine/web-4"],
        &["why", "vsm", "lonely", "-n", "team-a"],
        &["why", "datacenter/west"],
        &["why", "machine/unknown"],
    ];
    insta::assert_snapshot!(pages(&stage, &commands).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn why_without_an_object_lists_every_cause() {
    let stage = small_platform().await;
    let mut big =
        machine(&stage, "big-1", None, MachinePhase::Failed, (reason::TEMPLATE_NOT_FOUND, "not found"));
    big.spec.template = Some("huge".to_owned());
    stage.create(big).await;
    for number in 0..7 {
        let away = (reason::PROVIDER_UNREACHABLE, "default/simulated-b does not answer: check that it runs");
        let name = format!("far-{number}");
        stage.create(machine(&stage, &name, Some("simulated-b"), MachinePhase::Pending, away)).await;
    }
    let commands: [&[&str]; 6] = [
        &["why"],
        &["why", "-A"],
        &["why", "-n", "team-a"],
        &["why", "-n", "vitistack-system"],
        &["why", "-n", "default", "-o", "json"],
        &["why", "machine/big-1", "-A"],
    ];
    insta::assert_snapshot!(timeless(&pages(&stage, &commands).await));

    let empty = Stage::new().await;
    empty.namespace(labels::SYSTEM_NAMESPACE).await;
    insta::assert_snapshot!(empty.transcript(&["why", "-A"]).await, @r"
    $ vitistack why -A
    Everything is ready.
    (exit 0)
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn why_without_an_object_asks_as_often_for_many_machines_as_for_one() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let stage = Stage::with(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        None
    })
    .await;
    let create = |number: usize| {
        let secret = SecretKeyReference::builder().name(format!("data-{number}")).key("userdata").build();
        let machine = Machine::builder()
            .template("huge")
            .cloud_init(CloudInit::builder().secret_ref(secret).build())
            .build(&format!("vm-{number}"), "default");
        stage.create(machine.unwrap())
    };

    create(0).await;
    let one = stage.run(&["why", "-A"]).await;
    let for_one = requests.swap(0, Ordering::Relaxed);
    for number in 1..100 {
        create(number).await;
    }
    let many = stage.run(&["why", "-A"]).await;
    assert_eq!(requests.load(Ordering::Relaxed), for_one);
    assert!(one.output.contains("TemplateNotFound"), "{}", one.output);
    assert!(many.output.contains("100 objects"), "{}", many.output);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_shown_newest_last() {
    let stage = small_platform().await;
    let commands: [&[&str]; 3] =
        [&["events"], &["events", "machine/db-1", "-A"], &["events", "machine", "web-1"]];
    insta::assert_snapshot!(pages(&stage, &commands).await);
}

/// Returns the next line of a command. It is read on another thread, since this process serves the API.
async fn next<I: Iterator<Item = String> + Send + 'static>(lines: I) -> (String, I) {
    let read = tokio::task::spawn_blocking(move || {
        let mut lines = lines;
        (lines.next().unwrap(), lines)
    });
    tokio::time::timeout(std::time::Duration::from_mins(1), read).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_prints_a_line_per_change_and_exits_with_zero_on_interrupt() {
    let stage = small_platform().await;
    let (mut process, lines) = stage.start(&["watch", "machines", "-l", "app=db"]);
    let (existing, lines) = next(lines).await;
    let api: Api<Machine> = Api::namespaced(stage.client.clone(), "default");
    let patch = Patch::Merge(json!({"status": {"phase": "Running"}}));
    api.patch_status("db-1", &PatchParams::default(), &patch).await.unwrap();
    let (changed, lines) = next(lines).await;
    let cells = |line: &str| line.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
    assert_eq!(cells(&existing)[..4], ["existing", "db-1", "False", "Failed"]);
    assert_eq!(cells(&changed)[..4], ["changed", "db-1", "False", "Running"]);
    let ended = tokio::task::spawn_blocking(move || {
        let id = process.0.id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        process.0.wait().unwrap()
    });
    assert!(ended.await.unwrap().success());
    drop(lines);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_watched() {
    let stage = small_platform().await;
    let (_process, lines) = stage.start(&["events", "machine/db-1", "--watch"]);
    let (_heading, lines) = next(lines).await;
    let (_created, lines) = next(lines).await;
    let (_failed, lines) = next(lines).await;
    stage.event("db-1", "Normal", "Restarted", "restart: asked for").await;
    let (line, _lines) = next(lines).await;
    assert!(line.contains("Restarted") && line.contains("machine/db-1"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_errors_name_the_fix() {
    let bare = Stage::bare(Arc::new(|_| None)).await;
    let whole = Stage::new().await;
    let refusing = Stage::bare(Arc::new(|_| Some(StatusCode::FORBIDDEN))).await;
    let unknown = Stage::bare(Arc::new(|_| Some(StatusCode::UNAUTHORIZED))).await;
    let away = Stage::bare(Arc::new(|_| None)).await;
    let port = vitistack_testkit::free_port().unwrap();
    write_kubeconfig(&away.directory.path().join("kubeconfig"), &format!("http://127.0.0.1:{port}"));
    let mut report = vec![
        bare.transcript(&["get", "machines"]).await,
        bare.transcript(&["get"]).await,
        refusing.transcript(&["get", "machines"]).await,
        unknown.transcript(&["get", "machines"]).await,
        away.transcript(&["get", "machines"]).await,
        away.transcript(&["why", "machine/web-1"]).await,
        whole.transcript(&["get", "machines", "--context", "nothing"]).await,
        whole.transcript(&["get", "machines", "--kubeconfig", "/nothing/here"]).await,
        whole.transcript(&["get", "pods"]).await,
        whole.transcript(&["get", "machines", "-A", "-n", "default"]).await,
    ];
    report.push(without_kubeconfig(whole.directory.path()));
    insta::assert_snapshot!(report.join("\n\n"));
}

/// Runs the binary without any kubeconfig.
fn without_kubeconfig(directory: &std::path::Path) -> String {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_vitistack"))
        .args(["get", "machines"])
        .env_remove("KUBECONFIG")
        .env("HOME", directory)
        .current_dir(directory)
        .output()
        .unwrap();
    format!(
        "$ vitistack get machines\n{}(exit {})",
        String::from_utf8(output.stderr).unwrap(),
        output.status.code().unwrap()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_is_paged_and_a_partial_list_is_reported() {
    let requests = Arc::new(AtomicUsize::new(0));
    let is_broken = Arc::new(AtomicBool::new(false));
    let (counted, broken) = (Arc::clone(&requests), Arc::clone(&is_broken));
    let stage = Stage::with(move |request| {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let is_list = path.ends_with("/machines") && request.method() == http::Method::GET;
        counted.fetch_add(usize::from(is_list), Ordering::Relaxed);
        if !broken.load(Ordering::Relaxed) {
            return None;
        }
        let is_later_page = query.contains("continue=");
        let is_refused_kind = path.ends_with("/datacenters") && query.contains("limit=");
        is_later_page
            .then_some(StatusCode::INTERNAL_SERVER_ERROR)
            .or(is_refused_kind.then_some(StatusCode::FORBIDDEN))
    })
    .await;
    let machines = (0..1001).map(|number| {
        let name = format!("vm-{number:04}");
        stage.create(Machine::builder().template("small").build(&name, "default").unwrap())
    });
    futures::stream::iter(machines).buffer_unordered(16).collect::<Vec<()>>().await;

    let report = stage.run(&["get", "machines"]).await;
    assert_eq!((report.code, report.output.lines().count()), (0, 1002));
    assert_eq!(requests.load(Ordering::Relaxed), 2);

    is_broken.store(true, Ordering::Relaxed);
    let report = stage.run(&["get", "machines", "-o", "name"]).await;
    assert_eq!((report.code, report.output.lines().count()), (3, 1000));
    insta::assert_snapshot!(report.errors);
    let report = stage.run(&["get", "-o", "name"]).await;
    assert_eq!((report.code, report.output.lines().count()), (3, 1000));
    assert!(report.errors.contains("not allowed to list datacenters"), "{}", report.errors);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_object_does_not_hide_the_others() {
    let stage = small_platform().await;
    // A phase of a newer version, which this build does not know.
    let definitions: Api<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    > = Api::all(stage.client.clone());
    let loose = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/status", "value": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}]);
    let patch = Patch::<()>::Json(serde_json::from_value(loose).unwrap());
    definitions.patch("machines.vitistack.io", &PatchParams::default(), &patch).await.unwrap();
    let api: Api<kube::api::DynamicObject> =
        Api::namespaced_with(stage.client.clone(), "default", &kube::api::ApiResource::erase::<Machine>(&()));
    let odd = Patch::Merge(json!({"status": {"phase": "Levitating", "conditions": "many"}}));
    api.patch_status("web-2", &PatchParams::default(), &odd).await.unwrap();
    let commands: [&[&str]; 2] = [&["get", "machines"], &["describe", "machineprovider/simulated-a"]];
    insta::assert_snapshot!(pages(&stage, &commands).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_cannot_be_read_are_reported() {
    let stage = Stage::with(|request| {
        let path = request.uri().path();
        (path.contains("/leases") || path.contains("/secrets/")).then_some(StatusCode::FORBIDDEN)
    })
    .await;
    let machine = json!({
        "apiVersion": "vitistack.io/v1alpha1", "kind": "Machine",
        "metadata": {"name": "web-1", "namespace": "default"},
        "spec": {
            "template": "small", "providerRef": {"name": "simulated-a"},
            "cloudInit": {"secretRef": {"name": "web-data", "key": "userdata"}},
        },
    });
    create_providers(&stage).await;
    stage.create::<Machine>(serde_json::from_value(machine).unwrap()).await;
    insta::assert_snapshot!(stage.transcript(&["why", "machine/web-1"]).await);
}

#[test]
fn help_of_the_kubectl_plugin() {
    let directory = tempfile::TempDir::new().unwrap();
    let link = directory.path().join("kubectl-vitistack");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_vitistack"), &link).unwrap();
    let output =
        std::process::Command::new(&link).args(["why", "-h"]).env("COLUMNS", "100").output().unwrap();
    insta::assert_snapshot!(String::from_utf8(output.stdout).unwrap());
}
