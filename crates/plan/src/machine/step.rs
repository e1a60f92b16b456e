//! What to do about a machine, as plain data.

use std::fmt;

use serde::{Serialize, Serializer};
use vitistack_types::{Event, conditions::reason};

/// A change to a machine that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Give the provider everything in the order that it can take; the next observation reports what takes effect later.
    Specification,
    /// Start it.
    Start,
    /// Stop it and keep it.
    Stop,
    /// Restart it once for this request; a second call with the same request does nothing.
    Restart {
        /// The request, as the annotation spells it.
        request: String,
    },
}

/// A part of a machine to delete. The machine is deleted first; volumes only when its absence was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The machine, without its volumes.
    Machine,
    /// These volumes, by the names of their disks.
    Disks(Vec<String>),
    /// Those of these volumes that are still blank, by the names of their disks. A volume that may hold data stays.
    BlankDisks(Vec<String>),
    /// What is left besides the machine and its volumes.
    Leftovers,
}

/// One action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write finalizer, identity and placement to the Machine in one patch, before anything real is created.
    Claim,
    /// Create the machine.
    Create,
    /// Change the machine.
    Update(Update),
    /// Delete a part of the machine.
    Delete(Part),
    /// Remove our finalizer: the absence of everything real was observed.
    RemoveFinalizer,
    /// Record that the provider cannot host the Machine, before its leftovers are deleted.
    MarkPassedOver,
    /// Return the Machine to its Datacenter, which finds another provider: the absence of everything real was observed.
    ReturnToDatacenter,
}

impl Action {
    /// The name of the action in a trace.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Create => "create",
            Self::Update(_) => "update",
            Self::Delete(_) => "delete",
            Self::RemoveFinalizer => "remove_finalizer",
            Self::MarkPassedOver => "mark_passed_over",
            Self::ReturnToDatacenter => "return_to_datacenter",
        }
    }
}

/// One action and why, in a sentence: event, log line and golden file show the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What to do.
    pub action: Action,
    /// Why.
    pub why: String,
}

impl Step {
    /// The event to publish when the step was requested, for steps that no condition records. A request without an answer may
    /// have been carried out, so it counts. The deletion of disks, which may hold data, is a warning.
    #[must_use]
    pub fn event(&self) -> Option<Event> {
        let reason = match &self.action {
            Action::Delete(_) => reason::DELETING,
            Action::Update(_) => reason::UPDATING,
            Action::MarkPassedOver | Action::ReturnToDatacenter => reason::PASSED_OVER,
            Action::Claim | Action::Create | Action::RemoveFinalizer => return None,
        };
        let publish = match &self.action {
            Action::Delete(Part::Disks(_)) => Event::warning,
            _ => Event::normal,
        };
        Some(publish(reason, self.to_string()))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            Action::Claim => formatter.write_str("Claiming the machine")?,
            Action::Create => formatter.write_str("Creating the machine")?,
            Action::Update(Update::Specification) => formatter.write_str("Updating the machine")?,
            Action::Update(Update::Start) => formatter.write_str("Starting the machine")?,
            Action::Update(Update::Stop) => formatter.write_str("Stopping the machine")?,
            Action::Update(Update::Restart { request }) => {
                write!(formatter, "Restarting the machine for {request}")?;
            }
            Action::Delete(Part::Machine) => formatter.write_str("Deleting the machine")?,
            Action::Delete(Part::Disks(names)) => write!(formatter, "Deleting disks {}", names.join(", "))?,
            Action::Delete(Part::BlankDisks(names)) => {
                write!(formatter, "Deleting blank disks {}", names.join(", "))?;
            }
            Action::Delete(Part::Leftovers) => formatter.write_str("Deleting leftovers")?,
            Action::RemoveFinalizer => formatter.write_str("Removing the finalizer")?,
            Action::MarkPassedOver => formatter.write_str("Passing over the provider")?,
            Action::ReturnToDatacenter => formatter.write_str("Returning the Machine to its Datacenter")?,
        }
        write!(formatter, ": {}", self.why)
    }
}

impl Serialize for Step {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
