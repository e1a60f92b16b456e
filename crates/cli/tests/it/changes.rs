//! The commands that change objects, on the embedded API.

use std::time::{Duration, Instant};

use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{stage::Stage, told};

const MACHINE: &str = r"
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: web, namespace: default}
spec: {template: small}
";

/// What the commands said, one after the other.
fn session(stage: &Stage, lines: &[&str]) -> String {
    lines.iter().map(|line| stage.line(line)).collect::<Vec<_>>().join("\n\n")
}

#[test]
fn every_command_that_changes_something_explains_itself() {
    let pages = ["power", "pause", "resume", "adopt", "release", "export", "render"];
    insta::assert_snapshot!(pages.map(|command| told(&[command, "--help"])).join("\n\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_switched_off_and_on_and_restarted() {
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
async fn an_object_is_paused_and_goes_on() {
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

/// A Machine that an operator has made: with finalizer, identity and placement, and perhaps told to be paused.
async fn made(stage: &Stage, is_paused: bool) -> String {
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

/// A Secret and a claim that belong to the Machine, the former to something else as well.
async fn made_beside(stage: &Stage, uid: &str) {
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

/// Waits until the garbage collector has let go of the Machine.
async fn gone(stage: &Stage) {
    let limit = Instant::now() + Duration::from_mins(1);
    while stage.machines().get_opt("web").await.unwrap().is_some() {
        assert!(Instant::now() < limit, "the Machine stays");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The session without what differs from run to run.
fn settled(session: &str, uid: &str) -> String {
    let line = |line: &str| match line.split_once("released: 2") {
        Some((start, _)) => format!("{start}released: TIME"),
        None => line.replace(uid, "UID"),
    };
    session.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_machine_leaves_the_real_one_and_a_record_of_it() {
    let stage = Stage::new().await;
    let uid = made(&stage, true).await;
    made_beside(&stage, &uid).await;
    let plan = stage.line("release machine/web --dry-run");
    let before = stage.machines().get("web").await.unwrap();
    assert_eq!(before.annotations().get("vitistack.io/paused"), None, "a dry run changes nothing");
    assert!(stage.objects("v1", "ConfigMap").get_opt("released-web").await.unwrap().is_none());
    let told = stage.line("release machine/web");
    insta::assert_snapshot!(settled(&format!("{plan}\n\n{told}"), &uid));

    gone(&stage).await;
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
async fn a_release_waits_until_an_operator_says_that_it_stays_away() {
    let stage = Stage::new().await;
    made(&stage, false).await;
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
            assert!(Instant::now() < limit, "nobody paused the Machine");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let told = stage.line("release machine/web");
    assert!(told.ends_with("(exit 0)"), "{told}");
    operator.await.unwrap().unwrap();
    gone(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_was_cut_short_is_finished_by_the_next() {
    let stage = Stage::new().await;
    let uid = made(&stage, false).await;
    // As if the process had ended between the finalizer and the delete.
    let record = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: released-web, namespace: default, labels: {{vitistack.io/identity: {uid}}}}}"
    );
    stage.apply(&record).await;
    let patch = json!({ "metadata": { "finalizers": null } });
    stage.machines().patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    let told = stage.line("release machine/web --without-operator");
    assert!(told.ends_with("(exit 0)"), "{told}");
    gone(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_must_not_be_released_is_kept_with_the_reason() {
    let stage = Stage::new().await;
    stage.apply(MACHINE).await;
    stage
        .apply(&MACHINE.replace("name: web", "name: foreign, annotations: {vitistack.io/identity: lost-uid}"))
        .await;
    let mut told =
        session(&stage, &["release machine/web", "release machine/foreign", "release datacenter/west"]);
    made(&stage, true).await;
    stage.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: released-web, namespace: default}").await;
    told = format!("{told}\n\n{}", stage.line("release machine/web"));
    let delete = kube::api::DeleteParams::default();
    stage.objects("v1", "ConfigMap").delete("released-web", &delete).await.unwrap();
    stage.machines().delete("web", &delete).await.unwrap();
    told = format!("{told}\n\n{}", stage.line("release machine/web"));
    insta::assert_snapshot!(told);
    let machine = stage.machines().get("web").await.unwrap();
    assert_eq!(machine.finalizers(), ["machine.vitistack.io/cleanup"]);
    assert_eq!(machine.annotations().get("vitistack.io/paused"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_restored_machines_are_adopted_when_somebody_confirms_it() {
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
