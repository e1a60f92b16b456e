//! Objects that must not be stored, or not be left behind.

use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{CRDS, TestServer, crd, eventually, map};

/// Returns an object that is nested this many times, with a finalizer.
fn nested(depth: usize) -> Value {
    let mut value = json!(1);
    for _ in 0..depth {
        value = json!({"a": value});
    }
    json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "w", "finalizers": ["example.com/keep"], "labels": {"x": "y"}},
        "spec": value})
}

#[tokio::test]
async fn an_object_that_could_not_be_read_again_is_not_stored() {
    let server = TestServer::new().await;
    let mut crd = crd();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    crd["spec"]["versions"][0]["selectableFields"] = json!([]);
    crd["spec"]["versions"][0]["subresources"] = json!({});
    let (code, answer) = server.post(CRDS, crd).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    let path = crate::harness::WIDGETS;
    for depth in [115, 118, 120, 122, 124, 126] {
        let (code, answer) = server.post(path, nested(depth)).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{depth}: {answer}");
    }

    let (code, answer) = server.post(path, nested(110)).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    let (_, list) = server.get(&format!("{path}?labelSelector=x%3Dy")).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    server.delete(&format!("{path}/w"), json!({})).await;
    let (code, waiting) = server.get(&format!("{path}/w")).await;
    assert_eq!(code, StatusCode::OK, "its finalizer is honored");
    assert!(waiting["metadata"]["deletionTimestamp"].is_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_left_in_a_namespace_that_is_deleted_during_a_create() {
    let server = TestServer::new().await;
    for round in 0..60 {
        let namespace = format!("n{round}");
        server.post("/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        let mut creates = Vec::new();
        for index in 0..8 {
            let (server, maps) = (server.clone(), maps.clone());
            creates.push(tokio::spawn(async move { server.post(&maps, map(&format!("m{index}"))).await }));
        }
        server.delete(&format!("/api/v1/namespaces/{namespace}"), json!({})).await;
        for create in creates {
            create.await.unwrap();
        }
        server.gone(&format!("/api/v1/namespaces/{namespace}")).await;
    }

    eventually("all config maps are deleted", async || {
        let (_, list) = server.get("/api/v1/configmaps").await;
        list["items"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
}
