//! Writing: placements, what is told of machines without one, the status of the datacenter.

use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
};
use serde_json::json;
use vitistack_clients::kubernetes::{Applied, StatusError, apply_status, explain, is_conflict};
use vitistack_plan::{
    Refusal,
    datacenter::{Assignment, Verdict, annotations, paused_machine, refused_machine},
};
use vitistack_runtime::{
    ReconcileError,
    events::{Events, Severity},
};
use vitistack_types::{
    conditions::{self, reason},
    v1alpha1::{Machine, MachineStatus},
};

use crate::machine::FIELD_MANAGER;

/// One write about one Machine.
pub(super) enum Write<'a> {
    /// Its annotations change, as the verdict says.
    Placement(&'a Machine, &'a Verdict, serde_json::Value),
    /// Its status changes.
    Status(&'a Machine, Box<MachineStatus>),
}

/// What became of a write.
pub(super) enum Written<'a> {
    /// The Machine as it is now.
    Placed(Box<Machine>),
    /// The status of this Machine stands.
    Told(&'a Machine),
    /// Somebody was faster, or the Machine is gone. Holds its UID.
    Overtaken(String),
    /// The same, of a status.
    NotTold,
}

/// What has to be written to carry a verdict out, if anything.
pub(super) fn write_for<'a>(
    machine: &'a Machine,
    verdict: &'a Verdict,
    now: jiff::Timestamp,
) -> Option<Write<'a>> {
    let status = match verdict {
        Verdict::Place(_) | Verdict::Withdraw(_) => {
            let annotations = annotations(machine, verdict, now);
            let metadata = &machine.metadata;
            return (!annotations.is_empty()).then(|| {
                // With both preconditions the server decides between this and whoever else acts on the Machine.
                let patch = json!({ "metadata": {
                    "uid": metadata.uid, "resourceVersion": metadata.resource_version, "annotations": annotations,
                }});
                Write::Placement(machine, verdict, patch)
            });
        }
        Verdict::Refuse(refusal) => refused_machine(machine, refusal, now),
        Verdict::Pause => paused_machine(machine, now),
    };
    (machine.status.as_ref() != Some(&status)).then(|| Write::Status(machine, Box::new(status)))
}

/// The Machine as it will be after a write of its placement.
pub(super) fn intended(machine: &Machine, verdict: &Verdict, now: jiff::Timestamp) -> Machine {
    let mut machine = machine.clone();
    for (name, value) in annotations(&machine, verdict, now) {
        let all = machine.metadata.annotations.get_or_insert_default();
        match value {
            Some(value) => all.insert(name.to_owned(), value),
            None => all.remove(name),
        };
    }
    machine
}

/// Makes one write, and tells about it.
pub(super) async fn carry_out<'a>(
    client: &Client,
    events: &Events,
    write: Write<'a>,
) -> Result<Written<'a>, ReconcileError> {
    match write {
        Write::Placement(machine, verdict, patch) => {
            let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
            let name = machine.metadata.name.as_deref().unwrap_or_default();
            let api: Api<Machine> = Api::namespaced(client.clone(), namespace);
            match api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(written) => {
                    announce(events, machine, verdict).await;
                    Ok(Written::Placed(Box::new(written)))
                }
                Err(error) if is_overtaken(&error) => {
                    Ok(Written::Overtaken(machine.metadata.uid.clone().unwrap_or_default()))
                }
                Err(error) => Err(ReconcileError::new(
                    "PlaceMachine",
                    format!("failed to place Machine {namespace}/{name}: {}", explain(&error)),
                )),
            }
        }
        Write::Status(machine, status) => {
            let is_told = tell_machine(client, events, machine, &status).await?;
            Ok(if is_told { Written::Told(machine) } else { Written::NotTold })
        }
    }
}

/// Whether the object changed or went meanwhile.
fn is_overtaken(error: &kube::Error) -> bool {
    is_conflict(error) || matches!(error, kube::Error::Api(status) if status.code == 404)
}

async fn announce(events: &Events, machine: &Machine, verdict: &Verdict) {
    let (severity, reason, note) = match verdict {
        Verdict::Place(Assignment { placement, moved_from: None }) => {
            (Severity::Normal, reason::PLACED, &placement.why)
        }
        Verdict::Place(Assignment { placement, .. }) => (Severity::Warning, reason::MOVED, &placement.why),
        Verdict::Withdraw(refusal) => (Severity::Warning, refusal.reason, &refusal.message),
        Verdict::Refuse(_) | Verdict::Pause => return,
    };
    events.publish(severity, &machine.object_ref(&()), reason, note).await;
}

/// Tells why a Machine is not placed: a refusal that nobody but the given one has to say. Says whether it stands; else
/// the Machine changed or went meanwhile.
pub(super) async fn refuse(
    client: &Client,
    events: &Events,
    machine: &Machine,
    refusal: &Refusal,
    now: jiff::Timestamp,
) -> Result<bool, ReconcileError> {
    tell_machine(client, events, machine, &refused_machine(machine, refusal, now)).await
}

async fn tell_machine(
    client: &Client,
    events: &Events,
    machine: &Machine,
    status: &MachineStatus,
) -> Result<bool, ReconcileError> {
    let applied = apply_status(client, FIELD_MANAGER, machine, machine.status.as_ref(), status).await;
    match applied {
        Ok(Applied::Unchanged) => Ok(true),
        Err(StatusError::ApplyStatus { source, .. }) if is_overtaken(&source) => Ok(false),
        Err(error) => Err(ReconcileError::from_source("ApplyStatus", error)),
        Ok(Applied::Written) => {
            let ready = |status: &MachineStatus| {
                let found = status.conditions.iter().find(|condition| condition.type_ == conditions::READY);
                found.map(|ready| (ready.reason.clone(), ready.message.clone()))
            };
            let before = machine.status.as_ref().and_then(ready).map(|(reason, _)| reason);
            if let Some((reason, message)) = ready(status)
                && Some(&reason) != before.as_ref()
                && reason != reason::PAUSED
            {
                events.publish(Severity::Warning, &machine.object_ref(&()), &reason, &message).await;
            }
            Ok(true)
        }
    }
}
