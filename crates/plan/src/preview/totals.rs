//! What all Machines use and cost together, before and after.

use std::collections::BTreeMap;

use serde::Serialize;
use vitistack_types::{Amount, Quantity, v1alpha1::Datacenter};

use super::outlook::{Cost, Outlook, Standing};
use crate::{datacenter::Usage, explain::name, machine::has_finalizer};

/// What changes in the use of a Datacenter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaChange {
    /// Which, such as `Datacenter default/west`.
    pub datacenter: String,
    /// Of what: machines, cpu, memory or storage.
    pub resource: &'static str,
    /// What is used.
    pub before: String,
    /// What would be used.
    pub after: String,
    /// The most that its quotas would allow; none if they do not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<String>,
    /// Whether more would be used than the quotas allow: what was let in stays, whatever the quota becomes.
    pub is_exceeded: bool,
}

/// What changes in the price of all Machines together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PriceChange {
    /// In which currency.
    pub currency: String,
    /// What they cost per hour.
    pub before: Amount,
    /// What they would cost per hour.
    pub after: Amount,
}

/// What is used of something and the most of it, in numbers.
type Row = (&'static str, u64, Option<u64>);

fn rows(datacenter: &Datacenter, used: Usage) -> [Row; 4] {
    let most = datacenter.spec.resource_quotas.clone().unwrap_or_default();
    let units = |quantity: Option<Quantity>| quantity.map(|quantity| quantity.units());
    [
        ("machines", used.machines.into(), most.max_machines.map(u64::from)),
        ("cpu", used.cpu.into(), most.max_cpu.map(u64::from)),
        ("memory", used.memory, units(most.max_memory)),
        ("storage", used.storage, units(most.max_storage)),
    ]
}

/// What changes in the use of Datacenters.
pub(super) fn quotas(was: &Outlook<'_>, will: &Outlook<'_>) -> Vec<QuotaChange> {
    let mut changes = Vec::new();
    for (name, (datacenter, decision)) in &will.decisions {
        let before = was.decisions.get(name).map(|(datacenter, decision)| rows(datacenter, decision.used));
        let before = before.unwrap_or_else(|| rows(datacenter, Usage::default()));
        let pairs = before.into_iter().zip(rows(datacenter, decision.used));
        for ((resource, used, _), (_, will_use, most)) in pairs.filter(|(before, after)| before.1 != after.1)
        {
            let words = |number: u64| match resource {
                "memory" | "storage" => Quantity::from_units(number).to_string(),
                _ => number.to_string(),
            };
            changes.push(QuotaChange {
                datacenter: name.clone(),
                resource,
                before: words(used),
                after: words(will_use),
                most: most.map(words),
                is_exceeded: most.is_some_and(|most| will_use > most),
            });
        }
    }
    changes
}

/// What changes in what Machines cost. A Machine that is not made costs nothing, and one of unknown price counts as none.
pub(super) fn prices(was: &Outlook<'_>, will: &Outlook<'_>) -> Vec<PriceChange> {
    let mut costs: BTreeMap<String, Cost> = BTreeMap::new();
    let mut sums = |outlook: &Outlook<'_>| {
        let mut sums: BTreeMap<String, Amount> = BTreeMap::new();
        for Standing { machine, placed, price, desired, .. } in outlook.all() {
            let is_made = has_finalizer(machine);
            if !is_made && placed.place().is_none() {
                continue;
            }
            let name = name(&machine.metadata);
            // One that can no longer be made as it is written stays what it was.
            let cost = if desired.is_ok() { price } else { costs.get(&name).cloned() };
            if let Some(cost) = cost {
                let sum = sums.entry(cost.currency.clone()).or_insert(Amount::ZERO);
                *sum = sum.plus(cost.per_hour);
                costs.insert(name, cost);
            }
        }
        sums
    };
    let (before, after) = (sums(was), sums(will));
    let mut currencies: Vec<&String> = before.keys().chain(after.keys()).collect();
    currencies.sort();
    currencies.dedup();
    let of = |sums: &BTreeMap<String, Amount>, currency: &String| {
        sums.get(currency).copied().unwrap_or(Amount::ZERO)
    };
    currencies
        .into_iter()
        .map(|currency| PriceChange {
            currency: currency.clone(),
            before: of(&before, currency),
            after: of(&after, currency),
        })
        .filter(|change| change.before != change.after)
        .collect()
}
