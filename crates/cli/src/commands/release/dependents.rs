//! What the cluster would delete with a Machine, and how it is freed.

use std::fmt;

use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use vitistack_machine::kubevirt::Kind;
use vitistack_plan::machine::Identity;
use vitistack_types::labels;

use crate::{
    change::FIELD_MANAGER,
    cluster::{Cluster, RequestError},
    commands::Error,
};

/// The kinds that are made for a machine beside it.
const KINDS: [Kind; 4] = [Kind::VirtualMachine, Kind::PersistentVolumeClaim, Kind::DataVolume, Kind::Secret];

/// Something that carries the identity of a Machine.
#[derive(Clone, Debug)]
pub struct Dependent {
    /// Its kind.
    pub kind: Kind,
    /// The object.
    pub object: DynamicObject,
}

impl fmt::Display for Dependent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind.name(), self.object.name_any())
    }
}

/// Everything in a namespace that carries the identity. Whoever may not look is told so: what is not seen would be deleted.
pub async fn find(
    cluster: &Cluster,
    namespace: &str,
    identity: &Identity,
) -> Result<Vec<Dependent>, RequestError> {
    let mut found = Vec::new();
    for kind in KINDS {
        let resource = kind.resource();
        let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), namespace, &resource);
        let ours = ListParams::default().labels(&format!("{}={identity}", labels::IDENTITY));
        match api.list(&ours).await {
            Ok(listed) => found.extend(listed.items.into_iter().map(|object| Dependent { kind, object })),
            Err(error) => match cluster.failure(format!("list {}", kind.permission()), error) {
                // A kind that is not served has no objects.
                RequestError::Serve { .. } => {}
                failure => return Err(failure),
            },
        }
    }
    Ok(found)
}

impl Dependent {
    /// Whether the cluster deletes it with the object of this uid.
    pub fn belongs_to(&self, uid: &str) -> bool {
        self.place_of(uid).is_some()
    }

    fn place_of(&self, uid: &str) -> Option<usize> {
        self.object.owner_references().iter().position(|owner| owner.uid == uid)
    }

    /// Takes the Machine from its owners, whatever else changes in it meanwhile.
    pub async fn free(&self, cluster: &Cluster, uid: &str, dry_run: bool) -> Result<(), Error> {
        let Some(place) = self.place_of(uid) else { return Ok(()) };
        let patch: Value = json!([
            { "op": "test", "path": "/metadata/uid", "value": self.object.uid() },
            { "op": "test", "path": format!("/metadata/ownerReferences/{place}/uid"), "value": uid },
            { "op": "remove", "path": format!("/metadata/ownerReferences/{place}") },
        ]);
        let failure = |error| Error::from(cluster.failure(format!("change {self}"), error));
        let patch = serde_json::from_value(patch).map_err(|error| failure(kube::Error::SerdeError(error)))?;
        let parameters =
            PatchParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let namespace = self.object.namespace().unwrap_or_default();
        let api: Api<DynamicObject> =
            Api::namespaced_with(cluster.client.clone(), &namespace, &self.kind.resource());
        api.patch(&self.object.name_any(), &parameters, &Patch::<()>::Json(patch)).await.map_err(failure)?;
        Ok(())
    }
}
