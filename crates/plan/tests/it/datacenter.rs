//! A Datacenter, reconcile by reconcile: which Machines are admitted, where they are placed, what is
//! reported.

use std::{collections::BTreeMap, fmt::Write as _};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use vitistack_plan::{
    datacenter::{Candidate, Member, Snapshot, candidate, pass_over, plan, plan_orphan, usage_of},
    machine::{Location, PlacementContext, locate},
};
use vitistack_types::{
    ObjectName, ObjectReference, Placement, WatchedNamespaces, conditions, labels,
    v1alpha1::{
        Cpu, Datacenter, GivenResources, Machine, MachineProvider, MachineProviderStatus, MachineStatus,
        Memory, ProviderCapacity, ProviderReference, ProviderType, ResourceQuotas, Resources,
    },
};

/// A Datacenter with its providers and Machines, and the page that records them.
struct Story {
    datacenter: Datacenter,
    providers: BTreeMap<String, MachineProvider>,
    machines: BTreeMap<String, Machine>,
    now: Timestamp,
    page: String,
}

impl Story {
    /// A Datacenter with these providers, in the order of their priority.
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

    /// Starts a section of the page.
    fn heading(&mut self, line: &str) -> &mut Self {
        writeln!(self.page, "\n# {line}").unwrap();
        self
    }

    fn quotas(&mut self, quotas: ResourceQuotas) -> &mut Self {
        self.datacenter.spec.resource_quotas = Some(quotas);
        self
    }

    /// Sets whether a provider is ready.
    fn answers(&mut self, provider: &str, is_ready: bool) -> &mut Self {
        let ready = Condition {
            type_: conditions::READY.to_owned(),
            status: if is_ready { "True" } else { "False" }.to_owned(),
            reason: "ProviderUnreachable".to_owned(),
            message: "no answer".to_owned(),
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

    /// Adds our finalizer, as the backend does before its first create.
    fn claim(&mut self, machine: &str) -> &mut Self {
        self.machine(machine).metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
        self
    }

    /// Returns a Machine to its Datacenter, as the backend does when the provider has no capacity and nothing
    /// exists.
    fn hand_back(&mut self, machine: &str) -> &mut Self {
        let Ok(provider) = self.placement(machine).unwrap().parse::<ObjectName>();
        let now = self.now;
        let candidates = self.candidates_with_usage();
        let full = candidates.iter().find(|each| each.name == provider).map(|each| each.full);
        let passed_over = pass_over(self.machine(machine), &Placement::Provider(provider), full, now);
        let metadata = &mut self.machine(machine).metadata;
        metadata.finalizers = None;
        metadata.annotations.as_mut().unwrap().remove(labels::PLACEMENT);
        self.annotate(machine, labels::PASSED_OVER, &passed_over)
    }

    /// Advances the clock.
    fn later(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self
    }

    fn candidates(&self) -> Vec<Candidate> {
        let references = self.datacenter.spec.machine_providers.iter();
        references
            .map(|each| {
                candidate(&self.datacenter, each, self.providers.get(&each.name), &WatchedNamespaces::ALL)
            })
            .collect()
    }

    /// Returns the providers with their usage, as the backend's operator sees them.
    fn candidates_with_usage(&self) -> Vec<Candidate> {
        let mut candidates = self.candidates();
        for (name, machine) in &self.machines {
            let placed = self.placement(name).map(str::to_owned);
            if let Some(candidate) = candidates.iter_mut().find(|each| Some(each.name.to_string()) == placed)
            {
                candidate.count(machine, usage_of(machine, None).unwrap());
            }
        }
        candidates
    }

    /// Reports the backing machine, as the backend does once it has observed it.
    fn report_created(&mut self, machine: &str) -> &mut Self {
        let status = MachineStatus { vm_name: Some(machine.to_owned()), ..MachineStatus::default() };
        self.claim(machine).machine(machine).status = Some(status);
        self
    }

    /// Reconciles once: decides, carries the decision out and records it. Returns the number of writes.
    fn reconcile(&mut self) -> usize {
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
        let planned = plan(&snapshot);

        let mut lines: Vec<String> = planned.steps.iter().map(ToString::to_string).collect();
        lines.sort();
        lines.extend(planned.events.iter().map(|event| format!("event: {event}")));
        if let Some(used) = planned.status.as_ref().and_then(|status| status.used.as_ref()) {
            lines.push(format!("uses {} machines and {} cpu", used.machines, used.cpu));
        }
        lines.push(format!("requeue: {}", planned.requeue));
        writeln!(self.page, "{}", lines.join("\n")).unwrap();

        let (writes, status) = (planned.steps.len(), planned.status.clone());
        let machines: Vec<Machine> =
            planned.steps.iter().map(vitistack_plan::datacenter::MemberStep::intended).collect();
        for machine in machines {
            self.machines.insert(machine.metadata.name.clone().unwrap(), machine);
        }
        self.datacenter.status = status.or(self.datacenter.status.take());
        writes
    }

    /// Returns the number of placed Machines.
    fn placed(&self) -> usize {
        self.machines.keys().filter(|name| self.placement(name).is_some()).count()
    }
}

#[test]
fn a_quota_of_ten_admits_ten_of_fifty_machines() {
    let mut story = Story::new(&["aws"]);
    story.quotas(ResourceQuotas::builder().max_machines(10).build());
    for number in 0..50 {
        story.machine(&format!("vm-{number:02}"));
    }
    assert_eq!(story.reconcile(), 50);
    assert_eq!(story.placed(), 10);
    assert_eq!(story.reconcile(), 0, "nothing is written twice");
    story.quotas(ResourceQuotas::builder().max_machines(5).build());
    story.reconcile();
    assert_eq!(story.placed(), 10, "an admitted Machine stays");
    story.quotas(ResourceQuotas::builder().max_machines(30).build());
    assert_eq!(story.reconcile(), 20);
    assert_eq!((story.placed(), story.reconcile()), (30, 0));
}

#[test]
fn a_machine_that_fits_nowhere_does_not_use_the_quota() {
    let mut story = Story::new(&["aws"]);
    story.quotas(ResourceQuotas::builder().max_machines(1).build());
    story.machine("elsewhere").spec.zone = Some("moon".to_owned());
    story.later(1).machine("here");
    story.reconcile();
    assert_eq!((story.placement("elsewhere"), story.placement("here")), (None, Some("infra/aws")));
}

#[test]
fn growth_that_a_quota_holds_does_not_fill_the_provider_for_others() {
    let mut story = Story::new(&["aws"]);
    story.provider("aws").spec.capacity = Some(ProviderCapacity::builder().cpu(8).build());
    story.quotas(ResourceQuotas::builder().max_cpu(6).build());
    story.machine("growing");
    story.reconcile();
    story.claim("growing");
    let cpu = Cpu::builder().cores(64).build();
    story.machine("growing").spec.resources = Some(Resources::builder().cpu(cpu).build());
    story.later(1).machine("new");
    story.reconcile();
    assert_eq!(story.placement("new"), Some("infra/aws"));
}

#[test]
fn machines_spread_over_zones_and_fill_providers_by_priority() {
    let mut story = Story::new(&["aws", "azure"]);
    let aws = story.provider("aws");
    aws.spec.zones = vec!["a".to_owned(), "b".to_owned()];
    aws.spec.capacity = Some(ProviderCapacity::builder().machines(4).build());
    for number in 0..6 {
        story.machine(&format!("vm-{number}"));
    }
    story.reconcile();
    insta::assert_snapshot!(story.page);
}

#[test]
fn failover_before_anything_is_created() {
    let mut story = Story::new(&["aws", "azure"]);
    story.machine("new");
    story.machine("created");
    story.heading("both are placed, and one is created").reconcile();
    story.claim("created").answers("aws", false).later(60);
    story
        .heading("the provider does not answer: only the Machine without a backing machine moves")
        .reconcile();
    story.answers("aws", true).later(60);
    story.heading("it answers again: nothing moves back").reconcile();
    story.answers("azure", false).later(60);
    story
        .heading("the other one does not answer: the first could not host it a moment ago, so it stays")
        .reconcile();
    story.later(600);
    story.heading("ten minutes later it moves back").reconcile();
    story.providers.clear();
    story.heading("both are deleted: the placement without a backing machine is removed").reconcile();
    story.later(1).heading("and reported").reconcile();

    insta::assert_snapshot!(story.page);
}

#[test]
fn a_provider_without_capacity_returns_the_machine() {
    let mut story = Story::new(&["aws", "azure"]);
    story.machine("vm");
    story.reconcile();
    story.claim("vm").later(5).hand_back("vm");
    story.heading("the first has no capacity").reconcile();
    story.claim("vm").later(60).hand_back("vm");
    story.heading("nor has the second").reconcile();
    assert_eq!(story.reconcile(), 0, "the refusal is written once");
    story.later(540);
    story.heading("ten minutes after it was passed over, the first is tried again").reconcile();
    insta::assert_snapshot!(story.page);
}

#[test]
fn freed_capacity_is_used_at_once() {
    let mut story = Story::new(&["aws"]);
    for name in ["large", "small"] {
        story.machine(name);
    }
    story.reconcile();
    story.report_created("large").report_created("small").machine("vm");
    story.reconcile();
    story.claim("vm").later(5).hand_back("vm");
    story.heading("there is no capacity").reconcile();
    story.machine("other");
    story.reconcile();
    story.claim("other").later(5).hand_back("other");
    story.heading("nor for another one, whose attempt frees no capacity").reconcile();
    assert_eq!(story.reconcile(), 0);

    story.machine("large").spec.resources = Some(resources("500Mi"));
    story.heading("one of the existing machines shrank: both try").reconcile();
    story.claim("vm").later(5).hand_back("vm").claim("other").later(5).hand_back("other");
    story.heading("that was not enough, and they wait again").reconcile();
    story.machines.remove("small");
    story.heading("one is deleted").reconcile();
    story.claim("vm").later(5).hand_back("vm").claim("other").later(5).hand_back("other");
    story.heading("and that was not enough either").reconcile();
    story.provider("aws").metadata.generation = Some(2);
    story.heading("the provider is given more").reconcile();

    insta::assert_snapshot!(story.page);
}

#[test]
fn a_created_machine_counts_its_given_resources_without_its_class() {
    let mut machine = Machine::builder().template("gone").build("vm", "default").unwrap();
    let given = GivenResources { cpu: 3, memory: "5Gi".parse().unwrap(), storage: "7Gi".parse().unwrap() };
    machine.status = Some(MachineStatus { resources: Some(given), ..MachineStatus::default() });
    assert!(usage_of(&machine, None).is_err(), "nothing was created for it");
    machine.metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
    let usage = usage_of(&machine, None).unwrap();
    assert_eq!((usage.machines, usage.cpu, usage.memory, usage.storage), (1, 3, 5 << 30, 7 << 30));
}

#[test]
fn a_machine_held_only_by_foreign_finalizers_uses_no_capacity() {
    let mut story = Story::new(&["aws"]);
    story.quotas(ResourceQuotas::builder().max_machines(1).build());
    story.provider("aws").spec.capacity = Some(ProviderCapacity::builder().machines(1).build());
    story.machine("first");
    story.later(1).machine("second");
    story.reconcile();
    story.report_created("first").machine("first").metadata.deletion_timestamp = Some(Time(story.now));
    story.reconcile();
    assert_eq!(story.placement("second"), None, "what is being deleted still counts");
    story.machine("first").metadata.finalizers = Some(vec!["example.com/backup".to_owned()]);
    story.reconcile();
    assert_eq!(story.placement("second"), Some("infra/aws"));
    let used = story.datacenter.status.unwrap().used.unwrap();
    assert_eq!((used.machines, used.cpu), (1, 1));
}

#[test]
fn refusals_name_the_fix() {
    let mut story = Story::new(&["aws", "azure"]);
    story.machine("template").spec.template = Some("huge".to_owned());
    story.machine("stranger").metadata.namespace = Some("team-a".to_owned());
    story.machine("other-provider").spec.provider_ref = Some(ObjectReference::builder().name("gcp").build());
    story.machine("named-provider").spec.provider_ref =
        Some(ObjectReference::builder().name("azure").build());
    story.annotate("paused", labels::PAUSED, "true");
    story.annotate("restored", labels::IDENTITY, "another");
    story.machine("leaving").metadata.deletion_timestamp = Some(Time(story.now));
    story.heading("each for its own reason").reconcile();
    let orphan =
        plan_orphan(&story.machines["template"], &WatchedNamespaces::ALL, story.now).unwrap().to_string();
    writeln!(story.page, "without a Datacenter: {orphan}").unwrap();
    let allowed = [(labels::ALLOW_REFERENCES_FROM.to_owned(), "team-a".to_owned())];
    story.datacenter.metadata.annotations = Some(allowed.into());
    story.machine("paused").metadata.annotations = None;
    story.heading("the other namespace is permitted, and the pause is over").reconcile();
    for name in ["template", "stranger", "paused"] {
        let status = story.machines[name].status.clone().unwrap();
        writeln!(story.page, "{}", serde_saphyr::to_string(&status).unwrap()).unwrap();
    }

    insta::assert_snapshot!(story.page);
}

#[test]
fn a_forged_placement_is_ignored_and_removed() {
    let mut story = Story::new(&["aws"]);
    story.machine("stranger").metadata.namespace = Some("team-a".to_owned());
    story.annotate("stranger", labels::PLACEMENT, "infra/aws");
    let providers: Vec<&MachineProvider> = story.providers.values().collect();
    let datacenters = [&story.datacenter];
    let context = PlacementContext {
        providers: &providers,
        datacenters: &datacenters,
        watched: &WatchedNamespaces::ALL,
        is_own_cluster_offered: false,
    };
    let found = locate(&story.machines["stranger"], &context);
    assert!(matches!(found, Location::Refused(refusal) if refusal.reason == "PlacementNotPermitted"));
    story.reconcile();
    assert_eq!(story.placement("stranger"), None, "the annotation is removed");
}

#[test]
fn a_machine_with_a_named_provider_counts_in_the_quota() {
    let mut story = Story::new(&["aws", "azure"]);
    story.quotas(ResourceQuotas::builder().max_machines(1).build());
    story.machine("first").spec.provider_ref = Some(ObjectReference::builder().name("azure").build());
    story.later(1).machine("second");
    story.reconcile();
    assert_eq!((story.placement("first"), story.placement("second")), (Some("infra/azure"), None));
}

#[test]
fn the_status_of_a_datacenter_names_every_problem() {
    let mut story = Story::new(&["aws", "azure", "gcp"]);
    story.machine("vm");
    let report = |story: &mut Story, what: &str| {
        story.heading(what).reconcile();
        let status = story.datacenter.status.clone().unwrap();
        writeln!(story.page, "{}", serde_saphyr::to_string(&status).unwrap()).unwrap();
    };
    report(&mut story, "every provider accepts machines");
    story.answers("aws", false).providers.remove("azure");
    story.provider("gcp").metadata.namespace = Some("elsewhere".to_owned());
    story.datacenter.spec.kubernetes_providers = vec![ProviderReference::builder().name("eks").build()];
    story.quotas(ResourceQuotas::builder().max_clusters(2).build());
    report(&mut story, "no provider accepts machines, and some fields are ignored");
    story.answers("aws", true);
    story.datacenter.metadata.annotations = Some([(labels::PAUSED.to_owned(), "true".to_owned())].into());
    report(&mut story, "one provider is enough, but the Datacenter is paused");

    insta::assert_snapshot!(story.page);
}

fn resources(memory: &str) -> Resources {
    let memory = Memory::builder().size(memory.parse().unwrap()).build();
    Resources::builder().memory(memory).build()
}

/// Pseudo-random numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn no_machine_moves_back_within_ten_minutes() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let names = ["aws", "azure", "gcp"];
        let mut story = Story::new(&names);
        story.quotas(ResourceQuotas::builder().max_machines(4).build());
        let mut left_at: BTreeMap<(String, String), Timestamp> = BTreeMap::new();
        for number in 0..6 {
            story.machine(&format!("vm-{number}"));
        }
        for _ in 0..500 {
            story.later(i64::try_from(random.below(90)).unwrap());
            for name in names {
                let is_ready = random.below(3) > 0;
                story.answers(name, is_ready);
            }

            let machine = format!("vm-{}", random.below(6));
            let is_claimed = story.machine(&machine).metadata.finalizers.is_some();
            match random.below(4) {
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
            story.reconcile();
            assert!(story.placed() <= 4, "seed {seed}: more than the quota");

            for (name, was) in before {
                let is = story.placement(&name).map(str::to_owned);
                let is_held = story.machines[&name].metadata.finalizers.is_some();
                assert!(!is_held || is == was, "seed {seed}: {name} moved although something was created");
                if let Some(left) = was.clone().filter(|_| is != was) {
                    left_at.insert((name.clone(), left), story.now);
                }
                if let Some(provider) = is.filter(|_| story.placement(&name) != was.as_deref()) {
                    let left = left_at.get(&(name.clone(), provider.clone()));
                    let pause = left.map(|left| story.now.duration_since(*left));
                    assert!(
                        pause.is_none_or(|pause| pause >= SignedDuration::from_mins(10)),
                        "seed {seed}: {name} moved back to {provider} after {pause:?}"
                    );
                }
            }
        }
    }
}
