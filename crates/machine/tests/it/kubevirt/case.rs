//! Test cases: a Machine, and a cluster as plain data.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use kube::core::DynamicObject;
use serde::Deserialize;
use serde_json::{Value, json};
use vitistack_machine::{
    Limits, Order, Target,
    kubevirt::{
        Found, Kind, Object, OwnerKind, Planned, ReadError, Reader, Settings, changes, find, identity_of,
        observe, plan, prune,
    },
};
use vitistack_plan::{
    Redacted,
    machine::{Identity, Observed, References, resolve},
};
use vitistack_types::{
    decode, samples,
    v1alpha1::{Machine, NetworkConfiguration},
};

/// The identity of every machine.
pub const IDENTITY: &str = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff";

/// The time of every observation.
const NOW: &str = "2026-01-02T03:05:00Z";

/// One case, as described in its file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Case {
    /// The name of a sample Machine.
    sample: Option<String>,
    /// Name of the Machine, if there is no sample.
    name: Option<String>,
    /// The spec of the Machine; merged into that of the sample.
    spec: Value,
    /// NetworkConfigurations by name.
    networks: BTreeMap<String, Value>,
    /// The user's Secret.
    secret: Option<BTreeMap<String, String>>,
    /// Namespace in the spec of the provider.
    namespace: Option<String>,
    /// Whether the provider is another cluster than that of the Machine.
    is_remote: bool,
    /// Zones of the provider.
    zones: Vec<String>,
    /// Kinds that the cluster does not serve.
    pub lacks: Vec<String>,
    /// Objects in the cluster, without its storage classes.
    pub cluster: Vec<Value>,
    /// Storage classes instead of the default ones.
    storage_classes: Option<Vec<Value>>,
}

/// Parses a case.
pub fn case(yaml: &str) -> Case {
    serde_saphyr::from_str(yaml).unwrap()
}

/// Adds the `apiVersion`, which the cases omit, to an object.
fn typed(mut object: Value) -> Value {
    let kind = Kind::ALL.into_iter().find(|kind| object["kind"] == kind.name()).unwrap();
    object["apiVersion"] = kind.resource().api_version.into();
    object
}

/// Returns the default storage classes.
fn storage_classes() -> Vec<Value> {
    vec![
        json!({ "kind": "StorageClass", "metadata": { "name": "standard", "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } }, "allowVolumeExpansion": true }),
        json!({ "kind": "StorageClass", "metadata": { "name": "fast-ssd" }, "allowVolumeExpansion": true }),
        json!({ "kind": "StorageClass", "metadata": { "name": "rigid" } }),
    ]
}

impl Case {
    /// Returns the Machine of the user.
    pub fn machine(&self) -> Machine {
        let name = self.name.as_deref().unwrap_or("vm");
        let mut machine = match &self.sample {
            None => {
                json!({ "apiVersion": "vitistack.io/v1alpha1", "kind": "Machine", "metadata": { "name": name, "namespace": "default" }, "spec": {} })
            }
            Some(sample) => {
                let found = samples().iter().find(|found| found.name == sample).unwrap();
                serde_saphyr::from_str(found.manifest).unwrap()
            }
        };
        for (field, value) in self.spec.as_object().into_iter().flatten() {
            machine["spec"][field] = value.clone();
        }
        decode(machine).unwrap()
    }

    pub fn settings(&self) -> Settings {
        let owner = OwnerKind { api_version: "vitistack.io/v1alpha1".to_owned(), kind: "Machine".to_owned() };
        Settings {
            namespace: self.namespace.clone(),
            owner: (!self.is_remote).then_some(owner),
            zones: self.zones.clone(),
            limits: Limits::default(),
        }
    }

    pub fn order(&self) -> Order {
        let machine = self.machine();
        let target = Target {
            identity: Identity::new(IDENTITY),
            uid: IDENTITY.to_owned(),
            name: machine.metadata.name.clone().unwrap(),
            namespace: "default".to_owned(),
        };
        self.order_for(&machine, target)
    }

    /// Returns the order for a Machine of this case in any namespace.
    pub fn order_for(&self, machine: &Machine, target: Target) -> Order {
        let network = |(name, spec): (&String, &Value)| {
            let network = json!({ "apiVersion": "vitistack.io/v1alpha1", "kind": "NetworkConfiguration", "metadata": { "name": name, "namespace": "default" }, "spec": spec });
            (name.clone(), decode::<NetworkConfiguration>(network).unwrap())
        };
        let hidden = |secret: &BTreeMap<String, String>| {
            secret.iter().map(|(key, value)| (key.clone(), Redacted::new(value.clone()))).collect()
        };
        let references = References {
            class: None,
            networks: self.networks.iter().map(network).collect(),
            secret: self.secret.as_ref().map(hidden),
        };
        Order { target, desired: resolve(machine, &references).unwrap() }
    }

    pub fn reader(&self) -> PlainReader {
        let classes = self.storage_classes.clone().unwrap_or_else(storage_classes);
        let objects = self.cluster.iter().cloned().chain(classes);
        PlainReader {
            objects: objects.map(|object| Arc::new(serde_json::from_value(typed(object)).unwrap())).collect(),
            lacks: self.lacks.clone(),
        }
    }

    pub fn found(&self) -> Found {
        let reader = self.reader();
        let order = self.order();
        let settings = self.settings();
        futures::executor::block_on(find(&reader, &settings, &order.target, Some(&order))).unwrap()
    }

    pub fn planned(&self) -> Planned {
        plan(&self.settings(), &self.order(), &self.found())
    }

    pub fn observed(&self) -> Observed {
        let order = self.order();
        observe(&self.settings(), &order.target, Some(&order), &self.found(), NOW.parse().unwrap())
    }

    /// Returns short descriptions of the requests that would be sent.
    pub fn writes(&self) -> Vec<String> {
        let planned = self.planned();
        let writes = changes(&self.settings(), &self.order(), &planned, &self.found(), None);
        writes.iter().map(ToString::to_string).collect()
    }
}

/// A cluster as plain data, read as from a cache: without the pruned fields.
pub struct PlainReader {
    pub objects: Vec<Object>,
    lacks: Vec<String>,
}

impl PlainReader {
    fn kind(&self, kind: Kind) -> Result<impl Iterator<Item = Object>, ReadError> {
        if self.lacks.iter().any(|lacking| lacking == kind.name()) {
            return Err(ReadError::NotServed);
        }
        let is_of_kind =
            move |object: &&Object| object.types.as_ref().is_some_and(|types| types.kind == kind.name());
        Ok(self.objects.iter().filter(is_of_kind).map(move |object| {
            let mut object = DynamicObject::clone(object);
            prune(kind, &mut object);
            Arc::new(object)
        }))
    }
}

fn is_in(object: &DynamicObject, namespace: &str) -> bool {
    object.metadata.namespace.as_deref().unwrap_or("default") == namespace
}

#[async_trait]
impl Reader for PlainReader {
    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Object>, ReadError> {
        let is_it =
            |object: &Object| is_in(object, namespace) && object.metadata.name.as_deref() == Some(name);
        Ok(self.kind(kind)?.find(is_it))
    }

    async fn owned(
        &self,
        kind: Kind,
        namespace: &str,
        identity: &Identity,
    ) -> Result<Vec<Object>, ReadError> {
        let is_it =
            |object: &Object| is_in(object, namespace) && identity_of(object).as_ref() == Some(identity);
        Ok(self.kind(kind)?.filter(is_it).collect())
    }

    async fn all(&self, kind: Kind) -> Result<Vec<Object>, ReadError> {
        Ok(self.kind(kind)?.collect())
    }

    fn may_lag(&self) -> bool {
        true
    }
}
