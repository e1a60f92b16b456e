//! Discovery: the legacy documents, one per group and version, and the aggregated one.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    registry::{Resource, Served, Version},
    reply::Reply,
};

/// The version of Kubernetes whose API is served.
const MINOR: &str = "36";

/// `/version`.
#[must_use]
pub fn version() -> Value {
    json!({
        "major": "1", "minor": MINOR,
        "emulationMajor": "1", "emulationMinor": MINOR, "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": concat!("v1.36.3+vitistack-", env!("CARGO_PKG_VERSION")), "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// `/`.
#[must_use]
pub fn paths(served: &Served) -> Value {
    let mut paths: Vec<String> =
        ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
            .into_iter()
            .map(str::to_owned)
            .collect();
    for (group, versions) in served.groups.iter().filter(|(group, _)| !group.is_empty()) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|(version, _)| format!("/apis/{group}/{version}")));
    }
    paths.sort();
    json!({"paths": paths})
}

/// `/api`.
#[must_use]
pub fn core_versions() -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
    })
}

/// Returns the groups in the order of Kubernetes: built-in ones by priority, then those of CRDs by name.
const ORDER: &[&str] = &[
    "",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "apiextensions.k8s.io",
    "coordination.k8s.io",
];

fn ordered(served: &Served) -> Vec<(&String, &Vec<Version>)> {
    let mut groups: Vec<_> = served.groups.iter().collect();
    let rank = |group: &str| ORDER.iter().position(|known| *known == group).unwrap_or(ORDER.len());
    groups.sort_by_key(|(group, _)| rank(group));
    groups
}

fn group_members(group: &str, versions: &[Version]) -> Value {
    let listed: Vec<Value> = versions
        .iter()
        .map(|(version, _)| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    json!({"name": group, "versions": listed, "preferredVersion": listed.first()})
}

/// `/apis`.
#[must_use]
pub fn groups(served: &Served) -> Value {
    let named = ordered(served).into_iter().filter(|(group, _)| !group.is_empty());
    let groups: Vec<Value> = named.map(|(group, versions)| group_members(group, versions)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`.
#[must_use]
pub fn group(served: &Served, group: &str) -> Option<Value> {
    let mut document = group_members(group, served.groups.get(group).filter(|_| !group.is_empty())?);
    if let Some(members) = document.as_object_mut() {
        members.insert("kind".to_owned(), "APIGroup".into());
        members.insert("apiVersion".to_owned(), "v1".into());
    }
    Some(document)
}

/// A subresource: its name, its kind if it differs from that of the resource, and its verbs.
struct Subresource {
    name: &'static str,
    kind: Option<(&'static str, &'static str, &'static str)>,
    verbs: &'static [&'static str],
}

fn subresources(resource: &Resource) -> Vec<Subresource> {
    const CHANGE: &[&str] = &["get", "patch", "update"];
    let mut list = Vec::new();
    if &*resource.storage == "/namespaces" {
        list.push(Subresource { name: "finalize", kind: None, verbs: &["update"] });
    }
    if resource.status {
        list.push(Subresource { name: "status", kind: None, verbs: CHANGE });
    }
    if resource.scale.is_some() {
        list.push(Subresource { name: "scale", kind: Some(("autoscaling", "v1", "Scale")), verbs: CHANGE });
    }
    list
}

/// The hash that clients compare to detect a change of the storage version.
fn storage_hash(resource: &Resource) -> String {
    let version = resource.stored_as.rsplit('/').next().unwrap_or_default();
    let group = resource.stored_as.rsplit_once('/').map_or("", |(group, _)| group);
    let digest = Sha256::digest(format!("{group}/{version}/{}", resource.kind));
    STANDARD.encode(digest.get(..8).unwrap_or_default())
}

/// `/api/v1`, `/apis/GROUP/VERSION`.
#[must_use]
pub fn resources(served: &Served, group: &str, version: &str) -> Option<Value> {
    let versions = served.groups.get(group)?;
    let (_, resources) = versions.iter().find(|(name, _)| name == version)?;
    let mut listed = Vec::new();
    for resource in resources {
        let mut row = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": resource.verbs(),
        });
        if let Some(members) = row.as_object_mut() {
            for (name, list) in [("shortNames", &resource.short_names), ("categories", &resource.categories)]
            {
                if !list.is_empty() {
                    members.insert(name.to_owned(), json!(list));
                }
            }
            if !resource.is_review() {
                members.insert("storageVersionHash".to_owned(), storage_hash(resource).into());
            }
        }
        listed.push(row);
        for sub in subresources(resource) {
            let name = format!("{}/{}", resource.plural, sub.name);
            let mut row = json!({
                "name": name, "singularName": "", "namespaced": resource.namespaced,
                "kind": sub.kind.map_or(resource.kind.as_str(), |(_, _, kind)| kind), "verbs": sub.verbs,
            });
            if let (Some(members), Some((group, version, _))) = (row.as_object_mut(), sub.kind) {
                members.insert("group".to_owned(), group.into());
                members.insert("version".to_owned(), version.into());
            }
            listed.push(row);
        }
    }

    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": listed});
    if let Some(members) = list.as_object_mut()
        && !group.is_empty()
    {
        members.insert("apiVersion".to_owned(), "v1".into());
    }
    Some(list)
}

fn aggregated_resource(resource: &Resource) -> Value {
    let response = |kind: (&str, &str, &str)| json!({"group": kind.0, "version": kind.1, "kind": kind.2});
    // Kubernetes specifies only the name for built-in kinds.
    let own = match resource.kind_rules() {
        Some(kind) => ("", "", kind.kind),
        None => (resource.group.as_str(), resource.version.as_str(), resource.kind.as_str()),
    };

    let subs: Vec<Value> = subresources(resource)
        .into_iter()
        .map(|sub| {
            json!({"subresource": sub.name, "responseKind": response(sub.kind.unwrap_or(own)), "verbs": sub.verbs})
        })
        .collect();

    let mut row = json!({
        "resource": resource.plural, "responseKind": response(own),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": resource.verbs(),
    });

    if let Some(members) = row.as_object_mut() {
        for (name, list) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
            if !list.is_empty() {
                members.insert(name.to_owned(), json!(list));
            }
        }
        if !subs.is_empty() {
            members.insert("subresources".to_owned(), Value::Array(subs));
        }
    }

    row
}

/// Returns all groups of `/api` or of `/apis` in one document.
#[must_use]
pub fn aggregated(served: &Served, core: bool) -> Reply {
    let chosen = ordered(served).into_iter().filter(|(group, _)| group.is_empty() == core);
    let items: Vec<Value> = chosen
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|(version, resources)| {
                    let resources: Vec<Value> =
                        resources.iter().map(|resource| aggregated_resource(resource)).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if core { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();

    let mut reply = Reply::value(json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    }));
    reply.content_type = Some("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn the_storage_hash_equals_that_of_kubernetes() {
        let served = Registry::default().served();
        let hash = |group: &str, version: &str, plural: &str| {
            served.find(group, version, plural).map(|resource| storage_hash(resource)).unwrap_or_default()
        };
        assert_eq!(hash("", "v1", "secrets"), "S6u1pOWzb84=");
        assert_eq!(hash("", "v1", "events"), "r2yiGXH7wu8=");
        assert_eq!(hash("events.k8s.io", "v1", "events"), "r2yiGXH7wu8=");
        assert_eq!(hash("storage.k8s.io", "v1", "storageclasses"), "K+m6uJwbjGY=");
    }
}
