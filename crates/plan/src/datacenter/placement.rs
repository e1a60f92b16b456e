//! Placement: which provider of a datacenter a machine goes to.

use std::collections::BTreeMap;

use vitistack_types::{
    conditions::reason,
    v1alpha1::{DatacenterSpec, ProviderCapacity},
};

use super::Usage;
use crate::{Refusal, machine::Desired};

/// A provider that the datacenter names, as it was found.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// `namespace/name`.
    pub name: String,
    /// Its rank in the datacenter; none comes last.
    pub priority: Option<u16>,
    /// Why it cannot be used now, with the fix: it is missing, not permitted, not ready.
    pub problem: Option<String>,
    /// Its zones.
    pub zones: Vec<String>,
    /// Most of it that may be used.
    pub capacity: Option<ProviderCapacity>,
    /// What is used of it, by zone; machines without a zone count under the empty name.
    pub used: BTreeMap<String, Usage>,
}

impl Candidate {
    fn total(&self) -> Usage {
        self.used.values().fold(Usage::default(), |sum, usage| sum.plus(*usage))
    }

    fn machines_in(&self, zone: &str) -> u32 {
        self.used.get(zone).map_or(0, |usage| usage.machines)
    }
}

/// Where a machine goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// `namespace/name` of the provider.
    pub provider: String,
    /// Zone, where the provider has zones.
    pub zone: Option<String>,
    /// Why there, in a sentence.
    pub why: String,
}

/// The provider for a machine: the lowest priority number that can take it; among equals the one with the fewest
/// machines, then by name. Inside it the zone with the fewest machines.
pub fn place(
    datacenter: &DatacenterSpec,
    desired: &Desired,
    candidates: &[Candidate],
) -> Result<Placement, Refusal> {
    let mut passed_over = Vec::new();
    let mut fitting = Vec::new();
    for candidate in candidates {
        match fits(datacenter, desired, candidate) {
            Ok(zone) => fitting.push((candidate, zone)),
            Err(why) => passed_over.push((rank(candidate), format!("{}: {why}", candidate.name))),
        }
    }
    passed_over.sort();
    let best = fitting
        .into_iter()
        .min_by_key(|(candidate, _)| (rank(candidate).0, candidate.total().machines, candidate.name.clone()));
    let Some((candidate, zone)) = best else {
        let reasons: Vec<String> = passed_over.into_iter().map(|(_, why)| why).collect();
        let message = if reasons.is_empty() {
            "the Datacenter names no machine provider: add one to spec.machineProviders".to_owned()
        } else {
            format!("no provider of the Datacenter can take it: {}", reasons.join("; "))
        };
        return Err(Refusal::new(reason::INSUFFICIENT_RESOURCES, message));
    };
    let earlier: Vec<String> =
        passed_over.into_iter().filter(|(place, _)| *place < rank(candidate)).map(|(_, why)| why).collect();
    let name = &candidate.name;
    let priority =
        candidate.priority.map_or("no priority".to_owned(), |priority| format!("priority {priority}"));
    let inside = zone.as_ref().map(|zone| format!(", zone {zone}")).unwrap_or_default();
    let instead =
        if earlier.is_empty() { String::new() } else { format!("; passed over {}", earlier.join("; ")) };
    let why = format!("{name} has {priority}{inside}{instead}");
    Ok(Placement { provider: name.clone(), zone, why })
}

fn rank(candidate: &Candidate) -> (u16, String) {
    (candidate.priority.unwrap_or(u16::MAX), candidate.name.clone())
}

/// The zone it would get, or why the provider cannot take it.
fn fits(
    datacenter: &DatacenterSpec,
    desired: &Desired,
    candidate: &Candidate,
) -> Result<Option<String>, String> {
    if let Some(problem) = &candidate.problem {
        return Err(problem.clone());
    }
    let capacity = candidate.capacity.clone().unwrap_or_default();
    let with = candidate.total().plus(Usage::from(desired));
    let limits = [
        ("machines", capacity.machines.map(u64::from), u64::from(with.machines)),
        ("cpu", capacity.cpu.map(u64::from), u64::from(with.cpu)),
        ("memory", capacity.memory.map(|most| most.units()), with.memory),
        ("storage", capacity.storage.map(|most| most.units()), with.storage),
    ];
    if let Some((field, ..)) =
        limits.into_iter().find(|(_, most, with)| most.is_some_and(|most| *with > most))
    {
        return Err(format!("its capacity.{field} is used up"));
    }
    let is_open = |zone: &&String| datacenter.zones.is_empty() || datacenter.zones.contains(zone);
    let zones: Vec<&String> = candidate.zones.iter().filter(is_open).collect();
    match &desired.zone {
        Some(zone) if zones.contains(&zone) => Ok(Some(zone.clone())),
        Some(zone) => Err(format!("it has no zone {zone}")),
        None if candidate.zones.is_empty() => Ok(None),
        None => zones
            .into_iter()
            .min_by_key(|zone| (candidate.machines_in(zone), (*zone).clone()))
            .cloned()
            .map(Some)
            .ok_or_else(|| "none of its zones is one of the Datacenter's".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use vitistack_types::v1alpha1::{Datacenter, Machine};

    use super::*;
    use crate::machine::{References, resolve};

    fn candidate(name: &str, priority: u16) -> Candidate {
        Candidate {
            name: format!("default/{name}"),
            priority: Some(priority),
            problem: None,
            zones: vec!["a".to_owned(), "b".to_owned()],
            capacity: None,
            used: BTreeMap::new(),
        }
    }

    fn told(zone: Option<&str>, candidates: &[Candidate]) -> String {
        let machine = Machine::builder().template("small").maybe_zone(zone).build("vm", "default").unwrap();
        let desired = resolve(&machine, &References::default()).unwrap();
        let datacenter =
            Datacenter::builder().region("west").zones(["a".to_owned(), "b".to_owned(), "c".to_owned()]);
        match place(&datacenter.build("west", "default").unwrap().spec, &desired, candidates) {
            Ok(placement) => format!("{} {:?}: {}", placement.provider, placement.zone, placement.why),
            Err(refusal) => format!("{}: {}", refusal.reason, refusal.message),
        }
    }

    #[test]
    fn a_machine_goes_to_the_first_provider_that_can_take_it() {
        let away = Candidate { problem: Some("it does not answer".to_owned()), ..candidate("aws", 1) };
        let full =
            Candidate { capacity: Some(ProviderCapacity::builder().cpu(0).build()), ..candidate("azure", 2) };
        let busy = Usage { machines: 3, ..Usage::default() };
        let uneven = Candidate { used: [("a".to_owned(), busy)].into(), ..candidate("gcp", 3) };
        let elsewhere = Candidate { zones: vec!["z".to_owned()], ..candidate("edge", 1) };
        let pages = [
            ("by priority", told(None, &[candidate("azure", 2), candidate("aws", 1)])),
            ("the next if the first is away", told(None, &[away.clone(), candidate("azure", 2)])),
            ("the third if the second is full", told(None, &[away.clone(), full.clone(), uneven.clone()])),
            ("among equals the emptier", told(None, &[uneven.clone(), candidate("spare", 3)])),
            ("the zone that is asked for", told(Some("b"), &[candidate("aws", 1)])),
            ("a zone that nobody has", told(Some("c"), &[candidate("aws", 1), elsewhere.clone()])),
            ("a provider elsewhere", told(None, &[elsewhere])),
            ("nobody can take it", told(None, &[full, away])),
            ("nobody is named", told(None, &[])),
        ];
        let told: Vec<String> = pages.iter().map(|(what, told)| format!("# {what}\n{told}")).collect();
        insta::assert_snapshot!(told.join("\n"));
    }
}
