//! What is to be done, as plain data.

use std::fmt;

/// What is to be changed on a machine that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Give the provider everything in the order that it can take; what takes effect later is told by the next observation.
    Specification,
    /// Switch it on.
    Start,
    /// Switch it off and keep it.
    Stop,
    /// Restart it once for this request; a second call with the same request does nothing.
    Restart {
        /// The request, as the annotation spells it.
        request: String,
    },
}

/// What is to be deleted. The machine goes first; volumes only when its absence was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The machine, without its volumes.
    Machine,
    /// These volumes, by the names of their disks.
    Disks(Vec<String>),
    /// Those of these volumes that still hold nothing, by the names of their disks. What may hold something stays.
    BlankDisks(Vec<String>),
    /// What is left beside machine and volumes.
    Leftovers,
}

/// One thing to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The first write to a Machine: finalizer, identity and placement in one patch, before anything real is made.
    Claim,
    /// Make the machine.
    Create,
    /// Change the machine.
    Update(Update),
    /// Delete a part of the machine.
    Delete(Part),
    /// Let the Machine go: the absence of everything real was observed.
    Release,
    /// Note that the provider cannot take the Machine, before what was made for it goes: from then on it is given back.
    PassOver,
    /// Give the Machine back to its Datacenter, which finds another provider: the absence of everything real was observed.
    HandBack,
}

/// One thing to be done and why, in a sentence: the same for event, log line and golden file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What.
    pub action: Action,
    /// Why.
    pub why: String,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match &self.action {
            Action::Claim => "claim".to_owned(),
            Action::Create => "create".to_owned(),
            Action::Update(Update::Specification) => "update".to_owned(),
            Action::Update(Update::Start) => "start".to_owned(),
            Action::Update(Update::Stop) => "stop".to_owned(),
            Action::Update(Update::Restart { request }) => format!("restart for {request}"),
            Action::Delete(Part::Machine) => "delete machine".to_owned(),
            Action::Delete(Part::Disks(names)) => format!("delete disks {}", names.join(", ")),
            Action::Delete(Part::BlankDisks(names)) => format!("delete blank disks {}", names.join(", ")),
            Action::Delete(Part::Leftovers) => "delete leftovers".to_owned(),
            Action::PassOver => "pass over".to_owned(),
            Action::Release => "release".to_owned(),
            Action::HandBack => "hand back".to_owned(),
        };
        write!(formatter, "{action}: {}", self.why)
    }
}
