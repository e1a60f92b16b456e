//! What a machine is doing, from what KubeVirt says of it.

use kube::core::DynamicObject;
use serde::Deserialize;
use vitistack_plan::{
    Refusal,
    machine::{Power, Problem},
};
use vitistack_types::conditions::reason;

use super::{changes::place, failure::clean, kind::part, virtual_machine::HALTED};

/// A condition, as KubeVirt and CDI write them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
}

/// The condition of a type, if it has that status.
#[must_use]
pub fn condition(object: &DynamicObject, kind: &str, status: &str) -> Option<Condition> {
    let conditions: Vec<Condition> = part(object, "/status/conditions");
    conditions.into_iter().find(|condition| condition.kind == kind && condition.status == status)
}

/// What the machine is doing, and what the cluster lacks for it.
#[must_use]
pub fn power(machine: &DynamicObject, instance: Option<&DynamicObject>) -> (Power, Option<Problem>) {
    if machine.metadata.deletion_timestamp.is_some() {
        return (Power::Stopping, None);
    }
    let is_halted = part::<String>(machine, "/spec/runStrategy") == HALTED;
    let is_final = |instance: &&DynamicObject| ["Succeeded", "Failed"].contains(&phase(instance).as_str());
    match instance.filter(|instance| !is_final(instance)) {
        Some(instance) if is_halted || instance.metadata.deletion_timestamp.is_some() => {
            (Power::Stopping, None)
        }
        Some(instance) => instance_power(machine, instance),
        None if is_halted => (Power::Stopped, None),
        None => (waiting_power(machine), None),
    }
}

fn phase(instance: &DynamicObject) -> String {
    part(instance, "/status/phase")
}

/// What a machine with an instance is doing.
fn instance_power(machine: &DynamicObject, instance: &DynamicObject) -> (Power, Option<Problem>) {
    let node: String = part(instance, "/status/nodeName");
    match phase(instance).as_str() {
        "Running" if condition(instance, "Paused", "True").is_some() => {
            let fix = format!(
                "it is paused: resume it with `virtctl unpause vm {} -n {}`, or look at its storage if nobody paused it",
                machine.metadata.name.as_deref().unwrap_or_default(),
                machine.metadata.namespace.as_deref().unwrap_or_default()
            );
            (Power::Failing(fix), None)
        }
        "Running" => (Power::Running, None),
        "Unknown" => {
            let lost =
                format!("KubeVirt has lost sight of it: look at node {node:?} and at virt-handler there");
            (Power::Failing(lost), None)
        }
        _ => starting_power(machine, instance),
    }
}

/// What a machine on its way up is doing: KubeVirt says `Starting` for ever where only a condition tells why not.
fn starting_power(machine: &DynamicObject, instance: &DynamicObject) -> (Power, Option<Problem>) {
    let unschedulable =
        condition(instance, "PodScheduled", "False").filter(|found| found.reason == "Unschedulable");
    if let Some(found) = unschedulable {
        let message = format!(
            "no node has room for it: {}: add nodes, or ask for less",
            clean(&found.message).trim_end_matches(['.', ' '])
        );
        let problem = Problem::Machine(Refusal::new(reason::INSUFFICIENT_RESOURCES, message.clone()));
        return (Power::Failing(message), Some(problem));
    }
    let Some(found) = condition(instance, "Synchronized", "False") else {
        return (waiting_power(machine), None);
    };
    let message = clean(&found.message);
    match found.reason.as_str() {
        "FailedPvcNotFound" => {
            let message = format!("a claim is missing: {message}");
            let problem = Problem::Storage(Refusal::new(reason::PVC_PENDING, message.clone()));
            (Power::Failing(message), Some(problem))
        }
        "ErrImagePull" | "ImagePullBackOff" => (
            Power::Failing(format!(
                "the node cannot pull KubeVirt's image: {message}: check the node's registry access"
            )),
            None,
        ),
        _ if message.contains("exceeded quota") => {
            let message =
                format!("the namespace has no room for it: {message}: raise its quota, or ask for less");
            let problem = Problem::Machine(Refusal::new(reason::INSUFFICIENT_RESOURCES, message.clone()));
            (Power::Failing(message), Some(problem))
        }
        _ => {
            let message = format!("KubeVirt cannot start it: {message}");
            let is_network = message.contains("network attachment definition");
            let problem =
                is_network.then(|| Problem::Network(Refusal::new(reason::NETWORK_FAILED, message.clone())));
            (Power::Failing(message), problem)
        }
    }
}

/// What a machine that shall run and is not up yet is doing.
fn waiting_power(machine: &DynamicObject) -> Power {
    if let Some(failure) = condition(machine, "Failure", "True") {
        return Power::Failing(format!("KubeVirt cannot start it: {}", clean(&failure.message)));
    }
    match part::<String>(machine, "/status/printableStatus").as_str() {
        "CrashLoopBackOff" => Power::Failing(format!(
            "it stops again and again as soon as it starts: look at its console and at the pod virt-launcher of {}",
            place(machine)
        )),
        "DataVolumeError" => {
            Power::Failing("a disk could not be filled: look at the machine's DataVolumes".to_owned())
        }
        _ => Power::Starting,
    }
}
