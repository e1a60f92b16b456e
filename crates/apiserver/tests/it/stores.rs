//! The durable store.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use http::StatusCode;
use serde_json::json;
use sqlx::Connection as _;
use vitistack_apiserver::ApiServer;
use vitistack_apiserver::store::sqlite::{OpenError, SqliteStore};

use crate::world::{DEFINITIONS, MAPS, WIDGETS, World, definition, eventually, map, widget};

async fn open(path: &Path) -> World {
    // The process before may take a moment to let go of the file.
    for _ in 0..600 {
        match SqliteStore::open(path).await {
            Ok(store) => return World { server: ApiServer::builder().store(store).build().await.unwrap() },
            Err(OpenError::LockStore { .. }) => {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the store stays locked");
}

#[tokio::test]
async fn what_was_answered_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.sqlite");
    let world = open(&path).await;
    world.post(DEFINITIONS, definition()).await;
    let (_, kept) = world.post(WIDGETS, widget("kept")).await;
    world.post(WIDGETS, widget("deleted")).await;
    world.delete(&format!("{WIDGETS}/deleted"), json!({})).await;
    let version = world.server.store().version();
    drop(world);
    let world = open(&path).await;
    assert!(world.server.store().version() >= version);
    assert_eq!(world.get(&format!("{WIDGETS}/kept")).await.1, kept);
    assert_eq!(world.get(&format!("{WIDGETS}/deleted")).await.0, StatusCode::NOT_FOUND);
    let (_, next) = world.post(WIDGETS, widget("next")).await;
    let next: u64 = next["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(next > version, "no version is used twice");
}

#[tokio::test]
async fn a_deletion_under_way_goes_on_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.sqlite");
    let world = open(&path).await;
    let (_, owner) = world.post(MAPS, map("owner")).await;
    let mut child = map("child");
    child["metadata"]["finalizers"] = json!(["example.com/wait"]);
    child["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true}]);
    world.post(MAPS, child).await;
    world.delete(&format!("{MAPS}/owner"), json!({"propagationPolicy": "Foreground"})).await;
    drop(world);
    let world = open(&path).await;
    eventually("the child is being deleted", async || {
        world.get(&format!("{MAPS}/child")).await.1["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    world
        .patch(
            &format!("{MAPS}/child"),
            "application/merge-patch+json",
            json!({"metadata": {"finalizers": null}}),
        )
        .await;
    world.gone(&format!("{MAPS}/owner")).await;
}

#[tokio::test]
async fn the_file_is_private_and_for_one_process() {
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
async fn a_newer_store_is_refused_with_the_fix() {
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
async fn many_writers_of_one_object_all_get_through() {
    let directory = tempfile::tempdir().unwrap();
    let world = open(&directory.path().join("store.sqlite")).await;
    world.post(MAPS, map("m")).await;
    let writers: Vec<_> = (0..32)
        .map(|index| {
            let world = world.clone();
            tokio::spawn(async move {
                let patch = json!({"data": {format!("k{index}"): "v"}});
                world.patch(&format!("{MAPS}/m"), "application/merge-patch+json", patch).await.0
            })
        })
        .collect();
    for writer in writers {
        assert_eq!(writer.await.unwrap(), StatusCode::OK);
    }
    let (_, object) = world.get(&format!("{MAPS}/m")).await;
    assert_eq!(object["data"].as_object().unwrap().len(), 33);
}
