//! Gives a Machine that was restored or moved the real machine whose identity it carries.

use clap::Args;
use kube::api::ListParams;
use serde_json::json;
use snafu::ResultExt;
use vitistack_plan::machine::{Adoption, adoption};
use vitistack_types::{labels, v1alpha1::Machine};

use super::{Ending, Error, NameObjectSnafu, WriteOutputSnafu};
use crate::{
    change::{
        AdoptOwnSnafu, AdoptTwinSnafu, ChangeDeletedSnafu, TargetsArgs, decode, patch, read,
        refuse_other_kinds, title,
    },
    cluster::{Cluster, ClusterArgs},
    kinds::Target,
    output::Console,
};

/// Which Machines.
#[derive(Args, Debug)]
#[command(
    after_help = "No other control plane may act on the real machine any more: release it there first.\n\nExample:\n  vitistack adopt machine/web-1"
)]
pub struct AdoptArgs {
    #[command(flatten)]
    targets: TargetsArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Adopts them.
pub async fn run(arguments: &AdoptArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let targets = arguments.targets.read().context(NameObjectSnafu)?;
    let cluster = Cluster::connect(&arguments.cluster).await?;
    for target in targets {
        adopt(&cluster, &target, console).await?;
    }
    Ok(Ending::Done)
}

async fn adopt(cluster: &Cluster, target: &Target, console: &mut Console<'_>) -> Result<(), Error> {
    refuse_other_kinds(target)?;
    let name = title(target);
    let object = read(cluster, target).await?;
    if object.metadata.deletion_timestamp.is_some() {
        let fix = "restore it again once it is gone";
        return Ok(ChangeDeletedSnafu { target: name, fix }.fail()?);
    }
    let machine: Machine = decode(&name, &object)?;
    // A twin may be in any namespace: whoever may not look there cannot know that there is none.
    let listed = cluster.objects(&target.kind, None).list(&ListParams::default()).await;
    let listed = listed.map_err(|error| cluster.failure("list machines in all namespaces", error))?;
    let others = listed.iter().map(|other| decode::<Machine>(&name, other)).collect::<Result<Vec<_>, _>>()?;
    let uid = match adoption(&machine, &others) {
        Adoption::Possible { uid } => uid,
        Adoption::NotNeeded { why } => return Ok(AdoptOwnSnafu { target: name, why }.fail()?),
        Adoption::HeldBy { twin } => return Ok(AdoptTwinSnafu { target: name, twin }.fail()?),
    };
    let annotations = json!({ labels::ADOPTED: uid });
    // What was decided holds for this version of the object only.
    let metadata = json!({ "annotations": annotations, "resourceVersion": object.metadata.resource_version });
    patch(cluster, target, &object, json!({ "metadata": metadata })).await?;
    writeln!(console.output, "{name} has the identity {} now", vitistack_plan::machine::identity(&machine))
        .context(WriteOutputSnafu)?;
    Ok(())
}
