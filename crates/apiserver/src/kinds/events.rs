//! Events, in both groups that serve them. They are stored once, in the form of the core group.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event as CoreEvent;
use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};

use super::cells::{self, NAME_DESCRIPTION, column, wide};
use super::{BuiltIn, schema_of};
use crate::metadata;
use crate::schema::{Cause, CauseReason};
use crate::table::{Column, age_of};

/// How long an event is kept.
pub const LIFETIME_SECONDS: i64 = 3600;
/// Where events are stored.
pub const STORED_IN: &str = "/events";

/// The rows.
pub const KINDS: &[BuiltIn] = &[
    BuiltIn {
        schema: schema_of::<CoreEvent>,
        prepare: prepare_core,
        validate: validate_core,
        fields: CORE_FIELDS,
        ..EVENT
    },
    BuiltIn {
        group: "events.k8s.io",
        to_stored: to_core,
        from_stored: from_core,
        schema: schema_of::<Event>,
        prepare: prepare_new,
        validate: validate_new,
        fields: &["reason", "type"],
        ..EVENT
    },
];

const EVENT: BuiltIn = BuiltIn {
    plural: "events",
    kind: "Event",
    short_names: &["ev"],
    create_on_update: true,
    stored_in: STORED_IN,
    columns: COLUMNS,
    cells: event_cells,
    ..BuiltIn::PLAIN
};

const CORE_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

const COLUMNS: &[Column] = &[
    column("Last Seen", "The time at which the most recent occurrence of this event was recorded."),
    column("Type", "Type of this event (Normal, Warning), new types could be added in the future"),
    column(
        "Reason",
        "This should be a short, machine understandable string that gives the reason for the transition into the object's current status.",
    ),
    column("Object", "The object that this event is about."),
    wide(
        "Subobject",
        "If referring to a piece of an object instead of an entire object, this string should contain a valid JSON/Go field access statement.",
    ),
    wide("Source", "The component reporting this event. Should be a short machine understandable string."),
    column("Message", "A human-readable description of the status of this operation."),
    wide(
        "First Seen",
        "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)",
    ),
    wide("Count", "The number of times this event has occurred."),
    Column { name: "Name", kind: "string", format: "name", description: NAME_DESCRIPTION, priority: 1 },
];

/// Names that differ between the two groups: in the core, in `events.k8s.io`.
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename(object: &mut Value, pairs: impl Iterator<Item = (&'static str, &'static str)>) {
    let Some(members) = object.as_object_mut() else { return };
    for (from, to) in pairs {
        if let Some(value) = members.remove(from) {
            members.insert(to.to_owned(), value);
        }
    }
}

fn to_core(object: &mut Value) {
    rename(object, RENAMED.iter().map(|(core, new)| (*new, *core)));
    prepare_core(object, None);
}

fn from_core(object: &mut Value) {
    rename(object, RENAMED.iter().copied());
    let Some(members) = object.as_object_mut() else { return };
    for name in ["reportingController", "reportingInstance"] {
        if members.get(name) == Some(&json!("")) {
            members.remove(name);
        }
    }
}

/// The members Kubernetes always prints.
fn prepare_core(object: &mut Value, _: Option<&Value>) {
    let Some(members) = object.as_object_mut() else { return };
    for name in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        members.entry(name).or_insert(Value::Null);
    }
    for name in ["reportingComponent", "reportingInstance"] {
        members.entry(name).or_insert_with(|| json!(""));
    }
    for name in ["source", "involvedObject"] {
        members.entry(name).or_insert_with(|| json!({}));
    }
}

fn prepare_new(object: &mut Value, _: Option<&Value>) {
    let Some(members) = object.as_object_mut() else { return };
    for name in ["deprecatedFirstTimestamp", "deprecatedLastTimestamp", "eventTime"] {
        members.entry(name).or_insert(Value::Null);
    }
    for name in ["deprecatedSource", "regarding"] {
        members.entry(name).or_insert_with(|| json!({}));
    }
}

fn validate_core(object: &Value, _: Option<&Value>) -> Vec<Cause> {
    let about = object.pointer("/involvedObject/namespace").and_then(Value::as_str).unwrap_or_default();
    let namespace = metadata::text(object, "namespace");
    // An event about something without namespace goes to the default one.
    if about == namespace || (about.is_empty() && matches!(namespace, "default" | "kube-system")) {
        return Vec::new();
    }
    vec![Cause::invalid("involvedObject.namespace", &json!(about), "does not match event.namespace")]
}

fn validate_new(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    if old.is_some() {
        return Vec::new();
    }
    let missing = |name: &&str| object.get(*name).and_then(Value::as_str).unwrap_or_default().is_empty();
    let required = ["eventTime", "reportingController", "reportingInstance", "action", "reason"].into_iter();
    let cause = |name: &str| Cause {
        field: name.to_owned(),
        reason: CauseReason::FieldValueRequired,
        message: "Required value".to_owned(),
    };
    required.filter(missing).map(cause).collect()
}

fn first<'a>(object: &'a Value, pointers: &[&str]) -> &'a str {
    let texts = pointers.iter().filter_map(|pointer| object.pointer(pointer)?.as_str());
    texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
}

fn event_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut core = object.clone();
    if object.get("regarding").is_some() {
        to_core(&mut core);
    }
    let last = first(&core, &["/series/lastObservedTime", "/lastTimestamp", "/eventTime"]);
    let seen = first(&core, &["/firstTimestamp", "/eventTime"]);
    let kind = first(&core, &["/involvedObject/kind"]).to_lowercase();
    let about = format!("{kind}/{}", first(&core, &["/involvedObject/name"]));
    let component = first(&core, &["/source/component", "/reportingComponent"]);
    let host = first(&core, &["/source/host", "/reportingInstance"]);
    let source = if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") };
    let count =
        core.pointer("/series/count").or_else(|| core.get("count")).and_then(Value::as_i64).unwrap_or(1);
    vec![
        age_of(last, now).into(),
        cells::text(&core, "/type"),
        cells::text(&core, "/reason"),
        about.into(),
        cells::text(&core, "/involvedObject/fieldPath"),
        source.into(),
        core.get("message").and_then(Value::as_str).unwrap_or_default().trim().into(),
        age_of(seen, now).into(),
        count.into(),
        cells::name(&core),
    ]
}

/// Whether a stored event is past its time: an hour after it was last seen.
#[must_use]
pub fn expired(event: &Value, now: Timestamp) -> bool {
    let times = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime"];
    let seen = times.iter().filter_map(|pointer| event.pointer(pointer)?.as_str());
    let times = seen.chain([metadata::text(event, "creationTimestamp")]);
    let newest = times.filter_map(|text| text.parse::<Timestamp>().ok()).max();
    newest.is_none_or(|newest| now.as_second() - newest.as_second() > LIFETIME_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_an_event_are_the_same_event() {
        let new = json!({
            "metadata": {"name": "a"}, "regarding": {"kind": "Secret", "name": "s"}, "note": "m", "type": "Normal",
            "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c", "reportingInstance": "i",
            "deprecatedSource": {}, "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
        });
        let mut stored = new.clone();
        to_core(&mut stored);
        assert_eq!(stored["involvedObject"]["name"], "s");
        assert_eq!(stored["reportingComponent"], "c");
        from_core(&mut stored);
        assert_eq!(stored, new);
    }

    #[test]
    fn an_event_expires_an_hour_after_it_was_last_seen() {
        let event = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "lastTimestamp": "2026-01-01T01:00:00Z"});
        assert!(!expired(&event, "2026-01-01T01:59:00Z".parse().unwrap()));
        assert!(expired(&event, "2026-01-01T02:01:00Z".parse().unwrap()));
    }
}
