//! Garbage collection and namespaces.

use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{MAPS, MERGE, TestServer, eventually, map};

fn owned(name: &str, owner: &Value, block: bool) -> Value {
    let mut object = map(name);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": block,
    }]);
    object
}

#[tokio::test]
async fn dependents_are_deleted_after_their_owner() {
    let server = TestServer::new().await;
    let (_, owner) = server.post(MAPS, map("owner")).await;
    let (_, child) = server.post(MAPS, owned("child", &owner, false)).await;
    server.post(MAPS, owned("grandchild", &child, false)).await;
    server.delete(&format!("{MAPS}/owner"), json!({"propagationPolicy": "Background"})).await;
    server.gone(&format!("{MAPS}/child")).await;
    server.gone(&format!("{MAPS}/grandchild")).await;
}

#[tokio::test]
async fn orphans_lose_their_owner_reference() {
    let server = TestServer::new().await;
    let (_, owner) = server.post(MAPS, map("owner")).await;
    server.post(MAPS, owned("child", &owner, false)).await;
    server.delete(&format!("{MAPS}/owner"), json!({"propagationPolicy": "Orphan"})).await;
    server.gone(&format!("{MAPS}/owner")).await;
    let (code, child) = server.get(&format!("{MAPS}/child")).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(child["metadata"].get("ownerReferences"), None);
}

#[tokio::test]
async fn foreground_deletion_waits_for_blocking_dependents() {
    let server = TestServer::new().await;
    let (_, owner) = server.post(MAPS, map("owner")).await;
    let mut child = owned("child", &owner, true);
    child["metadata"]["finalizers"] = json!(["example.com/wait"]);
    server.post(MAPS, child).await;
    server.delete(&format!("{MAPS}/owner"), json!({"propagationPolicy": "Foreground"})).await;
    eventually("the child is being deleted", async || {
        server.get(&format!("{MAPS}/child")).await.1["metadata"]["deletionTimestamp"].is_string()
    })
    .await;

    let (code, owner) = server.get(&format!("{MAPS}/owner")).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(owner["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    server.patch(&format!("{MAPS}/child"), MERGE, json!({"metadata": {"finalizers": null}})).await;
    server.gone(&format!("{MAPS}/owner")).await;
}

/// Creates objects of which each one owns and blocks the next, and the last one the first.
async fn cycle(server: &TestServer, size: usize) -> Vec<String> {
    let mut created: Vec<Value> = Vec::new();
    for index in 0..size {
        let name = format!("link-{index}");
        let object = created.last().map_or_else(|| map(&name), |owner| owned(&name, owner, true));
        created.push(server.post(MAPS, object).await.1);
    }
    let closing = owned("link-0", created.last().unwrap(), true);
    let references = json!({"metadata": {"ownerReferences": closing["metadata"]["ownerReferences"]}});
    let (code, _) = server.patch(&format!("{MAPS}/link-0"), MERGE, references).await;
    assert_eq!(code, StatusCode::OK);
    (0..size).map(|index| format!("{MAPS}/link-{index}")).collect()
}

#[tokio::test]
async fn a_cycle_of_owners_is_deleted_in_the_foreground() {
    // One object that owns itself, two that own each other, and a longer cycle.
    for size in [1, 2, 5] {
        for start in [0, size - 1] {
            let server = TestServer::new().await;
            let paths = cycle(&server, size).await;
            server.delete(&paths[start], json!({"propagationPolicy": "Foreground"})).await;
            for path in &paths {
                server.gone(path).await;
            }
        }
    }
}

#[tokio::test]
async fn a_cycle_of_owners_is_deleted_when_every_object_is_deleted_in_the_foreground() {
    let server = TestServer::new().await;
    let paths = cycle(&server, 5).await;
    for path in &paths {
        server.delete(path, json!({"propagationPolicy": "Foreground"})).await;
    }
    for path in &paths {
        server.gone(path).await;
    }
}

#[tokio::test]
async fn a_cycle_of_owners_waits_for_a_dependent_outside_of_it() {
    let server = TestServer::new().await;
    let paths = cycle(&server, 3).await;
    let (_, owner) = server.get(&paths[1]).await;
    let mut child = owned("child", &owner, true);
    child["metadata"]["finalizers"] = json!(["example.com/wait"]);
    server.post(MAPS, child).await;

    server.delete(&paths[0], json!({"propagationPolicy": "Foreground"})).await;
    eventually("the child is being deleted", async || {
        server.get(&format!("{MAPS}/child")).await.1["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    let (code, owner) = server.get(&paths[1]).await;
    assert_eq!((code, &owner["metadata"]["finalizers"]), (StatusCode::OK, &json!(["foregroundDeletion"])));

    server.patch(&format!("{MAPS}/child"), MERGE, json!({"metadata": {"finalizers": null}})).await;
    for path in &paths {
        server.gone(path).await;
    }
}

#[tokio::test]
async fn an_object_whose_owner_never_existed_is_deleted() {
    let server = TestServer::new().await;
    let ghost = json!({"metadata": {"name": "ghost", "uid": "none"}});
    server.post(MAPS, owned("child", &ghost, false)).await;
    server.gone(&format!("{MAPS}/child")).await;
}

#[tokio::test]
async fn an_object_with_another_owner_is_not_deleted() {
    let server = TestServer::new().await;
    let (_, one) = server.post(MAPS, map("one")).await;
    let (_, two) = server.post(MAPS, map("two")).await;
    let mut child = owned("child", &one, false);
    let second = owned("child", &two, false)["metadata"]["ownerReferences"][0].clone();
    child["metadata"]["ownerReferences"].as_array_mut().unwrap().push(second);
    server.post(MAPS, child).await;
    server.delete(&format!("{MAPS}/one"), json!({})).await;
    eventually("the reference is gone", async || {
        let (_, child) = server.get(&format!("{MAPS}/child")).await;
        child["metadata"]["ownerReferences"].as_array().is_some_and(|owners| owners.len() == 1)
    })
    .await;
}

#[tokio::test]
async fn a_namespace_is_deleted_with_its_contents() {
    let server = TestServer::new().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    server.post("/api/v1/namespaces", namespace).await;
    let mut stuck = map("stuck");
    stuck["metadata"]["finalizers"] = json!(["example.com/wait"]);
    let maps = "/api/v1/namespaces/n/configmaps";
    server.post(maps, stuck).await;
    server.post(maps, map("loose")).await;
    let (_, answer) = server.delete("/api/v1/namespaces/n", json!({})).await;
    assert_eq!(answer["status"]["phase"], "Terminating");
    server.gone(&format!("{maps}/loose")).await;
    let (code, status) = server.post(maps, map("late")).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert_eq!(status["details"]["causes"][0]["reason"], "NamespaceTerminating");
    assert_eq!(server.get("/api/v1/namespaces/n").await.0, StatusCode::OK);
    server.patch(&format!("{maps}/stuck"), MERGE, json!({"metadata": {"finalizers": null}})).await;
    server.gone("/api/v1/namespaces/n").await;
}

#[tokio::test]
async fn standard_namespaces_cannot_be_deleted() {
    let server = TestServer::new().await;
    for name in ["default", "kube-system", "kube-public"] {
        let (code, _) = server.delete(&format!("/api/v1/namespaces/{name}"), json!({})).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{name}");
    }
    assert_eq!(server.post("/api/v1/namespaces/nope/configmaps", map("m")).await.0, StatusCode::NOT_FOUND);
}
