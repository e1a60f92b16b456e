//! Lays manifests over the world as the API would, without writing any.

use std::collections::BTreeSet;

use kube::{
    api::{DynamicObject, Patch, PatchParams},
    core::Status,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use vitistack_plan::{
    explain::World,
    preview::{Changed, Laid},
};
use vitistack_types::decode;

use super::difference::difference;
use crate::{
    cluster::{Cluster, RequestError},
    kinds::KnownKind,
    world::Loaded,
};

/// An object of ours in a file.
pub struct Manifest {
    /// Its kind.
    pub kind: KnownKind,
    /// The object.
    pub document: Value,
}

/// The world before and after, and what was laid over.
pub struct Overlay {
    /// As it is.
    pub before: World,
    /// As it would be, and what could not be read of it.
    pub after: Loaded,
    /// What was laid over.
    pub changed: Vec<Changed>,
}

fn text<'a>(document: &'a Value, pointer: &str) -> &'a str {
    document.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A document as people name it: `Secret default/first-boot`.
pub fn title(document: &Value) -> String {
    let (kind, name) = (text(document, "/kind"), text(document, "/metadata/name"));
    let kind = if kind.is_empty() { "a document without kind" } else { kind };
    match text(document, "/metadata/namespace") {
        "" => format!("{kind} {name}").trim_end().to_owned(),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

impl Overlay {
    /// Nothing laid over yet.
    pub fn new(loaded: Loaded) -> Self {
        Self { before: loaded.world.clone(), after: loaded, changed: Vec::new() }
    }

    /// Lays a manifest over. What the API refuses is noted, and changes nothing.
    pub async fn lay(
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
        let name = text(&document, "/metadata/name").to_owned();
        let objects = cluster.objects(kind, Some(text(&document, "/metadata/namespace")));
        let object = title(&document);
        let failure = |error| cluster.failure(format!("look at {object}"), error);
        let old = objects.get_opt(&name).await.map_err(failure)?;
        let parameters = PatchParams::apply(field_manager).force().dry_run();
        let laid = match objects.patch(&name, &parameters, &Patch::Apply(&document)).await {
            Ok(new) => {
                let new = value(&new);
                let laid = match &old {
                    Some(old) => Laid::Over(difference(&value(old), &new)),
                    None => Laid::New,
                };
                match self.put(&kind.resource.kind, new) {
                    Ok(()) => laid,
                    Err(message) => Laid::Refused(message),
                }
            }
            Err(kube::Error::Api(status)) if is_refusal(&status) => Laid::Refused(status.message.clone()),
            Err(error) => return Err(cluster.failure(format!("try {object}"), error)),
        };
        // Of two manifests of one object the last counts, as it would when they are applied.
        self.changed.retain(|changed| changed.object != object);
        self.changed.push(Changed { object, laid });
        Ok(())
    }

    /// Puts an object into the world after, in the place of what was there.
    fn put(&mut self, kind: &str, document: Value) -> Result<(), String> {
        let world = &mut self.after.world;
        match kind {
            "Machine" => put(&mut world.machines, document),
            "Datacenter" => put(&mut world.datacenters, document),
            "MachineProvider" => put(&mut world.providers, document),
            "MachineClass" => put(&mut world.classes, document),
            "NetworkConfiguration" => put(&mut world.networks, document),
            _ => Ok(()),
        }
    }

    /// Reads the names of the keys of the Secrets that the objects name; those in the files are there afterwards.
    pub async fn read_secrets(&mut self, cluster: &Cluster, others: &[Value]) {
        let objects: Vec<String> = self.changed.iter().map(|changed| changed.object.clone()).collect();
        self.after.read_secrets(cluster, &objects).await;
        self.before.secrets.clone_from(&self.after.world.secrets);
        for secret in others.iter().filter(|other| text(other, "/kind") == "Secret") {
            let namespace = text(secret, "/metadata/namespace");
            let namespace = if namespace.is_empty() { &cluster.namespace } else { namespace };
            let parts = ["/data", "/stringData"].map(|part| secret.pointer(part).and_then(Value::as_object));
            let keys: BTreeSet<String> =
                parts.into_iter().flatten().flat_map(|part| part.keys().cloned()).collect();
            let name = format!("{namespace}/{}", text(secret, "/metadata/name"));
            self.after.world.secrets.entry(name).or_default().get_or_insert_default().extend(keys);
        }
    }
}

fn put<K: DeserializeOwned + kube::Resource<DynamicType = ()>>(
    all: &mut Vec<K>,
    document: Value,
) -> Result<(), String> {
    let object: K = decode(document).map_err(|error| error.to_string())?;
    let key = |one: &K| (one.meta().namespace.clone(), one.meta().name.clone());
    let own = key(&object);
    match all.iter_mut().find(|one| key(one) == own) {
        Some(place) => *place = object,
        None => all.push(object),
    }
    Ok(())
}

fn value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// Whether the answer is about the object itself, rather than about who asks or what is served.
fn is_refusal(status: &Status) -> bool {
    let names_something = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    matches!(status.code, 400 | 409 | 422) || (status.code == 404 && names_something)
}
