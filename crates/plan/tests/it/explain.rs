//! Planted faults, and what is said to be their cause. One page each.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, ObjectMeta, Time},
};
use vitistack_plan::explain::{Standing, Subject, Told, World, explain};
use vitistack_types::{
    ObjectReference, SecretKeyReference,
    conditions::{self, Statement, reason},
    labels,
    v1alpha1::{
        CloudInit, Datacenter, Machine, MachineProvider, MachineStatus, NetworkInterface, ProviderCapacity,
        ProviderCredentials, ProviderReference, ProviderType, ResourceQuotas,
    },
};

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn ago(minutes: i64) -> Timestamp {
    now() - SignedDuration::from_mins(minutes)
}

fn lease(operator: &str, renewed: Timestamp) -> Lease {
    Lease {
        metadata: ObjectMeta { name: Some(format!("{operator}-operator")), ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            holder_identity: Some("host_1".to_owned()),
            renew_time: Some(MicroTime(renewed)),
            ..LeaseSpec::default()
        }),
    }
}

fn said(type_: &str, status: bool, reason: &str, message: &str, at: Timestamp) -> Condition {
    let mut conditions = Vec::new();
    let statement = Statement { type_, status: Some(status), reason, message };
    conditions::set(&mut conditions, &statement, Some(1), at);
    conditions.remove(0)
}

/// A Machine that was made ten minutes ago on `default/simulated-a`, with every operator at work.
fn stage() -> World {
    let operators = ["datacenter", "machine-provider", "simulated", "kubevirt"];
    World {
        now: now(),
        machines: vec![machine("web-1")],
        datacenters: vec![datacenter()],
        providers: vec![provider("simulated-a")],
        leases: Some(operators.map(|operator| lease(operator, ago(0))).into()),
        ..World::default()
    }
}

fn machine(name: &str) -> Machine {
    let mut machine = Machine::builder()
        .template("small")
        .provider_ref(ObjectReference::builder().name("simulated-a").build())
        .build(name, "default")
        .unwrap();
    machine.metadata.uid = Some(format!("uid-{name}"));
    machine.metadata.generation = Some(1);
    machine.metadata.creation_timestamp = Some(Time(ago(10)));
    machine
}

fn provider(name: &str) -> MachineProvider {
    MachineProvider::builder().provider_type(ProviderType::Simulated).build(name, "default").unwrap()
}

fn datacenter() -> Datacenter {
    let provider = ProviderReference::builder().name("simulated-a").priority(1).build();
    Datacenter::builder().region("west").machine_providers([provider]).build("west", "default").unwrap()
}

fn web(world: &mut World) -> &mut Machine {
    world.machines.first_mut().unwrap()
}

fn tell(machine: &mut Machine, condition: Condition) {
    let status = machine.status.get_or_insert_with(MachineStatus::default);
    status.observed_generation = Some(1);
    status.conditions.push(condition);
}

fn annotate(metadata: &mut ObjectMeta, name: &str, value: &str) {
    metadata.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

/// The Machine as it is once something was made for it.
fn claim(machine: &mut Machine) {
    let uid = machine.metadata.uid.clone().unwrap();
    annotate(&mut machine.metadata, labels::IDENTITY, &uid);
    annotate(&mut machine.metadata, labels::PLACEMENT, "default/simulated-a");
    machine.metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
}

fn by_datacenter(machine: &mut Machine) {
    machine.spec.provider_ref = None;
    machine.spec.datacenter_ref = Some(ObjectReference::builder().name("west").build());
}

fn fail(provider: &mut MachineProvider, reason: &str, message: &str) {
    let status = provider.status.get_or_insert_default();
    status.conditions = vec![said("Ready", false, reason, message, ago(3))];
}

fn page(subject: Subject<'_>, world: &World) -> String {
    let explanation = explain(subject, world);
    let mut page = format!("{}\n", explanation.subject);
    for link in &explanation.chain {
        let mark = match link.standing {
            Standing::Well => '+',
            Standing::Blocking => '!',
            Standing::Unknown => '?',
        };
        writeln!(page, "  {mark} {}: {}", link.object, link.says).unwrap();
    }
    match &explanation.cause {
        None => page.push_str("nothing stands in its way\n"),
        Some(cause) => {
            writeln!(page, "cause: {} {}: {}", cause.object, cause.reason, cause.message).unwrap();
            let since = cause.since.map_or("not known".to_owned(), |since| since.to_string());
            writeln!(page, "since: {since}").unwrap();
            if let Some(waits_for) = &cause.waits_for {
                writeln!(page, "waits for: {waits_for}").unwrap();
            }
            if let Some(to_do) = &cause.to_do {
                writeln!(page, "to do: {to_do}").unwrap();
            }
        }
    }
    for told in &explanation.tried {
        writeln!(page, "told: {} {}: {}", told.at, told.reason, told.message).unwrap();
    }
    page
}

/// Plants one fault and shows what is said about the Machine `web-1`.
fn fault(plant: impl FnOnce(&mut World)) -> String {
    let mut world = stage();
    plant(&mut world);
    page(Subject::Machine(world.machines.first().unwrap()), &world)
}

macro_rules! faults {
    ($($name:ident: $plant:expr;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(fault($plant));
        }
    )*};
}

faults! {
    nothing_is_wrong: |world| {
        claim(web(world));
        tell(web(world), said("Ready", true, reason::RUNNING, "the machine runs", ago(5)));
    };
    it_was_not_looked_at_yet: |_| {};
    its_template_is_missing: |world| {
        web(world).spec.template = Some("huge".to_owned());
        let message = "spec.template \"huge\" names nothing: use small, medium or large, or create a MachineClass \"huge\"";
        tell(web(world), said("Ready", false, reason::TEMPLATE_NOT_FOUND, message, ago(9)));
    };
    its_template_is_there_by_now: |world| {
        tell(web(world), said("Ready", false, reason::TEMPLATE_NOT_FOUND, "spec.template names nothing", ago(9)));
    };
    its_network_is_missing: |world| {
        web(world).spec.networks = vec![NetworkInterface::builder().name("eth0").network_name("prod").build()];
    };
    its_secret_is_missing: |world| {
        refer_to_secret(web(world));
        world.secrets.insert("default/web-data".to_owned(), None);
    };
    its_secret_has_not_the_key: |world| {
        refer_to_secret(web(world));
        world.secrets.insert("default/web-data".to_owned(), Some(["other".to_owned()].into()));
    };
    its_secret_could_not_be_read: |world| refer_to_secret(web(world));
    it_is_paused: |world| {
        annotate(&mut web(world).metadata, labels::PAUSED, "true");
        tell(web(world), said("Paused", true, reason::PAUSED, "the annotation stops all action", ago(4)));
    };
    another_machine_has_its_identity: |world| {
        claim(web(world));
        annotate(&mut web(world).metadata, labels::IDENTITY, "uid-web-1-old");
        annotate(&mut web(world).metadata, labels::ADOPTED, "uid-web-1");
        world.machines.push(machine("web-1-old"));
    };
    it_was_restored_and_not_adopted: |world| {
        claim(web(world));
        annotate(&mut web(world).metadata, labels::IDENTITY, "uid-of-before");
    };
    its_provider_is_missing: |world| world.providers.clear();
    its_provider_does_not_permit_it: |world| {
        world.providers[0].metadata.namespace = Some("infra".to_owned());
        web(world).spec.provider_ref =
            Some(ObjectReference::builder().name("simulated-a").namespace("infra").build());
    };
    its_provider_was_deleted_under_it: |world| {
        claim(web(world));
        world.providers.clear();
    };
    its_placement_was_forged: |world| {
        claim(web(world));
        annotate(&mut web(world).metadata, labels::PLACEMENT, "default/other");
    };
    there_is_no_default_provider: |world| web(world).spec.provider_ref = None;
    there_are_two_default_providers: |world| {
        web(world).spec.provider_ref = None;
        world.providers.push(provider("simulated-b"));
        for provider in &mut world.providers {
            annotate(&mut provider.metadata, labels::IS_DEFAULT_PROVIDER, "true");
        }
    };
    its_provider_does_not_answer: |world| {
        claim(web(world));
        fail(&mut world.providers[0], reason::PROVIDER_UNREACHABLE, "10.0.0.1:8006 does not answer: waiting for it");
        tell(web(world), said("Ready", false, reason::PROVIDER_UNREACHABLE, "the provider does not answer", ago(2)));
        world.events = vec![
            told("Machine default/web-1", ago(8), "Creating", "create: the provider has no machine with its identity"),
            told("MachineProvider default/simulated-a", ago(3), "ProviderUnreachable", "10.0.0.1:8006 does not answer"),
            told("Machine default/other", ago(1), "Creating", "of no interest"),
        ];
    };
    the_credentials_of_its_provider_are_missing: |world| {
        let secret_ref = SecretKeyReference::builder().name("login").key("token").build();
        world.providers[0].spec.credentials = Some(ProviderCredentials::builder().secret_ref(secret_ref).build());
        world.secrets.insert("default/login".to_owned(), None);
        fail(&mut world.providers[0], reason::SECRET_NOT_FOUND, "the credentials are missing");
    };
    its_provider_is_paused: |world| annotate(&mut world.providers[0].metadata, labels::PAUSED, "true");
    its_datacenter_is_missing: |world| {
        by_datacenter(web(world));
        world.datacenters.clear();
    };
    its_datacenter_does_not_permit_it: |world| {
        by_datacenter(web(world));
        world.datacenters[0].metadata.namespace = Some("infra".to_owned());
        web(world).spec.datacenter_ref = Some(ObjectReference::builder().name("west").namespace("infra").build());
    };
    the_quota_of_its_datacenter_is_full: |world| {
        by_datacenter(web(world));
        world.datacenters[0].spec.resource_quotas = Some(ResourceQuotas::builder().max_machines(1).build());
        let mut first = machine("first");
        by_datacenter(&mut first);
        claim(&mut first);
        world.machines.push(first);
    };
    no_provider_of_its_datacenter_can_take_it: |world| {
        by_datacenter(web(world));
        world.providers[0].spec.capacity = Some(ProviderCapacity::builder().cpu(0).build());
        let away = ProviderReference::builder().name("simulated-b").priority(2).build();
        world.datacenters[0].spec.machine_providers.push(away);
    };
    the_only_provider_of_its_datacenter_is_away: |world| {
        by_datacenter(web(world));
        fail(&mut world.providers[0], reason::PROVIDER_UNREACHABLE, "10.0.0.1:8006 does not answer: waiting for it");
    };
    its_datacenter_is_paused: |world| {
        by_datacenter(web(world));
        annotate(&mut world.datacenters[0].metadata, labels::PAUSED, "true");
    };
    nobody_places_it: |world| {
        by_datacenter(web(world));
        world.leases = Some(Vec::new());
    };
    its_datacenter_is_about_to_place_it: |world| by_datacenter(web(world));
    nobody_acts_on_it: |world| {
        world.leases = Some(vec![lease("simulated", ago(45))]);
    };
    its_operator_runs_without_leader_election: |world| {
        claim(web(world));
        world.leases = Some(Vec::new());
        tell(web(world), said("Ready", false, reason::VM_FAILED, "the guest crashes: look at its console", ago(6)));
    };
    leases_could_not_be_read: |world| world.leases = None;
    it_is_being_made: |world| {
        claim(web(world));
        tell(web(world), said("Ready", false, reason::CREATING, "waiting: task 7 of the provider ends", ago(1)));
    };
    its_disks_are_waited_for: |world| {
        claim(web(world));
        tell(web(world), said("Ready", false, reason::CREATING, "waiting: the machine is being made", ago(4)));
        tell(web(world), said("StorageReady", false, reason::PVC_PENDING, "waiting for disks: root", ago(3)));
        tell(web(world), said("NetworkReady", true, reason::NETWORK_CONFIGURED, "attached to prod", ago(3)));
    };
    its_provider_failed_to_make_it: |world| {
        claim(web(world));
        let message = "no node has 8 cores free: add a node, or ask for less";
        tell(web(world), said("Ready", false, reason::INSUFFICIENT_RESOURCES, message, ago(6)));
    };
    its_spec_was_changed_and_nobody_looked: |world| {
        claim(web(world));
        tell(web(world), said("Ready", true, reason::RUNNING, "the machine runs", ago(6)));
        web(world).metadata.generation = Some(2);
        world.leases = Some(vec![lease("simulated", ago(45))]);
    };
    it_runs_and_needs_a_restart: |world| {
        claim(web(world));
        tell(web(world), said("Ready", true, reason::RUNNING, "the machine runs", ago(6)));
        let message = "a change takes effect with the next restart: set the annotation vitistack.io/restart-at to the time";
        tell(web(world), said("UpToDate", false, reason::RESTART_REQUIRED, message, ago(2)));
    };
    its_deletion_waits_for_the_provider: |world| {
        claim(web(world));
        web(world).metadata.deletion_timestamp = Some(Time(ago(7)));
        tell(web(world), said("Ready", false, reason::DELETING, "waiting: the disks go", ago(6)));
    };
    its_deletion_waits_for_a_provider_that_is_away: |world| {
        claim(web(world));
        web(world).metadata.deletion_timestamp = Some(Time(ago(7)));
        fail(&mut world.providers[0], reason::PROVIDER_UNREACHABLE, "10.0.0.1:8006 does not answer: waiting for it");
    };
    its_deletion_waits_for_a_foreign_finalizer: |world| {
        web(world).metadata.deletion_timestamp = Some(Time(ago(7)));
        web(world).metadata.finalizers = Some(vec!["example.com/backup".to_owned()]);
    };
}

fn refer_to_secret(machine: &mut Machine) {
    let secret = SecretKeyReference::builder().name("web-data").key("userdata").build();
    machine.spec.cloud_init = Some(CloudInit::builder().secret_ref(secret).build());
}

fn told(object: &str, at: Timestamp, reason: &str, message: &str) -> Told {
    Told { at, object: object.to_owned(), reason: reason.to_owned(), message: message.to_owned() }
}

#[test]
fn a_provider_and_a_datacenter_are_explained_too() {
    let mut world = stage();
    let mut pages = vec![
        page(Subject::MachineProvider(&world.providers[0]), &world),
        page(Subject::Datacenter(&world.datacenters[0]), &world),
    ];
    claim(web(&mut world));
    world.providers[0].metadata.deletion_timestamp = Some(Time(ago(7)));
    world.providers[0].metadata.finalizers = Some(vec![labels::PROVIDER_IN_USE.to_owned()]);
    pages.push(page(Subject::MachineProvider(&world.providers[0]), &world));
    // Nothing of it is left there, and others hold the object.
    web(&mut world).metadata.deletion_timestamp = Some(Time(ago(7)));
    web(&mut world).metadata.finalizers = Some(vec!["example.com/backup".to_owned()]);
    pages.push(page(Subject::MachineProvider(&world.providers[0]), &world));
    world.providers.clear();
    world.leases = Some(Vec::new());
    pages.push(page(Subject::Datacenter(&world.datacenters[0]), &world));
    insta::assert_snapshot!(pages.join("\n"));
}
