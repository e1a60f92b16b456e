//! Quotas: what the Machines of a datacenter may use in total.

use std::{cmp::Ordering, collections::BTreeMap};

use jiff::Timestamp;
use vitistack_types::{Quantity, v1alpha1::ResourceQuotas};

use super::{Usage, growth::is_growth};
use crate::{Refusal, machine::Identity, refusals};

/// A Machine that refers to the datacenter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which Machine.
    pub identity: Identity,
    /// When it was created.
    pub created: Timestamp,
    /// What it was admitted with before. An admitted Machine keeps it, even if the quota is lowered.
    pub kept: Option<Usage>,
    /// What it is to use.
    pub usage: Usage,
}

impl Claim {
    /// Older Machines come first, then by identity, so that no two controllers and no two runs disagree.
    fn order(&self, other: &Self) -> Ordering {
        self.created.cmp(&other.created).then_with(|| self.identity.cmp(&other.identity))
    }
}

/// What became of the claims.
#[derive(Clone, Debug, PartialEq)]
pub struct Admission<T> {
    /// Which Machines were admitted, with what they had.
    pub verdicts: BTreeMap<Identity, Result<T, Refusal>>,
    /// Which admitted Machines may use more than they had.
    pub growths: BTreeMap<Identity, Result<Usage, Refusal>>,
    /// What is used in total.
    pub used: Usage,
}

/// Admits Machines in turn. Each one that the quotas allow is passed to `take`; a Machine that `take` refuses, or that does
/// not fit, uses nothing, so a later one may still fit.
///
/// Machines that were admitted before come first, with what they had. Whatever they are to use beyond that is judged like
/// the claim of a new Machine of the same age.
pub fn admit<T>(
    quotas: &ResourceQuotas,
    claims: &[Claim],
    mut take: impl FnMut(&Claim) -> Result<T, Refusal>,
) -> Admission<T> {
    let mut used = Usage::default();
    let (mut verdicts, mut growths) = (BTreeMap::new(), BTreeMap::new());

    let mut ordered: Vec<&Claim> = claims.iter().collect();
    ordered.sort_by(|one, other| one.order(other));
    let mut open: Vec<&Claim> = Vec::new();
    for claim in ordered {
        let Some(kept) = claim.kept else {
            open.push(claim);
            continue;
        };
        let verdict = take(claim);
        if verdict.is_ok() {
            used = used.plus(kept);
            open.extend(is_growth(quotas, kept, claim.usage).then_some(claim));
        }
        verdicts.insert(claim.identity.clone(), verdict);
    }

    for claim in open {
        let with = used.minus(claim.kept.unwrap_or_default()).plus(claim.usage);
        let allowed = within(quotas, used, with);
        let is_taken = if claim.kept.is_some() {
            let growth = allowed.map(|()| claim.usage);
            let is_taken = growth.is_ok();
            growths.insert(claim.identity.clone(), growth);
            is_taken
        } else {
            let verdict = allowed.and_then(|()| take(claim));
            let is_taken = verdict.is_ok();
            verdicts.insert(claim.identity.clone(), verdict);
            is_taken
        };
        if is_taken {
            used = with;
        }
    }
    Admission { verdicts, growths, used }
}

/// A quota: its field, its limit, what is used, what would be used, and how its numbers are printed.
type Limit = (&'static str, Option<u64>, u64, u64, fn(u64) -> String);

fn limits(quotas: &ResourceQuotas, used: Usage, with: Usage) -> [Limit; 4] {
    let bytes = |limit: &Option<Quantity>| limit.as_ref().map(Quantity::units);
    let size: fn(u64) -> String = |bytes| Quantity::from_units(bytes).to_string();
    let count: fn(u64) -> String = |number| number.to_string();
    let machines = quotas.max_machines.map(u64::from);
    [
        ("maxMachines", machines, used.machines.into(), with.machines.into(), count),
        ("maxCpu", quotas.max_cpu.map(u64::from), used.cpu.into(), with.cpu.into(), count),
        ("maxMemory", bytes(&quotas.max_memory), used.memory, with.memory, size),
        ("maxStorage", bytes(&quotas.max_storage), used.storage, with.storage, size),
    ]
}

/// Checks that what `with` is more than `used` is within the quotas.
pub(super) fn within(quotas: &ResourceQuotas, used: Usage, with: Usage) -> Result<(), Refusal> {
    let is_exceeded =
        |(_, limit, used, with, _): &Limit| with > used && limit.is_some_and(|limit| *with > limit);
    match limits(quotas, used, with).into_iter().find(is_exceeded) {
        None => Ok(()),
        Some((field, limit, used, with, print)) => Err(refusals::quota_exceeded(
            field,
            &print(limit.unwrap_or_default()),
            &print(used),
            &print(with - used),
        )),
    }
}

/// Returns the first quota that is exceeded already, because it was lowered.
pub(super) fn overused(quotas: &ResourceQuotas, used: Usage) -> Option<Refusal> {
    let is_exceeded = |(_, limit, used, ..): &Limit| limit.is_some_and(|limit| *used > limit);
    let (field, limit, used, _, print) = limits(quotas, used, used).into_iter().find(is_exceeded)?;
    Some(refusals::quota_overused(field, &print(limit.unwrap_or_default()), &print(used)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn claim(identity: &str, created: i64, cpu: u32) -> Claim {
        Claim {
            identity: Identity::new(identity),
            created: Timestamp::from_second(created).unwrap(),
            kept: None,
            usage: Usage { machines: 1, cpu, memory: GIB, storage: 10 * GIB },
        }
    }

    /// A claim of a Machine that was admitted with this many CPUs.
    fn admitted_with(cpu: u32, claim: Claim) -> Claim {
        Claim { kept: Some(Usage { cpu, ..claim.usage }), ..claim }
    }

    fn admitted(quotas: &ResourceQuotas, claims: &[Claim]) -> Vec<String> {
        let admission = admit(quotas, claims, |_| Ok(()));
        admission
            .verdicts
            .iter()
            .filter(|(_, verdict)| verdict.is_ok())
            .map(|(identity, _)| identity.to_string())
            .collect()
    }

    #[test]
    fn older_machines_are_admitted_first_and_ties_are_broken_by_identity() {
        let quotas = ResourceQuotas::builder().max_machines(2).build();
        let claims = [claim("c", 5, 1), claim("b", 5, 1), claim("a", 9, 1)];
        assert_eq!(admitted(&quotas, &claims), ["b", "c"]);
        let mut turned = claims.to_vec();
        turned.reverse();
        assert_eq!(admitted(&quotas, &turned), ["b", "c"], "the order of reading does not matter");
    }

    #[test]
    fn an_admitted_machine_stays_admitted() {
        let quotas = ResourceQuotas::builder().max_machines(1).build();
        let young = admitted_with(1, claim("young", 9, 1));
        assert_eq!(admitted(&quotas, &[claim("old", 1, 1), young]), ["young"]);
    }

    #[test]
    fn a_machine_that_does_not_fit_does_not_block_a_smaller_one() {
        let quotas = ResourceQuotas::builder().max_cpu(4).build();
        assert_eq!(admitted(&quotas, &[claim("huge", 1, 8), claim("small", 2, 2)]), ["small"]);
    }

    #[test]
    fn a_full_quota_is_reported_with_its_numbers() {
        let refused = |quotas: ResourceQuotas| {
            let claims = [claim("a", 1, 2), claim("b", 2, 2)];
            admit(&quotas, &claims, |_| Ok(()))
                .verdicts
                .remove(&Identity::new("b"))
                .unwrap()
                .unwrap_err()
                .message
        };
        let messages = [
            refused(ResourceQuotas::builder().max_machines(1).build()),
            refused(ResourceQuotas::builder().max_cpu(3).build()),
            refused(ResourceQuotas::builder().max_memory("1Gi".parse().unwrap()).build()),
            refused(ResourceQuotas::builder().max_storage("15Gi".parse().unwrap()).build()),
        ];
        insta::assert_snapshot!(messages.join("\n"));
    }

    #[test]
    fn no_order_of_arrival_admits_more_than_the_quota() {
        let quotas = ResourceQuotas::builder().max_machines(10).build();
        let mut claims: Vec<Claim> = (0..50).map(|number| claim(&format!("m{number:02}"), 7, 1)).collect();
        for _ in 0..50 {
            claims.rotate_left(7);
            assert_eq!(admitted(&quotas, &claims).len(), 10);
        }
    }

    #[test]
    fn growth_is_judged_like_a_new_claim_and_the_machine_keeps_what_it_had() {
        let quotas = ResourceQuotas::builder().max_cpu(8).build();
        let growing = |cpu| admitted_with(2, claim("growing", 5, cpu));
        let (old, new) = (claim("old", 1, 4), claim("new", 9, 4));

        let fits = admit(&quotas, &[growing(4)], |_| Ok(()));
        assert_eq!(fits.growths[&Identity::new("growing")].as_ref().unwrap().cpu, 4);
        assert_eq!(fits.used.cpu, 4);

        // The older claim is judged first, then the growth, then the younger claim.
        let admission = admit(&quotas, &[new, growing(64), old], |_| Ok(()));
        let held = admission.growths[&Identity::new("growing")].as_ref().unwrap_err();
        assert!(
            held.message.contains("maxCpu is 8, of which 6 is used, and this machine needs 62 more"),
            "{held}"
        );
        assert_eq!(admission.verdicts[&Identity::new("growing")], Ok(()), "it stays");
        assert_eq!(admission.verdicts[&Identity::new("old")], Ok(()));
        assert!(admission.verdicts[&Identity::new("new")].is_err());
        assert_eq!(admission.used.cpu, 6);
    }

    #[test]
    fn no_order_of_growth_exceeds_the_quota() {
        let quotas = ResourceQuotas::builder().max_cpu(20).build();
        let mut claims: Vec<Claim> =
            (0..10).map(|number| admitted_with(1, claim(&format!("m{number}"), 7, 3))).collect();
        for _ in 0..10 {
            claims.rotate_left(3);
            let admission = admit(&quotas, &claims, |_| Ok(()));
            assert_eq!(admission.growths.values().filter(|growth| growth.is_ok()).count(), 5);
            assert_eq!(admission.used.cpu, 20);
        }
    }

    #[test]
    fn a_lowered_quota_blocks_only_what_grows() {
        let quotas = ResourceQuotas::builder().max_cpu(1).max_memory("4Gi".parse().unwrap()).build();
        let mut growing = admitted_with(2, claim("growing", 5, 2));
        growing.usage.memory = 2 * GIB;
        let admission = admit(&quotas, &[growing], |_| Ok(()));
        assert!(admission.growths[&Identity::new("growing")].is_ok());
        let over = overused(&quotas, admission.used).unwrap().message;
        assert!(over.contains("maxCpu is 1, but 2 is used"), "{over}");
    }
}
