//! Follows the objects of a cluster as they change.

use futures::{StreamExt, stream::BoxStream};
use kube::{
    Api,
    api::{ApiResource, DynamicObject},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::Value;

use crate::cluster::{Cluster, RequestError};

/// What happened.
#[derive(Debug)]
pub enum Change {
    /// Everything is listed anew from here on.
    Anew,
    /// An object that was there when the watch began.
    There(Value),
    /// All that was there was handed out.
    Complete,
    /// An object was made or changed.
    Changed(Value),
    /// An object is gone.
    Gone(Value),
    /// The server does not answer as wanted; it is asked again.
    Failed(RequestError),
}

/// The objects of a kind that are there, then their changes, for as long as it is polled.
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
    let (cluster, doing) = (cluster.clone(), format!("watch {}", resource.plural));
    let value = |object: DynamicObject| serde_json::to_value(object).unwrap_or_default();
    watcher(api, selection)
        .default_backoff()
        .map(move |event| match event {
            Ok(watcher::Event::Init) => Change::Anew,
            Ok(watcher::Event::InitApply(object)) => Change::There(value(object)),
            Ok(watcher::Event::InitDone) => Change::Complete,
            Ok(watcher::Event::Apply(object)) => Change::Changed(value(object)),
            Ok(watcher::Event::Delete(object)) => Change::Gone(value(object)),
            Err(error) => Change::Failed(failure(&cluster, &doing, error)),
        })
        .boxed()
}

fn failure(cluster: &Cluster, doing: &str, error: watcher::Error) -> RequestError {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => cluster.failure(doing, error),
        watcher::Error::WatchError(status) => cluster.failure(doing, kube::Error::Api(status)),
        watcher::Error::NoResourceVersion => {
            RequestError::Answer { doing: doing.to_owned(), message: "the server gave no version".to_owned() }
        }
    }
}

/// Where an object is: its kind's number, its namespace, its name.
pub type Place = (usize, String, String);

/// The place of an object of a kind.
pub fn place(kind: usize, object: &Value) -> Place {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    (kind, text("/metadata/namespace"), text("/metadata/name"))
}
