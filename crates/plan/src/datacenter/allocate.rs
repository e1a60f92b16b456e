//! The decision about all machines of a datacenter, made together.

use std::collections::BTreeMap;

use jiff::Timestamp;
use vitistack_types::{
    ObjectName, Placement,
    v1alpha1::{Datacenter, Machine, ResourceQuotas},
};

use super::{
    Admission, Candidate, Choice, Claim, Problem, Request, Usage, admit, choose,
    growth::{admitted, is_growth, keeps, limits_size},
    passed_over::{Attempt, passed_over, until},
    zone_of,
};
use crate::{
    Refusal, is_paused,
    machine::{Identity, has_own_identity, may_have_backing_machine, placement, provider_of},
    permits, refusals,
};

/// Everything that was read of one datacenter.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// The Datacenter.
    pub datacenter: &'a Datacenter,
    /// Every Machine that refers to it.
    pub members: Vec<Member<'a>>,
    /// The providers that it lists, with what Machines that are not its members use of them.
    pub candidates: Vec<Candidate>,
    /// The time.
    pub now: Timestamp,
}

/// A Machine that refers to the datacenter.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// The Machine.
    pub machine: &'a Machine,
    /// What it uses, or why that is not known.
    pub usage: Result<Usage, Refusal>,
}

/// What happens to one Machine. A Machine without a decision stays where and as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemberDecision {
    /// It is placed.
    Place(Assignment),
    /// It cannot be created where it was placed, and no other provider can host it: its placement is removed.
    Withdraw(Refusal),
    /// It is not placed.
    Refuse(Refusal),
    /// It is not placed, because it is paused.
    Pause,
    /// It stays, and its size is recorded as admitted.
    Admit(Usage),
    /// It stays with the size that it has: the larger one does not fit.
    Hold(Refusal),
}

/// Where a Machine goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The provider, the zone and why.
    pub choice: Choice,
    /// The provider it was to be created on until now.
    pub moved_from: Option<ObjectName>,
    /// What it is admitted with, if the quotas limit that and it was not admitted before.
    pub admitted: Option<Usage>,
}

/// The decision about one datacenter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Allocation<'a> {
    /// What happens to the Machines, those that were admitted first.
    pub(crate) members: Vec<(&'a Machine, MemberDecision)>,
    /// What all admitted Machines use in total.
    pub(crate) used: Usage,
    /// When a provider that was passed over can be tried again, if a Machine waits for it.
    pub(crate) retry_at: Option<Timestamp>,
}

/// The state of a Machine before the decision.
enum Membership {
    /// It does not count, and nothing is done about it.
    Ignored,
    /// It counts, and stays.
    Settled,
    /// It does not count, and that is reported.
    Decided(MemberDecision),
    /// It needs a provider; or another one than it has, because of this problem.
    Waiting(Option<Problem>),
}

/// Decides about all Machines of a datacenter. Pure, and the only place that does.
#[must_use]
pub(crate) fn allocate<'a>(snapshot: &Snapshot<'a>) -> Allocation<'a> {
    let mut allocation = Allocation { members: Vec::new(), used: Usage::default(), retry_at: None };
    let mut candidates = snapshot.candidates.clone();
    let mut waiting: BTreeMap<Identity, (&'a Machine, Option<Problem>)> = BTreeMap::new();
    let quotas = snapshot.datacenter.spec.resource_quotas.clone().unwrap_or_default();
    let mut growing: BTreeMap<Identity, &'a Machine> = BTreeMap::new();

    // Machines that exist are counted before any other one is placed.
    let mut claims = Vec::with_capacity(snapshot.members.len());
    for member in &snapshot.members {
        let machine = member.machine;
        let usage = member.usage.clone().unwrap_or(Usage::ONE_MACHINE);
        // By UID: two Machines can carry one identity, and both count.
        let key = Identity::new(machine.metadata.uid.clone().unwrap_or_default());
        match membership(snapshot, member) {
            Membership::Ignored => continue,
            Membership::Decided(decision) => {
                allocation.members.push((machine, decision));
                continue;
            }
            Membership::Settled => {
                if let Some(candidate) = hosting(&mut candidates, machine) {
                    candidate.count(machine, keeps(&quotas, machine, usage));
                }
            }
            Membership::Waiting(problem) => {
                waiting.insert(key.clone(), (machine, problem));
            }
        }
        let created = machine.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0);
        let kept = placement(machine).map(|_| keeps(&quotas, machine, usage));
        if kept.is_some() && is_judged(&quotas, member) {
            growing.insert(key.clone(), machine);
            allocation
                .members
                .extend(size_to_record(&quotas, machine, usage).map(|decision| (machine, decision)));
        }
        claims.push(Claim { identity: key, created, kept, usage });
    }

    // The quotas admit the others in turn, and each admitted one takes capacity of its provider.
    let mut placed = Vec::new();
    let retry_at = &mut allocation.retry_at;
    let admission = admit(&quotas, &claims, |claim| {
        let Some((machine, problem)) = waiting.get(&claim.identity) else { return Ok(()) };
        let attempts = current_attempts(machine, snapshot.now, &candidates);
        match assign(snapshot, machine, claim.usage, problem.as_ref(), &attempts, &candidates) {
            Ok(assignment) => {
                let Choice { provider, zone, .. } = &assignment.choice;
                if let Some(candidate) = find(&mut candidates, provider) {
                    candidate.add(zone.as_deref(), claim.usage);
                }
                let admitted = (claim.kept.is_none() && limits_size(&quotas)).then_some(claim.usage);
                placed.push((*machine, MemberDecision::Place(Assignment { admitted, ..assignment })));
                Ok(())
            }
            Err(refusal) => {
                *retry_at = [*retry_at, next_attempt(&attempts, &candidates)].into_iter().flatten().min();
                let is_temporary = problem.as_ref().is_some_and(|problem| problem.is_temporary);
                if !is_temporary {
                    return Err(refusal);
                }
                // No other provider can host it, and its own may come back.
                if let Some(candidate) = hosting(&mut candidates, machine) {
                    candidate.add(zone_of(machine), claim.usage);
                }
                Ok(())
            }
        }
    });
    allocation.members.extend(placed);
    allocation.used = admission.used;

    allocation.add_decisions(admission, &waiting, &growing);
    allocation
}

impl<'a> Allocation<'a> {
    /// Adds what the quotas decided about the claims, besides the placements.
    fn add_decisions(
        &mut self,
        admission: Admission<()>,
        waiting: &BTreeMap<Identity, (&'a Machine, Option<Problem>)>,
        growing: &BTreeMap<Identity, &'a Machine>,
    ) {
        for (key, result) in admission.verdicts {
            match (result, waiting.get(&key)) {
                (Err(refusal), Some((machine, Some(_)))) => {
                    self.members.push((machine, MemberDecision::Withdraw(refusal)));
                }
                (Err(refusal), Some((machine, None))) => {
                    self.members.push((machine, MemberDecision::Refuse(refusal)));
                }
                (Ok(()), _) | (Err(_), None) => {}
            }
        }
        for (key, growth) in admission.growths {
            let decision = growth.map_or_else(MemberDecision::Hold, MemberDecision::Admit);
            self.members.extend(growing.get(&key).map(|machine| (*machine, decision)));
        }
    }
}

/// Whether the size of a placed Machine is judged now: the quotas limit it, and it is known and can change.
fn is_judged(quotas: &ResourceQuotas, Member { machine, usage }: &Member<'_>) -> bool {
    let is_deleting = machine.metadata.deletion_timestamp.is_some();
    let can_change = !is_deleting && !is_paused(&machine.metadata) && has_own_identity(machine);
    limits_size(quotas) && usage.is_ok() && can_change
}

/// The decision to record the size of a placed Machine, if it is another one than before and not larger.
fn size_to_record(quotas: &ResourceQuotas, machine: &Machine, usage: Usage) -> Option<MemberDecision> {
    let is_settled =
        admitted(machine).is_some_and(|before| before == usage || is_growth(quotas, before, usage));
    (!is_settled).then_some(MemberDecision::Admit(usage))
}

fn find<'a>(candidates: &'a mut [Candidate], provider: &ObjectName) -> Option<&'a mut Candidate> {
    candidates.iter_mut().find(|candidate| candidate.name == *provider)
}

/// The candidate that a Machine is placed on.
fn hosting<'a>(candidates: &'a mut [Candidate], machine: &Machine) -> Option<&'a mut Candidate> {
    find(candidates, placement(machine)?.provider()?)
}

/// The providers that are passed over for a Machine, except those that may have capacity by now.
fn current_attempts(
    machine: &Machine,
    now: Timestamp,
    candidates: &[Candidate],
) -> BTreeMap<ObjectName, Attempt> {
    let mut attempts = passed_over(machine, now);
    attempts.retain(|name, attempt| {
        let candidate = candidates.iter().find(|candidate| candidate.name == *name);
        !candidate.is_some_and(|candidate| attempt.is_outdated(&candidate.full))
    });
    attempts
}

/// When the first of the providers that are passed over and otherwise usable is tried again.
fn next_attempt(attempts: &BTreeMap<ObjectName, Attempt>, candidates: &[Candidate]) -> Option<Timestamp> {
    let is_usable = |name: &ObjectName| {
        candidates.iter().any(|candidate| candidate.name == *name && candidate.problem.is_none())
    };
    attempts.iter().filter(|(name, _)| is_usable(name)).map(|(_, attempt)| until(attempt.since)).min()
}

fn membership(snapshot: &Snapshot<'_>, member: &Member<'_>) -> Membership {
    let machine = member.machine;
    let placed = placement(machine);
    let is_paused = is_paused(&machine.metadata);
    let is_untouchable = machine.metadata.deletion_timestamp.is_some() || !has_own_identity(machine);

    if placed.is_some() && (is_untouchable || is_paused || may_have_backing_machine(&machine.metadata)) {
        return Membership::Settled;
    }
    if is_untouchable {
        return Membership::Ignored;
    }
    if is_paused {
        return Membership::Decided(MemberDecision::Pause);
    }
    if let Some(refusal) = not_permitted(snapshot.datacenter, machine) {
        return Membership::Decided(match placed {
            Some(_) => MemberDecision::Withdraw(refusal),
            None => MemberDecision::Refuse(refusal),
        });
    }

    match (placed, &member.usage) {
        (None, Err(refusal)) => Membership::Decided(MemberDecision::Refuse(refusal.clone())),
        (None, Ok(_)) => Membership::Waiting(None),
        (Some(_), Err(_)) => Membership::Settled,
        (Some(placed), Ok(_)) => match problem_with(snapshot, machine, &placed) {
            Some(problem) => Membership::Waiting(Some(problem)),
            None => Membership::Settled,
        },
    }
}

/// Why a Datacenter does not accept a Machine of another namespace.
pub(crate) fn not_permitted(datacenter: &Datacenter, machine: &Machine) -> Option<Refusal> {
    let own = machine.metadata.namespace.as_deref().unwrap_or_default();
    (!permits(&datacenter.metadata, own))
        .then(|| refusals::datacenter_not_available(&ObjectName::of(datacenter), own))
}

/// Why a Machine without a backing machine cannot be created where it was placed.
fn problem_with(snapshot: &Snapshot<'_>, machine: &Machine, placed: &Placement) -> Option<Problem> {
    let lasting = |refusal| Some(Problem { refusal, is_temporary: false });
    if provider_of(machine).is_some_and(|named| placed.provider() != Some(&named)) {
        return lasting(refusals::candidate_not_referenced());
    }
    let candidate = snapshot.candidates.iter().find(|candidate| placed.provider() == Some(&candidate.name));
    match candidate {
        None => lasting(refusals::candidate_removed()),
        Some(candidate) => candidate.problem.clone(),
    }
}

fn assign(
    snapshot: &Snapshot<'_>,
    machine: &Machine,
    usage: Usage,
    problem: Option<&Problem>,
    attempts: &BTreeMap<ObjectName, Attempt>,
    candidates: &[Candidate],
) -> Result<Assignment, Refusal> {
    let datacenter = snapshot.datacenter;
    if datacenter.metadata.deletion_timestamp.is_some() {
        return Err(refusals::datacenter_deleting(&ObjectName::of(datacenter)));
    }
    let named = provider_of(machine);
    if let Some(named) = &named
        && !candidates.iter().any(|candidate| candidate.name == *named)
    {
        return Err(refusals::provider_not_in_datacenter(named));
    }

    let placed = placement(machine);
    let previous = placed.as_ref().and_then(Placement::provider).zip(problem);
    let request = Request {
        usage,
        zone: machine.spec.zone.as_deref(),
        only: named.as_ref(),
        passed_over: &attempts.iter().map(|(name, attempt)| (name.clone(), attempt.why())).collect(),
        instead_of: previous.map(|(name, problem)| (name, problem.refusal.message.as_str())),
    };
    let choice = choose(&datacenter.spec, &request, candidates)?;
    Ok(Assignment { choice, moved_from: previous.map(|(name, _)| name.clone()), admitted: None })
}
