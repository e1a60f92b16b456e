//! Mistakes are reported in conditions, with the fix; the fix is sufficient.

use kube::api::PostParams;
use serde_json::{Value, json};

use super::bed::Bed;

/// The namespace of Machines that are created before KubeVirt is installed.
const EARLY: &str = "early";
const NAMESPACE: &str = "mistakes";

pub async fn a_machine_reports_that_kubevirt_is_missing(bed: &Bed) -> String {
    bed.namespace(EARLY).await;
    bed.machine(EARLY, "early-bird", json!({ "template": "small" })).await;
    bed.refused(EARLY, "early-bird", "KubeVirtApiError", "KubeVirt is not installed").await
}

/// The operator was not started again.
pub async fn it_runs_once_kubevirt_is_installed(bed: &Bed) {
    bed.reach(EARLY, "early-bird", "Running").await;
    bed.delete("Machine", EARLY, "early-bird").await;
    bed.await_gone("Machine", EARLY, "early-bird").await;
}

/// All mistakes of a Machine in the operator's own cluster. Returns the reported conditions.
pub async fn every_mistake_is_reported_and_fixed(bed: &Bed) -> String {
    bed.namespace(NAMESPACE).await;
    let (template, network, class, room, quota, secret, name) = tokio::join!(
        a_template_that_does_not_exist(bed),
        a_network_that_does_not_exist(bed),
        a_storage_class_that_does_not_exist(bed),
        a_machine_that_no_node_can_take(bed),
        a_namespace_without_capacity(bed),
        a_secret_that_is_missing_and_then_lacks_the_key(bed),
        a_claim_of_the_right_name_that_is_not_ours(bed),
    );
    let provider = a_provider_of_an_unknown_type(bed).await;
    [template, network, class, room, quota, secret, name, provider].join("\n\n")
}

async fn a_template_that_does_not_exist(bed: &Bed) -> String {
    bed.machine(NAMESPACE, "template", json!({ "template": "huge" })).await;
    let report = bed.refused(NAMESPACE, "template", "TemplateNotFound", "huge").await;
    let resources = json!({ "cpu": { "cores": 8 }, "memory": { "size": "16Gi" } });
    bed.create(&json!({
        "apiVersion": "vitistack.io/v1alpha1", "kind": "MachineClass", "metadata": { "name": "huge" },
        "spec": { "resources": resources, "disks": [{ "name": "root", "size": "10Gi" }] },
    }))
    .await;
    bed.reach(NAMESPACE, "template", "Running").await;
    report
}

async fn a_network_that_does_not_exist(bed: &Bed) -> String {
    let networks = json!([{ "name": "eth0", "networkName": "lab" }]);
    bed.machine(NAMESPACE, "network", json!({ "template": "small", "networks": networks })).await;
    let report = bed.refused(NAMESPACE, "network", "NetworkConfigurationNotFound", "lab").await;
    bed.create(&json!({
        "apiVersion": "vitistack.io/v1alpha1", "kind": "NetworkConfiguration",
        "metadata": { "name": "lab", "namespace": NAMESPACE }, "spec": { "bridge": "br0" },
    }))
    .await;
    bed.reach(NAMESPACE, "network", "Running").await;
    report
}

async fn a_storage_class_that_does_not_exist(bed: &Bed) -> String {
    let disks = json!([{ "name": "data", "size": "1Gi", "storageClass": "gold" }]);
    bed.machine(NAMESPACE, "class", json!({ "template": "small", "disks": disks })).await;
    let report = bed.refused(NAMESPACE, "class", "StorageClassNotFound", "gold").await;
    bed.create(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "gold" },
        "provisioner": "standin.vitistack.io",
    }))
    .await;
    bed.reach(NAMESPACE, "class", "Running").await;
    report
}

async fn a_machine_that_no_node_can_take(bed: &Bed) -> String {
    let memory = |size: &str| json!({ "memory": { "size": size } });
    bed.machine(NAMESPACE, "room", json!({ "template": "small", "resources": memory("900Ti") })).await;
    let report = bed.refused(NAMESPACE, "room", "InsufficientResources", "Insufficient memory").await;
    let annotations = json!({ "vitistack.io/restart-at": "2026-01-01T00:00:00Z" });
    let fix = json!({ "metadata": { "annotations": annotations }, "spec": { "resources": memory("1Gi") } });
    bed.patch("Machine", NAMESPACE, "room", fix).await;
    bed.reach(NAMESPACE, "room", "Running").await;
    report
}

async fn a_namespace_without_capacity(bed: &Bed) -> String {
    const FULL: &str = "full";
    bed.namespace(FULL).await;
    let quota = bed
        .create(&json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "nothing", "namespace": FULL },
            "spec": { "hard": { "persistentvolumeclaims": "0" } },
        }))
        .await;
    bed.until_quota(&quota).await;
    bed.machine(FULL, "quota", json!({ "template": "small" })).await;
    let report = bed.refused(FULL, "quota", "InsufficientResources", "exceeded quota").await;
    bed.kubectl(&["delete", "resourcequota", "-n", FULL, "nothing"]);
    bed.reach(FULL, "quota", "Running").await;
    report
}

async fn a_secret_that_is_missing_and_then_lacks_the_key(bed: &Bed) -> String {
    let cloud_init = json!({ "secretRef": { "name": "first-boot", "key": "userdata" } });
    bed.machine(NAMESPACE, "secret", json!({ "template": "small", "cloudInit": cloud_init })).await;
    let missing = bed.refused(NAMESPACE, "secret", "SecretNotFound", "first-boot").await;
    let secret = |data: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "first-boot", "namespace": NAMESPACE },
            "stringData": data,
        })
    };
    bed.create(&secret(json!({ "other": "top-secret" }))).await;
    let lacking = bed.refused(NAMESPACE, "secret", "SecretKeyNotFound", "userdata").await;
    bed.patch("Secret", NAMESPACE, "first-boot", secret(json!({ "userdata": "#cloud-config\n" }))).await;
    bed.reach(NAMESPACE, "secret", "Running").await;
    format!("{missing}\n\n{lacking}")
}

async fn a_claim_of_the_right_name_that_is_not_ours(bed: &Bed) -> String {
    bed.create(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "taken-root", "namespace": NAMESPACE },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "20Gi" } } },
    }))
    .await;
    bed.machine(NAMESPACE, "taken", json!({ "template": "small" })).await;
    let report = bed.refused(NAMESPACE, "taken", "NameTaken", "taken-root").await;
    bed.delete("PersistentVolumeClaim", NAMESPACE, "taken-root").await;
    bed.reach(NAMESPACE, "taken", "Running").await;
    report
}

async fn a_provider_of_an_unknown_type(bed: &Bed) -> String {
    let provider = json!({
        "apiVersion": "vitistack.io/v1alpha1", "kind": "MachineProvider",
        "metadata": { "name": "odd", "namespace": NAMESPACE }, "spec": { "type": "abacus" },
    });
    let api = bed.api("MachineProvider", NAMESPACE);
    let refused = api.create(&PostParams::default(), &serde_json::from_value(provider).unwrap()).await;
    let Err(kube::Error::Api(status)) = refused else { panic!("not refused: {refused:?}") };
    format!("$ kubectl create -f provider.yaml\n{}", status.message)
}
