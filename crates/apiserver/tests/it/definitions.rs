//! Custom resource definitions.

use http::StatusCode;
use serde_json::{Value, json};

use crate::world::{DEFINITIONS, MERGE, WIDGETS, World, definition, widget};

fn condition(definition: &Value, kind: &str) -> Option<String> {
    let conditions = definition["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == kind)?;
    found["status"].as_str().map(str::to_owned)
}

#[tokio::test]
async fn a_definition_is_served_at_once_and_established() {
    let world = World::with_widgets().await;
    assert_eq!(world.get(WIDGETS).await.0, StatusCode::OK);
    let (_, stored) = world.get(&format!("{DEFINITIONS}/widgets.example.com")).await;
    assert_eq!(condition(&stored, "Established").as_deref(), Some("True"));
    assert_eq!(stored["status"]["acceptedNames"]["listKind"], "WidgetList");
    let (_, groups) = world.get("/apis").await;
    assert!(groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == "example.com"));
    let (_, document) = world.get("/openapi/v3/apis/example.com/v1").await;
    assert!(document["components"]["schemas"].get("com.example.v1.Widget").is_some());
}

#[tokio::test]
async fn names_in_use_are_not_accepted() {
    let world = World::with_widgets().await;
    let mut rival = definition();
    rival["metadata"]["name"] = json!("gadgets.example.com");
    rival["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget", "shortNames": ["wd"]});
    world.post(DEFINITIONS, rival).await;
    let (_, stored) = world.get(&format!("{DEFINITIONS}/gadgets.example.com")).await;
    assert_eq!(condition(&stored, "NamesAccepted").as_deref(), Some("False"));
    assert_eq!(world.get("/apis/example.com/v1/gadgets").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn wrong_definitions_are_refused() {
    let world = World::new().await;
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
        let mut wrong = definition();
        *wrong.pointer_mut(pointer).unwrap() = value;
        let (code, status) = world.post(DEFINITIONS, wrong).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{pointer}");
        assert_eq!(status["details"]["causes"][0]["field"], field, "{pointer}: {status}");
    }
}

#[tokio::test]
async fn a_new_schema_counts_for_what_is_stored() {
    let world = World::with_widgets().await;
    world.post(WIDGETS, widget("a")).await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let (_, mut stored) = world.get(&path).await;
    stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["shape"] =
        json!({"type": "string", "default": "round"});
    let (code, answer) = world.put(&path, stored).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    assert_eq!(world.get(&format!("{WIDGETS}/a")).await.1["spec"]["shape"], "round");
}

#[tokio::test]
async fn versions_convert_and_the_storage_version_stays() {
    let world = World::new().await;
    let mut two = definition();
    let mut second = two["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    two["spec"]["versions"].as_array_mut().unwrap().push(second);
    world.post(DEFINITIONS, two).await;
    let path = "/apis/example.com/v2/namespaces/default/widgets";
    let mut object = widget("a");
    object["apiVersion"] = json!("example.com/v2");
    assert_eq!(world.post(path, object).await.0, StatusCode::CREATED);
    assert_eq!(world.get(&format!("{path}/a")).await.1["apiVersion"], "example.com/v2");
    assert_eq!(world.get(&format!("{WIDGETS}/a")).await.1["apiVersion"], "example.com/v1");
    let versions = json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true}]}});
    let (code, _) = world.patch(&format!("{DEFINITIONS}/widgets.example.com"), MERGE, versions).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_deleted_definition_takes_its_objects_along() {
    let world = World::with_widgets().await;
    world.post(WIDGETS, widget("a")).await;
    let (_, answer) = world.delete(&format!("{DEFINITIONS}/widgets.example.com"), json!({})).await;
    assert_eq!(condition(&answer, "Terminating").as_deref(), Some("True"));
    world.gone(&format!("{DEFINITIONS}/widgets.example.com")).await;
    assert_eq!(world.get(WIDGETS).await.0, StatusCode::NOT_FOUND);
    world.post(DEFINITIONS, definition()).await;
    assert_eq!(world.get(WIDGETS).await.1["items"], json!([]));
}
