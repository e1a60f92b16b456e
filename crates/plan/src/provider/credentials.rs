//! The credentials of a provider.

use vitistack_types::{ObjectName, SecretKeyReference, v1alpha1::MachineProvider};

use crate::{Refusal, refusals};

/// Returns the value that a provider's credentials refer to, or what has to change first; nothing if it has no credentials.
/// `secret` looks a key up in the Secret, if the Secret exists.
pub fn credentials<T>(
    provider: &MachineProvider,
    secret: Option<impl Fn(&str) -> Option<T>>,
) -> Option<Result<T, Refusal>> {
    const FIELD: &str = "spec.credentials.secretRef";
    let SecretKeyReference { name, key } = &provider.spec.credentials.as_ref()?.secret_ref;
    let namespace = provider.metadata.namespace.as_deref().unwrap_or_default();
    let object = ObjectName::new(namespace, name);

    let Some(look_up) = secret else { return Some(Err(refusals::secret_not_found(FIELD, object))) };
    Some(look_up(key).ok_or_else(|| refusals::secret_key_not_found(FIELD, object, key)))
}
