//! The fields that `vitistack describe` shows of an object, one line each. In JSON and YAML their names are keys, in
//! lower case.

use std::collections::BTreeMap;

use vitistack_plan::machine::placement;
use vitistack_types::{
    labels,
    v1alpha1::{
        Cpu, Datacenter, Disk, Machine, MachineClass, MachineProvider, NetworkConfiguration, PowerState,
        ProviderCapacity, ReclaimPolicy, ResourceQuotas, UsedResources,
    },
};

/// Names and values. Fields without a value are not shown.
pub type Fields = Vec<(&'static str, String)>;

/// Returns the fields of a Machine.
pub fn machine(machine: &Machine) -> Fields {
    let spec = &machine.spec;
    let annotations = machine.metadata.annotations.as_ref();

    let resources = spec.resources.as_ref();
    let size = [
        resources.and_then(|resources| resources.cpu.as_ref()).map(cpu),
        resources.and_then(|resources| resources.memory.as_ref()).map(|memory| memory.size.to_string()),
    ];
    let networks = spec.networks.iter().map(|one| format!("{} on {}", one.name, one.network_name));
    let power = match spec.power_state {
        Some(PowerState::Stopped) => "Stopped",
        Some(PowerState::Running) | None => "Running",
    };
    let addresses = machine.status.as_ref().map(|status| status.ip_addresses.join(", "));
    let paused = annotation(annotations, labels::PAUSED).filter(|value| value == "true");

    vec![
        ("Template", spec.template.clone().unwrap_or_default()),
        ("Size", joined(size)),
        ("Disks", disks(&spec.disks)),
        ("Networks", networks.collect::<Vec<_>>().join(", ")),
        ("Power", power.to_owned()),
        ("Placement", place(machine).unwrap_or_else(|| "not placed yet".to_owned())),
        ("Chosen", annotation(annotations, labels::PLACEMENT_REASON).unwrap_or_default()),
        ("Addresses", addresses.unwrap_or_default()),
        ("Identity", annotation(annotations, labels::IDENTITY).unwrap_or_default()),
        ("Paused", paused.unwrap_or_default()),
    ]
}

/// Returns the value of an annotation.
fn annotation(annotations: Option<&BTreeMap<String, String>>, name: &str) -> Option<String> {
    annotations?.get(name).cloned()
}

/// Joins the parts that exist with commas.
fn joined(parts: impl IntoIterator<Item = Option<String>>) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns the provider, zone and node of a Machine.
fn place(machine: &Machine) -> Option<String> {
    let provider = placement(machine)?;
    let zone = annotation(machine.metadata.annotations.as_ref(), labels::ZONE);
    let zone = zone.or_else(|| machine.spec.zone.clone()).map(|zone| format!("zone {zone}"));
    let node = machine.status.as_ref().and_then(|status| status.node_name.as_ref());
    let node = node.map(|node| format!("node {node}"));

    Some(joined([Some(provider.to_string()), zone, node]))
}

fn cpu(cpu: &Cpu) -> String {
    let part = |number: Option<u32>, unit: &str| number.map(|number| format!("{number} {unit}"));
    joined([part(cpu.sockets, "sockets"), part(cpu.cores, "cores"), part(cpu.threads, "threads")])
}

fn disks(disks: &[Disk]) -> String {
    let one = |disk: &Disk| {
        let size = disk.size.as_ref().map(|size| format!(" {size}")).unwrap_or_default();
        let class = disk.storage_class.as_ref().map(|class| format!(" on {class}")).unwrap_or_default();
        let policy = if disk.reclaim_policy == Some(ReclaimPolicy::Retain) { ", retained" } else { "" };
        format!("{}{size}{class}{policy}", disk.name)
    };
    disks.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Returns the fields of a Datacenter.
pub fn datacenter(datacenter: &Datacenter) -> Fields {
    let spec = &datacenter.spec;
    let used = datacenter.status.as_ref().and_then(|status| status.used.as_ref());
    vec![
        ("Region", spec.region.clone()),
        ("Zones", spec.zones.join(", ")),
        ("Quotas", spec.resource_quotas.as_ref().map(|quotas| quota(quotas, used)).unwrap_or_default()),
        ("Used", used.map(usage).unwrap_or_default()),
    ]
}

fn quota(quotas: &ResourceQuotas, used: Option<&UsedResources>) -> String {
    let part = |resource: &str, used: Option<String>, limit: Option<String>| {
        limit.map(|limit| match used {
            Some(used) => format!("{resource} {used} of {limit}"),
            None => format!("{resource} {limit}"),
        })
    };
    joined([
        part(
            "machines",
            used.map(|used| used.machines.to_string()),
            quotas.max_machines.map(|limit| limit.to_string()),
        ),
        part("cpu", used.map(|used| used.cpu.to_string()), quotas.max_cpu.map(|limit| limit.to_string())),
        part(
            "memory",
            used.map(|used| used.memory.to_string()),
            quotas.max_memory.as_ref().map(ToString::to_string),
        ),
        part(
            "storage",
            used.map(|used| used.storage.to_string()),
            quotas.max_storage.as_ref().map(ToString::to_string),
        ),
    ])
}

fn usage(used: &UsedResources) -> String {
    format!("{} machines, {} cpu, {} memory, {} storage", used.machines, used.cpu, used.memory, used.storage)
}

/// Returns the fields of a MachineProvider.
pub fn provider(provider: &MachineProvider) -> Fields {
    let spec = &provider.spec;
    let status = provider.status.as_ref();
    let type_ = serde_json::to_value(spec.type_).ok();
    let type_ = type_.and_then(|type_| type_.as_str().map(ToOwned::to_owned));
    let used = status.and_then(|status| status.used.as_ref());
    let version = status.and_then(|status| status.version.as_ref());
    let secret = spec.credentials.as_ref().map(|credentials| &credentials.secret_ref);
    let is_default = annotation(provider.metadata.annotations.as_ref(), labels::IS_DEFAULT_PROVIDER);

    vec![
        ("Type", type_.unwrap_or_default()),
        ("Zones", spec.zones.join(", ")),
        ("Capacity", spec.capacity.as_ref().map(capacity).unwrap_or_default()),
        ("Used", used.map(usage).unwrap_or_default()),
        ("Version", version.map(ToString::to_string).unwrap_or_default()),
        (
            "Login",
            secret.map(|secret| format!("Secret {}, key {}", secret.name, secret.key)).unwrap_or_default(),
        ),
        ("Default", is_default.unwrap_or_default()),
    ]
}

fn capacity(capacity: &ProviderCapacity) -> String {
    joined([
        capacity.machines.map(|limit| format!("machines {limit}")),
        capacity.cpu.map(|limit| format!("cpu {limit}")),
        capacity.memory.as_ref().map(|limit| format!("memory {limit}")),
        capacity.storage.as_ref().map(|limit| format!("storage {limit}")),
    ])
}

/// Returns the fields of a MachineClass.
pub fn class(class: &MachineClass) -> Fields {
    let spec = &class.spec;
    vec![
        ("For", spec.description.clone().unwrap_or_default()),
        ("Size", format!("{} cores, {}", spec.resources.cpu.cores, spec.resources.memory.size)),
        ("Disks", disks(&spec.disks)),
    ]
}

/// Returns the fields of a NetworkConfiguration.
pub fn network(network: &NetworkConfiguration) -> Fields {
    vec![
        ("Bridge", network.spec.bridge.clone()),
        ("VLAN", network.spec.vlan.map(|vlan| vlan.to_string()).unwrap_or_default()),
    ]
}
