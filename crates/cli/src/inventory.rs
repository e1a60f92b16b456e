//! Loads the inventory that commands reason about. What could not be read is reported, never left out silently.

use std::collections::BTreeMap;

use futures::future::join_all;
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Namespace, Secret},
    },
    jiff::Timestamp,
};
use kube::{Resource, ResourceExt, api::ApiResource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use vitistack_plan::{Inventory, inventory::InventoryObject};
use vitistack_types::{
    ObjectId, ObjectName, decode, labels,
    v1alpha1::{Datacenter, Machine, MachineClass, MachineProvider, NetworkConfiguration},
};

use crate::cluster::{
    Cluster, RequestError,
    kinds::Target,
    listing::{Incomplete, Selection, Wanted, list, read, text},
};

/// What was read, and what was not.
#[derive(Debug)]
pub struct Loaded {
    /// What was read.
    pub inventory: Inventory,
    /// Objects that do not decode, each with the error.
    pub invalid: BTreeMap<ObjectId, String>,
    /// What could not be read, each in a sentence.
    pub missing: Vec<String>,
}

/// Reads every object of our kinds, and the leases of the operators.
pub async fn load(cluster: &Cluster) -> Result<Loaded, RequestError> {
    let leases = ApiResource::erase::<Lease>(&());
    let (machines, datacenters, providers, classes, networks, leases) = tokio::join!(
        list_all::<Machine>(cluster),
        list_all::<Datacenter>(cluster),
        list_all::<MachineProvider>(cluster),
        list_all::<MachineClass>(cluster),
        list_all::<NetworkConfiguration>(cluster),
        list_in::<Lease>(cluster, &leases, Some(labels::SYSTEM_NAMESPACE)),
    );

    let (mut invalid, mut missing) = (BTreeMap::new(), Vec::new());
    let mut inventory = Inventory {
        now: Timestamp::now(),
        machines: machines?.take(&mut invalid, &mut missing),
        datacenters: datacenters?.take(&mut invalid, &mut missing),
        providers: providers?.take(&mut invalid, &mut missing),
        classes: classes?.take(&mut invalid, &mut missing),
        networks: networks?.take(&mut invalid, &mut missing),
        secrets: BTreeMap::new(),
        namespaces: None,
        leases: match leases {
            Ok(leases) => Some(leases.take(&mut invalid, &mut missing)),
            Err(Incomplete { source, .. }) => {
                missing.push(source.to_string());
                None
            }
        },
    };
    if inventory.providers.iter().any(|provider| provider.spec.own_cluster_namespace().is_some()) {
        match list_in::<Namespace>(cluster, &ApiResource::erase::<Namespace>(&()), None).await {
            Ok(listed) => {
                let namespaces = listed.take(&mut invalid, &mut missing).into_iter();
                let by_name = namespaces.map(|each| (each.name_any(), each.metadata));
                inventory.namespaces = Some(by_name.collect());
            }
            Err(incomplete) => missing.push(incomplete.source.to_string()),
        }
    }
    missing.extend(invalid.iter().map(|(object, error)| format!("{object} is invalid: {error}")));
    Ok(Loaded { inventory, invalid, missing })
}

/// The objects of a kind, and what could not be read of it.
struct Listed<K> {
    objects: Vec<K>,
    invalid: BTreeMap<ObjectId, String>,
    missing: Vec<String>,
}

impl<K> Listed<K> {
    /// Returns the objects and adds the rest to what was collected so far.
    fn take(self, invalid: &mut BTreeMap<ObjectId, String>, missing: &mut Vec<String>) -> Vec<K> {
        invalid.extend(self.invalid);
        missing.extend(self.missing);
        self.objects
    }
}

/// Lists a kind in every namespace, or in the selected one where more is not permitted.
async fn list_all<K: Resource<DynamicType = ()> + DeserializeOwned>(
    cluster: &Cluster,
) -> Result<Listed<K>, RequestError> {
    let resource = ApiResource::erase::<K>(&());
    match list_in(cluster, &resource, None).await {
        Ok(listed) => Ok(listed),
        Err(Incomplete { source: RequestError::Permit { .. }, .. }) => {
            let namespace = cluster.namespace.as_str();
            let mut listed =
                list_in(cluster, &resource, Some(namespace)).await.map_err(|incomplete| incomplete.source)?;
            let plural = &resource.plural;
            listed.missing.push(format!(
                "{plural} of other namespaces: you are allowed to list {plural} in namespace {namespace} only"
            ));
            Ok(listed)
        }
        Err(incomplete) => Err(incomplete.source),
    }
}

async fn list_in<K: DeserializeOwned>(
    cluster: &Cluster,
    resource: &ApiResource,
    namespace: Option<&str>,
) -> Result<Listed<K>, Incomplete> {
    let mut listed = Listed { objects: Vec::new(), invalid: BTreeMap::new(), missing: Vec::new() };
    let each = |object: Value| {
        let name = ObjectName::new(text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
        match decode(object) {
            Ok(object) => listed.objects.push(object),
            Err(error) => {
                listed.invalid.insert(ObjectId::new(&resource.kind, name), error.to_string());
            }
        }
    };
    list(cluster, &Selection::all(resource, namespace), &Wanted::Whole, each).await?;
    Ok(listed)
}

impl Loaded {
    /// Returns the object that a user specified.
    pub fn find(&self, target: &Target, cluster: &Cluster) -> Result<InventoryObject<'_>, RequestError> {
        let id = target.id(cluster);
        if let Some(object) = self.inventory.object(&id) {
            return Ok(object);
        }
        Err(match self.invalid.get(&id) {
            Some(error) => RequestError::Answer { doing: format!("read {id}"), message: error.clone() },
            None => RequestError::FindObject { object: target.title() },
        })
    }

    /// Reads which keys these Secrets have. Never keeps their contents.
    pub async fn read_secrets(&mut self, cluster: &Cluster, names: impl IntoIterator<Item = ObjectName>) {
        let resource = ApiResource::erase::<Secret>(&());
        let answers = names.into_iter().map(|name| {
            let resource = &resource;
            async move {
                let answer = read(cluster, resource, Some(&name.namespace), &name.name).await;
                (name, answer)
            }
        });

        for (name, answer) in join_all(answers).await {
            match answer {
                Ok(secret) => {
                    let data = secret.get("data").and_then(Value::as_object);
                    let keys = data.map(|data| data.keys().cloned().collect()).unwrap_or_default();
                    self.inventory.secrets.insert(name, Some(keys));
                }
                Err(RequestError::FindObject { .. }) => {
                    self.inventory.secrets.insert(name, None);
                }
                Err(error) => self.missing.push(error.to_string()),
            }
        }
    }
}
