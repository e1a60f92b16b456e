//! Fuzz targets: what a KubeVirt cluster answers.
//!
//! The cluster of a tenant is hostile: nothing that it answers panics the backend, and none of its text is shown to users.
//! `VITISTACK_FUZZ_SECONDS` sets how long each target runs; CONTRIBUTING.md explains how to replay an input.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use kube::{Client, client::Body, core::DynamicObject};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use vitistack_machine::{
    Backend,
    kubevirt::{KubeVirt, Settings, probe},
};
use vitistack_plan::machine::Part;
use vitistack_testkit::fuzz::{Draw, Target, Vocabulary};

use crate::kubevirt::case::{IDENTITY, case};

/// Text that is not shown, wherever it is planted.
const CANARY: &str = "INTERNAL-PAGE-CANARY password=hunter2";

/// The parts of that text that no name contains. A mutation can turn the text into a name, and names are shown.
const NOT_IN_NAMES: [&str; 2] = ["CANARY password", "=hunter2"];

const WORDS: Vocabulary<'static> = Vocabulary {
    names: &[
        "kind",
        "apiVersion",
        "metadata",
        "items",
        "spec",
        "status",
        "code",
        "message",
        "reason",
        "details",
        "causes",
        "name",
        "namespace",
        "labels",
        "annotations",
        "ownerReferences",
        "deletionTimestamp",
        "vitistack.io/identity",
        "vitistack.io/machine-namespace",
        "vitistack.io/disk",
        "conditions",
        "type",
        "phase",
        "printableStatus",
        "nodeName",
        "interfaces",
        "ipAddress",
        "ipAddresses",
        "runStrategy",
        "template",
        "domain",
        "cpu",
        "cores",
        "memory",
        "guest",
        "volumes",
        "persistentVolumeClaim",
        "claimName",
        "resources",
        "requests",
        "storage",
        "capacity",
        "accessModes",
        "resourceVersion",
        "uid",
    ],
    texts: &[
        CANARY,
        "Status",
        "Failure",
        "v1",
        "True",
        "False",
        "Running",
        "Succeeded",
        "Failed",
        "Synchronized",
        "PodScheduled",
        "Unschedulable",
        "FailedCreate",
        "ErrImagePull",
        "default",
        "vm",
        "vm-root",
        IDENTITY,
        "20Gi",
        "-1",
        "1e400",
        "10.0.0.1",
        "2026-01-01T00:00:00Z",
        "exceeded quota: ",
        "User \"",
        "namespaces",
        "admission webhook \"x\" denied the request: ",
        "",
    ],
};

/// A Machine with a disk.
const MACHINE: &str = "{spec: {resources: {cpu: {cores: 1}, memory: {size: 1Gi}}, disks: [{name: root, size: 20Gi}]}, cluster: []}";

/// Draws an answer: its status code, media type and body.
fn answer(draw: &mut Draw<'_>, corpus: &[Value]) -> Value {
    if draw.chance(20) {
        return draw.one_of(corpus).cloned().unwrap_or_default();
    }
    let codes = [200, 201, 301, 400, 401, 403, 404, 405, 409, 410, 413, 422, 429, 500, 503, 504];
    let code = draw.pick(&codes);
    let media = draw.pick(&["application/json", "text/plain", "text/html", ""]);
    let body = match draw.below(4) {
        0 => draw.text(WORDS.texts),
        1 => draw.json(&WORDS).to_string(),
        2 => json!({"kind": "List", "apiVersion": "v1", "metadata": draw.json(&WORDS), "items": draw.json(&WORDS)}).to_string(),
        _ => {
            let mut status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": draw.pick(&codes),
                "message": draw.text(WORDS.texts), "reason": draw.text(WORDS.texts),
            });
            status["details"] = draw.json(&WORDS);
            status.to_string()
        }
    };
    json!({"code": code, "media": media, "body": body})
}

/// A cluster that gives every request the same answer.
fn cluster(answer: &Value) -> Client {
    let code = u16::try_from(answer["code"].as_u64().unwrap()).unwrap();
    let media = answer["media"].as_str().unwrap().to_owned();
    let body = Bytes::from(answer["body"].as_str().unwrap().to_owned());
    let respond = move |_: Request<Body>| {
        let response = Response::builder().status(code).header("content-type", &media);
        let response = response.body(Full::new(body.clone())).unwrap();
        async move { Ok::<_, Infallible>(response) }
    };
    Client::new(tower::service_fn(respond), "default")
}

/// Sends every kind of request, and returns all text that a user would see.
async fn shown(client: &Client) -> String {
    let order = case(MACHINE).order();
    let backend = KubeVirt::live(client.clone(), Settings::default());
    let disks = Part::Disks(vec!["root".to_owned()]);
    let probed = probe(client).await.err();
    let observed = backend.observe(&order.target, Some(&order)).await;
    let created = backend.create(&order).await.err();
    let deleted = backend.delete(&order.target, &disks).await.err();
    format!("{probed:?} {observed:?} {created:?} {deleted:?}")
}

fn check_answer(answer: &Value, runtime: &Runtime) {
    let shown = runtime.block_on(async { shown(&cluster(answer)).await });
    assert!(!shown.contains("hunter2"), "{shown}");
    // The first line of a validator is shown, cut to a length, if nothing in it looks like a secret.
    let is_validator = answer["body"].as_str().unwrap().contains("\"Status\"");
    assert!(is_validator || !shown.contains("CANARY"), "{shown}");
    assert!(shown.len() < 20_000, "{} bytes are shown", shown.len());
}

#[test]
fn provider_answers() {
    let target = Target::new(env!("CARGO_MANIFEST_DIR"), "answers");
    let runtime = Runtime::new().unwrap();
    let read = |content: &[u8]| serde_json::from_slice::<Value>(content).unwrap();
    let corpus = target.corpus(read);
    target.run(read, |draw| answer(draw, &corpus), |answer| check_answer(answer, &runtime));
}

/// Draws the objects of a cluster, which are found by name and identity and lie about the rest.
fn objects(draw: &mut Draw<'_>, corpus: &[Value]) -> Value {
    let mut objects = draw.one_of(corpus).cloned().unwrap_or_default();
    for object in objects.as_array_mut().into_iter().flatten() {
        for part in ["spec", "status"] {
            if draw.chance(40) {
                draw.mutate(&mut object[part], &WORDS);
            }
        }
        if draw.chance(30) {
            let label =
                draw.pick(&["vitistack.io/disk", "vitistack.io/machine", "vitistack.io/machine-namespace"]);
            object["metadata"]["labels"][label] = draw.text(WORDS.texts).into();
        }
        if draw.chance(10) {
            draw.mutate(&mut object["metadata"], &WORDS);
        }
    }
    objects
}

fn check_objects(objects: &Value) {
    let mut lying = case(MACHINE);
    // Anything but an object does not get past the client.
    let is_object = |object: &&Value| {
        object["metadata"].is_object() && serde_json::from_value::<DynamicObject>((*object).clone()).is_ok()
    };
    lying.cluster = objects.as_array().unwrap().iter().filter(is_object).cloned().collect();
    let shown = format!("{:?} {:?}", lying.observed(), lying.planned().problems);
    assert!(!NOT_IN_NAMES.iter().any(|part| shown.contains(part)), "{shown}");
    let _ = lying.writes();
}

#[test]
fn provider_objects() {
    let target = Target::new(env!("CARGO_MANIFEST_DIR"), "objects");
    let read = |content: &[u8]| serde_json::from_slice::<Value>(content).unwrap();
    let corpus = target.corpus(read);
    target.run(read, |draw| objects(draw, &corpus), check_objects);
}
