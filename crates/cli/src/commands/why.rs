//! Explains why an object is not ready, or why any is not.

use std::io;

use clap::Args;
use futures::future::join_all;
use snafu::ResultExt;
use vitistack_plan::explain::{
    Cause, CauseGroup, Explanation, LinkState, Overview, RecordedEvent, Severity, explain, overview,
};
use vitistack_types::ObjectId;

use super::{Ending, Error, NameObjectSnafu, WriteOutputSnafu, write_answer};
use crate::{
    args::{AllNamespacesArgs, ClusterArgs, OutputArgs},
    cluster::{Cluster, events, in_namespace, kinds::Target},
    inventory::{Loaded, load},
    printing::{Console, Escaped, Terminal, Tone, age, write_line},
};

/// Arguments of `vitistack why`.
#[derive(Args, Debug)]
#[command(after_help = "Reads only. Reasons and messages are the same as in conditions and events.

Examples:
  # List everything that is not ready or not up to date, by cause
  vitistack why

  # Explain why a machine is not ready
  vitistack why machine/web-1

  # Explain a provider in another namespace
  vitistack why machineprovider aws -n team-a

  # Print the reason only
  vitistack why machine/web-1 -o json | jq -r .cause.reason

Exit status: 0 success, 1 failure, 3 partial result (what could not be read is reported on standard error)")]
pub struct WhyArgs {
    /// Object, as KIND/NAME or KIND NAME; the default kind is machine (default: all objects that are not ready or not up to date)
    #[arg(num_args = 1..=2, value_name = "OBJECT", conflicts_with = "all_namespaces")]
    object: Vec<String>,
    #[command(flatten)]
    answer: OutputArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    namespaces: AllNamespacesArgs,
}

/// Explains one object, or lists the causes of all that are not ready.
pub async fn run(arguments: &WhyArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    if arguments.object.is_empty() { all(arguments, console).await } else { one(arguments, console).await }
}

/// Lists everything that is not ready or not up to date, by cause. Secrets are not read: that would be a request for each.
async fn all(arguments: &WhyArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let loaded = load(&cluster).await?;
    let namespace = (!arguments.namespaces.all_namespaces).then_some(cluster.namespace.as_str());
    let overview = overview(&loaded.inventory, namespace);

    if !write_answer(&overview, &loaded.missing, arguments.answer.output, console)? {
        write_overview(&overview, namespace, &loaded, console).context(WriteOutputSnafu)?;
    }
    end(&loaded, console)
}

/// Reports what could not be read, which makes the result a partial one.
fn end(loaded: &Loaded, console: &mut Console<'_>) -> Result<Ending, Error> {
    report_missing(&loaded.missing, console).context(WriteOutputSnafu)?;
    Ok(if loaded.missing.is_empty() { Ending::Done } else { Ending::Partial })
}

/// Explains one object.
async fn one(arguments: &WhyArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let target = Target::read(&arguments.object).context(NameObjectSnafu)?;
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let mut loaded = load(&cluster).await?;
    let subject = loaded.find(&target, &cluster)?.id();

    // Only the Secrets that matter for the subject are read.
    let secrets = loaded.inventory.secrets_needed(&loaded.inventory.related(&subject));
    loaded.read_secrets(&cluster, secrets).await;
    let Some(explanation) = explain(&subject, &loaded.inventory) else {
        return Err(crate::cluster::RequestError::FindObject { object: target.title() }.into());
    };
    let events = read_events(&cluster, &explanation.events_needed(), &mut loaded.missing).await;
    let explanation = explanation.with_events(events);

    if !write_answer(&explanation, &loaded.missing, arguments.answer.output, console)? {
        write(&explanation, &loaded, console).context(WriteOutputSnafu)?;
    }
    end(&loaded, console)
}

/// Writes what could not be read to standard error.
pub fn report_missing(missing: &[String], console: &mut Console<'_>) -> io::Result<()> {
    let mut lines = missing.iter();
    lines.try_for_each(|missing| {
        write_line(console.errors, format_args!("vitistack: partial result: {missing}"))
    })
}

/// Reads the Events of objects. What could not be read is added to `missing`.
async fn read_events(
    cluster: &Cluster,
    objects: &[ObjectId],
    missing: &mut Vec<String>,
) -> Vec<RecordedEvent> {
    let answers = objects.iter().map(|object| async move {
        let about = events::about(&object.kind, &object.name.name);
        let (lines, answer) =
            events::read(cluster, Some(events::namespace(&object.name)), Some(&about)).await;
        let recorded = lines.into_iter().filter_map(|line| {
            Some(RecordedEvent {
                at: line.at?,
                object: object.clone(),
                reason: line.reason,
                message: line.message,
            })
        });
        (recorded.collect::<Vec<_>>(), answer)
    });

    let mut recorded = Vec::new();
    for (events, answer) in join_all(answers).await {
        missing.extend(answer.err().map(|incomplete| incomplete.source.to_string()));
        recorded.extend(events);
    }
    recorded
}

fn write(explanation: &Explanation, loaded: &Loaded, console: &mut Console<'_>) -> io::Result<()> {
    let (terminal, now) = (console.terminal, loaded.inventory.now);
    let output = &mut *console.output;

    let chain: Vec<(String, LinkState, &str)> = explanation
        .chain
        .iter()
        .map(|link| (Escaped(&link.object).to_string(), link.state, link.message.as_str()))
        .collect();
    let width = chain.iter().map(|(object, ..)| object.chars().count()).max().unwrap_or_default();
    for (object, state, message) in chain {
        let (mark, tone) = match state {
            LinkState::Healthy => ("✓", Tone::Good),
            LinkState::Degraded => ("!", Tone::Waiting),
            LinkState::Blocking => ("✗", Tone::Bad),
            LinkState::Unknown => ("?", Tone::Waiting),
        };
        let message = Escaped(message);
        writeln!(output, "{} {object:<width$}  {message}", terminal.paint(tone, mark))?;
    }
    writeln!(output)?;

    match &explanation.cause {
        None => write_line(output, format_args!("{} is healthy.", explanation.subject))?,
        Some(cause) => write_cause(cause, output, terminal, now)?,
    }
    for cause in &explanation.further {
        let fix = cause.fix.as_ref().map(|fix| format!(": {fix}")).unwrap_or_default();
        write_line(output, format_args!("{:<14}{}: {}{fix}", "Also:", cause.reason, cause.message))?;
    }
    for (number, event) in explanation.events.iter().enumerate() {
        let label = if number == 0 { "Events:" } else { "" };
        let ago = age(Some(event.at), now);
        write_line(output, format_args!("{label:<14}{ago} ago, {}: {}", event.reason, event.message))?;
    }
    output.flush()
}

fn write_cause(
    cause: &Cause,
    output: &mut dyn io::Write,
    terminal: Terminal,
    now: k8s_openapi::jiff::Timestamp,
) -> io::Result<()> {
    let tone = if cause.is_in_progress() { Tone::Waiting } else { Tone::Bad };
    let reason = terminal.paint(tone, &cause.reason);
    let since = cause.since.map_or("unknown".to_owned(), |since| format!("{} ago", age(Some(since), now)));
    writeln!(output, "{:<14}{reason}: {}", "Cause:", Escaped(&cause.message))?;
    write_line(output, format_args!("{:<14}{}", "Object:", cause.object))?;
    writeln!(output, "{:<14}{since}", "Since:")?;
    if let Some(waiting_for) = &cause.waiting_for {
        write_line(output, format_args!("{:<14}{waiting_for}", "Waiting for:"))?;
    }
    if let Some(fix) = &cause.fix {
        write_line(output, format_args!("{:<14}{fix}", "Fix:"))?;
    }
    Ok(())
}

/// How many objects of a cause are named in text.
const NAMED_OBJECTS: usize = 5;

fn write_overview(
    overview: &Overview,
    namespace: Option<&str>,
    loaded: &Loaded,
    console: &mut Console<'_>,
) -> io::Result<()> {
    let (terminal, now) = (console.terminal, loaded.inventory.now);
    let output = &mut *console.output;
    let scope = in_namespace(namespace);
    if overview.causes.is_empty() {
        let what = if loaded.missing.is_empty() { "Everything" } else { "Everything that could be read" };
        writeln!(output, "{what}{scope} is ready.")?;
        return output.flush();
    }

    let counts: Vec<String> = overview.causes.iter().map(|group| objects(group.objects.len())).collect();
    let ages: Vec<String> = overview
        .causes
        .iter()
        .map(|group| group.cause.since.map_or("-".to_owned(), |since| age(Some(since), now)))
        .collect();
    let width = |texts: &[String]| texts.iter().map(String::len).max().unwrap_or_default();
    let (count_width, age_width) = (width(&counts), width(&ages));
    for ((group, count), age) in overview.causes.iter().zip(&counts).zip(&ages) {
        let start = format!("{count:<count_width$}  {age:<age_width$}");
        write_group(group, &start, output, terminal)?;
    }

    let is_or_are = if overview.count == 1 { "is" } else { "are" };
    writeln!(output, "\n{}{scope} {is_or_are} not ready or not up to date.", objects(overview.count))?;
    output.flush()
}

/// Writes one cause: how many objects it blocks, since when, the reason, the sentence and the fix, then the objects.
fn write_group(
    group: &CauseGroup,
    start: &str,
    output: &mut dyn io::Write,
    terminal: Terminal,
) -> io::Result<()> {
    let (mark, tone) = match group.severity {
        Severity::Failing => ("✗", Tone::Bad),
        Severity::Waiting => ("…", Tone::Waiting),
        Severity::Degraded => ("!", Tone::Waiting),
    };
    let cause = &group.cause;
    let parts = [
        group.blocked_by().map(ToString::to_string),
        Some(cause.message.clone()),
        cause.waiting_for.as_ref().map(|waiting_for| format!("waiting for {waiting_for}")),
        cause.fix.clone(),
    ];
    let sentence = parts.into_iter().flatten().collect::<Vec<_>>().join(": ");
    let (mark, reason) = (terminal.paint(tone, mark), terminal.paint(tone, &cause.reason));
    writeln!(output, "{mark} {start}  {reason}: {}", Escaped(&sentence))?;

    let names: Vec<String> = group.objects.iter().take(NAMED_OBJECTS).map(ToString::to_string).collect();
    let more = match group.objects.len().saturating_sub(NAMED_OBJECTS) {
        0 => String::new(),
        more => format!(", … and {more} more"),
    };
    write_line(output, format_args!("    {}{more}", names.join(", ")))
}

fn objects(count: usize) -> String {
    format!("{count} object{}", if count == 1 { "" } else { "s" })
}
