//! A client no one here wrote: kube, without a socket.

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use serde_json::json;

use crate::world::{World, map};

fn maps(world: &World) -> Api<ConfigMap> {
    Api::default_namespaced(kube::Client::new(world.server.service(), "default"))
}

#[tokio::test]
async fn kube_creates_reads_applies_and_deletes() {
    let world = World::new().await;
    let api = maps(&world);
    let object: ConfigMap = serde_json::from_value(map("m")).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "y"}});
    let applied = api.patch("m", &PatchParams::apply("test"), &Patch::Apply(patch)).await.unwrap();
    assert_eq!(applied.data.unwrap().len(), 2);
    assert_eq!(api.list(&ListParams::default().limit(1)).await.unwrap().items.len(), 1);
    api.delete("m", &DeleteParams::default()).await.unwrap();
    let error = api.get("m").await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.is_not_found()));
}

#[tokio::test]
async fn a_watcher_follows_with_lists_and_with_streams() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let world = World::new().await;
        world.post(crate::world::MAPS, map("before")).await;
        let mut events = Box::pin(watcher(maps(&world), config));
        let mut told = Vec::new();
        while told.last() != Some(&"after".to_owned()) {
            let event =
                tokio::time::timeout(std::time::Duration::from_secs(30), events.try_next()).await.unwrap();
            match event.unwrap().unwrap() {
                watcher::Event::InitDone => {
                    world.post(crate::world::MAPS, map("after")).await;
                }
                watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                    told.push(object.metadata.name.unwrap());
                }
                watcher::Event::Init | watcher::Event::Delete(_) => {}
            }
        }
        assert_eq!(told, ["before", "after"]);
    }
}
