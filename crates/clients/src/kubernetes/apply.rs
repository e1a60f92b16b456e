//! Server-side apply of one desired child, skipped when nothing would change.

use kube::{
    Client, ResourceExt,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use snafu::{ResultExt, Snafu, ensure};

use super::{Child, Ownership, contains, explain, is_conflict};

/// Annotation that keeps the fingerprint of what was last applied.
///
/// Without it a field that is no longer desired would stay forever: the observed object still contains everything.
pub const APPLIED_ANNOTATION: &str = "vitistack.io/applied";

/// Why a child was not applied.
#[derive(Debug, Snafu)]
pub enum ApplyError {
    /// Somebody else's object has the name.
    #[snafu(display(
        "failed to apply {child}: an object of that name exists without the label {owner:?}; delete it or choose another name"
    ))]
    TakeOverObject {
        /// Kind and name of the object.
        child: String,
        /// The label that it would have to carry.
        owner: String,
    },

    /// The object could not be read.
    #[snafu(display("failed to read {child}: {}", explain(source)))]
    ReadObject {
        /// Kind and name of the object.
        child: String,
        /// What the client said.
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },

    /// The server refused the object, or could not be reached.
    #[snafu(display("failed to apply {child}: {}", explain(source)))]
    ApplyObject {
        /// Kind and name of the object.
        child: String,
        /// What the client said.
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },

    /// The object does not serialise.
    #[snafu(display("failed to write {child} as JSON: {source}"))]
    WriteObject {
        /// Kind and name of the object.
        child: String,
        /// What the serialiser said.
        source: serde_json::Error,
    },
}

/// What an apply did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Everything desired stands already; nothing was sent.
    Unchanged,
    /// The object was written.
    Written,
}

/// A version that no object ever has. An apply that carries it makes what is missing, and is refused for what is there.
const NEVER: &str = "1";

/// Makes `desired` stand, as `manager`, owned by `owner`.
///
/// `observed` comes from a cache. `None` is not believed: a cache that lags, or that selects by label, does not see
/// somebody else's object of the same name, so the server makes the object only if there is none. An existing object is
/// written with its uid, so that neither a successor nor a deleted object is touched by mistake.
///
/// A `Secret` is to be desired with `data`: `stringData` is never kept by a server and would be written every time.
pub async fn apply(
    client: &Client,
    manager: &str,
    owner: &Ownership,
    desired: &Child,
    observed: Option<&DynamicObject>,
) -> Result<Applied, ApplyError> {
    Ok(apply_heard(client, manager, owner, desired, observed).await?.0)
}

/// Does what [`apply`] does and returns the object too, as the server told it; none if the server was not asked.
pub async fn apply_heard(
    client: &Client,
    manager: &str,
    owner: &Ownership,
    desired: &Child,
    observed: Option<&DynamicObject>,
) -> Result<(Applied, Option<DynamicObject>), ApplyError> {
    let mut desired = desired.clone();
    let child = desired.to_string();
    stamp(&mut desired, owner).context(WriteObjectSnafu { child: &child })?;
    let name = desired.object.name_any();
    let api = desired.api(client);
    let mut parameters = PatchParams::apply(manager);
    let mut read = None;
    if observed.is_none() {
        desired.object.metadata.resource_version = Some(NEVER.to_owned());
        match api.patch(&name, &parameters, &Patch::Apply(&desired.object)).await {
            Ok(made) => return Ok((Applied::Written, Some(made))),
            Err(error) if is_conflict(&error) => {}
            Err(error) => return Err(error).context(ApplyObjectSnafu { child }),
        }
        read = api.get_opt(&name).await.with_context(|_| ReadObjectSnafu { child: &child })?;
    }
    if let Some(observed) = observed.or(read.as_ref()) {
        ensure!(owner.holds(observed), TakeOverObjectSnafu { child, owner: owner.to_string() });
        desired.object.metadata.resource_version = None;
        if stands(&desired.object, observed).context(WriteObjectSnafu { child: &child })? {
            return Ok((Applied::Unchanged, read));
        }
        desired.object.metadata.uid.clone_from(&observed.metadata.uid);
        parameters = parameters.force();
    }
    let written = api
        .patch(&name, &parameters, &Patch::Apply(&desired.object))
        .await
        .context(ApplyObjectSnafu { child })?;
    Ok((Applied::Written, Some(written)))
}

/// Whether `desired` was applied for `owner` before and still stands: an apply would send nothing.
pub fn is_applied(owner: &Ownership, desired: &Child, observed: &DynamicObject) -> Result<bool, ApplyError> {
    let mut desired = desired.clone();
    let child = desired.to_string();
    stamp(&mut desired, owner).context(WriteObjectSnafu { child: &child })?;
    Ok(owner.holds(observed) && stands(&desired.object, observed).context(WriteObjectSnafu { child })?)
}

/// Adds the ownership label and the fingerprint.
fn stamp(desired: &mut Child, owner: &Ownership) -> serde_json::Result<()> {
    desired.object.labels_mut().insert(owner.key.clone(), owner.value.clone());
    desired.object.annotations_mut().remove(APPLIED_ANNOTATION);
    let print = fingerprint(&serde_json::to_value(&desired.object)?);
    desired.object.annotations_mut().insert(APPLIED_ANNOTATION.to_owned(), print);
    Ok(())
}

/// Whether the stamped desired object was applied before and still stands.
fn stands(desired: &DynamicObject, observed: &DynamicObject) -> serde_json::Result<bool> {
    if desired.annotations().get(APPLIED_ANNOTATION) != observed.annotations().get(APPLIED_ANNOTATION) {
        return Ok(false);
    }
    let mut wanted = serde_json::to_value(desired)?;
    // A typed cache may not repeat apiVersion and kind in every object; they cannot differ.
    if let Some(fields) = wanted.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    Ok(contains(&wanted, &serde_json::to_value(observed)?))
}

/// A short hash of a JSON value that does not depend on the order of its fields.
#[must_use]
pub fn fingerprint(value: &Value) -> String {
    let mut canonical = String::new();
    write_canonical(value, &mut canonical);
    let digest: [u8; 32] = Sha256::digest(canonical).into();
    let beginning = digest.first_chunk().copied().unwrap_or_default();
    format!("{:016x}", u64::from_be_bytes(beginning))
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by_key(|(field, _)| field.as_str());
            text.push('{');
            for (field, value) in sorted {
                text.push_str(&Value::from(field.as_str()).to_string());
                text.push(':');
                write_canonical(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(elements) => {
            text.push('[');
            for element in elements {
                write_canonical(element, text);
                text.push(',');
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;
    use serde_json::json;

    use super::*;

    fn owner() -> Ownership {
        Ownership::new("example.io/owner", "one")
    }

    fn desired(data: &[(&str, &str)]) -> Child {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some("settings".into()),
                namespace: Some("default".into()),
                ..ObjectMeta::default()
            },
            data: Some(data.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()),
            ..ConfigMap::default()
        };
        let mut child = Child::from_typed(&map).unwrap();
        stamp(&mut child, &owner()).unwrap();
        child
    }

    #[test]
    fn the_fingerprint_ignores_the_order_of_fields_only() {
        assert_eq!(fingerprint(&json!({"a": 1, "b": [1, 2]})), fingerprint(&json!({"b": [1, 2], "a": 1})));
        assert_ne!(fingerprint(&json!({"b": [1, 2]})), fingerprint(&json!({"b": [2, 1]})));
        assert_ne!(fingerprint(&json!({"a": "1"})), fingerprint(&json!({"a": 1})));
        assert_eq!(fingerprint(&json!({})).len(), 16);
    }

    #[test]
    fn stamping_twice_gives_the_same_object() {
        let once = desired(&[("a", "1")]);
        let mut twice = once.clone();
        stamp(&mut twice, &owner()).unwrap();
        assert_eq!(once.object, twice.object);
        assert!(owner().holds(&once.object));
    }

    #[test]
    fn an_object_that_was_applied_and_not_touched_stands() {
        let desired = desired(&[("a", "1")]);
        let mut observed = desired.object.clone();
        observed.metadata.resource_version = Some("7".into());
        observed.types = None;
        observed.labels_mut().insert("somebody".into(), "else".into());
        assert!(stands(&desired.object, &observed).unwrap());
    }

    #[test]
    fn an_object_changed_by_hand_does_not_stand() {
        let desired = desired(&[("a", "1")]);
        let mut observed = desired.object.clone();
        observed.data["data"]["a"] = json!("2");
        assert!(!stands(&desired.object, &observed).unwrap());
    }

    #[test]
    fn a_field_that_is_no_longer_desired_is_noticed() {
        let before = desired(&[("a", "1"), ("b", "2")]);
        let after = desired(&[("a", "1")]);
        assert!(contains(&after.object.data, &before.object.data));
        assert!(!stands(&after.object, &before.object).unwrap());
    }

    #[test]
    fn ownership_is_key_and_value() {
        let mut object = desired(&[]).object;
        object.metadata.labels = Some(BTreeMap::from([("example.io/owner".into(), "two".into())]));
        assert!(!owner().holds(&object));
        object.metadata.labels = None;
        assert!(!owner().holds(&object));
    }
}
