//! Applies manifests to the inventory as the API would, without writing any.

use std::collections::BTreeSet;

use kube::{
    api::{DynamicObject, Patch, PatchParams},
    core::Status,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use vitistack_plan::{
    Inventory,
    preview::{Applied, Effect},
};
use vitistack_types::{ObjectId, ObjectName, decode};

use super::difference::difference;
use crate::{
    cluster::{Cluster, RequestError, kinds::KnownKind, listing::text},
    inventory::Loaded,
};

/// An object of ours in a file.
pub struct Manifest {
    /// Its kind.
    pub kind: KnownKind,
    /// The object.
    pub document: Value,
}

/// The inventory before and after, and the objects that were applied.
pub struct Overlay {
    /// As it is.
    pub before: Inventory,
    /// As it would be, and what could not be read of it.
    pub after: Loaded,
    /// What was applied.
    pub applied: Vec<Applied>,
}

/// The kind, namespace and name of a document.
fn id(document: &Value) -> ObjectId {
    let name = ObjectName::new(text(document, "/metadata/namespace"), text(document, "/metadata/name"));
    ObjectId::new(text(document, "/kind"), name)
}

/// A document as users know it: `Secret default/first-boot`.
pub fn title(document: &Value) -> String {
    match id(document) {
        ObjectId { kind, name } if kind.is_empty() => format!("a document without kind {name}"),
        id => id.to_string(),
    }
    .trim_end()
    .to_owned()
}

impl Overlay {
    /// An overlay with nothing applied.
    pub fn new(loaded: Loaded) -> Self {
        Self { before: loaded.inventory.clone(), after: loaded, applied: Vec::new() }
    }

    /// Applies a manifest. What the API rejects is recorded, and changes nothing.
    pub async fn apply(
        &mut self,
        cluster: &Cluster,
        manifest: &Manifest,
        field_manager: &str,
    ) -> Result<(), RequestError> {
        let kind = &manifest.kind;
        let mut document = manifest.document.clone();
        if kind.is_namespaced
            && text(&document, "/metadata/namespace").is_empty()
            && let Some(metadata) = document.pointer_mut("/metadata").and_then(Value::as_object_mut)
        {
            metadata.insert("namespace".to_owned(), cluster.namespace.clone().into());
        }

        let object = id(&document);
        let objects = cluster.objects(kind, Some(&object.name.namespace));
        let failure = |error| cluster.failure(format!("read {object}"), error);
        let old = objects.get_opt(&object.name.name).await.map_err(failure)?;
        let parameters = PatchParams::apply(field_manager).force().dry_run();
        let effect = match objects.patch(&object.name.name, &parameters, &Patch::Apply(&document)).await {
            Ok(new) => {
                let new = value(&new);
                let effect = match &old {
                    Some(old) => Effect::Updated(difference(&value(old), &new)),
                    None => Effect::Created,
                };
                match self.put(&kind.resource.kind, new) {
                    Ok(()) => effect,
                    Err(message) => Effect::Rejected(message),
                }
            }
            Err(kube::Error::Api(status)) if is_rejection(&status) => {
                Effect::Rejected(status.message.clone())
            }
            Err(error) => return Err(cluster.failure(format!("dry-run {object}"), error)),
        };

        // Of two manifests of one object the last one counts, as when they are applied.
        self.applied.retain(|applied| applied.object != object);
        self.applied.push(Applied { object, effect });
        Ok(())
    }

    /// Puts an object into the inventory after, instead of the one that was there.
    fn put(&mut self, kind: &str, document: Value) -> Result<(), String> {
        let inventory = &mut self.after.inventory;
        match kind {
            "Machine" => put(&mut inventory.machines, document),
            "Datacenter" => put(&mut inventory.datacenters, document),
            "MachineProvider" => put(&mut inventory.providers, document),
            "MachineClass" => put(&mut inventory.classes, document),
            "NetworkConfiguration" => put(&mut inventory.networks, document),
            _ => Ok(()),
        }
    }

    /// Reads the keys of the Secrets that the applied objects refer to; those in the files exist afterwards.
    pub async fn read_secrets(&mut self, cluster: &Cluster, others: &[Value]) {
        let secrets = self.after.inventory.secrets_needed(&self.objects());
        self.after.read_secrets(cluster, secrets).await;
        self.before.secrets.clone_from(&self.after.inventory.secrets);

        for secret in others.iter().filter(|other| text(other, "/kind") == "Secret") {
            let mut name = id(secret).name;
            if name.namespace.is_empty() {
                name.namespace.clone_from(&cluster.namespace);
            }
            let parts = ["/data", "/stringData"].map(|part| secret.pointer(part).and_then(Value::as_object));
            let keys: BTreeSet<String> =
                parts.into_iter().flatten().flat_map(|part| part.keys().cloned()).collect();
            self.after.inventory.secrets.entry(name).or_default().get_or_insert_default().extend(keys);
        }
    }

    /// The applied objects, and the providers that an applied Datacenter may use.
    fn objects(&self) -> Vec<ObjectId> {
        let is_datacenter = |id: &&ObjectId| id.kind == "Datacenter";
        let applied: Vec<ObjectId> = self.applied.iter().map(|applied| applied.object.clone()).collect();
        let providers: Vec<ObjectId> =
            applied.iter().filter(is_datacenter).flat_map(|id| self.after.inventory.related(id)).collect();
        [applied, providers].concat()
    }
}

fn put<K: DeserializeOwned + kube::Resource<DynamicType = ()>>(
    all: &mut Vec<K>,
    document: Value,
) -> Result<(), String> {
    let object: K = decode(document).map_err(|error| error.to_string())?;
    let name = ObjectName::of(&object);
    match all.iter_mut().find(|other| name.is_of(other.meta())) {
        Some(old) => *old = object,
        None => all.push(object),
    }
    Ok(())
}

fn value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// Whether the answer is about the object itself, and not about the user or what the server serves.
fn is_rejection(status: &Status) -> bool {
    let names_object = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    matches!(status.code, 400 | 409 | 422) || (status.code == 404 && names_object)
}
