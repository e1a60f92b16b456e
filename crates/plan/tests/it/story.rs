//! A Machine, a provider that does everything it is asked to, and the page that records both.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use vitistack_plan::{
    Refusal,
    datacenter::pass_over,
    machine::{
        Action, DesiredDisk, MachinePlan, Observed, ObservedDisk, ObservedMachine, Part, Power, References,
        Snapshot, StepResult, Update, plan, resolve,
    },
};
use vitistack_types::{ObjectName, Placement, conditions, labels, v1alpha1::Machine};

/// The provider that every Machine here is placed on.
pub fn provider() -> Placement {
    Placement::Provider(ObjectName::new("default", "simulated-a"))
}

/// A Machine, a provider that does everything it is asked to, and the page that records both.
pub struct Story {
    pub machine: Machine,
    pub references: References,
    pub observed: Result<Observed, Refusal>,
    pub twin: Option<ObjectName>,
    pub provider_paused: bool,
    pub silent_since: Option<Timestamp>,
    pub last_step_at: Option<Timestamp>,
    pub now: Timestamp,
    pub page: String,
}

impl Story {
    pub fn new(machine: Machine) -> Self {
        let mut machine = machine;
        machine.metadata.uid = Some("uid-1".to_owned());
        machine.metadata.generation = Some(1);
        machine.metadata.resource_version = Some("100".to_owned());
        Self {
            machine,
            references: References::default(),
            observed: Ok(Observed::default()),
            twin: None,
            provider_paused: false,
            silent_since: None,
            last_step_at: None,
            now: "2026-01-01T12:00:00Z".parse().unwrap(),
            page: String::new(),
        }
    }

    /// Starts a section of the page.
    pub fn heading(&mut self, line: &str) -> &mut Self {
        writeln!(self.page, "\n# {line}").unwrap();
        self
    }

    pub fn annotate(&mut self, name: &str, value: &str) -> &mut Self {
        self.machine.metadata.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
        self
    }

    /// Edits the spec as a user does, so that the backing machine is no longer current.
    pub fn edit(&mut self, change: impl FnOnce(&mut Machine)) -> &mut Self {
        change(&mut self.machine);
        *self.machine.metadata.generation.as_mut().unwrap() += 1;
        self.machine.metadata.resource_version = Some("200".to_owned());
        if let Ok(Observed { machine: Some(backing), .. }) = &mut self.observed {
            backing.is_current = false;
        }
        self
    }

    /// Returns the backing machine.
    pub fn backing(&mut self) -> &mut ObservedMachine {
        self.observed.as_mut().unwrap().machine.as_mut().unwrap()
    }

    /// Returns what the provider reports.
    pub fn provider(&mut self) -> &mut Observed {
        self.observed.as_mut().unwrap()
    }

    /// Reconciles once: plans, records the plan, and lets the provider carry it out.
    pub fn reconcile(&mut self) -> &mut Self {
        self.now += SignedDuration::from_secs(1);
        self.silent_since = self.observed.as_ref().err().map(|_| self.silent_since.unwrap_or(self.now));
        let desired = resolve(&self.machine, &self.references);
        let planned = plan(&Snapshot {
            machine: &self.machine,
            desired: desired.as_ref(),
            observed: self.observed.as_ref(),
            capabilities: None,
            twin: self.twin.as_ref(),
            placement: Some(&provider()),
            provider_deleting: false,
            provider_paused: self.provider_paused,
            last: &StepResult::default(),
            silent_since: self.silent_since,
            last_step_at: self.last_step_at,
            now: self.now,
        });
        self.record(&planned);

        if let Some(status) = planned.status {
            self.machine.status = Some(status);
        }
        let disks = desired.map(|desired| desired.disks).unwrap_or_default();
        for step in planned.steps {
            self.last_step_at = Some(self.now);
            self.carry_out(&step.action, &disks);
        }
        self
    }

    /// Writes a plan on the page: steps, status, events and when to reconcile again.
    pub fn record(&mut self, planned: &MachinePlan) {
        for step in &planned.steps {
            writeln!(self.page, "  {step}").unwrap();
        }

        match &planned.status {
            None => writeln!(self.page, "  = no new status").unwrap(),
            Some(status) => {
                let ready = conditions::find(&status.conditions, conditions::READY).unwrap();
                let phase = status.phase.unwrap();
                writeln!(
                    self.page,
                    "  = {phase:?}, Ready={} {}: {}",
                    ready.status, ready.reason, ready.message
                )
                .unwrap();
                let is_other =
                    |condition: &&Condition| condition.type_ != "Ready" && condition.status != "True";
                for Condition { type_, status, reason, message, .. } in
                    status.conditions.iter().filter(is_other)
                {
                    writeln!(self.page, "    {type_}={status} {reason}: {message}").unwrap();
                }
            }
        }

        let of_steps = planned.steps.iter().filter_map(vitistack_plan::machine::Step::event);
        for event in of_steps.chain(planned.events.iter().cloned()) {
            writeln!(self.page, "  event: {event}").unwrap();
        }
        writeln!(self.page, "  requeue: {}", planned.requeue).unwrap();
    }

    /// Does what an action asks for.
    pub fn carry_out(&mut self, action: &Action, disks: &[DesiredDisk]) {
        match action {
            Action::Claim => {
                self.machine.metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
                let uid = self.machine.metadata.uid.clone().unwrap();
                self.annotate(labels::IDENTITY, &uid).annotate(labels::PLACEMENT, "default/simulated-a");
            }
            Action::Create => {
                let observed = self.provider();
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
                for disk in &mut self.provider().disks {
                    disk.is_attached = wanted.contains(&disk.name);
                }
                self.backing().is_current = true;
            }
            Action::Update(Update::Start) => self.backing().power = Power::Running,
            Action::Update(Update::Stop) => self.backing().power = Power::Stopped,
            Action::Update(Update::Restart { request }) => {
                self.backing().restarted_for = Some(request.clone());
            }
            Action::Delete(Part::Machine) => self.provider().machine = None,
            Action::Delete(Part::Disks(names)) => {
                self.provider().disks.retain(|disk| !names.contains(&disk.name));
            }
            Action::Delete(Part::BlankDisks(names)) => {
                self.provider().disks.retain(|disk| !(disk.is_blank && names.contains(&disk.name)));
            }
            Action::Delete(Part::Leftovers) => self.provider().leftovers.clear(),
            Action::MarkPassedOver => {
                let note = pass_over(&self.machine, &provider(), None, self.now);
                self.annotate(labels::PASSED_OVER, &note);
            }
            Action::RemoveFinalizer => {
                let finalizers = self.machine.metadata.finalizers.get_or_insert_default();
                finalizers.retain(|finalizer| finalizer != labels::MACHINE_CLEANUP);
            }
            Action::ReturnToDatacenter => {
                self.machine.metadata.finalizers = None;
                if let Some(annotations) = &mut self.machine.metadata.annotations {
                    annotations.remove(labels::PLACEMENT);
                }
            }
        }
    }
}

pub fn small() -> Story {
    Story::new(Machine::builder().template("small").build("web-1", "default").unwrap())
}

/// A Machine whose backing machine runs.
pub fn running() -> Story {
    let mut story = small();
    story.reconcile();
    let backing = story.backing();
    backing.power = Power::Running;
    backing.addresses = vec!["10.0.0.7".to_owned()];
    story.reconcile();
    story.page.clear();
    story
}

/// A machine that the provider has just created.
pub fn new_machine() -> ObservedMachine {
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
