//! Objects that the garbage collector would delete with a Machine.

use std::fmt;

use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use vitistack_machine::{DependentKind, backend_types};
use vitistack_plan::machine::Identity;
use vitistack_types::labels;

use crate::{
    cluster::{Cluster, RequestError, change::FIELD_MANAGER},
    commands::Error,
};

/// An object with the identity of a Machine.
#[derive(Clone, Debug)]
pub struct Dependent {
    /// The kind.
    pub kind: DependentKind,
    /// The object.
    pub object: DynamicObject,
}

impl fmt::Display for Dependent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind.resource.kind, self.object.name_any())
    }
}

/// Returns the objects of a namespace with an identity. A list that fails is an error: objects that are not found would
/// be deleted.
pub async fn find(
    cluster: &Cluster,
    namespace: &str,
    identity: &Identity,
) -> Result<Vec<Dependent>, RequestError> {
    let mut found = Vec::new();
    for kind in backend_types().iter().flat_map(|backend| backend.dependent_kinds()) {
        let resource = &kind.resource;
        let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), namespace, resource);
        let ours = ListParams::default().labels(&format!("{}={identity}", labels::IDENTITY));
        match api.list(&ours).await {
            Ok(listed) => {
                let dependent = |object| Dependent { kind: kind.clone(), object };
                found.extend(listed.items.into_iter().map(dependent));
            }
            Err(error) => match cluster.failure(format!("list {}", permission(resource)), error) {
                // There are no objects of a kind that is not served.
                RequestError::Serve { .. } => {}
                failure => return Err(failure),
            },
        }
    }
    Ok(found)
}

/// Returns a resource as RBAC spells it.
fn permission(resource: &ApiResource) -> String {
    match resource.group.as_str() {
        "" => resource.plural.clone(),
        group => format!("{}.{group}", resource.plural),
    }
}

impl Dependent {
    /// Returns whether the owner with this UID owns the object.
    pub fn is_owned_by(&self, uid: &str) -> bool {
        self.owner_index(uid).is_some()
    }

    fn owner_index(&self, uid: &str) -> Option<usize> {
        self.object.owner_references().iter().position(|owner| owner.uid == uid)
    }

    /// Removes the owner with this UID. Concurrent changes of other fields are not a conflict.
    pub async fn remove_owner(&self, cluster: &Cluster, uid: &str, dry_run: bool) -> Result<(), Error> {
        let Some(index) = self.owner_index(uid) else { return Ok(()) };
        let patch: Value = json!([
            { "op": "test", "path": "/metadata/uid", "value": self.object.uid() },
            { "op": "test", "path": format!("/metadata/ownerReferences/{index}/uid"), "value": uid },
            { "op": "remove", "path": format!("/metadata/ownerReferences/{index}") },
        ]);

        let failure = |error| Error::from(cluster.failure(format!("change {self}"), error));
        let patch = serde_json::from_value(patch).map_err(|error| failure(kube::Error::SerdeError(error)))?;
        let parameters =
            PatchParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let namespace = self.object.namespace().unwrap_or_default();
        let api: Api<DynamicObject> =
            Api::namespaced_with(cluster.client.clone(), &namespace, &self.kind.resource);
        api.patch(&self.object.name_any(), &parameters, &Patch::<()>::Json(patch)).await.map_err(failure)?;
        Ok(())
    }
}
