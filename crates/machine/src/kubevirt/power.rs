//! The power state of a machine, from the status that KubeVirt reports.

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use serde::Deserialize;
use serde_json::Value;
use vitistack_plan::{
    Refusal,
    machine::{Power, Problem},
};
use vitistack_types::conditions::reason;

use super::{
    changes::place,
    foreign_text,
    kind::{Object, named, part},
    read::Found,
    storage::is_bound,
    virtual_machine::{HALTED, ZONE},
};

/// The reasons that KubeVirt reports while something that an instance needs is being created.
const TRANSIENT_REASONS: [&str; 4] =
    ["BackendStorageNotReady", "FailedHotplugSync", "FailedPodPatch", "PVCNotReady"];

/// Messages about a conflicting or repeated write, which KubeVirt retries with success.
const TRANSIENT_MESSAGES: [&str; 2] = ["the object has been modified", "already exists"];

/// The message of KubeVirt about a network that was not found.
const MISSING_NETWORK: &str = "network attachment definition";

/// Messages about a pod whose volumes are not bound yet. KubeVirt repeats only the first message of the scheduler, which may
/// be outdated.
const UNBOUND_MESSAGES: [&str; 3] =
    ["unbound immediate PersistentVolumeClaims", "waiting for a volume", "waiting for it to appear"];

/// What the scheduler reports that the nodes lack.
const LACKING: [&str; 6] = [
    "Insufficient memory",
    "Insufficient cpu",
    "Insufficient ephemeral-storage",
    "Insufficient devices.kubevirt.io/kvm",
    "untolerated taint",
    "node affinity/selector",
];

/// How many missing claims a message lists.
const LISTED_CLAIMS: usize = 3;

/// How long a transient condition may last.
const TRANSIENT_LIMIT: SignedDuration = SignedDuration::from_secs(30);

/// A condition of KubeVirt or CDI.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
    #[serde(rename = "lastTransitionTime")]
    since: Option<String>,
}

impl Condition {
    /// Whether the condition has not lasted for long, or has no time.
    fn is_young(&self, now: Timestamp) -> bool {
        let since: Option<Timestamp> = self.since.as_ref().and_then(|since| since.parse().ok());
        since.is_none_or(|since| now.duration_since(since) < TRANSIENT_LIMIT)
    }
}

/// Returns the condition of a type if it has this status.
#[must_use]
pub fn condition(object: &DynamicObject, kind: &str, status: &str) -> Option<Condition> {
    let conditions: Vec<Condition> = part(object, "/status/conditions");
    conditions.into_iter().find(|condition| condition.kind == kind && condition.status == status)
}

/// Returns the power state of a machine, and the problem that prevents it from running.
#[must_use]
pub fn power(
    machine: &DynamicObject,
    instance: Option<&DynamicObject>,
    found: &Found,
    now: Timestamp,
) -> (Power, Option<Problem>) {
    if machine.metadata.deletion_timestamp.is_some() {
        return (Power::Stopping, None);
    }
    match instance.filter(|instance| !is_final(instance)) {
        Some(instance) if is_halted(machine) || instance.metadata.deletion_timestamp.is_some() => {
            (Power::Stopping, None)
        }
        Some(instance) => instance_power(machine, instance, found, now),
        None if is_halted(machine) => (Power::Stopped, None),
        None => (waiting_power(machine), None),
    }
}

/// Whether a machine is to be off.
#[must_use]
pub fn is_halted(machine: &DynamicObject) -> bool {
    part::<String>(machine, "/spec/runStrategy") == HALTED
}

/// Whether an instance has ended. KubeVirt deletes it later.
#[must_use]
pub fn is_final(instance: &DynamicObject) -> bool {
    ["Succeeded", "Failed"].contains(&phase(instance).as_str())
}

fn phase(instance: &DynamicObject) -> String {
    part(instance, "/status/phase")
}

/// Returns the power state of a machine with an instance.
fn instance_power(
    machine: &DynamicObject,
    instance: &DynamicObject,
    found: &Found,
    now: Timestamp,
) -> (Power, Option<Problem>) {
    let node: String = part(instance, "/status/nodeName");
    match phase(instance).as_str() {
        "Running" if condition(instance, "Paused", "True").is_some() => {
            let fix = format!(
                "the machine is paused: run `virtctl unpause vm {} -n {}`, or check its storage if it was not paused on purpose",
                foreign_text::name(machine.metadata.name.as_deref().unwrap_or_default()),
                foreign_text::name(machine.metadata.namespace.as_deref().unwrap_or_default())
            );
            (Power::Failing(fix), None)
        }
        "Running" => (Power::Running, None),
        "Unknown" => {
            let node = foreign_text::name(&node);
            let lost =
                format!("KubeVirt reports the state Unknown: check node {node:?} and virt-handler on it");
            (Power::Failing(lost), None)
        }
        _ => starting_power(machine, instance, found, now),
    }
}

/// Returns the power state of a starting machine. KubeVirt reports `Starting` forever where only a condition has the cause.
fn starting_power(
    machine: &DynamicObject,
    instance: &DynamicObject,
    found: &Found,
    now: Timestamp,
) -> (Power, Option<Problem>) {
    // First the condition of KubeVirt, which also reports an instance with a missing claim as unschedulable.
    match condition(instance, "Synchronized", "False") {
        Some(unsynchronized)
            if unsynchronized.is_young(now) && is_transient(machine, &unsynchronized, found) =>
        {
            (waiting_power(machine), None)
        }
        Some(unsynchronized) => failing_power(machine, &unsynchronized, found),
        None => match condition(instance, "PodScheduled", "False") {
            Some(unschedulable) if unschedulable.reason == "Unschedulable" => {
                unschedulable_power(machine, &unschedulable, found, now)
            }
            _ => (waiting_power(machine), None),
        },
    }
}

/// Returns the power state of a machine that fits on no node.
fn unschedulable_power(
    machine: &DynamicObject,
    unschedulable: &Condition,
    found: &Found,
    now: Timestamp,
) -> (Power, Option<Problem>) {
    let said = &unschedulable.message;
    if UNBOUND_MESSAGES.iter().any(|text| said.contains(text)) {
        // The disks report what is waited for.
        if unschedulable.is_young(now) || !found.claims.iter().all(|claim| is_bound(claim)) {
            return (waiting_power(machine), None);
        }
    }
    foreign_text::log(&place(machine), said);
    let lacking: Vec<&str> = LACKING.into_iter().filter(|text| said.contains(text)).collect();
    let cause = if lacking.is_empty() {
        format!("see the events of the virt-launcher pod of {}", place(machine))
    } else {
        lacking.join(", ")
    };

    let zone: Option<String> = machine
        .data
        .pointer("/spec/template/spec/nodeSelector")
        .and_then(|selector| Some(foreign_text::name(selector.get(ZONE)?.as_str()?).to_owned()));
    let fix = match zone.filter(|_| said.contains("affinity/selector")) {
        Some(zone) => format!("add nodes with the label {ZONE}: {zone}, or use a zone that has nodes"),
        None => "add nodes, or request less".to_owned(),
    };
    let message = format!("no node can run the machine: {cause}: {fix}");
    failing(Problem::Machine, reason::INSUFFICIENT_RESOURCES, message)
}

/// Whether the condition is outdated, or KubeVirt resolves it with its next attempt.
fn is_transient(machine: &DynamicObject, unsynchronized: &Condition, found: &Found) -> bool {
    let (reason, message) = (unsynchronized.reason.as_str(), unsynchronized.message.as_str());
    let has_all = |list: &str, pointers: &[&str], objects: &[&[Object]]| {
        let entries: Vec<Value> = part(machine, list);
        let name_of = |entry| pointers.iter().find_map(|pointer| Value::pointer(entry, pointer)?.as_str());
        let names: Vec<&str> = entries.iter().filter_map(name_of).collect();
        let exists = |name: &&str| objects.iter().any(|objects| named(objects, name).is_some());
        !names.is_empty() && names.iter().all(exists)
    };

    if reason == "FailedPvcNotFound" {
        let pointers = &["/persistentVolumeClaim/claimName", "/dataVolume/name"];
        return has_all("/spec/template/spec/volumes", pointers, &[&found.claims, &found.data_volumes]);
    }
    if message.contains(MISSING_NETWORK) {
        return has_all("/spec/template/spec/networks", &["/multus/networkName"], &[&found.attachments]);
    }
    TRANSIENT_REASONS.contains(&reason) || TRANSIENT_MESSAGES.iter().any(|text| message.contains(text))
}

/// Returns the power state of a machine that KubeVirt cannot start.
fn failing_power(
    machine: &DynamicObject,
    unsynchronized: &Condition,
    found: &Found,
) -> (Power, Option<Problem>) {
    let said = &unsynchronized.message;
    foreign_text::log(&place(machine), said);
    match unsynchronized.reason.as_str() {
        "FailedPvcNotFound" => {
            let missing = missing_claims(machine, found);
            let message = match missing.as_slice() {
                [] => format!(
                    "a PersistentVolumeClaim is missing: check the volumes of VirtualMachine {}",
                    place(machine)
                ),
                missing => format!("a PersistentVolumeClaim is missing: {}", missing.join(", ")),
            };
            failing(Problem::Storage, reason::PVC_PENDING, message)
        }
        "ErrImagePull" | "ImagePullBackOff" => {
            let message = "the node cannot pull the KubeVirt image: check the registry access of the node";
            (Power::Failing(message.to_owned()), None)
        }
        _ if said.contains("exceeded quota") => {
            let message = "the namespace has no capacity for the machine: raise its quota, or request less";
            failing(Problem::Machine, reason::INSUFFICIENT_RESOURCES, message.to_owned())
        }
        _ if said.contains(MISSING_NETWORK) => {
            let message =
                format!("KubeVirt cannot start the machine: a {MISSING_NETWORK} is missing: create it");
            failing(Problem::Network, reason::NETWORK_FAILED, message)
        }
        _ => (Power::Failing(cannot_start(machine)), None),
    }
}

/// Returns the power state of a machine with a problem.
fn failing(
    problem: impl FnOnce(Refusal) -> Problem,
    reason: &'static str,
    message: String,
) -> (Power, Option<Problem>) {
    let refusal = Refusal::new(reason, message.clone());
    (Power::Failing(message), Some(problem(refusal)))
}

/// Returns where to look for what KubeVirt reports: its own text is not repeated.
fn cannot_start(machine: &DynamicObject) -> String {
    format!(
        "KubeVirt cannot start the machine: check the conditions of VirtualMachine {} in the provider's cluster",
        place(machine)
    )
}

/// Returns the claims that a machine needs and the cluster does not have.
fn missing_claims(machine: &DynamicObject, found: &Found) -> Vec<String> {
    let volumes: Vec<Value> = part(machine, "/spec/template/spec/volumes");
    let pointers = ["/persistentVolumeClaim/claimName", "/dataVolume/name"];
    let names = volumes
        .iter()
        .filter_map(|volume| pointers.iter().find_map(|pointer| volume.pointer(pointer)?.as_str()));
    names
        .filter(|name| named(&found.claims, name).is_none())
        .take(LISTED_CLAIMS)
        .map(|name| foreign_text::name(name).to_owned())
        .collect()
}

/// Returns the power state of a machine that is to run and does not run yet.
fn waiting_power(machine: &DynamicObject) -> Power {
    let failure = condition(machine, "Failure", "True");
    let is_transient =
        |failure: &Condition| TRANSIENT_MESSAGES.iter().any(|text| failure.message.contains(text));
    if let Some(failure) = failure.filter(|failure| !is_transient(failure)) {
        foreign_text::log(&place(machine), &failure.message);
        return Power::Failing(cannot_start(machine));
    }
    match part::<String>(machine, "/status/printableStatus").as_str() {
        "CrashLoopBackOff" => Power::Failing(format!(
            "the machine stops every time it starts: check its console and the virt-launcher pod of {}",
            place(machine)
        )),
        "DataVolumeError" => {
            Power::Failing("a disk could not be filled: check the DataVolumes of the machine".to_owned())
        }
        _ => Power::Starting,
    }
}
