//! One problem each, and the explanation of its cause.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, ObjectMeta, Time},
};
use vitistack_plan::{
    Inventory,
    explain::{Explanation, LinkState, RecordedEvent, explain},
};
use vitistack_types::{
    ObjectId, ObjectName, ObjectReference, OperatorName, SecretKeyReference,
    conditions::{self, Statement, reason},
    labels,
    v1alpha1::{
        CloudInit, Datacenter, Machine, MachineProvider, MachineStatus, NetworkInterface, ProviderCapacity,
        ProviderCredentials, ProviderReference, ProviderType, ResourceQuotas,
    },
};

const SIMULATED: OperatorName = OperatorName::Machine(ProviderType::Simulated);

pub(crate) fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

pub(crate) fn ago(minutes: i64) -> Timestamp {
    now() - SignedDuration::from_mins(minutes)
}

fn lease(operator: OperatorName, renewed: Timestamp) -> Lease {
    Lease {
        metadata: ObjectMeta { name: Some(operator.lease()), ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            holder_identity: Some("host_1".to_owned()),
            renew_time: Some(MicroTime(renewed)),
            ..LeaseSpec::default()
        }),
    }
}

/// A condition that was set at this time.
pub(crate) fn condition(type_: &str, status: bool, reason: &str, message: &str, at: Timestamp) -> Condition {
    let mut conditions = Vec::new();
    let statement = Statement { type_, status: Some(status), reason, message };
    conditions::set(&mut conditions, &statement, Some(1), at);
    conditions.remove(0)
}

/// A Machine that was created ten minutes ago on `default/simulated-a`, while every operator runs.
pub(crate) fn healthy_inventory() -> Inventory {
    Inventory {
        now: now(),
        machines: vec![machine("web-1")],
        datacenters: vec![datacenter()],
        providers: vec![provider("simulated-a")],
        leases: Some(OperatorName::all().map(|operator| lease(operator, ago(0))).collect()),
        ..Inventory::default()
    }
}

pub(crate) fn machine(name: &str) -> Machine {
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

pub(crate) fn provider(name: &str) -> MachineProvider {
    let provider = MachineProvider::builder().provider_type(ProviderType::Simulated);
    let mut provider = provider.build(name, "default").unwrap();
    let ready = condition("Ready", true, reason::PROVIDER_READY, "The provider accepts machines", ago(20));
    provider.status.get_or_insert_default().conditions = vec![ready];
    provider
}

fn datacenter() -> Datacenter {
    let provider = ProviderReference::builder().name("simulated-a").priority(1).build();
    Datacenter::builder().region("west").machine_providers([provider]).build("west", "default").unwrap()
}

pub(crate) fn web(inventory: &mut Inventory) -> &mut Machine {
    inventory.machines.first_mut().unwrap()
}

/// Adds a condition to the status of a Machine.
pub(crate) fn report(machine: &mut Machine, condition: Condition) {
    let status = machine.status.get_or_insert_with(MachineStatus::default);
    status.observed_generation = Some(1);
    status.conditions.push(condition);
}

pub(crate) fn annotate(metadata: &mut ObjectMeta, name: &str, value: &str) {
    metadata.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

/// Makes the Machine one for which something was created.
pub(crate) fn claim(machine: &mut Machine) {
    let uid = machine.metadata.uid.clone().unwrap();
    annotate(&mut machine.metadata, labels::IDENTITY, &uid);
    annotate(&mut machine.metadata, labels::PLACEMENT, "default/simulated-a");
    machine.metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
}

/// Lets the Machine refer to the Datacenter instead of a provider.
pub(crate) fn by_datacenter(machine: &mut Machine) {
    machine.spec.provider_ref = None;
    machine.spec.datacenter_ref = Some(ObjectReference::builder().name("west").build());
}

/// Reports that a provider is not ready.
pub(crate) fn fail(provider: &mut MachineProvider, reason: &str, message: &str) {
    let status = provider.status.get_or_insert_default();
    status.conditions = vec![condition("Ready", false, reason, message, ago(3))];
}

/// Prints an explanation.
fn page(explanation: &Explanation) -> String {
    let mut page = format!("{}\n", explanation.subject);
    for link in &explanation.chain {
        let mark = match link.state {
            LinkState::Healthy => '+',
            LinkState::Degraded => '~',
            LinkState::Blocking => '!',
            LinkState::Unknown => '?',
        };
        writeln!(page, "  {mark} {}: {}", link.object, link.message).unwrap();
    }

    match &explanation.cause {
        None => page.push_str("healthy\n"),
        Some(cause) => {
            writeln!(page, "cause: {} {}: {}", cause.object, cause.reason, cause.message).unwrap();
            let since = cause.since.map_or("unknown".to_owned(), |since| since.to_string());
            writeln!(page, "since: {since}").unwrap();
            if let Some(missing) = &cause.missing {
                writeln!(page, "missing: {missing}").unwrap();
            }
            if let Some(waiting_for) = &cause.waiting_for {
                writeln!(page, "waiting for: {waiting_for}").unwrap();
            }
            if let Some(fix) = &cause.fix {
                writeln!(page, "fix: {fix}").unwrap();
            }
        }
    }
    for cause in &explanation.further {
        writeln!(page, "also: {} {}: {}", cause.object, cause.reason, cause.message).unwrap();
        if let Some(fix) = &cause.fix {
            writeln!(page, "  fix: {fix}").unwrap();
        }
    }
    for event in &explanation.events {
        writeln!(page, "event: {} {} {}: {}", event.at, event.object, event.reason, event.message).unwrap();
    }
    page
}

/// Explains the Machine `web-1`.
fn explain_web(inventory: &Inventory) -> Explanation {
    explain(&ObjectId::of(inventory.machines.first().unwrap()), inventory).unwrap()
}

/// Causes one problem and explains the Machine `web-1`.
fn explained(cause: impl FnOnce(&mut Inventory)) -> String {
    let mut inventory = healthy_inventory();
    cause(&mut inventory);
    page(&explain_web(&inventory))
}

macro_rules! problems {
    ($($name:ident: $cause:expr;)*) => {$(
        #[test]
        fn $name() {
            let page = explained($cause);
            insta::assert_snapshot!(page);
        }
    )*};
}

problems! {
    nothing_is_wrong: |inventory| {
        claim(web(inventory));
        report(web(inventory), condition("Ready", true, reason::RUNNING, "The machine is running", ago(5)));
    };
    it_was_not_reconciled_yet: |_| {};
    its_template_is_missing: |inventory| {
        web(inventory).spec.template = Some("huge".to_owned());
        let message = "spec.template: MachineClass \"huge\" not found: use small, medium or large, or create it";
        report(web(inventory), condition("Ready", false, reason::TEMPLATE_NOT_FOUND, message, ago(9)));
    };
    its_template_exists_by_now: |inventory| {
        report(web(inventory), condition("Ready", false, reason::TEMPLATE_NOT_FOUND, "spec.template: MachineClass \"small\" not found", ago(9)));
    };
    its_network_is_missing: |inventory| {
        web(inventory).spec.networks = vec![NetworkInterface::builder().name("eth0").network_name("prod").build()];
    };
    its_secret_is_missing: |inventory| {
        refer_to_secret(web(inventory));
        inventory.secrets.insert(ObjectName::new("default", "web-data"), None);
    };
    its_secret_lacks_the_key: |inventory| {
        refer_to_secret(web(inventory));
        inventory.secrets.insert(ObjectName::new("default", "web-data"), Some(["other".to_owned()].into()));
    };
    its_secret_could_not_be_read: |inventory| refer_to_secret(web(inventory));
    it_is_paused: |inventory| {
        annotate(&mut web(inventory).metadata, labels::PAUSED, "true");
        report(web(inventory), condition("Paused", true, reason::PAUSED, "Reconciliation is paused", ago(4)));
    };
    another_machine_has_its_identity: |inventory| {
        claim(web(inventory));
        annotate(&mut web(inventory).metadata, labels::IDENTITY, "uid-web-1-old");
        annotate(&mut web(inventory).metadata, labels::ADOPTED, "uid-web-1");
        inventory.machines.push(machine("web-1-old"));
    };
    it_was_restored_and_not_adopted: |inventory| {
        claim(web(inventory));
        annotate(&mut web(inventory).metadata, labels::IDENTITY, "uid-of-before");
    };
    its_provider_is_missing: |inventory| inventory.providers.clear();
    its_provider_does_not_permit_it: |inventory| {
        inventory.providers[0].metadata.namespace = Some("infra".to_owned());
        web(inventory).spec.provider_ref =
            Some(ObjectReference::builder().name("simulated-a").namespace("infra").build());
    };
    its_provider_was_deleted_under_it: |inventory| {
        claim(web(inventory));
        inventory.providers.clear();
    };
    its_placement_was_forged: |inventory| {
        claim(web(inventory));
        annotate(&mut web(inventory).metadata, labels::PLACEMENT, "default/other");
    };
    there_is_no_default_provider: |inventory| {
        web(inventory).spec.provider_ref = None;
        let provider = inventory.providers.first_mut().unwrap();
        provider.metadata.namespace = Some(labels::SYSTEM_NAMESPACE.to_owned());
    };
    there_are_two_default_providers: |inventory| {
        web(inventory).spec.provider_ref = None;
        inventory.providers.push(provider("simulated-b"));
        for provider in &mut inventory.providers {
            annotate(&mut provider.metadata, labels::IS_DEFAULT_PROVIDER, "true");
        }
    };
    its_provider_does_not_answer: |inventory| {
        claim(web(inventory));
        fail(&mut inventory.providers[0], reason::PROVIDER_UNREACHABLE, "10.0.0.1:8006 does not answer: check that it runs");
        report(web(inventory), condition("Ready", false, reason::PROVIDER_UNREACHABLE, "the provider does not answer", ago(2)));
    };
    the_credentials_of_its_provider_are_missing: |inventory| {
        let secret_ref = SecretKeyReference::builder().name("login").key("token").build();
        inventory.providers[0].spec.credentials = Some(ProviderCredentials::builder().secret_ref(secret_ref).build());
        inventory.secrets.insert(ObjectName::new("default", "login"), None);
        fail(&mut inventory.providers[0], reason::SECRET_NOT_FOUND, "the credentials are missing");
    };
    its_provider_is_paused: |inventory| annotate(&mut inventory.providers[0].metadata, labels::PAUSED, "true");
    its_datacenter_is_missing: |inventory| {
        by_datacenter(web(inventory));
        inventory.datacenters.clear();
    };
    its_datacenter_does_not_permit_it: |inventory| {
        by_datacenter(web(inventory));
        inventory.datacenters[0].metadata.namespace = Some("infra".to_owned());
        web(inventory).spec.datacenter_ref = Some(ObjectReference::builder().name("west").namespace("infra").build());
    };
    the_quota_of_its_datacenter_is_full: |inventory| {
        by_datacenter(web(inventory));
        inventory.datacenters[0].spec.resource_quotas = Some(ResourceQuotas::builder().max_machines(1).build());
        let mut first = machine("first");
        by_datacenter(&mut first);
        claim(&mut first);
        inventory.machines.push(first);
    };
    no_provider_of_its_datacenter_has_capacity: |inventory| {
        by_datacenter(web(inventory));
        inventory.providers[0].spec.capacity = Some(ProviderCapacity::builder().cpu(0).build());
        let away = ProviderReference::builder().name("simulated-b").priority(2).build();
        inventory.datacenters[0].spec.machine_providers.push(away);
    };
    the_only_provider_of_its_datacenter_is_unreachable: |inventory| {
        by_datacenter(web(inventory));
        fail(&mut inventory.providers[0], reason::PROVIDER_UNREACHABLE, "10.0.0.1:8006 does not answer: check that it runs");
    };
    its_datacenter_is_paused: |inventory| {
        by_datacenter(web(inventory));
        annotate(&mut inventory.datacenters[0].metadata, labels::PAUSED, "true");
    };
    no_operator_places_it: |inventory| {
        by_datacenter(web(inventory));
        inventory.leases = Some(Vec::new());
    };
    its_datacenter_is_about_to_place_it: |inventory| by_datacenter(web(inventory));
    no_operator_acts_on_it: |inventory| {
        inventory.leases = Some(vec![lease(SIMULATED, ago(45))]);
    };
    its_operator_runs_without_leader_election: |inventory| {
        claim(web(inventory));
        inventory.leases = Some(Vec::new());
        report(web(inventory), condition("Ready", false, reason::VM_FAILED, "The guest crashes: check its console", ago(6)));
    };
    leases_could_not_be_read: |inventory| inventory.leases = None;
    it_is_being_created: |inventory| {
        claim(web(inventory));
        report(web(inventory), condition("Ready", false, reason::CREATING, "Waiting for task 7 of the provider to finish", ago(1)));
    };
    it_waits_for_its_disks: |inventory| {
        claim(web(inventory));
        report(web(inventory), condition("Ready", false, reason::CREATING, "Waiting for the provider to create the machine", ago(4)));
        report(web(inventory), condition("StorageReady", false, reason::PVC_PENDING, "Waiting for disks: root", ago(3)));
        report(web(inventory), condition("NetworkReady", true, reason::NETWORK_CONFIGURED, "Attached to prod", ago(3)));
    };
    its_provider_failed_to_create_it: |inventory| {
        claim(web(inventory));
        let message = "no node has 8 cores free: add a node, or request less";
        report(web(inventory), condition("Ready", false, reason::INSUFFICIENT_RESOURCES, message, ago(6)));
    };
    its_spec_changed_while_no_operator_runs: |inventory| {
        claim(web(inventory));
        report(web(inventory), condition("Ready", true, reason::RUNNING, "The machine is running", ago(6)));
        web(inventory).metadata.generation = Some(2);
        inventory.leases = Some(vec![lease(SIMULATED, ago(45))]);
    };
    it_runs_and_needs_a_restart: |inventory| {
        claim(web(inventory));
        report(web(inventory), condition("Ready", true, reason::RUNNING, "The machine is running", ago(6)));
        let message = "A change takes effect with the next restart";
        report(web(inventory), condition("UpToDate", false, reason::RESTART_REQUIRED, message, ago(2)));
    };
    its_deletion_waits_for_the_provider: |inventory| {
        claim(web(inventory));
        web(inventory).metadata.deletion_timestamp = Some(Time(ago(7)));
        report(web(inventory), condition("Ready", false, reason::DELETING, "Waiting for the disks to be deleted", ago(6)));
    };
    its_deletion_waits_for_an_unreachable_provider: |inventory| {
        claim(web(inventory));
        web(inventory).metadata.deletion_timestamp = Some(Time(ago(7)));
        fail(&mut inventory.providers[0], reason::PROVIDER_UNREACHABLE, "10.0.0.1:8006 does not answer: check that it runs");
    };
    it_is_deleted_while_it_is_being_created: |inventory| {
        claim(web(inventory));
        report(web(inventory), condition("Ready", false, reason::CREATING, "Waiting for task 7 to finish", ago(1)));
        web(inventory).metadata.deletion_timestamp = Some(Time(ago(0)));
        web(inventory).metadata.generation = Some(2);
    };
    its_datacenter_was_deleted_under_it: |inventory| {
        claim(web(inventory));
        by_datacenter(web(inventory));
        inventory.datacenters.clear();
        web(inventory).status = Some(MachineStatus {
            provider: Some(ObjectReference::builder().name("simulated-a").namespace("default").build()),
            ..MachineStatus::default()
        });
        report(web(inventory), condition("Ready", true, reason::RUNNING, "The machine is running", ago(5)));
    };
    its_provider_does_not_answer_while_it_runs: |inventory| {
        claim(web(inventory));
        report(web(inventory), condition("Ready", true, reason::RUNNING, "The machine is running", ago(5)));
        fail(&mut inventory.providers[0], reason::PROVIDER_UNREACHABLE, "10.0.0.1:8006 does not answer: check that it runs");
    };
    its_provider_is_being_deleted: |inventory| {
        inventory.providers[0].metadata.deletion_timestamp = Some(Time(ago(2)));
        let message = "MachineProvider \"default/simulated-a\" is being deleted: create the Machine on another provider";
        report(web(inventory), condition("Ready", false, reason::PROVIDER_NOT_FOUND, message, ago(1)));
    };
    a_default_provider_of_another_namespace_does_not_count: |inventory| {
        web(inventory).spec.provider_ref = None;
        web(inventory).metadata.namespace = Some("team-a".to_owned());
        annotate(&mut inventory.providers[0].metadata, labels::IS_DEFAULT_PROVIDER, "true");
        let mut platform = provider("spare");
        platform.metadata.namespace = Some(labels::SYSTEM_NAMESPACE.to_owned());
        inventory.providers.push(platform);
    };
    its_paused_provider_was_reported: |inventory| {
        annotate(&mut inventory.providers[0].metadata, labels::PAUSED, "true");
        let message = "MachineProvider \"default/simulated-a\" is paused and accepts no machines";
        report(web(inventory), condition("Ready", false, reason::PROVIDER_PAUSED, message, ago(1)));
    };
    no_provider_of_its_datacenter_has_its_zone: |inventory| {
        by_datacenter(web(inventory));
        web(inventory).spec.zone = Some("c".to_owned());
        inventory.providers[0].spec.zones = vec!["a".to_owned(), "b".to_owned()];
        inventory.providers.push(provider("simulated-b"));
        inventory.datacenters[0].spec.machine_providers.push(ProviderReference::builder().name("simulated-b").build());
    };
    everything_it_refers_to_is_missing: |inventory| {
        web(inventory).spec.template = Some("huge".to_owned());
        web(inventory).spec.networks = ["prod", "storage"]
            .map(|name| NetworkInterface::builder().name(name).network_name(name).build())
            .to_vec();
        refer_to_secret(web(inventory));
        inventory.secrets.insert(ObjectName::new("default", "web-data"), None);
        fail(&mut inventory.providers[0], reason::PROVIDER_UNREACHABLE, "10.0.0.1:8006 does not answer: check that it runs");
        let message = "spec.template: MachineClass \"huge\" not found: use small, medium or large, or create it";
        report(web(inventory), condition("Ready", false, reason::TEMPLATE_NOT_FOUND, message, ago(9)));
    };
    its_template_is_missing_on_a_paused_provider: |inventory| {
        web(inventory).spec.template = Some("huge".to_owned());
        annotate(&mut inventory.providers[0].metadata, labels::PAUSED, "true");
    };
    its_template_and_its_datacenter_are_missing: |inventory| {
        by_datacenter(web(inventory));
        web(inventory).spec.template = Some("huge".to_owned());
        inventory.datacenters.clear();
        let message = "spec.datacenterRef: Datacenter \"default/west\" not found: create it";
        report(web(inventory), condition("Ready", false, reason::DATACENTER_NOT_FOUND, message, ago(3)));
    };
    its_template_is_missing_in_a_datacenter: |inventory| {
        by_datacenter(web(inventory));
        web(inventory).spec.template = Some("huge".to_owned());
    };
    the_own_cluster_is_not_offered: |inventory| {
        web(inventory).spec.provider_ref = None;
        inventory.providers.clear();
        report(web(inventory), condition("Ready", false, reason::NO_DEFAULT_PROVIDER, "no provider is set", ago(9)));
    };
    no_operator_reported_whether_the_own_cluster_is_offered: |inventory| {
        web(inventory).spec.provider_ref = None;
        inventory.providers.clear();
    };
    the_own_cluster_hosts_another_machine: |inventory| {
        web(inventory).spec.provider_ref = None;
        inventory.providers.clear();
        let mut other = machine("other");
        other.spec.provider_ref = None;
        claim(&mut other);
        annotate(&mut other.metadata, labels::PLACEMENT, "kubevirt");
        inventory.machines.push(other);
    };
    its_secret_is_not_text: |inventory| {
        claim(web(inventory));
        refer_to_secret(web(inventory));
        inventory.secrets.insert(ObjectName::new("default", "web-data"), Some(["userdata".to_owned()].into()));
        report(web(inventory), condition("Ready", false, reason::SECRET_KEY_NOT_FOUND, "not UTF-8 text", ago(2)));
    };
    its_deletion_waits_for_a_foreign_finalizer: |inventory| {
        web(inventory).metadata.deletion_timestamp = Some(Time(ago(7)));
        web(inventory).metadata.finalizers = Some(vec!["example.com/backup".to_owned()]);
    };
}

fn refer_to_secret(machine: &mut Machine) {
    let secret = SecretKeyReference::builder().name("web-data").key("userdata").build();
    machine.spec.cloud_init = Some(CloudInit::builder().secret_ref(secret).build());
}

fn event(object: &str, at: Timestamp, reason: &str, message: &str) -> RecordedEvent {
    let object = object.parse().unwrap();
    RecordedEvent { at, object, reason: reason.to_owned(), message: message.to_owned() }
}

#[test]
fn the_events_of_the_machine_and_of_its_cause_are_shown() {
    let mut inventory = healthy_inventory();
    claim(web(&mut inventory));
    let message = "10.0.0.1:8006 does not answer: check that it runs";
    fail(&mut inventory.providers[0], reason::PROVIDER_UNREACHABLE, message);
    let explanation = explain_web(&inventory);
    let needed: Vec<String> = explanation.events_needed().iter().map(ToString::to_string).collect();
    assert_eq!(needed, ["Machine default/web-1", "MachineProvider default/simulated-a"]);

    let explanation = explanation.with_events(vec![
        event("MachineProvider default/simulated-a", ago(3), "ProviderUnreachable", message),
        event("Machine default/web-1", ago(8), "Creating", "Waiting for the provider to create the machine"),
        event("Machine default/other", ago(1), "Creating", "Of no interest"),
    ]);
    let page = page(&explanation);
    insta::assert_snapshot!(page);
}

#[test]
fn only_the_secrets_that_matter_are_needed() {
    let mut inventory = healthy_inventory();
    let secret_ref = SecretKeyReference::builder().name("login").key("token").build();
    inventory.providers[0].spec.credentials =
        Some(ProviderCredentials::builder().secret_ref(secret_ref).build());
    refer_to_secret(web(&mut inventory));
    let needed = |inventory: &Inventory, id: &str| {
        let related = inventory.related(&id.parse().unwrap());
        let secrets = inventory.secrets_needed(&related);
        secrets.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(needed(&inventory, "Machine default/web-1"), ["default/login", "default/web-data"]);
    assert_eq!(needed(&inventory, "Datacenter default/west"), ["default/login"]);
    assert_eq!(needed(&inventory, "MachineProvider default/simulated-a"), ["default/login"]);

    by_datacenter(web(&mut inventory));
    assert_eq!(needed(&inventory, "Machine default/web-1"), ["default/login", "default/web-data"]);
    let ready = condition("Ready", true, reason::RUNNING, "The machine is running", ago(5));
    report(web(&mut inventory), ready);
    assert_eq!(needed(&inventory, "Machine default/web-1"), ["default/web-data"], "a ready machine");
}

#[test]
fn providers_and_datacenters_are_explained_too() {
    let mut inventory = healthy_inventory();
    inventory.providers[0].status = None;
    let explained =
        |id: &str, inventory: &Inventory| page(&explain(&id.parse().unwrap(), inventory).unwrap());
    let (provider, datacenter) = ("MachineProvider default/simulated-a", "Datacenter default/west");
    let mut pages = vec![explained(provider, &inventory), explained(datacenter, &inventory)];

    claim(web(&mut inventory));
    inventory.providers[0].metadata.deletion_timestamp = Some(Time(ago(7)));
    inventory.providers[0].metadata.finalizers = Some(vec![labels::PROVIDER_IN_USE.to_owned()]);
    pages.push(explained(provider, &inventory));
    // Nothing of the Machine is left there; a foreign finalizer holds the object.
    web(&mut inventory).metadata.deletion_timestamp = Some(Time(ago(7)));
    web(&mut inventory).metadata.finalizers = Some(vec!["example.com/backup".to_owned()]);
    pages.push(explained(provider, &inventory));

    inventory.providers.clear();
    inventory.leases = Some(Vec::new());
    pages.push(explained(datacenter, &inventory));
    insta::assert_snapshot!(pages.join("\n"));
}
