//! The life of a machine, reconcile by reconcile: what is observed, what is done, what is reported.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use vitistack_plan::{
    Refusal,
    machine::{
        Action, Desired, Elsewhere, MachinePlan, Observed, ObservedDisk, ObservedMachine, Power, Problem,
        References, Snapshot, StepResult, Update, plan, resolve,
    },
};
use vitistack_types::{
    ObjectName, ObjectReference, Outcome,
    conditions::{self, Statement, reason},
    labels,
    v1alpha1::{Disk, Machine, MachineStatus, PowerState, ReclaimPolicy},
};

use crate::story::{Story, new_machine, provider, running, small};

/// Plans a Machine that the provider answered for.
fn planned(machine: &Machine, desired: &Desired, observed: &Observed) -> MachinePlan {
    plan(&Snapshot {
        machine,
        desired: Ok(desired),
        observed: Ok(observed),
        capabilities: None,
        twin: None,
        placement: Some(&provider()),
        provider_deleting: false,
        provider_paused: false,
        last: &StepResult::default(),
        silent_since: None,
        last_step_at: None,
        now: "2026-01-01T12:00:00Z".parse().unwrap(),
    })
}

#[test]
fn create_and_delete() {
    let mut story = small();
    story.heading("a new Machine").reconcile();
    story.heading("it starts").reconcile();
    story.backing().power = Power::Running;
    story.heading("it runs").reconcile();
    story.heading("nothing happens: nothing is written").reconcile();
    story.machine.metadata.deletion_timestamp = Some(Time(story.now));
    story.heading("it is deleted").reconcile();
    story.heading("the machine is deleted, its disk is not").reconcile();
    story.heading("everything is deleted").reconcile();
    insta::assert_snapshot!(story.page);
}

#[test]
fn foreign_finalizers_are_reported_instead_of_running() {
    let mut story = running();
    story.machine.metadata.finalizers.as_mut().unwrap().push("example.com/backup".to_owned());
    story.machine.metadata.deletion_timestamp = Some(Time(story.now));
    story.heading("it is deleted, and it has a foreign finalizer").reconcile().reconcile().reconcile();
    story.heading("nothing is left at the provider").reconcile();
    story.heading("nothing happens: nothing is written").reconcile();
    story.observed = Err(Refusal::new(reason::PROVIDER_UNREACHABLE, "no answer"));
    story.heading("the provider does not answer, which no longer matters").reconcile();
    insta::assert_snapshot!(story.page);
}

#[test]
fn slow_progress_is_reported_step_by_step() {
    let mut story = small();
    story.heading("a new Machine").reconcile();
    story.provider().disks[0].is_ready = false;
    story.heading("its disk is not ready: nothing new to report").reconcile();
    story.now += SignedDuration::from_secs(60);
    story.heading("a minute later").reconcile().reconcile();
    story.machine.metadata.deletion_timestamp = Some(Time(story.now));
    story.provider().task = Some("task 7 of the provider to finish".to_owned());
    story.heading("it is deleted while the provider is busy").reconcile();
    story.now += SignedDuration::from_secs(60);
    story.heading("a minute later").reconcile().reconcile();
    insta::assert_snapshot!(story.page);
}

#[test]
fn a_deletion_is_reported_after_two_seconds() {
    let mut story = running();
    story.provider().task = Some("task 7 of the provider to finish".to_owned());
    story.machine.metadata.deletion_timestamp = Some(Time(story.now));
    story.edit(|_| ());
    story.heading("one second after the deletion").reconcile();
    story.heading("two seconds after it").reconcile();
    story.heading("nothing happens: nothing is written").reconcile();
    insta::assert_snapshot!(story.page);
}

#[test]
fn a_deletion_that_advances_is_not_reported() {
    let mut story = running();
    story.machine.metadata.deletion_timestamp = Some(Time(story.now));
    story.edit(|_| ());
    story.now += SignedDuration::from_secs(10);
    story.heading("the operator was busy for ten seconds: the deletion begins").reconcile();
    story.provider().task = Some("task 7 of the provider to finish".to_owned());
    story.heading("one second later, the provider is busy").reconcile();
    story.heading("two seconds later, that is reported").reconcile();
    story.provider().task = Some("task 8 of the provider to finish".to_owned());
    story.heading("a new detail is not worth a write").reconcile();
    story.now += SignedDuration::from_secs(60);
    story.heading("unless the deletion takes long").reconcile();
    insta::assert_snapshot!(story.page);
}

#[test]
fn a_foreign_condition_is_not_applied() {
    let mut story = running();
    let status = story.machine.status.get_or_insert_with(MachineStatus::default);
    let foreign =
        Statement { type_: "example.com/BackedUp", status: Some(true), reason: "Done", message: "Backed up" };
    conditions::set(&mut status.conditions, &foreign, Some(1), story.now);
    let before = story.machine.status.clone();
    story.reconcile();
    assert_eq!(story.machine.status, before, "a foreign condition alone is not a change");

    story.edit(|machine| machine.spec.power_state = Some(PowerState::Stopped)).reconcile();
    let conditions = story.machine.status.unwrap().conditions;
    assert!(conditions::find(&conditions, conditions::READY).is_some());
    assert_eq!(conditions::find(&conditions, "example.com/BackedUp"), None);
}

#[test]
fn a_plan_serializes_as_a_whole() {
    let mut story = small();
    story.machine.spec.power_state = Some(PowerState::Stopped);
    let desired = resolve(&story.machine, &References::default()).unwrap();
    let observed = Observed { machine: Some(new_machine()), ..Observed::default() };
    let planned = planned(&story.machine, &desired, &observed);
    insta::assert_snapshot!(serde_saphyr::to_string(&planned).unwrap());
}

#[test]
fn every_spec_change_is_applied_or_reported() {
    let mut story = running();
    story
        .heading("more memory is requested")
        .edit(|machine| machine.spec.template = Some("large".to_owned()))
        .reconcile();
    story.backing().restart_needed = true;
    story.heading("the provider needs a restart for it").reconcile();
    story.heading("a restart is requested").annotate(labels::RESTART_AT, "2026-01-01T13:00:00Z").reconcile();
    story.backing().restart_needed = false;
    story.heading("it was restarted once").reconcile().reconcile();
    story.backing().unchangeable = vec!["networks".to_owned()];
    story.heading("something can never be changed").reconcile();
    insta::assert_snapshot!(story.page);
}

#[test]
fn power_and_pause() {
    let mut story = running();
    story
        .heading("powerState is Stopped")
        .edit(|machine| machine.spec.power_state = Some(PowerState::Stopped))
        .reconcile();
    story.heading("it is stopped").reconcile();
    story.heading("paused, then started: nothing is done").annotate(labels::PAUSED, "true");
    story.edit(|machine| machine.spec.power_state = Some(PowerState::Running)).reconcile().reconcile();
    story.annotate(labels::PAUSED, "false").heading("no longer paused").reconcile();
    story.backing().power = Power::Starting;
    story.heading("it takes a while to start: it is updated, not recreated").reconcile().reconcile();
    story.backing().power = Power::Running;
    story.heading("it runs").reconcile();
    insta::assert_snapshot!(story.page);
}

#[test]
fn a_removed_disk_is_deleted_or_retained() {
    let disk = |name: &str, policy| {
        Disk::builder().name(name).size("1Gi".parse().unwrap()).reclaim_policy(policy).build()
    };
    let disks = [disk("scratch", ReclaimPolicy::Delete), disk("data", ReclaimPolicy::Retain)];
    let mut story =
        Story::new(Machine::builder().template("small").disks(disks).build("db-1", "default").unwrap());
    story.reconcile();
    story.backing().power = Power::Running;
    story.reconcile().page.clear();
    story
        .heading("both disks are removed from the spec")
        .edit(|machine| machine.spec.disks.clear())
        .reconcile();
    story.heading("they are detached: one is deleted, one is retained").reconcile();
    story.machine.metadata.deletion_timestamp = Some(Time(story.now));
    story.heading("the Machine is deleted: the retained one stays").reconcile().reconcile().reconcile();
    insta::assert_snapshot!(story.page);
}

#[test]
fn an_adoption_is_held_until_the_spec_lists_every_disk_of_the_machine() {
    let data = Disk::builder().name("data").size("100Gi".parse().unwrap()).build();
    let disks = [data.clone()];
    let mut story =
        Story::new(Machine::builder().template("small").disks(disks).build("db-1", "default").unwrap());
    story.reconcile();
    story.backing().power = Power::Running;
    story.reconcile().page.clear();

    story.edit(|machine| {
        machine.metadata.uid = Some("uid-2".to_owned());
        machine.metadata.finalizers = None;
        machine.spec.disks.clear();
        machine.status = None;
    });
    story.annotate(labels::ADOPTED, "uid-2");
    story.heading("it is adopted by a Machine that does not list the data disk").reconcile();
    story.edit(|machine| machine.spec.disks.push(data));
    story.heading("the disk is added to the spec").reconcile().reconcile();
    story.edit(|machine| machine.spec.disks.clear());
    story.heading("after the adoption it is removed on purpose").reconcile().reconcile();
    insta::assert_snapshot!(story.page);
}

#[test]
fn problems_are_reported_with_the_fix_until_they_are_gone() {
    let mut story = small();
    story.edit(|machine| machine.spec.template = Some("huge".to_owned()));
    story.heading("the template does not exist").reconcile().reconcile();
    story.heading("the spec is fixed").edit(|machine| machine.spec.template = Some("small".to_owned()));
    let missing = "spec.disks[root].storageClass: StorageClass \"fast\" not found: create it, or use another";
    story.provider().problems =
        vec![Problem::Storage(Refusal::new(reason::STORAGE_CLASS_NOT_FOUND, missing))];
    story.heading("a storage class is missing").reconcile();
    story.provider().problems.clear();
    story.provider().foreign = Some("VirtualMachine default/web-1".to_owned());
    story.heading("the name is taken").reconcile();
    story.provider().foreign = None;
    story.heading("everything is as specified").reconcile();
    story.backing().power = Power::Failing("the guest crashes: check its console".to_owned());
    story.heading("the guest crashes").reconcile();
    let no_capacity = "no node has 8 cores free: add a node, or request less";
    story.provider().problems =
        vec![Problem::Machine(Refusal::new(reason::INSUFFICIENT_RESOURCES, no_capacity))];
    story.heading("it cannot be scheduled, and the provider knows why").reconcile();
    story.provider().problems.clear();
    story.backing().power = Power::Running;
    story.heading("it runs again").reconcile();

    insta::assert_snapshot!(story.page);
}

#[test]
fn a_failed_task_is_reported_while_it_is_retried() {
    let mut story = small();
    story.heading("a new Machine").reconcile();
    let created = story.observed.clone();
    let failed = "the provider failed to create machine \"web-1\"";
    story.observed = Ok(Observed { failure: Some(failed.to_owned()), ..Observed::default() });
    story.heading("its creation failed and left nothing: it is retried").reconcile();
    story.provider().task = Some("the provider to create machine \"web-1\"".to_owned());
    story.heading("it is being created: nothing new to report").reconcile();
    story.observed = Ok(Observed { failure: Some(failed.to_owned()), ..Observed::default() });
    story.heading("that failed too").reconcile();
    story.observed = created;
    story.backing().power = Power::Running;
    story.heading("it runs, and the failure is no longer reported").reconcile();
    story.provider().failure = Some("the provider failed to stop machine \"web-1\"".to_owned());
    story.heading("a stop fails, and it is to run after all: nothing to do").reconcile();
    story.edit(|machine| machine.spec.power_state = Some(PowerState::Stopped));
    story.heading("powerState is Stopped").reconcile();
    story.heading("it is stopped").reconcile();
    story.machine.metadata.deletion_timestamp = Some(Time(story.now));
    story.provider().failure = Some("the provider failed to delete machine \"web-1\"".to_owned());
    story.heading("its deletion fails").reconcile();
    story.provider().failure = Some("the provider failed to delete volume \"root\"".to_owned());
    story.now += SignedDuration::from_secs(60);
    story.heading("the machine is deleted, its disk is not").reconcile();
    story.heading("with nothing left, the failure no longer matters").reconcile();

    insta::assert_snapshot!(story.page);
}

#[test]
fn a_failed_attempt_differs_from_plain_waiting() {
    let machine = small().machine;
    let desired = resolve(&machine, &References::default()).unwrap();
    let mut observed = Observed::default();
    let plan = |observed: &Observed| {
        let planned = planned(&machine, &desired, observed);
        (planned.steps.len(), planned.requeue)
    };
    assert!(matches!(plan(&observed), (2, Outcome::Wait { .. })));

    observed.failure = Some("no luck".to_owned());
    assert!(matches!(plan(&observed), (2, Outcome::Retry { reason: reason::VM_FAILED, .. })));

    observed.foreign = Some("machine 7".to_owned());
    assert!(matches!(plan(&observed), (0, Outcome::Blocked { .. })), "a blocker comes first");
}

#[test]
fn an_unreachable_provider_loses_nothing() {
    let mut story = running();
    let before = story.observed.clone();
    story.observed =
        Err(Refusal::new("ProviderUnreachable", "default/simulated-a does not answer: check that it runs"));
    story.heading("the provider does not answer").reconcile();
    story.now += SignedDuration::from_secs(10);
    story.heading("ten seconds later").reconcile().reconcile();
    story.machine.metadata.deletion_timestamp = Some(Time(story.now));
    story.heading("the Machine is deleted meanwhile: it stays until absence is observed").reconcile();
    story.observed = before;
    story.heading("the provider answers again").reconcile().reconcile().reconcile();
    insta::assert_snapshot!(story.page);
}

#[test]
fn a_paused_provider_accepts_no_machines_and_keeps_those_it_has() {
    let mut story = small();
    story.provider_paused = true;
    story.heading("the provider is paused").reconcile();
    story.provider_paused = false;
    story.heading("it is resumed").reconcile().reconcile();
    story.provider_paused = true;
    story.heading("it is paused again: the machine is maintained").reconcile();
    insta::assert_snapshot!(story.page);
}

#[test]
fn a_restored_machine_is_held_until_it_is_adopted() {
    let mut story = running();
    story.machine.metadata.uid = Some("uid-2".to_owned());
    story.twin = Some(ObjectName::new("default", "web-1-old"));
    story.heading("restored with another UID while the old Machine exists").reconcile();
    story.twin = None;
    story.heading("the old Machine is deleted").reconcile();
    story.heading("adopted").annotate(labels::ADOPTED, "uid-2").reconcile();
    let annotations = story.machine.metadata.annotations.as_mut().unwrap();
    let carried = annotations.remove(labels::IDENTITY).unwrap();
    story.heading("an apply of its first manifest removes the identity: it is not recreated").reconcile();
    story.heading("the status still knows the identity").reconcile();
    story.heading("it is set again").annotate(labels::IDENTITY, &carried).reconcile();
    insta::assert_snapshot!(story.page);
}

#[test]
fn a_machine_is_created_on_a_provider_that_came_back() {
    let mut story = small();
    let note = "default/simulated-a@2026-01-01T11:59:00Z";
    story
        .heading("its provider was deleted before, and that is still recorded")
        .annotate(labels::PASSED_OVER, note);
    story.reconcile();
    insta::assert_snapshot!(story.page);
}

#[test]
fn leftovers_of_a_failed_create_are_deleted_before_the_machine_is_returned() {
    let full = || Problem::Machine(Refusal::new(reason::INSUFFICIENT_RESOURCES, "no capacity"));
    let disk = |name: &str, is_blank: bool| ObservedDisk {
        name: name.to_owned(),
        size: None,
        is_ready: false,
        is_attached: false,
        is_blank,
        reclaim_policy: ReclaimPolicy::Retain,
    };
    let mut story = small();
    story.machine.spec.datacenter_ref = Some(ObjectReference::builder().name("west").build());
    story.machine.metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
    story.annotate(labels::IDENTITY, "uid-1").annotate(labels::PLACEMENT, "default/simulated-a");
    story.provider().problems = vec![full()];
    story.provider().disks = vec![disk("root", true), disk("data", false)];
    story.provider().leftovers = vec!["Secret web-1-cloudinit".to_owned()];
    story.heading("one disk may hold data: everything stays").reconcile();
    story.provider().disks.pop();
    story.heading("no machine wrote to it: it is deleted, and that is recorded first").reconcile();
    story.provider().disks = vec![disk("root", true)];
    story.provider().problems.clear();
    story
        .heading("one is deleted slowly, and the next process does not know that there was no capacity")
        .reconcile();
    story.heading("with nothing left it is returned to its Datacenter").reconcile();

    insta::assert_snapshot!(story.page);
}

#[test]
fn a_released_machine_is_not_given_to_another_namespace() {
    let mut story = small();
    story.annotate(labels::IDENTITY, "uid-0").annotate(labels::ADOPTED, "uid-1");
    let thing = "machine \"web-1\"".to_owned();
    story.provider().elsewhere = Some(Elsewhere { thing: thing.clone(), namespace: Some("shop".to_owned()) });
    story.heading("the backing machine belongs to namespace shop").reconcile();
    story.provider().elsewhere = Some(Elsewhere { thing, namespace: None });
    story.heading("its namespace is not known").reconcile();
    story.machine.metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
    story.machine.metadata.deletion_timestamp = Some(Time(story.now));
    story.heading("the Machine is deleted, and nothing else").reconcile();
    story.provider().elsewhere = None;
    story.machine.metadata.finalizers = None;
    story.machine.metadata.deletion_timestamp = None;
    story.heading("without it the machine is created").reconcile();
    insta::assert_snapshot!(story.page);
}

#[test]
fn a_failing_machine_is_restarted_once_per_request() {
    let mut story = small();
    story.machine.metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
    story.annotate(labels::IDENTITY, "uid-1").annotate(labels::PLACEMENT, "default/simulated-a");
    story.annotate(labels::RESTART_AT, "now");
    let desired = resolve(&story.machine, &References::default()).unwrap();
    let actions = |power: Power, restarted_for: Option<&str>| {
        let restarted_for = restarted_for.map(str::to_owned);
        let backing = ObservedMachine { power, restarted_for, ..new_machine() };
        let observed = Observed { machine: Some(backing), ..Observed::default() };
        let planned = planned(&story.machine, &desired, &observed);
        planned.steps.into_iter().map(|step| step.action).collect::<Vec<_>>()
    };
    let failing = || Power::Failing("no node can host it".to_owned());
    let restart = Action::Update(Update::Restart { request: "now".to_owned() });
    assert_eq!(actions(failing(), None), std::slice::from_ref(&restart));
    assert_eq!(actions(failing(), Some("earlier")), [restart]);
    assert_eq!(actions(failing(), Some("now")), []);
    assert_eq!(actions(Power::Starting, None), []);
}
