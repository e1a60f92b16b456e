//! Follows objects: a live table on a terminal, a line for each change elsewhere.

use std::{collections::BTreeMap, io, time::Duration};

use clap::Args;
use futures::{StreamExt, stream::select_all};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher;
use serde_json::Value;
use snafu::ResultExt;
use tokio::time::{Instant, sleep_until};
use vitistack_runtime::shutdown;

use super::{Ending, Error, ListenForEndSnafu, NameObjectSnafu, WriteOutputSnafu};
use crate::{
    args::{AllNamespacesArgs, ClusterArgs},
    cluster::Cluster,
    columns::Columns,
    kinds::KnownKind,
    output::{Console, Table, terminal_height},
    watching::{Change, Place, changes, place},
};

/// How long changes are gathered before the table is drawn again.
const GATHER: Duration = Duration::from_millis(100);
/// How often ages are drawn anew.
const AGES: Duration = Duration::from_secs(10);

/// What to follow.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  vitistack watch                       everything in the namespace
  vitistack watch machines -A
  vitistack watch vsm -l app=web | tee changes.log

On a terminal the table is redrawn as things change; elsewhere each change is a line. Ctrl-C ends it.")]
pub struct WatchArgs {
    /// Kind, plural or short name; all kinds when absent
    kind: Option<String>,
    /// Only objects with these labels, such as app=web,tier!=test
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    everywhere: AllNamespacesArgs,
}

/// Everything that is followed.
struct Board {
    columns: Vec<Columns>,
    /// How many kinds were not listed yet.
    unlisted: usize,
    objects: BTreeMap<Place, Value>,
}

/// Follows it until interrupted.
pub async fn run(arguments: &WatchArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let kinds = match arguments.kind.as_deref().filter(|word| !word.eq_ignore_ascii_case("all")) {
        Some(word) => vec![KnownKind::find(word).context(NameObjectSnafu)?],
        None => KnownKind::all(),
    };
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let end = shutdown::on_signal().context(ListenForEndSnafu)?;
    let everywhere = arguments.everywhere.all_namespaces;
    let mut board = Board::new(&kinds, everywhere);
    let streams = kinds.iter().enumerate().map(|(number, kind)| {
        let namespace = (kind.is_namespaced && !everywhere).then_some(cluster.namespace.as_str());
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
            writeln!(console.errors, "vitistack: {error}; trying again").context(WriteOutputSnafu)?;
            continue;
        }
        let line = board.take(number, change);
        screen.show(&board, line, console).context(WriteOutputSnafu)?;
    }
    screen.leave(console).context(WriteOutputSnafu)?;
    Ok(Ending::Done)
}

impl Board {
    fn new(kinds: &[KnownKind], everywhere: bool) -> Self {
        let columns = kinds
            .iter()
            .map(|kind| {
                let mut columns = Columns::of(kind, false, everywhere);
                columns.says_kind = kinds.len() > 1;
                columns
            })
            .collect();
        Self { columns, unlisted: kinds.len(), objects: BTreeMap::new() }
    }

    /// Takes note of a change; returns what to say of it in a line.
    fn take(&mut self, number: usize, change: Change) -> Option<(&'static str, usize, Value)> {
        match change {
            Change::Anew => {
                self.objects.retain(|(kind, ..), _| *kind != number);
                None
            }
            Change::Complete => {
                self.unlisted = self.unlisted.saturating_sub(1);
                None
            }
            Change::There(object) => {
                self.objects.insert(place(number, &object), object.clone());
                Some(("there", number, object))
            }
            Change::Changed(object) => {
                let before = self.objects.insert(place(number, &object), object.clone());
                Some((if before.is_some() { "changed" } else { "added" }, number, object))
            }
            Change::Gone(object) => {
                self.objects.remove(&place(number, &object));
                Some(("gone", number, object))
            }
            Change::Failed(_) => None,
        }
    }

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

/// How it is shown.
struct Screen {
    /// Whether the table is redrawn in place.
    is_terminal: bool,
    is_begun: bool,
    /// When it is to be drawn again.
    due: Instant,
    /// One line for each kind, as wide as the widest before it.
    lines: Vec<Table>,
}

impl Screen {
    fn new(board: &Board, console: &Console<'_>) -> Self {
        let lines = board.columns.iter().map(Columns::table).collect();
        Self { is_terminal: console.terminal.is_terminal, is_begun: false, due: Instant::now(), lines }
    }

    fn show(
        &mut self,
        board: &Board,
        line: Option<(&'static str, usize, Value)>,
        console: &mut Console<'_>,
    ) -> io::Result<()> {
        if self.is_terminal {
            self.due = self.due.min(Instant::now() + GATHER);
            return Ok(());
        }
        let Some((what, number, object)) = line else { return Ok(()) };
        let (Some(columns), Some(cells)) = (board.columns.get(number), self.lines.get_mut(number)) else {
            return Ok(());
        };
        cells.clear();
        columns.row(&object, Timestamp::now(), cells);
        write!(console.output, "{what:<7}   ")?;
        cells.write_rows(console.output, console.terminal)?;
        console.output.flush()
    }

    fn draw(&mut self, board: &Board, console: &mut Console<'_>) -> io::Result<()> {
        self.due = Instant::now() + AGES;
        let mut text = Vec::new();
        for (number, table) in board.tables().iter().enumerate() {
            if number > 0 {
                text.push(b'\n');
            }
            table.write(&mut text, console.terminal)?;
        }
        let text = String::from_utf8_lossy(&text);
        if !self.is_begun {
            // No wrapping: a line that is too long would push the table down.
            write!(console.output, "\x1b[?7l\x1b[2J")?;
            self.is_begun = true;
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
            write!(console.output, "nothing there yet\x1b[K\r\n")?;
        }
        write!(console.output, "\x1b[J")?;
        console.output.flush()
    }

    /// Leaves the terminal as it was found.
    fn leave(&self, console: &mut Console<'_>) -> io::Result<()> {
        if self.is_begun {
            write!(console.output, "\x1b[?7h")?;
        }
        console.output.flush()
    }
}
