//! Attaches Machines that were restored or moved to their existing backing machines.

use std::collections::{HashMap, HashSet};

use clap::Args;
use json_patch::{AddOperation, Patch, PatchOperation, TestOperation, jsonptr::PointerBuf};
use kube::api::DynamicObject;
use serde_json::json;
use snafu::ResultExt;
use vitistack_plan::machine::{Adoption, Identity, adoption, identity};
use vitistack_types::{labels, v1alpha1::Machine};

use super::{Ending, Error, NameObjectSnafu, WriteOutputSnafu};
use crate::{
    args::{self, AllNamespacesArgs, ClusterArgs},
    cluster::{
        Cluster,
        change::{
            AdoptOwnSnafu, AdoptTwinSnafu, ChangeDeletedSnafu, ChangeError, ConfirmAdoptionSnafu,
            DecodeObjectSnafu, decode, patch_json, read, require_machine,
        },
        in_namespace,
        kinds::{KnownKind, Target},
        listing::{Selection, Wanted, list, text},
    },
    printing::{Console, write_line},
};

/// The arguments of `vitistack adopt`.
#[derive(Args, Debug)]
#[command(
    after_help = "A restored Machine is held until it is adopted, because another control plane may still manage the backing machine. Release the machine there first.

An adopted Machine that lost its annotation vitistack.io/identity, as after applying its original manifest, gets it back.

Examples:
  # Adopt one machine
  vitistack adopt web-1

  # Adopt all restored machines in all namespaces
  vitistack adopt --all -A

  # Adopt machines by label, without confirmation
  vitistack adopt -l app=web -n shop --yes"
)]
pub struct AdoptArgs {
    /// Machines, as machine/NAME or NAME
    #[arg(value_name = "MACHINE", required_unless_present_any = ["all", "selector"], conflicts_with_all = ["all", "selector"])]
    machines: Vec<String>,
    /// Adopt all Machines that wait for adoption
    #[arg(long, conflicts_with = "selector")]
    all: bool,
    /// Adopt the Machines that wait for adoption and match a label selector
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Do not ask for confirmation
    #[arg(short, long, conflicts_with = "machines")]
    yes: bool,
    #[command(flatten)]
    namespaces: AllNamespacesArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Adopts the Machines. All are checked before the first is changed.
pub async fn run(arguments: &AdoptArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let targets = Target::read_all(&arguments.machines).context(NameObjectSnafu)?;
    targets.iter().try_for_each(require_machine)?;
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let platform = Platform::read(&cluster).await?;

    let candidates = if targets.is_empty() {
        let candidates = platform.waiting(&cluster, arguments).await?;
        if !candidates.is_empty() && !arguments.yes {
            confirm(candidates.len(), console)?;
        }
        candidates
    } else {
        platform.named(&cluster, targets).await?
    };
    if candidates.is_empty() {
        writeln!(console.output, "No Machine is waiting for adoption.").context(WriteOutputSnafu)?;
    }

    for candidate in candidates {
        adopt(&cluster, &candidate).await?;
        let Candidate { target, object, identity, is_repair } = candidate;
        let namespace = object.metadata.namespace.filter(|_| arguments.namespaces.all_namespaces);
        let namespace = in_namespace(namespace.as_deref());
        let (title, result) = (target.title(), if is_repair { "repaired" } else { "adopted" });
        write_line(console.output, format_args!("{title} {result}{namespace}, identity {identity}"))
            .context(WriteOutputSnafu)?;
    }
    Ok(Ending::Done)
}

/// Writes the adoption. An operator may update the status at the same time, so the request does not compare the resource
/// version; it tests the UID and the annotation on which the decision depends: the identity, or for a repair the adoption.
async fn adopt(cluster: &Cluster, candidate: &Candidate) -> Result<(), Error> {
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
    patch_json(cluster, target, object, change).await?;
    Ok(())
}

/// Asks for confirmation. Without a terminal the adoption is refused.
fn confirm(count: usize, console: &mut Console<'_>) -> Result<(), Error> {
    write!(
        console.errors,
        "Adopting {count} Machines attaches them to their existing backing machines, which no other control plane may manage any more.\nAdopt {count} Machines? [y/N] "
    )
    .and_then(|()| console.errors.flush())
    .context(WriteOutputSnafu)?;
    let answer = args::answer();
    if answer.is_none() {
        writeln!(console.errors).context(WriteOutputSnafu)?;
    }
    match answer.as_deref().map(str::trim) {
        Some("y" | "Y" | "yes") => Ok(()),
        _ => Ok(ConfirmAdoptionSnafu { count }.fail()?),
    }
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
    kind: KnownKind,
    machines: Vec<(DynamicObject, Machine)>,
}

impl Platform {
    async fn read(cluster: &Cluster) -> Result<Self, Error> {
        let kind = KnownKind::find("machine").context(NameObjectSnafu)?;
        let mut objects = Vec::new();
        let selection = Selection::all(&kind.resource, None);
        list(cluster, &selection, &Wanted::Whole, |object| objects.push(object))
            .await
            .map_err(|incomplete| incomplete.source)?;

        let decoded = objects.into_iter().map(|object| {
            let target = kind.title_of(&object);
            let object = serde_json::from_value::<DynamicObject>(object).map_err(|error| {
                DecodeObjectSnafu { target: target.clone(), message: error.to_string() }.build()
            })?;
            let machine = decode(&target, &object)?;
            Ok::<_, ChangeError>((object, machine))
        });
        let machines = decoded.collect::<Result<_, _>>()?;
        Ok(Self { kind, machines })
    }

    fn by_identity(&self) -> HashMap<Identity, Vec<&Machine>> {
        let mut all: HashMap<Identity, Vec<&Machine>> = HashMap::new();
        for (_, machine) in &self.machines {
            all.entry(identity(machine)).or_default().push(machine);
        }
        all
    }

    /// Returns the Machines that the user specified.
    async fn named(&self, cluster: &Cluster, targets: Vec<Target>) -> Result<Vec<Candidate>, Error> {
        let twins = self.by_identity();
        let mut candidates = Vec::new();
        for target in targets {
            let name = target.title();
            // A Machine that was created since the list is compared with those of the list.
            let object = read(cluster, &target).await?;
            if object.metadata.deletion_timestamp.is_some() {
                let fix = "restore it again after the deletion";
                return Ok(ChangeDeletedSnafu { target: name, fix }.fail()?);
            }
            let machine: Machine = decode(&name, &object)?;
            match judge(target, object, &machine, &twins)? {
                Ok(candidate) => candidates.push(candidate),
                Err(why) => return Ok(AdoptOwnSnafu { target: name, why }.fail()?),
            }
        }
        Ok(candidates)
    }

    /// Returns the Machines that wait for adoption in the namespace, or in all, and match the label selector.
    async fn waiting(&self, cluster: &Cluster, arguments: &AdoptArgs) -> Result<Vec<Candidate>, Error> {
        let namespace = (!arguments.namespaces.all_namespaces).then_some(cluster.namespace.as_str());
        let selection = Selection {
            labels: arguments.selector.as_deref(),
            ..Selection::all(&self.kind.resource, namespace)
        };
        let mut selected = HashSet::new();
        let wanted = Wanted::paths([".metadata.uid"]);
        list(cluster, &selection, &wanted, |object| {
            selected.insert(text(&object, "/metadata/uid").to_owned());
        })
        .await
        .map_err(|incomplete| incomplete.source)?;

        let twins = self.by_identity();
        let mut candidates = Vec::new();
        for (object, machine) in &self.machines {
            let metadata = &object.metadata;
            let is_selected = metadata.uid.as_ref().is_some_and(|uid| selected.contains(uid));
            if is_selected && metadata.deletion_timestamp.is_none() {
                let name = metadata.name.clone().unwrap_or_default();
                let target = Target { kind: self.kind.clone(), name };
                candidates.extend(judge(target, object.clone(), machine, &twins)?);
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
