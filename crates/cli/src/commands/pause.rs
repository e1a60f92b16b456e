//! Pauses and resumes reconciliation of objects.

use clap::Args;
use serde_json::{Value, json};
use snafu::ResultExt;
use vitistack_types::labels;

use super::{Ending, Error, WriteOutputSnafu, targets::TargetsArgs};
use crate::{
    args::ClusterArgs,
    cluster::{
        Cluster,
        change::{is_paused, patch},
        in_namespace,
    },
    printing::{Console, write_line},
};

/// The arguments of `vitistack pause`.
#[derive(Args, Debug)]
#[command(after_help = "Operators do not change paused objects or what belongs to them.

Examples:
  # Pause a machine
  vitistack pause machine/web-1

  # Pause a datacenter and a provider
  vitistack pause datacenter/west machineprovider/rack-7 -n shop

  # Pause all datacenters and providers in all namespaces
  vitistack pause datacenters,machineproviders --all -A

Exit status: 0 success, 1 failure, 2 changes pending (--dry-run)")]
pub struct PauseArgs {
    #[command(flatten)]
    targets: TargetsArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The arguments of `vitistack resume`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  # Resume a machine
  vitistack resume machine/web-1

  # Resume machines by label
  vitistack resume machines -l app=web

Exit status: 0 success, 1 failure, 2 changes pending (--dry-run)")]
pub struct ResumeArgs {
    #[command(flatten)]
    targets: TargetsArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Pauses reconciliation.
pub async fn pause(arguments: &PauseArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    set(&arguments.targets, &arguments.cluster, true, console).await
}

/// Resumes reconciliation.
pub async fn resume(arguments: &ResumeArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    set(&arguments.targets, &arguments.cluster, false, console).await
}

/// Sets or removes the annotation of the objects. All are read before the first is changed.
async fn set(
    targets: &TargetsArgs,
    cluster: &ClusterArgs,
    paused: bool,
    console: &mut Console<'_>,
) -> Result<Ending, Error> {
    let named = targets.read()?;
    let cluster = Cluster::connect(cluster).await?;
    let found = targets.find(&cluster, named).await?;
    if found.is_empty() {
        targets.report_none(&cluster, console)?;
    }

    let mut is_pending = false;
    for (target, object) in found {
        let (result, is_change) = match (paused, is_paused(&object)) {
            (true, true) => ("already paused", false),
            (true, false) => ("paused", true),
            (false, true) => ("resumed", true),
            (false, false) => ("not paused", false),
        };
        if is_change {
            let value = if paused { json!("true") } else { Value::Null };
            let change = json!({ "metadata": { "annotations": { labels::PAUSED: value } } });
            patch(&cluster, &target, &object, change, targets.dry_run).await?;
        }

        is_pending |= is_change && targets.dry_run;
        let suffix = if is_change { targets.suffix() } else { "" };
        let (title, namespace) = (target.title(), in_namespace(target.found_in.as_deref()));
        write_line(console.output, format_args!("{title} {result}{namespace}{suffix}"))
            .context(WriteOutputSnafu)?;
    }
    Ok(if is_pending { Ending::Change } else { Ending::Done })
}
