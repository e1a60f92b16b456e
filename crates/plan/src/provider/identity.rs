//! The name by which the resources of a provider know it.

use vitistack_types::{labels, v1alpha1::MachineProvider};

/// Returns the identity of a provider: the one it carries, as after a restore, otherwise its UID.
#[must_use]
pub fn identity(provider: &MachineProvider) -> &str {
    let annotations = provider.metadata.annotations.as_ref();
    let carried = annotations.and_then(|annotations| annotations.get(labels::IDENTITY));
    carried.or(provider.metadata.uid.as_ref()).map(String::as_str).unwrap_or_default()
}
