//! JSON patches that build huge or deep objects out of few bytes.

use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{CRDS, MAPS, TestServer, WIDGETS, crd, map, widget};

const JSON: &str = "application/json-patch+json";

/// Copies a field into itself: every operation doubles it.
fn doubling() -> Value {
    let mut operations = vec![json!({"op": "add", "path": "/x", "value": {"a": "y".repeat(100)}})];
    for index in 0..30 {
        operations.push(json!({"op": "copy", "from": "/x", "path": format!("/x/n{index}")}));
    }
    Value::Array(operations)
}

/// Copies a field into its own deepest node: every operation doubles the depth.
fn nesting() -> Value {
    let mut operations = vec![json!({"op": "add", "path": "/x", "value": {"c": 1}})];
    for power in 0..12 {
        let path = format!("/x{}", "/c".repeat(1 << power));
        operations.push(json!({"op": "copy", "from": "/x", "path": path}));
    }
    Value::Array(operations)
}

#[tokio::test]
async fn a_patch_of_two_kilobytes_does_not_fill_the_memory() {
    let server = TestServer::with_widgets().await;
    server.post(MAPS, map("m")).await;
    server.post(WIDGETS, widget("w")).await;
    for path in [format!("{MAPS}/m"), format!("{WIDGETS}/w"), format!("{WIDGETS}/w/scale")] {
        let (code, answer) = server.patch(&path, JSON, doubling()).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{path}: {answer}");
        assert_eq!(answer["message"], "the server rejected our request due to an error in our request");
    }
}

#[tokio::test]
async fn a_patch_that_nests_an_object_does_not_overflow_the_stack() {
    let server = TestServer::with_widgets().await;
    server.post(MAPS, map("m")).await;
    let (code, answer) = server.patch(&format!("{MAPS}/m"), JSON, nesting()).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    assert_eq!(server.get(&format!("{MAPS}/m")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn deep_documents_of_every_kind_of_patch_are_rejected() {
    let server = TestServer::with_widgets().await;
    server.post(MAPS, map("m")).await;
    let deep = format!("{{\"data\":{}1{}}}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    let flow = format!("data: {}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (kind, body) in [
        ("application/merge-patch+json", &deep),
        ("application/strategic-merge-patch+json", &deep),
        ("application/apply-patch+yaml", &deep),
        ("application/apply-patch+yaml", &flow),
        (JSON, &format!("[{{\"op\":\"add\",\"path\":\"/x\",\"value\":{deep}}}]")),
    ] {
        let path = format!("{MAPS}/m?fieldManager=test");
        let (code, _) = server.send("PATCH", &path, kind, body.clone()).await;
        assert_eq!(code, StatusCode::BAD_REQUEST, "{kind}");
    }
    assert_eq!(server.send("POST", CRDS, "application/yaml", flow).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(server.post(CRDS, crd()).await.0, StatusCode::CONFLICT, "the server still answers");
}
