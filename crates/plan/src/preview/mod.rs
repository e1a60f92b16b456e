//! What would happen if manifests were applied.
//!
//! A pure function over two inventories: as it is, and as it would be. What can be decided is decided by the functions
//! that the operators use, so the sentences are those of conditions and events. What only a provider knows, such as
//! whether it has capacity, is not predicted.

mod difference;
mod forecast;
mod totals;

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::SignedDuration};
use serde::Serialize;
use vitistack_types::{
    ObjectId, Placement,
    conditions::{self, Statement, reason},
    labels,
    v1alpha1::{Machine, ProviderType},
};

pub use totals::{PriceChange, QuotaChange};

use self::{
    difference::{Difference, differences},
    forecast::{Cost, Destination, Forecast, MachineForecast},
};
use crate::{
    Inventory,
    command::command,
    machine::{Capabilities, Desired, Support, has_finalizer},
};

/// What happens to an object; the most severe of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Nothing.
    Unchanged,
    /// It is created.
    Create,
    /// It changes in place, immediately.
    Change,
    /// It changes, and some of it takes effect with the next restart.
    Restart,
    /// Some of it can never take effect on the existing machine, which stays as it is.
    Blocked,
    /// It changes, and a disk is deleted with its data.
    Destroys,
    /// The API rejects it, or no operator acts on it until something else changes.
    Refuse,
}

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Unchanged => "unchanged",
            Self::Create => "create",
            Self::Change => "change",
            Self::Restart => "restart",
            Self::Blocked => "blocked",
            Self::Destroys => "destroys",
            Self::Refuse => "refuse",
        })
    }
}

/// A field that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldChange {
    /// Its path, such as `spec.region`.
    pub path: String,
    /// The old and the new value, such as `west → east`.
    pub change: String,
}

impl fmt::Display for FieldChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.change)
    }
}

/// What applying a manifest does to the object in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is created.
    Created,
    /// These fields change; none if it stays as it is.
    Updated(Vec<FieldChange>),
    /// The API rejects it with this message.
    Rejected(String),
}

/// An object whose manifest is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The object.
    pub object: ObjectId,
    /// What applying it does.
    pub effect: Effect,
}

/// What happens to one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The object.
    pub object: ObjectId,
    /// What happens.
    pub action: Action,
    /// Whether it happens because another object changes.
    pub is_indirect: bool,
    /// The details, and why.
    pub why: Vec<String>,
}

/// What would happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// The objects: those that are applied first, in their order.
    pub entries: Vec<Entry>,
    /// Changes in what the Machines of Datacenters use.
    pub quotas: Vec<QuotaChange>,
    /// Changes in the price of all Machines.
    pub prices: Vec<PriceChange>,
}

impl Preview {
    /// Whether anything changes or is refused.
    #[must_use]
    pub fn has_change(&self) -> bool {
        self.entries.iter().any(|entry| entry.action != Action::Unchanged)
    }
}

/// Returns what would happen if an inventory became another one. `applied` is the difference between the two;
/// `capabilities` is what the backend of a type of provider can do.
#[must_use]
pub fn preview(
    before: &Inventory,
    after: &Inventory,
    applied: &[Applied],
    capabilities: &dyn Fn(ProviderType) -> Capabilities,
) -> Preview {
    let after = reconciled(after, applied);
    let (old_forecast, new_forecast) = (Forecast::new(before), Forecast::new(&after));
    let effects: BTreeMap<&ObjectId, &Effect> =
        applied.iter().map(|applied| (&applied.object, &applied.effect)).collect();
    let old_machines: BTreeMap<ObjectId, &Machine> =
        before.machines.iter().map(|machine| (ObjectId::of(machine), machine)).collect();

    let mut machines = BTreeMap::new();
    for machine in &after.machines {
        let object = ObjectId::of(machine);
        let effect = effects.get(&object).copied();
        let transition = Transition {
            before: old_machines.get(&object).map(|old| old_forecast.of(old)),
            after: new_forecast.of(machine),
            effect,
        };
        if let Some((action, why)) = transition.describe(&object, capabilities) {
            let entry = Entry { object: object.clone(), action, is_indirect: effect.is_none(), why };
            machines.insert(object, entry);
        }
    }

    let mut entries: Vec<Entry> = applied
        .iter()
        .map(|applied| machines.remove(&applied.object).unwrap_or_else(|| entry_of_object(applied)))
        .collect();
    entries.extend(machines.into_values());
    Preview {
        entries,
        quotas: totals::quotas(&old_forecast, &new_forecast),
        prices: totals::prices(&old_forecast, &new_forecast),
    }
}

/// The inventory once the operators have reconciled the objects that are created.
fn reconciled(after: &Inventory, applied: &[Applied]) -> Inventory {
    let mut after = after.clone();
    let created: BTreeMap<&ObjectId, i64> = applied
        .iter()
        .filter(|applied| applied.effect == Effect::Created)
        .map(|applied| &applied.object)
        .zip(0..)
        .collect();
    let now = after.now;

    for machine in &mut after.machines {
        let object = ObjectId::of(machine);
        if let Some(number) = created.get(&object) {
            // Quotas admit Machines by age: they are created in the order in which they are applied.
            let time = now.saturating_add(SignedDuration::from_millis(*number)).unwrap_or(now);
            machine.metadata.creation_timestamp = Some(Time(time));
            machine.metadata.uid = Some(format!("uid of {object}"));
        }
    }
    for provider in &mut after.providers {
        if created.contains_key(&ObjectId::of(provider)) {
            let ready = Statement {
                type_: conditions::READY,
                status: Some(true),
                reason: reason::AS_SPECIFIED,
                message: "Assumed to be ready",
            };
            let status = provider.status.get_or_insert_default();
            conditions::set(&mut status.conditions, &ready, None, now);
        }
    }
    after
}

/// What happens to an object that has no backing machine.
fn entry_of_object(Applied { object, effect }: &Applied) -> Entry {
    let (action, why) = match effect {
        Effect::Rejected(message) => (Action::Refuse, vec![message.clone()]),
        Effect::Created if object.kind == "MachineProvider" => {
            (Action::Create, vec!["assumed to be ready: whether it answers is not known".to_owned()])
        }
        Effect::Created => (Action::Create, Vec::new()),
        Effect::Updated(fields) if fields.is_empty() => (Action::Unchanged, Vec::new()),
        Effect::Updated(fields) => (Action::Change, fields.iter().map(ToString::to_string).collect()),
    };
    Entry { object: object.clone(), action, is_indirect: false, why }
}

/// A Machine before and after.
struct Transition<'a> {
    before: Option<MachineForecast<'a>>,
    after: MachineForecast<'a>,
    effect: Option<&'a Effect>,
}

impl Transition<'_> {
    /// What happens to it and why, if there is something to report.
    fn describe(
        &self,
        object: &ObjectId,
        capabilities: &dyn Fn(ProviderType) -> Capabilities,
    ) -> Option<(Action, Vec<String>)> {
        match self.effect {
            // Reported with the message of the API.
            Some(Effect::Rejected(_)) => None,
            Some(Effect::Created) => Some(self.created()),
            Some(Effect::Updated(fields)) => Some(self.changed(object, fields, capabilities)),
            None => {
                let (action, why) = self.changed(object, &[], capabilities);
                (action != Action::Unchanged).then_some((action, why))
            }
        }
    }

    fn created(&self) -> (Action, Vec<String>) {
        let mut why: Vec<String> = self.after.desired.iter().map(summary).collect();
        match &self.after.destination {
            Destination::Refused(refusal) => {
                why.insert(0, format!("{}: {}", refusal.reason, refusal.message));
                (Action::Refuse, why)
            }
            Destination::At { placement, why: chosen } => {
                why.push(placed_on(placement, chosen.as_ref()));
                why.extend(self.after.price.as_ref().map(|price| format!("price: {price}")));
                (Action::Create, why)
            }
            Destination::Waiting(sentence) => {
                why.push((*sentence).to_owned());
                (Action::Create, why)
            }
        }
    }

    fn changed(
        &self,
        object: &ObjectId,
        fields: &[FieldChange],
        capabilities: &dyn Fn(ProviderType) -> Capabilities,
    ) -> (Action, Vec<String>) {
        let Some(before) = &self.before else { return self.created() };
        let parts = match (&before.desired, &self.after.desired) {
            (Ok(before), Ok(after)) => differences(before, after),
            _ => Vec::new(),
        };

        let mut action = if fields.is_empty() { Action::Unchanged } else { Action::Change };
        let (metadata, others): (Vec<&FieldChange>, Vec<&FieldChange>) =
            fields.iter().partition(|field| field.path.starts_with("metadata."));
        let mut why: Vec<String> = metadata.iter().map(ToString::to_string).collect();
        if parts.is_empty() {
            why.extend(others.iter().map(ToString::to_string));
        }

        let is_created = has_finalizer(before.machine);
        let is_off = [&before.desired, &self.after.desired].into_iter().flatten().any(Desired::is_off);
        let able = self.after.provider_type.filter(|_| is_created).map(capabilities);
        let mut needs_restart = false;
        for part in &parts {
            let support = able.as_ref().map(|able| part.support(able));
            let (effect, how) = effect_of(support, is_off);
            needs_restart |= effect == Action::Restart;
            let is_destroyed = part.destroys && support.is_some_and(|support| support != Support::Never);
            action = action.max(if is_destroyed { Action::Destroys } else { effect });
            let consequence = if support.is_some() { part.consequence } else { "" };
            why.push(format!("{}{how}{consequence}", part.what));
        }

        let restart_at = format!("metadata.annotations.{}", labels::RESTART_AT);
        let requests_restart = fields.iter().any(|field| field.path == restart_at);
        if requests_restart && is_created && !is_off {
            action = action.max(Action::Restart);
            why.push("restarted immediately, as the annotation requests".to_owned());
        } else if needs_restart && action != Action::Blocked {
            why.push(format!("restart it when convenient: `{}`", command("power restart", object)));
        }

        self.add_destination(before, &mut action, &mut why);
        (action, why)
    }

    /// Adds what changes in its placement, in what blocks it, and in its price.
    fn add_destination(&self, before: &MachineForecast<'_>, action: &mut Action, why: &mut Vec<String>) {
        let after = &self.after;
        match &after.destination {
            Destination::Refused(refusal) => {
                // The numbers in the message may change while the reason stays.
                let is_known = matches!(
                    &before.destination,
                    Destination::Refused(before) if before.reason == refusal.reason
                );
                if *action != Action::Unchanged || !is_known {
                    *action = Action::Refuse;
                }
                why.insert(0, format!("{}: {}", refusal.reason, refusal.message));
            }
            Destination::At { placement, why: chosen }
                if before.destination.placement() != Some(placement) =>
            {
                *action = (*action).max(Action::Change);
                why.push(placed_on(placement, chosen.as_ref()));
            }
            Destination::Waiting(sentence) if *action != Action::Unchanged => {
                why.push((*sentence).to_owned());
            }
            Destination::At { .. } | Destination::Waiting(_) => {}
        }

        // A Machine that is refused stays as it is, at its price.
        if before.price != after.price && *action != Action::Refuse {
            let print = |price: &Option<Cost>| {
                price.as_ref().map_or_else(|| "unknown".to_owned(), ToString::to_string)
            };
            *action = (*action).max(Action::Change);
            why.push(format!("price: {} → {}", print(&before.price), print(&after.price)));
        }
    }
}

/// Where a Machine goes, in the sentence of its Datacenter if that decided it.
fn placed_on(placement: &Placement, chosen: Option<&String>) -> String {
    chosen.cloned().unwrap_or_else(|| match placement.provider() {
        Some(provider) => format!("Placed on {provider}"),
        None => "Placed in the cluster itself".to_owned(),
    })
}

/// What a change of a part means, and how it takes effect. Without support nothing was created yet.
fn effect_of(support: Option<Support>, is_off: bool) -> (Action, &'static str) {
    match support {
        None => (Action::Change, ", before the machine is created"),
        Some(Support::InPlace) => (Action::Change, ", immediately"),
        Some(Support::AtRestart) if is_off => (Action::Change, ", when it starts"),
        Some(Support::AtRestart) => (Action::Restart, ", with the next restart"),
        Some(Support::Never) => (
            Action::Blocked,
            ": the provider cannot change it on the existing machine: revert the change, or create another Machine",
        ),
    }
}

/// The machine in a few words.
fn summary(desired: &Desired) -> String {
    let disks: Vec<String> =
        desired.disks.iter().map(|disk| format!("disk {} {}", disk.name, disk.size)).collect();
    let disks = if disks.is_empty() { "no disk".to_owned() } else { disks.join(", ") };
    let power = if desired.is_off() { ", stopped" } else { "" };
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
            difference::Part::Immediate => Support::InPlace,
            difference::Part::Fixed => Support::Never,
        }
    }
}
