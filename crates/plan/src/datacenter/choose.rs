//! Which provider of a datacenter hosts a machine.

use std::collections::BTreeMap;

use vitistack_types::{
    ObjectName, Quantity,
    v1alpha1::{DatacenterSpec, Machine, ProviderCapacity},
};

use super::{Fullness, Usage, zone_of};
use crate::{Refusal, refusals};

/// A provider that the datacenter lists, as it was found.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The provider.
    pub name: ObjectName,
    /// Its rank in the datacenter; one without a priority comes last.
    pub priority: Option<u16>,
    /// Why it cannot be used now.
    pub problem: Option<Problem>,
    /// Its zones.
    pub zones: Vec<String>,
    /// How much of it may be used.
    pub capacity: Option<ProviderCapacity>,
    /// How full it is.
    pub full: Fullness,
    /// What is used of it, by zone; machines without a zone count under the empty name.
    pub used: BTreeMap<String, Usage>,
}

/// Why a provider cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The problem, with the fix.
    pub refusal: Refusal,
    /// Whether it may resolve by itself: the provider exists and may be used, but does not accept machines now.
    pub is_temporary: bool,
}

/// The machine to place.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What it uses.
    pub usage: Usage,
    /// The zone that it asks for.
    pub zone: Option<&'a str>,
    /// The only provider that is suitable, if the Machine refers to one.
    pub only: Option<&'a ObjectName>,
    /// Providers that are not suitable for this machine now, each with why.
    pub passed_over: &'a BTreeMap<ObjectName, String>,
    /// Where it was to be created until now, and why it no longer is.
    pub instead_of: Option<(&'a ObjectName, &'a str)>,
}

impl Candidate {
    fn total(&self) -> Usage {
        self.used.values().fold(Usage::default(), |sum, usage| sum.plus(*usage))
    }

    /// Counts a Machine that is placed there.
    pub fn count(&mut self, machine: &Machine, usage: Usage) {
        self.add(zone_of(machine), usage);
        self.full.count(machine, usage);
    }

    /// Counts a machine that is or will be there.
    pub fn add(&mut self, zone: Option<&str>, usage: Usage) {
        let sum = self.used.entry(zone.unwrap_or_default().to_owned()).or_default();
        *sum = sum.plus(usage);
    }

    fn machines_in(&self, zone: &str) -> u32 {
        self.used.get(zone).map_or(0, |usage| usage.machines)
    }

    /// Its zones that the Datacenter uses.
    fn zones_in<'a>(&'a self, datacenter: &'a DatacenterSpec) -> impl Iterator<Item = &'a String> {
        let is_used = |zone: &&String| datacenter.zones.is_empty() || datacenter.zones.contains(zone);
        self.zones.iter().filter(is_used)
    }

    /// Checks that it has a zone that a Machine asks for.
    pub(crate) fn check_zone(&self, datacenter: &DatacenterSpec, zone: &str) -> Result<(), String> {
        let zones: Vec<String> = self.zones_in(datacenter).map(|zone| format!("{zone:?}")).collect();
        if self.zones_in(datacenter).any(|each| each == zone) {
            Ok(())
        } else if zones.is_empty() {
            Err(format!("no zone {zone:?}, and no other that the Datacenter uses"))
        } else {
            Err(format!("no zone {zone:?}, only {}", zones.join(", ")))
        }
    }

    /// The order in which candidates are tried, without regard to how full they are.
    fn rank(&self) -> (u16, &ObjectName) {
        (self.priority.unwrap_or(u16::MAX), &self.name)
    }
}

/// Where a machine goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The provider.
    pub provider: ObjectName,
    /// The zone, if the provider has zones.
    pub zone: Option<String>,
    /// Why there, in a sentence.
    pub why: String,
}

/// A candidate that cannot host the machine, and why.
struct Unsuitable<'a> {
    candidate: &'a Candidate,
    why: String,
}

impl Unsuitable<'_> {
    fn describe(&self) -> String {
        format!("{}: {}", self.candidate.name, self.why)
    }
}

/// Chooses the provider for a machine: the lowest priority number that can host it; among equals the one with the fewest
/// machines, then by name. Inside it the zone with the fewest machines.
pub fn choose(
    datacenter: &DatacenterSpec,
    request: &Request<'_>,
    candidates: &[Candidate],
) -> Result<Choice, Refusal> {
    let mut unsuitable = Vec::new();
    let mut suitable = Vec::new();
    for candidate in candidates {
        if request.only.is_some_and(|only| *only != candidate.name) {
            continue;
        }
        match fit(datacenter, request, candidate) {
            Ok(zone) => suitable.push((candidate, zone)),
            Err(why) => unsuitable.push(Unsuitable { candidate, why }),
        }
    }
    unsuitable.sort_by(|one, other| one.candidate.rank().cmp(&other.candidate.rank()));

    let best = suitable.into_iter().min_by(|(one, _), (other, _)| {
        let key = |candidate: &Candidate| (candidate.rank().0, candidate.total().machines);
        (key(one), &one.name).cmp(&(key(other), &other.name))
    });
    let Some((candidate, zone)) = best else {
        let causes: Vec<String> = unsuitable.iter().map(Unsuitable::describe).collect();
        return Err(if causes.is_empty() {
            refusals::datacenter_without_providers()
        } else {
            refusals::no_provider_accepts(&causes)
        });
    };

    let why = explain(request, candidate, zone.as_deref(), &unsuitable);
    Ok(Choice { provider: candidate.name.clone(), zone, why })
}

/// Explains a choice in a sentence, with the better ranked providers that were not suitable.
fn explain(
    request: &Request<'_>,
    candidate: &Candidate,
    zone: Option<&str>,
    unsuitable: &[Unsuitable<'_>],
) -> String {
    let rank = match (request.only, candidate.priority) {
        (Some(_), _) => "set by spec.providerRef".to_owned(),
        (None, Some(priority)) => format!("priority {priority}"),
        (None, None) => "no priority".to_owned(),
    };
    let zone = zone.map(|zone| format!(", zone {zone}")).unwrap_or_default();
    let instead_of =
        request.instead_of.map(|(name, why)| format!(", instead of {name} ({why})")).unwrap_or_default();

    let previous = request.instead_of.map(|(name, _)| name);
    let passed_over: Vec<String> = unsuitable
        .iter()
        .filter(|each| each.candidate.rank() < candidate.rank() && Some(&each.candidate.name) != previous)
        .map(Unsuitable::describe)
        .collect();
    let passed_over = match passed_over.as_slice() {
        [] => String::new(),
        causes => format!("; passed over {}", causes.join("; ")),
    };
    format!("Placed on {} ({rank}){zone}{instead_of}{passed_over}", candidate.name)
}

/// Returns the zone it would get, or why the provider cannot host it.
fn fit(
    datacenter: &DatacenterSpec,
    request: &Request<'_>,
    candidate: &Candidate,
) -> Result<Option<String>, String> {
    if let Some(problem) = &candidate.problem {
        return Err(problem.refusal.message.clone());
    }
    if let Some(why) = request.passed_over.get(&candidate.name) {
        return Err(why.clone());
    }

    let capacity = candidate.capacity.as_ref();
    let with = candidate.total().plus(request.usage);
    let bytes = |limit: Option<&Quantity>| limit.map(Quantity::units);
    let limits = [
        ("machines", capacity.and_then(|most| most.machines).map(u64::from), u64::from(with.machines)),
        ("cpu", capacity.and_then(|most| most.cpu).map(u64::from), u64::from(with.cpu)),
        ("memory", bytes(capacity.and_then(|most| most.memory.as_ref())), with.memory),
        ("storage", bytes(capacity.and_then(|most| most.storage.as_ref())), with.storage),
    ];
    if let Some((field, ..)) =
        limits.into_iter().find(|(_, limit, with)| limit.is_some_and(|limit| *with > limit))
    {
        return Err(format!("spec.capacity.{field} is used up"));
    }

    match request.zone {
        Some(zone) => candidate.check_zone(datacenter, zone).map(|()| Some(zone.to_owned())),
        None if candidate.zones.is_empty() => Ok(None),
        None => candidate
            .zones_in(datacenter)
            .min_by_key(|zone| (candidate.machines_in(zone), (*zone).clone()))
            .cloned()
            .map(Some)
            .ok_or_else(|| "none of its zones is in the Datacenter's spec.zones".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use vitistack_types::{conditions::reason, v1alpha1::Datacenter};

    use super::*;

    fn name(name: &str) -> ObjectName {
        ObjectName::new("default", name)
    }

    fn candidate(provider: &str, priority: u16) -> Candidate {
        Candidate {
            name: name(provider),
            priority: Some(priority),
            problem: None,
            zones: vec!["a".to_owned(), "b".to_owned()],
            capacity: None,
            full: Fullness::default(),
            used: BTreeMap::new(),
        }
    }

    fn request(passed_over: &BTreeMap<ObjectName, String>) -> Request<'_> {
        let usage = Usage { machines: 1, cpu: 1, memory: 2 << 30, storage: 20 << 30 };
        Request { usage, zone: None, only: None, passed_over, instead_of: None }
    }

    fn chosen_in(zone: Option<&str>, candidates: &[Candidate]) -> String {
        chosen(&Request { zone, ..request(&BTreeMap::new()) }, candidates)
    }

    fn chosen(request: &Request<'_>, candidates: &[Candidate]) -> String {
        let datacenter =
            Datacenter::builder().region("west").zones(["a".to_owned(), "b".to_owned(), "c".to_owned()]);
        match choose(&datacenter.build("west", "default").unwrap().spec, request, candidates) {
            Ok(choice) => format!("{} {:?}: {}", choice.provider, choice.zone, choice.why),
            Err(refusal) => format!("{}: {}", refusal.reason, refusal.message),
        }
    }

    #[test]
    fn a_machine_goes_to_the_first_provider_that_can_host_it() {
        let refusal = Refusal::new(reason::NO_USABLE_PROVIDER, "not ready: no answer");
        let away =
            Candidate { problem: Some(Problem { refusal, is_temporary: true }), ..candidate("aws", 1) };
        let full =
            Candidate { capacity: Some(ProviderCapacity::builder().cpu(0).build()), ..candidate("azure", 2) };
        let busy = Usage { machines: 3, ..Usage::default() };
        let uneven = Candidate { used: [("a".to_owned(), busy)].into(), ..candidate("gcp", 3) };
        let other_zone = Candidate { zones: vec!["z".to_owned()], ..candidate("edge", 1) };

        let no_capacity = [(name("aws"), "had no capacity".to_owned())].into();
        let returned = request(&no_capacity);
        let nothing = BTreeMap::new();
        let (azure, aws) = (name("azure"), name("aws"));
        let referenced = Request { only: Some(&azure), ..request(&nothing) };
        let moved = Request { instead_of: Some((&aws, "no answer")), ..request(&nothing) };

        let pages = [
            ("by priority", chosen_in(None, &[candidate("azure", 2), candidate("aws", 1)])),
            ("the next if the first is away", chosen_in(None, &[away.clone(), candidate("azure", 2)])),
            (
                "the third if the second is full",
                chosen_in(None, &[away.clone(), full.clone(), uneven.clone()]),
            ),
            ("among equals the emptier", chosen_in(None, &[uneven.clone(), candidate("spare", 3)])),
            ("the requested zone", chosen_in(Some("b"), &[candidate("aws", 1)])),
            ("a zone that no provider has", chosen_in(Some("c"), &[candidate("aws", 1), other_zone.clone()])),
            ("a provider in another zone", chosen_in(None, &[other_zone])),
            (
                "a provider that was passed over",
                chosen(&returned, &[candidate("aws", 1), candidate("azure", 2)]),
            ),
            ("the referenced provider", chosen(&referenced, &[candidate("aws", 1), candidate("azure", 2)])),
            ("another provider than before", chosen(&moved, &[away.clone(), candidate("azure", 2)])),
            ("no provider can host it", chosen_in(None, &[full, away])),
            ("no provider is listed", chosen_in(None, &[])),
        ];
        let pages: Vec<String> = pages.iter().map(|(what, page)| format!("# {what}\n{page}")).collect();
        insta::assert_snapshot!(pages.join("\n"));
    }
}
