//! Kubernetes Events, read leniently because many programs write them.

use k8s_openapi::{api::core::v1::Event, jiff::Timestamp};
use kube::api::ApiResource;
use serde_json::Value;
use vitistack_types::{GROUP, ObjectName};

use super::{
    Cluster,
    kinds::title,
    listing::{Incomplete, Selection, Wanted, list, text},
};

/// The times of an Event, best first.
const TIMES: [&str; 5] = [
    "/series/lastObservedTime",
    "/lastTimestamp",
    "/eventTime",
    "/firstTimestamp",
    "/metadata/creationTimestamp",
];

/// One Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLine {
    /// The time of the last occurrence.
    pub at: Option<Timestamp>,
    /// `Normal` or `Warning`.
    pub type_: String,
    /// The reason, in CamelCase.
    pub reason: String,
    /// The kind of the involved object.
    pub kind: String,
    /// The namespace of the involved object.
    pub namespace: String,
    /// The name of the involved object.
    pub name: String,
    /// The message.
    pub message: String,
    /// Whether the involved object is of a kind of this platform.
    pub is_ours: bool,
    /// The UID of the Event.
    pub id: String,
    /// The resource version of the Event.
    pub version: String,
}

/// Returns the API resource of Events.
pub fn resource() -> ApiResource {
    ApiResource::erase::<Event>(&())
}

/// Returns the field selector for the Events of an object.
pub fn about(kind: &str, name: &str) -> String {
    format!("involvedObject.kind={kind},involvedObject.name={name}")
}

/// Returns the namespace of the Events of an object: those of cluster-scoped objects are in "default".
pub fn namespace(object: &ObjectName) -> &str {
    if object.namespace.is_empty() { "default" } else { &object.namespace }
}

impl EventLine {
    /// Reads a core/v1 Event.
    pub fn read(event: &Value) -> Self {
        let text = |path: &str| text(event, path).to_owned();
        let time = |path: &&str| event.pointer(path)?.as_str()?.parse::<Timestamp>().ok();
        Self {
            at: TIMES.iter().find_map(time),
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

    /// Returns the involved object as users specify it: `machine/web-1`.
    pub fn object(&self) -> String {
        title(&self.kind, &self.name)
    }
}

/// Returns the selected Events, oldest first, and the version of the list.
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
