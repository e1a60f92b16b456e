//! Prints every object so that it can be restored, here or on another control plane.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ApiResource;
use serde_json::{Map, Value, json};
use snafu::ResultExt;
use vitistack_controller::backends::world_of;
use vitistack_plan::provider::identity;
use vitistack_types::{
    labels,
    v1alpha1::{MachineProvider, ProviderType},
};

use super::{Ending, Error, WriteObjectSnafu, WriteOutputSnafu, document};
use crate::{
    args::AllNamespacesArgs,
    cluster::{Cluster, ClusterArgs},
    kinds::KnownKind,
    listing::{Selection, Wanted, list},
    output::Console,
};

/// What is needed first comes first. A kind that is not named here comes before the machines.
const ORDER: [&str; 5] = ["MachineClass", "NetworkConfiguration", PROVIDER, "Datacenter", "Machine"];

const PROVIDER: &str = "MachineProvider";

/// The fields of an object that belong to the server it lives on.
const SERVERS_OWN: [&str; 10] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "uid",
];

/// What people write in an object beside its metadata.
const CONTENT: [&str; 4] = ["spec", "data", "binaryData", "immutable"];

/// Annotations that mean nothing for another object: what kubectl remembers, and whose identity this uid confirmed.
const BOUND_ANNOTATIONS: [&str; 2] = ["kubectl.kubernetes.io/last-applied-configuration", labels::ADOPTED];

/// Which objects.
#[derive(Args, Debug)]
#[command(
    after_help = "A Machine keeps its identity: where it is restored, it is held until `vitistack adopt`. The machines of simulated providers live in the control plane itself and come along. Secrets and Namespaces are not exported; comments at the top name those that are needed.\n\nExamples:\n  vitistack export -A > platform.yaml\n  vitistack export -n shop | kubectl --context other apply --server-side -f -"
)]
pub struct ExportArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    all: AllNamespacesArgs,
}

/// Prints them. What could not be read is told at the top, on standard error and by the exit code.
pub async fn run(arguments: &ExportArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let namespace = (!arguments.all.all_namespaces).then_some(cluster.namespace.as_str());
    let mut exported = Exported::default();
    for kind in kinds() {
        let selection = Selection::all(&kind.resource, namespace.filter(|_| kind.is_namespaced));
        let listed = list(&cluster, &selection, &Wanted::Whole, |object| exported.add(&kind, object)).await;
        if let Err(incomplete) = listed {
            exported.missing.push(incomplete.source.to_string());
        }
    }
    exported.keep_occupied();
    // Read last: whatever a Machine knows of is in its world by now.
    exported.add_worlds(&cluster).await;
    exported.write(console)?;
    Ok(if exported.missing.is_empty() { Ending::Done } else { Ending::Partial })
}

fn kinds() -> Vec<KnownKind> {
    let mut kinds = KnownKind::all();
    let rank = |kind: &KnownKind| {
        let place = ORDER.iter().position(|name| *name == kind.resource.kind);
        place.map_or(2 * ORDER.len() - 3, |place| 2 * place)
    };
    kinds.sort_by_key(rank);
    kinds
}

#[derive(Debug, Default)]
struct Exported {
    objects: Vec<Value>,
    secrets: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    deleting: Vec<String>,
    missing: Vec<String>,
    /// Providers that are being deleted, by the names that placements use.
    leaving: BTreeMap<String, Value>,
    occupied: BTreeSet<String>,
    kept: Vec<String>,
    /// The names of the worlds of simulated providers.
    worlds: BTreeSet<String>,
}

impl Exported {
    fn add(&mut self, kind: &KnownKind, object: Value) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let namespace = text("/metadata/namespace");
        if object.pointer("/metadata/deletionTimestamp").is_some() {
            let name = [namespace, text("/metadata/name")].join("/");
            let name = name.trim_start_matches('/').to_owned();
            if kind.resource.kind == PROVIDER {
                self.leaving.insert(name, object);
            } else {
                self.deleting.push(format!("{} {name}", kind.resource.kind));
            }
            return;
        }
        if kind.resource.kind == "Machine"
            && let Some(placement) =
                object.pointer("/metadata/annotations").and_then(|all| all.get(labels::PLACEMENT)?.as_str())
        {
            self.occupied.insert(placement.to_owned());
        }
        self.keep(kind, object);
    }

    /// Notes where an object is to be, unless every cluster has that.
    fn need_namespace(&mut self, namespace: String) {
        if !namespace.is_empty() && namespace != "default" {
            self.namespaces.insert(namespace);
        }
    }

    fn keep(&mut self, kind: &KnownKind, mut object: Value) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let namespace = text("/metadata/namespace").to_owned();
        for pointer in ["/spec/credentials/secretRef/name", "/spec/cloudInit/secretRef/name"] {
            let name = text(pointer);
            if !name.is_empty() {
                self.secrets.insert(format!("{namespace}/{name}"));
            }
        }
        if kind.resource.kind == PROVIDER
            && let Ok(provider) = vitistack_types::decode::<MachineProvider>(object.clone())
            && provider.spec.type_ == ProviderType::Simulated
        {
            self.worlds.insert(world_of(&provider));
            carry(&mut object, identity(&provider));
        }
        self.need_namespace(namespace);
        self.objects.push(portable(&kind.resource, object));
    }

    /// A provider that waits for its machines to go is kept as long as they are: they could not be restored without it.
    fn keep_occupied(&mut self) {
        let Some(kind) = kinds().into_iter().find(|kind| kind.resource.kind == PROVIDER) else { return };
        for (name, object) in std::mem::take(&mut self.leaving) {
            if self.occupied.contains(&name) {
                self.kept.push(format!("{PROVIDER} {name}"));
                let rest = self.first(|kind| ["Datacenter", "Machine"].contains(&kind));
                let behind = self.objects.split_off(rest);
                self.keep(&kind, object);
                self.objects.extend(behind);
            } else {
                self.deleting.push(format!("{PROVIDER} {name}"));
            }
        }
    }

    /// Where the first object of such a kind stands; the end if there is none.
    fn first(&self, is_one: impl Fn(&str) -> bool) -> usize {
        let kind = |object: &Value| object.get("kind").and_then(Value::as_str).is_some_and(&is_one);
        self.objects.iter().position(kind).unwrap_or(self.objects.len())
    }

    /// The machines of a simulated provider are nowhere but in the control plane, and so go with it. A world counts once
    /// its head is there, which is therefore its last object: an operator that finds it finds all of it.
    async fn add_worlds(&mut self, cluster: &Cluster) {
        if self.worlds.is_empty() {
            return;
        }
        let resource = ApiResource::erase::<ConfigMap>(&());
        let selection = Selection { labels: Some(labels::WORLD), ..Selection::all(&resource, None) };
        let (mut objects, mut namespaces) = (Vec::new(), BTreeSet::new());
        let listed = list(cluster, &selection, &Wanted::Whole, |object| {
            let world = object.pointer("/metadata/labels").and_then(|all| all.get(labels::WORLD)?.as_str());
            let Some(world) = world.filter(|world| self.worlds.contains(*world)) else { return };
            let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            namespaces
                .extend(object.pointer("/metadata/namespace").and_then(Value::as_str).map(str::to_owned));
            objects.push(((world.to_owned(), name == world, name.to_owned()), portable(&resource, object)));
        });
        if let Err(incomplete) = listed.await {
            self.missing.push(incomplete.source.to_string());
        }
        for namespace in namespaces {
            self.need_namespace(namespace);
        }
        objects.sort_by(|(one, _), (other, _)| one.cmp(other));
        let place = self.first(|kind| kind == PROVIDER);
        self.objects.splice(place..place, objects.into_iter().map(|(_, object)| object));
    }

    fn write(&self, console: &mut Console<'_>) -> Result<(), Error> {
        for missing in &self.missing {
            writeln!(console.output, "# Incomplete: {missing}").context(WriteOutputSnafu)?;
            writeln!(console.errors, "vitistack: {missing}").context(WriteOutputSnafu)?;
        }
        for name in &self.namespaces {
            writeln!(console.output, "# Needs, and has not: Namespace {name}").context(WriteOutputSnafu)?;
        }
        for name in &self.secrets {
            writeln!(console.output, "# Needs, and has not: Secret {name}").context(WriteOutputSnafu)?;
        }
        for name in &self.deleting {
            writeln!(console.output, "# Left out, being deleted: {name}").context(WriteOutputSnafu)?;
        }
        for name in &self.kept {
            let why = "being deleted, and kept because Machines are on it";
            writeln!(console.output, "# Note: {name} is {why}").context(WriteOutputSnafu)?;
        }
        for object in &self.objects {
            let yaml = serde_saphyr::to_string(object).context(WriteObjectSnafu)?;
            document(&yaml, console)?;
        }
        Ok(())
    }
}

/// The object without what belongs to its server: what is left can be applied anywhere.
fn portable(resource: &ApiResource, mut object: Value) -> Value {
    let taken = |object: &mut Value, field: &str| object.get_mut(field).map(Value::take).unwrap_or_default();
    let mut metadata = taken(&mut object, "metadata");
    if let Some(fields) = metadata.as_object_mut() {
        fields.retain(|field, _| !SERVERS_OWN.contains(&field.as_str()));
        if let Some(annotations) = fields.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|name, _| !BOUND_ANNOTATIONS.contains(&name.as_str()));
            if annotations.is_empty() {
                fields.remove("annotations");
            }
        }
    }
    let mut portable = Map::new();
    portable.insert("apiVersion".to_owned(), resource.api_version.clone().into());
    portable.insert("kind".to_owned(), resource.kind.clone().into());
    portable.insert("metadata".to_owned(), metadata);
    for field in CONTENT {
        let content = taken(&mut object, field);
        if !content.is_null() {
            portable.insert(field.to_owned(), content);
        }
    }
    Value::Object(portable)
}

/// Writes down the identity of an object that had none but its UID.
fn carry(object: &mut Value, identity: &str) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(labels::IDENTITY.to_owned(), identity.into());
    }
}
