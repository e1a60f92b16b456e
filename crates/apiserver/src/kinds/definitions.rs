//! Definitions of custom resources: what they must say, what they add to the API, and their conditions.

use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value, json};

use super::cells::{self, CREATED_AT, NAME};
use super::{BuiltIn, default_member, definition_rules, member, schema_of};
use crate::metadata;
use crate::registry::{Resource, Rules, ScalePaths};
use crate::schema::Schema;
use crate::table::{Columns, PathColumn};

/// Keeps a definition until its objects are gone.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// Where definitions are stored.
pub const STORED_IN: &str = "apiextensions.k8s.io/customresourcedefinitions";

/// The row.
pub const KINDS: &[BuiltIn] = &[BuiltIn {
    group: "apiextensions.k8s.io",
    plural: "customresourcedefinitions",
    kind: "CustomResourceDefinition",
    namespaced: false,
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    unconditional_update: false,
    generation: true,
    status: true,
    stored_in: STORED_IN,
    stored_as: "apiextensions.k8s.io/v1",
    schema: schema_of::<CustomResourceDefinition>,
    default,
    prepare,
    validate: definition_rules::validate,
    columns: &[NAME, CREATED_AT],
    cells: cells::name_and_creation,
    ..BuiltIn::PLAIN
}];

/// The versions it names.
pub(super) fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten()
}

/// A text member, empty where there is none.
pub(super) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A member that is yes or no.
pub(super) fn flag(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or_default()
}

fn storage_version(definition: &Value) -> Option<&str> {
    versions(definition).find(|version| flag(version, "storage")).map(|version| text(version, "name"))
}

fn default(definition: &mut Value) {
    let spec = member(definition, "spec");
    let names = member(spec, "names");
    let kind = text(names, "kind").to_owned();
    if !kind.is_empty() {
        default_member(names, "singular", kind.to_lowercase());
        default_member(names, "listKind", format!("{kind}List"));
    }
    default_member(member(spec, "conversion"), "strategy", "None");
    if let Some(spec) = spec.as_object_mut()
        && spec.get("preserveUnknownFields") == Some(&json!(false))
    {
        spec.remove("preserveUnknownFields");
    }
}

fn prepare(definition: &mut Value, old: Option<&Value>) {
    let storage = storage_version(definition).map(str::to_owned);
    if old.is_none()
        && let Some(members) = definition.as_object_mut()
    {
        let empty =
            json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": []});
        members.insert("status".to_owned(), empty);
    }
    // Every version that was ever the storage version may have objects.
    if let (Some(storage), Some(stored)) =
        (storage, member(definition, "status").get_mut("storedVersions").and_then(Value::as_array_mut))
        && !stored.contains(&json!(storage))
    {
        stored.push(storage.into());
    }
}

/// Whether a condition is true, if it is there.
pub(super) fn condition(definition: &Value, kind: &str) -> Option<bool> {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array)?;
    let found = conditions.iter().find(|condition| text(condition, "type") == kind)?;
    Some(text(found, "status") == "True")
}

/// Whether the definition's resources are served.
#[must_use]
pub fn established(definition: &Value) -> bool {
    condition(definition, "Established") == Some(true)
}

/// The names others of the group have: of resources, of kinds.
fn taken(definition: &Value, others: &[Value]) -> (Vec<String>, Vec<String>) {
    let group = definition.pointer("/spec/group");
    let rivals = others.iter().filter(|other| {
        other.pointer("/spec/group") == group
            && metadata::text(other, "name") != metadata::text(definition, "name")
    });
    let (mut resources, mut kinds) = (Vec::new(), Vec::new());
    for names in rivals.filter_map(|rival| rival.pointer("/status/acceptedNames")) {
        resources.extend(["plural", "singular"].map(|name| text(names, name).to_owned()));
        let short = names.get("shortNames").and_then(Value::as_array).into_iter().flatten();
        resources.extend(short.filter_map(Value::as_str).map(str::to_owned));
        kinds.extend(["kind", "listKind"].map(|name| text(names, name).to_owned()));
    }
    (resources, kinds)
}

/// The names of a definition that nobody has taken, and the last conflict over the others, in Kubernetes' words.
fn accepted_names(definition: &Value, others: &[Value]) -> (Value, Option<(&'static str, String)>) {
    let (resources, kinds) = taken(definition, others);
    let wanted = definition.pointer("/spec/names").cloned().unwrap_or_default();
    let mut accepted = definition.pointer("/status/acceptedNames").cloned().unwrap_or_else(|| json!({}));
    let mut conflict = None;
    for (member, reason, used) in [
        ("plural", "PluralConflict", &resources),
        ("singular", "SingularConflict", &resources),
        ("shortNames", "ShortNamesConflict", &resources),
        ("kind", "KindConflict", &kinds),
        ("listKind", "ListKindConflict", &kinds),
        ("categories", "", &Vec::new()),
    ] {
        let value = wanted.get(member);
        let names: Vec<&str> = match value {
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        // What was accepted once stays, whoever came later.
        let clashes: Vec<String> = names
            .into_iter()
            .filter(|name| accepted.get(member) != value && used.iter().any(|other| other == name))
            .map(|name| format!("{name:?} is already in use"))
            .collect();
        match clashes.as_slice() {
            [] => {
                if let Some(members) = accepted.as_object_mut() {
                    match value {
                        Some(value) => members.insert(member.to_owned(), value.clone()),
                        None => members.remove(member),
                    };
                }
            }
            [one] => conflict = Some((reason, one.clone())),
            many => conflict = Some((reason, format!("[{}]", many.join(", ")))),
        }
    }
    (accepted, conflict)
}

/// The status of a definition among the others: whether its names are accepted and it is served.
#[must_use]
pub fn status(definition: &Value, others: &[Value], now: Timestamp) -> Value {
    let mut status = definition.get("status").cloned().unwrap_or_else(|| json!({}));
    let (names, conflict) = accepted_names(definition, others);
    let mut conditions: Vec<Value> =
        status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let was_established = established(definition);
    let accepted = match &conflict {
        None => ("True", "NoConflicts".to_owned(), "no conflicts found".to_owned()),
        Some((reason, message)) => ("False", (*reason).to_owned(), message.clone()),
    };
    set_condition(&mut conditions, "NamesAccepted", accepted.0, &accepted.1, &accepted.2, now);
    if let Some(members) = status.as_object_mut() {
        members.insert("acceptedNames".to_owned(), names);
    }
    if conflict.is_none() {
        // Two steps, as watchers of Kubernetes see it: the names first, then the resource.
        if !was_established && condition(definition, "NamesAccepted") != Some(true) {
            let message = "the initial names have been accepted";
            set_condition(&mut conditions, "Established", "False", "Installing", message, now);
        } else if !was_established {
            let message = "the initial names have been accepted";
            set_condition(&mut conditions, "Established", "True", "InitialNamesAccepted", message, now);
        }
    } else if !was_established {
        let message = "not all names are accepted";
        set_condition(&mut conditions, "Established", "False", "NotAccepted", message, now);
    }
    if let Some(members) = status.as_object_mut() {
        members.insert("conditions".to_owned(), Value::Array(conditions));
    }
    status
}

/// Sets a condition; its time moves only when its status does.
pub fn set_condition(
    conditions: &mut Vec<Value>,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let known = conditions.iter_mut().find(|condition| text(condition, "type") == kind);
    let time = match &known {
        Some(known) if text(known, "status") == status => text(known, "lastTransitionTime").to_owned(),
        _ => metadata::time(now),
    };
    let new = json!({"type": kind, "status": status, "lastTransitionTime": time, "reason": reason, "message": message});
    match known {
        Some(known) => *known = new,
        None => conditions.push(new),
    }
}

/// The resources a definition adds to the API: one for each served version.
#[must_use]
pub fn resources(definition: &Value) -> Vec<Resource> {
    let Some(storage) = storage_version(definition).filter(|_| established(definition)) else {
        return Vec::new();
    };
    let served = versions(definition).filter(|version| flag(version, "served"));
    served.map(|version| resource(definition, version, storage)).collect()
}

fn resource(definition: &Value, version: &Value, storage: &str) -> Resource {
    let spec = definition.get("spec").cloned().unwrap_or_default();
    let names = definition.pointer("/status/acceptedNames").cloned().unwrap_or_default();
    let list = |name: &str| {
        let values = names.get(name).and_then(Value::as_array).into_iter().flatten();
        values.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let group = text(&spec, "group");
    let namespaced = text(&spec, "scope") == "Namespaced";
    let empty = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let document = version.pointer("/schema/openAPIV3Schema").unwrap_or(&empty);
    // It was compiled when it was accepted; one that no longer compiles prunes everything.
    let schema = Schema::compile(document).unwrap_or_else(|_| Schema::native(&json!({"type": "object"})));
    let fields = version.get("selectableFields").and_then(Value::as_array).into_iter().flatten();
    let mut selectable: Vec<String> =
        fields.map(|field| text(field, "jsonPath").trim_start_matches('.').to_owned()).collect();
    selectable.push("metadata.name".to_owned());
    if namespaced {
        selectable.push("metadata.namespace".to_owned());
    }
    Resource {
        group: group.to_owned(),
        version: text(version, "name").to_owned(),
        plural: text(&names, "plural").to_owned(),
        singular: text(&names, "singular").to_owned(),
        kind: text(&names, "kind").to_owned(),
        list_kind: text(&names, "listKind").to_owned(),
        short_names: list("shortNames"),
        categories: list("categories"),
        namespaced,
        storage: Arc::from(format!("{group}/{}", text(&names, "plural"))),
        stored_as: format!("{group}/{storage}"),
        status: version.pointer("/subresources/status").is_some(),
        scale: version.pointer("/subresources/scale").map(scale),
        columns: columns(version),
        selectable,
        reread: metadata::generation(definition) > 1 || versions(definition).count() > 1,
        terminating: metadata::deleting(definition),
        rules: Rules::Custom,
        deprecation: deprecation(definition, version),
        schema: OnceLock::from(Arc::new(schema)),
        stored_schema: (text(version, "name") != storage).then(|| stored_schema(definition)).flatten(),
    }
}

/// The schema of the version objects are stored as.
fn stored_schema(definition: &Value) -> Option<Arc<Schema>> {
    let stored = versions(definition).find(|version| flag(version, "storage"))?;
    Schema::compile(stored.pointer("/schema/openAPIV3Schema")?).ok().map(Arc::new)
}

fn deprecation(definition: &Value, version: &Value) -> Option<String> {
    let warning = version.get("deprecationWarning").and_then(Value::as_str).map(str::to_owned);
    let (group, kind) =
        (definition.pointer("/spec/group")?.as_str()?, definition.pointer("/spec/names/kind")?.as_str()?);
    let name = text(version, "name");
    let rank = crate::registry::version_rank(name);
    let mut better: Vec<&str> = versions(definition)
        .filter(|other| flag(other, "served") && !flag(other, "deprecated"))
        .map(|other| text(other, "name"))
        .filter(|other| crate::registry::version_rank(other) > rank)
        .collect();
    better.sort_by_key(|other| std::cmp::Reverse(crate::registry::version_rank(other)));
    let instead = better.first().map(|other| format!("; use {group}/{other} {kind}")).unwrap_or_default();
    flag(version, "deprecated")
        .then(|| warning.unwrap_or_else(|| format!("{group}/{name} {kind} is deprecated{instead}")))
}

fn scale(paths: &Value) -> ScalePaths {
    let path = |name: &str| text(paths, name).to_owned();
    let selector = path("labelSelectorPath");
    ScalePaths {
        spec: path("specReplicasPath"),
        status: path("statusReplicasPath"),
        selector: (!selector.is_empty()).then_some(selector),
    }
}

fn columns(version: &Value) -> Columns {
    let given = version.get("additionalPrinterColumns").and_then(Value::as_array);
    let columns = given.into_iter().flatten().map(|column| PathColumn {
        name: text(column, "name").to_owned(),
        kind: text(column, "type").to_owned(),
        format: text(column, "format").to_owned(),
        description: match text(column, "description") {
            "" => format!(
                "Custom resource definition column (in JSONPath format): {}",
                text(column, "jsonPath")
            ),
            description => description.to_owned(),
        },
        priority: column.get("priority").and_then(Value::as_i64).unwrap_or_default(),
        path: text(column, "jsonPath").to_owned(),
    });
    let mut columns: Vec<PathColumn> = columns.collect();
    if columns.is_empty() {
        columns.push(PathColumn {
            name: "Age".to_owned(),
            kind: "date".to_owned(),
            format: String::new(),
            description: cells::CREATION_DESCRIPTION.to_owned(),
            priority: 0,
            path: ".metadata.creationTimestamp".to_owned(),
        });
    }
    Columns::Paths(columns)
}

/// Marks a definition as being deleted: the finalizer, and a condition for those who look.
pub fn begin_deletion(definition: &mut Value, now: Timestamp) {
    let finalizers = metadata::fields(definition).entry("finalizers").or_insert_with(|| json!([]));
    if let Some(finalizers) = finalizers.as_array_mut()
        && !finalizers.contains(&json!(FINALIZER))
    {
        finalizers.push(json!(FINALIZER));
    }
    let status = member(definition, "status").as_object_mut().map(std::mem::take).unwrap_or_default();
    let mut status: Map<String, Value> = status;
    let mut conditions = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let message = "CustomResource deletion is in progress";
    set_condition(&mut conditions, "Terminating", "True", "InstanceDeletionInProgress", message, now);
    status.insert("conditions".to_owned(), Value::Array(conditions));
    *member(definition, "status") = Value::Object(status);
}
