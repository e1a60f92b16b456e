//! One look at a datacenter: what becomes of all its machines, decided together.

use std::collections::BTreeMap;

use jiff::Timestamp;
use vitistack_types::{
    conditions::reason,
    labels,
    v1alpha1::{Datacenter, Machine},
};

use super::{
    Candidate, Claim, Placement, Problem, Request, Usage, admit,
    passed_over::{Note, is_passed_over_by, moved_on, passed_over, taken_up, until},
    place, zone_of,
};
use crate::{
    Refusal, is_paused,
    machine::{Identity, annotation, full_name, has_own_identity, identity, may_be_made, placement},
    permits,
};

/// Everything that was read of one datacenter.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// The Datacenter.
    pub datacenter: &'a Datacenter,
    /// Every Machine that names it.
    pub members: Vec<Member<'a>>,
    /// The providers that it names, with what is used of them by Machines that are not its members.
    pub candidates: Vec<Candidate>,
    /// The time.
    pub now: Timestamp,
}

/// A Machine that names the datacenter.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// The Machine.
    pub machine: &'a Machine,
    /// What it uses, or why that cannot be said.
    pub usage: Result<Usage, Refusal>,
}

/// What becomes of one Machine. One of which nothing is said stays where and as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes there.
    Place(Assignment),
    /// It was to be made where it cannot be made any more, and nobody else can take it: its placement is taken away.
    Withdraw(Refusal),
    /// It is not placed.
    Refuse(Refusal),
    /// It is not placed, because all action on it is stopped.
    Pause,
}

/// Where a Machine goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The provider, the zone and the sentence.
    pub placement: Placement,
    /// The provider it was to be made on until now.
    pub moved_from: Option<String>,
}

/// The decision about one datacenter.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<'a> {
    /// What becomes of the Machines, those that were let in first first.
    pub verdicts: Vec<(&'a Machine, Verdict)>,
    /// What all that are let in use together.
    pub used: Usage,
    /// When a provider that was passed over can be asked again, if somebody waits for that.
    pub look_again: Option<Timestamp>,
}

/// How a Machine stands before anything is decided.
enum Standing {
    /// It does not count, and nothing is done about it.
    Aside,
    /// It counts, and stays.
    Stays,
    /// It does not count, and is told so.
    Told(Verdict),
    /// It needs a provider; or another one than it has, for this problem.
    Waits(Option<Problem>),
}

/// Decides. Pure, and the only place that does.
#[must_use]
pub fn decide<'a>(snapshot: &Snapshot<'a>) -> Decision<'a> {
    let mut candidates = snapshot.candidates.clone();
    let mut claims = Vec::with_capacity(snapshot.members.len());
    let mut waiting: BTreeMap<Identity, (&'a Machine, Option<Problem>)> = BTreeMap::new();
    let mut verdicts = Vec::new();
    for member in &snapshot.members {
        let machine = member.machine;
        let placed = placement(machine);
        let usage = member.usage.clone().unwrap_or(Usage { machines: 1, ..Usage::default() });
        // By UID: two Machines can carry one identity, and both count.
        let key = Identity::new(machine.metadata.uid.clone().unwrap_or_default());
        match standing(snapshot, member) {
            Standing::Aside => continue,
            Standing::Told(verdict) => {
                verdicts.push((machine, verdict));
                continue;
            }
            Standing::Stays => {
                if let Some(candidate) = named(&mut candidates, placed) {
                    candidate.count(machine, usage);
                }
            }
            Standing::Waits(problem) => {
                waiting.insert(key.clone(), (machine, problem));
            }
        }
        let created = machine.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0);
        claims.push(Claim { identity: key, created, is_placed: placed.is_some(), usage });
    }
    let mut look_again: Option<Timestamp> = None;
    let quotas = snapshot.datacenter.spec.resource_quotas.clone().unwrap_or_default();
    let mut placed = Vec::new();
    let admitted = admit(&quotas, &claims, |claim| {
        let Some((machine, problem)) = waiting.get(&claim.identity) else { return Ok(claim.usage) };
        let mut passed_over = passed_over(machine, snapshot.now);
        passed_over.retain(|name, note| {
            let candidate = candidates.iter().find(|candidate| candidate.name == *name);
            !candidate.is_some_and(|candidate| note.is_overcome(&candidate.full))
        });
        match try_place(snapshot, machine, claim.usage, problem.as_ref(), &passed_over, &candidates) {
            Ok(assignment) => {
                let Placement { provider, zone, .. } = &assignment.placement;
                count(&mut candidates, Some(provider), zone.as_deref(), claim.usage);
                placed.push((*machine, Verdict::Place(assignment)));
                Ok(claim.usage)
            }
            Err(refusal) => {
                let is_there = |name: &String| {
                    candidates.iter().any(|each| each.name == *name && each.problem.is_none())
                };
                let awaited = passed_over.iter().filter(|(name, _)| is_there(name));
                let next = awaited.map(|(_, note)| until(note.since)).min();
                look_again = [look_again, next].into_iter().flatten().min();
                if problem.as_ref().is_some_and(|problem| problem.is_temporary) {
                    // Nobody else can take it, and its provider may come back.
                    count(&mut candidates, placement(machine), zone_of(machine), claim.usage);
                    return Ok(claim.usage);
                }
                Err(refusal)
            }
        }
    });
    verdicts.extend(placed);
    let mut used = Usage::default();
    for (key, verdict) in admitted {
        match (verdict, waiting.get(&key)) {
            (Ok(usage), _) => used = used.plus(usage),
            (Err(refusal), Some((machine, Some(_)))) => verdicts.push((machine, Verdict::Withdraw(refusal))),
            (Err(refusal), Some((machine, None))) => verdicts.push((machine, Verdict::Refuse(refusal))),
            (Err(_), None) => {}
        }
    }
    Decision { verdicts, used, look_again }
}

fn named<'a>(candidates: &'a mut [Candidate], provider: Option<&str>) -> Option<&'a mut Candidate> {
    candidates.iter_mut().find(|candidate| Some(candidate.name.as_str()) == provider)
}

fn count(candidates: &mut [Candidate], provider: Option<&str>, zone: Option<&str>, usage: Usage) {
    if let Some(candidate) = named(candidates, provider) {
        candidate.add(zone, usage);
    }
}

fn standing(snapshot: &Snapshot<'_>, member: &Member<'_>) -> Standing {
    let machine = member.machine;
    let is_leaving = machine.metadata.deletion_timestamp.is_some();
    let is_untouchable = is_leaving || !has_own_identity(machine);
    let placed = placement(machine);
    if placed.is_some() && (is_untouchable || is_paused(&machine.metadata) || may_be_made(&machine.metadata))
    {
        return Standing::Stays;
    }
    if is_untouchable {
        return Standing::Aside;
    }
    if is_paused(&machine.metadata) {
        return Standing::Told(Verdict::Pause);
    }
    if let Some(refusal) = not_permitted(snapshot.datacenter, machine) {
        return Standing::Told(match placed {
            Some(_) => Verdict::Withdraw(refusal),
            None => Verdict::Refuse(refusal),
        });
    }
    match (placed, &member.usage) {
        (None, Err(refusal)) => Standing::Told(Verdict::Refuse(refusal.clone())),
        (None, Ok(_)) => Standing::Waits(None),
        (Some(_), Err(_)) => Standing::Stays,
        (Some(placed), Ok(_)) => match problem_with(snapshot, machine, placed) {
            Some(problem) => Standing::Waits(Some(problem)),
            None => Standing::Stays,
        },
    }
}

fn not_permitted(datacenter: &Datacenter, machine: &Machine) -> Option<Refusal> {
    let own = machine.metadata.namespace.as_deref().unwrap_or_default();
    let name = datacenter.metadata.name.as_deref().unwrap_or_default();
    let place = datacenter.metadata.namespace.as_deref().unwrap_or_default();
    (!permits(&datacenter.metadata, own)).then(|| {
        Refusal::new(
            reason::REFERENCE_NOT_PERMITTED,
            format!(
                "spec.datacenterRef names \"{place}/{name}\", which does not allow references from namespace {own:?}: add it to the annotation {} of that Datacenter",
                labels::ALLOW_REFERENCES_FROM
            ),
        )
    })
}

/// Why a Machine of which nothing was made yet cannot be made where it was placed.
fn problem_with(snapshot: &Snapshot<'_>, machine: &Machine, placed: &str) -> Option<Problem> {
    let lasting = |why: &str| Some(Problem { why: why.to_owned(), is_temporary: false });
    if named_provider(machine).is_some_and(|named| named != placed) {
        return lasting("spec.providerRef names another one");
    }
    match snapshot.candidates.iter().find(|candidate| candidate.name == placed) {
        None => lasting("the Datacenter no longer has it"),
        Some(candidate) => candidate.problem.clone(),
    }
}

fn named_provider(machine: &Machine) -> Option<String> {
    let own = machine.metadata.namespace.as_deref().unwrap_or_default();
    machine.spec.provider_ref.as_ref().map(|reference| full_name(reference, own))
}

fn try_place(
    snapshot: &Snapshot<'_>,
    machine: &Machine,
    usage: Usage,
    problem: Option<&Problem>,
    passed_over: &BTreeMap<String, Note>,
    candidates: &[Candidate],
) -> Result<Assignment, Refusal> {
    if snapshot.datacenter.metadata.deletion_timestamp.is_some() {
        return Err(Refusal::new(
            reason::DATACENTER_NOT_FOUND,
            "the Datacenter that spec.datacenterRef names is being deleted: make another Machine that names another one",
        ));
    }
    let named = named_provider(machine);
    if let Some(named) = &named
        && !candidates.iter().any(|candidate| candidate.name == *named)
    {
        return Err(Refusal::new(
            reason::PROVIDER_NOT_FOUND,
            format!(
                "spec.providerRef names {named:?}, which the Datacenter does not have: add it to its spec.machineProviders, or make another Machine"
            ),
        ));
    }
    let told = |(name, note): (&String, &Note)| (name.clone(), note.why());
    let before = placement(machine).zip(problem);
    let request = Request {
        usage,
        zone: machine.spec.zone.as_deref(),
        only: named.as_deref(),
        passed_over: &passed_over.iter().map(told).collect(),
        instead_of: before.map(|(name, problem)| (name, problem.why.as_str())),
    };
    let placement = place(&snapshot.datacenter.spec, &request, candidates)?;
    Ok(Assignment { placement, moved_from: before.map(|(name, _)| name.to_owned()) })
}

/// The annotations that carry a verdict out, with none for those that go; empty if there is nothing to write.
#[must_use]
pub fn annotations(
    machine: &Machine,
    verdict: &Verdict,
    now: Timestamp,
) -> BTreeMap<&'static str, Option<String>> {
    match verdict {
        Verdict::Place(Assignment { placement, moved_from }) => {
            let mut all: BTreeMap<&'static str, Option<String>> = [
                (labels::IDENTITY, Some(identity(machine).as_str().to_owned())),
                (labels::PLACEMENT, Some(placement.provider.clone())),
                (labels::ZONE, placement.zone.clone()),
                (labels::PLACEMENT_REASON, Some(placement.why.clone())),
            ]
            .into();
            if let Some(before) = moved_from {
                all.insert(labels::PASSED_OVER, Some(moved_on(machine, before, &placement.provider, now)));
            } else if is_passed_over_by(machine, &placement.provider) {
                all.insert(labels::PASSED_OVER, taken_up(machine, &placement.provider, now));
            }
            all.retain(|name, value| annotation(machine, name) != value.as_deref());
            all
        }
        Verdict::Withdraw(_) => {
            [(labels::PLACEMENT, None), (labels::ZONE, None), (labels::PLACEMENT_REASON, None)].into()
        }
        Verdict::Refuse(_) | Verdict::Pause => BTreeMap::new(),
    }
}
