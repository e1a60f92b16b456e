//! Headers, parameters and bodies of single requests.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::{Request, StatusCode};
use serde_json::json;
use tower::ServiceExt as _;

use crate::{
    harness::{APPLY, MAPS, TestServer, WIDGETS, map, widget},
    watch::Lines,
};

#[tokio::test]
async fn impersonation_is_refused_rather_than_ignored() {
    let server = TestServer::new().await;
    server.post(MAPS, map("m")).await;
    for (name, value) in [
        ("Impersonate-User", "mallory"),
        ("Impersonate-Group", "system:masters"),
        ("Impersonate-Uid", "1"),
        ("Impersonate-Extra-Scopes", "all"),
    ] {
        let request = Request::builder().method("DELETE").uri(format!("{MAPS}/m")).header(name, value);
        let response = server.api.service().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{name}");
    }
    assert_eq!(server.get(&format!("{MAPS}/m")).await.0, StatusCode::OK, "nothing was deleted");
}

#[tokio::test]
async fn the_longest_possible_timeout_does_not_panic_a_watch() {
    let server = TestServer::new().await;
    server.post(MAPS, map("m")).await;
    let path = format!("{MAPS}?watch=true&timeoutSeconds=9223372036854775807");
    let mut lines = Lines::open(&server, &path).await;
    assert_eq!(lines.next_change().await.1, "m");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_given_up() {
    let server = TestServer::new().await;
    let started = tokio::time::Instant::now();
    let body = Body::from_stream(stream::pending::<Result<Bytes, std::convert::Infallible>>());
    let request = Request::builder().method("POST").uri(MAPS).body(body).unwrap();
    let response = server.api.service().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(started.elapsed(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn bodies_of_paths_that_need_none_are_not_read() {
    let server = TestServer::new().await;
    for path in ["/version", "/livez", "/readyz", "/healthz", "/apis", "/nope"] {
        let body = Body::from_stream(stream::pending::<Result<Bytes, std::convert::Infallible>>());
        let request = Request::builder().method("POST").uri(path).body(body).unwrap();
        let answering = tokio::time::timeout(Duration::from_secs(1), server.api.service().oneshot(request));
        assert!(answering.await.is_ok(), "{path}");
    }
}

#[tokio::test]
async fn applying_another_kind_to_a_scale_is_a_bad_request() {
    let server = TestServer::with_widgets().await;
    server.post(WIDGETS, widget("w")).await;
    let path = format!("{WIDGETS}/w/scale?fieldManager=test");
    let (code, answer) = server.patch(&path, APPLY, widget("w")).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{answer}");
    assert_eq!(answer["message"], "invalid object type: example.com/v1, Kind=Widget");
    let (code, _) =
        server.patch(&path, APPLY, json!({"apiVersion": "autoscaling/v1", "kind": "Scale"})).await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR, "as on kube-apiserver");
}
