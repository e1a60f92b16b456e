//! Garbage collection and namespaces.

use http::StatusCode;
use serde_json::{Value, json};

use crate::world::{MAPS, MERGE, World, eventually, map};

fn owned(name: &str, owner: &Value, block: bool) -> Value {
    let mut object = map(name);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": block,
    }]);
    object
}

#[tokio::test]
async fn dependents_go_after_their_owner() {
    let world = World::new().await;
    let (_, owner) = world.post(MAPS, map("owner")).await;
    let (_, child) = world.post(MAPS, owned("child", &owner, false)).await;
    world.post(MAPS, owned("grandchild", &child, false)).await;
    world.delete(&format!("{MAPS}/owner"), json!({"propagationPolicy": "Background"})).await;
    world.gone(&format!("{MAPS}/child")).await;
    world.gone(&format!("{MAPS}/grandchild")).await;
}

#[tokio::test]
async fn orphans_are_kept_and_let_go() {
    let world = World::new().await;
    let (_, owner) = world.post(MAPS, map("owner")).await;
    world.post(MAPS, owned("child", &owner, false)).await;
    world.delete(&format!("{MAPS}/owner"), json!({"propagationPolicy": "Orphan"})).await;
    world.gone(&format!("{MAPS}/owner")).await;
    let (code, child) = world.get(&format!("{MAPS}/child")).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(child["metadata"].get("ownerReferences"), None);
}

#[tokio::test]
async fn an_owner_deleted_in_the_foreground_waits_for_what_blocks_it() {
    let world = World::new().await;
    let (_, owner) = world.post(MAPS, map("owner")).await;
    let mut child = owned("child", &owner, true);
    child["metadata"]["finalizers"] = json!(["example.com/wait"]);
    world.post(MAPS, child).await;
    world.delete(&format!("{MAPS}/owner"), json!({"propagationPolicy": "Foreground"})).await;
    eventually("the child is being deleted", async || {
        world.get(&format!("{MAPS}/child")).await.1["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    let (code, owner) = world.get(&format!("{MAPS}/owner")).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(owner["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    world.patch(&format!("{MAPS}/child"), MERGE, json!({"metadata": {"finalizers": null}})).await;
    world.gone(&format!("{MAPS}/owner")).await;
}

#[tokio::test]
async fn an_object_whose_owner_never_was_goes() {
    let world = World::new().await;
    let ghost = json!({"metadata": {"name": "ghost", "uid": "none"}});
    world.post(MAPS, owned("child", &ghost, false)).await;
    world.gone(&format!("{MAPS}/child")).await;
}

#[tokio::test]
async fn an_object_with_another_owner_stays() {
    let world = World::new().await;
    let (_, one) = world.post(MAPS, map("one")).await;
    let (_, two) = world.post(MAPS, map("two")).await;
    let mut child = owned("child", &one, false);
    let second = owned("child", &two, false)["metadata"]["ownerReferences"][0].clone();
    child["metadata"]["ownerReferences"].as_array_mut().unwrap().push(second);
    world.post(MAPS, child).await;
    world.delete(&format!("{MAPS}/one"), json!({})).await;
    eventually("the reference is gone", async || {
        let (_, child) = world.get(&format!("{MAPS}/child")).await;
        child["metadata"]["ownerReferences"].as_array().is_some_and(|owners| owners.len() == 1)
    })
    .await;
}

#[tokio::test]
async fn a_namespace_takes_its_contents_along() {
    let world = World::new().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    world.post("/api/v1/namespaces", namespace).await;
    let mut stuck = map("stuck");
    stuck["metadata"]["finalizers"] = json!(["example.com/wait"]);
    let maps = "/api/v1/namespaces/n/configmaps";
    world.post(maps, stuck).await;
    world.post(maps, map("loose")).await;
    let (_, answer) = world.delete("/api/v1/namespaces/n", json!({})).await;
    assert_eq!(answer["status"]["phase"], "Terminating");
    world.gone(&format!("{maps}/loose")).await;
    let (code, status) = world.post(maps, map("late")).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert_eq!(status["details"]["causes"][0]["reason"], "NamespaceTerminating");
    assert_eq!(world.get("/api/v1/namespaces/n").await.0, StatusCode::OK);
    world.patch(&format!("{maps}/stuck"), MERGE, json!({"metadata": {"finalizers": null}})).await;
    world.gone("/api/v1/namespaces/n").await;
}

#[tokio::test]
async fn the_first_namespaces_stay() {
    let world = World::new().await;
    for name in ["default", "kube-system", "kube-public"] {
        let (code, _) = world.delete(&format!("/api/v1/namespaces/{name}"), json!({})).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{name}");
    }
    assert_eq!(world.post("/api/v1/namespaces/nope/configmaps", map("m")).await.0, StatusCode::NOT_FOUND);
}
