//! A datacenter, round by round: who is let in, where they go, what is told.

use std::{collections::BTreeMap, fmt::Write as _};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use vitistack_plan::{
    datacenter::{
        Candidate, Member, Snapshot, Verdict, annotations, candidate, datacenter_status, decide,
        missing_datacenter, pass_over, paused_machine, refused_machine, usage_of,
    },
    machine::{Location, Places, locate},
};
use vitistack_types::{
    ObjectReference, conditions, labels,
    v1alpha1::{
        Datacenter, GivenResources, Machine, MachineProvider, MachineProviderStatus, MachineStatus, Memory,
        ProviderCapacity, ProviderReference, ProviderType, ResourceQuotas, Resources,
    },
};

/// The name of a Machine, its annotations and its status, as far as they change.
type Written = (String, BTreeMap<&'static str, Option<String>>, Option<MachineStatus>);

/// A Datacenter with its providers and Machines, and the page that all is written on.
struct Story {
    datacenter: Datacenter,
    providers: BTreeMap<String, MachineProvider>,
    machines: BTreeMap<String, Machine>,
    now: Timestamp,
    page: String,
}

impl Story {
    /// A Datacenter with these providers, by their priority.
    fn new(providers: &[&str]) -> Self {
        let references: Vec<ProviderReference> = (1..)
            .zip(providers)
            .map(|(priority, name)| ProviderReference::builder().name(*name).priority(priority).build())
            .collect();
        let datacenter = Datacenter::builder()
            .region("west")
            .machine_providers(references)
            .build("west", "infra")
            .unwrap();
        let mut story = Self {
            datacenter,
            providers: BTreeMap::new(),
            machines: BTreeMap::new(),
            now: "2026-01-01T12:00:00Z".parse().unwrap(),
            page: String::new(),
        };
        story.datacenter.metadata.generation = Some(1);
        for name in providers {
            let provider = MachineProvider::builder().provider_type(ProviderType::Simulated);
            story.providers.insert((*name).to_owned(), provider.build(name, "infra").unwrap());
            story.answers(name, true);
        }
        story
    }

    fn say(&mut self, line: &str) -> &mut Self {
        writeln!(self.page, "\n# {line}").unwrap();
        self
    }

    fn quotas(&mut self, quotas: ResourceQuotas) -> &mut Self {
        self.datacenter.spec.resource_quotas = Some(quotas);
        self
    }

    fn answers(&mut self, provider: &str, is_ready: bool) -> &mut Self {
        let ready = Condition {
            type_: conditions::READY.to_owned(),
            status: if is_ready { "True" } else { "False" }.to_owned(),
            reason: "ProviderUnreachable".to_owned(),
            message: "it does not answer".to_owned(),
            observed_generation: Some(1),
            last_transition_time: Time(self.now),
        };
        let status = MachineProviderStatus { conditions: vec![ready], ..MachineProviderStatus::default() };
        self.providers.get_mut(provider).unwrap().status = Some(status);
        self
    }

    fn provider(&mut self, name: &str) -> &mut MachineProvider {
        self.providers.get_mut(name).unwrap()
    }

    /// A small Machine in the Datacenter's namespace.
    fn machine(&mut self, name: &str) -> &mut Machine {
        let now = self.now;
        self.machines.entry(name.to_owned()).or_insert_with(|| {
            let datacenter = ObjectReference::builder().name("west").namespace("infra").build();
            let machine = Machine::builder().template("small").datacenter_ref(datacenter);
            let mut machine = machine.build(name, "infra").unwrap();
            machine.metadata.uid = Some(format!("uid-{name}"));
            machine.metadata.generation = Some(1);
            machine.metadata.creation_timestamp = Some(Time(now));
            machine
        })
    }

    fn annotate(&mut self, machine: &str, name: &str, value: &str) -> &mut Self {
        let all = self.machine(machine).metadata.annotations.get_or_insert_default();
        all.insert(name.to_owned(), value.to_owned());
        self
    }

    fn placement(&self, machine: &str) -> Option<&str> {
        let annotations = self.machines.get(machine)?.metadata.annotations.as_ref()?;
        annotations.get(labels::PLACEMENT).map(String::as_str)
    }

    /// What the backend does before its first create.
    fn claim(&mut self, machine: &str) -> &mut Self {
        self.machine(machine).metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
        self
    }

    /// What the backend does when it observed absence and the provider has no room.
    fn hand_back(&mut self, machine: &str) -> &mut Self {
        let provider = self.placement(machine).unwrap().to_owned();
        let now = self.now;
        let candidates = self.full_candidates();
        let full = candidates.iter().find(|each| each.name == provider).map(|each| each.full);
        let text = pass_over(self.machine(machine), &provider, full, now);
        let metadata = &mut self.machine(machine).metadata;
        metadata.finalizers = None;
        metadata.annotations.as_mut().unwrap().remove(labels::PLACEMENT);
        self.annotate(machine, labels::PASSED_OVER, &text)
    }

    fn later(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self
    }

    fn candidates(&self) -> Vec<Candidate> {
        let references = self.datacenter.spec.machine_providers.iter();
        references.map(|each| candidate(&self.datacenter, each, self.providers.get(&each.name))).collect()
    }

    /// The providers with what is on them, as the backend's operator sees them.
    fn full_candidates(&self) -> Vec<Candidate> {
        let mut candidates = self.candidates();
        for (name, machine) in &self.machines {
            let placed = self.placement(name);
            if let Some(candidate) = candidates.iter_mut().find(|each| Some(each.name.as_str()) == placed) {
                candidate.count(machine, usage_of(machine, None).unwrap());
            }
        }
        candidates
    }

    /// What the backend tells once it has seen the real machine.
    fn make(&mut self, machine: &str) -> &mut Self {
        let status = MachineStatus { vm_name: Some(machine.to_owned()), ..MachineStatus::default() };
        self.claim(machine).machine(machine).status = Some(status);
        self
    }

    /// One reconcile: decides, carries it out and writes it down. Gives back how many writes that took.
    fn round(&mut self) -> usize {
        let snapshot = Snapshot {
            datacenter: &self.datacenter,
            members: self
                .machines
                .values()
                .map(|machine| Member { machine, usage: usage_of(machine, None) })
                .collect(),
            candidates: self.candidates(),
            now: self.now,
        };
        let decision = decide(&snapshot);
        let mut lines = Vec::new();
        let mut written: Vec<Written> = Vec::new();
        for (machine, verdict) in &decision.verdicts {
            let name = machine.metadata.name.clone().unwrap();
            let status = match verdict {
                Verdict::Place(assignment) => {
                    lines.push(format!("{name}: placed, {}", assignment.placement.why));
                    None
                }
                Verdict::Withdraw(refusal) => {
                    lines.push(format!("{name}: withdrawn, {}: {refusal}", refusal.reason));
                    None
                }
                Verdict::Refuse(refusal) => {
                    lines.push(format!("{name}: refused, {}: {refusal}", refusal.reason));
                    Some(refused_machine(machine, refusal, self.now))
                }
                Verdict::Pause => {
                    lines.push(format!("{name}: paused"));
                    Some(paused_machine(machine, self.now))
                }
            };
            let status = status.filter(|status| machine.status.as_ref() != Some(status));
            written.push((name, annotations(machine, verdict, self.now), status));
        }
        lines.sort();
        let used = decision.used;
        let again = decision.look_again.map(|time| format!(", looks again at {time}")).unwrap_or_default();
        lines.push(format!("uses {} machines and {} cpu{again}", used.machines, used.cpu));
        let count = written.iter().filter(|(_, all, status)| !all.is_empty() || status.is_some()).count();
        writeln!(self.page, "{}", lines.join("\n")).unwrap();
        for (name, changes, status) in written {
            let machine = self.machine(&name);
            machine.status = status.or(machine.status.take());
            let all = machine.metadata.annotations.get_or_insert_default();
            for (name, value) in changes {
                match value {
                    Some(value) => all.insert(name.to_owned(), value),
                    None => all.remove(name),
                };
            }
        }
        count
    }

    fn placed(&self) -> usize {
        self.machines.keys().filter(|name| self.placement(name).is_some()).count()
    }
}

#[test]
fn fifty_machines_at_once_and_a_quota_of_ten() {
    let mut story = Story::new(&["aws"]);
    story.quotas(ResourceQuotas::builder().max_machines(10).build());
    for number in 0..50 {
        story.machine(&format!("vm-{number:02}"));
    }
    assert_eq!(story.round(), 50);
    assert_eq!(story.placed(), 10);
    assert_eq!(story.round(), 0, "nothing is written twice");
    story.quotas(ResourceQuotas::builder().max_machines(5).build());
    story.round();
    assert_eq!(story.placed(), 10, "what was let in stays in");
    story.quotas(ResourceQuotas::builder().max_machines(30).build());
    assert_eq!(story.round(), 20);
    assert_eq!((story.placed(), story.round()), (30, 0));
}

#[test]
fn a_machine_that_nobody_can_take_does_not_use_the_quota_up() {
    let mut story = Story::new(&["aws"]);
    story.quotas(ResourceQuotas::builder().max_machines(1).build());
    story.machine("elsewhere").spec.zone = Some("moon".to_owned());
    story.later(1).machine("here");
    story.round();
    assert_eq!((story.placement("elsewhere"), story.placement("here")), (None, Some("infra/aws")));
}

#[test]
fn machines_are_spread_over_zones_and_fill_providers_in_their_order() {
    let mut story = Story::new(&["aws", "azure"]);
    let aws = story.provider("aws");
    aws.spec.zones = vec!["a".to_owned(), "b".to_owned()];
    aws.spec.capacity = Some(ProviderCapacity::builder().machines(4).build());
    for number in 0..6 {
        story.machine(&format!("vm-{number}"));
    }
    story.round();
    insta::assert_snapshot!(story.page);
}

#[test]
fn failover_while_nothing_was_made() {
    let mut story = Story::new(&["aws", "azure"]);
    story.machine("new");
    story.machine("made");
    story.say("both are placed, and one is made").round();
    story.claim("made").answers("aws", false).later(60);
    story.say("the provider is away: only the one of which nothing was made moves").round();
    story.answers("aws", true).later(60);
    story.say("it is back: nothing moves back").round();
    story.answers("azure", false).later(60);
    story.say("the other one is away: the first could not take it a moment ago, so it stays").round();
    story.later(600);
    story.say("ten minutes later it goes back").round();
    story.providers.clear();
    story.say("both are gone: what was not made is taken back").round();
    story.later(1).say("and told").round();
    insta::assert_snapshot!(story.page);
}

#[test]
fn a_provider_without_room_hands_a_machine_back() {
    let mut story = Story::new(&["aws", "azure"]);
    story.machine("vm");
    story.round();
    story.claim("vm").later(5).hand_back("vm");
    story.say("the first has no room").round();
    story.claim("vm").later(60).hand_back("vm");
    story.say("neither has the second").round();
    assert_eq!(story.round(), 0, "it is told once");
    story.later(540);
    story.say("ten minutes after it was passed over the first is asked again").round();
    insta::assert_snapshot!(story.page);
}

#[test]
fn room_that_came_free_is_used_at_once() {
    let mut story = Story::new(&["aws"]);
    for name in ["large", "small"] {
        story.machine(name);
    }
    story.round();
    story.make("large").make("small").machine("vm");
    story.round();
    story.claim("vm").later(5).hand_back("vm");
    story.say("there is no room").round();
    story.machine("other");
    story.round();
    story.claim("other").later(5).hand_back("other");
    story.say("nor for another one, whose coming and going is no sign of room").round();
    assert_eq!(story.round(), 0);
    story.machine("large").spec.resources = Some(resources("500Mi"));
    story.say("one of those that are there shrank: both try").round();
    story.claim("vm").later(5).hand_back("vm").claim("other").later(5).hand_back("other");
    story.say("that was not enough, and they wait again").round();
    story.machines.remove("small");
    story.say("one went").round();
    story.claim("vm").later(5).hand_back("vm").claim("other").later(5).hand_back("other");
    story.say("and that was not enough either").round();
    story.provider("aws").metadata.generation = Some(2);
    story.say("the provider was given more").round();
    insta::assert_snapshot!(story.page);
}

#[test]
fn a_machine_that_was_made_counts_what_it_was_given_when_its_class_is_gone() {
    let mut machine = Machine::builder().template("gone").build("vm", "default").unwrap();
    let given = GivenResources { cpu: 3, memory: "5Gi".parse().unwrap(), storage: "7Gi".parse().unwrap() };
    machine.status = Some(MachineStatus { resources: Some(given), ..MachineStatus::default() });
    assert!(usage_of(&machine, None).is_err(), "nothing was made for it");
    machine.metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
    let usage = usage_of(&machine, None).unwrap();
    assert_eq!((usage.machines, usage.cpu, usage.memory, usage.storage), (1, 3, 5 << 30, 7 << 30));
}

#[test]
fn a_machine_that_only_others_hold_leaves_its_room_to_the_next() {
    let mut story = Story::new(&["aws"]);
    story.quotas(ResourceQuotas::builder().max_machines(1).build());
    story.provider("aws").spec.capacity = Some(ProviderCapacity::builder().machines(1).build());
    story.machine("first");
    story.later(1).machine("second");
    story.round();
    story.make("first").machine("first").metadata.deletion_timestamp = Some(Time(story.now));
    story.round();
    assert_eq!(story.placement("second"), None, "what is being removed is still there");
    story.machine("first").metadata.finalizers = Some(vec!["example.com/backup".to_owned()]);
    story.round();
    assert_eq!(story.placement("second"), Some("infra/aws"));
    assert_eq!(story.page.lines().last(), Some("uses 1 machines and 1 cpu"));
}

#[test]
fn what_is_refused_is_told_with_the_fix() {
    let mut story = Story::new(&["aws", "azure"]);
    story.machine("template").spec.template = Some("huge".to_owned());
    story.machine("stranger").metadata.namespace = Some("team-a".to_owned());
    story.machine("other-provider").spec.provider_ref = Some(ObjectReference::builder().name("gcp").build());
    story.machine("named-provider").spec.provider_ref =
        Some(ObjectReference::builder().name("azure").build());
    story.annotate("paused", labels::PAUSED, "true");
    story.annotate("restored", labels::IDENTITY, "another");
    story.machine("leaving").metadata.deletion_timestamp = Some(Time(story.now));
    story.say("each for its own reason").round();
    let orphan = missing_datacenter(&story.machines["template"]);
    writeln!(story.page, "without a Datacenter: {orphan}").unwrap();
    let allowed = [(labels::ALLOW_REFERENCES_FROM.to_owned(), "team-a".to_owned())];
    story.datacenter.metadata.annotations = Some(allowed.into());
    story.machine("paused").metadata.annotations = None;
    story.say("the stranger is allowed in, and the pause is over").round();
    for name in ["template", "stranger", "paused"] {
        let status = story.machines[name].status.clone().unwrap();
        writeln!(story.page, "{}", serde_saphyr::to_string(&status).unwrap()).unwrap();
    }
    insta::assert_snapshot!(story.page);
}

#[test]
fn a_placement_that_a_stranger_wrote_itself_is_worth_nothing() {
    let mut story = Story::new(&["aws"]);
    story.machine("stranger").metadata.namespace = Some("team-a".to_owned());
    story.annotate("stranger", labels::PLACEMENT, "infra/aws");
    let providers: Vec<&MachineProvider> = story.providers.values().collect();
    let datacenters = [&story.datacenter];
    let places = Places { providers: &providers, datacenters: &datacenters, is_own_cluster_offered: false };
    let found = locate(&story.machines["stranger"], &places);
    assert!(matches!(found, Location::Nowhere(refusal) if refusal.reason == "PlacementNotPermitted"));
    story.round();
    assert_eq!(story.placement("stranger"), None, "and it is taken away");
}

#[test]
fn a_provider_that_is_named_counts_in_the_quota() {
    let mut story = Story::new(&["aws", "azure"]);
    story.quotas(ResourceQuotas::builder().max_machines(1).build());
    story.machine("first").spec.provider_ref = Some(ObjectReference::builder().name("azure").build());
    story.later(1).machine("second");
    story.round();
    assert_eq!((story.placement("first"), story.placement("second")), (Some("infra/azure"), None));
}

#[test]
fn the_status_of_a_datacenter_names_every_problem() {
    let mut story = Story::new(&["aws", "azure", "gcp"]);
    let told = |story: &mut Story, what: &str| {
        let usage = usage_of(story.machine("vm"), None).unwrap();
        let status = datacenter_status(&story.datacenter, &story.candidates(), usage, story.now);
        story.datacenter.status = Some(status.clone());
        story.say(what);
        writeln!(story.page, "{}", serde_saphyr::to_string(&status).unwrap()).unwrap();
    };
    told(&mut story, "all is well");
    story.answers("aws", false).providers.remove("azure");
    story.provider("gcp").metadata.namespace = Some("elsewhere".to_owned());
    story.datacenter.spec.kubernetes_providers = vec![ProviderReference::builder().name("eks").build()];
    story.quotas(ResourceQuotas::builder().max_clusters(2).build());
    told(&mut story, "nobody can be used, and there is more than we act on");
    story.answers("aws", true);
    story.datacenter.metadata.annotations = Some([(labels::PAUSED.to_owned(), "true".to_owned())].into());
    told(&mut story, "one is enough, but it is paused");
    insta::assert_snapshot!(story.page);
}

fn resources(memory: &str) -> Resources {
    let memory = Memory::builder().size(memory.parse().unwrap()).build();
    Resources::builder().memory(memory).build()
}

/// Numbers that are different each time and the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn no_machine_goes_back_and_forth_whatever_providers_do() {
    for seed in 0..20 {
        let mut dice = Dice(seed);
        let names = ["aws", "azure", "gcp"];
        let mut story = Story::new(&names);
        story.quotas(ResourceQuotas::builder().max_machines(4).build());
        let mut chosen: BTreeMap<(String, String), Timestamp> = BTreeMap::new();
        for number in 0..6 {
            story.machine(&format!("vm-{number}"));
        }
        for _ in 0..500 {
            story.later(i64::try_from(dice.roll(90)).unwrap());
            for name in names {
                let is_ready = dice.roll(3) > 0;
                story.answers(name, is_ready);
            }
            let machine = format!("vm-{}", dice.roll(6));
            let is_claimed = story.machine(&machine).metadata.finalizers.is_some();
            match dice.roll(4) {
                0 if story.placement(&machine).is_some() => drop(story.claim(&machine)),
                1 if is_claimed => drop(story.hand_back(&machine)),
                _ => {}
            }
            let before: BTreeMap<String, Option<String>> = story
                .machines
                .keys()
                .map(|name| (name.clone(), story.placement(name).map(str::to_owned)))
                .collect();
            story.page.clear();
            story.round();
            assert!(story.placed() <= 4, "seed {seed}: more than the quota");
            for (name, was) in before {
                let is = story.placement(&name).map(str::to_owned);
                let is_held = story.machines[&name].metadata.finalizers.is_some();
                assert!(!is_held || is == was, "seed {seed}: {name} moved although something was made");
                if let Some(left) = was.clone().filter(|_| is != was) {
                    chosen.insert((name.clone(), left), story.now);
                }
                if let Some(provider) = is.filter(|_| story.placement(&name) != was.as_deref()) {
                    let left = chosen.get(&(name.clone(), provider.clone()));
                    let pause = left.map(|left| story.now.duration_since(*left));
                    assert!(
                        pause.is_none_or(|pause| pause >= SignedDuration::from_mins(10)),
                        "seed {seed}: {name} went back to {provider} after {pause:?}"
                    );
                }
            }
        }
    }
}
