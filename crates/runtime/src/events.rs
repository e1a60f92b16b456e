//! Kubernetes Events, each told once.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use vitistack_clients::kubernetes::explain;

/// Limits of the Events API, in bytes.
const NOTE_LIMIT: usize = 1024;
const NAME_LIMIT: usize = 253;
const FIELD_LIMIT: usize = 128;
/// How many object and reason pairs are remembered; beyond it the oldest is forgotten, and may be told again.
const MEMORY: usize = 10_000;

/// How grave an Event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Something happened as it should.
    Normal,
    /// Something is wrong.
    Warning,
}

/// Publishes the Events of one operator.
///
/// kube's own recorder counts a repeated reason into the first Event and drops the new note, which is what a user
/// would want to read; so Events are made here. Failure to publish is logged and never ends anything.
#[derive(Clone)]
pub struct Events {
    client: Client,
    controller: String,
    instance: String,
    told: Arc<Mutex<Told>>,
}

impl Events {
    /// Publishes as `controller`; `instance` tells replicas apart.
    #[must_use]
    pub fn new(client: Client, controller: &str, instance: &str) -> Self {
        Self {
            client,
            controller: controller.to_owned(),
            instance: cut(instance, FIELD_LIMIT).to_owned(),
            told: Arc::default(),
        }
    }

    /// Tells about an object, unless the same was told before and nothing else since.
    pub async fn publish(&self, severity: Severity, object: &ObjectReference, reason: &str, note: &str) {
        let note = cut(note, NOTE_LIMIT);
        let is_news = self.told.lock().unwrap_or_else(PoisonError::into_inner).is_news(object, reason, note);
        if !is_news {
            return;
        }
        let event = self.event(severity, object, reason, note, Timestamp::now());
        let namespace = object.namespace.as_deref().unwrap_or("default");
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            tracing::warn!(reason, "failed to publish an Event: {}", explain(&error));
            self.told.lock().unwrap_or_else(PoisonError::into_inner).forget(object, reason);
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
                // Events of cluster-scoped objects live in the namespace "default".
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

/// What was told last, by object and reason.
#[derive(Debug, Default)]
struct Told {
    notes: HashMap<(String, String), String>,
    order: VecDeque<(String, String)>,
}

impl Told {
    /// Notes down what is about to be told; false if it was the last thing told about this object and reason.
    fn is_news(&mut self, object: &ObjectReference, reason: &str, note: &str) -> bool {
        let key = Self::key(object, reason);
        if let Some(before) = self.notes.insert(key.clone(), note.to_owned()) {
            return before != note;
        }
        self.order.push_back(key);
        if self.order.len() > MEMORY
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

/// The longest beginning of `text` that fits into `limit` bytes.
fn cut(text: &str, limit: usize) -> &str {
    text.split_at_checked(text.floor_char_boundary(limit)).map_or(text, |(beginning, _)| beginning)
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
    fn the_same_is_told_once_until_it_changes() {
        let mut told = Told::default();
        assert!(told.is_news(&object("a"), "Blocked", "no disk"));
        assert!(!told.is_news(&object("a"), "Blocked", "no disk"));
        assert!(told.is_news(&object("b"), "Blocked", "no disk"));
        assert!(told.is_news(&object("a"), "Failed", "no disk"));
        assert!(told.is_news(&object("a"), "Blocked", "no network"));
        assert!(told.is_news(&object("a"), "Blocked", "no disk"), "it came back");
    }

    #[test]
    fn what_could_not_be_told_is_told_again() {
        let mut told = Told::default();
        told.is_news(&object("a"), "Blocked", "no disk");
        told.forget(&object("a"), "Blocked");
        assert!(told.is_news(&object("a"), "Blocked", "no disk"));
    }

    #[test]
    fn memory_is_bounded() {
        let mut told = Told::default();
        for number in 0..=MEMORY {
            told.is_news(&object(&number.to_string()), "Blocked", "no disk");
        }
        assert_eq!((told.notes.len(), told.order.len()), (MEMORY, MEMORY));
        assert!(told.is_news(&object("0"), "Blocked", "no disk"));
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
        let events = Events::new(client, "test", &"i".repeat(300));
        let event =
            events.event(Severity::Warning, &object(&"n".repeat(253)), "Reason", "note", Timestamp::now());
        assert_eq!(event.metadata.name.unwrap().len(), NAME_LIMIT);
        assert_eq!(event.reporting_instance.unwrap().len(), FIELD_LIMIT);
        assert_eq!(event.type_.as_deref(), Some("Warning"));
    }
}
