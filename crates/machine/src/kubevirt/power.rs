//! What a machine is doing, from what KubeVirt says of it.

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
    failure::clean,
    kind::{Object, named, part},
    read::Found,
    storage::is_bound,
    virtual_machine::{HALTED, ZONE},
};

/// What KubeVirt says of an instance while something it needs is on its way.
const PASSING_REASONS: [&str; 4] =
    ["BackendStorageNotReady", "FailedHotplugSync", "FailedPodPatch", "PVCNotReady"];

/// What Kubernetes says of a write that came a moment too late or twice: KubeVirt's next try gets it right.
const PASSING_WORDS: [&str; 2] = ["the object has been modified", "already exists"];

/// What KubeVirt says of an instance on a network that it does not find.
const MISSING_NETWORK: &str = "network attachment definition";

/// What is said of a pod whose volumes are not there yet. KubeVirt repeats only the first thing a scheduler said, so that it
/// may long be something else.
const UNBOUND_WORDS: [&str; 3] =
    ["unbound immediate PersistentVolumeClaims", "waiting for a volume", "waiting for it to appear"];

/// How long something that is about to pass may take.
const PATIENCE: SignedDuration = SignedDuration::from_secs(30);

/// A condition, as KubeVirt and CDI write them.
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
    /// Whether it has not held for long, as far as it says.
    fn is_young(&self, now: Timestamp) -> bool {
        let since: Option<Timestamp> = self.since.as_ref().and_then(|since| since.parse().ok());
        since.is_none_or(|since| now.duration_since(since) < PATIENCE)
    }
}

/// The condition of a type, if it has that status.
#[must_use]
pub fn condition(object: &DynamicObject, kind: &str, status: &str) -> Option<Condition> {
    let conditions: Vec<Condition> = part(object, "/status/conditions");
    conditions.into_iter().find(|condition| condition.kind == kind && condition.status == status)
}

/// What the machine is doing, and what the cluster lacks for it.
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

/// Whether a machine is switched off.
#[must_use]
pub fn is_halted(machine: &DynamicObject) -> bool {
    part::<String>(machine, "/spec/runStrategy") == HALTED
}

/// Whether an instance has ended. It is tidied away a little later.
#[must_use]
pub fn is_final(instance: &DynamicObject) -> bool {
    ["Succeeded", "Failed"].contains(&phase(instance).as_str())
}

fn phase(instance: &DynamicObject) -> String {
    part(instance, "/status/phase")
}

/// What a machine with an instance is doing.
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
        _ => starting_power(machine, instance, found, now),
    }
}

/// What a machine on its way up is doing: KubeVirt says `Starting` for ever where only a condition tells why not.
fn starting_power(
    machine: &DynamicObject,
    instance: &DynamicObject,
    found: &Found,
    now: Timestamp,
) -> (Power, Option<Problem>) {
    // First what KubeVirt says itself: it also calls an instance unschedulable whose claim is missing.
    match condition(instance, "Synchronized", "False") {
        Some(unsynchronized)
            if unsynchronized.is_young(now) && is_passing(machine, &unsynchronized, found) =>
        {
            (waiting_power(machine), None)
        }
        Some(unsynchronized) => failing_power(&unsynchronized),
        None => match condition(instance, "PodScheduled", "False") {
            Some(unschedulable) if unschedulable.reason == "Unschedulable" => {
                unschedulable_power(machine, &unschedulable, found, now)
            }
            _ => (waiting_power(machine), None),
        },
    }
}

/// What a machine is doing that no node takes.
fn unschedulable_power(
    machine: &DynamicObject,
    unschedulable: &Condition,
    found: &Found,
    now: Timestamp,
) -> (Power, Option<Problem>) {
    let mut said = clean(&unschedulable.message);
    if UNBOUND_WORDS.iter().any(|words| said.contains(words)) {
        // The disks tell that they are waited for.
        if unschedulable.is_young(now) || !found.claims.iter().all(|claim| is_bound(claim)) {
            return (waiting_power(machine), None);
        }
        said = format!("look for the reason in the events of the pod virt-launcher of {}", place(machine));
    }
    let zone: Option<String> = machine
        .data
        .pointer("/spec/template/spec/nodeSelector")
        .and_then(|selector| Some(selector.get(ZONE)?.as_str()?.to_owned()));
    let fix = match zone.filter(|_| said.contains("affinity/selector")) {
        Some(zone) => format!("add nodes with the label {ZONE}: {zone}, or name a zone that has nodes"),
        None => "add nodes, or ask for less".to_owned(),
    };
    let message = format!("no node can take it: {}: {fix}", said.trim_end_matches(['.', ' ']));
    let problem = Problem::Machine(Refusal::new(reason::INSUFFICIENT_RESOURCES, message.clone()));
    (Power::Failing(message), Some(problem))
}

/// Whether what KubeVirt complains of is gone by now, or goes by itself with its next try.
fn is_passing(machine: &DynamicObject, unsynchronized: &Condition, found: &Found) -> bool {
    let (reason, message) = (unsynchronized.reason.as_str(), unsynchronized.message.as_str());
    let has_all = |list: &str, places: &[&str], objects: &[&[Object]]| {
        let entries: Vec<Value> = part(machine, list);
        let named_by = |entry| places.iter().find_map(|place| Value::pointer(entry, place)?.as_str());
        let names: Vec<&str> = entries.iter().filter_map(named_by).collect();
        let is_there = |name: &&str| objects.iter().any(|objects| named(objects, name).is_some());
        !names.is_empty() && names.iter().all(is_there)
    };
    if reason == "FailedPvcNotFound" {
        let places = &["/persistentVolumeClaim/claimName", "/dataVolume/name"];
        return has_all("/spec/template/spec/volumes", places, &[&found.claims, &found.data_volumes]);
    }
    if message.contains(MISSING_NETWORK) {
        return has_all("/spec/template/spec/networks", &["/multus/networkName"], &[&found.attachments]);
    }
    PASSING_REASONS.contains(&reason) || PASSING_WORDS.iter().any(|words| message.contains(words))
}

/// What a machine is doing that KubeVirt cannot start.
fn failing_power(unsynchronized: &Condition) -> (Power, Option<Problem>) {
    let message = clean(&unsynchronized.message);
    match unsynchronized.reason.as_str() {
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
            let is_network = message.contains(MISSING_NETWORK);
            let problem =
                is_network.then(|| Problem::Network(Refusal::new(reason::NETWORK_FAILED, message.clone())));
            (Power::Failing(message), problem)
        }
    }
}

/// What a machine that shall run and is not up yet is doing.
fn waiting_power(machine: &DynamicObject) -> Power {
    let failure = condition(machine, "Failure", "True");
    let is_passing = |failure: &Condition| PASSING_WORDS.iter().any(|words| failure.message.contains(words));
    if let Some(failure) = failure.filter(|failure| !is_passing(failure)) {
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
