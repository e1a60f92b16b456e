//! Clusters that write text to be read by users.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use vitistack_machine::{
    Backend, BackendError,
    kubevirt::{KubeVirt, Settings, probe},
};
use vitistack_plan::machine::Part;

use super::case::{IDENTITY, case};

const CANARY: &str = "INTERNAL-PAGE-CANARY";

/// A cluster that gives every request the same answer.
fn cluster(code: u16, content_type: &'static str, body: String) -> Client {
    let answer = move |_: Request<Body>| {
        let body = Full::new(Bytes::from(body.clone()));
        let response =
            Response::builder().status(code).header("content-type", content_type).body(body).unwrap();
        async move { Ok::<_, Infallible>(response) }
    };
    Client::new(tower::service_fn(answer), "default")
}

/// Every error that a cluster's answer becomes.
async fn errors(client: &Client) -> Vec<BackendError> {
    let order =
        case("spec: {resources: {cpu: {cores: 1}, memory: {size: 1Gi}}, disks: [{name: root, size: 1Gi}]}")
            .order();
    let backend = KubeVirt::live(client.clone(), Settings::default());
    let disks = Part::Disks(vec!["root".to_owned()]);
    [
        probe(client).await.err(),
        backend.observe(&order.target, Some(&order)).await.err(),
        backend.create(&order).await.err(),
        backend.delete(&order.target, &disks).await.err(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[tokio::test]
async fn the_page_of_another_server_is_not_repeated() {
    for code in [200, 302, 400, 401, 403, 404, 409, 418, 422, 429, 500, 502, 503, 504] {
        for content_type in ["text/plain", "text/html", "application/json"] {
            let client = cluster(code, content_type, format!("{CANARY} password=hunter2"));
            for error in errors(&client).await {
                let text = format!("{error:?}");
                assert!(!text.contains(CANARY) && !text.contains("hunter2"), "{code}: {text}");
            }
        }
    }
}

#[tokio::test]
async fn the_message_of_a_status_is_not_repeated() {
    for code in [400, 401, 403, 404, 409, 410, 413, 422, 429, 500, 503, 504] {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
            "message": format!("{CANARY} password=hunter2"), "reason": CANARY,
            "details": { "name": CANARY, "kind": "namespaces", "causes": [{ "message": CANARY }] },
        });
        let errors = errors(&cluster(code, "application/json", status.to_string())).await;
        assert!(!errors.is_empty());
        for error in errors {
            let text = format!("{error:?}");
            assert!(!text.contains(CANARY) && !text.contains("hunter2"), "{code}: {text}");
        }
    }
}

#[test]
fn the_conditions_and_names_of_a_lying_cluster_are_not_repeated() {
    let long = "x".repeat(10_000);
    let condition = |kind: &str, status: &str, reason: &str| json!({ "type": kind, "status": status, "reason": reason, "message": format!("{CANARY} {long}"), "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let object = |kind: &str, status: Value| {
        json!({
            "kind": kind, "apiVersion": "kubevirt.io/v1",
            "metadata": {
                "name": "vm", "namespace": "default",
                "labels": { "vitistack.io/identity": IDENTITY, "vitistack.io/machine-namespace": "default" },
            },
            "spec": { "runStrategy": "Always", "template": { "spec": { "nodeSelector": { "topology.kubernetes.io/zone": format!("{CANARY} {long}") } } } },
            "status": status,
        })
    };
    for conditions in [
        vec![condition("Synchronized", "False", "FailedCreate")],
        vec![condition("Synchronized", "False", "FailedPvcNotFound")],
        vec![condition("Synchronized", "False", "ErrImagePull")],
        vec![condition("PodScheduled", "False", "Unschedulable")],
        vec![condition("Failure", "True", "FailedCreate")],
    ] {
        for phase in ["Scheduling", "Unknown", "Running", CANARY] {
            let status = json!({ "phase": phase, "nodeName": format!("{CANARY} {long}"), "conditions": conditions, "printableStatus": CANARY });
            let mut lying = case("spec: {resources: {cpu: {cores: 1}, memory: {size: 1Gi}}}");
            lying.cluster =
                vec![object("VirtualMachine", status.clone()), object("VirtualMachineInstance", status)];
            let observed = format!("{:?}", lying.observed());
            assert!(!observed.contains(CANARY), "{observed}");
        }
    }
}

#[test]
fn the_disk_label_of_a_lying_cluster_is_not_repeated() {
    let mut lying =
        case("spec: {resources: {cpu: {cores: 1}, memory: {size: 1Gi}}, disks: [{name: root, size: 1Gi}]}");
    lying.cluster = vec![json!({
        "kind": "PersistentVolumeClaim", "apiVersion": "v1",
        "metadata": {
            "name": "vm-root", "namespace": "default",
            "labels": {
                "vitistack.io/identity": IDENTITY, "vitistack.io/machine-namespace": "default",
                "vitistack.io/disk": format!("{CANARY} password=hunter2"),
            },
        },
    })];
    let observed = lying.observed();
    assert_eq!(observed.disks[0].name, "unknown");
    assert!(!format!("{observed:?}").contains(CANARY));
}
