//! Lists objects, or shows one.

use std::fmt::Write as _;

use clap::Args;
use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use snafu::ResultExt;

use super::{Ending, Error, NameObjectSnafu, WriteObjectSnafu, WriteOutputSnafu, write_json};
use crate::{
    args::{AllNamespacesArgs, ClusterArgs, OutputArgs},
    cluster::Cluster,
    columns::Columns,
    kinds::{KnownKind, Target},
    listing::{Incomplete, Selection, Wanted, list, read},
    output::{Console, OutputFormat, Table},
};

/// Which objects, and how to show them.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  vitistack get                            everything in the namespace
  vitistack get machines -A                the machines of all namespaces
  vitistack get machine web-1 -o yaml      one machine as it is stored
  vitistack get vsm -l app=web -o wide     by short name and label, with more columns

Exit codes: 0 done, 1 failed, 3 only a part of the answer could be had; what is missing is told on standard error.")]
pub struct GetArgs {
    /// Kind, plural or short name, or KIND/NAME; all kinds when absent
    kind: Option<String>,
    /// Name of one object
    name: Option<String>,
    /// Only objects with these labels, such as app=web,tier!=test
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "name")]
    selector: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    everywhere: AllNamespacesArgs,
}

/// Shows them.
pub async fn run(arguments: &GetArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let word = arguments.kind.as_deref().filter(|word| !word.eq_ignore_ascii_case("all"));
    let words: Vec<String> =
        word.into_iter().chain(arguments.name.as_deref()).map(ToOwned::to_owned).collect();
    let is_one = arguments.name.is_some() || word.is_some_and(|word| word.contains('/'));
    if is_one {
        let target = Target::read(&words).context(NameObjectSnafu)?;
        let cluster = Cluster::connect(&arguments.cluster).await?;
        return one(&cluster, &target, arguments.output.output, console).await;
    }
    let kinds = match word {
        Some(word) => vec![KnownKind::find(word).context(NameObjectSnafu)?],
        None => KnownKind::all(),
    };
    let cluster = Cluster::connect(&arguments.cluster).await?;
    many(&cluster, &kinds, arguments, console).await
}

async fn one(
    cluster: &Cluster,
    target: &Target,
    format: OutputFormat,
    console: &mut Console<'_>,
) -> Result<Ending, Error> {
    let object = read(cluster, &target.kind.resource, target.namespace(cluster), &target.name).await?;
    match format {
        OutputFormat::Json | OutputFormat::Yaml => write_object(object, format, console)?,
        OutputFormat::Name => {
            writeln!(console.output, "{}", target.kind.name_of(&object)).context(WriteOutputSnafu)?;
        }
        OutputFormat::Table | OutputFormat::Wide => {
            let columns = Columns::of(&target.kind, format == OutputFormat::Wide, false);
            let mut table = columns.table();
            columns.row(&object, Timestamp::now(), &mut table);
            table.write(console.output, console.terminal).context(WriteOutputSnafu)?;
        }
    }
    Ok(Ending::Done)
}

/// What was read of one kind.
enum Rows {
    Table(Table),
    Names(String),
    Objects(Vec<Value>),
}

async fn many(
    cluster: &Cluster,
    kinds: &[KnownKind],
    arguments: &GetArgs,
    console: &mut Console<'_>,
) -> Result<Ending, Error> {
    let format = arguments.output.output;
    let everywhere = arguments.everywhere.all_namespaces;
    let namespace = (!everywhere).then_some(cluster.namespace.as_str());
    let answers = kinds.iter().map(|kind| async {
        let mut rows = Rows::of(format, kind, everywhere, kinds.len() > 1);
        let mut selection = Selection::all(&kind.resource, namespace.filter(|_| kind.is_namespaced));
        selection.labels = arguments.selector.as_deref();
        let wanted = rows.0.wanted(&rows.1);
        let now = Timestamp::now();
        let answer =
            list(cluster, &selection, &wanted, |object| rows.0.add(&rows.1, kind, object, now)).await;
        (rows.0, answer.err())
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
    let is_table = matches!(format, OutputFormat::Table | OutputFormat::Wide);
    if matches!(format, OutputFormat::Json | OutputFormat::Yaml) {
        let items: Vec<Value> = objects;
        write_object(json!({"apiVersion": "v1", "kind": "List", "items": items}), format, console)?;
    } else if is_table && is_first && missing.is_empty() {
        let place = namespace.map_or("any namespace".to_owned(), |name| format!("namespace {name}"));
        writeln!(console.errors, "nothing found in {place}").context(WriteOutputSnafu)?;
    }
    tell_missing(missing, kinds.len(), console)
}

/// A partial answer is never shown as whole. One of which there is nothing at all is a failure.
fn tell_missing(
    mut missing: Vec<Incomplete>,
    asked: usize,
    console: &mut Console<'_>,
) -> Result<Ending, Error> {
    if missing.len() == asked && missing.iter().all(|incomplete| incomplete.read == 0) {
        // The same server said the same of every kind, or never spoke.
        if !missing.is_empty() {
            return Err(missing.swap_remove(0).source.into());
        }
    }
    for Incomplete { read, remaining, source } in &missing {
        let mut line = "not all is shown: ".to_owned();
        if *read > 0 {
            let _ = write!(line, "after {read} objects, ");
            if let Some(remaining) = remaining {
                let _ = write!(line, "with {remaining} more to come, ");
            }
        }
        let again = if *read > 0 { "; run it again for the rest" } else { "" };
        writeln!(console.errors, "vitistack: {line}{source}{again}").context(WriteOutputSnafu)?;
    }
    Ok(if missing.is_empty() { Ending::Done } else { Ending::Partial })
}

impl Rows {
    fn of(format: OutputFormat, kind: &KnownKind, everywhere: bool, is_one_of_many: bool) -> (Self, Columns) {
        let mut columns = Columns::of(kind, format == OutputFormat::Wide, everywhere);
        columns.says_kind = is_one_of_many;
        let rows = match format {
            OutputFormat::Table | OutputFormat::Wide => Self::Table(columns.table()),
            OutputFormat::Name => Self::Names(String::new()),
            OutputFormat::Json | OutputFormat::Yaml => Self::Objects(Vec::new()),
        };
        (rows, columns)
    }

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
                let _ = writeln!(names, "{}", kind.name_of(&object));
            }
            Self::Objects(objects) => {
                // Items of a list may come without them.
                if let Some(members) = object.as_object_mut() {
                    members.insert("apiVersion".to_owned(), kind.resource.api_version.clone().into());
                    members.insert("kind".to_owned(), kind.resource.kind.clone().into());
                }
                without_managers(&mut object);
                objects.push(object);
            }
        }
    }
}

/// Who wrote which field is half of an object and never what was asked for.
fn without_managers(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

fn write_object(mut object: Value, format: OutputFormat, console: &mut Console<'_>) -> Result<(), Error> {
    without_managers(&mut object);
    if format == OutputFormat::Yaml {
        let yaml = serde_saphyr::to_string(&object).context(WriteObjectSnafu)?;
        write!(console.output, "{yaml}").context(WriteOutputSnafu)
    } else {
        write_json(&object, console)
    }
}
