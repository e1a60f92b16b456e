//! Pauses and resumes reconciliation of objects.

use clap::Args;
use serde_json::{Value, json};
use snafu::ResultExt;
use vitistack_types::labels;

use super::{Ending, Error, NameObjectSnafu, WriteOutputSnafu};
use crate::{
    args::ClusterArgs,
    cluster::{
        Cluster,
        change::{TargetsArgs, is_paused, patch, read},
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
  vitistack pause datacenter/west machineprovider/rack-7 -n shop")]
pub struct PauseArgs {
    #[command(flatten)]
    targets: TargetsArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The arguments of `vitistack resume`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  vitistack resume machine/web-1")]
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

async fn set(
    targets: &TargetsArgs,
    cluster: &ClusterArgs,
    paused: bool,
    console: &mut Console<'_>,
) -> Result<Ending, Error> {
    let targets = targets.read().context(NameObjectSnafu)?;
    let cluster = Cluster::connect(cluster).await?;
    let mut found = Vec::new();
    for target in targets {
        let object = read(&cluster, &target).await?;
        found.push((target, object));
    }

    for (target, object) in found {
        let result = match (paused, is_paused(&object)) {
            (true, true) => "already paused",
            (true, false) => "paused",
            (false, true) => "resumed",
            (false, false) => "not paused",
        };
        if paused != is_paused(&object) {
            let value = if paused { json!("true") } else { Value::Null };
            let annotations = json!({ labels::PAUSED: value });
            patch(&cluster, &target, &object, json!({ "metadata": { "annotations": annotations } })).await?;
        }
        write_line(console.output, format_args!("{} {result}", target.title())).context(WriteOutputSnafu)?;
    }
    Ok(Ending::Done)
}
