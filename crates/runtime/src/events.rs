//! Kubernetes Events without repetition.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
};

use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use vitistack_clients::kubernetes::explain;
use vitistack_types::{Severity, WatchedNamespaces};

use crate::lock::lock;

/// Limits of the Events API, in bytes.
const NOTE_LIMIT: usize = 1024;
const NAME_LIMIT: usize = 253;
const FIELD_LIMIT: usize = 128;
/// How many pairs of object and reason are remembered. Beyond that the oldest is dropped and may be published again.
const REMEMBERED: usize = 10_000;

/// Publishes the Events of one operator.
///
/// kube's recorder counts a repeated reason in the first Event and drops the new note, which users want to read, so
/// Events are created here, until its series keep the note: <https://github.com/kube-rs/kube/pull/1655>. A failure to
/// publish is logged and has no other effect.
#[derive(Clone)]
pub struct Events {
    client: Client,
    controller: String,
    instance: String,
    watched: WatchedNamespaces,
    published: Arc<Mutex<Published>>,
}

impl Events {
    /// Creates a publisher for `controller`, which works in the namespaces of `watched`; `instance` distinguishes replicas.
    #[must_use]
    pub fn new(client: Client, controller: &str, instance: &str, watched: WatchedNamespaces) -> Self {
        Self {
            client,
            controller: controller.to_owned(),
            instance: cut(instance, FIELD_LIMIT).to_owned(),
            watched,
            published: Arc::default(),
        }
    }

    /// Publishes an Event about an object, unless its last Event with this reason has the same note.
    pub async fn publish(&self, object: &ObjectReference, event: &vitistack_types::Event) {
        let vitistack_types::Event { severity, reason, message } = event;
        let note = cut(message, NOTE_LIMIT);
        if !lock(&self.published).record(object, reason, note) {
            return;
        }

        let namespace = object.namespace.as_deref().unwrap_or("default");
        if !self.watched.contains(namespace) {
            // About a cluster-scoped object: the operator has no permissions where its Events belong.
            tracing::warn!(reason, object = object.name, "{note}");
            return;
        }
        let event = self.event(*severity, object, reason, note, Timestamp::now());
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            tracing::warn!(reason, "failed to publish an Event: {}", explain(&error));
            lock(&self.published).forget(object, reason);
        }
    }

    fn event(
        &self,
        severity: Severity,
        object: &ObjectReference,
        reason: &str,
        note: &str,
        now: Timestamp,
    ) -> Event {
        let suffix = format!(".{:x}", now.as_nanosecond());
        let name = object.name.as_deref().unwrap_or_default();
        let stem = cut(name, NAME_LIMIT - suffix.len()).trim_end_matches(['.', '-']);
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{stem}{suffix}")),
                // Events about cluster-scoped objects belong to the namespace "default".
                namespace: Some(object.namespace.clone().unwrap_or_else(|| "default".to_owned())),
                ..ObjectMeta::default()
            },
            type_: Some(format!("{severity:?}")),
            reason: Some(cut(reason, FIELD_LIMIT).to_owned()),
            action: Some("Reconcile".to_owned()),
            note: Some(note.to_owned()),
            regarding: Some(object.clone()),
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

/// The last note by object and reason.
#[derive(Debug, Default)]
struct Published {
    notes: HashMap<(String, String), String>,
    order: VecDeque<(String, String)>,
}

impl Published {
    /// Records a note; returns false if it equals the last note for this object and reason.
    fn record(&mut self, object: &ObjectReference, reason: &str, note: &str) -> bool {
        let key = Self::key(object, reason);
        if let Some(before) = self.notes.insert(key.clone(), note.to_owned()) {
            return before != note;
        }
        self.order.push_back(key);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.notes.remove(&oldest);
        }
        true
    }

    fn forget(&mut self, object: &ObjectReference, reason: &str) {
        let key = Self::key(object, reason);
        self.notes.remove(&key);
        self.order.retain(|each| *each != key);
    }

    fn key(object: &ObjectReference, reason: &str) -> (String, String) {
        let uid = object
            .uid
            .clone()
            .unwrap_or_else(|| format!("{:?}/{:?}/{:?}", object.kind, object.namespace, object.name));
        (uid, reason.to_owned())
    }
}

/// Returns the longest prefix of `text` that fits into `limit` bytes.
fn cut(text: &str, limit: usize) -> &str {
    text.split_at_checked(text.floor_char_boundary(limit)).map_or(text, |(prefix, _)| prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> ObjectReference {
        ObjectReference {
            name: Some(name.to_owned()),
            uid: Some(name.to_owned()),
            ..ObjectReference::default()
        }
    }

    #[test]
    fn the_same_note_is_published_once_until_it_changes() {
        let mut published = Published::default();
        assert!(published.record(&object("a"), "Blocked", "no disk"));
        assert!(!published.record(&object("a"), "Blocked", "no disk"));
        assert!(published.record(&object("b"), "Blocked", "no disk"));
        assert!(published.record(&object("a"), "Failed", "no disk"));
        assert!(published.record(&object("a"), "Blocked", "no network"));
        assert!(published.record(&object("a"), "Blocked", "no disk"), "the first note again");
    }

    #[test]
    fn a_note_that_was_not_published_is_published_later() {
        let mut published = Published::default();
        published.record(&object("a"), "Blocked", "no disk");
        published.forget(&object("a"), "Blocked");
        assert!(published.record(&object("a"), "Blocked", "no disk"));
    }

    #[test]
    fn the_number_of_remembered_notes_is_bounded() {
        let mut published = Published::default();
        for number in 0..=REMEMBERED {
            published.record(&object(&number.to_string()), "Blocked", "no disk");
        }
        assert_eq!((published.notes.len(), published.order.len()), (REMEMBERED, REMEMBERED));
        assert!(published.record(&object("0"), "Blocked", "no disk"));
    }

    #[test]
    fn notes_are_cut_between_characters() {
        assert_eq!(cut("grün", 3), "gr");
        assert_eq!(cut("grün", 4), "grü");
        assert_eq!(cut("grün", 99), "grün");
    }

    #[tokio::test]
    async fn the_longest_object_name_still_gives_a_valid_event() {
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let events = Events::new(client, "test", &"i".repeat(300), WatchedNamespaces::ALL);
        let event =
            events.event(Severity::Warning, &object(&"n".repeat(253)), "Reason", "note", Timestamp::now());
        assert_eq!(event.metadata.name.unwrap().len(), NAME_LIMIT);
        assert_eq!(event.reporting_instance.unwrap().len(), FIELD_LIMIT);
        assert_eq!(event.type_.as_deref(), Some("Warning"));
    }
}
