//! Calls, faults and restarts in an order that only the seed knows, with the rules looked at after each.

use std::collections::{BTreeMap, BTreeSet};

use vitistack_plan::machine::{Identity, Power, Support};
use vitistack_types::v1alpha1::PowerState;

use super::{
    BreakRuleSnafu, Failure, Fault, Harness, Thing, ThingKind,
    fields::{self, Change},
    fixture::{order, target},
    scene::{Scene, ensure, ensure_same},
};
use crate::{Order, Part, Update, simulated::faults::mix};

/// Rounds in which a machine has to come to its end once nothing breaks any more on purpose.
const ROUNDS: usize = 300;

/// How one run goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interleaving {
    /// Decides every step; the same seed gives the same run.
    pub seed: u64,
    /// How many steps.
    pub steps: usize,
}

/// Numbers that follow from a seed.
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

/// One machine of the run, and what was asked for it.
struct Actor {
    order: Order,
    /// Whether its machine was seen whole and its deletion was not asked for since: then it has to be there.
    must_exist: bool,
    /// Somebody else's machine has its name, so that none can be made for it.
    is_blocked: bool,
    /// Disks whose deletion was asked for.
    given_up: BTreeSet<String>,
    restarts: usize,
}

/// A run.
struct Play {
    scene: Scene,
    numbers: Numbers,
    actors: Vec<Actor>,
    /// What is not ours, as it was when it came.
    strangers: Vec<Thing>,
    /// Volumes of ours that were ever seen and not given up.
    volumes: BTreeMap<Identity, BTreeSet<String>>,
}

/// What a step may change: everything of this identity, and nothing else.
#[derive(Clone, Copy)]
enum Touches {
    Nothing,
    Actor(usize),
    /// Time passed until nothing was left to do: every machine may be another, and those that are there are whole.
    Time,
    /// Somebody else acted.
    Strangers,
}

/// Plays one run. A failure names seed and step, with which it can be repeated.
pub async fn interleave(harness: &dyn Harness, interleaving: Interleaving) -> Result<(), Failure> {
    let Interleaving { seed, steps } = interleaving;
    let scene = Scene::fresh(harness).await?;
    scene.inject(Fault::ForeignMachine(target(super::NAMESPACE, "stranger"))).await?;
    let actors = ["a", "b", "c"].map(|name| {
        let order = order(name)?;
        Ok(Actor { order, must_exist: false, is_blocked: false, given_up: BTreeSet::new(), restarts: 0 })
    });
    let strangers = strangers(&scene.things().await?);
    let mut play = Play {
        scene,
        numbers: Numbers { state: seed },
        actors: actors.into_iter().collect::<Result<_, Failure>>()?,
        strangers,
        volumes: BTreeMap::new(),
    };
    let mut history = Vec::new();
    for step in 0..steps {
        let at = |failure: &Failure, history: &[String]| Failure::BreakRule {
            found: format!("seed {seed}, step {step}: {failure}\n        after {}", history.join("; ")),
        };
        let before = play.scene.things().await?;
        let (words, touches) = play.step().await.map_err(|failure| at(&failure, &history))?;
        history.push(words);
        play.look(&before, touches).await.map_err(|failure| at(&failure, &history))?;
    }
    let end = play.finish().await;
    end.map_err(|failure| Failure::BreakRule {
        found: format!("seed {seed}, at the end: {failure}\n        after {}", history.join("; ")),
    })
}

fn strangers(things: &[Thing]) -> Vec<Thing> {
    things.iter().filter(|thing| thing.identity.is_none()).cloned().collect()
}

impl Play {
    /// Does one thing. What the backend answers does not matter here: only what there is afterwards does.
    async fn step(&mut self) -> Result<(String, Touches), Failure> {
        let number = self.numbers.below(self.actors.len());
        let choice = self.numbers.below(100);
        let name = self.actor(number)?.order.target.name.clone();
        let (words, touches) = match choice {
            0..25 => {
                let order = self.actor(number)?.order.clone();
                let answer = self.scene.try_create(&order).await;
                (format!("create {name}: {answer:?}"), Touches::Actor(number))
            }
            25..35 => self.change(number).await?,
            35..50 => self.power(number).await?,
            50..60 => {
                let actor = self.actor(number)?;
                actor.must_exist = false;
                let target = actor.order.target.clone();
                let answer = self.scene.try_delete(&target, &Part::Machine).await;
                (format!("delete {name}: {answer:?}"), Touches::Actor(number))
            }
            60..67 => self.give_up_disk(number).await?,
            67..75 => {
                let order = self.actor(number)?.order.clone();
                let observed = self.scene.bench.backend().observe(&order.target, Some(&order)).await;
                let words = observed
                    .map_or("failed", |observed| if observed.machine.is_some() { "there" } else { "absent" });
                (format!("observe {name}: {words}"), Touches::Nothing)
            }
            75..87 => {
                self.scene.settle().await?;
                ("settle".to_owned(), Touches::Time)
            }
            87..96 => self.fault(number).await?,
            _ => {
                self.scene.bench.restart().await?;
                ("restart the backend".to_owned(), Touches::Nothing)
            }
        };
        Ok((words, touches))
    }

    fn actor(&mut self, number: usize) -> Result<&mut Actor, Failure> {
        self.actors
            .get_mut(number)
            .ok_or_else(|| BreakRuleSnafu { found: "the suite lost one of its actors" }.build())
    }

    /// Changes the order by one field and asks for it.
    async fn change(&mut self, number: usize) -> Result<(String, Touches), Failure> {
        let capabilities = self.scene.bench.backend().capabilities();
        let mut fields = fields::all();
        fields.retain(|field| {
            let support = match field.change {
                Change::Resize => capabilities.resize,
                Change::GrowDisk => capabilities.grow_disk,
                Change::Disks => capabilities.change_disks,
                Change::Interfaces => capabilities.change_interfaces,
                Change::Hardware => capabilities.change_hardware,
                Change::Policy | Change::FirstBoot => Support::InPlace,
                Change::Once | Change::Power => Support::Never,
            };
            support != Support::Never && !field.is_refused_by(&capabilities)
        });
        let chosen = self.numbers.below(fields.len());
        let order = self.actor(number)?.order.clone();
        let Some(field) = fields.get(chosen) else { return Ok(("nothing".to_owned(), Touches::Nothing)) };
        let mut changed = field.changed(&order, &[])?;
        // The same field may be chosen twice; a second disk or interface of one name is no order.
        changed.desired.disks.dedup_by(|one, other| one.name == other.name);
        changed.desired.interfaces.dedup_by(|one, other| one.name == other.name);
        self.actor(number)?.order = changed.clone();
        let answer = self.scene.try_update(&changed, &Update::Specification).await;
        Ok((format!("change {} of {}: {answer:?}", field.path, order.target.name), Touches::Actor(number)))
    }

    async fn power(&mut self, number: usize) -> Result<(String, Touches), Failure> {
        let can_stop = self.scene.bench.backend().capabilities().power;
        let choice = self.numbers.below(3);
        let actor = self.actor(number)?;
        let update = match choice {
            0 => Update::Start,
            1 if can_stop => Update::Stop,
            _ => {
                actor.restarts += 1;
                // Every second time the request before comes again.
                Update::Restart { request: format!("request-{}", actor.restarts / 2) }
            }
        };
        let order = actor.order.clone();
        let answer = self.scene.try_update(&order, &update).await;
        Ok((format!("{update:?} {}: {answer:?}", order.target.name), Touches::Actor(number)))
    }

    /// Asks for the deletion of one volume, as a controller may: only when it saw that there is no machine.
    async fn give_up_disk(&mut self, number: usize) -> Result<(String, Touches), Failure> {
        let target = self.actor(number)?.order.target.clone();
        let observed = self.scene.bench.backend().observe(&target, None).await;
        let Some(observed) = observed.ok().filter(|seen| seen.machine.is_none() && seen.task.is_none())
        else {
            return Ok((format!("keep the disks of {}", target.name), Touches::Nothing));
        };
        let chosen = self.numbers.below(observed.disks.len());
        let Some(disk) = observed.disks.get(chosen).map(|disk| disk.name.clone()) else {
            return Ok((format!("no disks of {}", target.name), Touches::Nothing));
        };
        self.actor(number)?.given_up.insert(disk.clone());
        let answer = self.scene.try_delete(&target, &Part::Disks(vec![disk.clone()])).await;
        Ok((format!("delete disk {disk} of {}: {answer:?}", target.name), Touches::Actor(number)))
    }

    async fn fault(&mut self, number: usize) -> Result<(String, Touches), Failure> {
        let choice = self.numbers.below(12);
        let target = self.actor(number)?.order.target.clone();
        let fault = match choice {
            0..4 => Fault::LoseNextReply,
            4..8 => Fault::FailNextTask,
            8 => Fault::Unreachable(true),
            9 | 10 => Fault::Unreachable(false),
            _ if self.scene.machines_of(&target).await?.is_empty() => Fault::Unreachable(false),
            _ => Fault::Replace(target),
        };
        let words = format!("fault {fault:?}");
        let is_replaced = matches!(fault, Fault::Replace(_));
        self.scene.inject(fault).await?;
        if is_replaced {
            let actor = self.actor(number)?;
            actor.must_exist = false;
            actor.is_blocked = true;
            self.strangers = strangers(&self.scene.things().await?);
            return Ok((words, Touches::Strangers));
        }
        Ok((words, Touches::Nothing))
    }

    /// Looks at every rule.
    async fn look(&mut self, before: &[Thing], touches: Touches) -> Result<(), Failure> {
        let things = self.scene.things().await?;
        ensure_same("what is not ours", &strangers(&things), &self.strangers)?;
        let has_settled = matches!(touches, Touches::Time);
        for (number, actor) in self.actors.iter_mut().enumerate() {
            let identity = &actor.order.target.identity;
            let of = |things: &[Thing]| {
                let ours = things.iter().filter(|thing| thing.identity.as_ref() == Some(identity));
                ours.map(|thing| (thing.kind, thing.id.clone(), thing.disk.clone(), thing.given.clone()))
                    .collect::<Vec<_>>()
            };
            let now = of(&things);
            let name = &actor.order.target.name;
            let is_bystander = match touches {
                Touches::Nothing => true,
                Touches::Actor(acting) => acting != number,
                Touches::Time | Touches::Strangers => false,
            };
            ensure(!is_bystander || now == of(before), || {
                format!("{name} was changed by a call about another")
            })?;
            let machines = now.iter().filter(|(kind, ..)| *kind == ThingKind::Machine).count();
            ensure(machines <= 1, || format!("{machines} machines carry the identity of {name}"))?;
            ensure(machines == 1 || !actor.must_exist, || {
                format!("the machine of {name} is gone, and nobody asked")
            })?;
            let disks: BTreeSet<String> = now.iter().filter_map(|(_, _, disk, _)| disk.clone()).collect();
            let seen = self.volumes.entry(identity.clone()).or_default();
            seen.retain(|disk| !actor.given_up.contains(disk));
            ensure(seen.is_subset(&disks), || {
                format!(
                    "volumes of {name} are gone, and nobody asked: there were {seen:?}, there are {disks:?}"
                )
            })?;
            // What is gone was deleted as asked: should it be made anew, it counts again.
            actor.given_up.retain(|disk| disks.contains(disk));
            seen.extend(disks);
            if has_settled && machines == 1 && !actor.is_blocked {
                // A delete that was asked for and failed leaves the machine; it has to stay until it is asked for again.
                actor.must_exist = true;
            }
        }
        Ok(())
    }

    /// Lets nothing more go wrong on purpose, brings every machine up and then everything down.
    async fn finish(&mut self) -> Result<(), Failure> {
        self.scene.inject(Fault::Unreachable(false)).await?;
        for number in 0..self.actors.len() {
            let actor = self.actor(number)?;
            actor.order.desired.power = PowerState::Running;
            let (order, is_blocked) = (actor.order.clone(), actor.is_blocked);
            if !is_blocked {
                self.bring_up(&order).await?;
                let wanted: BTreeSet<String> =
                    order.desired.disks.iter().map(|disk| disk.name.clone()).collect();
                let disks: BTreeSet<String> = self.scene.disks_of(&order.target).await?.into_iter().collect();
                ensure(wanted.is_subset(&disks), || format!("{} lacks disks: {disks:?}", order.target.name))?;
            }
        }
        for number in 0..self.actors.len() {
            let target = self.actor(number)?.order.target.clone();
            self.bring_down(&target).await?;
        }
        let left = self.scene.things().await?;
        ensure_same("what is left when everything of ours is deleted", &left, &self.strangers)
    }

    /// What a controller does: observe, then the one thing that is missing.
    async fn bring_up(&self, order: &Order) -> Result<(), Failure> {
        let mut last = String::new();
        for _ in 0..ROUNDS {
            self.scene.settle().await?;
            let observed = match self.scene.bench.backend().observe(&order.target, Some(order)).await {
                Ok(observed) => observed,
                Err(error) => {
                    last = error.to_string();
                    continue;
                }
            };
            let answer = match &observed.machine {
                None => self.scene.try_create(order).await,
                Some(machine) if !machine.is_current => {
                    self.scene.try_update(order, &Update::Specification).await
                }
                Some(machine) if machine.power == Power::Running => return Ok(()),
                Some(_) => self.scene.try_update(order, &Update::Start).await,
            };
            last = format!("{answer:?}");
        }
        BreakRuleSnafu { found: format!("{} does not come up: {last}", order.target.name) }.fail()
    }

    async fn bring_down(&self, target: &crate::Target) -> Result<(), Failure> {
        let mut last = String::new();
        for _ in 0..ROUNDS {
            self.scene.settle().await?;
            let observed = match self.scene.bench.backend().observe(target, None).await {
                Ok(observed) => observed,
                Err(error) => {
                    last = error.to_string();
                    continue;
                }
            };
            let answer = if observed.machine.is_some() {
                self.scene.try_delete(target, &Part::Machine).await
            } else if observed.disks.is_empty() {
                return Ok(());
            } else {
                let disks = observed.disks.into_iter().map(|disk| disk.name).collect();
                self.scene.try_delete(target, &Part::Disks(disks)).await
            };
            last = format!("{answer:?}");
        }
        BreakRuleSnafu { found: format!("{} does not go: {last}", target.name) }.fail()
    }
}
