//! Prints every object so that it can be restored, here or on another control plane.

use std::collections::BTreeSet;

use clap::Args;
use serde_json::{Map, Value};
use snafu::ResultExt;
use vitistack_types::labels;

use super::{Ending, Error, WriteObjectSnafu, WriteOutputSnafu, document};
use crate::{
    args::AllNamespacesArgs,
    cluster::{Cluster, ClusterArgs},
    kinds::KnownKind,
    listing::{Selection, Wanted, list},
    output::Console,
};

/// What is needed first comes first. A kind that is not named here comes before the machines.
const ORDER: [&str; 5] = ["MachineClass", "NetworkConfiguration", "MachineProvider", "Datacenter", "Machine"];

/// The fields of an object that belong to the server it lives on.
const SERVERS_OWN: [&str; 9] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "uid",
];

/// Annotations that mean nothing for another object: what kubectl remembers, and whose identity this uid confirmed.
const BOUND_ANNOTATIONS: [&str; 2] = ["kubectl.kubernetes.io/last-applied-configuration", labels::ADOPTED];

/// Which objects.
#[derive(Args, Debug)]
#[command(
    after_help = "A Machine keeps its identity: where it is restored, it is held until `vitistack adopt`. Secrets are not exported; a comment at the top names those that are needed.\n\nExamples:\n  vitistack export -A > platform.yaml\n  vitistack export -n shop | kubectl --context other apply --server-side -f -"
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
    deleting: Vec<String>,
    missing: Vec<String>,
}

impl Exported {
    fn add(&mut self, kind: &KnownKind, object: Value) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let namespace = text("/metadata/namespace");
        if object.pointer("/metadata/deletionTimestamp").is_some() {
            let name = [namespace, text("/metadata/name")].join("/");
            self.deleting.push(format!("{} {}", kind.resource.kind, name.trim_start_matches('/')));
            return;
        }
        for pointer in ["/spec/credentials/secretRef/name", "/spec/cloudInit/secretRef/name"] {
            let name = text(pointer);
            if !name.is_empty() {
                self.secrets.insert(format!("{namespace}/{name}"));
            }
        }
        self.objects.push(portable(kind, object));
    }

    fn write(&self, console: &mut Console<'_>) -> Result<(), Error> {
        for missing in &self.missing {
            writeln!(console.output, "# Incomplete: {missing}").context(WriteOutputSnafu)?;
            writeln!(console.errors, "vitistack: {missing}").context(WriteOutputSnafu)?;
        }
        for name in &self.secrets {
            writeln!(console.output, "# Needs, and has not: Secret {name}").context(WriteOutputSnafu)?;
        }
        for name in &self.deleting {
            writeln!(console.output, "# Left out, being deleted: {name}").context(WriteOutputSnafu)?;
        }
        for object in &self.objects {
            let yaml = serde_saphyr::to_string(object).context(WriteObjectSnafu)?;
            document(&yaml, console)?;
        }
        Ok(())
    }
}

/// The object without what belongs to its server: what is left can be applied anywhere.
fn portable(kind: &KnownKind, mut object: Value) -> Value {
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
    portable.insert("apiVersion".to_owned(), kind.resource.api_version.clone().into());
    portable.insert("kind".to_owned(), kind.resource.kind.clone().into());
    portable.insert("metadata".to_owned(), metadata);
    portable.insert("spec".to_owned(), taken(&mut object, "spec"));
    Value::Object(portable)
}
