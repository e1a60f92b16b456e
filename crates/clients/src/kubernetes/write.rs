//! Writes that return the object as the server stored it, so that a cache can show it before the watch does.

use kube::{
    Client, Error, Resource,
    api::{Patch, PatchParams},
    core::{ObjectMeta, Request},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::is_conflict;

/// Merges `patch` into an object unless it changed since it was read: the patch carries its uid and resourceVersion.
/// Returns the object as written, or nothing if it changed or is gone.
pub async fn patch_unchanged<K>(
    client: &Client,
    manager: &str,
    object: &K,
    patch: Value,
) -> Result<Option<K>, Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let metadata = object.meta();
    let patch = guarded(patch, metadata);
    let parameters = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    let name = metadata.name.as_deref().unwrap_or_default();
    let request =
        request(object).patch(name, &parameters, &Patch::Merge(&patch)).map_err(Error::BuildRequest)?;
    unless_overtaken(client.request(request).await)
}

/// Applies the status of an object as `manager`. Its resourceVersion goes along, so that the status never lands on a
/// version that it was not derived from, nor on a successor of the same name: kube-apiserver ignores a uid in a status.
/// Returns the object as written, or nothing if it changed or is gone.
pub async fn apply_status<K, S>(
    client: &Client,
    manager: &str,
    object: &K,
    status: &S,
) -> Result<Option<K>, Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
    S: Serialize,
{
    let patch = status_patch(object, status);
    let parameters = PatchParams::apply(manager).force();
    let name = object.meta().name.as_deref().unwrap_or_default();
    let request = request(object)
        .patch_subresource("status", name, &parameters, &Patch::Apply(&patch))
        .map_err(Error::BuildRequest)?;
    unless_overtaken(client.request(request).await)
}

/// Adds uid and resourceVersion to the metadata of a patch: the server accepts it only for exactly this version.
fn guarded(mut patch: Value, metadata: &ObjectMeta) -> Value {
    if let Some(fields) = patch.as_object_mut() {
        let guarded = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Some(guarded) = guarded.as_object_mut() {
            guarded.insert("uid".to_owned(), json!(metadata.uid));
            guarded.insert("resourceVersion".to_owned(), json!(metadata.resource_version));
        }
    }
    patch
}

fn request<K: Resource<DynamicType = ()>>(object: &K) -> Request {
    Request::new(K::url_path(&(), object.meta().namespace.as_deref()))
}

/// An object that changed or is gone is reconciled again by its own event, which is not an error.
fn unless_overtaken<K>(result: Result<K, Error>) -> Result<Option<K>, Error> {
    match result {
        Ok(object) => Ok(Some(object)),
        Err(error) if is_conflict(&error) => Ok(None),
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

fn status_patch<K: Resource<DynamicType = ()>>(object: &K, status: &impl Serialize) -> Value {
    let patch = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": { "name": object.meta().name },
        "status": status,
    });
    guarded(patch, object.meta())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;

    use super::*;

    #[test]
    fn a_status_patch_names_one_version_and_has_only_its_status() {
        let node = Node {
            metadata: ObjectMeta {
                name: Some("a".into()),
                uid: Some("u".into()),
                resource_version: Some("7".into()),
                ..ObjectMeta::default()
            },
            ..Node::default()
        };
        assert_eq!(
            status_patch(&node, &json!({"phase": "Ready"})),
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": "a", "uid": "u", "resourceVersion": "7"},
                "status": {"phase": "Ready"},
            })
        );
    }
}
