//! Shows what operators told.

use std::collections::HashSet;

use clap::Args;
use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher;
use snafu::ResultExt;
use vitistack_runtime::shutdown;

use super::{Ending, Error, ListenForEndSnafu, NameObjectSnafu, WriteOutputSnafu};
use crate::{
    args::{AllNamespacesArgs, ClusterArgs},
    cluster::Cluster,
    events::{self, EventLine},
    kinds::Target,
    output::{Console, Table, age},
    watching::{Change, changes},
};

/// Of what, and for how long.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  vitistack events                      of our kinds in the namespace, newest last
  vitistack events machine/web-1
  vitistack events -A --watch           of all namespaces, and what comes

Exit codes: 0 done, 1 failed, 3 only a part of the answer could be had.")]
pub struct EventsArgs {
    /// KIND/NAME, or KIND and NAME; a name alone is that of a machine; everything when absent
    #[arg(num_args = 0..=2, value_name = "OBJECT")]
    object: Vec<String>,
    /// Go on with what comes, until interrupted
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    everywhere: AllNamespacesArgs,
}

/// Shows it.
pub async fn run(arguments: &EventsArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let target = match arguments.object.as_slice() {
        [] => None,
        words => Some(Target::read(words).context(NameObjectSnafu)?),
    };
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let everywhere = arguments.everywhere.all_namespaces;
    // Events of objects without a namespace live in "default".
    let place = match &target {
        Some(target) => target.namespace(&cluster).unwrap_or("default"),
        None => &cluster.namespace,
    };
    let namespace = (!everywhere).then_some(place);
    let fields = target.as_ref().map(|target| events::about(&target.kind.resource.kind, &target.name));
    if arguments.watch {
        return follow(&cluster, namespace, fields, console).await;
    }
    let (lines, answer) = events::read(&cluster, namespace, fields.as_deref()).await;
    let lines: Vec<EventLine> = lines.into_iter().filter(|line| line.is_ours).collect();
    match answer {
        Err(incomplete) if lines.is_empty() => return Err(incomplete.source.into()),
        Ok(_) if lines.is_empty() => {
            writeln!(console.errors, "nothing was told").context(WriteOutputSnafu)?;
        }
        _ => write(&lines, everywhere, console).context(WriteOutputSnafu)?,
    }
    let Err(incomplete) = answer else { return Ok(Ending::Done) };
    writeln!(console.errors, "vitistack: not all is shown: {}", incomplete.source)
        .context(WriteOutputSnafu)?;
    Ok(Ending::Partial)
}

/// Writes a table of Events.
fn write(lines: &[EventLine], everywhere: bool, console: &mut Console<'_>) -> std::io::Result<()> {
    let mut table = table(everywhere);
    for line in lines {
        row(&mut table, line, everywhere, Timestamp::now());
    }
    table.write(console.output, console.terminal)?;
    console.output.flush()
}

fn table(everywhere: bool) -> Table {
    Table::new(everywhere.then_some("Namespace").into_iter().chain([
        "Last seen",
        "Type",
        "Reason",
        "Object",
        "Message",
    ]))
}

fn row(table: &mut Table, line: &EventLine, everywhere: bool, now: Timestamp) {
    if everywhere {
        table.cell(&line.namespace);
    }
    table.row([age(line.at, now).as_str(), &line.type_, &line.reason, &line.object(), &line.message]);
}

/// Writes what is there, then what comes, one line each in the columns of what was there.
async fn follow(
    cluster: &Cluster,
    namespace: Option<&str>,
    fields: Option<String>,
    console: &mut Console<'_>,
) -> Result<Ending, Error> {
    let end = shutdown::on_signal().context(ListenForEndSnafu)?;
    let selection = watcher::Config { field_selector: fields, ..watcher::Config::default() };
    let mut changes = changes(cluster, &events::resource(), namespace, selection);
    let (mut table, mut gathered, mut is_begun) = (table(namespace.is_none()), Vec::new(), false);
    // What was shown, by name and version: a list that comes anew shows only what is new in it.
    let mut shown = HashSet::new();
    loop {
        let change = tokio::select! {
            () = end.cancelled() => return Ok(Ending::Done),
            change = changes.next() => change,
        };
        match change {
            None => return Ok(Ending::Done),
            Some(Change::Failed(error)) if !is_begun => return Err(error.into()),
            Some(Change::Failed(error)) => {
                writeln!(console.errors, "vitistack: {error}; trying again").context(WriteOutputSnafu)?;
            }
            Some(Change::There(event) | Change::Changed(event)) => {
                let line = EventLine::read(&event);
                if line.is_ours && shown.insert((line.id.clone(), line.version.clone())) {
                    gathered.push(line);
                }
            }
            Some(Change::Complete) if !is_begun => {
                is_begun = true;
                gathered.sort_by_key(|line: &EventLine| line.at);
                for line in gathered.drain(..) {
                    row(&mut table, &line, namespace.is_none(), Timestamp::now());
                }
                table.write(console.output, console.terminal).context(WriteOutputSnafu)?;
            }
            Some(_) => {}
        }
        if is_begun {
            table.clear();
            for line in gathered.drain(..) {
                row(&mut table, &line, namespace.is_none(), Timestamp::now());
            }
            table.write_rows(console.output, console.terminal).context(WriteOutputSnafu)?;
            console.output.flush().context(WriteOutputSnafu)?;
        }
    }
}
