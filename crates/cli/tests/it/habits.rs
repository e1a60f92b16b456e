//! What users of kubectl expect: names, several objects, selections, output flags, waiting and versions.

use std::time::Duration;

use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::stage::{Stage, write_kubeconfig};

/// Machines with the labels and fields that the tests select and sort by.
const MACHINES: [(&str, &str, &str); 4] = [
    ("default", "web-10", "app: web"),
    ("default", "web-9", "app: web"),
    ("default", "db", "app: db"),
    ("shop", "web-9", "app: web"),
];

async fn platform() -> Stage {
    let stage = Stage::new().await;
    stage.namespace("shop").await;
    for (namespace, name, labels) in MACHINES {
        stage
            .apply(&format!(
                "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {{name: {name}, namespace: {namespace}, labels: {{{labels}}}}}\nspec: {{template: small}}"
            ))
            .await;
    }
    stage
        .apply("apiVersion: vitistack.io/v1alpha1\nkind: Datacenter\nmetadata: {name: west, namespace: default}\nspec: {region: west}")
        .await;
    stage
}

/// Returns the transcripts of several commands.
fn session(stage: &Stage, lines: &[&str]) -> String {
    lines.iter().map(|line| stage.line(line)).collect::<Vec<_>>().join("\n\n")
}

async fn set_status(stage: &Stage, name: &str, status: Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    stage.machines().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Returns the desired power state of a Machine in the namespace `default`.
async fn power_state(stage: &Stage, name: &str) -> Option<Value> {
    stage.machines().get(name).await.unwrap().data.pointer("/spec/powerState").cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_and_names_are_accepted_in_the_forms_of_kubectl() {
    let stage = platform().await;
    insta::assert_snapshot!(session(
        &stage,
        &[
            "get machines.vitistack.io -o name",
            "get machine.v1alpha1.vitistack.io/db -o name",
            "get machine db web-9",
            "get machines,datacenters",
            "get machine/db datacenter/west -o name",
            "get machine/missing machine/db machine/absent -o name",
            "get machine/db db",
            "get machine db -A",
            "get machine db -l app=db",
            "get machines.cluster.x-k8s.io",
        ],
    ));

    // kubectl get vsm -o name | xargs vitistack power off
    let names = stage.run(&["get", "vsm", "-o", "name"]).await.output;
    let off = stage.line(&format!("power off {}", names.replace('\n', " ")));
    assert!(off.ends_with("(exit 0)"), "{off}");
    for name in ["db", "web-9", "web-10"] {
        assert_eq!(power_state(&stage, name).await, Some(json!("Stopped")), "{name}");
    }

    let list: Value =
        serde_json::from_str(&stage.run(&["get", "machine", "db", "web-9", "-o", "json"]).await.output)
            .unwrap();
    assert_eq!((list["kind"].as_str(), list["items"].as_array().map(Vec::len)), (Some("List"), Some(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn get_sorts_and_shows_labels_and_hides_headings() {
    let stage = platform().await;
    for (name, phase, memory) in [("db", "Running", "512Mi"), ("web-9", "Failed", "4Gi")] {
        let resources = json!({ "cpu": 1, "memory": memory, "storage": "1Gi" });
        set_status(&stage, name, json!({ "phase": phase, "resources": resources })).await;
    }
    insta::assert_snapshot!(session(
        &stage,
        &[
            "get machines --no-headers",
            "get machines,datacenters --no-headers",
            "get machines --show-labels",
            "get datacenters --show-labels",
            "get machines --sort-by=.metadata.name -o name",
            "get machines --sort-by={.status.phase} -o name",
            "get machines --sort-by=status.resources.memory -o name",
            "get machines --sort-by=.spec.nothing",
            "get machines --sort-by={.metadata.name",
            "get machines -w --sort-by=.metadata.name",
        ],
    ));
}

/// Returns the next line of a command. It is read on another thread, since this process serves the API.
async fn next<I: Iterator<Item = String> + Send + 'static>(lines: I) -> (String, I) {
    let read = tokio::task::spawn_blocking(move || {
        let mut lines = lines;
        (lines.next().unwrap(), lines)
    });
    tokio::time::timeout(Duration::from_mins(1), read).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn get_watch_prints_a_table_and_then_a_row_per_change() {
    let stage = platform().await;
    let (_process, lines) = stage.start(&["get", "machines", "-l", "app=db", "--watch"]);
    let (heading, lines) = next(lines).await;
    let (existing, lines) = next(lines).await;
    set_status(&stage, "db", json!({ "phase": "Stopped" })).await;
    let (changed, _lines) = next(lines).await;
    let cells = |line: &str| line.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
    assert_eq!(cells(&heading)[..3], ["NAME", "READY", "PHASE"]);
    assert_eq!(cells(&existing)[..3], ["db", "-", "-"]);
    assert_eq!(cells(&changed)[..3], ["db", "-", "Stopped"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn get_watch_refuses_what_it_cannot_follow() {
    let stage = platform().await;
    insta::assert_snapshot!(session(
        &stage,
        &["get -w", "get machine db web-9 -w", "get machines -w -o json", "get machine/nope -w"],
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_selected_by_label_or_all_in_one_or_all_namespaces() {
    let stage = platform().await;
    insta::assert_snapshot!(session(
        &stage,
        &[
            "power off -l app=web --dry-run",
            "power off -l app=web",
            "power off --all --dry-run",
            "power restart --all",
            "power on --all -A",
            "pause -l app=web -A --dry-run",
            "pause machines,datacenters --all",
            "power off -l app=web -A",
            "resume machines -l app=web -A",
            "power on -l app=none",
            "power on -l app=none -A",
            "power on datacenters --all",
            "power on web-9 --all",
            "power on web-9 -A",
            "power on --all -l app=web",
            "power on",
            "pause machine/db --selector app=web",
        ],
    ));
    let other = stage.line("get machine/web-9 -n shop -o json");
    assert!(other.contains("\"powerState\": \"Stopped\""), "{other}");
    let west = stage.objects("vitistack.io/v1alpha1", "Datacenter").get("west").await.unwrap();
    assert_eq!(west.annotations().get("vitistack.io/paused").map(String::as_str), Some("true"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_writes_nothing_and_reports_pending_changes() {
    let stage = platform().await;
    let before = stage.machines().get("db").await.unwrap().resource_version();
    for line in ["power off db", "power restart db", "pause db"] {
        let output = stage.line(&format!("{line} --dry-run"));
        assert!(output.ends_with("(server dry run)\n(exit 2)"), "{output}");
    }
    for line in ["power on db", "resume db"] {
        let output = stage.line(&format!("{line} --dry-run"));
        assert!(output.ends_with("(exit 0)"), "{output}");
    }
    assert_eq!(stage.machines().get("db").await.unwrap().resource_version(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_being_deleted_is_skipped_in_a_selection() {
    let stage = platform().await;
    let held = Patch::Merge(json!({ "metadata": { "finalizers": ["example.com/hold"] } }));
    stage.machines().patch("db", &PatchParams::default(), &held).await.unwrap();
    stage.machines().delete("db", &kube::api::DeleteParams::default()).await.unwrap();
    insta::assert_snapshot!(session(&stage, &["power off --all", "power off db web-9"]));
    assert_eq!(power_state(&stage, "web-9").await, Some(json!("Stopped")));
    assert_eq!(power_state(&stage, "db").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn power_waits_for_the_phase_of_every_machine() {
    let stage = platform().await;
    set_status(&stage, "db", json!({ "phase": "Running", "observedGeneration": 1 })).await;
    // It was stopped before; the status of an old generation does not count.
    set_status(&stage, "web-9", json!({ "phase": "Stopped", "observedGeneration": 1 })).await;
    let (mut process, lines) = stage.start(&["power", "off", "db", "web-9", "--wait"]);
    let (first, lines) = next(lines).await;
    let (second, lines) = next(lines).await;
    assert_eq!((first.as_str(), second.as_str()), ("machine/db powered off", "machine/web-9 powered off"));

    set_status(&stage, "db", json!({ "phase": "Stopped", "observedGeneration": 2 })).await;
    let (reached, lines) = next(lines).await;
    assert_eq!(reached, "machine/db reached phase Stopped");
    assert_eq!(process.0.try_wait().unwrap(), None, "the other machine has not reached the phase");
    set_status(&stage, "web-9", json!({ "observedGeneration": 2 })).await;
    let (reached, _lines) = next(lines).await;
    assert_eq!(reached, "machine/web-9 reached phase Stopped");
    let ended = tokio::task::spawn_blocking(move || process.0.wait().unwrap());
    assert!(ended.await.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_an_error_on_timeout_or_deletion() {
    let stage = platform().await;
    set_status(&stage, "db", json!({ "phase": "Running", "observedGeneration": 1 })).await;
    insta::assert_snapshot!(session(
        &stage,
        &[
            "power off db web-9 --wait --timeout 300ms",
            "power off -l app=web -A --wait --timeout 300ms",
            "power restart db --wait",
            "power off db --timeout 1s",
            "power off db --wait --timeout soon",
            "power off db --wait --dry-run",
        ],
    ));

    let (mut process, lines) = stage.start(&["power", "off", "web-10", "--wait"]);
    let (_requested, lines) = next(lines).await;
    stage.machines().delete("web-10", &kube::api::DeleteParams::default()).await.unwrap();
    let ended = tokio::task::spawn_blocking(move || process.0.wait().unwrap());
    let ended = tokio::time::timeout(Duration::from_mins(1), ended).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(1));
    drop(lines);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_machines_are_released_after_confirmation() {
    let stage = platform().await;
    for name in ["web-9", "web-10"] {
        let machines = stage.machines();
        let uid = machines.get(name).await.unwrap().uid().unwrap();
        let metadata = json!({ "metadata": {
            "finalizers": ["machine.vitistack.io/cleanup"],
            "annotations": { "vitistack.io/identity": uid, "vitistack.io/placement": "default/rack" },
        } });
        machines.patch(name, &PatchParams::default(), &Patch::Merge(&metadata)).await.unwrap();
        set_status(&stage, name, json!({ "vmName": name })).await;
    }
    insta::assert_snapshot!(session(
        &stage,
        &["release --all --without-operator", "release web-9 db --without-operator"],
    ));
    assert_eq!(stage.machines().list(&kube::api::ListParams::default()).await.unwrap().items.len(), 3);

    let plan = stage.line("release -l app=web --dry-run --without-operator");
    assert!(plan.contains("machine/web-9 would be released") && plan.ends_with("(exit 2)"), "{plan}");
    let released = stage.line("release --all --without-operator --yes");
    assert!(released.contains("machine/web-10 released; ConfigMap released-web-10"), "{released}");
    assert!(released.contains("skipped: machine/db has no backing machine"), "{released}");
    for name in ["released-web-9", "released-web-10"] {
        assert!(stage.objects("v1", "ConfigMap").get_opt(name).await.unwrap().is_some(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_an_object_that_does_not_exist_are_an_error() {
    let stage = platform().await;
    insta::assert_snapshot!(session(
        &stage,
        &["events machine/nope", "events machine/nope -A", "events machine/db", "events machine/db -A"],
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_versions_of_client_and_server_are_printed() {
    let stage = Stage::new().await;
    let text = stage.run(&["version"]).await;
    let client = concat!("Client Version: v", env!("CARGO_PKG_VERSION"));
    assert!(text.code == 0 && text.output.starts_with(client), "{}", text.output);
    assert!(text.output.contains("\nServer Version: v1."), "{}", text.output);

    let document = stage.run(&["version", "-o", "json"]).await.output;
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["clientVersion"]["gitVersion"], concat!("v", env!("CARGO_PKG_VERSION")));
    assert!(document["serverVersion"]["gitVersion"].as_str().unwrap().starts_with("v1."), "{document}");
    let yaml = stage.run(&["version", "-o", "yaml", "--client"]).await.output;
    assert!(yaml.starts_with("clientVersion:") && !yaml.contains("serverVersion"), "{yaml}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_of_the_client_is_printed_without_a_server() {
    let stage = Stage::new().await;
    let port = vitistack_testkit::free_port().unwrap();
    write_kubeconfig(&stage.kubeconfig(), &format!("http://127.0.0.1:{port}"));
    for arguments in [&["version"][..], &["version", "-o", "json"]] {
        let report = stage.run(arguments).await;
        assert!(report.code == 1 && report.output.contains(env!("CARGO_PKG_VERSION")), "{}", report.output);
        assert!(report.errors.starts_with("vitistack: failed to connect to"), "{}", report.errors);
    }
    let client = stage.run(&["version", "--client"]).await;
    assert_eq!((client.code, client.errors.as_str()), (0, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_context_is_reported_with_those_that_exist() {
    let stage = Stage::new().await;
    let path = stage.kubeconfig();
    let kubeconfig = std::fs::read_to_string(&path).unwrap();
    let two = kubeconfig
        .replace("contexts:\n", "contexts:\n- context: {cluster: stage, user: stage}\n  name: prod\n");
    std::fs::write(&path, &two).unwrap();
    let mut lines = vec![stage.transcript(&["get", "machines", "--context", "nope"]).await];
    std::fs::write(&path, two.replace("current-context: stage\n", "")).unwrap();
    lines.push(stage.transcript(&["get", "machines"]).await);
    std::fs::write(&path, kubeconfig.replace("current-context: stage", "current-context: gone")).unwrap();
    lines.push(stage.transcript(&["get", "machines"]).await);
    insta::assert_snapshot!(lines.join("\n\n"));
}
