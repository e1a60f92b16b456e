//! What would become of objects if others were laid over them.
//!
//! A pure function over two worlds: as it is, and as it would be. Whatever can be decided is decided by the functions
//! that the operators use, so the words are those of conditions and events. What only a provider knows, such as whether
//! it has room, is not foretold.

mod difference;
mod outlook;
mod totals;

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::SignedDuration};
use serde::Serialize;
use vitistack_types::{
    conditions::{self, Statement, reason},
    labels,
    v1alpha1::{Machine, ProviderType},
};

pub use totals::{PriceChange, QuotaChange};

use self::{
    difference::{Difference, differences},
    outlook::{Outlook, Placed, Standing},
};
use crate::{
    explain::{World, command, object},
    machine::{Capabilities, Desired, Support, has_finalizer},
};

/// What happens to an object; the gravest of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Nothing.
    Unchanged,
    /// It is made.
    Create,
    /// It changes where it is, at once.
    Change,
    /// It changes, and some of it takes effect with the next restart.
    Restart,
    /// Some of it can never be had on the machine that is there: it would have to be made anew.
    Replace,
    /// The API does not take it, or nobody acts on it until something else changes.
    Refuse,
}

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Unchanged => "unchanged",
            Self::Create => "create",
            Self::Change => "change",
            Self::Restart => "restart",
            Self::Replace => "replace",
            Self::Refuse => "refuse",
        })
    }
}

/// A field that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Where it is, such as `spec.region`.
    pub path: String,
    /// What it is and what it would be, such as `west → east`.
    pub change: String,
}

/// How an object would stand in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Laid {
    /// It is new.
    New,
    /// It is there, and these fields change; none if it stays as it is.
    Over(Vec<Field>),
    /// The API does not take it, in its own words.
    Refused(String),
}

/// An object that is laid over the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Which, such as `Machine default/web-1`.
    pub object: String,
    /// How.
    pub laid: Laid,
}

/// What happens to one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Which, such as `Machine default/web-1`.
    pub object: String,
    /// What.
    pub action: Action,
    /// Whether it happens to it because another object changes.
    pub is_indirect: bool,
    /// What in particular, and why.
    pub why: Vec<String>,
}

/// What would happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// To which objects: those that are laid over first, in their order.
    pub entries: Vec<Entry>,
    /// What changes in the use of Datacenters, or in its limits.
    pub quotas: Vec<QuotaChange>,
    /// What changes in what all Machines cost.
    pub prices: Vec<PriceChange>,
}

impl Preview {
    /// Whether anything changes or is refused.
    #[must_use]
    pub fn has_change(&self) -> bool {
        self.entries.iter().any(|entry| entry.action != Action::Unchanged)
    }
}

/// What would happen if the world became another one. `changed` is what was laid over the one to make the other;
/// `capabilities` is what the backend of a type of provider can do.
#[must_use]
pub fn preview(
    before: &World,
    after: &World,
    changed: &[Changed],
    capabilities: &dyn Fn(ProviderType) -> Capabilities,
) -> Preview {
    let after = settled(after, changed);
    let (was, will) = (Outlook::new(before), Outlook::new(&after));
    let names: BTreeMap<&str, &Changed> = changed.iter().map(|each| (each.object.as_str(), each)).collect();
    let old: BTreeMap<String, &Machine> =
        before.machines.iter().map(|machine| (object("Machine", &machine.metadata), machine)).collect();
    let mut of_machines = BTreeMap::new();
    for machine in &after.machines {
        let own = object("Machine", &machine.metadata);
        let pair = Pair {
            before: old.get(&own).map(|old| (*old, was.of(old))),
            after: (machine, will.of(machine)),
            changed: names.get(own.as_str()).copied(),
        };
        if let Some((action, why)) = pair.told(&own, capabilities) {
            let is_indirect = pair.changed.is_none();
            of_machines.insert(own.clone(), Entry { object: own, action, is_indirect, why });
        }
    }
    let direct = changed.iter().map(|each| of_machines.remove(&each.object).unwrap_or_else(|| plain(each)));
    let mut entries: Vec<Entry> = direct.collect();
    entries.extend(of_machines.into_values());
    Preview { entries, quotas: totals::quotas(&was, &will), prices: totals::prices(&was, &will) }
}

/// The world once those who look after new objects have seen them.
fn settled(after: &World, changed: &[Changed]) -> World {
    let mut after = after.clone();
    let new: BTreeMap<&str, i64> = changed
        .iter()
        .filter(|each| each.laid == Laid::New)
        .map(|each| each.object.as_str())
        .zip(0..)
        .collect();
    let now = after.now;
    for machine in &mut after.machines {
        let own = object("Machine", &machine.metadata);
        if let Some(number) = new.get(own.as_str()) {
            // Whoever is made later is let in later, in the order in which they are laid over.
            let made = now.saturating_add(SignedDuration::from_millis(*number)).unwrap_or(now);
            machine.metadata.creation_timestamp = Some(Time(made));
            machine.metadata.uid = Some(format!("the uid of {own}"));
        }
    }
    for provider in &mut after.providers {
        if new.contains_key(object("MachineProvider", &provider.metadata).as_str()) {
            let ready = Statement {
                type_: conditions::READY,
                status: Some(true),
                reason: reason::AS_SPECIFIED,
                message: "it is taken to be ready",
            };
            let status = provider.status.get_or_insert_default();
            conditions::set(&mut status.conditions, &ready, None, now);
        }
    }
    after
}

/// An object that nobody makes anything for.
fn plain(changed: &Changed) -> Entry {
    let (action, why) = match &changed.laid {
        Laid::Refused(message) => (Action::Refuse, vec![message.clone()]),
        Laid::New if changed.object.starts_with("MachineProvider ") => {
            (Action::Create, vec!["it is taken to be ready; whether it answers is not known".to_owned()])
        }
        Laid::New => (Action::Create, Vec::new()),
        Laid::Over(fields) if fields.is_empty() => (Action::Unchanged, Vec::new()),
        Laid::Over(fields) => (Action::Change, fields.iter().map(told).collect()),
    };
    Entry { object: changed.object.clone(), action, is_indirect: false, why }
}

fn told(field: &Field) -> String {
    format!("{}: {}", field.path, field.change)
}

/// A Machine before and after.
struct Pair<'a> {
    before: Option<(&'a Machine, Standing<'a>)>,
    after: (&'a Machine, Standing<'a>),
    changed: Option<&'a Changed>,
}

impl Pair<'_> {
    /// What happens to it and why; none if nothing is to be told.
    fn told(
        &self,
        own: &str,
        capabilities: &dyn Fn(ProviderType) -> Capabilities,
    ) -> Option<(Action, Vec<String>)> {
        match self.changed.map(|changed| &changed.laid) {
            // Told with the words of the API.
            Some(Laid::Refused(_)) => None,
            Some(Laid::New) => Some(self.created()),
            Some(Laid::Over(fields)) => Some(self.changes(own, fields, capabilities)),
            None => {
                let (action, why) = self.changes(own, &[], capabilities);
                (action != Action::Unchanged).then_some((action, why))
            }
        }
    }

    fn created(&self) -> (Action, Vec<String>) {
        let (_, standing) = &self.after;
        let mut why = Vec::new();
        if let Ok(desired) = &standing.desired {
            why.push(summary(desired));
        }
        match &standing.placed {
            Placed::Refused(refusal) => {
                why.insert(0, format!("{}: {}", refusal.reason, refusal.message));
                (Action::Refuse, why)
            }
            Placed::At { place, because } => {
                let because = because.as_ref().map(|because| format!(": {because}")).unwrap_or_default();
                why.push(format!("goes to {}{because}", outlook::title(place)));
                why.extend(standing.price.as_ref().map(|price| format!("price: {price}")));
                (Action::Create, why)
            }
            Placed::Waits(what) => {
                why.push((*what).to_owned());
                (Action::Create, why)
            }
        }
    }

    fn changes(
        &self,
        own: &str,
        fields: &[Field],
        capabilities: &dyn Fn(ProviderType) -> Capabilities,
    ) -> (Action, Vec<String>) {
        let Some((old, was)) = &self.before else { return self.created() };
        let (_, will) = &self.after;
        let mut action = if fields.is_empty() { Action::Unchanged } else { Action::Change };
        let in_metadata = |field: &&Field| field.path.starts_with("metadata.");
        let mut why: Vec<String> = fields.iter().filter(in_metadata).map(told).collect();
        let parts = match (&was.desired, &will.desired) {
            (Ok(before), Ok(after)) => differences(before, after),
            _ => Vec::new(),
        };
        if parts.is_empty() {
            why.extend(fields.iter().filter(|field| !in_metadata(field)).map(told));
        }
        let is_off = [&was.desired, &will.desired].into_iter().flatten().any(Desired::is_off);
        let able = will.provider_type.map(capabilities);
        for part in &parts {
            let support =
                if has_finalizer(old) { able.as_ref().map(|able| part.support(able)) } else { None };
            let (part_action, how) = effect(support, is_off);
            action = action.max(part_action);
            let then = if support.is_some() { part.then } else { "" };
            why.push(format!("{}{how}{then}", part.what));
        }
        let asks_restart = format!("metadata.annotations.{}", labels::RESTART_AT);
        if fields.iter().any(|field| field.path == asks_restart) && has_finalizer(old) && !is_off {
            action = action.max(Action::Restart);
            why.push("it is restarted at once, as the annotation asks for".to_owned());
        } else if action == Action::Restart {
            why.push(format!("restart it when it suits: `{}`", command("power restart", own)));
        }
        self.moves(&mut action, &mut why);
        (action, why)
    }

    /// What changes in where it is, in what stands in its way, and in its price.
    fn moves(&self, action: &mut Action, why: &mut Vec<String>) {
        let Some((_, was)) = &self.before else { return };
        let (_, will) = &self.after;
        match &will.placed {
            Placed::Refused(refusal) => {
                // The numbers in the words may change while it stays refused.
                let is_known =
                    matches!(&was.placed, Placed::Refused(before) if before.reason == refusal.reason);
                if *action != Action::Unchanged || !is_known {
                    *action = Action::Refuse;
                }
                why.insert(0, format!("{}: {}", refusal.reason, refusal.message));
            }
            Placed::At { place, because } if was.placed.place() != Some(place) => {
                *action = (*action).max(Action::Change);
                let because = because.as_ref().map(|because| format!(": {because}")).unwrap_or_default();
                why.push(format!("goes to {}{because}", outlook::title(place)));
            }
            Placed::Waits(what) if *action != Action::Unchanged => why.push((*what).to_owned()),
            Placed::At { .. } | Placed::Waits(_) => {}
        }
        // One that is refused stays as it is, at its price.
        if was.price != will.price && *action != Action::Refuse {
            let word = |price: &Option<outlook::Cost>| {
                price.as_ref().map_or_else(|| "not known".to_owned(), ToString::to_string)
            };
            *action = (*action).max(Action::Change);
            why.push(format!("price: {} → {}", word(&was.price), word(&will.price)));
        }
    }
}

/// What a change of a part means, and the words for it. Without support nothing was made yet.
fn effect(support: Option<Support>, is_off: bool) -> (Action, &'static str) {
    match support {
        None => (Action::Change, ", before anything is made"),
        Some(Support::InPlace) => (Action::Change, ", at once"),
        Some(Support::AtRestart) if is_off => (Action::Change, ", when it starts"),
        Some(Support::AtRestart) => (Action::Restart, ", with the next restart"),
        Some(Support::Never) => (
            Action::Replace,
            ": the provider cannot honour it on the machine that is there: change it back, or make another Machine",
        ),
    }
}

/// The machine in short.
fn summary(desired: &Desired) -> String {
    let disks: Vec<String> =
        desired.disks.iter().map(|disk| format!("disk {} {}", disk.name, disk.size)).collect();
    let disks = if disks.is_empty() { "no disk".to_owned() } else { disks.join(", ") };
    let power = if desired.is_off() { ", off" } else { "" };
    format!("{} CPU, {} memory, {disks}{power}", desired.cpu.total(), desired.memory)
}

impl Difference {
    /// How a backend carries it out.
    fn support(&self, able: &Capabilities) -> Support {
        match self.part {
            difference::Part::Size => able.resize,
            difference::Part::DiskSize => able.grow_disk,
            difference::Part::Disks => able.change_disks,
            difference::Part::Interfaces => able.change_interfaces,
            difference::Part::Hardware => able.change_hardware,
            difference::Part::AtOnce => Support::InPlace,
            difference::Part::Fixed => Support::Never,
        }
    }
}
