//! What all Machines use and cost in total, before and after.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use vitistack_types::{Amount, ObjectId, ObjectName, Quantity, v1alpha1::Datacenter};

use super::forecast::{Cost, Forecast, MachineForecast};
use crate::{datacenter::Usage, machine::has_finalizer};

/// A change in what the Machines of a Datacenter use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaChange {
    /// The Datacenter.
    pub datacenter: ObjectId,
    /// The resource: machines, cpu, memory or storage.
    pub resource: &'static str,
    /// What is used.
    pub before: String,
    /// What would be used.
    pub after: String,
    /// The limit that its quotas would set, if they set one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Whether more would be used than the quotas allow: a Machine that was admitted stays, even if the quota is lowered.
    pub is_exceeded: bool,
}

/// A change in the price of all Machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PriceChange {
    /// The currency.
    pub currency: String,
    /// The price per hour.
    pub before: Amount,
    /// The price per hour that it would be.
    pub after: Amount,
}

/// A resource, what is used of it, and its limit.
type Row = (&'static str, u64, Option<u64>);

fn rows(datacenter: &Datacenter, used: Usage) -> [Row; 4] {
    let limits = datacenter.spec.resource_quotas.clone().unwrap_or_default();
    let units = |quantity: Option<Quantity>| quantity.map(|quantity| quantity.units());
    [
        ("machines", used.machines.into(), limits.max_machines.map(u64::from)),
        ("cpu", used.cpu.into(), limits.max_cpu.map(u64::from)),
        ("memory", used.memory, units(limits.max_memory)),
        ("storage", used.storage, units(limits.max_storage)),
    ]
}

/// A number of a resource as users write it.
fn print(resource: &str, number: u64) -> String {
    match resource {
        "memory" | "storage" => Quantity::from_units(number).to_string(),
        _ => number.to_string(),
    }
}

/// Returns the changes in what the Machines of each Datacenter use.
pub(super) fn quotas(before: &Forecast<'_>, after: &Forecast<'_>) -> Vec<QuotaChange> {
    let mut changes = Vec::new();
    for (id, (datacenter, used)) in &after.used {
        let old = before
            .used
            .get(id)
            .map_or_else(|| rows(datacenter, Usage::default()), |(datacenter, used)| rows(datacenter, *used));
        for ((resource, old, _), (_, new, limit)) in old.into_iter().zip(rows(datacenter, *used)) {
            if old == new {
                continue;
            }
            changes.push(QuotaChange {
                datacenter: id.clone(),
                resource,
                before: print(resource, old),
                after: print(resource, new),
                limit: limit.map(|limit| print(resource, limit)),
                is_exceeded: limit.is_some_and(|limit| new > limit),
            });
        }
    }
    changes
}

/// Returns the changes in the price of all Machines. A Machine that is not created costs nothing, and one of unknown price
/// counts as nothing.
pub(super) fn prices(before: &Forecast<'_>, after: &Forecast<'_>) -> Vec<PriceChange> {
    let mut costs = BTreeMap::new();
    let (before, after) = (price_by_currency(before, &mut costs), price_by_currency(after, &mut costs));

    let currencies: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let price = |sums: &BTreeMap<String, Amount>, currency: &String| {
        sums.get(currency).copied().unwrap_or(Amount::ZERO)
    };
    currencies
        .into_iter()
        .map(|currency| PriceChange {
            currency: currency.clone(),
            before: price(&before, currency),
            after: price(&after, currency),
        })
        .filter(|change| change.before != change.after)
        .collect()
}

/// Adds up prices. `costs` holds the last known price of each Machine, which one that can no longer be resolved keeps.
fn price_by_currency(
    forecast: &Forecast<'_>,
    costs: &mut BTreeMap<ObjectName, Cost>,
) -> BTreeMap<String, Amount> {
    let mut sums: BTreeMap<String, Amount> = BTreeMap::new();
    for MachineForecast { machine, destination, price, desired, .. } in forecast.all() {
        if !has_finalizer(machine) && destination.placement().is_none() {
            continue;
        }
        let name = ObjectName::of(machine);
        let cost = if desired.is_ok() { price } else { costs.get(&name).cloned() };
        if let Some(cost) = cost {
            let sum = sums.entry(cost.currency.clone()).or_insert(Amount::ZERO);
            *sum = sum.plus(cost.per_hour);
            costs.insert(name, cost);
        }
    }
    sums
}
