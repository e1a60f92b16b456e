//! Replaces the parts of a response that differ between runs, and nothing else.
//!
//! Equal values remain recognizable as equal: the first uid of a case becomes `uid-1` wherever it appears,
//! the second `uid-2`; likewise `version-1`, `version-2` for the resource versions of objects.

use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

/// The groups that both servers serve; discovery is compared only for these.
const GROUPS: [&str; 9] = [
    "",
    "apiextensions.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "coordination.k8s.io",
    "events.k8s.io",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "conformance.vitistack.io",
];

/// The resources of those groups that both servers serve.
const RESOURCES: [&str; 19] = [
    "clusterrolebindings",
    "clusterroles",
    "configmaps",
    "customresourcedefinitions",
    "events",
    "leases",
    "namespaces",
    "persistentvolumeclaims",
    "rolebindings",
    "roles",
    "secrets",
    "selfsubjectaccessreviews",
    "selfsubjectreviews",
    "selfsubjectrulesreviews",
    "serviceaccounts",
    "storageclasses",
    "subjectaccessreviews",
    "localsubjectaccessreviews",
    "tokenreviews",
];

/// The state of one case: a value that was seen before gets the same placeholder again.
pub struct Normalizer {
    namespace: String,
    managed_fields: bool,
    uids: Vec<String>,
    versions: Vec<String>,
    names: Vec<(String, String)>,
    uid: Regex,
    time: Regex,
    age: Regex,
    version_in_text: Regex,
    object_in_text: Regex,
    current_version: Regex,
}

impl Normalizer {
    /// Returns a normalizer for one run of one case in the namespace.
    pub fn new(namespace: &str, managed_fields: bool) -> Self {
        let regex = |pattern: &str| Regex::new(pattern).unwrap();
        Self {
            namespace: namespace.to_owned(),
            managed_fields,
            uids: Vec::new(),
            versions: Vec::new(),
            names: Vec::new(),
            uid: regex("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
            time: regex(r"^(\d{4})-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"),
            age: regex(r"^(<invalid>|\d+s|\d+m(\d+s)?)$"),
            object_in_text: regex(r#"Invalid value: "\{\\"apiVersion\\":.*\}": "#),
            current_version: regex(r", current: \d+"),
            version_in_text: regex(
                r"(?<before>resource version: |resourceVersion: |object meta: |in record \()(?<version>\d+)(?<now> \(\d+\))?",
            ),
        }
    }

    /// Normalizes the body of a response.
    pub fn body(&mut self, body: &Value) -> Value {
        let mut body = self.value("", body);
        keep_what_both_serve(&mut body);
        sort_causes(&mut body);
        body
    }

    /// Normalizes one event of a watch.
    pub fn event(&mut self, event: &Value) -> Value {
        let mut event = event.clone();
        if event["type"] == "BOOKMARK" {
            event["object"]["metadata"]["resourceVersion"] = json!("<version>");
        }
        self.body(&event)
    }

    /// Normalizes a text: a warning, or a body that is not JSON.
    pub fn text(&mut self, text: &str) -> String {
        if let Some(found) = self.time.captures(text) {
            // Times that a case itself writes are before 2021 and are compared.
            return if &found[1] <= "2020" {
                text.to_owned()
            } else if found.get(2).is_some() {
                "<precise time>".to_owned()
            } else {
                "<time>".to_owned()
            };
        }

        // The error for a patch that cannot be decoded contains the whole patched object.
        let text = self.object_in_text.replace(text, "Invalid value: <object>: ");
        let text = self.current_version.replace(&text, ", current: <version>");
        let mut text = text.replace(&self.namespace, "$NS");
        for (name, placeholder) in &self.names {
            text = text.replace(name, placeholder);
        }

        let uids = &mut self.uids;
        let text = self.uid.replace_all(&text, |found: &Captures<'_>| placeholder("uid", uids, &found[0]));
        let versions = &mut self.versions;
        let replace = |found: &Captures<'_>| {
            let version = &found["version"];
            let known = versions.iter().any(|seen| seen == version);
            let version = if known || found.name("now").is_none() && version.len() > 2 {
                placeholder("version", versions, version)
            } else {
                version.to_owned()
            };
            let now = found.name("now").map_or("", |_| " (<version>)");
            format!("{}{version}{now}", &found["before"])
        };

        self.version_in_text.replace_all(&text, replace).into_owned()
    }

    fn value(&mut self, key: &str, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(match key {
                "resourceVersion" if text.parse::<u64>().is_ok_and(|version| version > 0) => {
                    placeholder("version", &mut self.versions, text)
                }
                "continue" if !text.is_empty() => "<continue>".to_owned(),
                "storageVersionHash" | "hash" => "<hash>".to_owned(),
                "cells" if self.age.is_match(text) => "<age>".to_owned(),
                _ => self.text(text),
            }),
            Value::Array(items) => items.iter().map(|item| self.value(key, item)).collect(),
            Value::Object(fields) => self.object(fields),
            other => other.clone(),
        }
    }

    fn object(&mut self, fields: &Map<String, Value>) -> Value {
        let mut fields = fields.clone();
        // The version of a list changes with every write of every case, so it is not worth comparing.
        let is_list = fields.contains_key("items") || fields.contains_key("rows");
        let version = fields.get_mut("metadata").and_then(|metadata| metadata.get_mut("resourceVersion"));
        if let (true, Some(version)) = (is_list, version) {
            *version = json!("<list version>");
        }

        if let (Some(Value::String(prefix)), Some(Value::String(name))) =
            (fields.get("generateName"), fields.get("name"))
        {
            let prefix = prefix.get(..58).unwrap_or(prefix);
            let known = self.names.iter().any(|(seen, _)| seen == name);
            if name.starts_with(prefix) && name.len() == prefix.len() + 5 && !known {
                self.names.push((name.clone(), format!("{prefix}<random>")));
            }
        }

        if let Some(managers) = fields.remove("managedFields")
            && self.managed_fields
        {
            fields.insert("managedFields".to_owned(), managed_fields(&managers));
        }

        // Sorted, because placeholders are assigned in the order of reading, and maps may preserve insertion
        // order.
        let mut sorted: Vec<(String, Value)> = fields.into_iter().collect();
        sorted.sort_by(|left, right| left.0.cmp(&right.0));
        sorted.into_iter().map(|(key, value)| (self.text(&key), self.value(&key, &value))).collect()
    }
}

/// Returns the placeholder of a value: the same for the same value, numbered in the order of appearance.
fn placeholder(kind: &str, seen: &mut Vec<String>, value: &str) -> String {
    let position = seen.iter().position(|known| known == value).unwrap_or_else(|| {
        seen.push(value.to_owned());
        seen.len() - 1
    });
    format!("{kind}-{}", position + 1)
}

/// Converts field sets to lists of paths, which are equivalent and readable. The server sorts the managers by
/// the second of their last write, which differs between runs; here they are sorted by name.
fn managed_fields(managers: &Value) -> Value {
    let mut managers = managers.clone();
    for manager in managers.as_array_mut().into_iter().flatten() {
        if let Some(fields) = manager.get_mut("fieldsV1") {
            let mut paths = Vec::new();
            collect_paths("", fields, &mut paths);
            paths.sort();
            *fields = json!(paths);
        }
    }
    if let Some(managers) = managers.as_array_mut() {
        let text = |manager: &Value, key: &str| manager[key].as_str().unwrap_or_default().to_owned();
        managers.sort_by_key(|manager| ["operation", "manager", "subresource"].map(|key| text(manager, key)));
    }
    managers
}

fn collect_paths(path: &str, node: &Value, paths: &mut Vec<String>) {
    let Some(children) = node.as_object() else { return };
    if children.is_empty() {
        paths.push(path.to_owned());
    }
    for (key, child) in children {
        match key.split_once(':') {
            Some(("f", name)) => collect_paths(&format!("{path}.{name}"), child, paths),
            Some((kind, item)) => collect_paths(&format!("{path}[{kind}:{item}]"), child, paths),
            None => paths.push(path.to_owned()),
        }
    }
}

/// Removes from discovery what only one of the servers has. The resources of CRDs are in the order of a Go
/// map, so they are sorted.
fn keep_what_both_serve(body: &mut Value) {
    let ours = |name: &Value| GROUPS.contains(&name.as_str().unwrap_or_default());
    let kind = body["kind"].as_str().unwrap_or_default().to_owned();
    match kind.as_str() {
        "APIGroupList" => {
            if let Some(groups) = body["groups"].as_array_mut() {
                groups.retain(|group| ours(&group["name"]));
            }
        }
        "APIResourceList" => {
            let custom = is_custom(&body["groupVersion"]);
            keep_resources(&mut body["resources"], "name", custom);
        }
        "APIGroupDiscoveryList" => {
            let Some(groups) = body["items"].as_array_mut() else { return };
            groups.retain(|group| ours(group["metadata"].get("name").unwrap_or(&json!(""))));
            for group in groups {
                let custom = is_custom(&group["metadata"]["name"]);
                for version in group["versions"].as_array_mut().into_iter().flatten() {
                    keep_resources(&mut version["resources"], "resource", custom);
                }
            }
        }
        _ => {}
    }
}

/// Whether a group belongs to a CRD of the suite.
fn is_custom(group: &Value) -> bool {
    group.as_str().is_some_and(|group| group.contains("$NS") || group.contains("vitistack"))
}

/// Sorts the resources of a custom group by the key; of any other group, keeps those that both servers have.
fn keep_resources(resources: &mut Value, key: &str, custom: bool) {
    let name = |resource: &Value| resource[key].as_str().unwrap_or_default().to_owned();
    let Some(resources) = resources.as_array_mut() else { return };
    if custom {
        resources.sort_by_key(name);
    } else {
        resources
            .retain(|resource| RESOURCES.contains(&name(resource).split('/').next().unwrap_or_default()));
    }
}

/// Several schema errors are in the order of a Go map: sorted in the causes, removed from the message.
fn sort_causes(body: &mut Value) {
    let Some(causes) = body.pointer_mut("/details/causes").and_then(Value::as_array_mut) else { return };
    if causes.len() < 2 {
        return;
    }
    causes.sort_by_key(ToString::to_string);
    if let Some(message) = body["message"].as_str()
        && let Some((before, _)) = message.split_once(" is invalid: [")
    {
        body["message"] = json!(format!("{before} is invalid: [<causes>]"));
    }
}

/// Replaces the values by their types.
pub fn shape(value: &Value) -> Value {
    match value {
        Value::Null => json!("null"),
        Value::Bool(_) => json!("boolean"),
        Value::Number(_) => json!("number"),
        Value::String(_) => json!("string"),
        Value::Array(items) => items.iter().take(1).map(shape).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), shape(value))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalize(value: &Value) -> Value {
        Normalizer::new("case-1a2b", false).body(value)
    }

    #[test]
    fn equal_uids_and_versions_get_equal_placeholders() {
        let first = "0a1b2c3d-0000-4000-8000-000000000001";
        let second = "0a1b2c3d-0000-4000-8000-000000000002";
        let body = json!([
            {"metadata": {"uid": first, "resourceVersion": "7"}},
            {"metadata": {"uid": second, "resourceVersion": "9"}},
            {"metadata": {"uid": first, "resourceVersion": "7"}, "message": format!("uid {second} it is")},
        ]);
        let expected = json!([
            {"metadata": {"uid": "uid-1", "resourceVersion": "version-1"}},
            {"metadata": {"uid": "uid-2", "resourceVersion": "version-2"}},
            {"metadata": {"uid": "uid-1", "resourceVersion": "version-1"}, "message": "uid uid-2 it is"},
        ]);
        assert_eq!(normalize(&body), expected);
    }

    #[test]
    fn only_times_of_the_run_are_replaced() {
        let body =
            json!(["2026-11-16T00:24:02Z", "2026-11-16T00:24:02.123456Z", "2020-01-01T00:00:00Z", "at 2026"]);
        assert_eq!(normalize(&body), json!(["<time>", "<precise time>", "2020-01-01T00:00:00Z", "at 2026"]));
    }

    #[test]
    fn the_namespace_and_generated_names_are_replaced_wherever_they_appear() {
        let body = json!({"metadata": {"generateName": "x-", "name": "x-ab12c", "namespace": "case-1a2b"},
            "text": "x-ab12c in case-1a2b"});
        let metadata = json!({"generateName": "x-", "name": "x-<random>", "namespace": "$NS"});
        assert_eq!(normalize(&body), json!({"metadata": metadata, "text": "x-<random> in $NS"}));
    }

    #[test]
    fn the_version_of_a_list_is_not_numbered() {
        let body = json!({"items": [], "metadata": {"resourceVersion": "12", "continue": "abc"}});
        assert_eq!(
            normalize(&body),
            json!({"items": [], "metadata": {"resourceVersion": "<list version>", "continue": "<continue>"}})
        );
    }

    #[test]
    fn managed_fields_become_paths_or_are_dropped() {
        let fields =
            json!({"f:data": {".": {}, "f:a": {}}, "f:list": {"k:{\"name\":\"x\"}": {"f:value": {}}}});
        let body = json!({"managedFields": [{"manager": "m", "fieldsV1": fields}]});
        let paths = json!([".data", ".data.a", ".list[k:{\"name\":\"x\"}].value"]);
        let expected = json!({"managedFields": [{"manager": "m", "fieldsV1": paths}]});
        assert_eq!(Normalizer::new("case-1a2b", true).body(&body), expected);
        assert_eq!(normalize(&body), json!({}));
    }

    #[test]
    fn several_causes_are_sorted_and_removed_from_the_message() {
        let body =
            json!({"message": "X \"a\" is invalid: [two, one]", "details": {"causes": ["two", "one"]}});
        let sorted =
            json!({"message": "X \"a\" is invalid: [<causes>]", "details": {"causes": ["one", "two"]}});
        assert_eq!(normalize(&body), sorted);
    }

    #[test]
    fn discovery_keeps_what_both_servers_have() {
        let body = json!({"kind": "APIResourceList", "groupVersion": "v1",
            "resources": [{"name": "pods"}, {"name": "namespaces/status", "storageVersionHash": "abc="}]});
        let expected = json!([{"name": "namespaces/status", "storageVersionHash": "<hash>"}]);
        assert_eq!(normalize(&body)["resources"], expected);
    }

    #[test]
    fn an_object_inside_a_message_is_removed() {
        let text = r#"patch: Invalid value: "{\"apiVersion\":\"v1\",\"x\":{}}": strict decoding error: y"#;
        let text = Normalizer::new("case-1a2b", false).text(text);
        assert_eq!(text, "patch: Invalid value: <object>: strict decoding error: y");
    }

    #[test]
    fn a_shape_has_types_instead_of_values() {
        assert_eq!(shape(&json!({"a": 1, "b": ["x", "y"]})), json!({"a": "number", "b": ["string"]}));
    }
}
