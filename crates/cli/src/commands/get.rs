//! Displays one or many objects.

use std::fmt::Write as _;

use clap::Args;
use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher;
use serde_json::{Value, json};
use snafu::ResultExt;

use super::{
    Ending, Error, FollowFormatSnafu, FollowKindsSnafu, NameObjectSnafu, WriteOutputSnafu, sort::SortField,
    watch::follow, write_document,
};
use crate::{
    args::{AllNamespacesArgs, ClusterArgs, ListOutputArgs},
    cluster::{
        Cluster, in_namespace,
        kinds::{KnownKind, MixSelectionSnafu, NameError, NameEverywhereSnafu, Named, Target},
        listing::{Incomplete, Selection, Wanted, list, read},
    },
    printing::{Console, Escaped, OutputFormat, Table, columns::Columns, write_line},
};

/// The arguments of `vitistack get`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  # List all objects in the namespace
  vitistack get

  # List the machines in all namespaces
  vitistack get machines -A

  # Display one machine as YAML
  vitistack get machine web-1 -o yaml

  # List the machines and datacenters
  vitistack get machines,datacenters

  # Display some objects of different kinds
  vitistack get machine/web-1 datacenter/west

  # List the machines by age, oldest first
  vitistack get machines --sort-by=.metadata.creationTimestamp

  # List the machines, then follow their changes
  vitistack get machines --watch

  # List machines by label, with additional columns
  vitistack get vsm -l app=web -o wide

Exit status: 0 success, 1 failure, 3 partial result (what is missing is reported on standard error)")]
pub struct GetArgs {
    /// Kinds, as KIND[,KIND...], or objects, as KIND/NAME... or KIND NAME... (default: all kinds)
    #[arg(value_name = "KIND/NAME")]
    objects: Vec<String>,
    /// Label selector, such as app=web,tier!=test
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// Sort the objects of a kind by a field, such as .metadata.creationTimestamp or {.status.phase}
    #[arg(long, value_name = "JSONPATH")]
    sort_by: Option<String>,
    /// Do not print the headings
    #[arg(long)]
    no_headers: bool,
    /// Print the labels as the last column
    #[arg(long)]
    show_labels: bool,
    /// After listing the objects, print a row for each change until interrupted
    #[arg(short, long, conflicts_with = "sort_by")]
    watch: bool,
    #[command(flatten)]
    output: ListOutputArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    namespaces: AllNamespacesArgs,
}

/// Displays the objects.
pub async fn run(arguments: &GetArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let named = Named::read(&arguments.objects).and_then(|named| arguments.check(named));
    let named = named.context(NameObjectSnafu)?;
    let sort_field = arguments.sort_by.as_deref().map(SortField::read).transpose()?;
    if arguments.watch {
        return watch(named, arguments, console).await;
    }

    let cluster = Cluster::connect(&arguments.cluster).await?;
    let found = match named {
        Named::Objects(targets) => read_named(&cluster, &targets, arguments, sort_field.as_ref()).await?,
        Named::Kinds(kinds) => read_all(&cluster, &kinds, arguments, sort_field.as_ref()).await?,
    };
    print(&found, &cluster, arguments, console)?;
    report_missing(found, console)
}

impl GetArgs {
    /// Returns an error if objects are both named and selected.
    fn check(&self, named: Named) -> Result<Named, NameError> {
        match named {
            Named::Objects(_) if self.selector.is_some() => MixSelectionSnafu { flag: "--selector" }.fail(),
            Named::Objects(_) if self.namespaces.all_namespaces => NameEverywhereSnafu.fail(),
            named => Ok(named),
        }
    }

    /// Returns the namespace of the objects; `None` for all.
    fn namespace<'a>(&self, cluster: &'a Cluster) -> Option<&'a str> {
        (!self.namespaces.all_namespaces).then_some(cluster.namespace.as_str())
    }

    /// Returns the columns of a kind; `has_kind` marks names as KIND/NAME.
    fn columns(&self, kind: &KnownKind, has_kind: bool) -> Columns {
        let is_wide = self.output.output == OutputFormat::Wide;
        let mut columns = Columns::of(kind, is_wide, self.namespaces.all_namespaces);
        columns.has_kind = has_kind;
        columns.has_labels = self.show_labels;
        columns
    }

    /// Returns an empty table.
    fn table(&self, columns: &Columns) -> Table {
        let table = columns.table();
        if self.no_headers { table.without_headings() } else { table }
    }
}

/// Prints the objects of one kind, or one object, and then their changes.
async fn watch(named: Named, arguments: &GetArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    if !matches!(arguments.output.output, OutputFormat::Text | OutputFormat::Wide) {
        return FollowFormatSnafu.fail();
    }
    let (kind, name) = match named {
        Named::Kinds(kinds) => match <[KnownKind; 1]>::try_from(kinds) {
            Ok([kind]) => (kind, None),
            Err(_) => return FollowKindsSnafu.fail(),
        },
        Named::Objects(targets) => match <[Target; 1]>::try_from(targets) {
            Ok([target]) => (target.kind, Some(target.name)),
            Err(_) => return FollowKindsSnafu.fail(),
        },
    };

    let cluster = Cluster::connect(&arguments.cluster).await?;
    let namespace = arguments.namespace(&cluster).filter(|_| kind.is_namespaced);
    if let Some(name) = &name {
        // A watch of an object that does not exist would wait for a typo.
        read(&cluster, &kind.resource, namespace, name).await?;
    }
    let selection = watcher::Config {
        label_selector: arguments.selector.clone(),
        field_selector: name.map(|name| format!("metadata.name={name}")),
        ..watcher::Config::default()
    };

    let columns = arguments.columns(&kind, false);
    let table = arguments.table(&columns);
    let row = |object: &Value, table: &mut Table| columns.row(object, Timestamp::now(), table);
    follow(&cluster, &kind, namespace, selection, table, row, console).await
}

/// What was read.
struct Found {
    /// The objects of each kind.
    rows: Vec<Rows>,
    /// What could not be read.
    missing: Vec<Incomplete>,
    /// The number of lists or objects that were requested.
    requested: usize,
    /// Whether this is exactly one object, which is printed without a list around it.
    is_one: bool,
    /// Whether objects were requested by name, so that a missing one is an error.
    is_named: bool,
}

/// Reads the objects that the user named, in that order. Those of one kind that follow each other share a table.
async fn read_named(
    cluster: &Cluster,
    targets: &[Target],
    arguments: &GetArgs,
    sort_field: Option<&SortField>,
) -> Result<Found, Error> {
    let answers = join_all(
        targets
            .iter()
            .map(|target| read(cluster, &target.kind.resource, target.namespace(cluster), &target.name)),
    );
    let answers = answers.await;

    let is_same = |one: &Target, other: &Target| one.kind.resource.kind == other.kind.resource.kind;
    let has_kind = targets.windows(2).any(|pair| matches!(pair, [one, other] if !is_same(one, other)));
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    let mut answers = answers.into_iter();
    for group in targets.chunk_by(is_same) {
        let Some(first) = group.first() else { continue };
        let mut objects = Vec::new();
        for answer in answers.by_ref().take(group.len()) {
            match answer {
                Ok(object) => objects.push(object),
                Err(source) => missing.push(Incomplete { read: 0, remaining: None, source }),
            }
        }
        rows.push(Rows::of(arguments, &first.kind, has_kind, objects, sort_field)?);
    }
    let is_one = targets.len() == 1;
    Ok(Found { rows, missing, requested: targets.len(), is_one, is_named: true })
}

/// Reads all objects of some kinds.
async fn read_all(
    cluster: &Cluster,
    kinds: &[KnownKind],
    arguments: &GetArgs,
    sort_field: Option<&SortField>,
) -> Result<Found, Error> {
    let namespace = arguments.namespace(cluster);
    let has_kind = kinds.len() > 1;
    let answers = kinds.iter().map(|kind| async {
        let (mut rows, columns) = Rows::new(arguments, kind, has_kind);
        let mut selection = Selection::all(&kind.resource, namespace.filter(|_| kind.is_namespaced));
        selection.labels = arguments.selector.as_deref();
        let mut wanted = rows.wanted(&columns);
        let now = Timestamp::now();
        let Some(sort_field) = sort_field else {
            // Each object becomes a row at once: a long list is never in memory as a whole.
            let answer =
                list(cluster, &selection, &wanted, |object| rows.add(&columns, kind, object, now)).await;
            return Ok((rows, answer.err()));
        };

        sort_field.add_to(&mut wanted);
        let mut objects = Vec::new();
        let answer = list(cluster, &selection, &wanted, |object| objects.push(object)).await;
        Ok((Rows::of(arguments, kind, has_kind, objects, Some(sort_field))?, answer.err()))
    });

    let answers = join_all(answers).await.into_iter().collect::<Result<Vec<_>, Error>>()?;
    let (rows, missing): (Vec<Rows>, Vec<Option<Incomplete>>) = answers.into_iter().unzip();
    let missing = missing.into_iter().flatten().collect();
    Ok(Found { rows, missing, requested: kinds.len(), is_one: false, is_named: false })
}

/// Prints what was read.
fn print(
    found: &Found,
    cluster: &Cluster,
    arguments: &GetArgs,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    let format = arguments.output.output;
    let mut objects = Vec::new();
    let mut is_first = true;
    for rows in &found.rows {
        match rows {
            Rows::Objects(some) => objects.extend(some),
            Rows::Names(names) => console.output.write_all(names.as_bytes()).context(WriteOutputSnafu)?,
            Rows::Table(table) if table.is_empty() => {}
            Rows::Table(table) => {
                // As in kubectl, rows without headings are one block.
                if !is_first && !arguments.no_headers {
                    writeln!(console.output).context(WriteOutputSnafu)?;
                }
                is_first = false;
                table.write(console.output, console.terminal).context(WriteOutputSnafu)?;
            }
        }
    }

    match objects.as_slice() {
        [object] if found.is_one => {
            write_document(object, format, console)?;
        }
        [] if found.is_named => {}
        _ => {
            let document = json!({"apiVersion": "v1", "kind": "List", "items": objects});
            write_document(&document, format, console)?;
        }
    }
    let is_table = matches!(format, OutputFormat::Text | OutputFormat::Wide);
    if is_table && is_first && found.missing.is_empty() {
        let namespace = in_namespace(arguments.namespace(cluster));
        writeln!(console.errors, "No objects found{namespace}.").context(WriteOutputSnafu)?;
    }
    Ok(())
}

/// Reports what could not be read, so that a partial result is never taken for a complete one. An empty result is an
/// error, and so is an object that was named and not found.
fn report_missing(found: Found, console: &mut Console<'_>) -> Result<Ending, Error> {
    let Found { mut missing, requested, is_named, .. } = found;
    if is_named {
        let last = missing.pop();
        for Incomplete { source, .. } in &missing {
            write_line(console.errors, format_args!("vitistack: {source}")).context(WriteOutputSnafu)?;
        }
        return last.map_or(Ok(Ending::Done), |last| Err(last.source.into()));
    }

    let is_nothing_read = missing.len() == requested && missing.iter().all(|incomplete| incomplete.read == 0);
    if is_nothing_read && !missing.is_empty() {
        // The cause is the same for every kind.
        return Err(missing.swap_remove(0).source.into());
    }

    for Incomplete { read, remaining, source } in &missing {
        let mut line = "partial result: ".to_owned();
        if *read > 0 {
            let _ = write!(line, "after {read} objects");
            if let Some(remaining) = remaining {
                let _ = write!(line, ", with {remaining} remaining");
            }
            line.push_str(": ");
        }
        let fix = if *read > 0 { "; run the command again for the rest" } else { "" };
        write_line(console.errors, format_args!("vitistack: {line}{source}{fix}"))
            .context(WriteOutputSnafu)?;
    }
    Ok(if missing.is_empty() { Ending::Done } else { Ending::Partial })
}

/// The objects of one kind, in the form in which they are printed.
enum Rows {
    Table(Table),
    Names(String),
    Objects(Vec<Value>),
}

impl Rows {
    /// Creates empty rows for a format.
    fn new(arguments: &GetArgs, kind: &KnownKind, has_kind: bool) -> (Self, Columns) {
        let columns = arguments.columns(kind, has_kind);
        let rows = match arguments.output.output {
            OutputFormat::Text | OutputFormat::Wide => Self::Table(arguments.table(&columns)),
            OutputFormat::Name => Self::Names(String::new()),
            OutputFormat::Json | OutputFormat::Yaml => Self::Objects(Vec::new()),
        };
        (rows, columns)
    }

    /// Creates the rows of objects, sorted if a field is given.
    fn of(
        arguments: &GetArgs,
        kind: &KnownKind,
        has_kind: bool,
        mut objects: Vec<Value>,
        sort_field: Option<&SortField>,
    ) -> Result<Self, Error> {
        if let Some(sort_field) = sort_field {
            sort_field.sort(&mut objects)?;
        }
        let (mut rows, columns) = Self::new(arguments, kind, has_kind);
        let now = Timestamp::now();
        for object in objects {
            rows.add(&columns, kind, object, now);
        }
        Ok(rows)
    }

    /// Returns the fields to decode.
    fn wanted(&self, columns: &Columns) -> Wanted {
        match self {
            Self::Table(_) => columns.wanted(),
            Self::Names(_) => Wanted::paths([".metadata.name"]),
            Self::Objects(_) => Wanted::Whole,
        }
    }

    fn add(&mut self, columns: &Columns, kind: &KnownKind, mut object: Value, now: Timestamp) {
        match self {
            Self::Table(table) => columns.row(&object, now, table),
            Self::Names(names) => {
                let _ = writeln!(names, "{}", Escaped(kind.full_title_of(&object)));
            }
            Self::Objects(objects) => {
                // Servers may omit these fields in the items of a list.
                if let Some(members) = object.as_object_mut() {
                    members.insert("apiVersion".to_owned(), kind.resource.api_version.clone().into());
                    members.insert("kind".to_owned(), kind.resource.kind.clone().into());
                }
                remove_managed_fields(&mut object);
                objects.push(object);
            }
        }
    }
}

/// Removes the managed fields, which are half of an object and rarely of interest.
fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}
