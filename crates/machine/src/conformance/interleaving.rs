//! Calls, faults and restarts in an order derived from a seed, with invariants checked after each step.

use std::collections::{BTreeMap, BTreeSet};

use vitistack_plan::machine::{Identity, Power, Support};
use vitistack_types::v1alpha1::PowerState;

use super::{
    BreakRuleSnafu, Failure, Fault, Harness, Resource, ResourceKind,
    driver::{Driver, ensure, ensure_same},
    fields::{self, Change},
    fixture::{order, target},
};
use crate::{Order, Part, Update, simulated::faults::mix};

/// The number of rounds within which a machine must reach its desired state after the last fault.
const ROUNDS: usize = 300;

/// The parameters of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interleaving {
    /// Seed of the run; the same seed gives the same run.
    pub seed: u64,
    /// Number of steps.
    pub steps: usize,
}

/// Deterministic random numbers.
struct Numbers {
    state: u64,
}

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.state = mix(self.state);
        let bound = u64::try_from(bound.max(1)).unwrap_or(1);
        usize::try_from(self.state % bound).unwrap_or_default()
    }
}

/// One machine of the run, and what was requested for it.
struct Subject {
    order: Order,
    /// Whether the machine must exist: it was complete once, and no deletion has been requested since.
    must_exist: bool,
    /// Whether a foreign machine has its name, so that it cannot be created.
    is_blocked: bool,
    /// Disks whose deletion was requested.
    deleted_disks: BTreeSet<String>,
    restarts: usize,
}

/// The state of a run.
struct RandomRun {
    driver: Driver,
    numbers: Numbers,
    subjects: Vec<Subject>,
    /// Foreign resources, which must not change.
    foreign: Vec<Resource>,
    /// Disks that were seen and whose deletion was not requested.
    volumes: BTreeMap<Identity, BTreeSet<String>>,
}

/// What a step may change.
#[derive(Clone, Copy)]
enum Scope {
    Nothing,
    Subject(usize),
    /// The provider became idle: every machine may have changed, and existing machines are complete.
    Time,
    /// A third party made a change.
    ThirdParty,
}

/// Executes one run. A failure reports seed and step, so that it can be repeated.
pub async fn interleave(harness: &dyn Harness, interleaving: Interleaving) -> Result<(), Failure> {
    let Interleaving { seed, steps } = interleaving;
    let driver = Driver::start(harness).await?;
    driver.inject(Fault::ForeignMachine(target(super::NAMESPACE, "foreign"))).await?;

    let subjects = ["a", "b", "c"].map(|name| {
        let order = order(name)?;
        Ok(Subject {
            order,
            must_exist: false,
            is_blocked: false,
            deleted_disks: BTreeSet::new(),
            restarts: 0,
        })
    });
    let foreign = foreign_resources(&driver.resources().await?);
    let mut run = RandomRun {
        driver,
        numbers: Numbers { state: seed },
        subjects: subjects.into_iter().collect::<Result<_, Failure>>()?,
        foreign,
        volumes: BTreeMap::new(),
    };

    let mut history = Vec::new();
    for step in 0..steps {
        let at = |failure: &Failure, history: &[String]| Failure::BreakRule {
            found: format!("seed {seed}, step {step}: {failure}\n        after {}", history.join("; ")),
        };
        let before = run.driver.resources().await?;
        let (description, scope) = run.step().await.map_err(|failure| at(&failure, &history))?;
        history.push(description);
        run.check(&before, scope).await.map_err(|failure| at(&failure, &history))?;
    }

    let end = run.finish().await;
    end.map_err(|failure| Failure::BreakRule {
        found: format!("seed {seed}, at the end: {failure}\n        after {}", history.join("; ")),
    })
}

fn foreign_resources(resources: &[Resource]) -> Vec<Resource> {
    resources.iter().filter(|resource| resource.identity.is_none()).cloned().collect()
}

impl RandomRun {
    /// Executes one step. The answer of the backend does not matter, only the resources afterwards do.
    async fn step(&mut self) -> Result<(String, Scope), Failure> {
        let number = self.numbers.below(self.subjects.len());
        let choice = self.numbers.below(100);
        let name = self.subject(number)?.order.target.name.clone();
        let step =
            match choice {
                0..25 => {
                    let order = self.subject(number)?.order.clone();
                    let answer = self.driver.try_create(&order).await;
                    (format!("create {name}: {answer:?}"), Scope::Subject(number))
                }
                25..35 => self.change(number).await?,
                35..50 => self.power(number).await?,
                50..60 => {
                    let subject = self.subject(number)?;
                    subject.must_exist = false;
                    let target = subject.order.target.clone();
                    let answer = self.driver.try_delete(&target, &Part::Machine).await;
                    (format!("delete {name}: {answer:?}"), Scope::Subject(number))
                }
                60..67 => self.delete_disk(number).await?,
                67..75 => {
                    let order = self.subject(number)?.order.clone();
                    let observed = self.driver.testbed.backend().observe(&order.target, Some(&order)).await;
                    let result = observed.map_or("failed", |observed| {
                        if observed.machine.is_some() { "exists" } else { "absent" }
                    });
                    (format!("observe {name}: {result}"), Scope::Nothing)
                }
                75..87 => {
                    self.driver.settle().await?;
                    ("settle".to_owned(), Scope::Time)
                }
                87..96 => self.fault(number).await?,
                _ => {
                    self.driver.testbed.restart().await?;
                    ("restart the backend".to_owned(), Scope::Nothing)
                }
            };
        Ok(step)
    }

    fn subject(&mut self, number: usize) -> Result<&mut Subject, Failure> {
        self.subjects
            .get_mut(number)
            .ok_or_else(|| BreakRuleSnafu { found: "the suite has no subject with this number" }.build())
    }

    /// Changes one field of the order and requests the update.
    async fn change(&mut self, number: usize) -> Result<(String, Scope), Failure> {
        let capabilities = self.driver.testbed.backend().capabilities();
        let mut fields = fields::all();
        fields.retain(|field| {
            let support = match field.change {
                Change::Resize => capabilities.resize,
                Change::GrowDisk => capabilities.grow_disk,
                Change::Disks => capabilities.change_disks,
                Change::Interfaces => capabilities.change_interfaces,
                Change::Hardware => capabilities.change_hardware,
                Change::Policy | Change::FirstBoot => Support::InPlace,
                Change::Immutable | Change::Power => Support::Never,
            };
            support != Support::Never && !field.is_refused_by(&capabilities)
        });

        let chosen = self.numbers.below(fields.len());
        let order = self.subject(number)?.order.clone();
        let Some(field) = fields.get(chosen) else { return Ok(("nothing".to_owned(), Scope::Nothing)) };

        let mut changed = field.changed(&order, &[])?;
        // A field may be chosen twice; a second disk or interface with the same name is not a valid order.
        changed.desired.disks.dedup_by(|one, other| one.name == other.name);
        changed.desired.interfaces.dedup_by(|one, other| one.name == other.name);
        self.subject(number)?.order = changed.clone();
        let answer = self.driver.try_update(&changed, &Update::Specification).await;
        Ok((format!("change {} of {}: {answer:?}", field.path, order.target.name), Scope::Subject(number)))
    }

    async fn power(&mut self, number: usize) -> Result<(String, Scope), Failure> {
        let can_stop = self.driver.testbed.backend().capabilities().power;
        let choice = self.numbers.below(3);
        let subject = self.subject(number)?;
        let update = match choice {
            0 => Update::Start,
            1 if can_stop => Update::Stop,
            _ => {
                subject.restarts += 1;
                // Every second request repeats the previous one.
                Update::Restart { request: format!("request-{}", subject.restarts / 2) }
            }
        };
        let order = subject.order.clone();
        let answer = self.driver.try_update(&order, &update).await;
        Ok((format!("{update:?} {}: {answer:?}", order.target.name), Scope::Subject(number)))
    }

    /// Requests the deletion of one disk, as a controller does: only after it observed that there is no machine.
    async fn delete_disk(&mut self, number: usize) -> Result<(String, Scope), Failure> {
        let target = self.subject(number)?.order.target.clone();
        let observed = self.driver.testbed.backend().observe(&target, None).await;
        let Some(observed) = observed.ok().filter(|seen| seen.machine.is_none() && seen.task.is_none())
        else {
            return Ok((format!("retain the disks of {}", target.name), Scope::Nothing));
        };
        let chosen = self.numbers.below(observed.disks.len());
        let Some(disk) = observed.disks.get(chosen).map(|disk| disk.name.clone()) else {
            return Ok((format!("no disks of {}", target.name), Scope::Nothing));
        };
        self.subject(number)?.deleted_disks.insert(disk.clone());
        let answer = self.driver.try_delete(&target, &Part::Disks(vec![disk.clone()])).await;
        Ok((format!("delete disk {disk} of {}: {answer:?}", target.name), Scope::Subject(number)))
    }

    async fn fault(&mut self, number: usize) -> Result<(String, Scope), Failure> {
        let choice = self.numbers.below(12);
        let target = self.subject(number)?.order.target.clone();
        let fault = match choice {
            0..4 => Fault::LoseNextReply,
            4..8 => Fault::FailNextTask,
            8 => Fault::Unreachable(true),
            9 | 10 => Fault::Unreachable(false),
            _ if self.driver.machines_of(&target).await?.is_empty() => Fault::Unreachable(false),
            _ => Fault::Replace(target),
        };

        let description = format!("fault {fault:?}");
        let is_replaced = matches!(fault, Fault::Replace(_));
        self.driver.inject(fault).await?;
        if is_replaced {
            let subject = self.subject(number)?;
            subject.must_exist = false;
            subject.is_blocked = true;
            self.foreign = foreign_resources(&self.driver.resources().await?);
            return Ok((description, Scope::ThirdParty));
        }
        Ok((description, Scope::Nothing))
    }

    /// Checks the invariants.
    async fn check(&mut self, before: &[Resource], scope: Scope) -> Result<(), Failure> {
        let resources = self.driver.resources().await?;
        ensure_same("foreign resources", &foreign_resources(&resources), &self.foreign)?;
        let has_settled = matches!(scope, Scope::Time);
        for (number, subject) in self.subjects.iter_mut().enumerate() {
            let identity = &subject.order.target.identity;
            let of = |resources: &[Resource]| {
                let ours = resources.iter().filter(|resource| resource.identity.as_ref() == Some(identity));
                ours.map(|resource| {
                    (resource.kind, resource.id.clone(), resource.disk.clone(), resource.given.clone())
                })
                .collect::<Vec<_>>()
            };
            let now = of(&resources);
            let name = &subject.order.target.name;
            let is_bystander = match scope {
                Scope::Nothing => true,
                Scope::Subject(acting) => acting != number,
                Scope::Time | Scope::ThirdParty => false,
            };
            ensure(!is_bystander || now == of(before), || {
                format!("{name} was changed by a step that concerns another machine")
            })?;

            let machines = now.iter().filter(|(kind, ..)| *kind == ResourceKind::Machine).count();
            ensure(machines <= 1, || format!("{machines} machines carry the identity of {name}"))?;
            ensure(machines == 1 || !subject.must_exist, || {
                format!("the machine of {name} was deleted without a request")
            })?;

            let disks: BTreeSet<String> = now.iter().filter_map(|(_, _, disk, _)| disk.clone()).collect();
            let seen = self.volumes.entry(identity.clone()).or_default();
            seen.retain(|disk| !subject.deleted_disks.contains(disk));
            ensure(seen.is_subset(&disks), || {
                format!(
                    "volumes of {name} were deleted without a request: expected {seen:?}, found {disks:?}"
                )
            })?;

            // A disk that was deleted as requested counts again when it is recreated.
            subject.deleted_disks.retain(|disk| disks.contains(disk));
            seen.extend(disks);
            if has_settled && machines == 1 && !subject.is_blocked {
                // A failed deletion leaves the machine, which must exist until its deletion is requested again.
                subject.must_exist = true;
            }
        }
        Ok(())
    }

    /// Ends all faults, brings every machine up, and then deletes everything.
    async fn finish(&mut self) -> Result<(), Failure> {
        self.driver.inject(Fault::Unreachable(false)).await?;
        for number in 0..self.subjects.len() {
            let subject = self.subject(number)?;
            subject.order.desired.power = PowerState::Running;
            let (order, is_blocked) = (subject.order.clone(), subject.is_blocked);
            if !is_blocked {
                self.bring_up(&order).await?;
                let wanted: BTreeSet<String> =
                    order.desired.disks.iter().map(|disk| disk.name.clone()).collect();
                let disks: BTreeSet<String> =
                    self.driver.disks_of(&order.target).await?.into_iter().collect();
                ensure(wanted.is_subset(&disks), || {
                    format!("{} does not have all disks: {disks:?}", order.target.name)
                })?;
            }
        }

        for number in 0..self.subjects.len() {
            let target = self.subject(number)?.order.target.clone();
            self.bring_down(&target).await?;
        }

        let left = self.driver.resources().await?;
        ensure_same("resources after everything was deleted", &left, &self.foreign)
    }

    /// Acts as a controller: observes, then does the next missing step.
    async fn bring_up(&self, order: &Order) -> Result<(), Failure> {
        let mut last = String::new();
        for _ in 0..ROUNDS {
            self.driver.settle().await?;
            let observed = match self.driver.testbed.backend().observe(&order.target, Some(order)).await {
                Ok(observed) => observed,
                Err(error) => {
                    last = error.to_string();
                    continue;
                }
            };
            let answer = match &observed.machine {
                None => self.driver.try_create(order).await,
                Some(machine) if !machine.is_current => {
                    self.driver.try_update(order, &Update::Specification).await
                }
                Some(machine) if machine.power == Power::Running => return Ok(()),
                Some(_) => self.driver.try_update(order, &Update::Start).await,
            };
            last = format!("{answer:?}");
        }
        BreakRuleSnafu { found: format!("{} does not start: {last}", order.target.name) }.fail()
    }

    async fn bring_down(&self, target: &crate::Target) -> Result<(), Failure> {
        let mut last = String::new();
        for _ in 0..ROUNDS {
            self.driver.settle().await?;
            let observed = match self.driver.testbed.backend().observe(target, None).await {
                Ok(observed) => observed,
                Err(error) => {
                    last = error.to_string();
                    continue;
                }
            };
            let answer = if observed.machine.is_some() {
                self.driver.try_delete(target, &Part::Machine).await
            } else if observed.disks.is_empty() {
                return Ok(());
            } else {
                let disks = observed.disks.into_iter().map(|disk| disk.name).collect();
                self.driver.try_delete(target, &Part::Disks(disks)).await
            };
            last = format!("{answer:?}");
        }
        BreakRuleSnafu { found: format!("{} is not deleted: {last}", target.name) }.fail()
    }
}
