//! Placement: which provider of a datacenter a machine goes to.

use std::collections::BTreeMap;

use vitistack_types::{
    Quantity,
    conditions::reason,
    v1alpha1::{DatacenterSpec, Machine, ProviderCapacity},
};

use super::{Fullness, Usage, zone_of};
use crate::Refusal;

/// A provider that the datacenter names, as it was found.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// `namespace/name`.
    pub name: String,
    /// Its rank in the datacenter; none comes last.
    pub priority: Option<u16>,
    /// Why it cannot be used now.
    pub problem: Option<Problem>,
    /// Its zones.
    pub zones: Vec<String>,
    /// Most of it that may be used.
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
    pub why: String,
    /// Whether it may go by itself: the provider is there and may be used, but does not take machines now.
    pub is_temporary: bool,
}

/// What is to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What it uses.
    pub usage: Usage,
    /// The zone that it asks for.
    pub zone: Option<&'a str>,
    /// The only provider that will do, where the Machine names one.
    pub only: Option<&'a str>,
    /// Providers that will not do for this machine now, each with why.
    pub passed_over: &'a BTreeMap<String, String>,
    /// Where it was to be made until now, and why it no longer is.
    pub instead_of: Option<(&'a str, &'a str)>,
}

impl Candidate {
    fn total(&self) -> Usage {
        self.used.values().fold(Usage::default(), |sum, usage| sum.plus(*usage))
    }

    /// Counts a Machine that is there, or is placed there.
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
    request: &Request<'_>,
    candidates: &[Candidate],
) -> Result<Placement, Refusal> {
    let mut passed_over = Vec::new();
    let mut best: Option<(&Candidate, Option<String>)> = None;
    let key = |candidate: &Candidate| (rank(candidate).0, candidate.total().machines);
    let is_asked = |candidate: &&Candidate| request.only.is_none_or(|only| only == candidate.name);
    for candidate in candidates.iter().filter(is_asked) {
        match fits(datacenter, request, candidate) {
            Ok(zone) => {
                let is_better = best
                    .as_ref()
                    .is_none_or(|(best, _)| (key(candidate), &candidate.name) < (key(best), &best.name));
                if is_better {
                    best = Some((candidate, zone));
                }
            }
            Err(why) => passed_over.push((rank(candidate), why)),
        }
    }
    passed_over.sort();
    let told = |((_, name), why): &((u16, &str), String)| format!("{name}: {why}");
    let Some((candidate, zone)) = best else {
        let reasons: Vec<String> = passed_over.iter().map(told).collect();
        let message = if reasons.is_empty() {
            "the Datacenter names no machine provider: add one to spec.machineProviders".to_owned()
        } else {
            format!("no provider of the Datacenter can take it: {}", reasons.join("; "))
        };
        return Err(Refusal::new(reason::INSUFFICIENT_RESOURCES, message));
    };
    let is_told = |name: &str| request.instead_of.is_some_and(|(before, _)| before == name);
    let earlier: Vec<String> = passed_over
        .iter()
        .filter(|(place, _)| *place < rank(candidate) && !is_told(place.1))
        .map(told)
        .collect();
    let name = &candidate.name;
    let before =
        request.instead_of.map(|(name, why)| format!("instead of {name} ({why}): ")).unwrap_or_default();
    let rank = match (request.only, candidate.priority) {
        (Some(_), _) => "is named by spec.providerRef".to_owned(),
        (None, Some(priority)) => format!("has priority {priority}"),
        (None, None) => "has no priority".to_owned(),
    };
    let inside = zone.as_ref().map(|zone| format!(", zone {zone}")).unwrap_or_default();
    let tail =
        if earlier.is_empty() { String::new() } else { format!("; passed over {}", earlier.join("; ")) };
    let why = format!("{before}{name} {rank}{inside}{tail}");
    Ok(Placement { provider: name.clone(), zone, why })
}

fn rank(candidate: &Candidate) -> (u16, &str) {
    (candidate.priority.unwrap_or(u16::MAX), &candidate.name)
}

/// The zone it would get, or why the provider cannot take it.
fn fits(
    datacenter: &DatacenterSpec,
    request: &Request<'_>,
    candidate: &Candidate,
) -> Result<Option<String>, String> {
    if let Some(problem) = &candidate.problem {
        return Err(problem.why.clone());
    }
    if let Some(why) = request.passed_over.get(&candidate.name) {
        return Err(why.clone());
    }
    let capacity = candidate.capacity.as_ref();
    let with = candidate.total().plus(request.usage);
    let bytes = |most: Option<&Quantity>| most.map(Quantity::units);
    let limits = [
        ("machines", capacity.and_then(|most| most.machines).map(u64::from), u64::from(with.machines)),
        ("cpu", capacity.and_then(|most| most.cpu).map(u64::from), u64::from(with.cpu)),
        ("memory", bytes(capacity.and_then(|most| most.memory.as_ref())), with.memory),
        ("storage", bytes(capacity.and_then(|most| most.storage.as_ref())), with.storage),
    ];
    if let Some((field, ..)) =
        limits.into_iter().find(|(_, most, with)| most.is_some_and(|most| *with > most))
    {
        return Err(format!("its capacity.{field} is used up"));
    }
    let is_open = |zone: &&String| datacenter.zones.is_empty() || datacenter.zones.contains(zone);
    let zones: Vec<&String> = candidate.zones.iter().filter(is_open).collect();
    match request.zone {
        Some(zone) if zones.iter().any(|each| *each == zone) => Ok(Some(zone.to_owned())),
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
    use vitistack_types::v1alpha1::Datacenter;

    use super::*;

    fn candidate(name: &str, priority: u16) -> Candidate {
        Candidate {
            name: format!("default/{name}"),
            priority: Some(priority),
            problem: None,
            zones: vec!["a".to_owned(), "b".to_owned()],
            capacity: None,
            full: Fullness::default(),
            used: BTreeMap::new(),
        }
    }

    fn told(zone: Option<&str>, candidates: &[Candidate]) -> String {
        asked(&Request { zone, ..request(&BTreeMap::new()) }, candidates)
    }

    fn request(passed_over: &BTreeMap<String, String>) -> Request<'_> {
        let usage = Usage { machines: 1, cpu: 1, memory: 2 << 30, storage: 20 << 30 };
        Request { usage, zone: None, only: None, passed_over, instead_of: None }
    }

    fn asked(request: &Request<'_>, candidates: &[Candidate]) -> String {
        let datacenter =
            Datacenter::builder().region("west").zones(["a".to_owned(), "b".to_owned(), "c".to_owned()]);
        match place(&datacenter.build("west", "default").unwrap().spec, request, candidates) {
            Ok(placement) => format!("{} {:?}: {}", placement.provider, placement.zone, placement.why),
            Err(refusal) => format!("{}: {}", refusal.reason, refusal.message),
        }
    }

    #[test]
    fn a_machine_goes_to_the_first_provider_that_can_take_it() {
        let away = Candidate {
            problem: Some(Problem { why: "it does not answer".to_owned(), is_temporary: true }),
            ..candidate("aws", 1)
        };
        let full =
            Candidate { capacity: Some(ProviderCapacity::builder().cpu(0).build()), ..candidate("azure", 2) };
        let busy = Usage { machines: 3, ..Usage::default() };
        let uneven = Candidate { used: [("a".to_owned(), busy)].into(), ..candidate("gcp", 3) };
        let elsewhere = Candidate { zones: vec!["z".to_owned()], ..candidate("edge", 1) };
        let no_room = [("default/aws".to_owned(), "it had no room".to_owned())].into();
        let handed_back = request(&no_room);
        let nothing = BTreeMap::new();
        let named = Request { only: Some("default/azure"), ..request(&nothing) };
        let moved = Request { instead_of: Some(("default/aws", "it does not answer")), ..request(&nothing) };
        let pages = [
            ("by priority", told(None, &[candidate("azure", 2), candidate("aws", 1)])),
            ("the next if the first is away", told(None, &[away.clone(), candidate("azure", 2)])),
            ("the third if the second is full", told(None, &[away.clone(), full.clone(), uneven.clone()])),
            ("among equals the emptier", told(None, &[uneven.clone(), candidate("spare", 3)])),
            ("the zone that is asked for", told(Some("b"), &[candidate("aws", 1)])),
            ("a zone that nobody has", told(Some("c"), &[candidate("aws", 1), elsewhere.clone()])),
            ("a provider elsewhere", told(None, &[elsewhere])),
            (
                "the one that was passed over",
                asked(&handed_back, &[candidate("aws", 1), candidate("azure", 2)]),
            ),
            ("the one that is named", asked(&named, &[candidate("aws", 1), candidate("azure", 2)])),
            ("another one than before", asked(&moved, &[away.clone(), candidate("azure", 2)])),
            ("nobody can take it", told(None, &[full, away])),
            ("nobody is named", told(None, &[])),
        ];
        let told: Vec<String> = pages.iter().map(|(what, told)| format!("# {what}\n{told}")).collect();
        insta::assert_snapshot!(told.join("\n"));
    }
}
