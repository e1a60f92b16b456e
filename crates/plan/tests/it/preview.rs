//! What would happen if objects were laid over others. One page each.

use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use vitistack_plan::{
    explain::World,
    machine::{Capabilities, Support},
    preview::{Action, Changed, Field, Laid, Preview, preview},
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
    conditions::set(&mut status.conditions, &ready, None, World::default().now);
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

/// A Machine of the datacenter that nobody has seen yet.
fn machine(name: &str) -> Machine {
    Machine::builder()
        .template("small")
        .datacenter_ref(ObjectReference::builder().name("west").build())
        .build(name, "default")
        .unwrap()
}

/// A Machine that was made on `default/rack`.
fn made(name: &str) -> Machine {
    let mut machine = machine(name);
    let uid = format!("uid-{name}");
    let annotations = [(labels::IDENTITY, uid.as_str()), (labels::PLACEMENT, "default/rack")];
    machine.metadata.annotations =
        Some(annotations.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    machine.metadata.uid = Some(uid);
    machine.metadata.creation_timestamp = Some(Time(World::default().now));
    machine.metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
    machine
}

/// One Machine runs in a datacenter of one provider.
fn stage() -> World {
    World {
        machines: vec![made("web")],
        datacenters: vec![datacenter()],
        providers: vec![provider("rack")],
        leases: Some(Vec::new()),
        ..World::default()
    }
}

fn web(world: &mut World) -> &mut Machine {
    world.machines.first_mut().unwrap()
}

fn new(object: &str) -> Changed {
    Changed { object: object.to_owned(), laid: Laid::New }
}

fn over(object: &str, path: &str) -> Changed {
    let field = Field { path: path.to_owned(), change: "one → other".to_owned() };
    Changed { object: object.to_owned(), laid: Laid::Over(vec![field]) }
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
        let most = quota.most.as_deref().unwrap_or("any");
        let exceeded = if quota.is_exceeded { " (exceeded)" } else { "" };
        let (place, what) = (&quota.datacenter, quota.resource);
        writeln!(page, "{place} {what}: {} → {} of {most}{exceeded}", quota.before, quota.after).unwrap();
    }
    for price in &preview.prices {
        writeln!(page, "{} → {} {}", price.before, price.after, price.currency).unwrap();
    }
    page
}

/// What is told when `change` is laid over the stage.
fn told(change: impl FnOnce(&mut World) -> Vec<Changed>) -> String {
    let before = stage();
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
fn new_machines_are_placed_in_their_order_until_a_quota_is_full() {
    insta::assert_snapshot!(told(|world| {
        // The names are not in the order in which they come.
        let names = ["d", "c", "b"];
        world.machines.extend(names.map(machine));
        names.map(|name| new(&format!("Machine default/{name}"))).into()
    }));
}

#[test]
fn a_change_is_told_by_what_it_means_for_the_machine() {
    let before = {
        let mut world = stage();
        let disks = [("data", ReclaimPolicy::Delete), ("logs", ReclaimPolicy::Retain)];
        web(&mut world).spec.disks = disks.map(|(name, policy)| disk(name, "10Gi", policy)).into();
        world
    };
    let told = |change: fn(&mut Machine)| {
        let mut after = before.clone();
        change(web(&mut after));
        page(&preview(&before, &after, &[over(WEB, "spec.anything")], &capabilities))
    };
    let pages = [
        ("resized", told(|machine| cores(machine, 2))),
        ("disks removed", told(|machine| machine.spec.disks.clear())),
        (
            "a disk grown, one added",
            told(|machine| {
                machine.spec.disks.first_mut().unwrap().size = Some("20Gi".parse().unwrap());
                machine.spec.disks.push(disk("more", "1Gi", ReclaimPolicy::Delete));
            }),
        ),
        (
            "a disk of another class",
            told(|machine| machine.spec.disks.first_mut().unwrap().storage_class = Some("fast".to_owned())),
        ),
        ("switched off", told(|machine| machine.spec.power_state = Some(PowerState::Stopped))),
        (
            "switched off and resized",
            told(|machine| {
                machine.spec.power_state = Some(PowerState::Stopped);
                cores(machine, 2);
            }),
        ),
        ("a template that is not there", told(|machine| machine.spec.template = Some("huge".to_owned()))),
        ("a size beyond the quota", told(|machine| cores(machine, 8))),
        ("the same in other words", told(|machine| cores(machine, 1))),
    ];
    let text: Vec<String> = pages.iter().map(|(what, told)| format!("# {what}\n{told}")).collect();
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn a_machine_that_is_off_or_not_made_yet_needs_no_restart() {
    let mut off = stage();
    web(&mut off).spec.power_state = Some(PowerState::Stopped);
    let mut waiting = stage();
    web(&mut waiting).metadata.finalizers = None;
    for before in [off, waiting] {
        let mut after = before.clone();
        cores(web(&mut after), 2);
        let told = preview(&before, &after, &[over(WEB, "spec.resources")], &capabilities);
        assert_eq!(told.entries.first().unwrap().action, Action::Change, "{told:?}");
    }
}

#[test]
fn what_changes_for_others_is_told_too() {
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
    let mut before = stage();
    before.classes = vec![class(1)];
    web(&mut before).spec.template = Some("tiny".to_owned());
    let mut after = before.clone();
    after.classes = vec![class(2)];
    let changed = [over("MachineClass tiny", "spec.resources.cpu.cores")];
    insta::assert_snapshot!(page(&preview(&before, &after, &changed, &capabilities)));
}

#[test]
fn what_the_api_refuses_is_told_in_its_words_and_changes_nothing() {
    let refused = "spec.zone: cannot change once set: make another Machine instead";
    let changed = Changed { object: WEB.to_owned(), laid: Laid::Refused(refused.to_owned()) };
    let told = preview(&stage(), &stage(), &[changed], &capabilities);
    assert!(told.has_change());
    assert_eq!(page(&told), format!("refuse {WEB}\n  {refused}\n"));
}

#[test]
fn what_stays_as_it_is_is_no_change() {
    let changed = Changed { object: WEB.to_owned(), laid: Laid::Over(Vec::new()) };
    let told = preview(&stage(), &stage(), &[changed], &capabilities);
    assert!(!told.has_change());
    assert_eq!(page(&told), format!("unchanged {WEB}\n"));
}

#[test]
fn a_provider_that_comes_with_its_machines_is_taken_to_be_ready() {
    insta::assert_snapshot!(told(|world| {
        let mut provider = provider("cloud");
        provider.status = None;
        world.providers.push(provider);
        let reference = ProviderReference::builder().name("cloud").priority(0).build();
        world.datacenters.first_mut().unwrap().spec.machine_providers.push(reference);
        world.machines.push(machine("db"));
        vec![
            new("MachineProvider default/cloud"),
            over("Datacenter default/west", "spec.machineProviders"),
            new("Machine default/db"),
        ]
    }));
}
