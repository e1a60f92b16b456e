//! The plan for one datacenter: what to write to its Machines, its status, events and when to reconcile again.

use std::{collections::BTreeMap, fmt, time::Duration};

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use vitistack_types::{
    Event, ObjectId, ObjectName, Outcome, WatchedNamespaces,
    conditions::reason,
    labels,
    v1alpha1::{Datacenter, DatacenterStatus, Machine, MachineStatus},
};

use super::{
    Assignment, MemberDecision, Snapshot, allocate,
    growth::Admitted,
    passed_over::{is_passed_over_by, moved, without},
    status::{datacenter_status, paused_machine, refused_machine},
};
use crate::{
    Plan, Refusal,
    conditions::{OF_DATACENTERS, owned},
    events, is_paused,
    machine::{annotation, datacenter_of, identity, placement},
    refusals,
};

/// The plan for one datacenter.
pub type DatacenterPlan<'a> = Plan<MemberStep<'a>, DatacenterStatus>;

/// One write to a Machine of the datacenter.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberStep<'a> {
    /// The Machine.
    pub machine: &'a Machine,
    /// What to write.
    pub action: MemberAction,
    /// The event to publish when it was written.
    pub event: Option<Event>,
}

/// What to write to a Machine.
#[derive(Clone, Debug, PartialEq)]
pub enum MemberAction {
    /// These annotations; those without a value are removed.
    Annotate(BTreeMap<&'static str, Option<String>>),
    /// This status.
    Report(Box<MachineStatus>),
}

impl MemberStep<'_> {
    /// The Machine as it will be after the write.
    #[must_use]
    pub fn intended(&self) -> Machine {
        let mut machine = self.machine.clone();
        match &self.action {
            MemberAction::Annotate(annotations) => {
                let all = machine.metadata.annotations.get_or_insert_default();
                for (name, value) in annotations {
                    match value {
                        Some(value) => all.insert((*name).to_owned(), value.clone()),
                        None => all.remove(*name),
                    };
                }
            }
            MemberAction::Report(status) => machine.status = Some((**status).clone()),
        }
        machine
    }
}

impl fmt::Display for MemberStep<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match &self.action {
            MemberAction::Annotate(all) if all.get(labels::PLACEMENT) == Some(&None) => {
                "Removing the placement of"
            }
            MemberAction::Annotate(all) if !all.contains_key(labels::PLACEMENT) => "Admitting",
            MemberAction::Annotate(_) => "Placing",
            MemberAction::Report(_) => "Reporting on",
        };
        write!(formatter, "{verb} {}", ObjectId::of(self.machine))?;
        self.event.as_ref().map_or(Ok(()), |event| write!(formatter, ": {event}"))
    }
}

impl Serialize for MemberStep<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Plans one datacenter.
#[must_use]
pub fn plan<'a>(snapshot: &Snapshot<'a>) -> DatacenterPlan<'a> {
    let datacenter = snapshot.datacenter;
    let allocation = allocate(snapshot);

    let steps = if is_paused(&datacenter.metadata) {
        Vec::new()
    } else {
        let members = allocation.members.iter();
        members.filter_map(|(machine, decision)| member_step(machine, decision, snapshot.now)).collect()
    };

    let status = datacenter_status(datacenter, &snapshot.candidates, allocation.used, snapshot.now);
    let before = datacenter.status.as_ref();
    let before = before.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let events =
        status.iter().filter_map(|after| events::of_ready(before, &after.conditions, false)).collect();

    let requeue = allocation.retry_at.map_or(Outcome::Done, |time| {
        let after = Duration::try_from(time.duration_since(snapshot.now)).unwrap_or_default();
        Outcome::wait("a provider that was passed over to be tried again", after)
    });
    Plan { objects: Vec::new(), steps, status, events, requeue }
}

/// Returns why no Datacenter decides on a Machine that refers to one that was not found.
pub(crate) fn orphaned(machine: &Machine, datacenter: &ObjectName, watched: &WatchedNamespaces) -> Refusal {
    if !watched.contains(&datacenter.namespace) {
        return refusals::not_watched("spec.datacenterRef", &ObjectId::new("Datacenter", datacenter.clone()));
    }
    let own = machine.metadata.namespace.as_deref().unwrap_or_default();
    refusals::datacenter_not_available(datacenter, own)
}

/// Plans a Machine whose Datacenter was not found, unless it is placed or being deleted.
#[must_use]
pub fn plan_orphan<'a>(
    machine: &'a Machine,
    watched: &WatchedNamespaces,
    now: Timestamp,
) -> Option<MemberStep<'a>> {
    let datacenter = datacenter_of(machine)?;
    // A Datacenter that is gone does not displace its machines.
    let is_settled = placement(machine).is_some() || machine.metadata.deletion_timestamp.is_some();
    if is_settled || is_paused(&machine.metadata) {
        return None;
    }
    let status = refused_machine(machine, &orphaned(machine, &datacenter, watched), now)?;
    Some(report_step(machine, status))
}

/// Whether a new status differs from the last one only in its totals, which change with every machine.
#[must_use]
pub fn only_totals_changed(datacenter: &Datacenter, after: &DatacenterStatus) -> bool {
    let without_totals = |status: &DatacenterStatus| DatacenterStatus {
        used: None,
        conditions: owned(&status.conditions, OF_DATACENTERS),
        ..status.clone()
    };
    let before = datacenter.status.as_ref();
    before.is_some_and(|before| without_totals(before) == without_totals(after))
}

/// What has to be written to carry a decision out, if anything.
fn member_step<'a>(
    machine: &'a Machine,
    decision: &MemberDecision,
    now: Timestamp,
) -> Option<MemberStep<'a>> {
    match decision {
        MemberDecision::Place(assignment) => {
            let event = match assignment.moved_from {
                None => Event::normal(reason::PLACED, &assignment.choice.why),
                Some(_) => Event::warning(reason::MOVED, &assignment.choice.why),
            };
            annotate_step(machine, placement_annotations(machine, assignment, now), event)
        }
        MemberDecision::Withdraw(Refusal { reason, message, .. }) => {
            let removed = [labels::PLACEMENT, labels::ZONE, labels::PLACEMENT_REASON, labels::ADMITTED]
                .map(|name| (name, None));
            annotate_step(machine, removed.into(), Event::warning(*reason, message))
        }
        MemberDecision::Refuse(refusal) => {
            Some(report_step(machine, refused_machine(machine, refusal, now)?))
        }
        MemberDecision::Pause => Some(report_step(machine, paused_machine(machine, now)?)),
        MemberDecision::Admit(usage) => {
            let action =
                MemberAction::Annotate([(labels::ADMITTED, Some(Admitted(*usage).to_string()))].into());
            Some(MemberStep { machine, action, event: None })
        }
        // The operator of the machine reports it, in the same words.
        MemberDecision::Hold(_) => None,
    }
}

fn annotate_step<'a>(
    machine: &'a Machine,
    annotations: BTreeMap<&'static str, Option<String>>,
    event: Event,
) -> Option<MemberStep<'a>> {
    if annotations.is_empty() {
        return None;
    }
    Some(MemberStep { machine, action: MemberAction::Annotate(annotations), event: Some(event) })
}

fn report_step(machine: &Machine, status: MachineStatus) -> MemberStep<'_> {
    let before = machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let event = events::of_ready(before, &status.conditions, false);
    MemberStep { machine, action: MemberAction::Report(Box::new(status)), event }
}

/// The annotations that place a Machine, without those that it already has.
fn placement_annotations(
    machine: &Machine,
    Assignment { choice, moved_from, admitted }: &Assignment,
    now: Timestamp,
) -> BTreeMap<&'static str, Option<String>> {
    let placement = vitistack_types::Placement::Provider(choice.provider.clone());
    let mut all: BTreeMap<&'static str, Option<String>> = [
        (labels::IDENTITY, Some(identity(machine).as_str().to_owned())),
        (labels::PLACEMENT, Some(placement.to_string())),
        (labels::ZONE, choice.zone.clone()),
        (labels::PLACEMENT_REASON, Some(choice.why.clone())),
    ]
    .into();

    if let Some(admitted) = admitted {
        all.insert(labels::ADMITTED, Some(Admitted(*admitted).to_string()));
    }
    if let Some(from) = moved_from {
        all.insert(labels::PASSED_OVER, Some(moved(machine, from, &choice.provider, now)));
    } else if is_passed_over_by(machine, &placement) {
        all.insert(labels::PASSED_OVER, without(machine, &choice.provider, now));
    }
    all.retain(|name, value| annotation(machine, name) != value.as_deref());
    all
}
