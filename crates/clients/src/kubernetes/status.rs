//! Status, written once per change.

use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
    core::{ApiResource, DynamicObject},
};
use serde::Serialize;
use serde_json::{Value, json};
use snafu::{ResultExt, Snafu};

use super::{Applied, explain};

/// Why a status was not written.
#[derive(Debug, Snafu)]
pub enum StatusError {
    /// The status does not serialise.
    #[snafu(display("failed to write the status of {name:?} as JSON: {source}"))]
    WriteStatus {
        /// Name of the object.
        name: String,
        /// What the serialiser said.
        source: serde_json::Error,
    },

    /// The server refused, or could not be reached.
    #[snafu(display("failed to apply the status of {name:?}: {}", explain(source)))]
    ApplyStatus {
        /// Name of the object.
        name: String,
        /// What the client said.
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
}

/// Applies `desired` as the status of `object`, as `manager`, unless it is equal to the status that was observed.
///
/// The object's uid goes along, so that the status never lands on a successor of the same name.
pub async fn apply_status<K, S>(
    client: &Client,
    manager: &str,
    object: &K,
    observed: Option<&S>,
    desired: &S,
) -> Result<Applied, StatusError>
where
    K: Resource<DynamicType = ()>,
    S: Serialize,
{
    let name = object.meta().name.clone().unwrap_or_default();
    let status = serde_json::to_value(desired).with_context(|_| WriteStatusSnafu { name: &name })?;
    let before = serde_json::to_value(observed).with_context(|_| WriteStatusSnafu { name: &name })?;
    if status == before {
        return Ok(Applied::Unchanged);
    }
    let resource = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = match &object.meta().namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let patch = status_patch(object, &status);
    api.patch_status(&name, &PatchParams::apply(manager).force(), &Patch::Apply(patch))
        .await
        .with_context(|_| ApplyStatusSnafu { name: &name })?;
    Ok(Applied::Written)
}

fn status_patch<K: Resource<DynamicType = ()>>(object: &K, status: &Value) -> Value {
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": { "name": object.meta().name, "uid": object.meta().uid },
        "status": status,
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::core::ObjectMeta;

    use super::*;

    #[test]
    fn the_patch_names_one_object_by_uid_and_carries_only_its_status() {
        let node = Node {
            metadata: ObjectMeta { name: Some("a".into()), uid: Some("u".into()), ..ObjectMeta::default() },
            ..Node::default()
        };
        assert_eq!(
            status_patch(&node, &json!({"phase": "Ready"})),
            json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "uid": "u"},
                "status": {"phase": "Ready"},
            })
        );
    }
}
