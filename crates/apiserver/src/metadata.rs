//! The metadata that every object has: access, defaulting, updates and validation.

use std::collections::HashSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use vitistack_schema::{Cause, CauseReason, json_type};

use crate::names::{self, NameStyle};

/// The finalizer that blocks the deletion of an owner until its blocking dependents are deleted.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer that blocks the deletion of an owner until its dependents are orphaned.
pub const ORPHAN: &str = "orphan";
/// The maximum total size of an object's annotations.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;
/// The maximum number of reports about several controllers.
const REPORTED_CONTROLLERS: usize = 8;
/// The characters of generated names: without vowels, so that no words are generated.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The fields that are immutable.
const FIXED: [&str; 4] = ["name", "namespace", "uid", "deletionTimestamp"];

/// Returns a string field of the metadata, empty if it is absent.
#[must_use]
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns the metadata, which is created if it is absent.
pub fn fields(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    // Both values are objects at this point.
    let Value::Object(members) = object else { unreachable!() };
    let metadata = members.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    let Value::Object(metadata) = metadata else { unreachable!() };
    metadata
}

/// Returns the generation, 0 if it is absent.
#[must_use]
pub fn generation(object: &Value) -> i64 {
    object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default()
}

/// Returns the strings of a list in the metadata.
#[must_use]
pub fn texts<'a>(object: &'a Value, field: &str) -> Vec<&'a str> {
    let list = object.get("metadata").and_then(|metadata| metadata.get(field)).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether the object is being deleted.
#[must_use]
pub fn deleting(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// Formats a time as Kubernetes does, in whole seconds.
#[must_use]
pub fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Generates a name from a prefix, truncated so that the result is a DNS label.
#[must_use]
pub fn generated_name(prefix: &str, random: u64) -> String {
    let mut random = random;
    let mut suffix = String::with_capacity(5);
    for _ in 0..5 {
        let count = LETTERS.len() as u64;
        let index = usize::try_from(random % count).unwrap_or_default();
        suffix.push(LETTERS.get(index).copied().map_or('x', char::from));
        random /= count;
    }
    let prefix: String = prefix.chars().take(58).collect();
    format!("{prefix}{suffix}")
}

/// Sets the fields of a new object that only the server decides.
pub fn set_server_fields(object: &mut Value, uid: &str, now: Timestamp) {
    let metadata = fields(object);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), uid.into());
    metadata.insert("creationTimestamp".to_owned(), time(now).into());
}

/// Copies immutable fields that an update omits.
pub fn copy_immutable(object: &mut Value, old: &Value) {
    let metadata = fields(object);
    for field in ["creationTimestamp", "deletionGracePeriodSeconds", "generation"] {
        match old.get("metadata").and_then(|metadata| metadata.get(field)) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.remove(field),
        };
    }

    metadata.remove("selfLink");
    for field in FIXED {
        let given = metadata.get(field).and_then(Value::as_str).is_some_and(|value| !value.is_empty());
        match text(old, field) {
            "" if !given => metadata.remove(field),
            value if !given => metadata.insert(field.to_owned(), value.into()),
            _ => None,
        };
    }
}

/// Removes empty fields, as Kubernetes omits them.
pub fn remove_empty(object: &mut Value) {
    let metadata = fields(object);
    metadata.retain(|_, value| match value {
        Value::Null => false,
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    });
}

fn cause(field: &str, reason: CauseReason, message: String) -> Cause {
    Cause { field: field.to_owned(), reason, message }
}

fn invalid(field: &str, value: &str, problem: &str) -> Cause {
    cause(field, CauseReason::FieldValueInvalid, format!("Invalid value: \"{value}\": {problem}"))
}

/// Validates the metadata of any object.
#[must_use]
pub fn problems(object: &Value, style: NameStyle, namespaced: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = text(object, "name");
    let prefix = text(object, "generateName");
    if !prefix.is_empty() {
        let problems = style.prefix_problems(prefix);
        causes.extend(problems.iter().map(|problem| invalid("metadata.generateName", prefix, problem)));
    }

    if name.is_empty() {
        let message = "Required value: name or generateName is required".to_owned();
        causes.push(cause("metadata.name", CauseReason::FieldValueRequired, message));
    } else {
        let problems = style.problems(name);
        causes.extend(problems.iter().map(|problem| invalid("metadata.name", name, problem)));
    }

    let namespace = text(object, "namespace");
    if namespaced {
        let problems = names::label(namespace);
        causes.extend(problems.iter().map(|problem| invalid("metadata.namespace", namespace, problem)));
    } else if !namespace.is_empty() {
        let message = "Forbidden: not allowed on this type".to_owned();
        causes.push(cause("metadata.namespace", CauseReason::FieldValueForbidden, message));
    }

    label_problems(object, &mut causes);
    annotation_problems(object, &mut causes);
    owner_problems(object, &mut causes);
    finalizer_problems(object, &mut causes);
    causes
}

fn strings<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a str)> {
    let members = object.get("metadata").and_then(|metadata| metadata.get(field)).and_then(Value::as_object);
    members.into_iter().flatten().map(|(key, value)| (key, value.as_str().unwrap_or_default()))
}

fn label_problems(object: &Value, causes: &mut Vec<Cause>) {
    for (key, value) in strings(object, "labels") {
        causes.extend(names::qualified(key).iter().map(|problem| invalid("metadata.labels", key, problem)));
        causes.extend(
            names::label_value(value).iter().map(|problem| invalid("metadata.labels", value, problem)),
        );
    }
}

fn annotation_problems(object: &Value, causes: &mut Vec<Cause>) {
    let mut size = 0;
    for (key, value) in strings(object, "annotations") {
        // The keys of annotations are not case-sensitive.
        let problems = names::qualified(&key.to_lowercase());
        causes.extend(problems.iter().map(|problem| invalid("metadata.annotations", key, problem)));
        size += key.len() + value.len();
    }
    if size > ANNOTATIONS_LIMIT {
        let message = format!("Too long: may not be more than {ANNOTATIONS_LIMIT} bytes");
        causes.push(cause("metadata.annotations", CauseReason::FieldValueTooLong, message));
    }
}

fn owner_problems(object: &Value, causes: &mut Vec<Cause>) {
    let path = "metadata.ownerReferences";
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let mut controllers = Vec::new();
    for owner in owners.into_iter().flatten() {
        let member = |name: &str| owner.get(name).and_then(Value::as_str).unwrap_or_default();
        let api_version = member("apiVersion");
        let (group, version) = match api_version.split_once('/') {
            // Kubernetes treats a version that it cannot split as empty.
            Some((_, version)) if version.contains('/') => ("", ""),
            Some(parts) => parts,
            None => ("", api_version),
        };
        if version.is_empty() {
            causes.push(invalid(&format!("{path}.apiVersion"), api_version, "version must not be empty"));
        }
        for name in ["kind", "name", "uid"] {
            if member(name).is_empty() {
                causes.push(invalid(&format!("{path}.{name}"), "", "must not be empty"));
            }
        }
        let kind = member("kind");
        if kind == "Event" && matches!(api_version, "v1" | "events.k8s.io/v1") {
            let problem = format!("{group}/{version}, Kind={kind} is disallowed from being an owner");
            causes.push(Cause::invalid_text(path.to_owned(), &printed_owner(owner), &problem));
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            controllers.push(format!("{kind}/{}", member("name")));
        }
    }

    // Each controller after the first is reported, together with the one before it. Every report prints all
    // references, so their number is limited.
    let list: Vec<String> = match controllers.len() {
        0 | 1 => Vec::new(),
        _ => owners.into_iter().flatten().map(printed_owner).collect(),
    };
    for pair in controllers.windows(2).take(REPORTED_CONTROLLERS) {
        let problem = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {}",
            pair.join(" and ")
        );
        causes.push(Cause::invalid_text(path.to_owned(), &format!("[{}]", list.join(",")), &problem));
    }
}

/// Prints an owner reference as Go does, with the fields in the order of the Go struct.
fn printed_owner(owner: &Value) -> String {
    let member = |name: &str| owner.get(name).map(|value| format!("\"{name}\":{value}"));
    let names = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let members: Vec<String> = names.into_iter().filter_map(member).collect();
    format!("{{{}}}", members.join(","))
}

/// Removes duplicate owner references; returns a warning that lists them.
pub fn unique_owners(object: &mut Value) -> Option<String> {
    let owners = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut)?;
    if owners.len() < 2 {
        return None;
    }
    let mut known: HashSet<Value> = HashSet::with_capacity(owners.len());
    let mut reported: HashSet<String> = HashSet::new();
    let mut duplicates: Vec<String> = Vec::new();
    owners.retain(|owner| {
        let is_new = known.insert(owner.clone());
        if !is_new {
            let uid = owner.get("uid").and_then(Value::as_str).unwrap_or_default();
            if reported.insert(uid.to_owned()) {
                duplicates.push(uid.to_owned());
            }
        }
        is_new
    });

    (!duplicates.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            duplicates.join(", ")
        )
    })
}

/// Validates that finalizers of built-in kinds have a domain, except for the standard ones.
#[must_use]
pub fn unqualified_finalizers(field: &str, finalizers: &[&str]) -> Vec<Cause> {
    let unqualified = |name: &&str| !name.contains('/') && !["kubernetes", FOREGROUND, ORPHAN].contains(name);
    let problem = "name is neither a standard finalizer name nor is it fully qualified";
    let named = finalizers.iter().enumerate().filter(|(_, name)| unqualified(name));
    named.map(|(index, name)| invalid(&format!("{field}[{index}]"), name, problem)).collect()
}

fn finalizer_problems(object: &Value, causes: &mut Vec<Cause>) {
    let finalizers = texts(object, "finalizers");
    for finalizer in &finalizers {
        let problems = names::qualified(finalizer);
        causes.extend(problems.iter().map(|problem| invalid("metadata.finalizers", finalizer, problem)));
    }
    if finalizers.contains(&FOREGROUND) && finalizers.contains(&ORPHAN) {
        let problem = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        let list: Vec<String> = finalizers.iter().map(|finalizer| format!("\"{finalizer}\"")).collect();
        let message = format!("Invalid value: [{}]: {problem}", list.join(","));
        causes.push(cause("metadata.finalizers", CauseReason::FieldValueInvalid, message));
    }
}

/// Validates a change of the metadata.
#[must_use]
pub fn update_problems(object: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if deleting(object) {
        let known: HashSet<&str> = texts(old, "finalizers").into_iter().collect();
        let mut added: Vec<&str> = texts(object, "finalizers");
        added.retain(|finalizer| !known.contains(finalizer));
        added.sort_unstable();
        if !added.is_empty() {
            let list: Vec<String> = added.iter().map(|finalizer| format!("\"{finalizer}\"")).collect();
            let message = format!(
                "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                list.join(", ")
            );
            causes.push(cause("metadata.finalizers", CauseReason::FieldValueForbidden, message));
        }
    }

    for field in FIXED {
        let (new, was) = (text(object, field), text(old, field));
        if new != was {
            causes.push(invalid(&format!("metadata.{field}"), new, "field is immutable"));
        }
    }

    label_problems(object, &mut causes);
    annotation_problems(object, &mut causes);
    owner_problems(object, &mut causes);
    causes
}

/// Returns the first field of the metadata with a wrong type, worded as Go's decoder does.
#[must_use]
pub fn type_problem(object: &Value, built_in: bool) -> Option<String> {
    let go_struct = if built_in { "ObjectMeta.metadata" } else { "ObjectMeta" };
    let metadata = match object.get("metadata") {
        None | Some(Value::Null) => return None,
        Some(Value::Object(metadata)) => metadata,
        Some(other) if built_in => {
            let (kind, found) =
                (object.get("kind").and_then(Value::as_str).unwrap_or_default(), json_type(other));
            return Some(format!(
                "json: cannot unmarshal {found} into Go struct field {kind}.metadata of type v1.ObjectMeta"
            ));
        }
        Some(other) => {
            return Some(format!(
                "json: cannot unmarshal {} into Go value of type v1.ObjectMeta",
                json_type(other)
            ));
        }
    };

    let wrong = |value: &Value, field: &str, kind: &str| {
        Some(format!(
            "json: cannot unmarshal {} into Go struct field {go_struct}.{field} of type {kind}",
            json_type(value)
        ))
    };

    for (field, value) in metadata.iter().filter(|(_, value)| !value.is_null()) {
        match (field.as_str(), value) {
            ("name" | "generateName" | "namespace" | "selfLink" | "resourceVersion", value)
                if !value.is_string() =>
            {
                return wrong(value, field, "string");
            }
            ("uid", value) if !value.is_string() => return wrong(value, field, "types.UID"),
            ("generation" | "deletionGracePeriodSeconds", value) if !value.is_i64() => {
                return wrong(value, field, "int64");
            }
            ("labels" | "annotations", Value::Object(members)) => {
                if let Some(value) = members.values().find(|value| !value.is_string() && !value.is_null()) {
                    return wrong(value, field, "string");
                }
            }
            ("labels" | "annotations", value) => return wrong(value, field, "map[string]string"),
            ("finalizers", Value::Array(items)) => {
                if let Some(value) = items.iter().find(|value| !value.is_string()) {
                    return wrong(value, field, "string");
                }
            }
            ("finalizers", value) => return wrong(value, field, "[]string"),
            ("ownerReferences", value) if !value.is_array() => {
                return wrong(value, field, "[]v1.OwnerReference");
            }
            ("managedFields", value) if !value.is_array() => {
                return wrong(value, field, "[]v1.ManagedFieldsEntry");
            }
            ("creationTimestamp" | "deletionTimestamp", value) => {
                let text = value.as_str().unwrap_or_default();
                if text.parse::<Timestamp>().is_err() {
                    let layout = "2006-01-02T15:04:05Z07:00";
                    return Some(format!(
                        "parsing time \"{text}\" as \"{layout}\": cannot parse \"{text}\" as \"2006\""
                    ));
                }
            }
            _ => {}
        }
    }

    owner_type_problem(metadata.get("ownerReferences"))
}

fn owner_type_problem(owners: Option<&Value>) -> Option<String> {
    for owner in owners.and_then(Value::as_array).into_iter().flatten() {
        let Some(members) = owner.as_object() else {
            let found = json_type(owner);
            return Some(format!(
                "json: cannot unmarshal {found} into Go struct field ObjectMeta.ownerReferences of type v1.OwnerReference"
            ));
        };
        for (field, kind) in
            [("apiVersion", "string"), ("kind", "string"), ("name", "string"), ("uid", "types.UID")]
        {
            if let Some(value) = members.get(field).filter(|value| !value.is_string() && !value.is_null()) {
                let found = json_type(value);
                return Some(format!(
                    "json: cannot unmarshal {found} into Go struct field OwnerReference.ownerReferences.{field} of type {kind}"
                ));
            }
        }
    }
    None
}

/// Returns warnings about metadata that is accepted but discouraged.
#[must_use]
pub fn warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let known: HashSet<&str> = old.into_iter().flat_map(|old| texts(old, "finalizers")).collect();
    let new = texts(object, "finalizers").into_iter().filter(|name| !known.contains(name));
    let unqualified = new.filter(|name| !name.contains('/') && ![FOREGROUND, ORPHAN].contains(name));
    let text =
        "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers";
    unqualified.map(|name| format!("metadata.finalizers: \"{name}\": {text}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_are_dns_labels() {
        assert_eq!(generated_name("a-", 0), "a-bbbbb");
        assert_eq!(generated_name(&"x".repeat(80), 7).len(), 63);
        assert_ne!(generated_name("a-", 1), generated_name("a-", 2));
    }

    #[test]
    fn immutable_fields_are_copied() {
        let old = json!({"metadata": {"name": "a", "uid": "u", "creationTimestamp": "t", "generation": 2}});
        let mut new = json!({"metadata": {"name": "a", "generation": 9}});
        copy_immutable(&mut new, &old);
        assert_eq!(new, old);
        assert!(update_problems(&new, &old).is_empty());
        new["metadata"]["uid"] = json!("v");
        assert_eq!(update_problems(&new, &old).len(), 1);
    }

    #[test]
    fn duplicate_owners_are_removed() {
        let owner = json!({"apiVersion": "v1", "kind": "A", "name": "x", "uid": "u"});
        let other = json!({"apiVersion": "v1", "kind": "A", "name": "x", "uid": "v"});
        let mut object = json!({"metadata": {"ownerReferences": [owner, other, owner]}});
        let warning = unique_owners(&mut object).unwrap();
        assert!(warning.ends_with("duplicate UID(s) observed: u"), "{warning}");
        assert_eq!(object["metadata"]["ownerReferences"], json!([owner, other]));
        assert_eq!(unique_owners(&mut object), None);
    }

    #[test]
    fn no_finalizer_can_be_added_during_deletion() {
        let old = json!({"metadata": {"deletionTimestamp": "t", "finalizers": ["a/b"]}});
        let new = json!({"metadata": {"deletionTimestamp": "t", "finalizers": ["a/b", "a/c"]}});
        let causes = update_problems(&new, &old);
        assert!(causes[0].message.ends_with("found new finalizers []string{\"a/c\"}"), "{causes:?}");
    }

    #[test]
    fn each_metadata_error_names_its_field() {
        let rows = [
            (json!({"name": "A"}), "metadata.name"),
            (json!({"name": "a", "namespace": "b"}), "metadata.namespace"),
            (json!({"name": "a", "labels": {"a b": ""}}), "metadata.labels"),
            (json!({"name": "a", "labels": {"a": "b c"}}), "metadata.labels"),
            (json!({"name": "a", "annotations": {"a b": ""}}), "metadata.annotations"),
            (json!({"name": "a", "finalizers": ["a b"]}), "metadata.finalizers"),
            (json!({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}), "metadata.finalizers"),
            (
                json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "b"}]}),
                "metadata.ownerReferences.uid",
            ),
        ];
        for (metadata, field) in rows {
            let causes = problems(&json!({"metadata": metadata}), NameStyle::Subdomain, false);
            assert_eq!(
                causes.iter().map(|cause| cause.field.as_str()).collect::<Vec<_>>(),
                [field],
                "{metadata}"
            );
        }
    }
}
