//! The objects of a machine in the provider's cluster, and the problems that prevent their creation.

use kube::core::ObjectMeta;
use serde_json::json;
use vitistack_clients::kubernetes::Child;
use vitistack_plan::{
    Refusal,
    machine::{AttachedNetwork, DesiredDisk, Problem},
};
use vitistack_types::{
    conditions::reason,
    labels,
    v1alpha1::{BootDevice, DomainMachine, MachineType},
};

use super::{
    MANAGER, Settings,
    cloud_init::{CloudInit, DerivedSecret, cloud_init},
    kind::Kind,
    names,
    read::Found,
    storage, virtual_machine as vm,
};
use crate::Order;

/// The planned objects of a machine.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The Secret with the first-boot configuration, where the Secret of the user cannot be used.
    pub secret: Option<DerivedSecret>,
    /// The networks of the machine.
    pub attachments: Vec<Child>,
    /// One volume per disk.
    pub volumes: Vec<Volume>,
    /// The VirtualMachine.
    pub virtual_machine: Child,
    /// The problems to fix first.
    pub problems: Vec<Problem>,
}

/// The volume of a disk.
#[derive(Clone, Debug)]
pub struct Volume {
    /// The disk.
    pub disk: DesiredDisk,
    /// PersistentVolumeClaim, or DataVolume for a disk with a source.
    pub kind: Kind,
    /// The object.
    pub child: Child,
}

/// Returns the objects of a machine. Pure.
#[must_use]
pub fn plan(settings: &Settings, order: &Order, found: &Found) -> Planned {
    let (target, desired) = (&order.target, &order.desired);
    let configuration = desired
        .cloud_init
        .as_ref()
        .and_then(|wanted| cloud_init(wanted, &desired.name, settings.is_beside(target)));
    let volume = |disk: &DesiredDisk| {
        let (kind, child) = storage::volume(settings, order, disk, &found.storage_classes);
        Volume { disk: disk.clone(), kind, child }
    };

    let mut attachments: Vec<Child> = Vec::new();
    for interface in &desired.interfaces {
        let attachment = attachment(settings.namespace(target), &interface.network);
        if !attachments.iter().any(|earlier| earlier.is_same_object(&attachment)) {
            attachments.push(attachment);
        }
    }

    Planned {
        problems: problems(settings, order, configuration.as_ref(), found),
        attachments,
        volumes: desired.disks.iter().map(volume).collect(),
        virtual_machine: vm::virtual_machine(settings, order, configuration.as_ref()),
        secret: configuration.and_then(|configuration| configuration.secret),
    }
}

/// Returns the Secret as an object.
#[must_use]
pub fn secret(settings: &Settings, order: &Order, derived: &DerivedSecret) -> Child {
    let mut metadata = settings.metadata(&order.target, derived.name.clone());
    metadata.owner_references = settings.owner_of(&order.target).map(|owner| vec![owner]);
    Kind::Secret.child(metadata, json!({ "type": "Opaque", "data": derived.encoded() }))
}

/// Returns the attachment of a network to a bridge of the nodes. All machines on the network share it.
fn attachment(namespace: &str, network: &AttachedNetwork) -> Child {
    let name = names::attachment(network);
    let mut config = json!({
        "cniVersion": "0.3.1",
        "name": name,
        "type": "bridge",
        "bridge": network.bridge,
        "ipam": {},
    });
    if let (Some(vlan), Some(fields)) = (network.vlan, config.as_object_mut()) {
        fields.insert("vlan".to_owned(), vlan.into());
    }
    let metadata = ObjectMeta {
        name: Some(name),
        namespace: Some(namespace.to_owned()),
        labels: Some([(labels::MANAGED_BY.to_owned(), MANAGER.to_owned())].into()),
        ..ObjectMeta::default()
    };
    Kind::NetworkAttachmentDefinition.child(metadata, json!({ "spec": { "config": config.to_string() } }))
}

/// Returns what prevents the machine from being created or from running.
fn problems(
    settings: &Settings,
    order: &Order,
    configuration: Option<&CloudInit>,
    found: &Found,
) -> Vec<Problem> {
    let desired = &order.desired;
    let mut problems = Vec::new();
    if !found.has_kubevirt {
        problems.push(Problem::Machine(Refusal::new(
            reason::KUBEVIRT_API_ERROR,
            "KubeVirt is not installed in the provider's cluster: install it",
        )));
    }
    problems.extend(machine_problems(order, configuration, found).map(Problem::Machine));
    problems.extend(unknown_zone(settings, order, found).map(Problem::Machine));
    for disk in &desired.disks {
        let refused = names::refuse_disk(&disk.name, configuration.is_some())
            .map(|message| Refusal::new(reason::INVALID_SPEC, message));
        let refused = refused.or_else(|| storage::problem(settings, order, disk, found));
        problems.extend(refused.map(Problem::Storage));
    }
    if !desired.interfaces.is_empty() && !found.has_multus {
        problems.push(Problem::Network(Refusal::new(
            reason::NETWORK_FAILED,
            "spec.networks requires Multus, which is not installed in the provider's cluster: install Multus, or remove networks to use the pod network",
        )));
    }
    let interfaces = desired.interfaces.iter();
    let refused = interfaces.filter_map(|interface| settings.limits.interface_problem(interface));
    problems.extend(refused.map(Problem::Network));
    problems
}

fn machine_problems(
    order: &Order,
    configuration: Option<&CloudInit>,
    found: &Found,
) -> impl Iterator<Item = Refusal> {
    let desired = &order.desired;
    let invalid = |message: String| Refusal::new(reason::INVALID_SPEC, message);
    let too_long = (desired.name.len() > names::NAME_LIMIT).then(|| {
        invalid(format!(
            "metadata.name has {} characters, but a label value has at most {}: use a shorter name",
            desired.name.len(),
            names::NAME_LIMIT
        ))
    });
    let too_large = configuration
        .and_then(|configuration| configuration.secret.as_ref())
        .filter(|secret| secret.is_too_large())
        .map(|_| invalid("spec.cloudInit is larger than 1 MiB, the maximum size of a Secret: shorten it, or load the rest with #include".to_owned()));
    let has_no_boot_device = !desired.boot_order.is_empty()
        && !desired.boot_order.iter().any(|device| vm::has_device(order, *device));
    let no_boot = has_no_boot_device.then(|| {
        let wanted = if desired.boot_order.contains(&BootDevice::Cdrom) { "cdrom" } else { "disk" };
        invalid(format!("spec.bootOrder contains no device that the machine has: add a disk with device {wanted:?}, or change bootOrder"))
    });
    [too_long, no_boot, old_board(order, found), too_large].into_iter().flatten()
}

/// Returns why the zone is refused. An existing machine stays in its zone, even if the provider no longer lists it.
fn unknown_zone(settings: &Settings, order: &Order, found: &Found) -> Option<Refusal> {
    let zone = order.desired.zone.as_ref()?;
    let is_known = settings.zones.is_empty() || settings.zones.contains(zone);
    (!is_known && found.virtual_machine.is_none()).then(|| {
        let known = settings.zones.join(", ");
        Refusal::new(
            reason::INVALID_SPEC,
            format!("the provider has no zone {zone:?}: use one of [{known}], or remove the zone"),
        )
    })
}

/// Returns why the machine type pc-i440fx is refused.
fn old_board(order: &Order, found: &Found) -> Option<Refusal> {
    let domain = &order.desired.domain;
    let Some(DomainMachine { type_: MachineType::I440fx }) = domain.machine else {
        return None;
    };
    if vm::wants_secure_boot(domain) {
        return Some(Refusal::new(
            reason::INVALID_SPEC,
            "domain.firmware.bootloader.secureBoot requires the machine type pc-q35: change domain.machine.type, or remove secureBoot",
        ));
    }
    let name = vm::machine_type(MachineType::I440fx);
    let allowed = found.machine_types.as_ref()?;
    (!allowed.iter().any(|pattern| matches_pattern(pattern, name))).then(|| {
        Refusal::new(
            reason::KUBEVIRT_API_ERROR,
            format!(
                "domain.machine.type pc-i440fx is not allowed by KubeVirt's configuration: use pc-q35, or add {name:?} to spec.configuration.architectureConfiguration.amd64.emulatedMachines of the KubeVirt object"
            ),
        )
    })
}

/// Whether a text matches a pattern in which `*` matches anything.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            (0..=text.len()).filter_map(|at| text.get(at..)).any(|text| matches_pattern(rest, text))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::matches_pattern;

    #[test]
    fn a_star_matches_anything() {
        for (pattern, text, is_match) in [
            ("q35*", "q35", true),
            ("pc-q35*", "pc", false),
            ("pc*", "pc", true),
            ("*", "pc", true),
            ("pc", "pc", true),
            ("p*c", "pc", true),
            ("p*x", "pc", false),
        ] {
            assert_eq!(matches_pattern(pattern, text), is_match, "{pattern} {text}");
        }
    }
}
