//! Watches.

use std::time::Duration;

use axum::body::BodyDataStream;
use futures::StreamExt as _;
use serde_json::{Value, json};
use vitistack_apiserver::ApiServer;

use crate::world::{MAPS, MERGE, World, map};

/// A watch, line by line.
pub struct Lines {
    stream: BodyDataStream,
    waiting: Vec<Value>,
}

impl Lines {
    /// Begins a watch.
    pub async fn open(world: &World, path: &str) -> Self {
        let response = world.response("GET", path, "", "").await;
        Self { stream: response.into_body().into_data_stream(), waiting: Vec::new() }
    }

    /// The next line; nothing at the end.
    pub async fn next(&mut self) -> Option<Value> {
        while self.waiting.is_empty() {
            let chunk =
                tokio::time::timeout(Duration::from_secs(30), self.stream.next()).await.unwrap()?.unwrap();
            let lines = chunk.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            self.waiting = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
        }
        Some(self.waiting.remove(0))
    }

    /// The type and the name of the next line.
    pub async fn told(&mut self) -> (String, String) {
        let line = self.next().await.unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&line["type"]), text(&line["object"]["metadata"]["name"]))
    }
}

fn pair(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

#[tokio::test]
async fn a_watch_tells_what_is_there_and_what_changes() {
    let world = World::new().await;
    world.post(MAPS, map("a")).await;
    let mut lines = Lines::open(&world, &format!("{MAPS}?watch=true")).await;
    assert_eq!(lines.told().await, pair("ADDED", "a"));
    world.post(MAPS, map("b")).await;
    world.patch(&format!("{MAPS}/a"), MERGE, json!({"data": {"x": "y"}})).await;
    world.post("/api/v1/namespaces/kube-system/configmaps", map("elsewhere")).await;
    let (_, object) = world.get(&format!("{MAPS}/b")).await;
    world.delete(&format!("{MAPS}/b"), json!({})).await;
    assert_eq!(lines.told().await, pair("ADDED", "b"));
    assert_eq!(lines.told().await, pair("MODIFIED", "a"));
    let line = lines.next().await.unwrap();
    assert_eq!(line["type"], "DELETED");
    let version =
        |value: &Value| value["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(version(&line["object"]) > version(&object), "the deletion has a version of its own");
}

#[tokio::test]
async fn a_watch_resumes_after_a_version() {
    let world = World::new().await;
    let (_, first) = world.post(MAPS, map("a")).await;
    world.post(MAPS, map("b")).await;
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut lines = Lines::open(&world, &format!("{MAPS}?watch=true&resourceVersion={version}")).await;
    assert_eq!(lines.told().await, pair("ADDED", "b"));
}

#[tokio::test]
async fn a_watch_from_a_forgotten_version_is_told_so() {
    let world = World::new().await;
    let (_, first) = world.post(MAPS, map("a")).await;
    world.post(MAPS, map("b")).await;
    world.server.store().compact();
    world.server.store().compact();
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut lines = Lines::open(&world, &format!("{MAPS}?watch=true&resourceVersion={version}")).await;
    let line = lines.next().await.unwrap();
    assert_eq!((&line["type"], &line["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(lines.next().await, None);
    let (code, _) = world.get(&format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact")).await;
    assert_eq!(code.as_u16(), 410);
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let world = World::new().await;
    world.post(MAPS, map("a")).await;
    let query =
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut lines = Lines::open(&world, &format!("{MAPS}?{query}")).await;
    assert_eq!(lines.told().await, pair("ADDED", "a"));
    let line = lines.next().await.unwrap();
    assert_eq!(line["type"], "BOOKMARK");
    assert_eq!(line["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

#[tokio::test]
async fn a_filtered_watch_sees_objects_come_and_go() {
    let world = World::new().await;
    world.post(MAPS, map("a")).await;
    let path = format!("{MAPS}?watch=true&labelSelector=on%3Dyes");
    let mut lines = Lines::open(&world, &path).await;
    for (value, expected) in [("yes", "ADDED"), ("no", "DELETED"), ("yes", "ADDED")] {
        let labels = json!({"metadata": {"labels": {"on": value}}});
        world.patch(&format!("{MAPS}/a"), MERGE, labels).await;
        assert_eq!(lines.told().await, pair(expected, "a"));
    }
}

#[tokio::test]
async fn a_watch_ends_when_its_time_is_over() {
    let world = World::new().await;
    let mut lines = Lines::open(&world, &format!("{MAPS}?watch=true&timeoutSeconds=1")).await;
    assert_eq!(lines.next().await, None);
}

#[tokio::test]
async fn a_quiet_watch_gets_bookmarks() {
    let builder = ApiServer::builder().bookmarks_every(Duration::from_millis(300));
    let world = World { server: builder.build().await.unwrap() };
    let mut lines = Lines::open(&world, &format!("{MAPS}?watch=true&allowWatchBookmarks=true")).await;
    world.post("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}})).await;
    let version = world.server.store().version().to_string();
    loop {
        let line = lines.next().await.unwrap();
        assert_eq!(line["type"], "BOOKMARK");
        if line["object"]["metadata"]["resourceVersion"] == version.as_str() {
            break;
        }
    }
}
