//! Events, in both groups that serve them. They are stored once, in the form of the core group.

use jiff::Timestamp;
use k8s_openapi::api::{core::v1::Event as CoreEvent, events::v1::Event};
use serde_json::{Value, json};
use vitistack_schema::Cause;

use super::{
    BuiltIn,
    cells::{self, NAME_DESCRIPTION, column, wide},
    schema_of,
};
use crate::{
    metadata,
    names::{self, NameStyle},
    table::{Column, age_of},
};

/// How long an event is stored.
pub const LIFETIME_SECONDS: i64 = 3600;
/// The storage location of events.
pub const STORED_IN: &str = "/events";

/// The built-in kinds.
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
        read_stored: from_core,
        schema: schema_of::<Event>,
        prepare: prepare_new,
        validate: validate_new,
        fields: &["reason", "type"],
        ..EVENT
    },
];

const EVENT: BuiltIn = BuiltIn {
    name_style: NameStyle::Segment,
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
        "If referring to a piece of an object instead of an entire object, this string should contain a valid JSON/Go field access statement, such as desiredState.manifest.containers[2]. For example, if the object reference is to a container within a pod, this would take on a value like: \"spec.containers{name}\" (where \"name\" refers to the name of the container that triggered the event) or if no container name is specified \"spec.containers[2]\" (container with index 2 in this pod). This syntax is chosen only to have some well-defined way of referencing a part of an object.",
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

/// Field names that differ between the two groups: core, then `events.k8s.io`.
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

/// Fields that Kubernetes always prints.
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
    validate_event(object, "reportingComponent")
}

/// Validates the required fields of an event, in the core form; `controller` is the field name of its
/// reporter.
fn validate_event(object: &Value, controller: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let about = object.pointer("/involvedObject/namespace").and_then(Value::as_str).unwrap_or_default();
    let namespace = metadata::text(object, "namespace");
    // An event about a cluster-scoped object belongs to the default namespace.
    if about != namespace && !(about.is_empty() && matches!(namespace, "default" | "kube-system")) {
        let why = "does not match event.namespace";
        causes.push(Cause::invalid("involvedObject.namespace", &json!(about), why));
    }

    if first(object, &["/eventTime"]).is_empty() {
        return causes;
    }
    // An event with `eventTime` is validated as a new one, in either group.
    for (member, field, most) in [
        ("reportingComponent", controller, usize::MAX),
        ("reportingInstance", "reportingInstance", 128),
        ("action", "action", 128),
        ("reason", "reason", 128),
        ("message", "message", 1024),
    ] {
        let value = object.get(member).and_then(Value::as_str).unwrap_or_default();
        if value.is_empty() && member != "message" {
            causes.push(Cause::required(field, ""));
        } else if value.len() > most {
            let why = format!("can have at most {most} characters");
            causes.push(Cause::invalid(field, &json!(""), &why));
        }
    }

    let reporter = first(object, &["/reportingComponent"]);
    let problems = if reporter.is_empty() { Vec::new() } else { names::qualified(reporter) };
    let bad_name = |problem: &String| Cause::invalid(controller, &json!(reporter), problem);
    causes.extend(problems.iter().map(bad_name));
    causes
}

/// Fields of the core form that an update through `events.k8s.io` leaves unchanged.
const FIXED: &[(&str, &str)] = &[
    ("involvedObject", "involvedObject"),
    ("reason", "reason"),
    ("message", "message"),
    ("source", "source"),
    ("firstTimestamp", "firstTimestamp"),
    ("lastTimestamp", "lastTimestamp"),
    ("count", "count"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingComponent", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

fn validate_new(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let in_core = |object: &Value| {
        let mut object = object.clone();
        to_core(&mut object);
        object
    };

    let event = in_core(object);
    let mut causes = validate_event(&event, "reportingController");
    if let Some(old) = old {
        let old = in_core(old);
        let changed = FIXED.iter().filter(|(member, _)| event.get(*member) != old.get(*member));
        let immutable = changed.map(|(member, field)| {
            Cause::invalid(*field, event.get(*member).unwrap_or(&Value::Null), "field is immutable")
        });
        causes.extend(immutable);
        return causes;
    }

    if first(&event, &["/eventTime"]).is_empty() {
        causes.push(Cause::required("eventTime", ""));
    }
    let kind = first(&event, &["/type"]);
    if !matches!(kind, "Normal" | "Warning") {
        causes.push(Cause::invalid("type", &json!(""), &format!("has invalid value: {kind}")));
    }

    for member in ["firstTimestamp", "lastTimestamp"] {
        if !first(&event, &[&format!("/{member}")]).is_empty() {
            causes.push(Cause::invalid(member, &json!(""), "needs to be unset"));
        }
    }

    if event.get("count").and_then(Value::as_i64).unwrap_or_default() != 0 {
        causes.push(Cause::invalid("count", &json!(""), "needs to be unset"));
    }
    causes
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

/// Whether a stored event has expired: an hour after it was last observed.
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
    fn both_forms_of_an_event_are_equivalent() {
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
    fn an_event_expires_an_hour_after_it_was_last_observed() {
        let event = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "lastTimestamp": "2026-01-01T01:00:00Z"});
        assert!(!expired(&event, "2026-01-01T01:59:00Z".parse().unwrap()));
        assert!(expired(&event, "2026-01-01T02:01:00Z".parse().unwrap()));
    }
}
