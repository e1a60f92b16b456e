//! Requests whose processing once took time in the square of their size, up to half a minute.

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::harness::{CRDS, MAPS, TestServer, WIDGETS, crd, map, widget};

fn owners(count: usize) -> Vec<Value> {
    let owner = |index: usize| {
        // Not in the order of the UIDs.
        let uid = format!("{:x}-{index}", index.wrapping_mul(2_654_435_761) % 1_000_003);
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid})
    };
    (0..count).map(owner).collect()
}

#[tokio::test]
async fn twenty_thousand_owners_are_checked() {
    let server = TestServer::new().await;
    let count = 20_000;
    let mut object = map(&format!("m{count}"));
    object["metadata"]["ownerReferences"] = json!(owners(count));
    let (code, _) = server.post(&format!("{MAPS}?dryRun=All"), object).await;
    assert_eq!(code, StatusCode::CREATED);

    let count = 20_000;
    let mut several = map("several");
    several["metadata"]["ownerReferences"] = owners(count)
        .into_iter()
        .map(|mut owner| {
            owner["controller"] = true.into();
            owner
        })
        .collect();
    let (code, _) = server.post(MAPS, several).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_strategic_merge_of_long_lists_is_applied() {
    let server = TestServer::new().await;
    let count = 8000;
    let mut object = map(&format!("m{count}"));
    object["metadata"]["ownerReferences"] = json!(owners(count));
    server.post(MAPS, object).await;
    let url = format!("{MAPS}/m{count}?dryRun=All");
    let patch = json!({"metadata": {"ownerReferences": owners(2 * count)}});
    let (code, _) = server.patch(&url, "application/strategic-merge-patch+json", patch).await;
    assert_eq!(code, StatusCode::OK);
}

#[tokio::test]
async fn a_crd_with_very_many_versions_is_served() {
    let server = TestServer::new().await;
    let count = 1500;
    let mut crd = crd();
    crd["metadata"]["name"] = format!("w{count}s.example.com").into();
    let names = json!({"plural": format!("w{count}s"), "kind": format!("W{count}")});
    crd["spec"]["names"] = names;
    let version = crd["spec"]["versions"][0].clone();
    let versions = (1..count).map(|number| {
        let mut version = version.clone();
        version["name"] = format!("v{number}").into();
        version["storage"] = (number == 1).into();
        version
    });
    crd["spec"]["versions"] = versions.collect();
    let (code, answer) = server.post(CRDS, crd).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
}

#[tokio::test]
async fn fifty_thousand_unknown_fields_give_a_hundred_warnings() {
    let server = TestServer::new().await;
    let count = 50_000;
    let mut object = map("m");
    let unknown: Map<String, Value> = (0..count).map(|index| (format!("f{index}"), json!(1))).collect();
    object["metadata"].as_object_mut().unwrap().extend(unknown);
    let body = object.to_string();
    let path = format!("{MAPS}?dryRun=All");
    let response = server.response("POST", &path, "application/json", body.clone()).await;
    assert_eq!(response.status(), StatusCode::CREATED);
    assert_eq!(response.headers().get_all("warning").iter().count(), 100);

    let strict = format!("{MAPS}?fieldValidation=Strict");
    let (code, answer) = server.send("POST", &strict, "application/json", body).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert!(answer["message"].as_str().unwrap().len() < 10_000);
}

#[tokio::test]
async fn an_object_with_fifty_thousand_errors_is_refused() {
    let server = TestServer::new().await;
    let mut crd = crd();
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    schema["properties"]["l"] = json!({"type": "array", "items": {"type": "string"}});
    server.post(CRDS, crd).await;
    let count = 50_000;
    let items: Vec<usize> = (0..count).collect();
    let mut object = widget("w");
    object["spec"]["l"] = json!(items);
    let (code, _) = server.post(WIDGETS, object).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
}
