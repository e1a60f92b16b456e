//! Files that are damaged, lost or old: nothing that was acknowledged is served differently, and nothing is lost silently.

use std::path::Path;

use serde_json::{Value, json};
use sqlx::{Connection as _, Row as _, SqliteConnection, sqlite::SqliteConnectOptions};
use vitistack_apiserver::{
    ApiServer, ServeOptions,
    backup::{self, Objects},
    serve,
    store::sqlite::{OpenError, SqliteStore},
};

use crate::harness::{MAPS, TestServer, map};

/// Returns a server on the file, or why the file is refused.
async fn open(path: &Path) -> Result<TestServer, OpenError> {
    loop {
        match SqliteStore::open(path).await {
            Ok(store) => {
                return Ok(TestServer { api: ApiServer::builder().store(store).build().await.unwrap() });
            }
            // The previous server releases the file in a moment.
            Err(OpenError::LockStore { .. }) => {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The names and contents of all config maps.
async fn maps(server: &TestServer) -> Vec<Value> {
    server.get(MAPS).await.1["items"].as_array().unwrap().clone()
}

/// A closed store with some objects, and these objects.
async fn filled(path: &Path) -> Vec<Value> {
    let server = open(path).await.unwrap();
    for index in 0..24 {
        let mut object = map(&format!("map-{index}"));
        object["data"]["text"] = json!("x".repeat(200 * index));
        server.post(MAPS, object).await;
    }
    let written = maps(&server).await;
    drop(server);
    // Opened and closed once more, so that nothing is left in the log.
    drop(open(path).await.unwrap());
    let _ = connection(path).await.close().await;
    written
}

/// Opens the file as a user with a database tool does.
pub async fn connection(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(path);
    loop {
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        if sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(&mut connection).await.is_ok()
            && sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.is_ok()
        {
            sqlx::query("COMMIT").execute(&mut connection).await.unwrap();
            return connection;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn execute(path: &Path, statements: &[&'static str]) {
    let mut connection = connection(path).await;
    for statement in statements {
        sqlx::query(*statement).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
}

/// Asserts that a file is refused as damaged, with the fix.
async fn assert_damaged(path: &Path) -> String {
    let error = open(path).await.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("is damaged") && error.contains("restore it from a backup"), "{error:?}");
    error
}

#[tokio::test]
async fn flipped_bits_are_refused_or_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.sqlite");
    let written = filled(&path).await;
    let bytes = std::fs::read(&path).unwrap();

    let (mut refused, mut unchanged) = (0, 0);
    for seed in 0..36_usize {
        let mut damaged = bytes.clone();
        // 1 to 11 bits, spread over the file by a simple generator.
        let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
        for _ in 0..=(seed % 11) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let length = damaged.len();
            damaged[(state >> 16) % length] ^= 1 << (state >> 60 & 7);
        }
        let copy = directory.path().join(format!("copy-{seed}.sqlite"));
        std::fs::write(&copy, damaged).unwrap();

        match open(&copy).await {
            Ok(server) => {
                assert_eq!(maps(&server).await, written, "seed {seed} serves something else");
                unchanged += 1;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
        }
    }
    assert!(refused > unchanged, "{refused} of 36 were refused, and {unchanged} served unchanged");
}

#[tokio::test]
async fn a_damaged_object_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.sqlite");
    filled(&path).await;
    execute(&path, &["UPDATE objects SET object = replace(object, 'map-3', 'map-4') WHERE name = 'map-3'"])
        .await;
    let error = assert_damaged(&path).await;
    assert!(error.contains("default/map-3"), "{error}");
}

#[tokio::test]
async fn a_file_without_its_tables_or_with_other_types_is_refused() {
    for statement in [
        "DROP TABLE objects",
        "DELETE FROM counter",
        "UPDATE objects SET version = 'text' WHERE name = 'map-1'",
        "UPDATE objects SET object = 7 WHERE name = 'map-1'",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.sqlite");
        filled(&path).await;
        execute(&path, &[statement]).await;
        assert_damaged(&path).await;
    }
}

#[tokio::test]
async fn a_file_of_other_content_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.sqlite");
    std::fs::write(&path, "not a database, but some text that is long enough to be one".repeat(20)).unwrap();
    assert_damaged(&path).await;
}

#[tokio::test]
async fn an_empty_file_beside_a_kubeconfig_is_not_a_new_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.sqlite");
    filled(&path).await;
    std::fs::write(directory.path().join("kubeconfig"), "of an earlier run").unwrap();

    for lost in [true, false] {
        if lost {
            std::fs::remove_file(&path).unwrap();
        } else {
            std::fs::write(&path, "").unwrap();
        }
        let error = open(&path).await.err().unwrap().to_string();
        assert!(error.contains("missing or empty") && error.contains("restore it from a backup"), "{error}");
    }

    // The other advice of the message.
    std::fs::remove_file(directory.path().join("kubeconfig")).unwrap();
    let server = open(&path).await.unwrap();
    assert_eq!(maps(&server).await.len(), 0);
}

#[tokio::test]
async fn a_counter_that_lags_behind_does_not_reuse_a_version() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.sqlite");
    let written = filled(&path).await;
    execute(&path, &["UPDATE counter SET version = 1"]).await;

    let server = open(&path).await.unwrap();
    let (_, next) = server.post(MAPS, map("next")).await;
    let version =
        |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(version(&next) > written.iter().map(version).max().unwrap());
}

/// Makes of a file what the first release wrote.
async fn downgrade(path: &Path) {
    execute(
        path,
        &[
            "CREATE TABLE old (resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, \
             version INTEGER NOT NULL, object BLOB NOT NULL, PRIMARY KEY (resource, namespace, name)) WITHOUT ROWID",
            "INSERT INTO old SELECT resource, namespace, name, version, object FROM objects",
            "DROP TABLE objects",
            "ALTER TABLE old RENAME TO objects",
            "PRAGMA user_version = 1",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_backup_does_not_upgrade_an_older_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.sqlite");
    let written = filled(&path).await;
    downgrade(&path).await;

    let objects = backup::objects(directory.path()).await.unwrap();
    let Objects::Stopped(snapshot) = objects else { panic!("no server runs") };
    let read = snapshot
        .objects
        .iter()
        .filter(|(key, _)| &*key.resource == "/configmaps" && key.namespace == "default");
    assert_eq!(read.count(), written.len());
    let mut connection = connection(&path).await;
    let format: i64 = sqlx::query("PRAGMA user_version").fetch_one(&mut connection).await.unwrap().get(0);
    assert_eq!(format, 1);
    connection.close().await.unwrap();

    execute(&path, &["UPDATE objects SET object = x'7b' WHERE name = 'map-3'"]).await;
    let error = backup::objects(directory.path()).await.unwrap_err().to_string();
    assert!(error.contains("is damaged") && error.contains("default/map-3"), "{error}");
}

#[tokio::test]
async fn versions_before_the_start_have_expired_for_empty_resources_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.sqlite");
    filled(&path).await;
    let server = open(&path).await.unwrap();
    let exact = "resourceVersion=3&resourceVersionMatch=Exact";
    for resource in [MAPS, "/api/v1/namespaces/default/secrets"] {
        let (code, _) = server.get(&format!("{resource}?{exact}")).await;
        assert_eq!(code, http::StatusCode::GONE, "{resource}");
    }
}

#[tokio::test]
async fn an_older_file_is_upgraded_and_a_copy_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.sqlite");
    let written = filled(&path).await;
    downgrade(&path).await;

    let server = open(&path).await.unwrap();
    assert_eq!(maps(&server).await, written);
    server.post(MAPS, map("after")).await;
    drop(server);
    assert_eq!(maps(&open(&path).await.unwrap()).await.len(), written.len() + 1);

    let mut copy = connection(&directory.path().join("store.format-1.sqlite")).await;
    let format: i64 = sqlx::query("PRAGMA user_version").fetch_one(&mut copy).await.unwrap().get(0);
    let count: i64 =
        sqlx::query("SELECT count(*) FROM objects WHERE resource = '/configmaps' AND namespace = 'default'")
            .fetch_one(&mut copy)
            .await
            .unwrap()
            .get(0);
    assert_eq!((format, usize::try_from(count).unwrap()), (1, written.len()));
}

#[tokio::test]
async fn a_kubeconfig_stays_valid_when_the_server_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let options =
        |listen| ServeOptions { listen, data_dir: Some(directory.path().to_owned()), kubeconfig: None };
    let first = serve(options("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let (address, kubeconfig) = (first.address, first.kubeconfig.clone());
    first.stop().await;

    let second = loop {
        match serve(options(address)).await {
            Ok(serving) => break serving,
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
    };
    assert_eq!(second.kubeconfig, kubeconfig);
    second.stop().await;
}
