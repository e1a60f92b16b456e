//! Displays one or many objects.

use std::fmt::Write as _;

use clap::Args;
use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use snafu::ResultExt;

use super::{Ending, Error, NameObjectSnafu, WriteOutputSnafu, write_document};
use crate::{
    args::{AllNamespacesArgs, ClusterArgs, ListOutputArgs},
    cluster::{
        Cluster, in_namespace,
        kinds::{KnownKind, Target},
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

  # List machines by label, with additional columns
  vitistack get vsm -l app=web -o wide

Exit status: 0 success, 1 failure, 3 partial result (what is missing is reported on standard error)")]
pub struct GetArgs {
    /// Kind, plural or short name, or KIND/NAME (default: all kinds)
    kind: Option<String>,
    /// Name of an object
    name: Option<String>,
    /// Label selector, such as app=web,tier!=test
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "name")]
    selector: Option<String>,
    #[command(flatten)]
    output: ListOutputArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    namespaces: AllNamespacesArgs,
}

/// Displays the objects.
pub async fn run(arguments: &GetArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let kind = arguments.kind.as_deref().filter(|kind| !kind.eq_ignore_ascii_case("all"));
    let object: Vec<String> =
        kind.into_iter().chain(arguments.name.as_deref()).map(ToOwned::to_owned).collect();
    let is_one = arguments.name.is_some() || kind.is_some_and(|kind| kind.contains('/'));
    if is_one {
        let target = Target::read(&object).context(NameObjectSnafu)?;
        let cluster = Cluster::connect(&arguments.cluster).await?;
        return one(&cluster, &target, arguments.output.output, console).await;
    }

    let kinds = match kind {
        Some(kind) => vec![KnownKind::find(kind).context(NameObjectSnafu)?],
        None => KnownKind::all(),
    };
    let cluster = Cluster::connect(&arguments.cluster).await?;
    many(&cluster, &kinds, arguments, console).await
}

/// Displays one object.
async fn one(
    cluster: &Cluster,
    target: &Target,
    format: OutputFormat,
    console: &mut Console<'_>,
) -> Result<Ending, Error> {
    let mut object = read(cluster, &target.kind.resource, target.namespace(cluster), &target.name).await?;
    remove_managed_fields(&mut object);
    if write_document(&object, format, console)? {
        return Ok(Ending::Done);
    }

    if format == OutputFormat::Name {
        write_line(console.output, format_args!("{}", target.kind.title_of(&object)))
            .context(WriteOutputSnafu)?;
    } else {
        let columns = Columns::of(&target.kind, format == OutputFormat::Wide, false);
        let mut table = columns.table();
        columns.row(&object, Timestamp::now(), &mut table);
        table.write(console.output, console.terminal).context(WriteOutputSnafu)?;
    }
    Ok(Ending::Done)
}

/// The objects of one kind, in the form in which they are printed.
enum Rows {
    Table(Table),
    Names(String),
    Objects(Vec<Value>),
}

/// Displays all objects of some kinds.
async fn many(
    cluster: &Cluster,
    kinds: &[KnownKind],
    arguments: &GetArgs,
    console: &mut Console<'_>,
) -> Result<Ending, Error> {
    let format = arguments.output.output;
    let all_namespaces = arguments.namespaces.all_namespaces;
    let namespace = (!all_namespaces).then_some(cluster.namespace.as_str());

    let answers = kinds.iter().map(|kind| async {
        let (mut rows, columns) = Rows::new(format, kind, all_namespaces, kinds.len() > 1);
        let mut selection = Selection::all(&kind.resource, namespace.filter(|_| kind.is_namespaced));
        selection.labels = arguments.selector.as_deref();
        let wanted = rows.wanted(&columns);
        let now = Timestamp::now();
        let answer = list(cluster, &selection, &wanted, |object| rows.add(&columns, kind, object, now)).await;
        (rows, answer.err())
    });
    let answers = join_all(answers).await;

    let mut missing = Vec::new();
    let mut objects = Vec::new();
    let mut is_first = true;
    for (rows, incomplete) in answers {
        missing.extend(incomplete);
        match rows {
            Rows::Objects(some) => objects.extend(some),
            Rows::Names(names) => console.output.write_all(names.as_bytes()).context(WriteOutputSnafu)?,
            Rows::Table(table) if table.is_empty() => {}
            Rows::Table(table) => {
                if !is_first {
                    writeln!(console.output).context(WriteOutputSnafu)?;
                }
                is_first = false;
                table.write(console.output, console.terminal).context(WriteOutputSnafu)?;
            }
        }
    }

    let document = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let is_document = write_document(&document, format, console)?;
    let is_empty_table = !is_document && format != OutputFormat::Name && is_first;
    if is_empty_table && missing.is_empty() {
        writeln!(console.errors, "No objects found{}.", in_namespace(namespace)).context(WriteOutputSnafu)?;
    }
    report_missing(missing, kinds.len(), console)
}

/// Reports what could not be read, so that a partial result is never taken for a complete one. An empty result is an error.
fn report_missing(
    mut missing: Vec<Incomplete>,
    requested: usize,
    console: &mut Console<'_>,
) -> Result<Ending, Error> {
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

impl Rows {
    /// Creates empty rows for a format.
    fn new(format: OutputFormat, kind: &KnownKind, all_namespaces: bool, has_kind: bool) -> (Self, Columns) {
        let mut columns = Columns::of(kind, format == OutputFormat::Wide, all_namespaces);
        columns.has_kind = has_kind;
        let rows = match format {
            OutputFormat::Text | OutputFormat::Wide => Self::Table(columns.table()),
            OutputFormat::Name => Self::Names(String::new()),
            OutputFormat::Json | OutputFormat::Yaml => Self::Objects(Vec::new()),
        };
        (rows, columns)
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
                let _ = writeln!(names, "{}", Escaped(kind.title_of(&object)));
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
