//! The tree datacenter → provider → machine. Written, it shows what is broken first and folds what is well; as data it is
//! whole.

use std::{collections::BTreeMap, io, io::Write};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
    jiff::Timestamp,
};
use serde::Serialize;
use vitistack_plan::{explain::World, machine};
use vitistack_types::{
    conditions,
    v1alpha1::{Datacenter, Machine, MachineProvider},
};

use crate::output::{Terminal, Tone, age};

/// Machines with the same trouble that are shown one by one; the rest is counted.
const SHOWN: usize = 10;

/// One line of the tree, and what is below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// What it is.
    pub title: String,
    /// Its state in one word.
    pub state: String,
    /// How the state is meant.
    #[serde(skip)]
    pub tone: Tone,
    /// Whether it is a Machine, of which there may be thousands.
    #[serde(skip)]
    pub is_machine: bool,
    /// Why it is so; nothing for what is well.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Since when.
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
    fn object(kind: &str, metadata: &ObjectMeta, phase: Option<String>, conditions: &[Condition]) -> Self {
        let title = format!("{kind} {}", name(metadata));
        let ready = conditions.iter().find(|condition| condition.type_ == conditions::READY);
        let is_deleted = metadata.deletion_timestamp.is_some();
        let (state, tone) = match (is_deleted, ready.map(|ready| ready.status.as_str())) {
            (true, _) => ("Deleting".to_owned(), Tone::Waiting),
            (false, Some("True")) => (phase.unwrap_or_else(|| "Ready".to_owned()), Tone::Good),
            (false, Some(_)) => (phase.unwrap_or_else(|| "NotReady".to_owned()), Tone::Bad),
            (false, None) => ("not looked at yet".to_owned(), Tone::Waiting),
        };
        let why = ready.filter(|ready| ready.status != "True");
        Self {
            title,
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
        write!(output, "{first}{}", self.title)?;
        if !self.state.is_empty() {
            write!(output, "  {}", terminal.paint(self.tone, &self.state))?;
        }
        if !self.why.is_empty() {
            write!(output, "  {}", self.why)?;
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

fn name(metadata: &ObjectMeta) -> String {
    let name = metadata.name.as_deref().unwrap_or_default();
    metadata.namespace.as_ref().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// A Machine.
pub fn machine(machine: &Machine) -> Node {
    let status = machine.status.clone().unwrap_or_default();
    let phase = status.phase.map(|phase| format!("{phase:?}"));
    let node = Node::object("Machine", &machine.metadata, phase, &status.conditions);
    Node { is_machine: true, ..node }
}

/// A provider and the Machines on it that are wanted.
pub fn provider(provider: &MachineProvider, world: &World, is_wanted: impl Fn(&Machine) -> bool) -> Node {
    let status = provider.status.clone().unwrap_or_default();
    let phase = status.phase.map(|phase| format!("{phase:?}"));
    let own = name(&provider.metadata);
    let placed =
        world.machines.iter().filter(|one| machine::placement(one) == Some(own.as_str()) && is_wanted(one));
    Node {
        children: placed.map(machine).collect(),
        ..Node::object("MachineProvider", &provider.metadata, phase, &status.conditions)
    }
}

/// A Datacenter, its providers in the order of their priority, and the Machines that name it.
pub fn datacenter(datacenter: &Datacenter, world: &World) -> Node {
    let status = datacenter.status.clone().unwrap_or_default();
    let own = name(&datacenter.metadata);
    let place = datacenter.metadata.namespace.as_deref().unwrap_or_default();
    let is_member = |one: &Machine| {
        let namespace = one.metadata.namespace.as_deref().unwrap_or_default();
        let reference = one.spec.datacenter_ref.as_ref();
        reference.is_some_and(|reference| machine::full_name(reference, namespace) == own)
    };
    let mut references: Vec<_> = datacenter.spec.machine_providers.iter().collect();
    references.sort_by_key(|reference| reference.priority.unwrap_or(u16::MAX));
    let mut children: Vec<Node> = references
        .into_iter()
        .map(|reference| {
            let wanted = format!("{}/{}", reference.namespace.as_deref().unwrap_or(place), reference.name);
            match world.providers.iter().find(|one| name(&one.metadata) == wanted) {
                Some(found) => provider(found, world, is_member),
                None => Node::note(format!("MachineProvider {wanted}"), "is not there", Tone::Bad),
            }
        })
        .collect();
    let waiting = world.machines.iter().filter(|one| is_member(one) && machine::placement(one).is_none());
    let waiting: Vec<Node> = waiting.map(machine).collect();
    if !waiting.is_empty() {
        children.push(Node { children: waiting, ..Node::note("not placed".to_owned(), "", Tone::Waiting) });
    }
    let phase = status.phase.map(|phase| format!("{phase:?}"));
    Node { children, ..Node::object("Datacenter", &datacenter.metadata, phase, &status.conditions) }
}

/// What is written of lines: of Machines the broken ones first, those that are well counted.
fn fold(nodes: &[Node]) -> Vec<Node> {
    let (machines, mut nodes): (Vec<Node>, Vec<Node>) =
        nodes.iter().cloned().partition(|node| node.is_machine);
    let mut broken: BTreeMap<String, Vec<Node>> = BTreeMap::new();
    let mut well: BTreeMap<String, Vec<Node>> = BTreeMap::new();
    for node in machines {
        let group = if node.tone == Tone::Good { &mut well } else { &mut broken };
        let key = if node.tone == Tone::Good { node.state.clone() } else { node.why.clone() };
        group.entry(key).or_default().push(node);
    }
    for mut alike in broken.into_values() {
        let more = alike.len().saturating_sub(SHOWN);
        let state = alike.first().map(|node| node.state.clone()).unwrap_or_default();
        alike.truncate(SHOWN);
        let tone = alike.first().map_or(Tone::Bad, |node| node.tone);
        nodes.extend(alike);
        if more > 0 {
            nodes.push(Node::note(format!("and {more} more machines with the same reason"), &state, tone));
        }
    }
    for (state, mut alike) in well {
        match alike.len() {
            0 => {}
            1 => nodes.append(&mut alike),
            several => nodes.push(Node::note(format!("{several} machines"), &state, Tone::Good)),
        }
    }
    nodes
}
