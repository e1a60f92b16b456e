//! Pausing the reconciliation of an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use vitistack_types::labels;

/// Whether the reconciliation of an object is paused by its annotation.
#[must_use]
pub fn is_paused(metadata: &ObjectMeta) -> bool {
    let annotations = metadata.annotations.as_ref();
    annotations.and_then(|annotations| annotations.get(labels::PAUSED)).is_some_and(|value| value == "true")
}
