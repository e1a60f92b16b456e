//! The life of a machine.

use serde_json::{Value, json};
use vitistack_testkit::AuditedRequest;

use super::bed::{Bed, OPERATORS, condition};

const NAMESPACE: &str = "life";

/// The uid of the instance that runs.
async fn instance(bed: &Bed, name: &str) -> Option<String> {
    bed.find("VirtualMachineInstance", NAMESPACE, name).await?.metadata.uid
}

async fn change(bed: &Bed, name: &str, spec: Value) {
    bed.patch("Machine", NAMESPACE, name, json!({ "spec": spec })).await;
}

pub async fn a_machine_is_stopped_started_restarted_resized_and_deleted(bed: &Bed) {
    bed.namespace(NAMESPACE).await;
    let disks = json!([{ "name": "root", "size": "20Gi" }, { "name": "kept", "size": "1Gi", "reclaimPolicy": "Retain" }]);
    bed.machine(NAMESPACE, "one", json!({ "template": "small", "disks": disks })).await;
    let machine = bed.reach(NAMESPACE, "one", "Running").await;
    let finalizers = machine.metadata.finalizers.clone().unwrap();
    assert_eq!(finalizers, ["machine.vitistack.io/cleanup"]);
    for kind in ["Ready", "VirtualMachineReady", "StorageReady", "NetworkReady"] {
        assert_eq!(condition(&machine, kind).unwrap()["status"], "True", "{kind}");
    }

    change(bed, "one", json!({ "powerState": "Stopped" })).await;
    let machine = bed.reach(NAMESPACE, "one", "Stopped").await;
    assert_eq!(machine.data["status"]["phase"], "Stopped");
    bed.await_gone("VirtualMachineInstance", NAMESPACE, "one").await;
    change(bed, "one", json!({ "powerState": "Running" })).await;
    bed.reach(NAMESPACE, "one", "Running").await;

    let before = instance(bed, "one").await.unwrap();
    restart(bed, "2026-01-01T00:00:00Z", &before).await;

    resize(bed).await;
    grow(bed).await;
    delete(bed).await;
}

/// Requests a restart and waits for a new instance.
async fn restart(bed: &Bed, at: &str, before: &str) {
    let annotations = json!({ "vitistack.io/restart-at": at });
    bed.patch("Machine", NAMESPACE, "one", json!({ "metadata": { "annotations": annotations } })).await;
    bed.until("VirtualMachineInstance", NAMESPACE, "one", "another instance that runs", |instance| {
        let runs = instance.data.pointer("/status/phase") == Some(&json!("Running"));
        (runs && instance.metadata.uid.as_deref() != Some(before)).then_some(())
    })
    .await;
    bed.reach(NAMESPACE, "one", "Running").await;
}

async fn resize(bed: &Bed) {
    let before = instance(bed, "one").await.unwrap();
    change(bed, "one", json!({ "resources": { "cpu": { "cores": 2 }, "memory": { "size": "4Gi" } } })).await;
    let reported = |reason: &'static str| {
        bed.until("Machine", NAMESPACE, "one", reason, move |machine| {
            let report = condition(machine, "UpToDate")?;
            let is_current = report["observedGeneration"] == json!(machine.metadata.generation);
            (is_current && report["reason"] == reason).then(|| report["message"].as_str().unwrap().to_owned())
        })
    };
    let report = reported("RestartRequired").await;
    assert!(report.contains("vitistack.io/restart-at"), "{report}");
    assert_eq!(
        instance(bed, "one").await.unwrap(),
        before,
        "a machine must not be restarted without a request"
    );
    restart(bed, "2026-01-02T00:00:00Z", &before).await;
    reported("AsSpecified").await;
    let running = bed.find("VirtualMachineInstance", NAMESPACE, "one").await.unwrap();
    assert_eq!(running.data.pointer("/spec/domain/cpu/cores"), Some(&json!(2)));
    assert_eq!(running.data.pointer("/spec/domain/memory/guest"), Some(&json!("4Gi")));
}

async fn grow(bed: &Bed) {
    let disks = json!([{ "name": "root", "size": "30Gi" }, { "name": "kept", "size": "1Gi", "reclaimPolicy": "Retain" }]);
    change(bed, "one", json!({ "disks": disks })).await;
    bed.until("PersistentVolumeClaim", NAMESPACE, "one-root", "30Gi", |claim| {
        (claim.data.pointer("/status/capacity/storage") == Some(&json!("30Gi"))).then_some(())
    })
    .await;
    bed.reach(NAMESPACE, "one", "Running").await;
}

async fn delete(bed: &Bed) {
    bed.delete("Machine", NAMESPACE, "one").await;
    bed.await_gone("Machine", NAMESPACE, "one").await;
    for (kind, name) in
        [("VirtualMachine", "one"), ("VirtualMachineInstance", "one"), ("PersistentVolumeClaim", "one-root")]
    {
        assert!(
            bed.find(kind, NAMESPACE, name)
                .await
                .is_none_or(|left| left.metadata.deletion_timestamp.is_some()),
            "{kind}"
        );
    }
    bed.await_gone("PersistentVolumeClaim", NAMESPACE, "one-root").await;
    assert!(bed.find("PersistentVolumeClaim", NAMESPACE, "one-kept").await.is_some());
    // In the order of the specification: machine, claims, finalizer.
    let is_end = |request: &AuditedRequest| {
        request.namespace == NAMESPACE && request.is_write() && request.resource != "machines/status"
    };
    let ends: Vec<String> = bed
        .asked_by(&OPERATORS)
        .iter()
        .filter(|request| is_end(request))
        .map(|request| format!("{} {}/{}", request.verb, request.resource, request.name))
        .collect();
    let last: Vec<&str> = ends.iter().rev().take(3).rev().map(String::as_str).collect();
    assert_eq!(
        last,
        ["delete virtualmachines/one", "delete persistentvolumeclaims/one-root", "patch machines/one"]
    );
}
