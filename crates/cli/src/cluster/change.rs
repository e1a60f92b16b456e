//! Shared by the commands that change objects: patches and refusals.

use kube::{
    ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use snafu::Snafu;
use vitistack_types::{Duration, labels};

use super::{Cluster, RequestError, kinds::Target};

/// The field manager of the command line.
pub const FIELD_MANAGER: &str = "vitistack-cli";

/// Refusals before anything is written, and conflicts.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
pub enum ChangeError {
    /// The object is not a Machine.
    #[snafu(display("{target} is not a Machine: use machine/NAME"))]
    NameMachine { target: String },
    /// The object is being deleted.
    #[snafu(display("{target} is being deleted: {fix}"))]
    ChangeDeleted { target: String, fix: &'static str },
    /// A stopped machine cannot be restarted.
    #[snafu(display("{target} is powered off: start it with \"vitistack power on {target}\""))]
    RestartStopped { target: String },
    /// The Machine already owns its identity.
    #[snafu(display("{target} does not need to be adopted: {why}"))]
    AdoptOwn { target: String, why: &'static str },
    /// Two Machines have the same identity.
    #[snafu(display(
        "Machine {twin} has the same identity as {target}: delete or release one of the two first"
    ))]
    AdoptTwin { target: String, twin: String },
    /// A change of several Machines was not confirmed.
    #[snafu(display("{action} of {count} Machines not confirmed, nothing was changed: confirm with --yes"))]
    Confirm { action: &'static str, count: usize },
    /// The status does not report that a restart is complete.
    #[snafu(display(
        "--wait cannot be used with restart, because the phase does not show when a restart is complete: remove --wait and run \"vitistack events --watch\""
    ))]
    AwaitRestart,
    /// The Machines have not reached the phase in time.
    #[snafu(display(
        "timed out after {timeout} waiting for {targets} to reach phase {phase}: run \"vitistack why {first}\" for the cause, or set a longer --timeout"
    ))]
    AwaitPhase { timeout: Duration, targets: String, phase: &'static str, first: String },
    /// The Machine was deleted in the meantime.
    #[snafu(display("{target} was deleted before it reached phase {phase}: create it again"))]
    AwaitDeleted { target: String, phase: &'static str },
    /// The Machine has no backing machine.
    #[snafu(display("{target} has no backing machine yet: delete it with kubectl instead"))]
    ReleaseNothing { target: String },
    /// The backing machine belongs to another Machine.
    #[snafu(display(
        "{target} does not own its identity: delete it with kubectl, or adopt it first with \"vitistack adopt {target}\""
    ))]
    ReleaseForeign { target: String },
    /// The user may not release Machines.
    #[snafu(display(
        "not allowed to release {target}: the verb update on machines/release in namespace {namespace:?} is required: ask an administrator to bind the ClusterRole vitistack-platform-editor to this user in that namespace"
    ))]
    PermitRelease { target: String, namespace: String },
    /// The ConfigMap of the record exists for another machine.
    #[snafu(display(
        "ConfigMap {name} is the record of another released machine: rename or delete it first"
    ))]
    WriteRecord { name: String },
    /// No operator confirmed the pause.
    #[snafu(display(
        "no operator has confirmed that {target} is paused; it stays paused: start the operators and retry, or use --without-operator if none is running"
    ))]
    AwaitPause { target: String },
    /// The object was changed concurrently.
    #[snafu(display("{target} was changed concurrently; it stays paused: retry"))]
    MeetChange { target: String },
    /// The object does not match the CRD of this version.
    #[snafu(display(
        "failed to decode {target}: {message}: update the CRDs with \"vitistack crds | kubectl apply --server-side -f -\""
    ))]
    DecodeObject { target: String, message: String },
}

/// Reads an object.
pub async fn read(cluster: &Cluster, target: &Target) -> Result<DynamicObject, RequestError> {
    let objects = cluster.objects(&target.kind, target.namespace(cluster));
    objects
        .get(&target.name)
        .await
        .map_err(|error| cluster.failure(format!("read {}", target.title()), error))
}

/// Decodes an object into the type of its kind.
pub fn decode<K: DeserializeOwned>(target: &str, object: &DynamicObject) -> Result<K, ChangeError> {
    let failure = |message: String| DecodeObjectSnafu { target, message }.build();
    let document = serde_json::to_value(object).map_err(|error| failure(error.to_string()))?;
    vitistack_types::decode(document).map_err(|error| failure(error.to_string()))
}

/// Merges a change into exactly this object: a new object with the same name has another UID and is not changed.
pub async fn patch(
    cluster: &Cluster,
    target: &Target,
    object: &DynamicObject,
    mut change: Value,
    dry_run: bool,
) -> Result<DynamicObject, RequestError> {
    if let Some(fields) = change.as_object_mut()
        && let Some(metadata) = fields.entry("metadata").or_insert_with(|| json!({})).as_object_mut()
    {
        metadata.insert("uid".to_owned(), object.uid().into());
    }
    send(cluster, target, object, &Patch::Merge(change), dry_run).await
}

/// Applies a JSON patch, which may test what must not have changed.
pub async fn patch_json(
    cluster: &Cluster,
    target: &Target,
    object: &DynamicObject,
    change: json_patch::Patch,
    dry_run: bool,
) -> Result<DynamicObject, RequestError> {
    send(cluster, target, object, &Patch::Json::<()>(change), dry_run).await
}

async fn send<P: Serialize + std::fmt::Debug>(
    cluster: &Cluster,
    target: &Target,
    object: &DynamicObject,
    patch: &Patch<P>,
    dry_run: bool,
) -> Result<DynamicObject, RequestError> {
    let parameters =
        PatchParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    cluster
        .objects(&target.kind, object.metadata.namespace.as_deref())
        .patch(&target.name, &parameters, patch)
        .await
        .map_err(|error| cluster.failure(format!("change {}", target.title()), error))
}

/// Returns whether reconciliation of the object is paused.
pub fn is_paused(object: &DynamicObject) -> bool {
    object.annotations().get(labels::PAUSED).is_some_and(|value| value == "true")
}
