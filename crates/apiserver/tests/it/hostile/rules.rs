//! Validation rules that would run for hours or fill the memory.

use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{CRDS, TestServer, WIDGETS, crd, widget};

/// Returns the CRD of widgets with a list, a number and a rule.
fn with_rule(rule: &str, limit: Option<u64>) -> Value {
    let mut list = json!({"type": "array", "items": {"type": "integer"}});
    if let Some(limit) = limit {
        list["maxItems"] = limit.into();
    }
    let mut crd = crd();
    let spec = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["properties"]["a"] = list;
    spec["properties"]["n"] = json!({"type": "integer"});
    spec["x-kubernetes-validations"] = json!([{"rule": rule, "message": "no"}]);
    crd
}

const NESTED: &str = "self.a.all(x, self.a.all(y, self.a.all(z, x + y + z < 1000000)))";

#[tokio::test]
async fn nested_loops_over_a_list_without_a_limit_are_rejected_with_the_crd() {
    let server = TestServer::new().await;
    let (code, answer) = server.post(CRDS, with_rule(NESTED, None)).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("estimated rule cost exceeds budget by factor of more than 100x"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expensive_rule_is_stopped_and_does_not_delay_others() {
    let server = TestServer::new().await;
    let (code, answer) = server.post(CRDS, with_rule(NESTED, Some(150))).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    let items: Vec<u64> = (0..150).collect();
    let mut attacks = Vec::new();
    for index in 0..2 {
        let (server, mut object) = (server.clone(), widget(&format!("w{index}")));
        object["spec"]["a"] = json!(items);
        attacks.push(tokio::spawn(async move { server.post(WIDGETS, object).await }));
    }

    assert_eq!(server.get("/livez").await.0, StatusCode::OK);
    for attack in attacks {
        let (code, answer) = attack.await.unwrap();
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(answer["message"].as_str().unwrap().contains("running out of cost budget"), "{answer}");
    }
}

#[tokio::test]
async fn a_huge_range_does_not_fill_the_memory() {
    let server = TestServer::new().await;
    server.post(CRDS, with_rule("!has(self.n) || lists.range(self.n).size() >= 0", None)).await;
    let mut object = widget("w");
    object["spec"]["n"] = json!(1_000_000_000);
    let (code, answer) = server.post(WIDGETS, object).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(answer["message"].as_str().unwrap().contains("range argument must not exceed"), "{answer}");
}
