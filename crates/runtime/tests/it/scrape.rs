//! Access control of the metrics server.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::{Api, api::PostParams};
use serde_json::json;

use crate::stage::{Stage, assert_contains, shared_server};

#[tokio::test]
async fn secure_metrics_are_served_only_to_authorized_clients() {
    let stage = Stage::new(shared_server().await, "scrape").await;
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": "metrics-reader"},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    }))
    .unwrap();
    Api::all(stage.client.clone()).create(&PostParams::default(), &role).await.unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "metrics-reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "metrics-reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "scraper"}],
    }))
    .unwrap();
    Api::all(stage.client.clone()).create(&PostParams::default(), &binding).await.unwrap();

    let operator = stage.operator(&[("METRICS_SECURE", "true")]);
    assert_eq!(operator.metrics("https", None).await.0, 401);
    assert_eq!(operator.metrics("https", Some("unknown-token")).await.0, 401);
    assert_eq!(operator.metrics("https", Some("stranger-token")).await.0, 403);
    let (code, text) = operator.metrics("https", Some("scraper-token")).await;
    assert_eq!(code, 200);
    assert_contains(&text, &["widget_operator_leader"]);
    // The decision is cached.
    assert_eq!(operator.metrics("https", Some("scraper-token")).await.0, 200);
    let reviews = stage.server.audit().unwrap();
    let asked = reviews.iter().filter(|request| request.resource == "subjectaccessreviews").count();
    assert_eq!(asked, 2, "once for the stranger, once for the scraper");
}
