//! The durable store.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use http::StatusCode;
use serde_json::json;
use sqlx::Connection as _;
use vitistack_apiserver::{
    ApiServer,
    store::sqlite::{OpenError, SqliteStore},
};

use crate::harness::{CRDS, MAPS, TestServer, WIDGETS, crd, eventually, map, widget};

async fn open(path: &Path) -> TestServer {
    // The previous process may take a moment to release the file.
    for _ in 0..600 {
        match SqliteStore::open(path).await {
            Ok(store) => {
                return TestServer { api: ApiServer::builder().store(store).build().await.unwrap() };
            }
            Err(OpenError::LockStore { .. }) => {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the store stays locked");
}

#[tokio::test]
async fn acknowledged_writes_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.sqlite");
    let server = open(&path).await;
    server.post(CRDS, crd()).await;
    let (_, stored) = server.post(WIDGETS, widget("stored")).await;
    server.post(WIDGETS, widget("deleted")).await;
    server.delete(&format!("{WIDGETS}/deleted"), json!({})).await;
    let version = server.api.store().version();
    drop(server);
    let server = open(&path).await;
    assert!(server.api.store().version() >= version);
    assert_eq!(server.get(&format!("{WIDGETS}/stored")).await.1, stored);
    assert_eq!(server.get(&format!("{WIDGETS}/deleted")).await.0, StatusCode::NOT_FOUND);
    let (_, next) = server.post(WIDGETS, widget("next")).await;
    let next: u64 = next["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(next > version, "no version is used twice");
}

#[tokio::test]
async fn a_pending_deletion_continues_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.sqlite");
    let server = open(&path).await;
    let (_, owner) = server.post(MAPS, map("owner")).await;
    let mut child = map("child");
    child["metadata"]["finalizers"] = json!(["example.com/wait"]);
    child["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true}]);
    server.post(MAPS, child).await;
    server.delete(&format!("{MAPS}/owner"), json!({"propagationPolicy": "Foreground"})).await;
    drop(server);
    let server = open(&path).await;
    eventually("the child is being deleted", async || {
        server.get(&format!("{MAPS}/child")).await.1["metadata"]["deletionTimestamp"].is_string()
    })
    .await;

    server
        .patch(
            &format!("{MAPS}/child"),
            "application/merge-patch+json",
            json!({"metadata": {"finalizers": null}}),
        )
        .await;
    server.gone(&format!("{MAPS}/owner")).await;
}

#[tokio::test]
async fn the_file_is_private_and_locked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.sqlite");
    let store = SqliteStore::open(&path).await.unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = SqliteStore::open(&path).await.unwrap_err();
    assert!(matches!(second, OpenError::LockStore { .. }), "{second}");
    drop(store);
}

#[tokio::test]
async fn a_newer_store_is_rejected_with_the_fix() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.sqlite");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
    sqlx::query("PRAGMA user_version = 99").execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let error = SqliteStore::open(&path).await.unwrap_err().to_string();
    assert!(error.contains("newer") && error.contains("run the version that wrote it"), "{error}");
}

#[tokio::test]
async fn concurrent_writers_of_one_object_all_succeed() {
    let directory = tempfile::tempdir().unwrap();
    let server = open(&directory.path().join("store.sqlite")).await;
    server.post(MAPS, map("m")).await;
    let writers: Vec<_> = (0..32)
        .map(|index| {
            let server = server.clone();
            tokio::spawn(async move {
                let patch = json!({"data": {format!("k{index}"): "v"}});
                server.patch(&format!("{MAPS}/m"), "application/merge-patch+json", patch).await.0
            })
        })
        .collect();

    for writer in writers {
        assert_eq!(writer.await.unwrap(), StatusCode::OK);
    }
    let (_, object) = server.get(&format!("{MAPS}/m")).await;
    assert_eq!(object["data"].as_object().unwrap().len(), 33);
}
