//! Stops all action on objects, and lets it go on.

use clap::Args;
use serde_json::{Value, json};
use snafu::ResultExt;
use vitistack_types::labels;

use super::{Ending, Error, NameObjectSnafu, WriteOutputSnafu};
use crate::{
    change::{TargetsArgs, is_paused, patch, read, title},
    cluster::{Cluster, ClusterArgs},
    output::Console,
};

/// Which objects to leave alone.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vitistack pause machine/web-1\n  vitistack pause datacenter/west machineprovider/rack-7 -n shop"
)]
pub struct PauseArgs {
    #[command(flatten)]
    targets: TargetsArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Which objects to act on again.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vitistack resume machine/web-1")]
pub struct ResumeArgs {
    #[command(flatten)]
    targets: TargetsArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Stops all action.
pub async fn pause(arguments: &PauseArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    set(&arguments.targets, &arguments.cluster, true, console).await
}

/// Lets it go on.
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
        let told = match (paused, is_paused(&object)) {
            (true, true) => "is paused already",
            (true, false) => "is paused",
            (false, true) => "goes on",
            (false, false) => "is not paused",
        };
        if paused != is_paused(&object) {
            let value = if paused { json!("true") } else { Value::Null };
            let annotations = json!({ labels::PAUSED: value });
            patch(&cluster, &target, &object, json!({ "metadata": { "annotations": annotations } })).await?;
        }
        writeln!(console.output, "{} {told}", title(&target)).context(WriteOutputSnafu)?;
    }
    Ok(Ending::Done)
}
