//! The patches that claim and release an object.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// Returns the patch that claims an object: the finalizer and annotations that it lacks. Returns `None` if it has all of
/// them, or if it is being deleted, because the API server then rejects new finalizers.
///
/// The patch contains uid and resourceVersion: if the object was changed or recreated in the meantime, it conflicts
/// instead of restoring a finalizer that was just removed.
#[must_use]
pub fn first_patch(
    metadata: &ObjectMeta,
    finalizer: &str,
    annotations: &BTreeMap<String, String>,
) -> Option<Value> {
    if metadata.deletion_timestamp.is_some() {
        return None;
    }
    let mut fields = json!({ "uid": metadata.uid, "resourceVersion": metadata.resource_version });
    let mut is_needed = false;

    if !has(metadata, finalizer) {
        let mut finalizers = metadata.finalizers.clone().unwrap_or_default();
        finalizers.push(finalizer.to_owned());
        insert(&mut fields, "finalizers", json!(finalizers));
        is_needed = true;
    }

    let present = metadata.annotations.as_ref();
    let missing: BTreeMap<_, _> = annotations
        .iter()
        .filter(|(key, value)| present.and_then(|present| present.get(*key)) != Some(value))
        .collect();
    if !missing.is_empty() {
        insert(&mut fields, "annotations", json!(missing));
        is_needed = true;
    }

    is_needed.then(|| json!({ "metadata": fields }))
}

/// Returns the patch that removes our finalizer, or `None` if the object does not have it.
#[must_use]
pub fn removal_patch(metadata: &ObjectMeta, finalizer: &str) -> Option<Value> {
    if !has(metadata, finalizer) {
        return None;
    }
    let rest: Vec<_> =
        metadata.finalizers.iter().flatten().filter(|each| each.as_str() != finalizer).collect();
    Some(json!({ "metadata": {
        "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
        "finalizers": rest,
    }}))
}

fn has(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|each| each == finalizer)
}

fn insert(fields: &mut Value, name: &str, value: Value) {
    if let Some(fields) = fields.as_object_mut() {
        fields.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

    use super::*;

    const OURS: &str = "example.io/cleanup";

    fn metadata(finalizers: &[&str]) -> ObjectMeta {
        ObjectMeta {
            uid: Some("u".into()),
            resource_version: Some("7".into()),
            finalizers: Some(finalizers.iter().map(ToString::to_string).collect()),
            ..ObjectMeta::default()
        }
    }

    fn identity() -> BTreeMap<String, String> {
        [("example.io/identity".to_owned(), "u".to_owned())].into()
    }

    #[test]
    fn the_first_patch_adds_finalizer_and_annotations_at_once() {
        assert_eq!(
            first_patch(&metadata(&["other"]), OURS, &identity()).unwrap(),
            json!({"metadata": {
                "uid": "u", "resourceVersion": "7", "finalizers": ["other", OURS],
                "annotations": {"example.io/identity": "u"},
            }})
        );
    }

    #[test]
    fn only_what_is_missing_is_patched() {
        let mut metadata = metadata(&[OURS]);
        let patch = first_patch(&metadata, OURS, &identity()).unwrap();
        assert_eq!(patch["metadata"].get("finalizers"), None);
        metadata.annotations = Some(identity());
        assert_eq!(first_patch(&metadata, OURS, &identity()), None);
        assert_eq!(first_patch(&metadata, OURS, &BTreeMap::new()), None);
    }

    #[test]
    fn an_object_that_is_being_deleted_is_not_claimed() {
        let deleted =
            ObjectMeta { deletion_timestamp: Some(Time(Timestamp::UNIX_EPOCH)), ..metadata(&["other"]) };
        assert_eq!(first_patch(&deleted, OURS, &identity()), None);
    }

    #[test]
    fn removal_takes_only_our_finalizer() {
        assert_eq!(
            removal_patch(&metadata(&["a", OURS, "b"]), OURS).unwrap(),
            json!({"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": ["a", "b"]}})
        );
        assert_eq!(removal_patch(&metadata(&["a"]), OURS), None);
    }
}
