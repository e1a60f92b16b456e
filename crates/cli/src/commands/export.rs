//! Prints all objects as manifests that can be restored on this or another control plane.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ApiResource;
use serde_json::{Map, Value, json};
use snafu::ResultExt;
use vitistack_machine::backend_type;
use vitistack_plan::provider::identity;
use vitistack_types::{labels, v1alpha1::MachineProvider};

use super::{Ending, Error, WriteObjectSnafu, WriteOutputSnafu, document};
use crate::{
    args::{AllNamespacesArgs, ClusterArgs},
    cluster::{
        Cluster,
        kinds::KnownKind,
        listing::{Selection, Wanted, list, text},
    },
    printing::{Console, write_line},
};

/// The order of kinds, so that an object follows those it refers to. Other kinds precede the machines.
const ORDER: [&str; 5] = ["MachineClass", "NetworkConfiguration", PROVIDER, "Datacenter", "Machine"];

const PROVIDER: &str = "MachineProvider";

/// The metadata fields that a server sets.
const SERVER_FIELDS: [&str; 10] = [
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

/// The fields that users set, besides the metadata.
const CONTENT: [&str; 4] = ["spec", "data", "binaryData", "immutable"];

/// Annotations that are valid for one object only: that of kubectl apply, and the confirmed adoption of a UID.
const BOUND_ANNOTATIONS: [&str; 2] = ["kubectl.kubernetes.io/last-applied-configuration", labels::ADOPTED];

/// The arguments of `vitistack export`.
#[derive(Args, Debug)]
#[command(
    after_help = "Machines keep their identity; a restored Machine is held until \"vitistack adopt\". Machines that exist only in the control plane are exported with it. Secrets and Namespaces are not exported; comments at the top list those that are required.

Examples:
  # Export all namespaces
  vitistack export -A > platform.yaml

  # Restore an export; the field manager keeps later applies from removing the identities
  kubectl apply --server-side --field-manager vitistack-restore -f platform.yaml

  # Copy a namespace to another cluster
  vitistack export -n shop > shop.yaml
  kubectl --context other apply --server-side --field-manager vitistack-restore -f shop.yaml

Exit status: 0 success, 1 failure, 3 partial result"
)]
pub struct ExportArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    namespaces: AllNamespacesArgs,
}

/// Prints the objects. What could not be read is reported at the top, on standard error and by the exit code.
pub async fn run(arguments: &ExportArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let namespace = (!arguments.namespaces.all_namespaces).then_some(cluster.namespace.as_str());
    let mut export = Export::default();

    for kind in kinds() {
        let selection = Selection::all(&kind.resource, namespace.filter(|_| kind.is_namespaced));
        let listed = list(&cluster, &selection, &Wanted::Whole, |object| export.add(&kind, object)).await;
        if let Err(incomplete) = listed {
            export.missing.push(incomplete.source.to_string());
        }
    }
    export.add_occupied_providers();
    // Worlds are read last: they contain at least everything that the Machines refer to.
    export.add_worlds(&cluster).await;

    export.write(console)?;
    Ok(if export.missing.is_empty() { Ending::Done } else { Ending::Partial })
}

/// Returns the kinds in the order of the export.
fn kinds() -> Vec<KnownKind> {
    let mut kinds = KnownKind::all();
    let rank = |kind: &KnownKind| {
        let index = ORDER.iter().position(|name| *name == kind.resource.kind);
        index.map_or(2 * ORDER.len() - 3, |index| 2 * index)
    };
    kinds.sort_by_key(rank);
    kinds
}

/// The objects of an export, and what the comments at its top list.
#[derive(Debug, Default)]
struct Export {
    objects: Vec<Value>,
    /// Required Secrets.
    secrets: BTreeSet<String>,
    /// Required Namespaces.
    namespaces: BTreeSet<String>,
    /// Objects that are left out because they are being deleted.
    deleting: Vec<String>,
    missing: Vec<String>,
    /// Providers that are being deleted, by `namespace/name`.
    deleting_providers: BTreeMap<String, Value>,
    /// Providers that have Machines, by `namespace/name`.
    occupied: BTreeSet<String>,
    /// Providers that are exported although they are being deleted.
    retained: Vec<String>,
    /// The names of the providers' states that are stored in the control plane.
    worlds: BTreeSet<String>,
}

impl Export {
    /// Adds an object that was listed.
    fn add(&mut self, kind: &KnownKind, object: Value) {
        let namespace = text(&object, "/metadata/namespace");
        if object.pointer("/metadata/deletionTimestamp").is_some() {
            let name = [namespace, text(&object, "/metadata/name")].join("/");
            let name = name.trim_start_matches('/').to_owned();
            if kind.resource.kind == PROVIDER {
                self.deleting_providers.insert(name, object);
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
        self.include(kind, object);
    }

    /// Records a required Namespace, unless every cluster has it.
    fn require_namespace(&mut self, namespace: String) {
        if !namespace.is_empty() && namespace != "default" {
            self.namespaces.insert(namespace);
        }
    }

    /// Includes an object and records what it requires.
    fn include(&mut self, kind: &KnownKind, mut object: Value) {
        let namespace = text(&object, "/metadata/namespace").to_owned();
        for pointer in ["/spec/credentials/secretRef/name", "/spec/cloudInit/secretRef/name"] {
            let name = text(&object, pointer);
            if !name.is_empty() {
                self.secrets.insert(format!("{namespace}/{name}"));
            }
        }

        if kind.resource.kind == PROVIDER
            && let Ok(provider) = vitistack_types::decode::<MachineProvider>(object.clone())
            && let Some(world) = backend_type(provider.spec.type_).exported_state(&provider)
        {
            self.worlds.insert(world);
            set_identity(&mut object, identity(&provider));
        }
        self.require_namespace(namespace);
        self.objects.push(portable(&kind.resource, object));
    }

    /// Includes providers that are being deleted but still have Machines, which could not be restored without them.
    fn add_occupied_providers(&mut self) {
        let Some(kind) = kinds().into_iter().find(|kind| kind.resource.kind == PROVIDER) else { return };
        for (name, object) in std::mem::take(&mut self.deleting_providers) {
            if self.occupied.contains(&name) {
                self.retained.push(format!("{PROVIDER} {name}"));
                let end = self.first(|kind| ["Datacenter", "Machine"].contains(&kind));
                let rest = self.objects.split_off(end);
                self.include(&kind, object);
                self.objects.extend(rest);
            } else {
                self.deleting.push(format!("{PROVIDER} {name}"));
            }
        }
    }

    /// Returns the index of the first object of matching kinds, or the end.
    fn first(&self, matches: impl Fn(&str) -> bool) -> usize {
        self.objects.iter().position(|object| matches(text(object, "/kind"))).unwrap_or(self.objects.len())
    }

    /// Adds the states of providers that are stored only in the control plane. A world is valid once its head
    /// exists, so the head is its last object: an operator that reads it finds the complete world.
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
            let name = text(&object, "/metadata/name");
            namespaces.insert(text(&object, "/metadata/namespace").to_owned());
            objects.push(((world.to_owned(), name == world, name.to_owned()), portable(&resource, object)));
        });
        if let Err(incomplete) = listed.await {
            self.missing.push(incomplete.source.to_string());
        }

        for namespace in namespaces {
            self.require_namespace(namespace);
        }
        objects.sort_by(|(one, _), (other, _)| one.cmp(other));
        let index = self.first(|kind| kind == PROVIDER);
        self.objects.splice(index..index, objects.into_iter().map(|(_, object)| object));
    }

    fn write(&self, console: &mut Console<'_>) -> Result<(), Error> {
        for missing in &self.missing {
            write_line(console.output, format_args!("# Incomplete: {missing}")).context(WriteOutputSnafu)?;
            write_line(console.errors, format_args!("vitistack: {missing}")).context(WriteOutputSnafu)?;
        }
        for name in &self.namespaces {
            write_line(console.output, format_args!("# Requires, not included: Namespace {name}"))
                .context(WriteOutputSnafu)?;
        }
        for name in &self.secrets {
            write_line(console.output, format_args!("# Requires, not included: Secret {name}"))
                .context(WriteOutputSnafu)?;
        }
        for name in &self.deleting {
            write_line(console.output, format_args!("# Not included, being deleted: {name}"))
                .context(WriteOutputSnafu)?;
        }
        for name in &self.retained {
            let note = "is being deleted, and included because it has Machines";
            write_line(console.output, format_args!("# Note: {name} {note}")).context(WriteOutputSnafu)?;
        }
        for object in &self.objects {
            let yaml = serde_saphyr::to_string(object).context(WriteObjectSnafu)?;
            document(&yaml, console)?;
        }
        Ok(())
    }
}

/// Returns an object without the fields of its server, so that it can be applied to another one.
fn portable(resource: &ApiResource, mut object: Value) -> Value {
    let mut metadata = take(&mut object, "metadata");
    if let Some(fields) = metadata.as_object_mut() {
        fields.retain(|field, _| !SERVER_FIELDS.contains(&field.as_str()));
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
        let content = take(&mut object, field);
        if !content.is_null() {
            portable.insert(field.to_owned(), content);
        }
    }
    Value::Object(portable)
}

/// Removes a field of an object and returns it; null if it is absent.
fn take(object: &mut Value, field: &str) -> Value {
    object.get_mut(field).map(Value::take).unwrap_or_default()
}

/// Sets the identity annotation, for an object that was identified by its UID only.
fn set_identity(object: &mut Value, identity: &str) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(labels::IDENTITY.to_owned(), identity.into());
    }
}
