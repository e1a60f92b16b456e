//! The tree datacenter → provider → machine. As text it shows failures first and folds healthy machines; as data it is
//! complete.

use std::{collections::BTreeMap, io, io::Write};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
    jiff::Timestamp,
};
use serde::Serialize;
use vitistack_plan::{
    Inventory,
    machine::{datacenter_of, placement},
};
use vitistack_types::{
    ObjectId, conditions,
    v1alpha1::{Datacenter, Machine, MachineProvider},
};

use crate::printing::{Escaped, Terminal, Tone, age};

/// How many machines with the same problem are shown one by one; the rest is counted.
const SHOWN: usize = 10;

/// One line of the tree, and what is below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// The object, or a note.
    pub title: String,
    /// Its state.
    pub state: String,
    /// How the state is shown.
    #[serde(skip)]
    pub tone: Tone,
    /// Whether it is a Machine, of which there may be thousands.
    #[serde(skip)]
    pub is_machine: bool,
    /// Why it is not ready; empty if it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Since when it has been in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What is below it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Node>,
}

impl Node {
    /// A line that is not an object.
    fn note(title: String, state: &str, tone: Tone) -> Self {
        Self {
            title,
            state: state.to_owned(),
            tone,
            is_machine: false,
            why: String::new(),
            since: None,
            children: Vec::new(),
        }
    }

    /// An object by its Ready condition.
    fn object(id: &ObjectId, metadata: &ObjectMeta, phase: Option<String>, conditions: &[Condition]) -> Self {
        let ready = conditions::find(conditions, conditions::READY);
        let is_deleting = metadata.deletion_timestamp.is_some();
        let (state, tone) = match (is_deleting, ready.map(|ready| ready.status.as_str())) {
            (true, _) => ("Deleting".to_owned(), Tone::Waiting),
            (false, Some("True")) => (phase.unwrap_or_else(|| "Ready".to_owned()), Tone::Good),
            (false, Some(_)) => (phase.unwrap_or_else(|| "NotReady".to_owned()), Tone::Bad),
            (false, None) => ("not reconciled yet".to_owned(), Tone::Waiting),
        };
        let why = ready.filter(|ready| ready.status != "True");
        Self {
            title: id.to_string(),
            state,
            tone,
            is_machine: false,
            why: why.map(|ready| format!("{}: {}", ready.reason, ready.message)).unwrap_or_default(),
            since: ready.map(|ready| ready.last_transition_time.0),
            children: Vec::new(),
        }
    }

    /// Writes the tree.
    pub fn write(&self, output: &mut dyn Write, terminal: Terminal, now: Timestamp) -> io::Result<()> {
        self.write_below(output, terminal, now, "", "")
    }

    fn write_below(
        &self,
        output: &mut dyn Write,
        terminal: Terminal,
        now: Timestamp,
        first: &str,
        rest: &str,
    ) -> io::Result<()> {
        write!(output, "{first}{}", Escaped(&self.title))?;
        if !self.state.is_empty() {
            write!(output, "  {}", terminal.paint(self.tone, &self.state))?;
        }
        if !self.why.is_empty() {
            write!(output, "  {}", Escaped(&self.why))?;
        }
        if self.since.is_some() {
            let since = format!("({})", age(self.since, now));
            write!(output, "  {}", terminal.paint(Tone::Faint, &since))?;
        }
        writeln!(output)?;
        let children = fold(&self.children);
        for (number, child) in children.iter().enumerate() {
            let (first, below) =
                if number + 1 == children.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            child.write_below(output, terminal, now, &format!("{rest}{first}"), &format!("{rest}{below}"))?;
        }
        Ok(())
    }
}

/// A Machine.
pub fn machine(machine: &Machine) -> Node {
    let status = machine.status.clone().unwrap_or_default();
    let phase = status.phase.map(|phase| format!("{phase:?}"));
    let node = Node::object(&ObjectId::of(machine), &machine.metadata, phase, &status.conditions);
    Node { is_machine: true, ..node }
}

/// A provider and those of its Machines that are selected.
pub fn provider(
    provider: &MachineProvider,
    inventory: &Inventory,
    is_selected: impl Fn(&Machine) -> bool,
) -> Node {
    let status = provider.status.clone().unwrap_or_default();
    let phase = status.phase.map(|phase| format!("{phase:?}"));
    let id = ObjectId::of(provider);
    let machines = inventory.placed_on(&id.name).filter(|machine| is_selected(machine));
    Node {
        children: machines.map(machine).collect(),
        ..Node::object(&id, &provider.metadata, phase, &status.conditions)
    }
}

/// A Datacenter, its providers by priority, and the Machines that refer to it.
pub fn datacenter(datacenter: &Datacenter, inventory: &Inventory) -> Node {
    let status = datacenter.status.clone().unwrap_or_default();
    let id = ObjectId::of(datacenter);

    let mut providers: Vec<_> = inventory.listed_providers(datacenter).collect();
    providers.sort_by_key(|(reference, _)| reference.priority.unwrap_or(u16::MAX));
    let is_member = |machine: &Machine| datacenter_of(machine).as_ref() == Some(&id.name);
    let mut children: Vec<Node> = providers
        .into_iter()
        .map(|(reference, found)| {
            if let Some(found) = found {
                return provider(found, inventory, is_member);
            }
            let name = reference.resolve(&id.name.namespace);
            Node::note(ObjectId::new("MachineProvider", name).to_string(), "not found", Tone::Bad)
        })
        .collect();

    let waiting = inventory.members(&id.name).filter(|machine| placement(machine).is_none());
    let waiting: Vec<Node> = waiting.map(machine).collect();
    if !waiting.is_empty() {
        children.push(Node { children: waiting, ..Node::note("not placed".to_owned(), "", Tone::Waiting) });
    }

    let phase = status.phase.map(|phase| format!("{phase:?}"));
    Node { children, ..Node::object(&id, &datacenter.metadata, phase, &status.conditions) }
}

/// Folds nodes for text: failed Machines first, healthy ones counted.
fn fold(nodes: &[Node]) -> Vec<Node> {
    let (machines, mut nodes): (Vec<Node>, Vec<Node>) =
        nodes.iter().cloned().partition(|node| node.is_machine);
    let mut failed: BTreeMap<String, Vec<Node>> = BTreeMap::new();
    let mut healthy: BTreeMap<String, Vec<Node>> = BTreeMap::new();
    for node in machines {
        let group = if node.tone == Tone::Good { &mut healthy } else { &mut failed };
        let key = if node.tone == Tone::Good { node.state.clone() } else { node.why.clone() };
        group.entry(key).or_default().push(node);
    }

    for mut alike in failed.into_values() {
        let more = alike.len().saturating_sub(SHOWN);
        let state = alike.first().map(|node| node.state.clone()).unwrap_or_default();
        alike.truncate(SHOWN);
        let tone = alike.first().map_or(Tone::Bad, |node| node.tone);
        nodes.extend(alike);
        if more > 0 {
            nodes.push(Node::note(format!("and {more} more machines with the same reason"), &state, tone));
        }
    }
    for (state, mut alike) in healthy {
        match alike.len() {
            0 => {}
            1 => nodes.append(&mut alike),
            several => nodes.push(Node::note(format!("{several} machines"), &state, Tone::Good)),
        }
    }
    nodes
}
