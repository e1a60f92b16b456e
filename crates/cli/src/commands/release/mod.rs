//! Lets go of a machine: its object goes, the real machine stays.
//!
//! The order is what keeps the real machine: the operators stay away first, then a record of what remains is written,
//! then nothing in the cluster belongs to the Machine any more, and only then does it go.

mod dependents;
mod record;

use std::time::Duration;

use clap::Args;
use k8s_openapi::jiff::Timestamp;
use kube::{
    ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use serde_json::{Value, json};
use snafu::ResultExt;
use tokio::time::{Instant, sleep};
use vitistack_clients::kubernetes::is_conflict;
use vitistack_plan::machine::{Kept, has_finalizer, identity, release};
use vitistack_types::{
    conditions::{self, is_true},
    labels,
    v1alpha1::Machine,
};

use self::{dependents::Dependent, record::Record};
use super::{Ending, Error, NameObjectSnafu, WriteOutputSnafu};
use crate::{
    change::{
        AwaitPauseSnafu, ChangeDeletedSnafu, FIELD_MANAGER, MeetChangeSnafu, ReleaseForeignSnafu,
        ReleaseNothingSnafu, decode, is_paused, patch, read, refuse_other_kinds, title,
    },
    cluster::{Cluster, ClusterArgs},
    kinds::Target,
    output::Console,
};

/// How long an operator may take to say that it leaves the object alone.
const PAUSED_WITHIN: Duration = Duration::from_mins(1);
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Which machine.
#[derive(Args, Debug)]
#[command(
    after_help = "The machine keeps running, with its disks. A ConfigMap released-NAME tells what it is, so that it can be found again.\n\nExamples:\n  vitistack release machine/web-1 --dry-run\n  vitistack release machine web-1\n  kubectl get configmaps -l vitistack.io/released=true"
)]
pub struct ReleaseArgs {
    /// The machine, as machine/NAME, machine NAME or NAME
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME")]
    target: Vec<String>,
    /// Only say what would be done, after the server was asked whether it may be
    #[arg(long)]
    dry_run: bool,
    /// Do not wait until an operator says that it leaves the machine alone; only where none runs
    #[arg(long)]
    without_operator: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Lets go of it.
pub async fn run(arguments: &ReleaseArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let target = Target::read(&arguments.target).context(NameObjectSnafu)?;
    refuse_other_kinds(&target)?;
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let mut found = Found::read(&cluster, target).await?;
    found.refuse(found.record.is_written(&cluster).await?)?;
    // All of it is asked for before any of it is done: half a release is worse than none.
    found.write(&cluster, true).await?;
    if arguments.dry_run {
        found.tell(console, arguments.without_operator).context(WriteOutputSnafu)?;
        return Ok(Ending::Change);
    }
    found.pause(&cluster, arguments.without_operator).await?;
    found = Found::read(&cluster, found.target).await?;
    found.write(&cluster, false).await?;
    writeln!(
        console.output,
        "{} is released; ConfigMap {} tells what remains",
        title(&found.target),
        found.record.name()
    )
    .context(WriteOutputSnafu)?;
    Ok(Ending::Done)
}

/// Everything that a release is about.
struct Found {
    target: Target,
    object: DynamicObject,
    machine: Machine,
    /// What carries the identity in the namespace of the Machine.
    dependents: Vec<Dependent>,
    record: Record,
}

impl Found {
    async fn read(cluster: &Cluster, target: Target) -> Result<Self, Error> {
        let object = read(cluster, &target).await?;
        let machine: Machine = decode(&title(&target), &object)?;
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let dependents = dependents::find(cluster, &namespace, &identity(&machine)).await?;
        let record = Record::new(&machine, &dependents, Timestamp::now());
        Ok(Self { target, object, machine, dependents, record })
    }

    fn refuse(&self, was_begun: bool) -> Result<(), Error> {
        let target = title(&self.target);
        Ok(match release(&self.machine, was_begun) {
            Ok(()) => Ok(()),
            Err(Kept::Deleting) => {
                let fix = "its real machine goes with it, and cannot be kept any more";
                ChangeDeletedSnafu { target, fix }.fail()
            }
            Err(Kept::NotItsOwn) => ReleaseForeignSnafu { target }.fail(),
            Err(Kept::NothingMade) => ReleaseNothingSnafu { target }.fail(),
        }?)
    }

    fn owned(&self) -> impl Iterator<Item = &Dependent> {
        let uid = self.object.uid().unwrap_or_default();
        self.dependents.iter().filter(move |dependent| dependent.belongs_to(&uid))
    }

    fn tell(&self, console: &mut Console<'_>, without_operator: bool) -> std::io::Result<()> {
        let output = &mut console.output;
        writeln!(output, "{} would be released:", title(&self.target))?;
        if !is_paused(&self.object) {
            writeln!(output, "  it is paused")?;
        }
        if !without_operator {
            writeln!(output, "  an operator says that it leaves it alone")?;
        }
        writeln!(output, "  ConfigMap {} is written:", self.record.name())?;
        for (key, value) in self.record.data() {
            writeln!(output, "    {key}: {}", value.replace('\n', ", "))?;
        }
        for dependent in self.owned() {
            writeln!(output, "  {dependent} no longer belongs to it")?;
        }
        writeln!(output, "  it loses its finalizer {} and is deleted", labels::MACHINE_CLEANUP)?;
        for other in self.other_finalizers() {
            writeln!(output, "  it stays until somebody removes its finalizer {other}")?;
        }
        Ok(())
    }

    fn other_finalizers(&self) -> Vec<&String> {
        let all = self.object.metadata.finalizers.iter().flatten();
        all.filter(|finalizer| *finalizer != labels::MACHINE_CLEANUP).collect()
    }

    /// Stops the operators, and waits until they say so: one that is in the middle of something could still write.
    async fn pause(&self, cluster: &Cluster, without_operator: bool) -> Result<(), Error> {
        if !is_paused(&self.object) {
            let annotations = json!({ labels::PAUSED: "true" });
            let change = json!({ "metadata": { "annotations": annotations } });
            patch(cluster, &self.target, &self.object, change).await?;
        }
        if without_operator {
            return Ok(());
        }
        let limit = Instant::now() + PAUSED_WITHIN;
        loop {
            let object = read(cluster, &self.target).await?;
            let machine: Machine = decode(&title(&self.target), &object)?;
            if machine.status.is_some_and(|status| is_true(&status.conditions, conditions::PAUSED)) {
                return Ok(());
            }
            if Instant::now() > limit {
                return Ok(AwaitPauseSnafu { target: title(&self.target) }.fail()?);
            }
            sleep(ASK_EVERY).await;
        }
    }

    /// Writes the record, frees what belongs to the Machine, and lets the Machine go; or asks whether all that may be done.
    async fn write(&self, cluster: &Cluster, dry_run: bool) -> Result<(), Error> {
        self.record.write(cluster, dry_run).await?;
        let uid = self.object.uid().unwrap_or_default();
        for dependent in self.owned() {
            dependent.free(cluster, &uid, dry_run).await?;
        }
        let namespace = self.object.metadata.namespace.clone().unwrap_or_default();
        if !dry_run {
            let left = dependents::find(cluster, &namespace, &identity(&self.machine)).await?;
            if left.iter().any(|dependent| dependent.belongs_to(&uid)) {
                return Ok(MeetChangeSnafu { target: title(&self.target) }.fail()?);
            }
        }
        let freed = self.drop_finalizer(cluster, dry_run).await?;
        // What belongs to it in ways that are not known here is orphaned by the cluster itself.
        let parameters = DeleteParams {
            dry_run,
            propagation_policy: Some(PropagationPolicy::Orphan),
            preconditions: Some(Preconditions {
                uid: Some(uid),
                resource_version: freed.metadata.resource_version.filter(|_| !dry_run),
            }),
            ..DeleteParams::default()
        };
        let objects = cluster.objects(&self.target.kind, Some(&namespace));
        match objects.delete(&self.target.name, &parameters).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.failure(cluster, "delete", error)),
        }
    }

    /// Removes our finalizer, if nothing has changed since the operators were seen to stay away.
    async fn drop_finalizer(&self, cluster: &Cluster, dry_run: bool) -> Result<DynamicObject, Error> {
        if !has_finalizer(&self.machine) {
            return Ok(self.object.clone());
        }
        let change: Value = json!({ "metadata": {
            "uid": self.object.uid(),
            "resourceVersion": self.object.resource_version(),
            "finalizers": self.other_finalizers(),
        } });
        let parameters =
            PatchParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let objects = cluster.objects(&self.target.kind, self.object.metadata.namespace.as_deref());
        let patched = objects.patch(&self.target.name, &parameters, &Patch::Merge(&change)).await;
        patched.map_err(|error| self.failure(cluster, "change", error))
    }

    fn failure(&self, cluster: &Cluster, verb: &str, error: kube::Error) -> Error {
        let target = title(&self.target);
        if is_conflict(&error) {
            return MeetChangeSnafu { target }.build().into();
        }
        cluster.failure(format!("{verb} {target}"), error).into()
    }
}
