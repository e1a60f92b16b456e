//! CustomResourceDefinitions: defaulting, the resources that they add to the API, and their conditions.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value, json};
use vitistack_schema::Schema;

use super::{
    BuiltIn,
    cells::{self, CREATED_AT, NAME},
    crd_rules, default_member, member, schema_of,
};
use crate::{
    metadata,
    registry::{Resource, Rules, ScalePaths},
    table::{Columns, PathColumn},
};

/// The finalizer that blocks the deletion of a CRD until its objects are deleted.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// The storage location of CRDs.
pub const STORED_IN: &str = "apiextensions.k8s.io/customresourcedefinitions";

/// The built-in kind.
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
    validate: crd_rules::validate,
    columns: &[NAME, CREATED_AT],
    cells: cells::name_and_creation,
    ..BuiltIn::PLAIN
}];

/// Returns its versions.
pub(super) fn versions(crd: &Value) -> impl Iterator<Item = &Value> {
    crd.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten()
}

/// Returns a string field, empty if it is absent.
pub(super) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a boolean field.
pub(super) fn flag(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or_default()
}

fn storage_version(crd: &Value) -> Option<&str> {
    versions(crd).find(|version| flag(version, "storage")).map(|version| text(version, "name"))
}

fn default(crd: &mut Value) {
    let spec = member(crd, "spec");
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

fn prepare(crd: &mut Value, old: Option<&Value>) {
    let storage = storage_version(crd).map(str::to_owned);
    if old.is_none()
        && let Some(members) = crd.as_object_mut()
    {
        let empty =
            json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": []});
        members.insert("status".to_owned(), empty);
    }

    // Every version that has ever been the storage version may have objects.
    if let (Some(storage), Some(stored)) =
        (storage, member(crd, "status").get_mut("storedVersions").and_then(Value::as_array_mut))
        && !stored.contains(&json!(storage))
    {
        stored.push(storage.into());
    }
}

/// Whether a condition is true.
pub(super) fn condition(crd: &Value, kind: &str) -> Option<bool> {
    let conditions = crd.pointer("/status/conditions").and_then(Value::as_array)?;
    let found = conditions.iter().find(|condition| text(condition, "type") == kind)?;
    Some(text(found, "status") == "True")
}

/// Whether the resources of the CRD are served.
#[must_use]
pub fn established(crd: &Value) -> bool {
    condition(crd, "Established") == Some(true)
}

/// The names of other CRDs in the group: of resources and of kinds.
fn taken(crd: &Value, others: &[Value]) -> (Vec<String>, Vec<String>) {
    let group = crd.pointer("/spec/group");
    let rivals = others.iter().filter(|other| {
        other.pointer("/spec/group") == group && metadata::text(other, "name") != metadata::text(crd, "name")
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

/// Returns the names of a CRD that are not taken, and the last conflict over the others, worded as Kubernetes
/// does.
fn accepted_names(crd: &Value, others: &[Value]) -> (Value, Option<(&'static str, String)>) {
    let (resources, kinds) = taken(crd, others);
    let wanted = crd.pointer("/spec/names").cloned().unwrap_or_default();
    let mut accepted = crd.pointer("/status/acceptedNames").cloned().unwrap_or_else(|| json!({}));
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
        // Accepted names remain accepted, even if a later CRD also uses them.
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

/// Computes the status of a CRD: whether its names are accepted and it is served.
#[must_use]
pub fn status(crd: &Value, others: &[Value], now: Timestamp) -> Value {
    let mut status = crd.get("status").cloned().unwrap_or_else(|| json!({}));
    let (names, conflict) = accepted_names(crd, others);
    let mut conditions: Vec<Value> =
        status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let was_established = established(crd);
    let accepted = match &conflict {
        None => ("True", "NoConflicts".to_owned(), "no conflicts found".to_owned()),
        Some((reason, message)) => ("False", (*reason).to_owned(), message.clone()),
    };

    set_condition(&mut conditions, "NamesAccepted", accepted.0, &accepted.1, &accepted.2, now);
    if let Some(members) = status.as_object_mut() {
        members.insert("acceptedNames".to_owned(), names);
    }

    if conflict.is_none() {
        // Two steps, as watchers of Kubernetes see them: first the names, then the resource.
        if !was_established && condition(crd, "NamesAccepted") != Some(true) {
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

/// Sets a condition; its time changes only when its status does.
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

/// Returns the resources that a CRD adds to the API: one per served version.
#[must_use]
pub fn resources(crd: &Value) -> Vec<Resource> {
    let Some(storage) = storage_version(crd).filter(|_| established(crd)) else {
        return Vec::new();
    };
    let stored = Stored { version: storage, schema: stored_schema(crd), newest: newest(crd) };
    let mut known = Compiled::new();
    let served = versions(crd).filter(|version| flag(version, "served"));
    served.map(|version| resource(crd, version, &stored, &mut known)).collect()
}

/// The compiled schemas of a CRD: most versions share one document.
type Compiled<'a> = HashMap<Option<&'a Value>, Arc<Schema>>;

/// Returns the schema of a version.
fn compiled<'a>(version: &'a Value, known: &mut Compiled<'a>) -> Arc<Schema> {
    let document = version.pointer("/schema/openAPIV3Schema");
    let compile = || {
        let empty = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        // It was compiled when it was accepted; a schema that no longer compiles prunes everything.
        let schema = Schema::compile(document.unwrap_or(&empty));
        Arc::new(schema.unwrap_or_else(|_| Schema::native(&json!({"type": "object"}))))
    };
    Arc::clone(known.entry(document).or_insert_with(compile))
}

/// What all versions of a CRD have in common.
struct Stored<'a> {
    /// The name of the storage version.
    version: &'a str,
    schema: Option<Arc<Schema>>,
    /// The newest version that is served and not deprecated.
    newest: Option<&'a str>,
}

fn resource<'a>(
    crd: &'a Value,
    version: &'a Value,
    stored: &Stored<'_>,
    known: &mut Compiled<'a>,
) -> Resource {
    let spec = crd.get("spec").unwrap_or(&Value::Null);
    let names = crd.pointer("/status/acceptedNames").unwrap_or(&Value::Null);
    let storage = stored.version;
    let list = |name: &str| {
        let values = names.get(name).and_then(Value::as_array).into_iter().flatten();
        values.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };

    let group = text(spec, "group");
    let namespaced = text(spec, "scope") == "Namespaced";
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
        plural: text(names, "plural").to_owned(),
        singular: text(names, "singular").to_owned(),
        kind: text(names, "kind").to_owned(),
        list_kind: text(names, "listKind").to_owned(),
        short_names: list("shortNames"),
        categories: list("categories"),
        namespaced,
        storage: Arc::from(format!("{group}/{}", text(names, "plural"))),
        stored_as: format!("{group}/{storage}"),
        status: version.pointer("/subresources/status").is_some(),
        scale: version.pointer("/subresources/scale").map(scale),
        columns: columns(version),
        selectable,
        reread: metadata::generation(crd) > 1 || versions(crd).count() > 1,
        terminating: metadata::deleting(crd),
        rules: Rules::Custom,
        deprecation: deprecation(crd, version, stored.newest),
        schema: OnceLock::from(compiled(version, known)),
        stored_schema: (text(version, "name") != storage).then(|| stored.schema.clone()).flatten(),
    }
}

/// Returns the schema of the storage version.
fn stored_schema(crd: &Value) -> Option<Arc<Schema>> {
    let stored = versions(crd).find(|version| flag(version, "storage"))?;
    Schema::compile(stored.pointer("/schema/openAPIV3Schema")?).ok().map(Arc::new)
}

/// Returns the newest version that is served and not deprecated.
fn newest(crd: &Value) -> Option<&str> {
    let usable = versions(crd).filter(|version| flag(version, "served") && !flag(version, "deprecated"));
    usable.map(|version| text(version, "name")).max_by_key(|name| crate::registry::version_rank(name))
}

fn deprecation(crd: &Value, version: &Value, newest: Option<&str>) -> Option<String> {
    let warning = version.get("deprecationWarning").and_then(Value::as_str).map(str::to_owned);
    let (group, kind) = (crd.pointer("/spec/group")?.as_str()?, crd.pointer("/spec/names/kind")?.as_str()?);
    let name = text(version, "name");
    let rank = crate::registry::version_rank(name);
    let better = newest.filter(|other| crate::registry::version_rank(other) > rank);
    let instead = better.map(|other| format!("; use {group}/{other} {kind}")).unwrap_or_default();
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

/// Marks a CRD as being deleted, with the finalizer and a condition.
pub fn begin_deletion(crd: &mut Value, now: Timestamp) {
    let finalizers = metadata::fields(crd).entry("finalizers").or_insert_with(|| json!([]));
    if let Some(finalizers) = finalizers.as_array_mut()
        && !finalizers.contains(&json!(FINALIZER))
    {
        finalizers.push(json!(FINALIZER));
    }
    let status = member(crd, "status").as_object_mut().map(std::mem::take).unwrap_or_default();
    let mut status: Map<String, Value> = status;
    let mut conditions = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let message = "CustomResource deletion is in progress";
    set_condition(&mut conditions, "Terminating", "True", "InstanceDeletionInProgress", message, now);
    status.insert("conditions".to_owned(), Value::Array(conditions));
    *member(crd, "status") = Value::Object(status);
}
