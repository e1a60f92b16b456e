//! Shows Events.

use std::collections::HashSet;

use clap::Args;
use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher;
use snafu::ResultExt;
use vitistack_runtime::shutdown;

use super::{Ending, Error, HandleSignalsSnafu, NameObjectSnafu, WriteOutputSnafu};
use crate::{
    args::{AllNamespacesArgs, ClusterArgs},
    cluster::{
        Cluster, RequestError,
        events::{self, EventLine},
        kinds::Target,
        listing::{Selection, Wanted, list},
        watching::{Change, changes},
    },
    printing::{Console, Table, age, write_line},
};

/// The arguments of `vitistack events`.
#[derive(Args, Debug)]
#[command(after_help = "Events are sorted by time, newest last.

Examples:
  # Show events of all VitiStack objects in the namespace
  vitistack events

  # Show events of one machine
  vitistack events machine/web-1

  # Show and watch events in all namespaces
  vitistack events -A --watch

Exit status: 0 success, 1 failure, 3 partial result")]
pub struct EventsArgs {
    /// KIND/NAME, or KIND and NAME; the default kind is machine (default: all objects)
    #[arg(num_args = 0..=2, value_name = "OBJECT")]
    object: Vec<String>,
    /// Keep streaming events until interrupted
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    namespaces: AllNamespacesArgs,
}

/// Shows the Events.
pub async fn run(arguments: &EventsArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let target = match arguments.object.as_slice() {
        [] => None,
        object => Some(Target::read(object).context(NameObjectSnafu)?),
    };
    let cluster = Cluster::connect(&arguments.cluster).await?;

    let all_namespaces = arguments.namespaces.all_namespaces;
    // Events of cluster-scoped objects are in the namespace "default".
    let namespace = match &target {
        Some(target) => target.namespace(&cluster).unwrap_or("default"),
        None => &cluster.namespace,
    };
    let namespace = (!all_namespaces).then_some(namespace);
    let fields = target.as_ref().map(|target| events::about(&target.kind.resource.kind, &target.name));
    if arguments.watch {
        return watch(&cluster, namespace, fields, console).await;
    }

    let (lines, answer) = events::read(&cluster, namespace, fields.as_deref()).await;
    let lines: Vec<EventLine> = lines.into_iter().filter(|line| line.is_ours).collect();
    match answer {
        Err(incomplete) if lines.is_empty() => return Err(incomplete.source.into()),
        Ok(_) if lines.is_empty() => {
            if let Some(target) = &target {
                require_object(&cluster, target, all_namespaces).await?;
            }
            writeln!(console.errors, "No events found.").context(WriteOutputSnafu)?;
        }
        _ => write(&lines, all_namespaces, console).context(WriteOutputSnafu)?,
    }
    let Err(incomplete) = answer else { return Ok(Ending::Done) };
    write_line(console.errors, format_args!("vitistack: partial result: {}", incomplete.source))
        .context(WriteOutputSnafu)?;
    Ok(Ending::Partial)
}

/// Returns an error if the object does not exist: a typo must not look like an object without Events. Events are shown
/// without permission to read the object, so only a certain answer counts.
async fn require_object(
    cluster: &Cluster,
    target: &Target,
    all_namespaces: bool,
) -> Result<(), RequestError> {
    let namespace = target.namespace(cluster).filter(|_| !all_namespaces);
    let name = format!("metadata.name={}", target.name);
    let selection = Selection { fields: Some(&name), ..Selection::all(&target.kind.resource, namespace) };
    let mut is_found = false;
    let answer = list(cluster, &selection, &Wanted::paths([".metadata.name"]), |_| is_found = true).await;

    if answer.is_ok() && !is_found {
        return Err(RequestError::FindObject { object: target.title() });
    }
    Ok(())
}

/// Writes a table of Events.
fn write(lines: &[EventLine], all_namespaces: bool, console: &mut Console<'_>) -> std::io::Result<()> {
    let mut table = table(all_namespaces);
    for line in lines {
        row(&mut table, line, all_namespaces, Timestamp::now());
    }
    table.write(console.output, console.terminal)?;
    console.output.flush()
}

fn table(all_namespaces: bool) -> Table {
    Table::new(all_namespaces.then_some("Namespace").into_iter().chain([
        "Last seen",
        "Type",
        "Reason",
        "Object",
        "Message",
    ]))
}

fn row(table: &mut Table, line: &EventLine, all_namespaces: bool, now: Timestamp) {
    if all_namespaces {
        table.cell(&line.namespace);
    }
    table.row([age(line.at, now).as_str(), &line.type_, &line.reason, &line.object(), &line.message]);
}

/// Writes the existing Events as a table, then new ones as rows of it.
async fn watch(
    cluster: &Cluster,
    namespace: Option<&str>,
    fields: Option<String>,
    console: &mut Console<'_>,
) -> Result<Ending, Error> {
    let end = shutdown::on_signal().context(HandleSignalsSnafu)?;
    let selection = watcher::Config { field_selector: fields, ..watcher::Config::default() };
    let mut changes = changes(cluster, &events::resource(), namespace, selection);
    let (mut table, mut pending, mut is_started) = (table(namespace.is_none()), Vec::new(), false);
    // Printed Events by UID and version: a watch that restarts lists them again.
    let mut printed = HashSet::new();

    loop {
        let change = tokio::select! {
            () = end.cancelled() => return Ok(Ending::Done),
            change = changes.next() => change,
        };
        match change {
            None => return Ok(Ending::Done),
            Some(Change::Failed(error)) if !is_started => return Err(error.into()),
            Some(Change::Failed(error)) => {
                write_line(console.errors, format_args!("vitistack: {error}; retrying"))
                    .context(WriteOutputSnafu)?;
            }
            Some(Change::Existing(event) | Change::Changed(event)) => {
                let line = EventLine::read(&event);
                if line.is_ours && printed.insert((line.id.clone(), line.version.clone())) {
                    pending.push(line);
                }
            }
            Some(Change::InitialListDone) if !is_started => {
                is_started = true;
                pending.sort_by_key(|line: &EventLine| line.at);
                for line in pending.drain(..) {
                    row(&mut table, &line, namespace.is_none(), Timestamp::now());
                }
                table.write(console.output, console.terminal).context(WriteOutputSnafu)?;
            }
            Some(_) => {}
        }

        if is_started {
            table.clear();
            for line in pending.drain(..) {
                row(&mut table, &line, namespace.is_none(), Timestamp::now());
            }
            table.write_rows(console.output, console.terminal).context(WriteOutputSnafu)?;
            console.output.flush().context(WriteOutputSnafu)?;
        }
    }
}
