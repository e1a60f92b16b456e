//! Quotas: what the Machines of a datacenter may use together.

use std::{cmp::Ordering, collections::BTreeMap};

use jiff::Timestamp;
use vitistack_types::{Quantity, conditions::reason, v1alpha1::ResourceQuotas};

use super::Usage;
use crate::{Refusal, machine::Identity};

/// A Machine that names the datacenter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which Machine.
    pub identity: Identity,
    /// When it was created.
    pub created: Timestamp,
    /// Whether it was let in before. What was let in stays, whatever the quota becomes.
    pub is_placed: bool,
    /// What it uses.
    pub usage: Usage,
}

impl Claim {
    /// Who comes first: what is placed, then the older, then by identity, so that no two controllers and no two runs
    /// disagree.
    fn order(&self, other: &Self) -> Ordering {
        let key = |claim: &Self| (!claim.is_placed, claim.created);
        key(self).cmp(&key(other)).then_with(|| self.identity.cmp(&other.identity))
    }
}

/// Who is let in. Each that the quotas allow is given to `take`, in turn; what that refuses, and what does not fit, uses
/// nothing up, so another one behind it may still fit.
pub fn admit<T>(
    quotas: &ResourceQuotas,
    claims: &[Claim],
    mut take: impl FnMut(&Claim) -> Result<T, Refusal>,
) -> BTreeMap<Identity, Result<T, Refusal>> {
    let mut ordered: Vec<&Claim> = claims.iter().collect();
    ordered.sort_by(|one, other| one.order(other));
    let mut used = Usage::default();
    let mut verdicts = BTreeMap::new();
    for claim in ordered {
        let with = used.plus(claim.usage);
        let allowed = if claim.is_placed { Ok(()) } else { within(quotas, used, with) };
        let verdict = allowed.and_then(|()| take(claim));
        if verdict.is_ok() {
            used = with;
        }
        verdicts.insert(claim.identity.clone(), verdict);
    }
    verdicts
}

/// A field, the most that it allows, what is used, what would be used, and how its numbers are written.
type Limit<'a> = (&'static str, Option<u64>, u64, u64, &'a dyn Fn(u64) -> String);

fn within(quotas: &ResourceQuotas, used: Usage, with: Usage) -> Result<(), Refusal> {
    let bytes = |most: &Option<Quantity>| most.as_ref().map(Quantity::units);
    let size = |bytes: u64| Quantity::from_units(bytes).to_string();
    let count = |number: u64| number.to_string();
    let limits: [Limit<'_>; 4] = [
        (
            "maxMachines",
            quotas.max_machines.map(u64::from),
            used.machines.into(),
            with.machines.into(),
            &count,
        ),
        ("maxCpu", quotas.max_cpu.map(u64::from), used.cpu.into(), with.cpu.into(), &count),
        ("maxMemory", bytes(&quotas.max_memory), used.memory, with.memory, &size),
        ("maxStorage", bytes(&quotas.max_storage), used.storage, with.storage, &size),
    ];
    match limits.into_iter().find(|(_, most, _, with, _)| most.is_some_and(|most| *with > most)) {
        None => Ok(()),
        Some((field, most, used, with, words)) => Err(Refusal::new(
            reason::QUOTA_EXCEEDED,
            format!(
                "resourceQuotas.{field} of the Datacenter is {}, {} is used and this machine needs {} more: raise the quota, or delete or shrink machines",
                words(most.unwrap_or_default()),
                words(used),
                words(with - used),
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn claim(identity: &str, created: i64, cpu: u32) -> Claim {
        Claim {
            identity: Identity::new(identity),
            created: Timestamp::from_second(created).unwrap(),
            is_placed: false,
            usage: Usage { machines: 1, cpu, memory: GIB, storage: 10 * GIB },
        }
    }

    fn let_in(quotas: &ResourceQuotas, claims: &[Claim]) -> Vec<String> {
        let verdicts = admit(quotas, claims, |_| Ok(()));
        verdicts
            .iter()
            .filter(|(_, verdict)| verdict.is_ok())
            .map(|(identity, _)| identity.to_string())
            .collect()
    }

    #[test]
    fn the_older_are_let_in_and_ties_are_broken_by_identity() {
        let quotas = ResourceQuotas::builder().max_machines(2).build();
        let claims = [claim("c", 5, 1), claim("b", 5, 1), claim("a", 9, 1)];
        assert_eq!(let_in(&quotas, &claims), ["b", "c"]);
        let mut turned = claims.to_vec();
        turned.reverse();
        assert_eq!(let_in(&quotas, &turned), ["b", "c"], "the order of reading does not matter");
    }

    #[test]
    fn what_was_let_in_stays_in() {
        let quotas = ResourceQuotas::builder().max_machines(1).build();
        let young = Claim { is_placed: true, ..claim("young", 9, 1) };
        assert_eq!(let_in(&quotas, &[claim("old", 1, 1), young]), ["young"]);
    }

    #[test]
    fn one_that_does_not_fit_does_not_keep_a_smaller_one_out() {
        let quotas = ResourceQuotas::builder().max_cpu(4).build();
        assert_eq!(let_in(&quotas, &[claim("huge", 1, 8), claim("small", 2, 2)]), ["small"]);
    }

    #[test]
    fn a_quota_that_is_full_is_told_with_its_numbers() {
        let refused = |quotas: ResourceQuotas| {
            let claims = [claim("a", 1, 2), claim("b", 2, 2)];
            admit(&quotas, &claims, |_| Ok(())).remove(&Identity::new("b")).unwrap().unwrap_err().message
        };
        let told = [
            refused(ResourceQuotas::builder().max_machines(1).build()),
            refused(ResourceQuotas::builder().max_cpu(3).build()),
            refused(ResourceQuotas::builder().max_memory("1Gi".parse().unwrap()).build()),
            refused(ResourceQuotas::builder().max_storage("15Gi".parse().unwrap()).build()),
        ];
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn no_order_of_arrival_lets_more_in_than_the_quota() {
        let quotas = ResourceQuotas::builder().max_machines(10).build();
        let mut claims: Vec<Claim> = (0..50).map(|number| claim(&format!("m{number:02}"), 7, 1)).collect();
        for _ in 0..50 {
            claims.rotate_left(7);
            assert_eq!(let_in(&quotas, &claims).len(), 10);
        }
    }
}
