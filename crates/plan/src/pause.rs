//! Stopping all action on an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use vitistack_types::labels;

/// Whether all action on an object is stopped by its annotation.
#[must_use]
pub fn is_paused(metadata: &ObjectMeta) -> bool {
    let annotations = metadata.annotations.as_ref();
    annotations.and_then(|annotations| annotations.get(labels::PAUSED)).is_some_and(|value| value == "true")
}
