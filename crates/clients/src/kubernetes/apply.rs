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

/// The annotation with the fingerprint of what was last applied.
///
/// Without it a field that is no longer desired would never be removed, because the observed object still contains
/// everything that is desired.
pub const APPLIED_ANNOTATION: &str = "vitistack.io/applied";

/// Why a child was not applied.
#[derive(Debug, Snafu)]
pub enum ApplyError {
    /// The name belongs to an object of another owner.
    #[snafu(display(
        "failed to apply {child}: an object of that name exists without the label {owner:?}: delete it or choose another name"
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
        /// The error of the client.
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },

    /// The server refused the object, or could not be reached.
    #[snafu(display("failed to apply {child}: {}", explain(source)))]
    ApplyObject {
        /// Kind and name of the object.
        child: String,
        /// The error of the client.
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },

    /// The object cannot be serialized.
    #[snafu(display("failed to write {child} as JSON: {source}"))]
    WriteObject {
        /// Kind and name of the object.
        child: String,
        /// The error of the serializer.
        source: serde_json::Error,
    },
}

/// What an apply did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The object is already as desired; nothing was sent.
    Unchanged,
    /// The object was written.
    Written,
}

/// A version that no object ever has. An apply with it creates a missing object and conflicts with an existing one.
const NEVER: &str = "1";

/// Applies `desired` as `manager`, with the label of `owner`, unless the object is already as desired.
///
/// `observed` comes from a cache. `None` is verified: a cache that is stale or that selects by label does not show a
/// foreign object of the same name, so the server creates the object only if it does not exist. An existing object is
/// written with its UID as a precondition, so that neither a successor nor a deleted object is changed by mistake.
///
/// A desired `Secret` must use `data`: a server never stores `stringData`, so it would be written every time.
pub async fn apply(
    client: &Client,
    manager: &str,
    owner: &Ownership,
    desired: &Child,
    observed: Option<&DynamicObject>,
) -> Result<Applied, ApplyError> {
    Ok(apply_and_return(client, manager, owner, desired, observed).await?.0)
}

/// Does the same as [`apply`], and also returns the object from the response; none if nothing was sent.
pub async fn apply_and_return(
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
            Ok(created) => return Ok((Applied::Written, Some(created))),
            Err(error) if is_conflict(&error) => {}
            Err(error) => return Err(error).context(ApplyObjectSnafu { child }),
        }
        read = api.get_opt(&name).await.with_context(|_| ReadObjectSnafu { child: &child })?;
    }

    if let Some(observed) = observed.or(read.as_ref()) {
        ensure!(owner.holds(observed), TakeOverObjectSnafu { child, owner: owner.to_string() });
        desired.object.metadata.resource_version = None;
        if is_unchanged(&desired.object, observed).context(WriteObjectSnafu { child: &child })? {
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

/// Whether `desired` was applied for `owner` before and is unchanged, so that an apply would send nothing.
pub fn is_applied(owner: &Ownership, desired: &Child, observed: &DynamicObject) -> Result<bool, ApplyError> {
    let mut desired = desired.clone();
    let child = desired.to_string();
    stamp(&mut desired, owner).context(WriteObjectSnafu { child: &child })?;
    Ok(owner.holds(observed)
        && is_unchanged(&desired.object, observed).context(WriteObjectSnafu { child })?)
}

/// Adds the ownership label and the fingerprint.
fn stamp(desired: &mut Child, owner: &Ownership) -> serde_json::Result<()> {
    desired.object.labels_mut().insert(owner.key.clone(), owner.value.clone());
    desired.object.annotations_mut().remove(APPLIED_ANNOTATION);
    let print = fingerprint(&serde_json::to_value(&desired.object)?);
    desired.object.annotations_mut().insert(APPLIED_ANNOTATION.to_owned(), print);
    Ok(())
}

/// Whether the stamped desired object was applied before and is unchanged.
fn is_unchanged(desired: &DynamicObject, observed: &DynamicObject) -> serde_json::Result<bool> {
    if desired.annotations().get(APPLIED_ANNOTATION) != observed.annotations().get(APPLIED_ANNOTATION) {
        return Ok(false);
    }
    let mut wanted = serde_json::to_value(desired)?;
    // Objects from a typed cache may lack apiVersion and kind, which cannot differ.
    if let Some(fields) = wanted.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    Ok(contains(&wanted, &serde_json::to_value(observed)?))
}

/// Returns a short hash of a JSON value that does not depend on the order of its fields.
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
    fn an_applied_and_untouched_object_is_unchanged() {
        let desired = desired(&[("a", "1")]);
        let mut observed = desired.object.clone();
        observed.metadata.resource_version = Some("7".into());
        observed.types = None;
        observed.labels_mut().insert("example.io/other".into(), "label".into());
        assert!(is_unchanged(&desired.object, &observed).unwrap());
    }

    #[test]
    fn an_object_changed_by_hand_is_changed() {
        let desired = desired(&[("a", "1")]);
        let mut observed = desired.object.clone();
        observed.data["data"]["a"] = json!("2");
        assert!(!is_unchanged(&desired.object, &observed).unwrap());
    }

    #[test]
    fn a_field_that_is_no_longer_desired_is_noticed() {
        let before = desired(&[("a", "1"), ("b", "2")]);
        let after = desired(&[("a", "1")]);
        assert!(contains(&after.object.data, &before.object.data));
        assert!(!is_unchanged(&after.object, &before.object).unwrap());
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
