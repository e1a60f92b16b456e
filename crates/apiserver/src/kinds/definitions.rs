//! Definitions of custom resources: what they must say, what they add to the API, and their conditions.

use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value, json};

use super::cells::{self, CREATED_AT, NAME};
use super::{BuiltIn, default_member, member, schema_of};
use crate::metadata;
use crate::names;
use crate::registry::{Resource, Rules, ScalePaths};
use crate::schema::{Cause, CauseReason, Schema};
use crate::table::{Columns, PathColumn};

/// Keeps a definition until its objects are gone.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// Where definitions are stored.
pub const STORED_IN: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// The types a printer column may have.
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];

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
    validate,
    columns: &[NAME, CREATED_AT],
    cells: cells::name_and_creation,
    ..BuiltIn::PLAIN
}];

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn flag(value: &Value, name: &str) -> bool {
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

struct Findings(Vec<Cause>);

impl Findings {
    fn invalid(&mut self, field: impl Into<String>, value: &Value, problem: &str) {
        let message = format!("Invalid value: {value}: {problem}");
        self.0.push(Cause { field: field.into(), reason: CauseReason::FieldValueInvalid, message });
    }

    fn required(&mut self, field: impl Into<String>, why: &str) {
        let message =
            if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        self.0.push(Cause { field: field.into(), reason: CauseReason::FieldValueRequired, message });
    }
}

fn validate(definition: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut findings = Findings(Vec::new());
    let spec = definition.get("spec").cloned().unwrap_or_default();
    let name =
        format!("{}.{}", spec.get("names").map_or("", |names| text(names, "plural")), text(&spec, "group"));
    if metadata::text(definition, "name") != name {
        let given = json!(metadata::text(definition, "name"));
        findings.invalid("metadata.name", &given, "must be spec.names.plural+\".\"+spec.group");
    }
    validate_group(&spec, &mut findings);
    match text(&spec, "scope") {
        "Namespaced" | "Cluster" => {}
        "" => findings.required("spec.scope", ""),
        other => findings.0.push(Cause {
            field: "spec.scope".to_owned(),
            reason: CauseReason::FieldValueNotSupported,
            message: format!("Unsupported value: \"{other}\": supported values: \"Cluster\", \"Namespaced\""),
        }),
    }
    validate_names(&spec, &mut findings);
    validate_versions(definition, &mut findings);
    if let Some(old) = old {
        validate_change(definition, old, &mut findings);
    }
    findings.0
}

fn validate_group(spec: &Value, findings: &mut Findings) {
    let group = text(spec, "group");
    if group.is_empty() {
        findings.required("spec.group", "");
    } else if !names::subdomain(group).is_empty() {
        findings.invalid("spec.group", &json!(group), &names::subdomain(group).join(","));
    } else if !group.contains('.') {
        findings.invalid("spec.group", &json!(group), "should be a domain with at least one dot");
    }
}

fn validate_names(spec: &Value, findings: &mut Findings) {
    let names = spec.get("names").cloned().unwrap_or_default();
    for member in ["plural", "singular", "kind", "listKind"] {
        let field = format!("spec.names.{member}");
        let value = text(&names, member);
        let problems = names::label(&value.to_lowercase());
        if value.is_empty() {
            findings.required(field, "");
        } else if !problems.is_empty()
            || (matches!(member, "plural" | "singular") && value != value.to_lowercase())
        {
            findings.invalid(field, &json!(value), &names::label(value).join(","));
        }
    }
    if !text(&names, "kind").is_empty() && text(&names, "kind") == text(&names, "listKind") {
        let value = json!(text(&names, "listKind"));
        findings.invalid("spec.names.listKind", &value, "kind and listKind may not be the same");
    }
}

fn validate_versions(definition: &Value, findings: &mut Findings) {
    let storages = versions(definition).filter(|version| flag(version, "storage")).count();
    let all: Vec<Value> = versions(definition).cloned().collect();
    if storages != 1 {
        let problem = "must have exactly one version marked as storage version";
        let shown = if all.is_empty() { Value::Null } else { json!(all) };
        findings.invalid("spec.versions", &shown, problem);
    }
    let first = all.first().and_then(|version| version.get("schema"));
    let shared = all.iter().all(|version| version.get("schema") == first);
    let mut known = Vec::new();
    for (index, version) in all.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = text(version, "name");
        if known.contains(&name) {
            findings.invalid("spec.versions", &json!(all), "must contain unique version names");
        }
        known.push(name);
        if !names::label(name).is_empty() {
            findings.invalid(format!("{path}.name"), &json!(name), &names::label(name).join(","));
        }
        match version.pointer("/schema/openAPIV3Schema") {
            None => findings.required(format!("{path}.schema.openAPIV3Schema"), ""),
            Some(schema) => {
                // Where all versions have the same schema it counts, and is judged, once.
                let place = if shared { "spec.validation".to_owned() } else { format!("{path}.schema") };
                if let Err(causes) = Schema::compile(schema).map(drop)
                    && (!shared || index == 0)
                {
                    let placed = |cause: Cause| Cause { field: format!("{place}.{}", cause.field), ..cause };
                    findings.0.extend(causes.into_iter().map(placed));
                }
            }
        }
        validate_columns(&path, version, findings);
    }
}

fn validate_columns(path: &str, version: &Value, findings: &mut Findings) {
    let columns = version.get("additionalPrinterColumns").and_then(Value::as_array).into_iter().flatten();
    for (index, column) in columns.enumerate() {
        let path = format!("{path}.additionalPrinterColumns[{index}]");
        if text(column, "name").is_empty() {
            findings.required(format!("{path}.name"), "");
        }
        let kind = text(column, "type");
        if kind.is_empty() {
            findings.required(format!("{path}.type"), &format!("must be one of {}", COLUMN_TYPES.join(",")));
        } else if !COLUMN_TYPES.contains(&kind) {
            let problem = format!("must be one of {}", COLUMN_TYPES.join(","));
            findings.invalid(format!("{path}.type"), &json!(kind), &problem);
        }
        if text(column, "jsonPath").is_empty() {
            findings.required(format!("{path}.JSONPath"), "");
        }
    }
}

fn validate_change(definition: &Value, old: &Value, findings: &mut Findings) {
    let mut fixed = vec!["/spec/group", "/spec/names/plural"];
    // Until the names are accepted nothing is stored under them.
    if condition(old, "Established") == Some(true) {
        fixed.extend(["/spec/scope", "/spec/names/kind"]);
    }
    for pointer in fixed {
        let new = definition.pointer(pointer).cloned().unwrap_or_default();
        if Some(&new) != old.pointer(pointer) {
            let field = pointer.trim_start_matches('/').replace('/', ".");
            findings.invalid(field, &new, "field is immutable");
        }
    }
    let stored = definition.pointer("/status/storedVersions").and_then(Value::as_array).into_iter().flatten();
    for (index, version) in stored.enumerate() {
        let name = version.as_str().unwrap_or_default();
        if !versions(definition).any(|version| text(version, "name") == name) {
            let problem = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            findings.invalid(format!("status.storedVersions[{index}]"), version, &problem);
        }
    }
}

fn condition(definition: &Value, kind: &str) -> Option<bool> {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array)?;
    let found = conditions.iter().find(|condition| text(condition, "type") == kind)?;
    Some(text(found, "status") == "True")
}

/// Whether the definition's resources are served.
#[must_use]
pub fn established(definition: &Value) -> bool {
    condition(definition, "Established") == Some(true)
}

/// The name of the definition and the names it claims, for the comparison with others of its group.
fn claimed(definition: &Value) -> Vec<(&'static str, String)> {
    let names = definition.pointer("/spec/names").cloned().unwrap_or_default();
    let mut claimed = vec![
        ("plural", text(&names, "plural").to_owned()),
        ("singular", text(&names, "singular").to_owned()),
        ("kind", text(&names, "kind").to_owned()),
        ("listKind", text(&names, "listKind").to_owned()),
    ];
    let short = names.get("shortNames").and_then(Value::as_array).into_iter().flatten();
    claimed.extend(short.filter_map(Value::as_str).map(|name| ("shortNames", name.to_owned())));
    claimed
}

/// The conflict of a definition with others that are established, in Kubernetes' words.
fn name_conflict(definition: &Value, others: &[Value]) -> Option<(String, String)> {
    let group = definition.pointer("/spec/group");
    let rivals = others.iter().filter(|other| {
        other.pointer("/spec/group") == group
            && established(other)
            && metadata::text(other, "name") != metadata::text(definition, "name")
    });
    let taken: Vec<(&str, String)> = rivals.flat_map(claimed).collect();
    let in_resources = |kind: &str| !matches!(kind, "kind" | "listKind");
    let (kind, name) = claimed(definition).into_iter().find(|(kind, name)| {
        taken.iter().any(|(rival, other)| in_resources(kind) == in_resources(rival) && name == other)
    })?;
    let reason = match kind {
        "plural" => "PluralConflict",
        "singular" => "SingularConflict",
        "kind" => "KindConflict",
        "listKind" => "ListKindConflict",
        _ => "ShortNamesConflict",
    };
    Some((reason.to_owned(), format!("{name:?} is already in use")))
}

/// The status of a definition among the others: whether its names are accepted and it is served.
#[must_use]
pub fn status(definition: &Value, others: &[Value], now: Timestamp) -> Value {
    let mut status = definition.get("status").cloned().unwrap_or_else(|| json!({}));
    let conflict = name_conflict(definition, others);
    let mut conditions: Vec<Value> =
        status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let was_established = established(definition);
    let accepted = match &conflict {
        None => ("True", "NoConflicts".to_owned(), "no conflicts found".to_owned()),
        Some((reason, message)) => ("False", reason.clone(), message.clone()),
    };
    set_condition(&mut conditions, "NamesAccepted", accepted.0, &accepted.1, &accepted.2, now);
    if conflict.is_none() {
        if let Some(members) = status.as_object_mut() {
            let names = definition.pointer("/spec/names").cloned().unwrap_or_default();
            members.insert("acceptedNames".to_owned(), names);
        }
        if !was_established {
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
        reread: metadata::generation(definition) > 1,
        terminating: metadata::deleting(definition),
        rules: Rules::Custom,
        deprecation: deprecation(definition, version),
        schema: OnceLock::from(Arc::new(schema)),
    }
}

fn deprecation(definition: &Value, version: &Value) -> Option<String> {
    let warning = version.get("deprecationWarning").and_then(Value::as_str).map(str::to_owned);
    let (group, kind) =
        (definition.pointer("/spec/group")?.as_str()?, definition.pointer("/spec/names/kind")?.as_str()?);
    flag(version, "deprecated")
        .then(|| warning.unwrap_or_else(|| format!("{group}/{} {kind} is deprecated", text(version, "name"))))
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
