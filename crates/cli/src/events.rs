//! Kubernetes Events, read loosely: they come from many hands.

use k8s_openapi::{api::core::v1::Event, jiff::Timestamp};
use kube::api::ApiResource;
use serde_json::Value;
use vitistack_types::GROUP;

use crate::{
    cluster::Cluster,
    listing::{Incomplete, Selection, Wanted, list},
};

/// One Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLine {
    /// When it was last seen.
    pub at: Option<Timestamp>,
    /// `Normal` or `Warning`.
    pub type_: String,
    /// The reason in one word.
    pub reason: String,
    /// Kind of the object it is about.
    pub kind: String,
    /// Namespace of that object.
    pub namespace: String,
    /// Name of that object.
    pub name: String,
    /// The sentence.
    pub message: String,
    /// Whether it is about one of our kinds.
    pub is_ours: bool,
    /// The Event itself, by its UID.
    pub id: String,
    /// Its version.
    pub version: String,
}

/// The Events of Kubernetes.
pub fn resource() -> ApiResource {
    ApiResource::erase::<Event>(&())
}

/// Which object Events are about, as the server can select it.
pub fn about(kind: &str, name: &str) -> String {
    format!("involvedObject.kind={kind},involvedObject.name={name}")
}

impl EventLine {
    /// Reads an Event of version v1.
    pub fn read(event: &Value) -> Self {
        let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let times = [
            "/series/lastObservedTime",
            "/lastTimestamp",
            "/eventTime",
            "/firstTimestamp",
            "/metadata/creationTimestamp",
        ];
        let time = |path: &&str| event.pointer(path)?.as_str()?.parse::<Timestamp>().ok();
        Self {
            at: times.iter().find_map(time),
            type_: text("/type"),
            reason: text("/reason"),
            kind: text("/involvedObject/kind"),
            namespace: text("/involvedObject/namespace"),
            name: text("/involvedObject/name"),
            message: text("/message"),
            is_ours: text("/involvedObject/apiVersion").starts_with(&format!("{GROUP}/")),
            id: text("/metadata/uid"),
            version: text("/metadata/resourceVersion"),
        }
    }

    /// The object it is about, as users name it.
    pub fn object(&self) -> String {
        format!("{}/{}", self.kind.to_lowercase(), self.name)
    }
}

/// The Events that are selected, newest last, and the version of the list.
pub async fn read(
    cluster: &Cluster,
    namespace: Option<&str>,
    fields: Option<&str>,
) -> (Vec<EventLine>, Result<String, Incomplete>) {
    let resource = resource();
    let selection = Selection { fields, ..Selection::all(&resource, namespace) };
    let mut events = Vec::new();
    let answer =
        list(cluster, &selection, &Wanted::Whole, |event| events.push(EventLine::read(&event))).await;
    events.sort_by_key(|event| event.at);
    (events, answer)
}
