//! What would happen if manifests were applied. One page each.

use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use vitistack_plan::{
    Inventory,
    machine::{Capabilities, Support},
    preview::{Action, Applied, Effect, FieldChange, Preview, preview},
};
use vitistack_types::{
    ObjectReference,
    conditions::{self, Statement},
    labels,
    v1alpha1::{
        Cpu, Datacenter, Disk, InstanceType, Machine, MachineClass, MachineProvider, PowerState, Price,
        ProviderReference, ProviderType, ReclaimPolicy, ResourceQuotas, Resources,
    },
};

/// A backend that changes sizes with a restart only.
fn capabilities(_: ProviderType) -> Capabilities {
    Capabilities {
        resize: Support::AtRestart,
        grow_disk: Support::InPlace,
        change_disks: Support::AtRestart,
        change_interfaces: Support::AtRestart,
        change_hardware: Support::AtRestart,
        power: true,
        zones: true,
        refused_fields: Vec::new(),
    }
}

fn size(name: &str, cpu: u32, memory: &str, price: &str) -> InstanceType {
    let price = Price::builder().per_hour(price.parse().unwrap()).currency("EUR").build();
    InstanceType::builder().name(name).cpu(cpu).memory(memory.parse().unwrap()).price(price).build()
}

fn provider(name: &str) -> MachineProvider {
    let sizes = [size("s", 1, "2Gi", "0.02"), size("m", 2, "4Gi", "0.05"), size("l", 8, "32Gi", "0.3")];
    let mut provider = MachineProvider::builder()
        .provider_type(ProviderType::Simulated)
        .instance_types(sizes)
        .build(name, "default")
        .unwrap();
    let status = provider.status.get_or_insert_default();
    let ready = Statement { type_: "Ready", status: Some(true), reason: "Reachable", message: "it answers" };
    conditions::set(&mut status.conditions, &ready, None, Inventory::default().now);
    provider
}

fn datacenter() -> Datacenter {
    let provider = ProviderReference::builder().name("rack").priority(1).build();
    Datacenter::builder()
        .region("west")
        .machine_providers([provider])
        .resource_quotas(ResourceQuotas::builder().max_machines(3).max_cpu(4).build())
        .build("west", "default")
        .unwrap()
}

/// A new Machine of the Datacenter.
fn machine(name: &str) -> Machine {
    Machine::builder()
        .template("small")
        .datacenter_ref(ObjectReference::builder().name("west").build())
        .build(name, "default")
        .unwrap()
}

/// A Machine that was created on `default/rack`.
fn created(name: &str) -> Machine {
    let mut machine = machine(name);
    let uid = format!("uid-{name}");
    let annotations = [(labels::IDENTITY, uid.as_str()), (labels::PLACEMENT, "default/rack")];
    machine.metadata.annotations =
        Some(annotations.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    machine.metadata.uid = Some(uid);
    machine.metadata.creation_timestamp = Some(Time(Inventory::default().now));
    machine.metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
    machine
}

/// One Machine that runs in a Datacenter with one provider.
fn running_inventory() -> Inventory {
    Inventory {
        machines: vec![created("web")],
        datacenters: vec![datacenter()],
        providers: vec![provider("rack")],
        leases: Some(Vec::new()),
        ..Inventory::default()
    }
}

fn web(inventory: &mut Inventory) -> &mut Machine {
    inventory.machines.first_mut().unwrap()
}

fn new(object: &str) -> Applied {
    Applied { object: object.parse().unwrap(), effect: Effect::Created }
}

fn over(object: &str, path: &str) -> Applied {
    let field = FieldChange { path: path.to_owned(), change: "one → other".to_owned() };
    Applied { object: object.parse().unwrap(), effect: Effect::Updated(vec![field]) }
}

fn page(preview: &Preview) -> String {
    let mut page = String::new();
    for entry in &preview.entries {
        let indirect = if entry.is_indirect { " (indirect)" } else { "" };
        writeln!(page, "{} {}{indirect}", entry.action, entry.object).unwrap();
        for why in &entry.why {
            writeln!(page, "  {why}").unwrap();
        }
    }
    for quota in &preview.quotas {
        let limit = quota.limit.as_deref().unwrap_or("any");
        let exceeded = if quota.is_exceeded { " (exceeded)" } else { "" };
        let (place, what) = (&quota.datacenter, quota.resource);
        writeln!(page, "{place} {what}: {} → {} of {limit}{exceeded}", quota.before, quota.after).unwrap();
    }
    for price in &preview.prices {
        writeln!(page, "{} → {} {}", price.before, price.after, price.currency).unwrap();
    }
    page
}

/// Returns the preview of a change of the inventory.
fn page_of(change: impl FnOnce(&mut Inventory) -> Vec<Applied>) -> String {
    let before = running_inventory();
    let mut after = before.clone();
    let changed = change(&mut after);
    page(&preview(&before, &after, &changed, &capabilities))
}

fn cores(machine: &mut Machine, cores: u32) {
    machine.spec.resources = Some(Resources::builder().cpu(Cpu::builder().cores(cores).build()).build());
}

fn disk(name: &str, size: &str, policy: ReclaimPolicy) -> Disk {
    Disk::builder().name(name).size(size.parse().unwrap()).reclaim_policy(policy).build()
}

const WEB: &str = "Machine default/web";

#[test]
fn new_machines_are_placed_in_order_until_a_quota_is_full() {
    let page = page_of(|inventory| {
        // The order of creation is not that of the names.
        let names = ["d", "c", "b"];
        inventory.machines.extend(names.map(machine));
        names.map(|name| new(&format!("Machine default/{name}"))).into()
    });
    insta::assert_snapshot!(page);
}

#[test]
fn a_change_is_described_by_its_effect_on_the_machine() {
    let before = {
        let mut inventory = running_inventory();
        let disks = [("data", ReclaimPolicy::Delete), ("logs", ReclaimPolicy::Retain)];
        web(&mut inventory).spec.disks = disks.map(|(name, policy)| disk(name, "10Gi", policy)).into();
        inventory
    };
    let page_of = |change: fn(&mut Machine)| {
        let mut after = before.clone();
        change(web(&mut after));
        page(&preview(&before, &after, &[over(WEB, "spec.anything")], &capabilities))
    };

    let pages = [
        ("resized", page_of(|machine| cores(machine, 2))),
        ("disks removed", page_of(|machine| machine.spec.disks.clear())),
        (
            "a disk grown, one added",
            page_of(|machine| {
                machine.spec.disks.first_mut().unwrap().size = Some("20Gi".parse().unwrap());
                machine.spec.disks.push(disk("more", "1Gi", ReclaimPolicy::Delete));
            }),
        ),
        (
            "a disk of another class",
            page_of(|machine| {
                machine.spec.disks.first_mut().unwrap().storage_class = Some("fast".to_owned());
            }),
        ),
        ("stopped", page_of(|machine| machine.spec.power_state = Some(PowerState::Stopped))),
        (
            "stopped and resized",
            page_of(|machine| {
                machine.spec.power_state = Some(PowerState::Stopped);
                cores(machine, 2);
            }),
        ),
        (
            "a template that does not exist",
            page_of(|machine| machine.spec.template = Some("huge".to_owned())),
        ),
        ("a size beyond the quota", page_of(|machine| cores(machine, 8))),
        ("the same spelled differently", page_of(|machine| cores(machine, 1))),
    ];

    let text: Vec<String> = pages.iter().map(|(what, page)| format!("# {what}\n{page}")).collect();

    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn a_stopped_or_not_yet_created_machine_needs_no_restart() {
    let mut off = running_inventory();
    web(&mut off).spec.power_state = Some(PowerState::Stopped);
    let mut waiting = running_inventory();
    web(&mut waiting).metadata.finalizers = None;
    for before in [off, waiting] {
        let mut after = before.clone();
        cores(web(&mut after), 2);
        let preview = preview(&before, &after, &[over(WEB, "spec.resources")], &capabilities);
        assert_eq!(preview.entries.first().unwrap().action, Action::Change, "{preview:?}");
    }
}

#[test]
fn indirect_changes_are_listed() {
    let class = |cores: u32| -> MachineClass {
        MachineClass::builder()
            .resources(
                vitistack_types::v1alpha1::ClassResources::builder()
                    .cpu(vitistack_types::v1alpha1::ClassCpu::builder().cores(cores).build())
                    .memory(vitistack_types::v1alpha1::Memory::builder().size("2Gi".parse().unwrap()).build())
                    .build(),
            )
            .disks([disk("root", "10Gi", ReclaimPolicy::Delete)])
            .build("tiny")
            .unwrap()
    };
    let mut before = running_inventory();
    before.classes = vec![class(1)];
    web(&mut before).spec.template = Some("tiny".to_owned());
    let mut after = before.clone();
    after.classes = vec![class(2)];
    let changed = [over("MachineClass tiny", "spec.resources.cpu.cores")];

    insta::assert_snapshot!(page(&preview(&before, &after, &changed, &capabilities)));
}

#[test]
fn an_api_refusal_is_quoted_and_changes_nothing() {
    let refused = "spec.zone: cannot change once set: create another Machine instead";
    let changed = Applied { object: WEB.parse().unwrap(), effect: Effect::Rejected(refused.to_owned()) };
    let preview = preview(&running_inventory(), &running_inventory(), &[changed], &capabilities);
    assert!(preview.has_change());
    assert_eq!(page(&preview), format!("refuse {WEB}\n  {refused}\n"));
}

#[test]
fn an_unchanged_object_is_not_a_change() {
    let changed = Applied { object: WEB.parse().unwrap(), effect: Effect::Updated(Vec::new()) };
    let preview = preview(&running_inventory(), &running_inventory(), &[changed], &capabilities);
    assert!(!preview.has_change());
    assert_eq!(page(&preview), format!("unchanged {WEB}\n"));
}

#[test]
fn a_paused_provider_accepts_no_new_machines() {
    let page = page_of(|inventory| {
        let rack = inventory.providers.first_mut().unwrap();
        let annotations = rack.metadata.annotations.get_or_insert_default();
        annotations.insert(labels::PAUSED.to_owned(), "true".to_owned());
        let reference = ObjectReference::builder().name("rack").build();
        let db = Machine::builder().template("small").provider_ref(reference).build("db", "default");
        inventory.machines.push(db.unwrap());
        vec![over("MachineProvider default/rack", "metadata.annotations"), new("Machine default/db")]
    });
    insta::assert_snapshot!(page);
}

#[test]
fn a_new_provider_is_assumed_to_be_ready() {
    let page = page_of(|inventory| {
        let mut provider = provider("cloud");
        provider.status = None;
        inventory.providers.push(provider);
        let reference = ProviderReference::builder().name("cloud").priority(0).build();
        inventory.datacenters.first_mut().unwrap().spec.machine_providers.push(reference);
        inventory.machines.push(machine("db"));
        vec![
            new("MachineProvider default/cloud"),
            over("Datacenter default/west", "spec.machineProviders"),
            new("Machine default/db"),
        ]
    });
    insta::assert_snapshot!(page);
}
