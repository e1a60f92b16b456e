//! Custom resource crds.

use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{CRDS, MERGE, TestServer, WIDGETS, crd, widget};

fn condition(crd: &Value, kind: &str) -> Option<String> {
    let conditions = crd["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == kind)?;
    found["status"].as_str().map(str::to_owned)
}

#[tokio::test]
async fn a_crd_is_established_and_served_immediately() {
    let server = TestServer::with_widgets().await;
    assert_eq!(server.get(WIDGETS).await.0, StatusCode::OK);
    let (_, stored) = server.get(&format!("{CRDS}/widgets.example.com")).await;
    assert_eq!(condition(&stored, "Established").as_deref(), Some("True"));
    assert_eq!(stored["status"]["acceptedNames"]["listKind"], "WidgetList");
    let (_, groups) = server.get("/apis").await;
    assert!(groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == "example.com"));
    let (_, document) = server.get("/openapi/v3/apis/example.com/v1").await;
    assert!(document["components"]["schemas"].get("com.example.v1.Widget").is_some());
}

#[tokio::test]
async fn names_in_use_are_not_accepted() {
    let server = TestServer::with_widgets().await;
    let mut rival = crd();
    rival["metadata"]["name"] = json!("gadgets.example.com");
    rival["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget", "shortNames": ["wd"]});
    server.post(CRDS, rival).await;
    let (_, stored) = server.get(&format!("{CRDS}/gadgets.example.com")).await;
    assert_eq!(condition(&stored, "NamesAccepted").as_deref(), Some("False"));
    assert_eq!(server.get("/apis/example.com/v1/gadgets").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn invalid_crds_are_rejected() {
    let server = TestServer::new().await;
    let rows = [
        ("/metadata/name", json!("x.example.com"), "metadata.name"),
        ("/spec/group", json!("nodot"), "metadata.name"),
        ("/spec/scope", json!("Here"), "spec.scope"),
        ("/spec/versions/0/storage", json!(false), "spec.versions"),
        ("/spec/versions/0/schema", json!({}), "spec.versions[0].schema.openAPIV3Schema"),
        (
            "/spec/versions/0/additionalPrinterColumns/0/type",
            json!("text"),
            "spec.additionalPrinterColumns[0].type",
        ),
    ];

    for (pointer, value, field) in rows {
        let mut wrong = crd();
        *wrong.pointer_mut(pointer).unwrap() = value;
        let (code, status) = server.post(CRDS, wrong).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{pointer}");
        assert_eq!(status["details"]["causes"][0]["field"], field, "{pointer}: {status}");
    }
}

#[tokio::test]
async fn a_new_schema_applies_to_stored_objects() {
    let server = TestServer::with_widgets().await;
    server.post(WIDGETS, widget("a")).await;
    let path = format!("{CRDS}/widgets.example.com");
    let (_, mut stored) = server.get(&path).await;
    stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["shape"] =
        json!({"type": "string", "default": "round"});
    let (code, answer) = server.put(&path, stored).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    assert_eq!(server.get(&format!("{WIDGETS}/a")).await.1["spec"]["shape"], "round");
}

#[tokio::test]
async fn versions_are_converted_and_the_storage_version_is_unchanged() {
    let server = TestServer::new().await;
    let mut two = crd();
    let mut second = two["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    two["spec"]["versions"].as_array_mut().unwrap().push(second);
    server.post(CRDS, two).await;
    let path = "/apis/example.com/v2/namespaces/default/widgets";
    let mut object = widget("a");
    object["apiVersion"] = json!("example.com/v2");
    assert_eq!(server.post(path, object).await.0, StatusCode::CREATED);
    assert_eq!(server.get(&format!("{path}/a")).await.1["apiVersion"], "example.com/v2");
    assert_eq!(server.get(&format!("{WIDGETS}/a")).await.1["apiVersion"], "example.com/v1");
    let versions = json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true}]}});
    let (code, _) = server.patch(&format!("{CRDS}/widgets.example.com"), MERGE, versions).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_crd_is_deleted_with_its_objects() {
    let server = TestServer::with_widgets().await;
    server.post(WIDGETS, widget("a")).await;
    let (_, answer) = server.delete(&format!("{CRDS}/widgets.example.com"), json!({})).await;
    assert_eq!(condition(&answer, "Terminating").as_deref(), Some("True"));
    server.gone(&format!("{CRDS}/widgets.example.com")).await;
    assert_eq!(server.get(WIDGETS).await.0, StatusCode::NOT_FOUND);
    server.post(CRDS, crd()).await;
    assert_eq!(server.get(WIDGETS).await.1["items"], json!([]));
}
