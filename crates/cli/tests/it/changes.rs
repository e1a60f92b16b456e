//! The commands that change objects, on the embedded API.

use std::time::{Duration, Instant};

use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{stage::Stage, transcript};

const MACHINE: &str = r"
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: web, namespace: default}
spec: {template: small}
";

/// Returns the transcripts of several commands.
fn session(stage: &Stage, lines: &[&str]) -> String {
    lines.iter().map(|line| stage.line(line)).collect::<Vec<_>>().join("\n\n")
}

#[test]
fn help_of_commands_that_change_objects() {
    let pages = ["power", "pause", "resume", "adopt", "release", "export", "render"];
    insta::assert_snapshot!(pages.map(|command| transcript(&[command, "--help"])).join("\n\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_powered_off_and_on_and_restarted() {
    let stage = Stage::new().await;
    stage.apply(MACHINE).await;
    insta::assert_snapshot!(session(
        &stage,
        &[
            "power on machine/web",
            "power restart vsm/web",
            "power off machine web",
            "power off machine/web",
            "power restart machine/web",
            "power on machine/web machine/missing",
            "power on datacenter/west",
            "power off web",
            "power off web missing",
            "power up machine/web",
        ],
    ));
    let machine = stage.machines().get("web").await.unwrap();
    assert_eq!(
        machine.data.pointer("/spec/powerState"),
        Some(&json!("Stopped")),
        "the last line changed nothing"
    );
    let time: k8s_openapi::jiff::Timestamp =
        machine.annotations()["vitistack.io/restart-at"].parse().unwrap();
    let age = k8s_openapi::jiff::Timestamp::now().duration_since(time);
    assert!(age.is_positive() && age.as_mins() < 5, "restarted at {time}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_paused_and_resumed() {
    let stage = Stage::new().await;
    stage.apply(MACHINE).await;
    insta::assert_snapshot!(session(
        &stage,
        &[
            "pause machine/web",
            "pause machine/web",
            "power off machine/web",
            "resume machine/web",
            "resume machine/web"
        ],
    ));
    let machine = stage.machines().get("web").await.unwrap();
    assert_eq!(machine.annotations().get("vitistack.io/paused"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_machine_is_adopted_unless_it_has_a_twin() {
    let stage = Stage::new().await;
    stage.apply(MACHINE).await;
    let restored =
        MACHINE.replace("name: web", "name: restored, annotations: {vitistack.io/identity: lost-uid}");
    stage.apply(&restored).await;
    let first = session(&stage, &["adopt machine/web", "adopt machine/restored", "adopt machine/restored"]);
    let machine = stage.machines().get("restored").await.unwrap();
    assert_eq!(machine.annotations().get("vitistack.io/adopted"), machine.metadata.uid.as_ref());

    let twin = MACHINE.replace("name: web", "name: twin, annotations: {vitistack.io/identity: lost-uid}");
    stage.apply(&twin).await;
    insta::assert_snapshot!(format!("{first}\n\n{}", stage.line("adopt machine/twin")));
}

/// Creates a Machine as an operator leaves it, with finalizer, identity and placement, optionally with the Paused
/// condition.
async fn create_machine(stage: &Stage, is_paused: bool) -> String {
    stage.apply(MACHINE).await;
    let machines = stage.machines();
    let uid = machines.get("web").await.unwrap().uid().unwrap();
    let metadata = json!({ "metadata": {
        "finalizers": ["machine.vitistack.io/cleanup"],
        "annotations": { "vitistack.io/identity": uid, "vitistack.io/placement": "default/rack" },
    } });
    machines.patch("web", &PatchParams::default(), &Patch::Merge(&metadata)).await.unwrap();
    let mut status = json!({ "status": { "vmName": "web" } });
    if is_paused {
        let condition = json!({ "type": "Paused", "status": "True", "reason": "Paused", "message": "paused",
            "lastTransitionTime": "2026-01-01T00:00:00Z" });
        status.pointer_mut("/status").unwrap()["conditions"] = json!([condition]);
    }
    machines.patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    uid
}

/// Creates a Secret and a claim that the Machine owns; the Secret has another owner too.
async fn create_dependents(stage: &Stage, uid: &str) {
    let owner =
        json!({ "apiVersion": "vitistack.io/v1alpha1", "kind": "Machine", "name": "web", "uid": uid });
    stage.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other, namespace: default}").await;
    let other = stage.objects("v1", "ConfigMap").get("other").await.unwrap().uid();
    let other = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": other });
    let labels = json!({ "vitistack.io/identity": uid });
    for (kind, name, owners, spec) in [
        ("Secret", "web-cloudinit", json!([other, owner]), Value::Null),
        (
            "PersistentVolumeClaim",
            "web-root",
            json!([owner]),
            json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } }),
        ),
    ] {
        let mut object = json!({ "apiVersion": "v1", "kind": kind,
            "metadata": { "name": name, "labels": labels, "ownerReferences": owners } });
        if !spec.is_null() {
            object["spec"] = spec;
        }
        let object = serde_json::from_value(object).unwrap();
        stage.objects("v1", kind).create(&PostParams::default(), &object).await.unwrap();
    }
}

/// Waits until the Machine is deleted.
async fn await_deletion(stage: &Stage) {
    let limit = Instant::now() + Duration::from_mins(1);
    while stage.machines().get_opt("web").await.unwrap().is_some() {
        assert!(Instant::now() < limit, "the Machine was not deleted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Replaces what differs between runs.
fn normalized(session: &str, uid: &str) -> String {
    let line = |line: &str| match line.split_once("released: 2") {
        Some((start, _)) => format!("{start}released: TIME"),
        None => line.replace(uid, "UID"),
    };
    session.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_keeps_the_backing_machine_and_writes_a_record() {
    let stage = Stage::new().await;
    let uid = create_machine(&stage, true).await;
    create_dependents(&stage, &uid).await;
    let plan = stage.line("release machine/web --dry-run");
    let before = stage.machines().get("web").await.unwrap();
    assert_eq!(before.annotations().get("vitistack.io/paused"), None, "a dry run changes nothing");
    assert!(stage.objects("v1", "ConfigMap").get_opt("released-web").await.unwrap().is_none());
    let output = stage.line("release machine/web");
    insta::assert_snapshot!(normalized(&format!("{plan}\n\n{output}"), &uid));

    await_deletion(&stage).await;
    let owners = |object: kube::api::DynamicObject| {
        object.owner_references().iter().map(|owner| owner.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(owners(stage.objects("v1", "Secret").get("web-cloudinit").await.unwrap()), ["other"]);
    assert!(owners(stage.objects("v1", "PersistentVolumeClaim").get("web-root").await.unwrap()).is_empty());
    let record = stage.objects("v1", "ConfigMap").get("released-web").await.unwrap();
    assert_eq!(record.labels()["vitistack.io/released"], "true");
    assert_eq!(record.data["data"]["identity"], json!(uid));
    assert_eq!(record.data["data"]["disks"], "PersistentVolumeClaim web-root");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_waits_until_an_operator_confirms_the_pause() {
    let stage = Stage::new().await;
    create_machine(&stage, false).await;
    let machines = stage.machines();
    let operator = tokio::spawn(async move {
        let limit = Instant::now() + Duration::from_mins(1);
        loop {
            let machine = machines.get("web").await.unwrap();
            if machine.annotations().contains_key("vitistack.io/paused") {
                assert_eq!(machine.finalizers(), ["machine.vitistack.io/cleanup"], "nothing happens before");
                let condition = json!({ "type": "Paused", "status": "True", "reason": "Paused",
                    "message": "paused", "lastTransitionTime": "2026-01-01T00:00:00Z" });
                let status = json!({ "status": { "conditions": [condition] } });
                return machines.patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await;
            }
            assert!(Instant::now() < limit, "the Machine was not paused");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let output = stage.line("release machine/web");
    assert!(output.ends_with("(exit 0)"), "{output}");
    operator.await.unwrap().unwrap();
    await_deletion(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_release_is_finished_by_the_next() {
    let stage = Stage::new().await;
    let uid = create_machine(&stage, false).await;
    // The state of a release that was interrupted between the removal of the finalizer and the deletion.
    let record = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: released-web, namespace: default, labels: {{vitistack.io/identity: {uid}}}}}"
    );
    stage.apply(&record).await;
    let patch = json!({ "metadata": { "finalizers": null } });
    stage.machines().patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    let output = stage.line("release machine/web --without-operator");
    assert!(output.ends_with("(exit 0)"), "{output}");
    await_deletion(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_cannot_be_released_is_refused_with_the_reason() {
    let stage = Stage::new().await;
    stage.apply(MACHINE).await;
    stage
        .apply(&MACHINE.replace("name: web", "name: foreign, annotations: {vitistack.io/identity: lost-uid}"))
        .await;
    let mut output =
        session(&stage, &["release machine/web", "release machine/foreign", "release datacenter/west"]);
    create_machine(&stage, true).await;
    stage.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: released-web, namespace: default}").await;
    output = format!("{output}\n\n{}", stage.line("release machine/web"));
    let delete = kube::api::DeleteParams::default();
    stage.objects("v1", "ConfigMap").delete("released-web", &delete).await.unwrap();
    stage.machines().delete("web", &delete).await.unwrap();
    output = format!("{output}\n\n{}", stage.line("release machine/web"));
    insta::assert_snapshot!(output);
    let machine = stage.machines().get("web").await.unwrap();
    assert_eq!(machine.finalizers(), ["machine.vitistack.io/cleanup"]);
    assert_eq!(machine.annotations().get("vitistack.io/paused"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_restored_machines_are_adopted_after_confirmation() {
    let stage = Stage::new().await;
    stage.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}").await;
    for (namespace, name, app) in [("default", "web", "web"), ("default", "db", "db"), ("shop", "web", "web")]
    {
        stage
            .apply(&format!("apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {{name: {name}, namespace: {namespace}, labels: {{app: {app}}}, annotations: {{vitistack.io/identity: {namespace}-{name}-before}}}}\nspec: {{template: small}}"))
            .await;
    }
    stage.apply("apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: new, namespace: default}\nspec: {template: small}").await;
    insta::assert_snapshot!(session(
        &stage,
        &[
            "adopt --all",
            "adopt web --all",
            "adopt",
            "adopt -l app=web --yes",
            "adopt --all -A --yes",
            "adopt --all -A"
        ],
    ));
}
