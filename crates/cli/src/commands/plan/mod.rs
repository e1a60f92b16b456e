//! Shows what files would change, without changing it.

mod difference;
mod lay;

use std::{io, path::PathBuf};

use clap::{Args, ValueEnum};
use serde_json::Value;
use snafu::{ResultExt, Snafu};
use vitistack_machine::capabilities;
use vitistack_plan::preview::{Action, Preview, preview};
use vitistack_types::GROUP;

use self::lay::{Manifest, Overlay};
use super::{Ending, Error, WriteObjectSnafu, WriteOutputSnafu, write_json};
use crate::{
    args::ClusterArgs,
    cluster::Cluster,
    documents::{self, ReadError},
    kinds::KnownKind,
    output::{Console, Tone},
    world::load,
};

/// Indicates that it cannot be said what files would change.
#[derive(Debug, Snafu)]
pub enum PlanError {
    /// Indicates that a file could not be read.
    #[snafu(display("{source}"), context(false))]
    ReadDocuments { source: ReadError },
    /// Indicates that a document names no object of ours.
    #[snafu(display("failed to read {}: {message}", path.display()))]
    NameObject { path: PathBuf, message: String },
    /// Indicates that there is nothing of ours in the files.
    #[snafu(display("there is no object of {GROUP} in the files: `vitistack samples` prints some"))]
    FindObject,
}

/// In which form to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// Lines for people
    Table,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

/// Which files.
#[derive(Args, Debug)]
#[command(
    after_help = "The cluster is asked as for `kubectl apply --server-side --force-conflicts`, but nothing is written: what it refuses is told in its words. Where Machines go, what restarts and what is refused is decided by the code of the operators; what only a provider knows, such as whether it has room, is not foretold. Kinds of others are not looked at, but for the names of the keys of Secrets.

Examples:
  vitistack plan -f machine.yaml
  vitistack plan -f network.yaml -f machines.yaml -o json
  vitistack samples machine-basic | vitistack plan -f -

Exit codes: 0 nothing changes, 1 failed, 2 something changes or is refused, 3 nothing changes as far as could be read."
)]
pub struct PlanArgs {
    /// File with objects, may be given several times; - is standard input
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    filenames: Vec<PathBuf>,
    /// Form of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "table", ignore_case = true)]
    output: PlanFormat,
    /// Who applies the files later: fields that this one set before and the files no longer have are removed
    #[arg(long, value_name = "NAME", default_value = "kubectl")]
    field_manager: String,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Shows it.
pub async fn run(arguments: &PlanArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let (manifests, others) = read(&arguments.filenames)?;
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let loaded = load(&cluster).await?;
    let mut overlay = Overlay::new(loaded);
    for manifest in &manifests {
        overlay.lay(&cluster, manifest, &arguments.field_manager).await?;
    }
    overlay.read_secrets(&cluster, &others).await;
    let Overlay { before, after, changed } = overlay;
    let told = preview(&before, &after.world, &changed, &capabilities);
    let others: Vec<String> = others.iter().map(lay::title).collect();
    match arguments.output {
        PlanFormat::Table => write(&told, console).context(WriteOutputSnafu)?,
        PlanFormat::Json => write_json(&told, console)?,
        PlanFormat::Yaml => {
            let yaml = serde_saphyr::to_string(&told).context(WriteObjectSnafu)?;
            write!(console.output, "{yaml}").context(WriteOutputSnafu)?;
        }
    }
    for missing in &after.missing {
        writeln!(console.errors, "vitistack: not known: {missing}").context(WriteOutputSnafu)?;
    }
    for other in &others {
        writeln!(console.errors, "vitistack: not looked at: {other}, which is of another kind")
            .context(WriteOutputSnafu)?;
    }
    Ok(if told.has_change() {
        Ending::Change
    } else if after.missing.is_empty() && others.is_empty() {
        Ending::Done
    } else {
        Ending::Partial
    })
}

/// The objects of ours in the files, and the documents that are something else.
fn read(paths: &[PathBuf]) -> Result<(Vec<Manifest>, Vec<Value>), PlanError> {
    let kinds = KnownKind::all();
    let (mut manifests, mut others) = (Vec::new(), Vec::new());
    for path in paths {
        for document in documents::read(path)? {
            let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let (version, kind) = (text("/apiVersion"), text("/kind"));
            if document.is_null() {
                continue;
            }
            if version.split('/').next() != Some(GROUP) {
                others.push(document);
                continue;
            }
            let found = kinds
                .iter()
                .find(|known| known.resource.kind == kind && known.resource.api_version == version);
            let refused = |message: String| NameObjectSnafu { path, message }.fail();
            let Some(found) = found else {
                return refused(format!("there is no kind {kind:?} in {version}: see `vitistack summary`"));
            };
            if text("/metadata/name").is_empty() {
                return refused(format!("metadata.name of a {kind} is missing: give it"));
            }
            manifests.push(Manifest { kind: found.clone(), document });
        }
    }
    if manifests.is_empty() {
        return FindObjectSnafu.fail();
    }
    Ok((manifests, others))
}

fn tone(action: Action) -> Tone {
    match action {
        Action::Unchanged => Tone::Faint,
        Action::Create => Tone::Good,
        Action::Change => Tone::Plain,
        Action::Restart => Tone::Waiting,
        Action::Replace | Action::Refuse => Tone::Bad,
    }
}

fn write(told: &Preview, console: &mut Console<'_>) -> io::Result<()> {
    let (terminal, output) = (console.terminal, &mut *console.output);
    for entry in &told.entries {
        let action = format!("{:<9}", entry.action.to_string());
        let indirect = if entry.is_indirect { " (not in the files)" } else { "" };
        writeln!(output, "{} {}{indirect}", terminal.paint(tone(entry.action), &action), entry.object)?;
        for why in &entry.why {
            writeln!(output, "            {why}")?;
        }
    }
    if !told.quotas.is_empty() {
        writeln!(output, "\nUsed:")?;
    }
    for quota in &told.quotas {
        let most = quota.most.as_ref().map(|most| format!(" of {most}")).unwrap_or_default();
        let exceeded = if quota.is_exceeded { ", more than its quota" } else { "" };
        let (datacenter, resource) = (&quota.datacenter, quota.resource);
        writeln!(
            output,
            "  {datacenter}  {resource:<8}  {} → {}{most}{exceeded}",
            quota.before, quota.after
        )?;
    }
    if !told.prices.is_empty() {
        writeln!(output, "\nPrice of all Machines:")?;
    }
    for price in &told.prices {
        writeln!(output, "  {} → {} {} per hour", price.before, price.after, price.currency)?;
    }
    let count = |action: Action| told.entries.iter().filter(|entry| entry.action == action).count();
    let actions =
        [Action::Create, Action::Change, Action::Restart, Action::Replace, Action::Refuse, Action::Unchanged];
    let counted = actions.map(|action| (action, count(action)));
    let words: Vec<String> = counted
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(action, count)| format!("{count} {action}"))
        .collect();
    writeln!(output, "\nPlan: {}. Nothing was written.", words.join(", "))?;
    output.flush()
}
