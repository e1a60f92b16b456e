//! Validation of CRDs: names, versions, schemas and related fields.

use std::collections::HashSet;

use serde_json::{Value, json};
use vitistack_schema::{Cause, CauseReason, Schema};

use super::crds::{condition, flag, text, versions};
use crate::{metadata, names};

/// The types a printer column may have.
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];

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

/// Validates a CRD.
pub(super) fn validate(crd: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut findings = Findings(Vec::new());
    let spec = crd.get("spec").cloned().unwrap_or_default();
    let name =
        format!("{}.{}", spec.get("names").map_or("", |names| text(names, "plural")), text(&spec, "group"));
    // The name of an object is immutable, so only a new one can have a wrong name.
    if old.is_none() && metadata::text(crd, "name") != name {
        let given = json!(metadata::text(crd, "name"));
        findings.invalid("metadata.name", &given, "must be spec.names.plural+\".\"+spec.group");
    }

    validate_group(&spec, &mut findings);
    validate_approval(crd, old, &mut findings);
    match text(&spec, "scope") {
        "Namespaced" | "Cluster" => {}
        "" => findings.required("spec.scope", ""),
        other => {
            let supported = ["Cluster", "Namespaced"];
            findings.0.push(Cause::not_supported("spec.scope", &json!(other), &supported));
        }
    }

    validate_names(&spec, &mut findings);
    validate_conversion(&spec, &mut findings);
    if flag(&spec, "preserveUnknownFields")
        && old.is_none_or(|old| old.pointer("/spec/preserveUnknownFields") != Some(&json!(true)))
    {
        let problem = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        findings.invalid("spec.preserveUnknownFields", &json!(true), problem);
    }

    validate_versions(crd, &mut findings);
    validate_stored(crd, &mut findings);
    if let Some(old) = old {
        validate_change(crd, old, &mut findings);
    }
    findings.0
}

/// Checks that groups of the Kubernetes project have the annotation of the API approval.
fn validate_approval(crd: &Value, old: Option<&Value>, findings: &mut Findings) {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    const WHERE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let group = crd.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default();
    let own =
        |domain: &str| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let approval = |object: &Value| {
        let annotations = object.pointer("/metadata/annotations");
        annotations.and_then(|all| all.get(ANNOTATION)).and_then(Value::as_str).unwrap_or_default().to_owned()
    };

    let given = approval(crd);
    if !(own("k8s.io") || own("kubernetes.io")) || old.is_some_and(|old| approval(old) == given) {
        return;
    }

    let field = format!("metadata.annotations[{ANNOTATION}]");
    let requirement = format!("protected groups must have approval annotation \"{ANNOTATION}\"");
    if given.is_empty() {
        findings.required(field, &format!("{requirement}, {WHERE}"));
    } else if !given.starts_with("unapproved")
        && !given.parse::<http::Uri>().is_ok_and(|link| link.scheme().is_some() && link.host().is_some())
    {
        let why =
            format!("{requirement} with either a URL or a reason starting with \"unapproved\", {WHERE}");
        findings.invalid(field, &json!(given), &why);
    }
}

fn validate_conversion(spec: &Value, findings: &mut Findings) {
    let conversion = spec.get("conversion").cloned().unwrap_or_default();
    match text(&conversion, "strategy") {
        "None" => {}
        "Webhook" => {
            let webhook = conversion.get("webhook").cloned().unwrap_or_default();
            if webhook.get("conversionReviewVersions").and_then(Value::as_array).is_none_or(Vec::is_empty) {
                findings.required("spec.conversion.conversionReviewVersions", "");
            }
            if webhook.get("clientConfig").is_none() {
                let why = "required when strategy is set to Webhook";
                findings.required("spec.conversion.webhookClientConfig", why);
            }
        }
        other => {
            let supported = ["None", "Webhook"];
            findings.0.push(Cause::not_supported("spec.conversion.strategy", &json!(other), &supported));
        }
    }
}

/// Checks that the versions that may have objects include the storage version.
fn validate_stored(crd: &Value, findings: &mut Findings) {
    let field = "status.storedVersions";
    let stored = crd.pointer("/status/storedVersions").and_then(Value::as_array);
    let Some(stored) = stored.filter(|stored| !stored.is_empty()) else {
        findings.invalid(field, &Value::Null, "must have at least one stored version");
        return;
    };
    for version in versions(crd).filter(|version| flag(version, "storage")) {
        let name = text(version, "name");
        if !stored.contains(&json!(name)) {
            findings.invalid(field, &json!(stored), &format!("must have the storage version {name}"));
        }
    }
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
        if value.is_empty() {
            findings.required(field, "");
            continue;
        }
        let mixed = matches!(member, "kind" | "listKind");
        let problems =
            if mixed { names::start_label(&value.to_lowercase()) } else { names::start_label(value) };
        if !problems.is_empty() {
            let prefix = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
            findings.invalid(field, &json!(value), &format!("{prefix}{}", problems.join(",")));
        }
    }

    for member in ["shortNames", "categories"] {
        let list = names.get(member).and_then(Value::as_array).into_iter().flatten();
        for (index, name) in list.enumerate() {
            let problems = names::start_label(name.as_str().unwrap_or_default());
            if !problems.is_empty() {
                findings.invalid(format!("spec.names.{member}[{index}]"), name, &problems.join(","));
            }
        }
    }

    if !text(&names, "kind").is_empty() && text(&names, "kind") == text(&names, "listKind") {
        let value = json!(text(&names, "listKind"));
        findings.invalid("spec.names.listKind", &value, "kind and listKind may not be the same");
    }
}

/// The fields of a version that are validated once, at a separate path, if all versions share them.
struct Shared<'a> {
    versions: &'a [Value],
    parts: Vec<&'static str>,
}

/// The fields that versions can share.
const PARTS: [&str; 4] = ["schema", "subresources", "additionalPrinterColumns", "selectableFields"];

impl<'a> Shared<'a> {
    fn of(versions: &'a [Value]) -> Self {
        let is_shared = |name: &&str| {
            let first = versions.first().and_then(|version| version.get(*name));
            versions.iter().all(|version| version.get(*name) == first)
        };
        Self { versions, parts: PARTS.into_iter().filter(is_shared).collect() }
    }

    fn part(&self, name: &str) -> bool {
        self.parts.contains(&name)
    }

    /// Returns the path at which a field of a version is validated; `None` if the first version covered it.
    fn path_of(&self, name: &str, index: usize) -> Option<String> {
        match (self.part(name), name, index) {
            (true, "schema", 0) => Some("spec.validation".to_owned()),
            (true, _, 0) => Some(format!("spec.{name}")),
            (true, ..) => None,
            (false, ..) => Some(format!("spec.versions[{index}].{name}")),
        }
    }

    /// Prints the versions as Kubernetes does: in its internal form, without the fields that all versions
    /// share.
    fn print(&self) -> String {
        if self.parts.len() < PARTS.len() {
            return json!(self.versions).to_string();
        }

        let print = |version: &Value| {
            let warning = version.get("deprecationWarning").unwrap_or(&Value::Null);
            format!(
                "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{warning},\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
                json!(text(version, "name")),
                flag(version, "served"),
                flag(version, "storage"),
                flag(version, "deprecated"),
            )
        };

        format!("[{}]", self.versions.iter().map(print).collect::<Vec<_>>().join(","))
    }
}

fn validate_versions(crd: &Value, findings: &mut Findings) {
    let storages = versions(crd).filter(|version| flag(version, "storage")).count();
    let all: Vec<Value> = versions(crd).cloned().collect();
    let shared = Shared::of(&all);
    let of_all = |problem: &str, findings: &mut Findings| {
        let cause = Cause::invalid_text("spec.versions".to_owned(), &shared.print(), problem);
        findings.0.push(cause);
    };

    if storages != 1 {
        of_all("must have exactly one version marked as storage version", findings);
    }
    let mut known = HashSet::new();
    if !all.iter().all(|version| known.insert(text(version, "name"))) {
        of_all("must contain unique version names", findings);
    }
    for (index, version) in all.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = text(version, "name");
        let problems = names::start_label(name);
        if !problems.is_empty() {
            if index == 0 {
                findings.invalid("spec.version", &json!(name), &problems.join(","));
            }
            findings.invalid(format!("{path}.name"), &json!(name), &problems.join(","));
        }
        if !flag(version, "deprecated")
            && let Some(warning) = version.get("deprecationWarning").filter(|warning| !warning.is_null())
        {
            let why = "can only be set for deprecated versions";
            findings.invalid(format!("{path}.deprecationWarning"), warning, why);
        }
        let schema = version.pointer("/schema/openAPIV3Schema");
        if schema.is_none() {
            findings.required(format!("{path}.schema.openAPIV3Schema"), "");
        }
        if let (Some(schema), Some(path)) = (schema, shared.path_of("schema", index))
            && let Err(causes) = Schema::compile(schema).map(drop)
        {
            let placed = |cause: Cause| Cause {
                field: format!("{path}.{}", cause.field),
                message: cause
                    .message
                    .replace("within openAPIV3Schema", &format!("within {path}.openAPIV3Schema")),
                ..cause
            };
            findings.0.extend(causes.into_iter().map(placed));
        }
        if let Some(path) = shared.path_of("additionalPrinterColumns", index) {
            validate_columns(&path, version, findings);
        }
        if let Some(path) = shared.path_of("subresources", index) {
            validate_scale(&format!("{path}.scale"), version, findings);
        }
        if let Some(path) = shared.path_of("selectableFields", index) {
            validate_selectable(&path, version, findings);
        }
    }
}

/// Whether a path starts at the object, such as `.spec.replicas`, and is not a template.
fn simple_path(path: &str) -> bool {
    path.strip_prefix('.').is_some_and(|rest| !rest.is_empty() && !rest.contains(['{', '}']))
}

fn validate_columns(path: &str, version: &Value, findings: &mut Findings) {
    let columns = version.get("additionalPrinterColumns").and_then(Value::as_array).into_iter().flatten();
    for (index, column) in columns.enumerate() {
        let path = format!("{path}[{index}]");
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
        match text(column, "jsonPath") {
            "" => findings.required(format!("{path}.JSONPath"), ""),
            given if !simple_path(given) => {
                let problem = "must be a simple json path starting with .";
                findings.invalid(format!("{path}.JSONPath"), &json!(given), problem);
            }
            _ => {}
        }
    }
}

/// Validates the paths of the scale subresource.
fn validate_scale(path: &str, version: &Value, findings: &mut Findings) {
    let Some(scale) = version.pointer("/subresources/scale") else { return };
    for (member, parent, required) in [
        ("specReplicasPath", ".spec", true),
        ("statusReplicasPath", ".status", true),
        ("labelSelectorPath", ".spec or .status", false),
    ] {
        let given = text(scale, member);
        let field = format!("{path}.{member}");
        if given.is_empty() {
            if required {
                findings.required(field, "");
            }
        } else if !simple_path(given) {
            findings.invalid(field, &json!(given), "must be a simple json path starting with .");
        } else if !parent.split(" or ").any(|parent| given.starts_with(&format!("{parent}."))) {
            let problem = format!("should be a json path under {parent}");
            findings.invalid(field, &json!(given), &problem);
        }
    }
}

/// Checks that selectable fields are in the schema.
fn validate_selectable(path: &str, version: &Value, findings: &mut Findings) {
    let fields = version.get("selectableFields").and_then(Value::as_array).into_iter().flatten();
    for (index, field) in fields.enumerate() {
        let given = text(field, "jsonPath");
        let path = format!("{path}[{index}].jsonPath");
        if given.is_empty() {
            findings.required(path, "");
            continue;
        }
        let mut node = version.pointer("/schema/openAPIV3Schema");
        for name in given.trim_start_matches('.').split('.') {
            node = node.and_then(|node| node.get("properties")?.get(name));
        }
        if node.is_none() {
            let problem = "is an invalid path: does not refer to a valid field";
            findings.invalid(path, &json!(given), problem);
        }
    }
}

fn validate_change(crd: &Value, old: &Value, findings: &mut Findings) {
    let mut fixed = vec!["/spec/group", "/spec/names/plural"];
    // Nothing is stored under the names until they are accepted.
    if condition(old, "Established") == Some(true) {
        fixed.extend(["/spec/scope", "/spec/names/kind"]);
    }

    for pointer in fixed {
        let new = crd.pointer(pointer).cloned().unwrap_or_default();
        if Some(&new) != old.pointer(pointer) {
            let field = pointer.trim_start_matches('/').replace('/', ".");
            findings.invalid(field, &new, "field is immutable");
        }
    }

    let stored = crd.pointer("/status/storedVersions").and_then(Value::as_array).into_iter().flatten();
    let present: HashSet<&str> = versions(crd).map(|version| text(version, "name")).collect();
    for (index, version) in stored.enumerate() {
        let name = version.as_str().unwrap_or_default();
        if !present.contains(name) {
            let problem = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            findings.invalid(format!("status.storedVersions[{index}]"), version, &problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_columns_start_with_a_dot_and_have_no_braces() {
        assert!(simple_path(".spec.replicas"));
        assert!(simple_path(".status.conditions[?(@.type==\"Ready\")].status"));
        assert!(!simple_path("{.a"));
        assert!(!simple_path("spec"));
    }

    #[test]
    fn versions_are_printed_in_the_internal_form_of_kubernetes() {
        let versions = [json!({"name": "v1", "served": true, "storage": false, "schema": {}})];
        assert_eq!(
            Shared::of(&versions).print(),
            "[{\"Name\":\"v1\",\"Served\":true,\"Storage\":false,\"Deprecated\":false,\"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}]"
        );
    }
}
