//! Shows what applying files would change, without changing it.

mod difference;
mod overlay;

use std::{io, path::PathBuf};

use clap::Args;
use serde_json::Value;
use snafu::{ResultExt, Snafu};
use vitistack_machine::backend_type;
use vitistack_plan::preview::{Action, Preview, PriceChange, QuotaChange, preview};
use vitistack_types::GROUP;

use self::overlay::{Manifest, Overlay};
use super::{Ending, Error, WriteOutputSnafu, why, write_document};
use crate::{
    args::{ClusterArgs, OutputArgs},
    cluster::{Cluster, kinds::KnownKind, listing::text},
    inventory::load,
    manifests::documents::{self, ReadError},
    printing::{Console, Escaped, Terminal, Tone, write_line},
};

/// Indicates that files cannot be planned.
#[derive(Debug, Snafu)]
pub enum PlanError {
    /// Indicates that a file could not be read.
    #[snafu(display("{source}"), context(false))]
    ReadDocuments { source: ReadError },
    /// Indicates that a document is not a valid object of ours.
    #[snafu(display("failed to read {}: {message}", path.display()))]
    NameObject { path: PathBuf, message: String },
    /// Indicates that the files contain no object of ours.
    #[snafu(display("the files contain no object of {GROUP}: run `vitistack samples` for examples"))]
    FindObject,
}

/// Arguments of `vitistack plan`.
#[derive(Args, Debug)]
#[command(
    after_help = "Sends the files to the server as a dry run, like \"kubectl apply --server-side --force-conflicts --dry-run=server\"; nothing is written. The operators' own code computes the result. What only a provider knows, such as its free capacity, is not predicted. Objects of other kinds are skipped; of Secrets only the names of their keys are used.

Examples:
  # Preview a file
  vitistack plan -f machine.yaml

  # Preview several files together, as JSON
  vitistack plan -f network.yaml -f machines.yaml -o json

  # Preview standard input
  vitistack samples machine-basic | vitistack plan -f -

Exit status: 0 no changes, 1 failure, 2 changes pending or refused, 3 partial result without changes"
)]
pub struct PlanArgs {
    /// File with objects to preview, or - for standard input; can be repeated
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    filenames: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    /// Field manager that applies the files later: fields that it set before and that the files no longer have are removed
    #[arg(long, value_name = "NAME", default_value = "kubectl")]
    field_manager: String,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Shows what the files would change.
pub async fn run(arguments: &PlanArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let (manifests, others) = read(&arguments.filenames)?;
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let loaded = load(&cluster).await?;
    let mut overlay = Overlay::new(loaded);
    for manifest in &manifests {
        overlay.apply(&cluster, manifest, &arguments.field_manager).await?;
    }
    overlay.read_secrets(&cluster, &others).await;
    let Overlay { before, after, applied } = overlay;

    let preview = preview(&before, &after.inventory, &applied, &|provider_type| {
        backend_type(provider_type).capabilities()
    });
    let others: Vec<String> = others.iter().map(overlay::title).collect();
    if !write_document(&preview, arguments.output.output, console)? {
        write(&preview, console).context(WriteOutputSnafu)?;
    }
    why::report_missing(&after.missing, console).context(WriteOutputSnafu)?;
    for other in &others {
        write_line(console.errors, format_args!("vitistack: skipped: {other} is of another kind"))
            .context(WriteOutputSnafu)?;
    }
    Ok(if preview.has_change() {
        Ending::Change
    } else if after.missing.is_empty() && others.is_empty() {
        Ending::Done
    } else {
        Ending::Partial
    })
}

/// Returns the objects of ours in the files, and the other documents.
fn read(paths: &[PathBuf]) -> Result<(Vec<Manifest>, Vec<Value>), PlanError> {
    let kinds = KnownKind::all();
    let (mut manifests, mut others) = (Vec::new(), Vec::new());
    for path in paths {
        for document in documents::read(path)? {
            let (version, kind) = (text(&document, "/apiVersion"), text(&document, "/kind"));
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
                return refused(format!(
                    "kind {kind:?} not found in {version}: run `vitistack summary` to list kinds"
                ));
            };
            if text(&document, "/metadata/name").is_empty() {
                return refused(format!("metadata.name of a {kind} is required: set it"));
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
        Action::Blocked | Action::Destroys | Action::Refuse => Tone::Bad,
    }
}

fn write(preview: &Preview, console: &mut Console<'_>) -> io::Result<()> {
    let (terminal, output) = (console.terminal, &mut *console.output);
    write_entries(preview, output, terminal)?;
    write_totals(preview, output)?;

    let actions = [
        Action::Create,
        Action::Change,
        Action::Restart,
        Action::Blocked,
        Action::Destroys,
        Action::Refuse,
        Action::Unchanged,
    ];
    let count = |action: Action| preview.entries.iter().filter(|entry| entry.action == action).count();
    let counted: Vec<String> = actions
        .into_iter()
        .map(|action| (action, count(action)))
        .filter(|(_, count)| *count > 0)
        .map(|(action, count)| format!("{count} {action}"))
        .collect();
    writeln!(output, "\nPlan: {}. Nothing was written.", counted.join(", "))?;
    output.flush()
}

fn write_entries(preview: &Preview, output: &mut dyn io::Write, terminal: Terminal) -> io::Result<()> {
    for entry in &preview.entries {
        let action = format!("{:<9}", entry.action.to_string());
        let indirect = if entry.is_indirect { " (not in the files)" } else { "" };
        let object = Escaped(&entry.object);
        writeln!(output, "{} {object}{indirect}", terminal.paint(tone(entry.action), &action))?;
        for why in &entry.why {
            write_line(output, format_args!("            {why}"))?;
        }
    }
    Ok(())
}

fn write_totals(preview: &Preview, output: &mut dyn io::Write) -> io::Result<()> {
    if !preview.quotas.is_empty() {
        writeln!(output, "\nUsed:")?;
    }
    for QuotaChange { datacenter, resource, before, after, limit, is_exceeded } in &preview.quotas {
        let limit = limit.as_ref().map(|limit| format!(" of {limit}")).unwrap_or_default();
        let exceeded = if *is_exceeded { ", more than its quota" } else { "" };
        let change = format!("{before} → {after}{limit}{exceeded}");
        write_line(output, format_args!("  {datacenter}  {resource:<8}  {change}"))?;
    }

    if !preview.prices.is_empty() {
        writeln!(output, "\nPrice of all Machines:")?;
    }
    for PriceChange { currency, before, after } in &preview.prices {
        write_line(output, format_args!("  {before} → {after} {currency} per hour"))?;
    }
    Ok(())
}
