//! The VirtualMachine of a Machine, field by field.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};
use vitistack_clients::kubernetes::Child;
use vitistack_plan::machine::{CpuShape, DesiredInterface};
use vitistack_types::{
    labels,
    v1alpha1::{BootDevice, Bootloader, DiskDevice, Domain, MachineType, NetworkModel, PowerState},
};

use super::{Settings, cloud_init::CloudInit, kind::Kind, names};
use crate::Order;

/// The label of the zone of a node.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// The run strategy of a running machine.
pub const ALWAYS: &str = "Always";

/// The run strategy of a stopped machine.
pub const HALTED: &str = "Halted";

/// Returns the run strategy of a power state.
#[must_use]
pub fn run_strategy(power: PowerState) -> &'static str {
    match power {
        PowerState::Running => ALWAYS,
        PowerState::Stopped => HALTED,
    }
}

/// Returns the machine type of QEMU. The names in the spec pass the admission of KubeVirt, but do not boot.
#[must_use]
pub fn machine_type(machine_type: MachineType) -> &'static str {
    match machine_type {
        MachineType::Q35 => "q35",
        MachineType::I440fx => "pc",
    }
}

/// Returns the VirtualMachine of an order.
#[must_use]
pub fn virtual_machine(settings: &Settings, order: &Order, cloud_init: Option<&CloudInit>) -> Child {
    let (target, desired) = (&order.target, &order.desired);
    let mut metadata = settings.metadata(target, desired.name.clone());
    metadata.owner_references = settings.owner_of(target).map(|owner| vec![owner]);
    let mut template = json!({
        "domain": domain(order, cloud_init.is_some()),
        "evictionStrategy": "LiveMigrateIfPossible",
        "networks": networks(&desired.interfaces),
        "volumes": volumes(order, cloud_init),
    });
    if let (Some(zone), Some(fields)) = (&desired.zone, template.as_object_mut()) {
        fields.insert("nodeSelector".to_owned(), json!({ ZONE: zone }));
    }
    let template_labels = json!({ labels::MACHINE: target.name, labels::IDENTITY: target.identity });
    let spec = json!({
        "runStrategy": run_strategy(desired.power),
        "template": { "metadata": { "labels": template_labels }, "spec": template },
    });
    Kind::VirtualMachine.child(metadata, json!({ "spec": spec }))
}

/// Returns the owner reference by which the garbage collector deletes the objects of a deleted Machine.
#[must_use]
pub fn owner_reference(api_version: &str, kind: &str, name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}

fn domain(order: &Order, has_cloud_init: bool) -> Value {
    let desired = &order.desired;
    let CpuShape { cores, threads, sockets } = desired.cpu;
    let is_fast = |interface: &DesiredInterface| interface.model == NetworkModel::Virtio;
    let has_fast = desired.interfaces.is_empty() || desired.interfaces.iter().any(is_fast);
    let mut domain = Map::new();
    let mut put = |name: &str, value: Value| domain.insert(name.to_owned(), value);
    put("cpu", json!({ "cores": cores, "threads": threads, "sockets": sockets }));
    put("memory", json!({ "guest": desired.memory }));
    put(
        "devices",
        json!({
            "disks": disks(order, has_cloud_init),
            "interfaces": interfaces(order),
            // Only useful with several processors, and only supported by virtio.
            "networkInterfaceMultiqueue": has_fast && desired.cpu.total() > 1,
        }),
    );
    if let Some(machine) = &desired.domain.machine {
        put("machine", json!({ "type": machine_type(machine.type_) }));
    }
    if let Some(features) = features(&desired.domain) {
        put("features", features);
    }
    if wants_hyperv(&desired.domain) {
        put("clock", hyperv_clock());
    }
    if let Some(firmware) = firmware(&desired.domain, order.target.identity.as_str()) {
        put("firmware", firmware);
    }
    Value::Object(domain)
}

/// The boot order: the first device of each kind, in the order of the kinds.
struct BootOrder<'a>(Vec<&'a BootDevice>);

impl<'a> BootOrder<'a> {
    fn new(order: &'a Order) -> Self {
        Self(order.desired.boot_order.iter().filter(|device| has_device(order, **device)).collect())
    }

    /// Returns the position of a kind, starting at 1.
    fn number(&self, device: BootDevice) -> Option<usize> {
        self.0.iter().position(|listed| **listed == device).map(|position| position + 1)
    }
}

/// Whether the machine has a device of that kind.
#[must_use]
pub fn has_device(order: &Order, device: BootDevice) -> bool {
    let has = |wanted| order.desired.disks.iter().any(|disk| disk.device == wanted);
    match device {
        BootDevice::Disk => has(DiskDevice::Disk),
        BootDevice::Cdrom => has(DiskDevice::Cdrom),
        BootDevice::Network => true,
    }
}

fn disks(order: &Order, has_cloud_init: bool) -> Vec<Value> {
    let boot_order = BootOrder::new(order);
    let desired = &order.desired.disks;
    let mut disks: Vec<Value> = desired
        .iter()
        .enumerate()
        .map(|(index, disk)| {
            let (device, target, boots) = match disk.device {
                DiskDevice::Disk => ("disk", json!({ "bus": "virtio" }), BootDevice::Disk),
                // KubeVirt does not accept virtio for a CD-ROM.
                DiskDevice::Cdrom => ("cdrom", json!({ "bus": "sata" }), BootDevice::Cdrom),
            };
            let is_first = desired.iter().take(index).all(|earlier| earlier.device != disk.device);
            let number = boot_order.number(boots).filter(|_| is_first);
            numbered(json!({ "name": disk.name, device: target }), number)
        })
        .collect();
    if has_cloud_init {
        disks.push(json!({ "name": names::CLOUD_INIT_DISK, "disk": { "bus": "virtio" } }));
    }
    disks
}

fn interfaces(order: &Order) -> Vec<Value> {
    let number = BootOrder::new(order).number(BootDevice::Network);
    let (identity, desired) = (order.target.identity.as_str(), &order.desired.interfaces);
    if desired.is_empty() {
        // Unlike a bridge, masquerade allows a machine on the pod network to migrate.
        let address = names::mac_address(identity, names::POD_NETWORK);
        let interface =
            json!({ "name": names::POD_NETWORK, "model": "virtio", "masquerade": {}, "macAddress": address });
        return vec![numbered(interface, number)];
    }
    let interfaces = desired.iter().enumerate().map(|(index, interface)| {
        let address = interface
            .mac_address
            .map_or_else(|| names::mac_address(identity, &interface.name), |address| address.to_string());
        let device =
            json!({ "name": interface.name, "model": interface.model, "bridge": {}, "macAddress": address });
        numbered(device, number.filter(|_| index == 0))
    });
    interfaces.collect()
}

fn numbered(mut device: Value, number: Option<usize>) -> Value {
    if let (Some(number), Some(fields)) = (number, device.as_object_mut()) {
        fields.insert("bootOrder".to_owned(), json!(number));
    }
    device
}

fn networks(desired: &[DesiredInterface]) -> Vec<Value> {
    if desired.is_empty() {
        return vec![json!({ "name": names::POD_NETWORK, "pod": {} })];
    }
    let network = |interface: &DesiredInterface| json!({ "name": interface.name, "multus": { "networkName": names::attachment(&interface.network) } });
    desired.iter().map(network).collect()
}

fn volumes(order: &Order, cloud_init: Option<&CloudInit>) -> Vec<Value> {
    let disks = order.desired.disks.iter().map(|disk| {
        let claim = names::claim(&order.desired.name, &disk.name);
        match disk.source {
            // The DataVolume, so that KubeVirt waits until it is filled.
            Some(_) => json!({ "name": disk.name, "dataVolume": { "name": claim } }),
            None => json!({ "name": disk.name, "persistentVolumeClaim": { "claimName": claim } }),
        }
    });
    let configuration = cloud_init
        .map(|cloud_init| json!({ "name": names::CLOUD_INIT_DISK, "cloudInitNoCloud": cloud_init.source }));
    disks.chain(configuration).collect()
}

fn bootloader(domain: &Domain) -> Option<&Bootloader> {
    domain.firmware.as_ref()?.bootloader.as_ref()
}

/// Whether secure boot is enabled.
#[must_use]
pub fn wants_secure_boot(domain: &Domain) -> bool {
    bootloader(domain).is_some_and(|bootloader| bootloader.secure_boot == Some(true))
}

fn wants_hyperv(domain: &Domain) -> bool {
    domain.features.as_ref().is_some_and(|features| features.hyperv == Some(true))
}

fn firmware(domain: &Domain, identity: &str) -> Option<Value> {
    let mut firmware = Map::new();
    match bootloader(domain).and_then(|bootloader| bootloader.efi) {
        Some(true) => {
            // Always set, because the default of KubeVirt is true.
            let efi = json!({ "efi": { "secureBoot": wants_secure_boot(domain) } });
            firmware.insert("bootloader".to_owned(), efi);
        }
        Some(false) => {
            firmware.insert("bootloader".to_owned(), json!({ "bios": {} }));
        }
        None => {}
    }
    // The guest can read its identity from the firmware, and sees the same machine after it is recreated.
    if is_uuid(identity) {
        firmware.insert("uuid".to_owned(), identity.into());
    }
    (!firmware.is_empty()).then_some(Value::Object(firmware))
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(index, letter)| match index {
            8 | 13 | 18 | 23 => letter == b'-',
            _ => letter.is_ascii_hexdigit(),
        })
}

fn features(domain: &Domain) -> Option<Value> {
    let wanted = domain.features.clone().unwrap_or_default();
    let mut features = Map::new();
    let mut switch = |name: &str, is_on: Option<bool>| {
        if let Some(is_on) = is_on {
            features.insert(name.to_owned(), json!({ "enabled": is_on }));
        }
    };
    switch("acpi", wanted.acpi);
    switch("apic", wanted.apic);
    // Secure boot stores its keys where only the firmware can write.
    switch("smm", wants_secure_boot(domain).then_some(true));
    if wanted.hyperv == Some(true) {
        features.insert("hyperv".to_owned(), hyperv());
    }
    (!features.is_empty()).then_some(Value::Object(features))
}

/// Returns the usual Hyper-V enlightenments for Windows.
fn hyperv() -> Value {
    let mut set = Map::new();
    for name in [
        "frequencies",
        "ipi",
        "reenlightenment",
        "relaxed",
        "reset",
        "runtime",
        "synic",
        "tlbflush",
        "vapic",
        "vpindex",
    ] {
        set.insert(name.to_owned(), json!({ "enabled": true }));
    }
    set.insert("spinlocks".to_owned(), json!({ "enabled": true, "spinlocks": 8191 }));
    set.insert("synictimer".to_owned(), json!({ "enabled": true, "direct": { "enabled": true } }));
    Value::Object(set)
}

/// Returns the clock that the Hyper-V timer requires.
fn hyperv_clock() -> Value {
    json!({
        "timer": {
            "hpet": { "present": false },
            "hyperv": { "present": true },
            "pit": { "tickPolicy": "delay" },
            "rtc": { "tickPolicy": "catchup" },
        },
        "utc": {},
    })
}
