//! What an object shall be, in short: a name and a value for each line.

use vitistack_plan::machine::placement;
use vitistack_types::{
    labels,
    v1alpha1::{
        Datacenter, Disk, Machine, MachineClass, MachineProvider, NetworkConfiguration, PowerState,
        ReclaimPolicy, ResourceQuotas, UsedResources,
    },
};

/// A name and a value; one without a value is not shown.
pub type Fields = Vec<(&'static str, String)>;

/// A Machine.
pub fn machine(machine: &Machine) -> Fields {
    let spec = &machine.spec;
    let status = machine.status.clone().unwrap_or_default();
    let cpu = spec.resources.as_ref().and_then(|resources| resources.cpu.as_ref());
    let memory = spec.resources.as_ref().and_then(|resources| resources.memory.as_ref());
    let parts = cpu.map(|cpu| {
        let part = |number: Option<u32>, what: &str| number.map(|number| format!("{number} {what}"));
        let parts = [part(cpu.sockets, "sockets"), part(cpu.cores, "cores"), part(cpu.threads, "threads")];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    });
    let size = [parts, memory.map(|memory| memory.size.to_string())];
    let networks = spec.networks.iter().map(|one| format!("{} on {}", one.name, one.network_name));
    let annotation = |name: &str| machine.metadata.annotations.as_ref()?.get(name).cloned();
    let placed = placement(machine).map(|place| {
        let zone = annotation(labels::ZONE).or_else(|| spec.zone.clone());
        let zone = zone.map(|zone| format!(", zone {zone}")).unwrap_or_default();
        let node = status.node_name.as_ref().map(|node| format!(", node {node}")).unwrap_or_default();
        format!("{place}{zone}{node}")
    });
    let power = match spec.power_state {
        Some(PowerState::Stopped) => "Stopped",
        Some(PowerState::Running) | None => "Running",
    };
    vec![
        ("Template", spec.template.clone().unwrap_or_default()),
        ("Size", size.into_iter().flatten().collect::<Vec<_>>().join(", ")),
        ("Disks", disks(&spec.disks)),
        ("Networks", networks.collect::<Vec<_>>().join(", ")),
        ("Power", power.to_owned()),
        ("Placement", placed.unwrap_or_else(|| "not placed yet".to_owned())),
        ("Chosen", annotation(labels::PLACEMENT_REASON).unwrap_or_default()),
        ("Addresses", status.ip_addresses.join(", ")),
        ("Identity", annotation(labels::IDENTITY).unwrap_or_default()),
        ("Paused", annotation(labels::PAUSED).filter(|value| value == "true").unwrap_or_default()),
    ]
}

fn disks(disks: &[Disk]) -> String {
    let one = |disk: &Disk| {
        let size = disk.size.as_ref().map(|size| format!(" {size}")).unwrap_or_default();
        let class = disk.storage_class.as_ref().map(|class| format!(" on {class}")).unwrap_or_default();
        let kept = if disk.reclaim_policy == Some(ReclaimPolicy::Retain) { ", kept" } else { "" };
        format!("{}{size}{class}{kept}", disk.name)
    };
    disks.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// A Datacenter.
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
    let of = |what: &str, used: Option<String>, most: Option<String>| {
        most.map(|most| match used {
            Some(used) => format!("{what} {used} of {most}"),
            None => format!("{what} {most}"),
        })
    };
    let number = |most: Option<u32>| most.map(|most| most.to_string());
    let parts = [
        of("machines", used.map(|used| used.machines.to_string()), number(quotas.max_machines)),
        of("cpu", used.map(|used| used.cpu.to_string()), number(quotas.max_cpu)),
        of(
            "memory",
            used.map(|used| used.memory.to_string()),
            quotas.max_memory.as_ref().map(ToString::to_string),
        ),
        of(
            "storage",
            used.map(|used| used.storage.to_string()),
            quotas.max_storage.as_ref().map(ToString::to_string),
        ),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn usage(used: &UsedResources) -> String {
    format!("{} machines, {} cpu, {} memory, {} storage", used.machines, used.cpu, used.memory, used.storage)
}

/// A MachineProvider.
pub fn provider(provider: &MachineProvider) -> Fields {
    let spec = &provider.spec;
    let status = provider.status.clone().unwrap_or_default();
    let kind = serde_json::to_value(spec.type_).ok();
    let secret = spec.credentials.as_ref().map(|credentials| &credentials.secret_ref);
    let annotations = provider.metadata.annotations.as_ref();
    let is_default = annotations.and_then(|annotations| annotations.get(labels::IS_DEFAULT_PROVIDER));
    let capacity = spec.capacity.as_ref().map(|capacity| {
        let parts = [
            capacity.machines.map(|most| format!("machines {most}")),
            capacity.cpu.map(|most| format!("cpu {most}")),
            capacity.memory.as_ref().map(|most| format!("memory {most}")),
            capacity.storage.as_ref().map(|most| format!("storage {most}")),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    });
    vec![
        ("Type", kind.and_then(|kind| kind.as_str().map(ToOwned::to_owned)).unwrap_or_default()),
        ("Zones", spec.zones.join(", ")),
        ("Capacity", capacity.unwrap_or_default()),
        ("Used", status.used.as_ref().map(usage).unwrap_or_default()),
        ("Version", status.version.map(|version| version.to_string()).unwrap_or_default()),
        (
            "Login",
            secret.map(|secret| format!("key {} of Secret {}", secret.key, secret.name)).unwrap_or_default(),
        ),
        ("Default", is_default.cloned().unwrap_or_default()),
    ]
}

/// A MachineClass.
pub fn class(class: &MachineClass) -> Fields {
    let spec = &class.spec;
    vec![
        ("For", spec.description.clone().unwrap_or_default()),
        ("Size", format!("{} cores, {}", spec.resources.cpu.cores, spec.resources.memory.size)),
        ("Disks", disks(&spec.disks)),
    ]
}

/// A NetworkConfiguration.
pub fn network(network: &NetworkConfiguration) -> Fields {
    vec![
        ("Bridge", network.spec.bridge.clone()),
        ("VLAN", network.spec.vlan.map(|vlan| vlan.to_string()).unwrap_or_default()),
    ]
}
