//! A third-party client: kube, without a socket.

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::watcher,
};
use serde_json::json;

use crate::harness::{TestServer, map};

fn maps(server: &TestServer) -> Api<ConfigMap> {
    Api::default_namespaced(kube::Client::new(server.api.service(), "default"))
}

#[tokio::test]
async fn kube_can_create_read_apply_and_delete() {
    let server = TestServer::new().await;
    let api = maps(&server);
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
async fn a_watcher_works_with_lists_and_with_streams() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let server = TestServer::new().await;
        server.post(crate::harness::MAPS, map("before")).await;
        let mut events = Box::pin(watcher(maps(&server), config));
        let mut reported = Vec::new();
        while reported.last() != Some(&"after".to_owned()) {
            let event =
                tokio::time::timeout(std::time::Duration::from_secs(30), events.try_next()).await.unwrap();
            match event.unwrap().unwrap() {
                watcher::Event::InitDone => {
                    server.post(crate::harness::MAPS, map("after")).await;
                }
                watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                    reported.push(object.metadata.name.unwrap());
                }
                watcher::Event::Init | watcher::Event::Delete(_) => {}
            }
        }
        assert_eq!(reported, ["before", "after"]);
    }
}
