//! Watches.

use std::time::Duration;

use axum::body::BodyDataStream;
use futures::StreamExt as _;
use serde_json::{Value, json};
use vitistack_apiserver::ApiServer;

use crate::harness::{MAPS, MERGE, TestServer, map};

/// A watch, line by line.
pub struct Lines {
    stream: BodyDataStream,
    waiting: Vec<Value>,
}

impl Lines {
    /// Starts a watch.
    pub async fn open(server: &TestServer, path: &str) -> Self {
        let response = server.response("GET", path, "", "").await;
        Self { stream: response.into_body().into_data_stream(), waiting: Vec::new() }
    }

    /// Returns the next line; `None` at the end.
    pub async fn next(&mut self) -> Option<Value> {
        while self.waiting.is_empty() {
            let chunk =
                tokio::time::timeout(Duration::from_secs(30), self.stream.next()).await.unwrap()?.unwrap();
            let lines = chunk.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            self.waiting = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
        }
        Some(self.waiting.remove(0))
    }

    /// Returns the type and the name of the next line.
    pub async fn next_change(&mut self) -> (String, String) {
        let line = self.next().await.unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&line["type"]), text(&line["object"]["metadata"]["name"]))
    }
}

fn pair(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

#[tokio::test]
async fn a_watch_sends_existing_objects_and_changes() {
    let server = TestServer::new().await;
    server.post(MAPS, map("a")).await;
    let mut lines = Lines::open(&server, &format!("{MAPS}?watch=true")).await;
    assert_eq!(lines.next_change().await, pair("ADDED", "a"));
    server.post(MAPS, map("b")).await;
    server.patch(&format!("{MAPS}/a"), MERGE, json!({"data": {"x": "y"}})).await;
    server.post("/api/v1/namespaces/kube-system/configmaps", map("elsewhere")).await;
    let (_, object) = server.get(&format!("{MAPS}/b")).await;
    server.delete(&format!("{MAPS}/b"), json!({})).await;
    assert_eq!(lines.next_change().await, pair("ADDED", "b"));
    assert_eq!(lines.next_change().await, pair("MODIFIED", "a"));
    let line = lines.next().await.unwrap();
    assert_eq!(line["type"], "DELETED");
    let version =
        |value: &Value| value["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(version(&line["object"]) > version(&object), "the deletion has a version of its own");
}

#[tokio::test]
async fn a_watch_resumes_after_a_version() {
    let server = TestServer::new().await;
    let (_, first) = server.post(MAPS, map("a")).await;
    server.post(MAPS, map("b")).await;
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut lines = Lines::open(&server, &format!("{MAPS}?watch=true&resourceVersion={version}")).await;
    assert_eq!(lines.next_change().await, pair("ADDED", "b"));
}

#[tokio::test]
async fn a_watch_from_a_compacted_version_fails_with_410() {
    let server = TestServer::new().await;
    let (_, first) = server.post(MAPS, map("a")).await;
    server.post(MAPS, map("b")).await;
    server.api.store().compact();
    server.api.store().compact();
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut lines = Lines::open(&server, &format!("{MAPS}?watch=true&resourceVersion={version}")).await;
    let line = lines.next().await.unwrap();
    assert_eq!((&line["type"], &line["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(lines.next().await, None);
    let (code, _) = server.get(&format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact")).await;
    assert_eq!(code.as_u16(), 410);
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let server = TestServer::new().await;
    server.post(MAPS, map("a")).await;
    let query =
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut lines = Lines::open(&server, &format!("{MAPS}?{query}")).await;
    assert_eq!(lines.next_change().await, pair("ADDED", "a"));
    let line = lines.next().await.unwrap();
    assert_eq!(line["type"], "BOOKMARK");
    assert_eq!(line["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

#[tokio::test]
async fn a_watch_with_a_selector_sends_added_and_deleted_objects() {
    let server = TestServer::new().await;
    server.post(MAPS, map("a")).await;
    let path = format!("{MAPS}?watch=true&labelSelector=on%3Dyes");
    let mut lines = Lines::open(&server, &path).await;
    for (value, expected) in [("yes", "ADDED"), ("no", "DELETED"), ("yes", "ADDED")] {
        let labels = json!({"metadata": {"labels": {"on": value}}});
        server.patch(&format!("{MAPS}/a"), MERGE, labels).await;
        assert_eq!(lines.next_change().await, pair(expected, "a"));
    }
}

#[tokio::test]
async fn a_watch_ends_after_its_timeout() {
    let server = TestServer::new().await;
    let mut lines = Lines::open(&server, &format!("{MAPS}?watch=true&timeoutSeconds=1")).await;
    assert_eq!(lines.next().await, None);
}

#[tokio::test]
async fn a_quiet_watch_gets_bookmarks() {
    let builder = ApiServer::builder().bookmarks_every(Duration::from_millis(300));
    let server = TestServer { api: builder.build().await.unwrap() };
    let mut lines = Lines::open(&server, &format!("{MAPS}?watch=true&allowWatchBookmarks=true")).await;
    server.post("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}})).await;
    let version = server.api.store().version().to_string();
    loop {
        let line = lines.next().await.unwrap();
        assert_eq!(line["type"], "BOOKMARK");
        if line["object"]["metadata"]["resourceVersion"] == version.as_str() {
            break;
        }
    }
}
