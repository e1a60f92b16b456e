//! Loads what commands reason about. What could not be read is told, never left out in silence.

use std::collections::BTreeSet;

use futures::future::join_all;
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
    jiff::Timestamp,
};
use kube::{Resource, api::ApiResource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use vitistack_plan::explain::World;
use vitistack_types::{
    decode, labels,
    v1alpha1::{Datacenter, Machine, MachineClass, MachineProvider, NetworkConfiguration},
};

use crate::{
    cluster::{Cluster, RequestError},
    listing::{Incomplete, Selection, Wanted, list, read},
};

/// What was read, and what was not.
#[derive(Debug)]
pub struct Loaded {
    /// What was read.
    pub world: World,
    /// What could not be read, each in a sentence.
    pub missing: Vec<String>,
}

/// Reads every object of our kinds, and the leases of the operators.
pub async fn load(cluster: &Cluster) -> Result<Loaded, RequestError> {
    let leases = ApiResource::erase::<Lease>(&());
    let (machines, datacenters, providers, classes, networks, leases) = tokio::join!(
        all::<Machine>(cluster),
        all::<Datacenter>(cluster),
        all::<MachineProvider>(cluster),
        all::<MachineClass>(cluster),
        all::<NetworkConfiguration>(cluster),
        one_place::<Lease>(cluster, &leases, Some(labels::SYSTEM_NAMESPACE)),
    );
    let mut missing = Vec::new();
    let world = World {
        now: Timestamp::now(),
        machines: machines?.found(&mut missing),
        datacenters: datacenters?.found(&mut missing),
        providers: providers?.found(&mut missing),
        classes: classes?.found(&mut missing),
        networks: networks?.found(&mut missing),
        secrets: std::collections::BTreeMap::new(),
        leases: match leases {
            Ok(leases) => Some(leases.found(&mut missing)),
            Err(Incomplete { source, .. }) => {
                missing.push(source.to_string());
                None
            }
        },
        events: Vec::new(),
    };
    Ok(Loaded { world, missing })
}

/// Objects that were read, and what was odd.
struct Found<K> {
    objects: Vec<K>,
    missing: Vec<String>,
}

impl<K> Found<K> {
    fn found(self, missing: &mut Vec<String>) -> Vec<K> {
        missing.extend(self.missing);
        self.objects
    }
}

/// Every object of a kind; only those of the namespace where more is not permitted.
async fn all<K: Resource<DynamicType = ()> + DeserializeOwned>(
    cluster: &Cluster,
) -> Result<Found<K>, RequestError> {
    let resource = ApiResource::erase::<K>(&());
    match one_place(cluster, &resource, None).await {
        Ok(found) => Ok(found),
        Err(Incomplete { source: RequestError::Permit { .. }, .. }) => {
            let place = cluster.namespace.as_str();
            let mut found =
                one_place(cluster, &resource, Some(place)).await.map_err(|incomplete| incomplete.source)?;
            let plural = &resource.plural;
            found.missing.push(format!("you may list {plural} in namespace {place} only, not in others"));
            Ok(found)
        }
        Err(incomplete) => Err(incomplete.source),
    }
}

async fn one_place<K: DeserializeOwned>(
    cluster: &Cluster,
    resource: &ApiResource,
    namespace: Option<&str>,
) -> Result<Found<K>, Incomplete> {
    let mut found = Found { objects: Vec::new(), missing: Vec::new() };
    let each = |object: Value| {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let name = format!("{} {}/{}", resource.kind, text("/metadata/namespace"), text("/metadata/name"));
        match decode(object) {
            Ok(object) => found.objects.push(object),
            Err(error) => found.missing.push(format!("{name} cannot be understood: {error}")),
        }
    };
    list(cluster, &Selection::all(resource, namespace), &Wanted::Whole, each).await?;
    Ok(found)
}

impl Loaded {
    /// Reads which keys the Secrets have that these Machines and MachineProviders name. Never keeps what is in them.
    pub async fn read_secrets(&mut self, cluster: &Cluster, objects: &[String]) {
        let is_meant = |kind: &str, metadata: &ObjectMeta| {
            let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
            objects.contains(&format!(
                "{kind} {}/{}",
                namespace.unwrap_or_default(),
                name.unwrap_or_default()
            ))
        };
        let machines = self.world.machines.iter().filter(|one| is_meant("Machine", &one.metadata));
        let of_machines = machines.filter_map(|machine| {
            let secret = machine.spec.cloud_init.as_ref()?.secret_ref.as_ref()?;
            Some((machine.metadata.namespace.clone()?, secret.name.clone()))
        });
        // A Datacenter that is meant may use any of its providers.
        let of_datacenters: BTreeSet<(String, String)> = self
            .world
            .datacenters
            .iter()
            .filter(|one| is_meant("Datacenter", &one.metadata))
            .flat_map(|one| {
                let own = one.metadata.namespace.clone().unwrap_or_default();
                one.spec.machine_providers.iter().map(move |reference| {
                    (reference.namespace.clone().unwrap_or_else(|| own.clone()), reference.name.clone())
                })
            })
            .collect();
        let providers = self.world.providers.iter().filter(|one| {
            let ObjectMeta { namespace, name, .. } = &one.metadata;
            let own = (namespace.clone().unwrap_or_default(), name.clone().unwrap_or_default());
            is_meant("MachineProvider", &one.metadata) || of_datacenters.contains(&own)
        });
        let of_providers = providers.filter_map(|provider| {
            let secret = &provider.spec.credentials.as_ref()?.secret_ref;
            Some((provider.metadata.namespace.clone()?, secret.name.clone()))
        });
        let names: BTreeSet<(String, String)> = of_machines.chain(of_providers).collect();
        let resource = ApiResource::erase::<Secret>(&());
        let answers = names.into_iter().map(|(namespace, name)| {
            let resource = &resource;
            async move {
                let answer = read(cluster, resource, Some(&namespace), &name).await;
                (format!("{namespace}/{name}"), answer)
            }
        });
        for (name, answer) in join_all(answers).await {
            match answer {
                Ok(secret) => {
                    let data = secret.get("data").and_then(Value::as_object);
                    let keys = data.map(|data| data.keys().cloned().collect()).unwrap_or_default();
                    self.world.secrets.insert(name, Some(keys));
                }
                Err(RequestError::FindObject { .. }) => {
                    self.world.secrets.insert(name, None);
                }
                Err(error) => self.missing.push(error.to_string()),
            }
        }
    }
}
