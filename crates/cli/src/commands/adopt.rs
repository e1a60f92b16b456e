//! Gives Machines that were restored or moved the real machines whose identity they carry.

use std::collections::{HashMap, HashSet};

use clap::Args;
use json_patch::{AddOperation, Patch, PatchOperation, TestOperation, jsonptr::PointerBuf};
use kube::api::DynamicObject;
use serde_json::{Value, json};
use snafu::ResultExt;
use vitistack_plan::machine::{Adoption, Identity, adoption, identity};
use vitistack_types::{labels, v1alpha1::Machine};

use super::{Ending, Error, NameObjectSnafu, WriteOutputSnafu};
use crate::{
    args::{self, AllNamespacesArgs},
    change::{
        AdoptOwnSnafu, AdoptTwinSnafu, ChangeDeletedSnafu, ConfirmAdoptionSnafu, decode, patch_json, read,
        refuse_other_kinds, title,
    },
    cluster::{Cluster, ClusterArgs},
    kinds::{KnownKind, Target},
    listing::{Selection, Wanted, list},
    output::Console,
};

/// Which Machines.
#[derive(Args, Debug)]
#[command(
    after_help = "No other control plane may act on the real machines any more: release them there first.\n\nExamples:\n  vitistack adopt web-1\n  vitistack adopt --all -A\n  vitistack adopt -l app=web -n shop --yes"
)]
pub struct AdoptArgs {
    /// Machines, as machine/NAME or NAME
    #[arg(value_name = "MACHINE", required_unless_present_any = ["all", "selector"], conflicts_with_all = ["all", "selector"])]
    words: Vec<String>,
    /// Every Machine that waits for it
    #[arg(long, conflicts_with = "selector")]
    all: bool,
    /// Every Machine that waits for it and has these labels
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Do not ask whether the Machines of --all or --selector are to be adopted
    #[arg(short, long, conflicts_with = "words")]
    yes: bool,
    #[command(flatten)]
    namespaces: AllNamespacesArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Adopts them. All are looked at before the first is changed.
pub async fn run(arguments: &AdoptArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let targets = Target::read_all(&arguments.words).context(NameObjectSnafu)?;
    targets.iter().try_for_each(refuse_other_kinds)?;
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let platform = Platform::read(&cluster).await?;
    let chosen = if targets.is_empty() {
        let chosen = platform.waiting(&cluster, arguments).await?;
        if !chosen.is_empty() && !arguments.yes {
            confirm(chosen.len(), console)?;
        }
        chosen
    } else {
        platform.named(&cluster, targets).await?
    };
    if chosen.is_empty() {
        writeln!(console.output, "no Machine waits to be adopted").context(WriteOutputSnafu)?;
    }
    for chosen in chosen {
        adopt(&cluster, &chosen).await?;
        let Chosen { target, object, identity } = chosen;
        let place = object.metadata.namespace.filter(|_| arguments.namespaces.all_namespaces);
        let place = place.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
        writeln!(console.output, "{}{place} has the identity {identity} now", title(&target))
            .context(WriteOutputSnafu)?;
    }
    Ok(Ending::Done)
}

/// Writes it down. An operator that tells something of the Machine meanwhile changes its version, but nothing that was
/// looked at: its UID, which is written, and its identity, which is compared in the same request.
async fn adopt(cluster: &Cluster, chosen: &Chosen) -> Result<(), Error> {
    let Chosen { target, object, identity } = chosen;
    let path = |annotation: &'static str| PointerBuf::from_tokens(["metadata", "annotations", annotation]);
    let uid = json!(object.metadata.uid);
    let (own, carried) = (PointerBuf::from_tokens(["metadata", "uid"]), path(labels::IDENTITY));
    let change = Patch(vec![
        PatchOperation::Test(TestOperation { path: own, value: uid.clone() }),
        PatchOperation::Test(TestOperation { path: carried, value: json!(identity.as_str()) }),
        PatchOperation::Add(AddOperation { path: path(labels::ADOPTED), value: uid }),
    ]);
    patch_json(cluster, target, object, change).await?;
    Ok(())
}

/// Asks whoever sits there; nobody else can have meant it.
fn confirm(count: usize, console: &mut Console<'_>) -> Result<(), Error> {
    write!(
        console.errors,
        "{count} Machines get the real machines whose identity they carry. No other control plane may act on those any more.\nAdopt {count} Machines? [y/N] "
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

/// A Machine that may be adopted.
struct Chosen {
    target: Target,
    object: DynamicObject,
    identity: Identity,
}

/// Every Machine of the cluster. A twin may be in any namespace: whoever may not look there cannot know that there is none.
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
            let name = kind.name_of(&object);
            let object = serde_json::from_value::<DynamicObject>(object).map_err(|error| {
                crate::change::ChangeError::DecodeObject { target: name.clone(), message: error.to_string() }
            })?;
            let machine = decode(&name, &object)?;
            Ok::<_, crate::change::ChangeError>((object, machine))
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

    /// Those that a user named.
    async fn named(&self, cluster: &Cluster, targets: Vec<Target>) -> Result<Vec<Chosen>, Error> {
        let twins = self.by_identity();
        let mut chosen = Vec::new();
        for target in targets {
            let name = title(&target);
            // One that was made since is judged among those that were there before.
            let object = read(cluster, &target).await?;
            if object.metadata.deletion_timestamp.is_some() {
                let fix = "restore it again once it is gone";
                return Ok(ChangeDeletedSnafu { target: name, fix }.fail()?);
            }
            let machine: Machine = decode(&name, &object)?;
            match judge(target, object, &machine, &twins)? {
                Ok(one) => chosen.push(one),
                Err(why) => return Ok(AdoptOwnSnafu { target: name, why }.fail()?),
            }
        }
        Ok(chosen)
    }

    /// Those that wait for it in the namespace, or in all, and have the labels.
    async fn waiting(&self, cluster: &Cluster, arguments: &AdoptArgs) -> Result<Vec<Chosen>, Error> {
        let namespace = (!arguments.namespaces.all_namespaces).then_some(cluster.namespace.as_str());
        let selection = Selection {
            labels: arguments.selector.as_deref(),
            ..Selection::all(&self.kind.resource, namespace)
        };
        let mut selected = HashSet::new();
        let wanted = Wanted::paths([".metadata.uid"]);
        let uid = |object: &Value| object.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
        list(cluster, &selection, &wanted, |object| selected.extend(uid(&object)))
            .await
            .map_err(|incomplete| incomplete.source)?;
        let twins = self.by_identity();
        let mut chosen = Vec::new();
        for (object, machine) in &self.machines {
            let metadata = &object.metadata;
            let is_selected = metadata.uid.as_ref().is_some_and(|uid| selected.contains(uid));
            if is_selected && metadata.deletion_timestamp.is_none() {
                let name = metadata.name.clone().unwrap_or_default();
                let target = Target { kind: self.kind.clone(), name };
                chosen.extend(judge(target, object.clone(), machine, &twins)?);
            }
        }
        Ok(chosen)
    }
}

/// Whether a Machine may be adopted, or why it needs not.
fn judge(
    target: Target,
    object: DynamicObject,
    machine: &Machine,
    twins: &HashMap<Identity, Vec<&Machine>>,
) -> Result<Result<Chosen, &'static str>, Error> {
    let identity = identity(machine);
    let same = twins.get(&identity).map(Vec::as_slice).unwrap_or_default();
    match adoption(machine, same) {
        Adoption::Possible { .. } => Ok(Ok(Chosen { target, object, identity })),
        Adoption::NotNeeded { why } => Ok(Err(why)),
        Adoption::HeldBy { twin } => Ok(AdoptTwinSnafu { target: title(&target), twin }.fail()?),
    }
}
