//! Shows one object with everything around it.

use std::io;

use clap::Args;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde_json::{Map, Value, json};
use snafu::ResultExt;
use vitistack_plan::explain::{Subject, World};

use super::{Ending, Error, NameObjectSnafu, WriteOutputSnafu, why, write_answer};
use crate::{
    args::{AnswerArgs, ClusterArgs},
    cluster::Cluster,
    events::{self, EventLine},
    kinds::Target,
    output::{Console, Table, Terminal, age},
    summary_of,
    tree::{self, Node},
    world::load,
};

/// Which object.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  vitistack describe datacenter/west        its providers and machines, what is broken first
  vitistack describe machine web-1          what it shall be, where it is, conditions, events
  vitistack describe vsmp/simulated-a -o json

Exit codes: 0 done, 1 failed, 3 something around it could not be read; it is told on standard error.")]
pub struct DescribeArgs {
    /// KIND/NAME, or KIND and NAME; a name alone is that of a machine
    #[arg(required = true, num_args = 1..=2, value_name = "OBJECT")]
    object: Vec<String>,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Shows it.
pub async fn run(arguments: &DescribeArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let target = Target::read(&arguments.object).context(NameObjectSnafu)?;
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let mut loaded = load(&cluster).await?;
    let Some(subject) = why::subject(&target, &cluster, &loaded.world) else {
        return Err(why::absent(&target, &cluster, &loaded).into());
    };
    let about = events::about(&target.kind.resource.kind, &target.name);
    // Events of objects without a namespace live in "default".
    let namespace = target.namespace(&cluster).unwrap_or("default");
    let (told, answer) = events::read(&cluster, Some(namespace), Some(&about)).await;
    loaded.missing.extend(answer.err().map(|incomplete| incomplete.source.to_string()));
    let description = description(subject, &loaded.world, &told);
    if !write_answer(&description, &loaded.missing, arguments.answer.output, console)? {
        write(subject, &loaded.world, &told, console).context(WriteOutputSnafu)?;
    }
    for missing in &loaded.missing {
        writeln!(console.errors, "vitistack: not known: {missing}").context(WriteOutputSnafu)?;
    }
    Ok(if loaded.missing.is_empty() { Ending::Done } else { Ending::Partial })
}

/// The parts of an object that every description has.
struct Parts<'a> {
    kind: &'static str,
    metadata: &'a ObjectMeta,
    conditions: &'a [Condition],
    fields: Vec<(&'static str, String)>,
    tree: Option<Node>,
}

fn parts<'a>(subject: Subject<'a>, world: &World) -> Parts<'a> {
    let (kind, metadata, conditions, fields, tree) = match subject {
        Subject::Machine(machine) => (
            "Machine",
            &machine.metadata,
            machine.status.as_ref().map(|status| status.conditions.as_slice()),
            summary_of::machine(machine),
            Some(above(machine, world)),
        ),
        Subject::Datacenter(datacenter) => (
            "Datacenter",
            &datacenter.metadata,
            datacenter.status.as_ref().map(|status| status.conditions.as_slice()),
            summary_of::datacenter(datacenter),
            Some(tree::datacenter(datacenter, world)),
        ),
        Subject::MachineProvider(provider) => (
            "MachineProvider",
            &provider.metadata,
            provider.status.as_ref().map(|status| status.conditions.as_slice()),
            summary_of::provider(provider),
            Some(tree::provider(provider, world, |_| true)),
        ),
        Subject::MachineClass(class) => (
            "MachineClass",
            &class.metadata,
            class.status.as_ref().map(|status| status.conditions.as_slice()),
            summary_of::class(class),
            None,
        ),
        Subject::NetworkConfiguration(network) => (
            "NetworkConfiguration",
            &network.metadata,
            network.status.as_ref().map(|status| status.conditions.as_slice()),
            summary_of::network(network),
            None,
        ),
    };
    Parts { kind, metadata, conditions: conditions.unwrap_or_default(), fields, tree }
}

/// A Machine under its provider, under its Datacenter.
fn above(machine: &vitistack_types::v1alpha1::Machine, world: &World) -> Node {
    let is_it = |one: &vitistack_types::v1alpha1::Machine| one.metadata.uid == machine.metadata.uid;
    let placed = vitistack_plan::machine::placement(machine);
    let name = |metadata: &ObjectMeta| {
        format!(
            "{}/{}",
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default()
        )
    };
    let provider = world.providers.iter().find(|provider| Some(name(&provider.metadata).as_str()) == placed);
    let node = match provider {
        Some(provider) => tree::provider(provider, world, is_it),
        None => tree::machine(machine),
    };
    let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
    let wanted = machine
        .spec
        .datacenter_ref
        .as_ref()
        .map(|reference| vitistack_plan::machine::full_name(reference, namespace));
    let datacenter = world.datacenters.iter().find(|one| Some(name(&one.metadata)) == wanted);
    match datacenter {
        Some(datacenter) => Node { children: vec![node], ..tree::datacenter(datacenter, world) },
        None => node,
    }
}

/// The same for programs.
fn description(subject: Subject<'_>, world: &World, told: &[EventLine]) -> Value {
    let Parts { kind, metadata, conditions, fields, tree } = parts(subject, world);
    let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
    let fields: Map<String, Value> =
        fields.map(|(name, value)| (name.to_lowercase(), value.into())).collect();
    let event = |line: &EventLine| json!({ "at": line.at, "type": line.type_, "reason": line.reason, "message": line.message });
    json!({
        "kind": kind,
        "namespace": metadata.namespace,
        "name": metadata.name,
        "created": metadata.creation_timestamp,
        "deleted": metadata.deletion_timestamp,
        "fields": fields,
        "tree": tree,
        "conditions": conditions,
        "events": told.iter().map(event).collect::<Vec<_>>(),
    })
}

fn write(
    subject: Subject<'_>,
    world: &World,
    told: &[EventLine],
    console: &mut Console<'_>,
) -> io::Result<()> {
    let (terminal, now) = (console.terminal, world.now);
    let output = &mut console.output;
    let Parts { kind, metadata, conditions, fields, tree } = parts(subject, world);
    let mut lines = vec![("Name", metadata.name.clone().unwrap_or_default())];
    lines.extend(metadata.namespace.clone().map(|namespace| ("Namespace", namespace)));
    lines.push(("Kind", kind.to_owned()));
    lines.push(("Age", age(metadata.creation_timestamp.as_ref().map(|time| time.0), now)));
    if let Some(deleted) = &metadata.deletion_timestamp {
        let finalizers = metadata.finalizers.clone().unwrap_or_default().join(", ");
        let since = age(Some(deleted.0), now);
        lines.push(("Deleted", format!("{since} ago, held by {finalizers}")));
    }
    lines.extend(fields);
    for (field, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        writeln!(output, "{:<12}{value}", format!("{field}:"))?;
    }
    if let Some(tree) = tree {
        writeln!(output, "\nTree:")?;
        tree.write(output, terminal, now)?;
    }
    writeln!(output, "\nConditions:")?;
    write_conditions(conditions, output, terminal, now)?;
    writeln!(output, "\nEvents:")?;
    if told.is_empty() {
        return writeln!(output, "none");
    }
    let mut table = Table::new(["Last seen", "Type", "Reason", "Message"]);
    for line in told {
        table.row([age(line.at, now).as_str(), &line.type_, &line.reason, &line.message]);
    }
    table.write(output, terminal)
}

fn write_conditions(
    conditions: &[Condition],
    output: &mut dyn io::Write,
    terminal: Terminal,
    now: k8s_openapi::jiff::Timestamp,
) -> io::Result<()> {
    if conditions.is_empty() {
        return writeln!(output, "none: no operator has looked at it yet");
    }
    let mut table = Table::new(["Type", "Status", "Reason", "Since", "Message"]);
    for condition in conditions {
        let since = age(Some(condition.last_transition_time.0), now);
        table.row([
            condition.type_.as_str(),
            &condition.status,
            &condition.reason,
            &since,
            &condition.message,
        ]);
    }
    table.write(output, terminal)
}
