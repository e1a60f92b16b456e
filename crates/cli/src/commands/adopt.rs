//! Attaches Machines that were restored or moved to their existing backing machines.

use std::collections::HashMap;

use clap::Args;
use json_patch::{AddOperation, Patch, PatchOperation, TestOperation, jsonptr::PointerBuf};
use kube::api::DynamicObject;
use serde_json::json;
use snafu::ResultExt;
use vitistack_plan::machine::{Adoption, Identity, adoption, identity};
use vitistack_types::{labels, v1alpha1::Machine};

use super::{
    Ending, Error, NameObjectSnafu, WriteOutputSnafu,
    targets::{TargetsArgs, confirm},
};
use crate::{
    args::ClusterArgs,
    cluster::{
        Cluster,
        change::{
            AdoptOwnSnafu, AdoptTwinSnafu, ChangeDeletedSnafu, ChangeError, DecodeObjectSnafu, decode,
            patch_json,
        },
        in_namespace,
        kinds::{KnownKind, MACHINE, Target},
        listing::{Selection, Wanted, list},
    },
    printing::{Console, write_line},
};

/// The arguments of `vitistack adopt`.
#[derive(Args, Debug)]
#[command(
    after_help = "A restored Machine is held until it is adopted, because another control plane may still manage the backing machine. Release the machine there first.

With --all or --selector, only the Machines that wait for adoption are adopted.

An adopted Machine that lost its annotation vitistack.io/identity, as after applying its original manifest, gets it back.

Examples:
  # Adopt one machine
  vitistack adopt web-1

  # Adopt all restored machines in all namespaces
  vitistack adopt --all -A

  # Adopt machines by label, without confirmation
  vitistack adopt -l app=web -n shop --yes

Exit status: 0 success, 1 failure, 2 changes pending (--dry-run)"
)]
pub struct AdoptArgs {
    /// Do not ask for confirmation, with --all or --selector
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    targets: TargetsArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Adopts the Machines. All are checked before the first is changed.
pub async fn run(arguments: &AdoptArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let targets = &arguments.targets;
    let named = targets.read_machines()?;
    let cluster = Cluster::connect(&arguments.cluster).await?;
    // A Machine that is created after this list is compared with those of the list.
    let platform = Platform::read(&cluster).await?;
    let found = targets.find(&cluster, named).await?;

    let candidates = platform.candidates(found, targets.is_selection())?;
    if candidates.is_empty() {
        writeln!(console.output, "No Machine is waiting for adoption.").context(WriteOutputSnafu)?;
        return Ok(Ending::Done);
    }
    if targets.is_selection() && !arguments.yes && !targets.dry_run {
        let count = candidates.len();
        let question = format_args!(
            "Adopting {count} Machines attaches them to their existing backing machines, which no other control plane may manage any more.\nAdopt {count} Machines?"
        );
        confirm("adoption", count, question, console)?;
    }

    for candidate in candidates {
        adopt(&cluster, &candidate, targets.dry_run).await?;
        let Candidate { target, identity, is_repair, .. } = candidate;
        let namespace = in_namespace(target.found_in.as_deref());
        let (title, result) = (target.title(), if is_repair { "repaired" } else { "adopted" });
        let suffix = targets.suffix();
        write_line(console.output, format_args!("{title} {result}{namespace}, identity {identity}{suffix}"))
            .context(WriteOutputSnafu)?;
    }
    Ok(if targets.dry_run { Ending::Change } else { Ending::Done })
}

/// Writes the adoption. An operator may update the status at the same time, so the request does not compare the resource
/// version; it tests the UID and the annotation on which the decision depends: the identity, or for a repair the adoption.
async fn adopt(cluster: &Cluster, candidate: &Candidate, dry_run: bool) -> Result<(), Error> {
    let Candidate { target, object, identity, is_repair } = candidate;
    let path = |annotation: &'static str| PointerBuf::from_tokens(["metadata", "annotations", annotation]);
    let uid = json!(object.metadata.uid);
    let identity = (path(labels::IDENTITY), json!(identity.as_str()));
    let adopted = (path(labels::ADOPTED), uid.clone());
    let (tested, added) = if *is_repair { (adopted, identity) } else { (identity, adopted) };

    let own = PointerBuf::from_tokens(["metadata", "uid"]);
    let change = Patch(vec![
        PatchOperation::Test(TestOperation { path: own, value: uid }),
        PatchOperation::Test(TestOperation { path: tested.0, value: tested.1 }),
        PatchOperation::Add(AddOperation { path: added.0, value: added.1 }),
    ]);
    patch_json(cluster, target, object, change, dry_run).await?;
    Ok(())
}

/// A Machine that can be adopted.
struct Candidate {
    target: Target,
    object: DynamicObject,
    identity: Identity,
    /// Whether it was adopted before and lost the identity.
    is_repair: bool,
}

/// Every Machine of the cluster: a Machine with the same identity may be in any namespace.
struct Platform {
    machines: Vec<Machine>,
}

impl Platform {
    async fn read(cluster: &Cluster) -> Result<Self, Error> {
        let kind = KnownKind::find(MACHINE).context(NameObjectSnafu)?;
        let mut objects = Vec::new();
        let selection = Selection::all(&kind.resource, None);
        list(cluster, &selection, &Wanted::Whole, |object| objects.push(object))
            .await
            .map_err(|incomplete| incomplete.source)?;

        let decoded = objects.into_iter().map(|object| {
            let target = kind.title_of(&object);
            vitistack_types::decode(object)
                .map_err(|error| DecodeObjectSnafu { target, message: error.to_string() }.build())
        });
        let machines = decoded.collect::<Result<_, ChangeError>>()?;
        Ok(Self { machines })
    }

    fn by_identity(&self) -> HashMap<Identity, Vec<&Machine>> {
        let mut all: HashMap<Identity, Vec<&Machine>> = HashMap::new();
        for machine in &self.machines {
            all.entry(identity(machine)).or_default().push(machine);
        }
        all
    }

    /// Returns the Machines to adopt. One that does not wait for adoption is left out of a selection, and an error if it
    /// was named.
    fn candidates(
        &self,
        found: Vec<(Target, DynamicObject)>,
        is_selection: bool,
    ) -> Result<Vec<Candidate>, Error> {
        let twins = self.by_identity();
        let mut candidates = Vec::new();
        for (target, object) in found {
            let name = target.title();
            if object.metadata.deletion_timestamp.is_some() {
                if is_selection {
                    continue;
                }
                let fix = "restore it again after the deletion";
                return Ok(ChangeDeletedSnafu { target: name, fix }.fail()?);
            }

            let machine: Machine = decode(&name, &object)?;
            match judge(target, object, &machine, &twins)? {
                Ok(candidate) => candidates.push(candidate),
                Err(_) if is_selection => {}
                Err(why) => return Ok(AdoptOwnSnafu { target: name, why }.fail()?),
            }
        }
        Ok(candidates)
    }
}

/// Returns the candidate, or why the Machine does not need to be adopted.
fn judge(
    target: Target,
    object: DynamicObject,
    machine: &Machine,
    twins: &HashMap<Identity, Vec<&Machine>>,
) -> Result<Result<Candidate, &'static str>, Error> {
    let identity = identity(machine);
    let same = twins.get(&identity).map(Vec::as_slice).unwrap_or_default();
    match adoption(machine, same) {
        Adoption::Possible { .. } => Ok(Ok(Candidate { target, object, identity, is_repair: false })),
        Adoption::Repairable { identity } => Ok(Ok(Candidate { target, object, identity, is_repair: true })),
        Adoption::NotNeeded { why } => Ok(Err(why)),
        Adoption::HeldBy { twin } => {
            Ok(AdoptTwinSnafu { target: target.title(), twin: twin.to_string() }.fail()?)
        }
    }
}
