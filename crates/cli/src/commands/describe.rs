//! Describes one object and what it is related to.

use std::io;

use clap::Args;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Map, Value, json};
use snafu::ResultExt;
use vitistack_plan::{Inventory, inventory::InventoryObject, machine};
use vitistack_types::{Placement, v1alpha1::Machine};

use super::{Ending, Error, NameObjectSnafu, WriteOutputSnafu, why, write_answer};
use crate::{
    args::{ClusterArgs, OutputArgs},
    cluster::{
        Cluster,
        events::{self, EventLine},
        kinds::Target,
    },
    inventory::load,
    printing::{
        Console, Table, Terminal, age,
        describe_fields::{self, Fields},
        write_line,
    },
    tree::{self, Node},
};

/// Arguments of `vitistack describe`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  # Describe a machine: its desired state, placement, conditions and events
  vitistack describe machine web-1

  # Describe a datacenter with its providers and machines, failures first
  vitistack describe datacenter/west

  # Print the description of a provider as JSON
  vitistack describe vsmp/rack-one -o json

Exit status: 0 success, 1 failure, 3 partial result (what could not be read is reported on standard error)")]
pub struct DescribeArgs {
    /// Object, as KIND/NAME or KIND NAME; the default kind is machine
    #[arg(required = true, num_args = 1..=2, value_name = "OBJECT")]
    object: Vec<String>,
    #[command(flatten)]
    answer: OutputArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Describes one object.
pub async fn run(arguments: &DescribeArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let target = Target::read(&arguments.object).context(NameObjectSnafu)?;
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let mut loaded = load(&cluster).await?;
    let id = loaded.find(&target, &cluster)?.id();

    let about = events::about(&id.kind, &id.name.name);
    let (events, answer) = events::read(&cluster, Some(events::namespace(&id.name)), Some(&about)).await;
    loaded.missing.extend(answer.err().map(|incomplete| incomplete.source.to_string()));

    let subject = loaded.find(&target, &cluster)?;
    let description = description(subject, &loaded.inventory, &events);
    if !write_answer(&description, &loaded.missing, arguments.answer.output, console)? {
        write(subject, &loaded.inventory, &events, console).context(WriteOutputSnafu)?;
    }
    why::report_missing(&loaded.missing, console).context(WriteOutputSnafu)?;
    Ok(if loaded.missing.is_empty() { Ending::Done } else { Ending::Partial })
}

/// The fields and the tree of an object.
fn details(object: InventoryObject<'_>, inventory: &Inventory) -> (Fields, Option<Node>) {
    match object {
        InventoryObject::Machine(machine) => {
            (describe_fields::machine(machine), Some(tree_above(machine, inventory)))
        }
        InventoryObject::Datacenter(datacenter) => {
            (describe_fields::datacenter(datacenter), Some(tree::datacenter(datacenter, inventory)))
        }
        InventoryObject::MachineProvider(provider) => {
            (describe_fields::provider(provider), Some(tree::provider(provider, inventory, |_| true)))
        }
        InventoryObject::MachineClass(class) => (describe_fields::class(class), None),
        InventoryObject::NetworkConfiguration(network) => (describe_fields::network(network), None),
    }
}

/// A Machine under its provider, under its Datacenter.
fn tree_above(machine: &Machine, inventory: &Inventory) -> Node {
    let placement = machine::placement(machine);
    let provider = placement.as_ref().and_then(Placement::provider).and_then(|name| inventory.provider(name));
    let node = match provider {
        Some(provider) => {
            tree::provider(provider, inventory, |other| other.metadata.uid == machine.metadata.uid)
        }
        None => tree::machine(machine),
    };

    match machine::datacenter_of(machine).and_then(|name| inventory.datacenter(&name)) {
        Some(datacenter) => Node { children: vec![node], ..tree::datacenter(datacenter, inventory) },
        None => node,
    }
}

/// The description for programs.
fn description(object: InventoryObject<'_>, inventory: &Inventory, events: &[EventLine]) -> Value {
    let metadata = object.metadata();
    let (fields, tree) = details(object, inventory);
    let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
    let fields: Map<String, Value> =
        fields.map(|(name, value)| (name.to_lowercase(), value.into())).collect();
    let event = |line: &EventLine| json!({ "at": line.at, "type": line.type_, "reason": line.reason, "message": line.message });
    json!({
        "kind": object.id().kind,
        "namespace": metadata.namespace,
        "name": metadata.name,
        "created": metadata.creation_timestamp,
        "deleted": metadata.deletion_timestamp,
        "fields": fields,
        "tree": tree,
        "conditions": object.conditions(),
        "events": events.iter().map(event).collect::<Vec<_>>(),
    })
}

fn write(
    object: InventoryObject<'_>,
    inventory: &Inventory,
    events: &[EventLine],
    console: &mut Console<'_>,
) -> io::Result<()> {
    let (terminal, now) = (console.terminal, inventory.now);
    let output = &mut *console.output;
    let metadata = object.metadata();
    let (fields, tree) = details(object, inventory);

    let mut lines = vec![("Name", metadata.name.clone().unwrap_or_default())];
    lines.extend(metadata.namespace.clone().map(|namespace| ("Namespace", namespace)));
    lines.push(("Kind", object.id().kind));
    lines.push(("Age", age(metadata.creation_timestamp.as_ref().map(|time| time.0), now)));
    if let Some(deleted) = &metadata.deletion_timestamp {
        let finalizers = metadata.finalizers.clone().unwrap_or_default().join(", ");
        let since = age(Some(deleted.0), now);
        lines.push(("Deleted", format!("{since} ago, blocked by finalizers {finalizers}")));
    }
    lines.extend(fields);

    for (field, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        write_line(output, format_args!("{:<12}{value}", format!("{field}:")))?;
    }

    if let Some(tree) = tree {
        writeln!(output, "\nTree:")?;
        tree.write(output, terminal, now)?;
    }
    writeln!(output, "\nConditions:")?;
    write_conditions(object.conditions(), output, terminal, now)?;
    writeln!(output, "\nEvents:")?;
    if events.is_empty() {
        return writeln!(output, "none");
    }
    let mut table = Table::new(["Last seen", "Type", "Reason", "Message"]);
    for line in events {
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
        return writeln!(output, "none: not reconciled yet");
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
