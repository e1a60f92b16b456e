//! A server in the process, and helpers to send requests to it.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use vitistack_apiserver::ApiServer;

/// The path of widgets.
pub const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
/// The path of config maps.
pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The path of CRDs.
pub const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The content type of merge patches.
pub const MERGE: &str = "application/merge-patch+json";
/// The content type of applies.
pub const APPLY: &str = "application/apply-patch+yaml";

/// A server.
#[derive(Clone)]
pub struct TestServer {
    /// The server.
    pub api: ApiServer,
}

/// Returns the CRD of widgets.
pub fn crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["color"], "properties": {
                        "color": {"type": "string", "pattern": "^[a-z]+$"},
                        "size": {"type": "integer", "default": 3},
                        "replicas": {"type": "integer"},
                    }},
                    "status": {"type": "object", "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}}},
                }}},
            }],
        },
    })
}

/// Returns a widget.
pub fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"color": "red"}})
}

/// Returns a config map.
pub fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

impl TestServer {
    /// Returns a server in memory.
    pub async fn new() -> Self {
        Self { api: ApiServer::builder().build().await.unwrap() }
    }

    /// Returns a server in memory that serves widgets.
    pub async fn with_widgets() -> Self {
        let server = Self::new().await;
        let (code, answer) = server.post(CRDS, crd()).await;
        assert_eq!(code, StatusCode::CREATED, "{answer}");
        server
    }

    /// Sends a request and returns the response.
    pub async fn response(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: impl Into<Bytes>,
    ) -> http::Response<Body> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .header("user-agent", "test");
        let request = request.body(Body::from(body.into())).unwrap();
        self.api.service().oneshot(request).await.unwrap()
    }

    /// Returns the status and the value of the response.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: impl Into<Bytes>,
    ) -> (StatusCode, Value) {
        let response = self.response(method, path, kind, body).await;
        let code = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// GET.
    pub async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.send("GET", path, "", "").await
    }

    /// POST.
    pub async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        self.send("POST", path, "application/json", body.to_string()).await
    }

    /// PUT.
    pub async fn put(&self, path: &str, body: Value) -> (StatusCode, Value) {
        self.send("PUT", path, "application/json", body.to_string()).await
    }

    /// PATCH.
    pub async fn patch(&self, path: &str, kind: &str, body: Value) -> (StatusCode, Value) {
        self.send("PATCH", path, kind, body.to_string()).await
    }

    /// DELETE.
    pub async fn delete(&self, path: &str, body: Value) -> (StatusCode, Value) {
        self.send("DELETE", path, "application/json", body.to_string()).await
    }

    /// Waits until an object is deleted.
    pub async fn gone(&self, path: &str) {
        eventually(path, async || self.get(path).await.0 == StatusCode::NOT_FOUND).await;
    }
}

/// Waits for a condition, with a generous timeout.
pub async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    for _ in 0..600 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("timed out waiting for: {what}");
}
