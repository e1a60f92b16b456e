//! Watches the objects of a cluster.

use futures::{StreamExt, stream::BoxStream};
use kube::{
    Api,
    api::{ApiResource, DynamicObject},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::Value;

use super::{Cluster, RequestError};

/// One step of a watch.
#[derive(Debug)]
pub enum Change {
    /// The watch starts with a new list; objects that were reported before may be gone.
    Restarted,
    /// An object of the initial list.
    Existing(Value),
    /// The initial list is complete.
    InitialListDone,
    /// An object was created or changed.
    Changed(Value),
    /// An object was deleted.
    Deleted(Value),
    /// A request failed and is retried.
    Failed(RequestError),
}

/// Returns the existing objects of a kind and then their changes.
pub fn changes(
    cluster: &Cluster,
    resource: &ApiResource,
    namespace: Option<&str>,
    selection: watcher::Config,
) -> BoxStream<'static, Change> {
    let client = cluster.client.clone();
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    };
    let (cluster, action) = (cluster.clone(), format!("watch {}", resource.plural));
    let value = |object: DynamicObject| serde_json::to_value(object).unwrap_or_default();

    watcher(api, selection)
        .default_backoff()
        .map(move |event| match event {
            Ok(watcher::Event::Init) => Change::Restarted,
            Ok(watcher::Event::InitApply(object)) => Change::Existing(value(object)),
            Ok(watcher::Event::InitDone) => Change::InitialListDone,
            Ok(watcher::Event::Apply(object)) => Change::Changed(value(object)),
            Ok(watcher::Event::Delete(object)) => Change::Deleted(value(object)),
            Err(error) => Change::Failed(failure(&cluster, &action, error)),
        })
        .boxed()
}

fn failure(cluster: &Cluster, action: &str, error: watcher::Error) -> RequestError {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => cluster.failure(action, error),
        watcher::Error::WatchError(status) => cluster.failure(action, kube::Error::Api(status)),
        watcher::Error::NoResourceVersion => RequestError::Answer {
            doing: action.to_owned(),
            message: "the server returned no resource version".to_owned(),
        },
    }
}
