//! Stops managing machines: deletes their objects and keeps the backing machines.
//!
//! The order protects the backing machine: first the operators are paused, then a record of what remains is written, then
//! the Machine is removed from the owners of all objects, and only then is it deleted.

mod dependents;
mod record;

use std::time::Duration;

use clap::Args;
use k8s_openapi::{api::authorization::v1::ResourceAttributes, jiff::Timestamp};
use kube::{
    ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use serde_json::{Value, json};
use snafu::ResultExt;
use tokio::time::{Instant, sleep};
use vitistack_clients::kubernetes::is_conflict;
use vitistack_plan::machine::{NotReleasable, has_finalizer, identity, release};
use vitistack_types::{
    GROUP,
    conditions::{self, is_true},
    labels,
    v1alpha1::Machine,
};

use self::{dependents::Dependent, record::Record};
use super::{
    Ending, Error, WriteOutputSnafu,
    targets::{TargetsArgs, confirm},
};
use crate::{
    args::ClusterArgs,
    cluster::{
        Cluster,
        change::{
            AwaitPauseSnafu, ChangeDeletedSnafu, ChangeError, FIELD_MANAGER, MeetChangeSnafu,
            PermitReleaseSnafu, ReleaseForeignSnafu, ReleaseNothingSnafu, decode, is_paused, patch, read,
        },
        in_namespace,
        kinds::{Named, Target},
    },
    manifests::roles,
    printing::{Console, write_line},
};

/// How long an operator may take to confirm the pause.
const PAUSE_TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The arguments of `vitistack release`.
#[derive(Args, Debug)]
#[command(
    after_help = "The backing machine keeps running, with its disks. The ConfigMap released-NAME records what remains.
With --all or --selector, machines that cannot be released are skipped and reported.
The verb \"update\" on machines/release is required, which the ClusterRole vitistack-platform-editor contains.

Examples:
  # Show what would be done
  vitistack release machine/web-1 --dry-run

  # Release two machines
  vitistack release web-1 web-2

  # Release machines by label, without confirmation
  vitistack release -l app=web -n shop --yes

  # List the records of released machines
  kubectl get configmaps -l vitistack.io/released=true

Exit status: 0 success, 1 failure, 2 changes pending (--dry-run)"
)]
pub struct ReleaseArgs {
    /// Do not ask for confirmation, with --all or --selector
    #[arg(short, long)]
    yes: bool,
    /// Do not wait for an operator to confirm the pause; use it only if no operator is running
    #[arg(long)]
    without_operator: bool,
    #[command(flatten)]
    targets: TargetsArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Releases the machines. All are checked before the first is changed.
pub async fn run(arguments: &ReleaseArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let targets = &arguments.targets;
    let named = targets.read_machines()?;
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let releases = find(&cluster, targets, named, console).await?;
    if releases.is_empty() {
        return Ok(Ending::Done);
    }

    if targets.dry_run {
        for release in &releases {
            release.preview(console, arguments.without_operator).context(WriteOutputSnafu)?;
        }
        return Ok(Ending::Change);
    }
    if targets.is_selection() && !arguments.yes {
        let count = releases.len();
        let question = format_args!(
            "Releasing {count} Machines deletes the objects and keeps their backing machines and disks.\nRelease {count} Machines?"
        );
        confirm("release", count, question, console)?;
    }

    for release in releases {
        release.pause(&cluster, arguments.without_operator).await?;
        let object = read(&cluster, &release.target).await?;
        let release = Release::new(&cluster, release.target, object).await?;
        release.write(&cluster, false).await?;
        let (title, record) = (release.target.title(), release.record.name());
        let namespace = in_namespace(release.target.found_in.as_deref());
        write_line(
            console.output,
            format_args!("{title} released{namespace}; ConfigMap {record} records what remains"),
        )
        .context(WriteOutputSnafu)?;
    }
    Ok(Ending::Done)
}

/// Returns the releases that are possible.
async fn find(
    cluster: &Cluster,
    targets: &TargetsArgs,
    named: Named,
    console: &mut Console<'_>,
) -> Result<Vec<Release>, Error> {
    let found = targets.find(cluster, named).await?;
    if found.is_empty() {
        targets.report_none(cluster, console)?;
    }
    let mut releases = Vec::new();
    for (target, object) in found {
        check_permission(cluster, &target).await?;
        let release = Release::new(cluster, target, object).await?;
        let was_begun = release.record.is_written(cluster).await?;
        if targets.accepts(release.check(was_begun), console)? {
            releases.push(release);
        }
    }

    // A dry run of all requests first: a release must not stop halfway.
    for release in &releases {
        release.write(cluster, true).await?;
    }
    Ok(releases)
}

/// Returns an error if the user may not release the Machine. It comes first, so that a refused release pauses nothing.
async fn check_permission(cluster: &Cluster, target: &Target) -> Result<(), Error> {
    let namespace = target.namespace(cluster).unwrap_or_default().to_owned();
    let permission = ResourceAttributes {
        group: Some(GROUP.to_owned()),
        resource: Some("machines".to_owned()),
        subresource: Some(roles::RELEASE_SUBRESOURCE.to_owned()),
        verb: Some(roles::RELEASE_VERB.to_owned()),
        namespace: Some(namespace.clone()),
        name: Some(target.name.clone()),
        ..ResourceAttributes::default()
    };
    if cluster.may(&permission).await? {
        return Ok(());
    }
    Ok(PermitReleaseSnafu { target: target.title(), namespace }.fail()?)
}

/// A Machine to release, and everything that concerns it.
struct Release {
    target: Target,
    object: DynamicObject,
    machine: Machine,
    /// The objects with the identity of the Machine, in its namespace.
    dependents: Vec<Dependent>,
    record: Record,
}

impl Release {
    async fn new(cluster: &Cluster, target: Target, object: DynamicObject) -> Result<Self, Error> {
        let machine: Machine = decode(&target.title(), &object)?;
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let dependents = dependents::find(cluster, &namespace, &identity(&machine)).await?;
        let record = Record::new(&machine, &dependents, Timestamp::now());
        Ok(Self { target, object, machine, dependents, record })
    }

    /// Returns an error if the Machine cannot be released. `was_begun` is true if an earlier release was interrupted.
    fn check(&self, was_begun: bool) -> Result<(), ChangeError> {
        let target = self.target.title();
        match release(&self.machine, was_begun) {
            Ok(()) => Ok(()),
            Err(NotReleasable::Deleting) => {
                let fix = "its backing machine is deleted with it and can no longer be kept";
                ChangeDeletedSnafu { target, fix }.fail()
            }
            Err(NotReleasable::NotAdopted) => ReleaseForeignSnafu { target }.fail(),
            Err(NotReleasable::NothingCreated) => ReleaseNothingSnafu { target }.fail(),
        }
    }

    /// Returns the objects that the Machine owns.
    fn owned(&self) -> impl Iterator<Item = &Dependent> {
        let uid = self.object.uid().unwrap_or_default();
        self.dependents.iter().filter(move |dependent| dependent.is_owned_by(&uid))
    }

    /// Prints what the release would do.
    fn preview(&self, console: &mut Console<'_>, without_operator: bool) -> std::io::Result<()> {
        let output = &mut *console.output;
        let (title, namespace) = (self.target.title(), in_namespace(self.target.found_in.as_deref()));
        write_line(output, format_args!("{title}{namespace} would be released:"))?;
        if !is_paused(&self.object) {
            writeln!(output, "  pause it")?;
        }
        if !without_operator {
            writeln!(output, "  wait for an operator to confirm the pause")?;
        }

        write_line(output, format_args!("  write ConfigMap {}:", self.record.name()))?;
        for (key, value) in self.record.data() {
            write_line(output, format_args!("    {key}: {}", value.replace('\n', ", ")))?;
        }
        for dependent in self.owned() {
            write_line(output, format_args!("  remove it from the owners of {dependent}"))?;
        }
        writeln!(output, "  remove its finalizer {} and delete it", labels::MACHINE_CLEANUP)?;
        for other in self.other_finalizers() {
            write_line(output, format_args!("  wait for finalizer {other} to be removed"))?;
        }
        Ok(())
    }

    /// Returns the finalizers that are not those of this platform.
    fn other_finalizers(&self) -> Vec<&String> {
        let all = self.object.metadata.finalizers.iter().flatten();
        all.filter(|finalizer| *finalizer != labels::MACHINE_CLEANUP).collect()
    }

    /// Pauses reconciliation and waits until an operator confirms it: a running reconcile could still write.
    async fn pause(&self, cluster: &Cluster, without_operator: bool) -> Result<(), Error> {
        if !is_paused(&self.object) {
            let annotations = json!({ labels::PAUSED: "true" });
            let change = json!({ "metadata": { "annotations": annotations } });
            patch(cluster, &self.target, &self.object, change, false).await?;
        }
        if without_operator {
            return Ok(());
        }

        let deadline = Instant::now() + PAUSE_TIMEOUT;
        loop {
            let object = read(cluster, &self.target).await?;
            let machine: Machine = decode(&self.target.title(), &object)?;
            if machine.status.is_some_and(|status| is_true(&status.conditions, conditions::PAUSED)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Ok(AwaitPauseSnafu { target: self.target.title() }.fail()?);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Writes the record, removes the Machine from the owners of its objects, and deletes it; with `dry_run` it only checks
    /// that the server accepts all of this.
    async fn write(&self, cluster: &Cluster, dry_run: bool) -> Result<(), Error> {
        self.record.write(cluster, dry_run).await?;
        let uid = self.object.uid().unwrap_or_default();
        for dependent in self.owned() {
            dependent.remove_owner(cluster, &uid, dry_run).await?;
        }

        let namespace = self.object.metadata.namespace.clone().unwrap_or_default();
        if !dry_run {
            let left = dependents::find(cluster, &namespace, &identity(&self.machine)).await?;
            if left.iter().any(|dependent| dependent.is_owned_by(&uid)) {
                return Ok(MeetChangeSnafu { target: self.target.title() }.fail()?);
            }
        }

        let patched = self.remove_finalizer(cluster, dry_run).await?;
        // Objects that are not known here are orphaned by the garbage collector.
        let parameters = DeleteParams {
            dry_run,
            propagation_policy: Some(PropagationPolicy::Orphan),
            preconditions: Some(Preconditions {
                uid: Some(uid),
                resource_version: patched.metadata.resource_version.filter(|_| !dry_run),
            }),
            ..DeleteParams::default()
        };
        let objects = cluster.objects(&self.target.kind, Some(&namespace));
        match objects.delete(&self.target.name, &parameters).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.failure(cluster, "delete", error)),
        }
    }

    /// Removes the finalizer of this platform, unless the object has changed since the operators confirmed the pause.
    async fn remove_finalizer(&self, cluster: &Cluster, dry_run: bool) -> Result<DynamicObject, Error> {
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
        let target = self.target.title();
        if is_conflict(&error) {
            return MeetChangeSnafu { target }.build().into();
        }
        cluster.failure(format!("{verb} {target}"), error).into()
    }
}
