//! Every refusal, each written once: operators, `vitistack why` and `vitistack plan` give the same reason and sentence.

use std::time::Duration;

use vitistack_types::{ObjectId, ObjectName, Placement, conditions::reason, labels, v1alpha1::Machine};

use crate::{Refusal, command::command, machine::Identity};

// What a Machine refers to.

pub(crate) fn template_not_found(name: &str) -> Refusal {
    Refusal::new(
        reason::TEMPLATE_NOT_FOUND,
        format!("spec.template: MachineClass {name:?} not found: use small, medium or large, or create it"),
    )
    .missing(ObjectId::new("MachineClass", ObjectName::cluster_scoped(name)))
}

pub(crate) fn field_required(field: &str) -> Refusal {
    Refusal::new(
        reason::INVALID_SPEC,
        format!("spec.{field} is required: set it, or set spec.template to a MachineClass that has it"),
    )
}

pub(crate) fn network_not_found(interface: &str, network: ObjectName) -> Refusal {
    let name = &network.name;
    Refusal::new(
        reason::NETWORK_CONFIGURATION_NOT_FOUND,
        format!(
            "spec.networks[{interface}].networkName: NetworkConfiguration {name:?} not found in namespace {:?}: create it",
            network.namespace
        ),
    )
    .missing(ObjectId::new("NetworkConfiguration", network))
}

/// The Secret that `field` refers to does not exist.
pub(crate) fn secret_not_found(field: &str, secret: ObjectName) -> Refusal {
    let ObjectName { namespace, name } = &secret;
    Refusal::new(
        reason::SECRET_NOT_FOUND,
        format!("{field}.name: Secret {name:?} not found in namespace {namespace:?}: create it"),
    )
    .missing(ObjectId::new("Secret", secret))
}

/// The Secret that `field` refers to does not have the key.
pub(crate) fn secret_key_not_found(field: &str, secret: ObjectName, key: &str) -> Refusal {
    Refusal::new(
        reason::SECRET_KEY_NOT_FOUND,
        format!("{field}.key: Secret {:?} has no key {key:?}: add it, or use a key that exists", secret.name),
    )
    .missing(ObjectId::new("Secret", secret))
}

/// The content of a Secret's key has to be text.
#[must_use]
pub fn secret_not_text(secret: &str, key: &str) -> Refusal {
    Refusal::new(
        reason::SECRET_KEY_NOT_FOUND,
        format!(
            "spec.cloudInit.secretRef.key: key {key:?} of Secret {secret:?} is not UTF-8 text: store it as text"
        ),
    )
}

// Where a Machine is placed.

/// Names the namespaces that were searched: a default provider of another one does not count, and whether there is one is
/// not for this tenant to know.
pub(crate) fn no_default_provider(namespace: &str) -> Refusal {
    let searched = match namespace {
        labels::SYSTEM_NAMESPACE => format!("namespace {namespace:?} has no default provider"),
        _ => format!(
            "neither namespace {namespace:?} nor {:?} has a default provider",
            labels::SYSTEM_NAMESPACE
        ),
    };
    Refusal::new(
        reason::NO_DEFAULT_PROVIDER,
        format!(
            "no provider is set, and {searched}: annotate a MachineProvider there with {}: \"true\", or recreate the Machine with spec.providerRef or spec.datacenterRef",
            labels::IS_DEFAULT_PROVIDER
        ),
    )
}

pub(crate) fn several_default_providers(names: &[ObjectName]) -> Refusal {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    Refusal::new(
        reason::SEVERAL_DEFAULT_PROVIDERS,
        format!(
            "no provider is set and there are several default providers, {}: remove the annotation {} from all but one, or recreate the Machine with spec.providerRef",
            names.join(" and "),
            labels::IS_DEFAULT_PROVIDER
        ),
    )
}

/// What is in a namespace that the operators do not watch is unknown: it must not be taken for absent.
pub(crate) fn not_watched(field: &str, object: &ObjectId) -> Refusal {
    let ObjectId { kind, name } = object;
    Refusal::new(
        reason::NAMESPACE_NOT_WATCHED,
        format!(
            "{field}: {kind} \"{name}\" is in namespace {:?}, which is not watched by this operator: add the namespace to --namespaces",
            name.namespace
        ),
    )
}

/// The objects of a provider in a namespace that the operator does not watch cannot be read.
#[must_use]
pub fn objects_not_watched(kind: &str, namespace: &str) -> Refusal {
    Refusal::new(
        reason::NAMESPACE_NOT_WATCHED,
        format!(
            "failed to read {kind}: namespace {namespace:?} is not watched by this operator: add the namespace to --namespaces"
        ),
    )
}

/// Whether there is a default provider cannot be known.
pub(crate) fn default_provider_unknown(namespace: &str) -> Refusal {
    Refusal::new(
        reason::NAMESPACE_NOT_WATCHED,
        format!(
            "no provider is set, and namespace {namespace:?}, which may have a default provider, is not watched by this operator: add the namespace to --namespaces, or recreate the Machine with spec.providerRef"
        ),
    )
}

/// Says of an object in the namespace of another tenant that it cannot be used. The words are the same whether it exists or
/// not, because its namespace did not permit anyone to know.
pub(crate) fn not_available(kind: &str, name: &ObjectName, from: &str) -> String {
    format!(
        "{kind} \"{name}\" does not exist or does not allow references from namespace {from:?}: create it, or add the namespace to its annotation {}",
        labels::ALLOW_REFERENCES_FROM
    )
}

/// The provider that a Machine refers to cannot be used from its namespace.
pub(crate) fn provider_not_available(provider: &ObjectName, from: &str) -> Refusal {
    if provider.namespace != from {
        let message = format!("spec.providerRef: {}", not_available("MachineProvider", provider, from));
        return Refusal::new(reason::REFERENCE_NOT_PERMITTED, message);
    }
    Refusal::new(
        reason::PROVIDER_NOT_FOUND,
        format!("spec.providerRef: MachineProvider \"{provider}\" not found: create it"),
    )
    .missing(ObjectId::new("MachineProvider", provider.clone()))
}

/// The namespace that a provider names belongs to another tenant. The words are the same if it does not exist.
pub(crate) fn namespace_not_permitted(provider: &ObjectName, target: &str) -> Refusal {
    Refusal::new(
        reason::REFERENCE_NOT_PERMITTED,
        format!(
            "MachineProvider \"{provider}\" creates machines in namespace {target:?}, which does not allow it: run \"kubectl annotate namespace {target} {}={}\", or use another provider",
            labels::ALLOW_REFERENCES_FROM,
            provider.namespace
        ),
    )
}

/// The namespace in which a provider creates machines is not watched.
pub(crate) fn target_not_watched(provider: &ObjectName, target: &str) -> Refusal {
    Refusal::new(
        reason::NAMESPACE_NOT_WATCHED,
        format!(
            "MachineProvider \"{provider}\" creates machines in namespace {target:?}, which is not watched by this operator: add the namespace to --namespaces, or use another provider"
        ),
    )
}

/// No machine is created on a provider that is being deleted, or is gone.
pub(crate) fn provider_deleting(placement: &Placement) -> Refusal {
    Refusal::new(
        reason::PROVIDER_NOT_FOUND,
        format!("MachineProvider \"{placement}\" is being deleted: create the Machine on another provider"),
    )
}

/// No machine is created on a provider that is paused.
pub(crate) fn provider_paused(placement: &Placement) -> Refusal {
    let resume = placement.provider().map_or_else(
        || format!("remove its annotation {}", labels::PAUSED),
        |name| format!("run \"{}\"", command("resume", &ObjectId::new("MachineProvider", name.clone()))),
    );
    Refusal::new(
        reason::PROVIDER_PAUSED,
        format!("MachineProvider \"{placement}\" is paused and accepts no machines: {resume}"),
    )
}

/// An adoption would detach or delete these disks.
pub(crate) fn disks_not_listed(disks: &str) -> Refusal {
    Refusal::new(
        reason::DISKS_NOT_LISTED,
        format!(
            "spec.disks does not list {disks} of the adopted machine: add them to spec.disks, and remove those that you do not need after the adoption"
        ),
    )
}

/// The provider that hosts a machine does not exist any more.
pub(crate) fn provider_gone(provider: &ObjectName) -> Refusal {
    Refusal::new(
        reason::PROVIDER_NOT_FOUND,
        format!(
            "MachineProvider \"{provider}\", which hosts this machine, not found: create it again, or stop managing the machine with \"vitistack release\""
        ),
    )
    .missing(ObjectId::new("MachineProvider", provider.clone()))
}

/// What the Machine refers to contradicts its placement; `conflict` says how, and the fix.
pub(crate) fn placement_not_permitted(placement: &Placement, conflict: &str) -> Refusal {
    Refusal::new(
        reason::PLACEMENT_NOT_PERMITTED,
        format!(
            "the machine is placed on \"{placement}\" (annotation {}), but {conflict}",
            labels::PLACEMENT
        ),
    )
}

// What a Datacenter refuses.

/// The Datacenter that a Machine refers to cannot be used from its namespace.
pub(crate) fn datacenter_not_available(datacenter: &ObjectName, from: &str) -> Refusal {
    if datacenter.namespace != from {
        let message = format!("spec.datacenterRef: {}", not_available("Datacenter", datacenter, from));
        return Refusal::new(reason::REFERENCE_NOT_PERMITTED, message);
    }
    Refusal::new(
        reason::DATACENTER_NOT_FOUND,
        format!("spec.datacenterRef: Datacenter \"{datacenter}\" not found: create it"),
    )
    .missing(ObjectId::new("Datacenter", datacenter.clone()))
}

pub(crate) fn datacenter_deleting(datacenter: &ObjectName) -> Refusal {
    Refusal::new(
        reason::DATACENTER_NOT_FOUND,
        format!(
            "spec.datacenterRef: Datacenter \"{datacenter}\" is being deleted: create the Machine in another one"
        ),
    )
}

pub(crate) fn datacenter_paused(datacenter: &ObjectName) -> Refusal {
    Refusal::new(
        reason::PAUSED,
        format!(
            "spec.datacenterRef: Datacenter \"{datacenter}\" is paused and places no machine: remove its annotation {}",
            labels::PAUSED
        ),
    )
}

pub(crate) fn provider_not_in_datacenter(provider: &ObjectName) -> Refusal {
    Refusal::new(
        reason::PROVIDER_NOT_FOUND,
        format!(
            "spec.providerRef: MachineProvider \"{provider}\" is not in the Datacenter: add it to the Datacenter's spec.machineProviders, or create another Machine"
        ),
    )
}

pub(crate) fn datacenter_without_providers() -> Refusal {
    Refusal::new(
        reason::INSUFFICIENT_RESOURCES,
        "the Datacenter has no machine provider: add one to its spec.machineProviders",
    )
}

pub(crate) fn no_provider_accepts(causes: &[String]) -> Refusal {
    Refusal::new(
        reason::INSUFFICIENT_RESOURCES,
        format!("no provider of the Datacenter can host the machine: {}", causes.join("; ")),
    )
}

/// A quota of the Datacenter is full.
pub(crate) fn quota_exceeded(field: &str, limit: &str, used: &str, requested: &str) -> Refusal {
    Refusal::new(
        reason::QUOTA_EXCEEDED,
        format!(
            "the Datacenter's resourceQuotas.{field} is {limit}, of which {used} is used, and this machine needs {requested} more: raise the quota, or delete or shrink machines"
        ),
    )
}

/// The Datacenter has not decided yet whether a machine may grow.
pub(crate) fn growth_not_admitted(datacenter: &ObjectName) -> Refusal {
    Refusal::new(
        reason::QUOTA_EXCEEDED,
        format!(
            "the machine keeps its size until Datacenter \"{datacenter}\" admits the larger one within its resourceQuotas: check that the operator datacenter runs, or revert the change"
        ),
    )
}

/// The machines of a Datacenter use more than a quota, which was lowered since.
pub(crate) fn quota_overused(field: &str, limit: &str, used: &str) -> Refusal {
    Refusal::new(
        reason::QUOTA_EXCEEDED,
        format!(
            "spec.resourceQuotas.{field} is {limit}, but {used} is used: raise the quota, or delete or shrink machines"
        ),
    )
}

// Why a Datacenter cannot use one of its providers. These follow the name of the provider and a colon.

/// A provider that the Datacenter lists cannot be used from its namespace.
pub(crate) fn candidate_not_available(provider: &ObjectName, from: &str) -> Refusal {
    if provider.namespace != from {
        let message = format!(
            "the MachineProvider does not exist or does not allow references from namespace {from:?}: create it, add the namespace to its annotation {}, or remove it from the Datacenter's spec.machineProviders",
            labels::ALLOW_REFERENCES_FROM
        );
        return Refusal::new(reason::REFERENCE_NOT_PERMITTED, message);
    }
    Refusal::new(
        reason::PROVIDER_NOT_FOUND,
        "MachineProvider not found: create it, or remove it from the Datacenter's spec.machineProviders",
    )
    .missing(ObjectId::new("MachineProvider", provider.clone()))
}

/// A provider that the Datacenter lists is in a namespace that is not watched.
pub(crate) fn candidate_not_watched(provider: &ObjectName) -> Refusal {
    Refusal::new(
        reason::NAMESPACE_NOT_WATCHED,
        format!(
            "namespace {:?} is not watched by this operator: add it to --namespaces, or remove the provider from the Datacenter's spec.machineProviders",
            provider.namespace
        ),
    )
}

pub(crate) fn candidate_deleting() -> Refusal {
    Refusal::new(reason::PROVIDER_NOT_FOUND, "being deleted")
}

pub(crate) fn candidate_paused() -> Refusal {
    Refusal::new(reason::PAUSED, format!("paused by the annotation {}", labels::PAUSED))
}

pub(crate) fn candidate_not_ready(why: &str) -> Refusal {
    Refusal::new(reason::NO_USABLE_PROVIDER, format!("not ready: {why}"))
}

pub(crate) fn candidate_not_referenced() -> Refusal {
    Refusal::new(reason::PROVIDER_NOT_FOUND, "spec.providerRef names another provider")
}

pub(crate) fn candidate_removed() -> Refusal {
    Refusal::new(reason::PROVIDER_NOT_FOUND, "no longer in the Datacenter's spec.machineProviders")
}

// Whose machine it is.

pub(crate) fn identity_shared(twin: &ObjectName) -> Refusal {
    Refusal::new(
        reason::IDENTITY_HELD,
        format!(
            "Machine {twin} has the same identity: delete one of the two, or ask a platform administrator to give one of them its own annotation {}",
            labels::IDENTITY
        ),
    )
}

/// An adopted Machine lost the annotation that links it to its backing machine.
pub(crate) fn identity_lost(machine: &Machine, known: Option<&str>) -> Refusal {
    let fix = match known {
        Some(known) => {
            format!("run \"{}\" to restore {known:?}", command("adopt", &ObjectId::of(machine)))
        }
        None => "set it to the identity that the backing machine is labeled with".to_owned(),
    };
    Refusal::new(
        reason::IDENTITY_HELD,
        format!("the Machine was adopted, but its annotation {} is gone: {fix}", labels::IDENTITY),
    )
}

/// A restored or moved Machine carries the identity of another one.
pub(crate) fn identity_not_adopted(uid: &str) -> Refusal {
    Refusal::new(
        reason::IDENTITY_HELD,
        format!(
            "the Machine carries the identity of another Machine, as after a restore: to take over its backing machine, set the annotation {} to {uid:?}",
            labels::ADOPTED
        ),
    )
}

/// The backing machine belongs to a Machine of another namespace.
pub(crate) fn identity_elsewhere(
    identity: &Identity,
    thing: &str,
    namespace: Option<&str>,
    own: &str,
) -> Refusal {
    let carried =
        format!("the annotation {} is \"{identity}\", and {thing} with that identity", labels::IDENTITY);
    let message = match namespace {
        Some(namespace) => format!(
            "{carried} belongs to a Machine in namespace {namespace:?}: restore the Machine there, or create this one without the annotation"
        ),
        None => format!(
            "{carried} does not state its namespace: label it {}={own} at the provider if it belongs to this Machine, or create this one without the annotation",
            labels::MACHINE_NAMESPACE
        ),
    };
    Refusal::new(reason::IDENTITY_HELD, message)
}

/// Something else has the name that the machine needs.
#[must_use]
pub fn name_taken(what: &str) -> Refusal {
    Refusal::new(
        reason::NAME_TAKEN,
        format!(
            "{what} already exists and does not belong to this Machine: create the Machine under another name, or delete {what} if it is not in use"
        ),
    )
}

// What a provider answers.

pub(crate) fn no_capacity(placement: &Placement) -> Refusal {
    Refusal::new(reason::INSUFFICIENT_RESOURCES, format!("MachineProvider \"{placement}\" had no capacity"))
}

pub(crate) fn task_failed(message: String) -> Refusal {
    Refusal::new(reason::VM_FAILED, message)
}

/// A provider did not answer its health check in time.
#[must_use]
pub fn probe_timed_out(timeout: Duration) -> Refusal {
    Refusal::new(
        reason::PROVIDER_UNREACHABLE,
        format!(
            "no answer within {timeout:?}: check that the provider runs and is reachable, or raise spec.healthCheck.timeout"
        ),
    )
}

/// Several requests to a provider in a row were not answered in time, or not at all.
#[must_use]
pub fn calls_failed(patience: Duration) -> Refusal {
    Refusal::new(
        reason::PROVIDER_UNREACHABLE,
        format!(
            "requests are not answered within {patience:?}: check that the provider carries out requests"
        ),
    )
}

/// Stands for the desired state of a Machine that is being deleted.
#[must_use]
pub fn deleting() -> Refusal {
    Refusal::new(reason::DELETING, "the Machine is being deleted")
}
