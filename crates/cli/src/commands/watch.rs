//! Watches objects: a live table on a terminal, a line per change elsewhere.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    time::Duration,
};

use clap::Args;
use futures::{StreamExt, stream::select_all};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher;
use serde_json::Value;
use snafu::ResultExt;
use tokio::time::{Instant, sleep_until};
use vitistack_runtime::shutdown;

use super::{Ending, Error, HandleSignalsSnafu, NameObjectSnafu, WriteOutputSnafu};
use crate::{
    args::{AllNamespacesArgs, ClusterArgs},
    cluster::{
        Cluster,
        kinds::KnownKind,
        listing::text,
        watching::{Change, changes},
    },
    printing::{Console, Table, columns::Columns, terminal_height, write_line},
};

/// How long changes are collected before the table is redrawn.
const REDRAW_DELAY: Duration = Duration::from_millis(100);
/// How often ages are updated.
const AGE_INTERVAL: Duration = Duration::from_secs(10);

/// The arguments of `vitistack watch`.
#[derive(Args, Debug)]
#[command(
    after_help = "On a terminal the table is redrawn on every change; elsewhere each change is printed as a line. Press Ctrl-C to stop.

Examples:
  # Watch all objects in the namespace
  vitistack watch

  # Watch the machines in all namespaces
  vitistack watch machines -A

  # Record the changes of some machines
  vitistack watch vsm -l app=web | tee changes.log"
)]
pub struct WatchArgs {
    /// Kind, plural or short name (default: all kinds)
    kind: Option<String>,
    /// Label selector, such as app=web,tier!=test
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    namespaces: AllNamespacesArgs,
}

/// The index of the kind, the namespace and the name of an object.
type Key = (usize, String, String);

/// The objects that are watched.
struct Board {
    columns: Vec<Columns>,
    /// The number of kinds whose initial list is not complete.
    unlisted: usize,
    objects: BTreeMap<Key, Value>,
}

/// A change to print as a line.
struct Line {
    change: &'static str,
    /// The index of the kind.
    kind: usize,
    object: Value,
}

/// Watches the objects until interrupted.
pub async fn run(arguments: &WatchArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let kinds = match arguments.kind.as_deref().filter(|kind| !kind.eq_ignore_ascii_case("all")) {
        Some(kind) => vec![KnownKind::find(kind).context(NameObjectSnafu)?],
        None => KnownKind::all(),
    };
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let end = shutdown::on_signal().context(HandleSignalsSnafu)?;

    let all_namespaces = arguments.namespaces.all_namespaces;
    let mut board = Board::new(&kinds, all_namespaces);
    let streams = kinds.iter().enumerate().map(|(number, kind)| {
        let namespace = (kind.is_namespaced && !all_namespaces).then_some(cluster.namespace.as_str());
        let mut selection = watcher::Config::default();
        selection.label_selector.clone_from(&arguments.selector);
        changes(&cluster, &kind.resource, namespace, selection).map(move |change| (number, change)).boxed()
    });
    let mut changes = select_all(streams);
    let mut screen = Screen::new(&board, console);

    loop {
        let (number, change) = tokio::select! {
            () = end.cancelled() => break,
            change = changes.next() => match change {
                Some(change) => change,
                None => break,
            },
            () = sleep_until(screen.due), if screen.is_terminal && board.unlisted == 0 => {
                screen.draw(&board, console).context(WriteOutputSnafu)?;
                continue;
            }
        };

        if let Change::Failed(error) = change {
            if board.unlisted > 0 {
                screen.leave(console).context(WriteOutputSnafu)?;
                return Err(error.into());
            }
            write_line(console.errors, format_args!("vitistack: {error}; retrying"))
                .context(WriteOutputSnafu)?;
            continue;
        }
        let line = board.update(number, change);
        screen.show(&board, line, console).context(WriteOutputSnafu)?;
    }
    screen.leave(console).context(WriteOutputSnafu)?;
    Ok(Ending::Done)
}

/// Follows the objects of one kind as `kubectl get --watch` does: the existing objects as rows under headings, then a
/// row per change.
pub async fn follow(
    cluster: &Cluster,
    kind: &KnownKind,
    namespace: Option<&str>,
    selection: watcher::Config,
    mut table: Table,
    row: impl Fn(&Value, &mut Table),
    console: &mut Console<'_>,
) -> Result<Ending, Error> {
    let end = shutdown::on_signal().context(HandleSignalsSnafu)?;
    let mut changes = changes(cluster, &kind.resource, namespace, selection);
    let mut is_started = false;
    // The printed version of each object: a watch that restarts lists them again.
    let mut printed = HashMap::new();

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
            Some(Change::Existing(object) | Change::Changed(object)) => {
                let version = text(&object, "/metadata/resourceVersion").to_owned();
                let before = printed.insert(key(0, &object), version.clone());
                if before.is_none_or(|before| before != version) {
                    row(&object, &mut table);
                }
            }
            Some(Change::Deleted(object)) => {
                printed.remove(&key(0, &object));
                row(&object, &mut table);
            }
            // The headings follow from the rows, which are known when the list is complete.
            Some(Change::InitialListDone) if !is_started => {
                is_started = true;
                table.write_headings(console.output, console.terminal).context(WriteOutputSnafu)?;
            }
            Some(Change::InitialListDone | Change::Restarted) => {}
        }

        if is_started && !table.is_empty() {
            table.write_rows(console.output, console.terminal).context(WriteOutputSnafu)?;
            console.output.flush().context(WriteOutputSnafu)?;
            table.clear();
        }
    }
}

/// Returns the key of an object.
fn key(kind: usize, object: &Value) -> Key {
    (kind, text(object, "/metadata/namespace").to_owned(), text(object, "/metadata/name").to_owned())
}

impl Board {
    fn new(kinds: &[KnownKind], all_namespaces: bool) -> Self {
        let columns = kinds
            .iter()
            .map(|kind| {
                let mut columns = Columns::of(kind, false, all_namespaces);
                columns.has_kind = kinds.len() > 1;
                columns
            })
            .collect();
        Self { columns, unlisted: kinds.len(), objects: BTreeMap::new() }
    }

    /// Applies a change and returns the line to print for it.
    fn update(&mut self, kind: usize, change: Change) -> Option<Line> {
        match change {
            Change::Restarted => {
                self.objects.retain(|(other, ..), _| *other != kind);
                None
            }
            Change::InitialListDone => {
                self.unlisted = self.unlisted.saturating_sub(1);
                None
            }
            Change::Existing(object) => {
                self.objects.insert(key(kind, &object), object.clone());
                Some(Line { change: "existing", kind, object })
            }
            Change::Changed(object) => {
                let before = self.objects.insert(key(kind, &object), object.clone());
                let change = if before.is_some() { "changed" } else { "added" };
                Some(Line { change, kind, object })
            }
            Change::Deleted(object) => {
                self.objects.remove(&key(kind, &object));
                Some(Line { change: "deleted", kind, object })
            }
            Change::Failed(_) => None,
        }
    }

    /// Returns a table for each kind that has objects.
    fn tables(&self) -> Vec<Table> {
        let now = Timestamp::now();
        let mut tables: Vec<Table> = self.columns.iter().map(Columns::table).collect();
        for ((kind, ..), object) in &self.objects {
            if let (Some(columns), Some(table)) = (self.columns.get(*kind), tables.get_mut(*kind)) {
                columns.row(object, now, table);
            }
        }
        tables.into_iter().filter(|table| !table.is_empty()).collect()
    }
}

/// How the objects are shown.
struct Screen {
    /// Whether the table is redrawn in place.
    is_terminal: bool,
    is_started: bool,
    /// The time of the next redraw.
    due: Instant,
    /// One table per kind for printing lines, which keeps the widths of its columns.
    lines: Vec<Table>,
}

impl Screen {
    fn new(board: &Board, console: &Console<'_>) -> Self {
        let lines = board.columns.iter().map(Columns::table).collect();
        Self { is_terminal: console.terminal.is_terminal, is_started: false, due: Instant::now(), lines }
    }

    /// Schedules a redraw on a terminal, or prints a line.
    fn show(&mut self, board: &Board, line: Option<Line>, console: &mut Console<'_>) -> io::Result<()> {
        if self.is_terminal {
            self.due = self.due.min(Instant::now() + REDRAW_DELAY);
            return Ok(());
        }

        let Some(Line { change, kind, object }) = line else { return Ok(()) };
        let (Some(columns), Some(cells)) = (board.columns.get(kind), self.lines.get_mut(kind)) else {
            return Ok(());
        };
        cells.clear();
        columns.row(&object, Timestamp::now(), cells);
        write!(console.output, "{change:<8}   ")?;
        cells.write_rows(console.output, console.terminal)?;
        console.output.flush()
    }

    /// Redraws the tables.
    fn draw(&mut self, board: &Board, console: &mut Console<'_>) -> io::Result<()> {
        self.due = Instant::now() + AGE_INTERVAL;
        let mut text = Vec::new();
        for (number, table) in board.tables().iter().enumerate() {
            if number > 0 {
                text.push(b'\n');
            }
            table.write(&mut text, console.terminal)?;
        }
        let text = String::from_utf8_lossy(&text);

        if !self.is_started {
            // Disables wrapping: a long line would shift the table.
            write!(console.output, "\x1b[?7l\x1b[2J")?;
            self.is_started = true;
        }
        write!(console.output, "\x1b[H")?;

        let rows = terminal_height().saturating_sub(1);
        let lines = text.lines().count();
        let shown = if lines > rows { rows.saturating_sub(1) } else { lines };
        for line in text.lines().take(shown) {
            write!(console.output, "{line}\x1b[K\r\n")?;
        }
        if lines > shown {
            write!(console.output, "… {} more lines\x1b[K\r\n", lines - shown)?;
        }
        if board.objects.is_empty() {
            write!(console.output, "No objects found.\x1b[K\r\n")?;
        }
        write!(console.output, "\x1b[J")?;
        console.output.flush()
    }

    /// Restores the settings of the terminal.
    fn leave(&self, console: &mut Console<'_>) -> io::Result<()> {
        if self.is_started {
            write!(console.output, "\x1b[?7h")?;
        }
        console.output.flush()
    }
}
