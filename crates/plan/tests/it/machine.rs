//! The life of a machine, round by round: what is seen, what is done, what is told.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use vitistack_plan::{
    Refusal,
    datacenter::pass_over,
    machine::{
        Action, Elsewhere, Observed, ObservedDisk, ObservedMachine, Part, Power, Problem, References,
        Snapshot, Update, Verdict, decide, resolve, status,
    },
};
use vitistack_types::{
    ObjectReference,
    conditions::reason,
    labels,
    v1alpha1::{Disk, Machine, PowerState, ReclaimPolicy},
};

/// A Machine, a provider that does what it is told, and the page that both are written on.
struct Story {
    machine: Machine,
    references: References,
    observed: Result<Observed, Refusal>,
    twin: Option<String>,
    now: Timestamp,
    page: String,
}

impl Story {
    fn new(machine: Machine) -> Self {
        let mut machine = machine;
        machine.metadata.uid = Some("uid-1".to_owned());
        machine.metadata.generation = Some(1);
        machine.metadata.resource_version = Some("100".to_owned());
        Self {
            machine,
            references: References::default(),
            observed: Ok(Observed::default()),
            twin: None,
            now: "2026-01-01T12:00:00Z".parse().unwrap(),
            page: String::new(),
        }
    }

    fn say(&mut self, line: &str) -> &mut Self {
        writeln!(self.page, "\n# {line}").unwrap();
        self
    }

    fn annotate(&mut self, name: &str, value: &str) -> &mut Self {
        self.machine.metadata.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
        self
    }

    fn edit(&mut self, change: impl FnOnce(&mut Machine)) -> &mut Self {
        change(&mut self.machine);
        *self.machine.metadata.generation.as_mut().unwrap() += 1;
        self.machine.metadata.resource_version = Some("200".to_owned());
        if let Ok(Observed { machine: Some(real), .. }) = &mut self.observed {
            real.is_current = false;
        }
        self
    }

    fn real(&mut self) -> &mut ObservedMachine {
        self.observed.as_mut().unwrap().machine.as_mut().unwrap()
    }

    fn world(&mut self) -> &mut Observed {
        self.observed.as_mut().unwrap()
    }

    /// One reconcile: decides, writes it down, and lets the provider do it.
    fn round(&mut self) -> &mut Self {
        self.now += SignedDuration::from_secs(1);
        let desired = resolve(&self.machine, &self.references);
        let snapshot = Snapshot {
            machine: &self.machine,
            desired: desired.as_ref(),
            observed: self.observed.as_ref(),
            twin: self.twin.as_deref(),
            placement: "default/simulated-a",
            no_room: None,
            leaving: None,
        };
        let decision = decide(&snapshot);
        let told = status(&snapshot, &decision.verdict, &[], self.now);
        for step in &decision.steps {
            writeln!(self.page, "  {step}").unwrap();
        }
        let writes = if self.machine.status.as_ref() == Some(&told) { "no write" } else { "status written" };
        let ready = told.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
        writeln!(
            self.page,
            "  = {:?}, Ready={} {}: {} ({writes})",
            told.phase.unwrap(),
            ready.status,
            ready.reason,
            ready.message
        )
        .unwrap();
        for condition in told
            .conditions
            .iter()
            .filter(|condition| condition.type_ != "Ready" && condition.status != "True")
        {
            writeln!(
                self.page,
                "    {}={} {}: {}",
                condition.type_, condition.status, condition.reason, condition.message
            )
            .unwrap();
        }
        self.machine.status = Some(told);
        let disks = desired.map(|desired| desired.disks).unwrap_or_default();
        for step in decision.steps {
            self.carry_out(&step.action, &disks);
        }
        self
    }

    fn carry_out(&mut self, action: &Action, disks: &[vitistack_plan::machine::DesiredDisk]) {
        match action {
            Action::Claim => {
                self.machine.metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
                let uid = self.machine.metadata.uid.clone().unwrap();
                self.annotate(labels::IDENTITY, &uid).annotate(labels::PLACEMENT, "default/simulated-a");
            }
            Action::Create => {
                let observed = self.world();
                observed.machine = Some(new_machine());
                observed.disks = disks
                    .iter()
                    .map(|disk| ObservedDisk {
                        name: disk.name.clone(),
                        size: Some(disk.size.clone()),
                        is_ready: true,
                        is_attached: true,
                        is_blank: false,
                        reclaim_policy: disk.reclaim_policy,
                    })
                    .collect();
            }
            Action::Update(Update::Specification) => {
                let wanted: Vec<String> = disks.iter().map(|disk| disk.name.clone()).collect();
                for disk in &mut self.world().disks {
                    disk.is_attached = wanted.contains(&disk.name);
                }
                self.real().is_current = true;
            }
            Action::Update(Update::Start) => self.real().power = Power::Running,
            Action::Update(Update::Stop) => self.real().power = Power::Stopped,
            Action::Update(Update::Restart { request }) => self.real().restarted_for = Some(request.clone()),
            Action::Delete(Part::Machine) => self.world().machine = None,
            Action::Delete(Part::Disks(names)) => {
                self.world().disks.retain(|disk| !names.contains(&disk.name));
            }
            Action::Delete(Part::BlankDisks(names)) => {
                self.world().disks.retain(|disk| !(disk.is_blank && names.contains(&disk.name)));
            }
            Action::Delete(Part::Leftovers) => self.world().leftovers.clear(),
            Action::PassOver => {
                let note = pass_over(&self.machine, "default/simulated-a", None, self.now);
                self.annotate(labels::PASSED_OVER, &note);
            }
            Action::Release => {
                let finalizers = self.machine.metadata.finalizers.get_or_insert_default();
                finalizers.retain(|finalizer| finalizer != labels::MACHINE_CLEANUP);
            }
            Action::HandBack => {
                self.machine.metadata.finalizers = None;
                if let Some(annotations) = &mut self.machine.metadata.annotations {
                    annotations.remove(labels::PLACEMENT);
                }
            }
        }
    }
}

fn small() -> Story {
    Story::new(Machine::builder().template("small").build("web-1", "default").unwrap())
}

/// A machine that runs.
fn running() -> Story {
    let mut story = small();
    story.round();
    let real = story.real();
    real.power = Power::Running;
    real.addresses = vec!["10.0.0.7".to_owned()];
    story.round();
    story.page.clear();
    story
}

#[test]
fn create_and_delete() {
    let mut story = small();
    story.say("a new Machine").round();
    story.say("it starts").round();
    story.real().power = Power::Running;
    story.say("it runs").round();
    story.say("nothing happens: nothing is written").round();
    story.machine.metadata.deletion_timestamp = Some(Time(story.now));
    story.say("it is deleted").round();
    story.say("the machine is gone, its disk is not").round();
    story.say("everything is gone").round();
    insta::assert_snapshot!(story.page);
}

#[test]
fn what_others_hold_says_so_and_not_that_it_runs() {
    let mut story = running();
    story.machine.metadata.finalizers.as_mut().unwrap().push("example.com/backup".to_owned());
    story.machine.metadata.deletion_timestamp = Some(Time(story.now));
    story.say("it is deleted, and somebody else has a finalizer on it").round().round().round();
    story.say("everything of ours is gone").round();
    story.say("nothing happens: nothing is written").round();
    story.observed = Err(Refusal::new(reason::PROVIDER_UNREACHABLE, "the provider is away"));
    story.say("the provider is away, which no longer matters").round();
    insta::assert_snapshot!(story.page);
}

#[test]
fn what_takes_long_is_told_step_by_step() {
    let mut story = small();
    story.say("a new Machine").round();
    story.world().disks[0].is_ready = false;
    story.say("its disk is not there yet: nothing new to tell").round();
    story.now += SignedDuration::from_secs(60);
    story.say("a minute later").round().round();
    story.machine.metadata.deletion_timestamp = Some(Time(story.now));
    story.world().task = Some("task 7 of the provider ends".to_owned());
    story.say("it is deleted while the provider is busy").round();
    story.now += SignedDuration::from_secs(60);
    story.say("a minute later").round().round();
    insta::assert_snapshot!(story.page);
}

#[test]
fn every_change_of_the_spec_is_acted_on_or_told() {
    let mut story = running();
    story
        .say("more memory is asked for")
        .edit(|machine| machine.spec.template = Some("large".to_owned()))
        .round();
    story.real().restart_needed = true;
    story.say("the provider needs a restart for it").round();
    story.say("a restart is asked for").annotate(labels::RESTART_AT, "2026-01-01T13:00:00Z").round();
    story.real().restart_needed = false;
    story.say("it was restarted once").round().round();
    story.real().unchangeable = vec!["networks".to_owned()];
    story.say("something can never be changed").round();
    insta::assert_snapshot!(story.page);
}

#[test]
fn power_and_pause() {
    let mut story = running();
    story.say("it shall be off").edit(|machine| machine.spec.power_state = Some(PowerState::Stopped)).round();
    story.say("it is off").round();
    story.say("paused, then switched on: nothing is done").annotate(labels::PAUSED, "true");
    story.edit(|machine| machine.spec.power_state = Some(PowerState::Running)).round().round();
    story.annotate(labels::PAUSED, "false").say("no longer paused").round();
    story.real().power = Power::Starting;
    story.say("it takes a while to start: it is changed, not made anew").round().round();
    story.real().power = Power::Running;
    story.say("it runs").round();
    insta::assert_snapshot!(story.page);
}

#[test]
fn a_disk_is_removed_or_kept() {
    let disk = |name: &str, policy| {
        Disk::builder().name(name).size("1Gi".parse().unwrap()).reclaim_policy(policy).build()
    };
    let disks = [disk("scratch", ReclaimPolicy::Delete), disk("data", ReclaimPolicy::Retain)];
    let mut story =
        Story::new(Machine::builder().template("small").disks(disks).build("db-1", "default").unwrap());
    story.round();
    story.real().power = Power::Running;
    story.round().page.clear();
    story.say("both disks leave the spec").edit(|machine| machine.spec.disks.clear()).round();
    story.say("they are detached: one is deleted, one is kept").round();
    story.machine.metadata.deletion_timestamp = Some(Time(story.now));
    story.say("the Machine is deleted: the kept one stays").round().round().round();
    insta::assert_snapshot!(story.page);
}

#[test]
fn what_is_wrong_is_told_with_the_fix_and_left_when_it_is_gone() {
    let mut story = small();
    story.edit(|machine| machine.spec.template = Some("huge".to_owned()));
    story.say("the template names nothing").round().round();
    story.say("the spec is mended").edit(|machine| machine.spec.template = Some("small".to_owned()));
    let missing = "disks[root].storageClass \"fast\" names nothing: create the StorageClass, or name another";
    story.world().problems = vec![Problem::Storage(Refusal::new(reason::STORAGE_CLASS_NOT_FOUND, missing))];
    story.say("a storage class is missing").round();
    story.world().problems.clear();
    story.world().foreign = Some("VirtualMachine default/web-1".to_owned());
    story.say("something else has the name").round();
    story.world().foreign = None;
    story.say("all is well").round();
    story.real().power = Power::Failing("the guest crashes: look at its console".to_owned());
    story.say("the guest crashes").round();
    let no_room = "no node has 8 cores free: add a node, or ask for less";
    story.world().problems = vec![Problem::Machine(Refusal::new(reason::INSUFFICIENT_RESOURCES, no_room))];
    story.say("it cannot be scheduled, and the provider knows why").round();
    story.world().problems.clear();
    story.real().power = Power::Running;
    story.say("it runs again").round();
    insta::assert_snapshot!(story.page);
}

#[test]
fn a_task_that_failed_is_told_while_it_is_tried_again() {
    let mut story = small();
    story.say("a new Machine").round();
    let created = story.observed.clone();
    let failed = "the provider failed to create machine \"web-1\"";
    story.observed = Ok(Observed { failure: Some(failed.to_owned()), ..Observed::default() });
    story.say("its creation failed and left nothing: it is tried again").round();
    story.world().task = Some("creating machine \"web-1\"".to_owned());
    story.say("it is being made: nothing new to tell").round();
    story.observed = Ok(Observed { failure: Some(failed.to_owned()), ..Observed::default() });
    story.say("that failed too").round();
    story.observed = created;
    story.real().power = Power::Running;
    story.say("now it runs, and the failure is forgotten").round();
    story.world().failure = Some("the provider failed to stop machine \"web-1\"".to_owned());
    story.say("a stop fails, and it shall run after all: it is as it shall be").round();
    story.edit(|machine| machine.spec.power_state = Some(PowerState::Stopped));
    story.say("it shall be off").round();
    story.say("it is off").round();
    story.machine.metadata.deletion_timestamp = Some(Time(story.now));
    story.world().failure = Some("the provider failed to delete machine \"web-1\"".to_owned());
    story.say("its deletion fails").round();
    story.world().failure = Some("the provider failed to delete volume \"root\"".to_owned());
    story.now += SignedDuration::from_secs(60);
    story.say("the machine is gone, its disk is not").round();
    story.say("with nothing left, nothing holds it up").round();
    insta::assert_snapshot!(story.page);
}

#[test]
fn a_caller_can_tell_an_attempt_from_plain_waiting() {
    let machine = small().machine;
    let desired = resolve(&machine, &References::default()).unwrap();
    let mut observed = Observed::default();
    let verdict = |observed: &Observed| {
        let snapshot = Snapshot {
            machine: &machine,
            desired: Ok(&desired),
            observed: Ok(observed),
            twin: None,
            placement: "default/simulated-a",
            no_room: None,
            leaving: None,
        };
        let decision = decide(&snapshot);
        (decision.steps.len(), decision.verdict)
    };
    assert!(matches!(verdict(&observed), (2, Verdict::Waiting(_))));
    observed.failure = Some("no luck".to_owned());
    assert!(
        matches!(verdict(&observed), (2, Verdict::Failing(refusal)) if refusal.reason == reason::VM_FAILED)
    );
    observed.foreign = Some("machine 7".to_owned());
    assert!(matches!(verdict(&observed), (0, Verdict::Blocked(_))), "what stands in the way comes first");
}

#[test]
fn a_provider_that_is_away_loses_nothing() {
    let mut story = running();
    let before = story.observed.clone();
    story.observed =
        Err(Refusal::new("ProviderUnreachable", "default/simulated-a does not answer: waiting for it"));
    story.say("the provider is away").round().round();
    story.machine.metadata.deletion_timestamp = Some(Time(story.now));
    story.say("the Machine is deleted meanwhile: it stays until absence is seen").round();
    story.observed = before;
    story.say("the provider is back").round().round().round();
    insta::assert_snapshot!(story.page);
}

#[test]
fn a_restored_machine_is_held_until_it_is_adopted() {
    let mut story = running();
    story.machine.metadata.uid = Some("uid-2".to_owned());
    story.twin = Some("default/web-1-old".to_owned());
    story.say("restored with another UID while the old Machine is there").round();
    story.twin = None;
    story.say("the old Machine is gone").round();
    story.say("adopted").annotate(labels::ADOPTED, "uid-2").round();
    let annotations = story.machine.metadata.annotations.as_mut().unwrap();
    let carried = annotations.remove(labels::IDENTITY).unwrap();
    story.say("an apply of its first manifest takes the identity away: it is not made anew").round();
    story.say("it is set again").annotate(labels::IDENTITY, &carried).round();
    insta::assert_snapshot!(story.page);
}

#[test]
fn a_machine_whose_provider_came_back_is_made_there() {
    let mut story = small();
    let note = "default/simulated-a@2026-01-01T11:59:00Z";
    story
        .say("its provider was deleted before, and a note of that is left")
        .annotate(labels::PASSED_OVER, note);
    story.round();
    insta::assert_snapshot!(story.page);
}

#[test]
fn what_a_create_without_room_left_goes_before_the_machine_is_handed_back() {
    let full = || Problem::Machine(Refusal::new(reason::INSUFFICIENT_RESOURCES, "no room for it"));
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
    story.world().problems = vec![full()];
    story.world().disks = vec![disk("root", true), disk("data", false)];
    story.world().leftovers = vec!["Secret web-1-cloudinit".to_owned()];
    story.say("one disk may hold something: all stays").round();
    story.world().disks.pop();
    story.say("nothing is there that anybody wrote: it goes, and that is noted first").round();
    story.world().disks = vec![disk("root", true)];
    story.world().problems.clear();
    story.say("one goes slowly, and whoever looks next does not know that there was no room").round();
    story.say("with nothing left it is handed back").round();
    insta::assert_snapshot!(story.page);
}

#[test]
fn a_released_machine_is_not_given_to_another_namespace() {
    let mut story = small();
    story.annotate(labels::IDENTITY, "uid-0").annotate(labels::ADOPTED, "uid-1");
    let thing = "machine \"web-1\"".to_owned();
    story.world().elsewhere = Some(Elsewhere { thing: thing.clone(), namespace: Some("shop".to_owned()) });
    story.say("the real machine was made for namespace shop").round();
    story.world().elsewhere = Some(Elsewhere { thing, namespace: None });
    story.say("nobody knows for whom it was made").round();
    story.machine.metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
    story.machine.metadata.deletion_timestamp = Some(Time(story.now));
    story.say("the Machine goes, and takes nothing with it").round();
    story.world().elsewhere = None;
    story.machine.metadata.finalizers = None;
    story.machine.metadata.deletion_timestamp = None;
    story.say("without anything of the kind it is made").round();
    insta::assert_snapshot!(story.page);
}

fn new_machine() -> ObservedMachine {
    ObservedMachine {
        id: "vm-1".to_owned(),
        instance: None,
        power: Power::Starting,
        cpu: None,
        memory: None,
        is_current: true,
        unchangeable: Vec::new(),
        restart_needed: false,
        started: None,
        restarted_for: None,
        addresses: Vec::new(),
        node: None,
        zone: None,
    }
}

#[test]
fn a_machine_that_fails_is_restarted_once_when_somebody_asks() {
    let mut story = small();
    story.machine.metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
    story.annotate(labels::IDENTITY, "uid-1").annotate(labels::PLACEMENT, "default/simulated-a");
    story.annotate(labels::RESTART_AT, "now");
    let desired = resolve(&story.machine, &References::default()).unwrap();
    let actions = |power: Power, restarted_for: Option<&str>| {
        let restarted_for = restarted_for.map(str::to_owned);
        let real = ObservedMachine { power, restarted_for, ..new_machine() };
        let observed = Observed { machine: Some(real), ..Observed::default() };
        let snapshot = Snapshot {
            machine: &story.machine,
            desired: Ok(&desired),
            observed: Ok(&observed),
            twin: None,
            placement: "default/simulated-a",
            no_room: None,
            leaving: None,
        };
        decide(&snapshot).steps.into_iter().map(|step| step.action).collect::<Vec<_>>()
    };
    let failing = || Power::Failing("no node can take it".to_owned());
    let restart = Action::Update(Update::Restart { request: "now".to_owned() });
    assert_eq!(actions(failing(), None), std::slice::from_ref(&restart));
    assert_eq!(actions(failing(), Some("earlier")), [restart]);
    assert_eq!(actions(failing(), Some("now")), []);
    assert_eq!(actions(Power::Starting, None), []);
}
