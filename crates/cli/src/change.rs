//! What the commands share that change objects: whom they name, how they write, and when they refuse.

use clap::Args;
use kube::{
    ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use snafu::Snafu;
use vitistack_types::labels;

use crate::{
    cluster::{Cluster, RequestError},
    kinds::{NameError, Target},
};

/// The name under which fields are written.
pub const FIELD_MANAGER: &str = "vitistack-cli";

/// Indicates that a change was refused before anything was written.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
pub enum ChangeError {
    /// Indicates that the kind is not a machine.
    #[snafu(display("{target} is no machine: name one as machine/NAME"))]
    NameMachine { target: String },
    /// Indicates that the object is on its way out.
    #[snafu(display("{target} is being deleted: {fix}"))]
    ChangeDeleted { target: String, fix: &'static str },
    /// Indicates that a machine that is off was to be restarted.
    #[snafu(display("{target} shall be off: start it with `vitistack power on {target}`"))]
    RestartStopped { target: String },
    /// Indicates that the machine has the identity already.
    #[snafu(display("{target} needs no adoption: {why}"))]
    AdoptOwn { target: String, why: &'static str },
    /// Indicates that two Machines claim one real machine.
    #[snafu(display(
        "Machine {twin} has the same identity as {target}: delete or release one of the two first"
    ))]
    AdoptTwin { target: String, twin: String },
    /// Indicates that several Machines were to be adopted and nobody confirmed it.
    #[snafu(display("{count} Machines would be adopted and nothing was changed: confirm it with --yes"))]
    ConfirmAdoption { count: usize },
    /// Indicates that nothing real was made that could be kept.
    #[snafu(display("{target} has no real machine yet: delete it with kubectl instead"))]
    ReleaseNothing { target: String },
    /// Indicates that what is there belongs to another Machine.
    #[snafu(display(
        "{target} carries an identity that it was not given: delete it with kubectl, or take it over first with `vitistack adopt {target}`"
    ))]
    ReleaseForeign { target: String },
    /// Indicates that the record of another release is in the way.
    #[snafu(display(
        "ConfigMap {name} tells of another machine that was released: rename or delete it first"
    ))]
    WriteRecord { name: String },
    /// Indicates that no operator says that it stays away from the object.
    #[snafu(display(
        "no operator says yet that it leaves {target} alone; it stays paused: start the operators and try again, or give --without-operator if none runs"
    ))]
    AwaitPause { target: String },
    /// Indicates that the object was changed by somebody else meanwhile.
    #[snafu(display("{target} was changed by somebody else meanwhile; it stays paused: try again"))]
    MeetChange { target: String },
    /// Indicates that the object is not of the form that its definition says.
    #[snafu(display(
        "failed to read {target}: {message}: update the definitions with `vitistack crds | kubectl apply --server-side -f -`"
    ))]
    DecodeObject { target: String, message: String },
}

/// Which objects; flatten it into a command that changes them.
#[derive(Args, Clone, Debug)]
pub struct TargetsArgs {
    /// Objects, as KIND/NAME, or KIND NAME…; a name alone is that of a machine
    #[arg(required = true, value_name = "KIND/NAME")]
    words: Vec<String>,
}

impl TargetsArgs {
    /// Reads the words of a user.
    pub fn read(&self) -> Result<Vec<Target>, NameError> {
        Target::read_all(&self.words)
    }
}

/// How an object is called in messages: `machine/web-1`.
pub fn title(target: &Target) -> String {
    format!("{}/{}", target.kind.resource.kind.to_lowercase(), target.name)
}

/// Reads an object.
pub async fn read(cluster: &Cluster, target: &Target) -> Result<DynamicObject, RequestError> {
    let objects = cluster.objects(&target.kind, target.namespace(cluster));
    objects.get(&target.name).await.map_err(|error| cluster.failure(format!("read {}", title(target)), error))
}

/// An object as the type of its kind.
pub fn decode<K: DeserializeOwned>(target: &str, object: &DynamicObject) -> Result<K, ChangeError> {
    let document = serde_json::to_value(object).map_err(|error| ChangeError::DecodeObject {
        target: target.to_owned(),
        message: error.to_string(),
    })?;
    vitistack_types::decode(document)
        .map_err(|error| ChangeError::DecodeObject { target: target.to_owned(), message: error.to_string() })
}

/// Refuses what is no machine.
pub fn refuse_other_kinds(target: &Target) -> Result<(), ChangeError> {
    let is_machine = target.kind.resource.kind == "Machine";
    if is_machine { Ok(()) } else { NameMachineSnafu { target: title(target) }.fail() }
}

/// Changes a few fields of exactly this object: a successor of its name has another uid, and is left alone.
pub async fn patch(
    cluster: &Cluster,
    target: &Target,
    object: &DynamicObject,
    mut change: Value,
) -> Result<DynamicObject, RequestError> {
    if let Some(fields) = change.as_object_mut()
        && let Some(metadata) = fields.entry("metadata").or_insert_with(|| json!({})).as_object_mut()
    {
        metadata.insert("uid".to_owned(), object.uid().into());
    }
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    cluster
        .objects(&target.kind, object.metadata.namespace.as_deref())
        .patch(&target.name, &parameters, &Patch::Merge(&change))
        .await
        .map_err(|error| cluster.failure(format!("change {}", title(target)), error))
}

/// Changes an object by operations, among which are tests of what must not have changed.
pub async fn patch_json(
    cluster: &Cluster,
    target: &Target,
    object: &DynamicObject,
    change: json_patch::Patch,
) -> Result<DynamicObject, RequestError> {
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    cluster
        .objects(&target.kind, object.metadata.namespace.as_deref())
        .patch(&target.name, &parameters, &Patch::Json::<()>(change))
        .await
        .map_err(|error| cluster.failure(format!("change {}", title(target)), error))
}

/// Whether all action on the object is stopped.
pub fn is_paused(object: &DynamicObject) -> bool {
    object.annotations().get(labels::PAUSED).is_some_and(|value| value == "true")
}
