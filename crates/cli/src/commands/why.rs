//! Says why an object is as it is.

use clap::Args;
use snafu::ResultExt;
use vitistack_plan::explain::{Explanation, Standing, Subject, Told, World, explain};

use super::{Ending, Error, NameObjectSnafu, WriteOutputSnafu, write_answer};
use crate::{
    args::{AnswerArgs, ClusterArgs},
    cluster::{Cluster, RequestError},
    events,
    kinds::Target,
    output::{Console, Tone, age},
    world::{Loaded, load},
};

/// Which object.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  vitistack why machine/web-1           from what it shall be to what stands in its way
  vitistack why vsm web-1 -n team-a
  vitistack why machineprovider/aws
  vitistack why machine/web-1 -o json | jq -r .cause.reason

It reads only. It uses the words of conditions and events, and says what it could not read.
Exit codes: 0 done, 1 failed, 3 something that matters could not be read.")]
pub struct WhyArgs {
    /// KIND/NAME, or KIND and NAME; a name alone is that of a machine
    #[arg(required = true, num_args = 1..=2, value_name = "OBJECT")]
    object: Vec<String>,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Says it.
pub async fn run(arguments: &WhyArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let target = Target::read(&arguments.object).context(NameObjectSnafu)?;
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let mut loaded = load(&cluster).await?;
    let again = |loaded: &Loaded| {
        subject(&target, &cluster, &loaded.world).map(|subject| explain(subject, &loaded.world))
    };
    let Some(first) = again(&loaded) else { return Err(absent(&target, &cluster, &loaded).into()) };
    // Only the Secrets of what is in the chain: others are nobody's business.
    let objects: Vec<String> = first.chain.into_iter().map(|link| link.object).collect();
    loaded.read_secrets(&cluster, &objects).await;
    let Some(first) = again(&loaded) else { return Err(absent(&target, &cluster, &loaded).into()) };
    read_events(&cluster, &first, &mut loaded).await;
    let explanation = again(&loaded).unwrap_or(first);
    if !write_answer(&explanation, &loaded.missing, arguments.answer.output, console)? {
        write(&explanation, &loaded, console).context(WriteOutputSnafu)?;
    }
    for missing in &loaded.missing {
        writeln!(console.errors, "vitistack: not known: {missing}").context(WriteOutputSnafu)?;
    }
    Ok(if loaded.missing.is_empty() { Ending::Done } else { Ending::Partial })
}

/// The error for an object that is not there, or that cannot be understood.
pub fn absent(target: &Target, cluster: &Cluster, loaded: &Loaded) -> RequestError {
    let kind = &target.kind.resource.kind;
    let place = target.namespace(cluster);
    let own = format!("{kind} {}/{} ", place.unwrap_or_default(), target.name);
    let place = place.map(|name| format!(" in namespace {name}")).unwrap_or_default();
    let doing = format!("read {kind} {}{place}", target.name);
    match loaded.missing.iter().find(|missing| missing.starts_with(&own)) {
        Some(message) => RequestError::Answer { doing, message: message.clone() },
        None => RequestError::FindObject { doing },
    }
}

/// The object that the user names, if it was read.
pub fn subject<'a>(target: &Target, cluster: &Cluster, world: &'a World) -> Option<Subject<'a>> {
    let wanted = (Some(target.name.as_str()), target.namespace(cluster));
    let is_it = |metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
        (metadata.name.as_deref(), metadata.namespace.as_deref()) == wanted
    };
    match target.kind.resource.kind.as_str() {
        "Machine" => world.machines.iter().find(|one| is_it(&one.metadata)).map(Subject::Machine),
        "Datacenter" => world.datacenters.iter().find(|one| is_it(&one.metadata)).map(Subject::Datacenter),
        "MachineProvider" => {
            world.providers.iter().find(|one| is_it(&one.metadata)).map(Subject::MachineProvider)
        }
        "MachineClass" => world.classes.iter().find(|one| is_it(&one.metadata)).map(Subject::MachineClass),
        "NetworkConfiguration" => {
            world.networks.iter().find(|one| is_it(&one.metadata)).map(Subject::NetworkConfiguration)
        }
        _ => None,
    }
}

/// Reads what was told of the subject and of what stands in its way.
async fn read_events(cluster: &Cluster, explanation: &Explanation, loaded: &mut Loaded) {
    let mut objects = vec![explanation.subject.clone()];
    let cause = explanation.cause.as_ref().map(|cause| cause.object.clone());
    objects.extend(cause.filter(|object| *object != explanation.subject));
    for object in objects {
        let Some((kind, name)) = object.split_once(' ') else { continue };
        // Events of objects without a namespace live in "default".
        let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
        let (lines, answer) = events::read(cluster, Some(namespace), Some(&events::about(kind, name))).await;
        loaded.missing.extend(answer.err().map(|incomplete| incomplete.source.to_string()));
        loaded.world.events.extend(lines.into_iter().filter_map(|line| {
            let told =
                Told { at: line.at?, object: object.clone(), reason: line.reason, message: line.message };
            Some(told)
        }));
    }
    loaded.world.events.sort_by_key(|told| told.at);
}

fn write(explanation: &Explanation, loaded: &Loaded, console: &mut Console<'_>) -> std::io::Result<()> {
    let (terminal, now) = (console.terminal, loaded.world.now);
    let output = &mut console.output;
    let width = explanation.chain.iter().map(|link| link.object.chars().count()).max().unwrap_or_default();
    for link in &explanation.chain {
        let (mark, tone) = match link.standing {
            Standing::Well => ("✓", Tone::Good),
            Standing::Blocking => ("✗", Tone::Bad),
            Standing::Unknown => ("?", Tone::Waiting),
        };
        writeln!(output, "{} {:<width$}  {}", terminal.paint(tone, mark), link.object, link.says)?;
    }
    writeln!(output)?;
    match &explanation.cause {
        None => writeln!(output, "Nothing stands in the way of {}.", explanation.subject)?,
        Some(cause) => {
            let tone = if cause.waits_for.is_some() { Tone::Waiting } else { Tone::Bad };
            writeln!(output, "Cause:      {}: {}", terminal.paint(tone, &cause.reason), cause.message)?;
            writeln!(output, "Object:     {}", cause.object)?;
            let since =
                cause.since.map_or("not known".to_owned(), |since| format!("{} ago", age(Some(since), now)));
            writeln!(output, "Since:      {since}")?;
            if let Some(waits_for) = &cause.waits_for {
                writeln!(output, "Waits for:  {waits_for}")?;
            }
            if let Some(to_do) = &cause.to_do {
                writeln!(output, "To do:      {to_do}")?;
            }
        }
    }
    for (number, told) in explanation.tried.iter().enumerate() {
        let heading = if number == 0 { "Told:" } else { "" };
        writeln!(output, "{heading:<12}{} ago, {}: {}", age(Some(told.at), now), told.reason, told.message)?;
    }
    output.flush()
}
