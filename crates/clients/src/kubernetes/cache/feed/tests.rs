use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::ConfigMap},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};
use std::sync::Mutex;

use watcher::Event;

use super::{super::WRITE_EXPIRY, *};

type Reported = Arc<Mutex<Vec<(String, Urgency)>>>;

fn guarded<K: Kind>(object: Value) -> DeserializeGuard<K> {
    serde_json::from_value(object).unwrap()
}

fn map(name: &str, version: &str) -> DeserializeGuard<ConfigMap> {
    guarded(json!({"metadata": {"name": name, "namespace": "a", "uid": name, "resourceVersion": version,
        "managedFields": [{"manager": "kubectl"}]}}))
}

fn undecodable(name: &str) -> DeserializeGuard<ConfigMap> {
    guarded(json!({"metadata": {"name": name, "namespace": "a", "resourceVersion": "9"}, "data": 5}))
}

fn cache() -> (Cache<ConfigMap>, Feed<ConfigMap>, Reported) {
    let (cache, feed) = Cache::new(());
    let reported = Reported::default();
    let log = Arc::clone(&reported);
    cache.listen(move |change: &Change<ConfigMap>| {
        lock(&log).push((change.object.metadata.name.clone().unwrap(), change.urgency));
    });
    (cache, feed, reported)
}

fn list(feed: &mut Feed<ConfigMap>, objects: Vec<DeserializeGuard<ConfigMap>>) {
    feed.handle(Event::Init);
    for object in objects {
        feed.handle(Event::InitApply(object));
    }
    feed.handle(Event::InitDone);
}

fn drain(reported: &Reported) -> Vec<(String, Urgency)> {
    let mut changes = std::mem::take(&mut *lock(reported));
    changes.sort();
    changes
}

fn names(cache: &Cache<ConfigMap>) -> Vec<String> {
    let mut names: Vec<_> = cache.list().iter().map(|object| object.metadata.name.clone().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_first_list_is_reported_as_resync_and_stored_without_managed_fields() {
    let (cache, mut feed, reported) = cache();
    list(&mut feed, vec![map("x", "1"), map("y", "2")]);
    assert_eq!(drain(&reported), [("x".into(), Urgency::Resync), ("y".into(), Urgency::Resync)]);
    assert!(cache.list().iter().all(|object| object.metadata.managed_fields.is_none()));
    assert!(cache.get(&ObjectRef::new("x").within("a")).is_some());
}

#[tokio::test]
async fn every_waiter_for_the_first_list_is_woken() {
    let (cache, mut feed, _) = cache();
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let cache = cache.clone();
            tokio::spawn(async move { cache.ready().await })
        })
        .collect();
    tokio::task::yield_now().await;
    list(&mut feed, Vec::new());
    for waiter in waiters {
        tokio::time::timeout(Duration::from_mins(1), waiter).await.unwrap().unwrap();
    }
    list(&mut feed, Vec::new());
    cache.ready().await;
}

#[test]
fn a_second_list_reports_only_what_the_watch_missed() {
    let (cache, mut feed, reported) = cache();
    list(&mut feed, vec![map("same", "1"), map("changed", "2"), map("gone", "3")]);
    drain(&reported);
    list(&mut feed, vec![map("same", "1"), map("changed", "4"), map("new", "5")]);
    assert_eq!(
        drain(&reported),
        [
            ("changed".into(), Urgency::Change),
            ("gone".into(), Urgency::Change),
            ("new".into(), Urgency::Change)
        ]
    );
    assert_eq!(names(&cache), ["changed", "new", "same"]);
}

#[test]
fn an_undecodable_object_is_recorded_and_the_others_are_stored() {
    let (cache, mut feed, reported) = cache();
    list(&mut feed, vec![map("x", "1"), undecodable("bad")]);
    assert_eq!(names(&cache), ["x"]);
    let failures = cache.decode_failures();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].reference.name.as_deref(), Some("bad"));
    assert_eq!(failures[0].reference.kind.as_deref(), Some("ConfigMap"));
    feed.handle(Event::Apply(map("bad", "10")));
    assert!(cache.decode_failures().is_empty());
    assert_eq!(names(&cache), ["bad", "x"]);
    drain(&reported);
}

#[test]
fn an_object_that_becomes_undecodable_is_removed() {
    let (cache, mut feed, reported) = cache();
    list(&mut feed, vec![map("x", "1")]);
    drain(&reported);
    feed.handle(Event::Apply(undecodable("x")));
    assert_eq!(names(&cache), Vec::<String>::new());
    assert_eq!(drain(&reported), [("x".into(), Urgency::Change)]);
    feed.handle(Event::Delete(undecodable("x")));
    assert!(cache.decode_failures().is_empty());
}

#[test]
fn a_deleted_object_is_reported_with_its_last_content() {
    let (cache, mut feed, reported) = cache();
    list(&mut feed, vec![map("x", "1")]);
    drain(&reported);
    feed.handle(Event::Delete(map("x", "2")));
    assert_eq!(drain(&reported), [("x".into(), Urgency::Change)]);
    assert!(cache.list().is_empty());
}

#[test]
fn only_status_changes_are_events() {
    let meta = |change: Value| {
        let mut object = json!({"metadata": {"uid": "u", "generation": 1, "resourceVersion": "1"}});
        json_patch_merge(&mut object["metadata"], change);
        guarded::<Deployment>(object).0.unwrap().metadata
    };
    let before = meta(json!({}));
    assert_eq!(urgency(Some(&before), &meta(json!({"resourceVersion": "2"}))), Urgency::Event);
    for change in [
        json!({"generation": 2}),
        json!({"annotations": {"example.io/paused": "true"}}),
        json!({"labels": {"a": "b"}}),
        json!({"deletionTimestamp": "2024-01-01T00:00:00Z"}),
        json!({"uid": "another"}),
    ] {
        assert_eq!(urgency(Some(&before), &meta(change.clone())), Urgency::Change, "{change}");
    }
    assert_eq!(urgency(None, &before), Urgency::Change);
}

fn json_patch_merge(target: &mut Value, change: Value) {
    if let (Some(target), Value::Object(change)) = (target.as_object_mut(), change) {
        target.extend(change);
    }
}

fn version(cache: &Cache<ConfigMap>) -> Option<String> {
    cache.get(&ObjectRef::new("x").within("a"))?.metadata.resource_version.clone()
}

fn decoded(name: &str, version: &str) -> ConfigMap {
    map(name, version).0.unwrap()
}

#[test]
fn reads_resolve_own_writes_until_the_watch_shows_them() {
    let (cache, mut feed, _) = cache();
    list(&mut feed, vec![map("x", "1"), map("y", "2")]);
    let key = ObjectRef::new("x").within("a");
    cache.wrote(decoded("x", "5"));
    assert_eq!(version(&cache).as_deref(), Some("5"));
    assert!(cache.get(&key).unwrap().metadata.managed_fields.is_none());
    assert_eq!((names(&cache), cache.ahead().len()), (vec!["x".to_owned(), "y".to_owned()], 1));
    cache.wrote(decoded("z", "6"));
    assert_eq!(names(&cache), ["x", "y", "z"]);
    assert_eq!(cache.unshown().len(), 1);
    cache.deleted(&decoded("y", "2"));
    assert_eq!(names(&cache), ["x", "z"]);
    for event in [map("x", "5"), map("z", "6")].map(Event::Apply) {
        feed.handle(event);
    }
    feed.handle(Event::Delete(map("y", "7")));
    assert!(!cache.has_overlay());
    assert_eq!(names(&cache), ["x", "z"]);
}

#[test]
fn an_object_that_lost_its_last_finalizer_is_gone() {
    let (cache, mut feed, _) = cache();
    list(&mut feed, vec![map("x", "1")]);
    let mut deleting = decoded("x", "2");
    deleting.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
    deleting.metadata.finalizers = Some(vec!["example.com/cleanup".to_owned()]);
    cache.wrote(deleting.clone());
    assert_eq!(version(&cache).as_deref(), Some("2"), "a finalizer keeps it");

    deleting.metadata.resource_version = Some("3".to_owned());
    deleting.metadata.finalizers = None;
    cache.wrote(deleting);
    assert_eq!(version(&cache), None);
}

#[tokio::test(start_paused = true)]
async fn listeners_are_called_when_a_write_expires() {
    let (cache, feed, reported) = cache();
    let source: Source<ConfigMap> = Box::new(|| {
        let list =
            [Event::Init, Event::InitApply(map("x", "1")), Event::InitApply(map("y", "2")), Event::InitDone];
        futures::stream::iter(list.map(Ok)).chain(futures::stream::pending()).boxed()
    });
    let end = CancellationToken::new();
    let running = tokio::spawn(feed.run(source, None, end.clone()));
    cache.ready().await;
    drain(&reported);
    cache.wrote(decoded("x", "5"));
    cache.wrote(decoded("z", "6"));
    cache.deleted(&decoded("y", "2"));
    tokio::time::sleep(WRITE_EXPIRY.saturating_sub(TICK)).await;
    assert_eq!((drain(&reported), names(&cache)), (vec![], vec!["x".to_owned(), "z".to_owned()]));
    tokio::time::sleep(TICK * 2).await;
    let expected = ["x", "y", "z"].map(|name| (name.to_owned(), Urgency::Event));
    assert_eq!(drain(&reported), expected);
    assert_eq!(
        (names(&cache), version(&cache).as_deref()),
        (vec!["x".to_owned(), "y".to_owned()], Some("1"))
    );
    end.cancel();
    running.await.unwrap();
}
