//! Kinds of the core group.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Namespace, Node, Secret, ServiceAccount},
};
use serde_json::{Value, json};
use vitistack_schema::{Cause, CauseReason};

use super::{
    BuiltIn,
    cells::{self, AGE, NAME, column},
    default_member, member, schema_of,
};
use crate::{
    metadata,
    names::{self, NameStyle},
};

/// The label every namespace has, with its name.
pub const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";
/// The maximum size of the data of a ConfigMap or Secret.
const DATA_LIMIT: usize = 1024 * 1024;

/// The built-in kinds of this group.
pub const KINDS: &[BuiltIn] = &[
    BuiltIn {
        plural: "namespaces",
        kind: "Namespace",
        namespaced: false,
        short_names: &["ns"],
        name_style: NameStyle::Label,
        status: true,
        returns_deleted: true,
        stored_in: "/namespaces",
        schema: schema_of::<Namespace>,
        default: default_namespace,
        prepare: prepare_namespace,
        validate: validate_namespace,
        fields: &["status.phase"],
        shown: &["spec", "status"],
        columns: &[NAME, column("Status", "The status of the namespace"), AGE],
        cells: |object, now| {
            vec![cells::name(object), cells::text(object, "/status/phase"), cells::age(object, now)]
        },
        ..BuiltIn::PLAIN
    },
    BuiltIn {
        plural: "configmaps",
        kind: "ConfigMap",
        short_names: &["cm"],
        stored_in: "/configmaps",
        schema: schema_of::<ConfigMap>,
        validate: validate_config_map,
        columns: &[NAME, column("Data", CONFIG_MAP_DATA), AGE],
        cells: |object, now| {
            vec![cells::name(object), count(object, &["data", "binaryData"]), cells::age(object, now)]
        },
        ..BuiltIn::PLAIN
    },
    BuiltIn {
        plural: "secrets",
        kind: "Secret",
        stored_in: "/secrets",
        schema: schema_of::<Secret>,
        default: default_secret,
        validate: validate_secret,
        fields: &["type"],
        columns: &[NAME, column("Type", SECRET_TYPE), column("Data", SECRET_DATA), AGE],
        cells: |object, now| {
            let data = count(object, &["data"]);
            vec![cells::name(object), cells::text(object, "/type"), data, cells::age(object, now)]
        },
        ..BuiltIn::PLAIN
    },
    BuiltIn {
        plural: "serviceaccounts",
        kind: "ServiceAccount",
        short_names: &["sa"],
        returns_deleted: true,
        stored_in: "/serviceaccounts",
        schema: schema_of::<ServiceAccount>,
        ..BuiltIn::PLAIN
    },
    BuiltIn {
        plural: "nodes",
        kind: "Node",
        namespaced: false,
        short_names: &["no"],
        status: true,
        stored_in: "/nodes",
        schema: schema_of::<Node>,
        fields: &["spec.unschedulable"],
        columns: &[NAME, column("Status", "The status of the node"), AGE],
        cells: node_cells,
        ..BuiltIn::PLAIN
    },
    BuiltIn {
        group: "coordination.k8s.io",
        plural: "leases",
        kind: "Lease",
        create_on_update: true,
        unconditional_update: false,
        stored_in: "coordination.k8s.io/leases",
        stored_as: "coordination.k8s.io/v1",
        schema: schema_of::<Lease>,
        prepare: prepare_lease,
        validate: validate_lease,
        shown: &["spec"],
        columns: &[NAME, column("Holder", LEASE_HOLDER), AGE],
        cells: |object, now| {
            vec![cells::name(object), cells::text(object, "/spec/holderIdentity"), cells::age(object, now)]
        },
        ..BuiltIn::PLAIN
    },
];

const CONFIG_MAP_DATA: &str = "Data contains the configuration data. Each key must consist of alphanumeric characters, '-', '_' or '.'. Values with non-UTF-8 byte sequences must use the BinaryData field. The keys stored in Data must not overlap with the keys in the BinaryData field, this is enforced during validation process.";
const SECRET_TYPE: &str = "Used to facilitate programmatic handling of secret data. More info: https://kubernetes.io/docs/concepts/configuration/secret/#secret-types";
const SECRET_DATA: &str = "Data contains the secret data. Each key must consist of alphanumeric characters, '-', '_' or '.'. The serialized form of the secret data is a base64 encoded string, representing the arbitrary (possibly non-string) data value here. Described in https://tools.ietf.org/html/rfc4648#section-4";
const LEASE_HOLDER: &str = "holderIdentity contains the identity of the holder of a current lease. If Coordinated Leader Election is used, the holder identity must be equal to the elected LeaseCandidate.metadata.name field.";

fn count(object: &Value, members: &[&str]) -> Value {
    let sizes = members
        .iter()
        .filter_map(|name| object.get(*name))
        .filter_map(Value::as_object)
        .map(serde_json::Map::len);
    json!(sizes.sum::<usize>())
}

fn node_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let ready =
        conditions.into_iter().flatten().find(|condition| condition.get("type") == Some(&json!("Ready")));
    let status = match ready.and_then(|condition| condition.get("status")).and_then(Value::as_str) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    vec![cells::name(object), status.into(), cells::age(object, now)]
}

fn label_namespace(object: &mut Value) {
    let name = metadata::text(object, "name").to_owned();
    if !name.is_empty() {
        let labels = metadata::fields(object).entry("labels").or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert(NAMESPACE_LABEL.to_owned(), name.into());
        }
    }
}

/// Removes an empty list of finalizers, so that it has no owner.
fn default_namespace(object: &mut Value) {
    label_namespace(object);
    if object.pointer("/spec/finalizers") == Some(&json!([]))
        && let Some(spec) = member(object, "spec").as_object_mut()
    {
        spec.remove("finalizers");
    }
}

fn prepare_namespace(object: &mut Value, old: Option<&Value>) {
    // Finalizers of the spec change only through the finalize subresource.
    if let Some(old) = old {
        let finalizers = old.pointer("/spec/finalizers").cloned();
        if let (Some(finalizers), Some(spec)) = (finalizers, member(object, "spec").as_object_mut()) {
            spec.insert("finalizers".to_owned(), finalizers);
        }
        return;
    }

    let finalizers = member(member(object, "spec"), "finalizers");
    let listed = finalizers.as_array().is_some_and(|list| list.contains(&json!("kubernetes")));
    match finalizers.as_array_mut() {
        Some(list) if !listed => list.push(json!("kubernetes")),
        Some(_) => {}
        None => *finalizers = json!(["kubernetes"]),
    }

    if let Some(members) = object.as_object_mut() {
        members.insert("status".to_owned(), json!({"phase": "Active"}));
    }
}

fn validate_namespace(object: &Value, _: Option<&Value>) -> Vec<Cause> {
    let listed = object.pointer("/spec/finalizers").and_then(Value::as_array);
    let finalizers: Vec<&str> = listed.into_iter().flatten().filter_map(Value::as_str).collect();
    let mut causes = metadata::unqualified_finalizers("spec.finalizers", &finalizers);
    let phase = object.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    let (wanted, when) =
        if metadata::deleting(object) { ("Terminating", "not empty") } else { ("Active", "empty") };
    if phase != wanted {
        let problem = format!("may only be '{wanted}' if `deletionTimestamp` is {when}");
        causes.push(Cause::invalid("status.Phase", &json!(phase), &problem));
    }
    causes
}

fn default_secret(object: &mut Value) {
    default_member(object, "type", "Opaque");
    let Some(members) = object.as_object_mut() else { return };
    let Some(Value::Object(plain)) = members.remove("stringData") else { return };
    let data = members.entry("data").or_insert_with(|| json!({}));
    if data.is_null() {
        *data = json!({});
    }
    if let Some(data) = data.as_object_mut() {
        for (key, value) in plain {
            data.insert(key, STANDARD.encode(value.as_str().unwrap_or_default()).into());
        }
    }
}

fn invalid(field: String, reason: CauseReason, message: impl Into<String>) -> Cause {
    Cause { field, reason, message: message.into() }
}

fn entries<'a>(object: &'a Value, member: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.get(member).and_then(Value::as_object).into_iter().flatten()
}

fn key_problems(object: &Value, member: &str, causes: &mut Vec<Cause>) {
    for (key, _) in entries(object, member) {
        let problems = names::config_key(key).into_iter();
        causes.extend(problems.map(|problem| {
            let message = format!("Invalid value: \"{key}\": {problem}");
            invalid(format!("{member}[{key}]"), CauseReason::FieldValueInvalid, message)
        }));
    }
}

fn immutable_problems(object: &Value, old: Option<&Value>, members: &[&str], causes: &mut Vec<Cause>) {
    let Some(old) = old.filter(|old| old.get("immutable") == Some(&json!(true))) else { return };
    let forbidden = "Forbidden: field is immutable when `immutable` is set";
    if object.get("immutable") != Some(&json!(true)) {
        causes.push(invalid("immutable".to_owned(), CauseReason::FieldValueForbidden, forbidden));
    }
    for name in members {
        if object.get(*name) != old.get(*name) {
            causes.push(invalid((*name).to_owned(), CauseReason::FieldValueForbidden, forbidden));
        }
    }
}

fn size_problem(field: &str, size: usize, causes: &mut Vec<Cause>) {
    if size > DATA_LIMIT {
        let message = format!("Too long: may not be more than {DATA_LIMIT} bytes");
        causes.push(invalid(field.to_owned(), CauseReason::FieldValueTooLong, message));
    }
}

fn validate_config_map(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    key_problems(object, "data", &mut causes);
    key_problems(object, "binaryData", &mut causes);
    for (key, _) in entries(object, "data") {
        if object.get("binaryData").is_some_and(|binary| binary.get(key).is_some()) {
            let message = format!("Invalid value: \"{key}\": duplicate of key present in binaryData");
            causes.push(invalid(format!("data[{key}]"), CauseReason::FieldValueInvalid, message));
        }
    }

    let size = |member: &str| {
        entries(object, member).filter_map(|(_, value)| value.as_str()).map(str::len).sum::<usize>()
    };
    size_problem("[]", size("data") + size("binaryData") / 4 * 3, &mut causes);
    immutable_problems(object, old, &["data", "binaryData"], &mut causes);
    causes
}

fn validate_secret(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    key_problems(object, "data", &mut causes);
    let size: usize =
        entries(object, "data").filter_map(|(_, value)| value.as_str()).map(|text| text.len() / 4 * 3).sum();
    size_problem("data", size, &mut causes);
    type_problems(object, &mut causes);

    if let Some(old) = old
        && object.get("type") != old.get("type")
    {
        let kind = object.get("type").and_then(Value::as_str).unwrap_or_default();
        let message = format!("Invalid value: \"{kind}\": field is immutable");
        causes.push(invalid("type".to_owned(), CauseReason::FieldValueInvalid, message));
    }

    immutable_problems(object, old, &["data"], &mut causes);
    causes
}

/// Returns the keys that a Secret of a type requires.
const REQUIRED_KEYS: &[(&str, &[&str])] = &[
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
];

/// Validates the data and annotations that the type of a Secret requires.
fn type_problems(object: &Value, causes: &mut Vec<Cause>) {
    let kind = object.get("type").and_then(Value::as_str).unwrap_or_default();
    let value = |key: &str| object.get("data").and_then(|data| data.get(key));
    let required = REQUIRED_KEYS.iter().filter(|(known, _)| *known == kind).flat_map(|(_, keys)| *keys);
    for key in required {
        let field = format!("data[{key}]");
        let Some(text) = value(key) else {
            causes.push(Cause::required(field, ""));
            continue;
        };
        let bytes = text.as_str().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
        if key.starts_with(".docker")
            && let Err(error) = serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes)
        {
            let why = crate::body::syntax_error(&bytes, &error);
            causes.push(Cause::invalid(field, &json!("<secret contents redacted>"), &why));
        }
    }

    if kind == "kubernetes.io/basic-auth" && value("username").is_none() && value("password").is_none() {
        causes.push(Cause::required("data[username]", ""));
        causes.push(Cause::required("data[password]", ""));
    }

    let account = "kubernetes.io/service-account.name";
    if kind == "kubernetes.io/service-account-token"
        && object
            .pointer("/metadata/annotations")
            .and_then(|all| all.get(account))
            .and_then(Value::as_str)
            .is_none_or(str::is_empty)
    {
        causes.push(Cause::required(format!("metadata.annotations[{account}]"), ""));
    }
}

/// Removes the fields of coordinated leader election, which is not supported, unless they were stored before.
fn prepare_lease(object: &mut Value, old: Option<&Value>) {
    let spec = member(object, "spec");
    for name in ["strategy", "preferredHolder"] {
        if old.is_none_or(|old| old.pointer(&format!("/spec/{name}")).is_none())
            && let Some(members) = spec.as_object_mut()
        {
            members.remove(name);
        }
    }
}

fn validate_lease(object: &Value, _: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (name, least, detail) in [
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ] {
        let value = object.get("spec").and_then(|spec| spec.get(name)).and_then(Value::as_i64);
        if let Some(value) = value.filter(|value| *value < least) {
            let message = format!("Invalid value: {value}: {detail}");
            causes.push(invalid(format!("spec.{name}"), CauseReason::FieldValueInvalid, message));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_accepts_string_data_and_gets_a_type() {
        let mut secret = json!({"stringData": {"a": "b"}});
        default_secret(&mut secret);
        assert_eq!(secret, json!({"data": {"a": "Yg=="}, "type": "Opaque"}));
    }

    #[test]
    fn a_new_namespace_is_active_and_finalized_by_kubernetes() {
        let mut namespace = json!({"metadata": {"name": "a"}});
        label_namespace(&mut namespace);
        prepare_namespace(&mut namespace, None);
        assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
        assert_eq!(namespace["status"]["phase"], "Active");
        assert_eq!(namespace["metadata"]["labels"][NAMESPACE_LABEL], "a");
    }

    #[test]
    fn immutable_data_cannot_change() {
        let old = json!({"immutable": true, "data": {"a": "b"}});
        assert!(validate_config_map(&old, Some(&old)).is_empty());
        let changed = json!({"immutable": true, "data": {"a": "c"}});
        assert_eq!(validate_config_map(&changed, Some(&old)).len(), 1);
        assert_eq!(validate_config_map(&json!({"data": {"a b": ""}}), None)[0].field, "data[a b]");
    }
}
