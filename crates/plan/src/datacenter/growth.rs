//! What Machines were admitted with, and whether they may grow.
//!
//! The annotation is on the object that the spec is on. So a reader of a larger spec reads what was admitted then, and a
//! machine never grows by what was admitted for an earlier spec.

use std::fmt;

use vitistack_types::{
    ObjectName, Quantity, labels,
    v1alpha1::{Datacenter, Machine, ResourceQuotas},
};

use super::{Usage, quota::within, usage::given};
use crate::{Refusal, machine::annotation, refusals};

/// What a Machine was admitted with, as its annotation spells it: `cpu=4,memory=8Gi,storage=30Gi`.
pub(super) struct Admitted(pub(super) Usage);

impl Admitted {
    /// Parses an annotation.
    fn parse(text: &str) -> Option<Self> {
        let mut values = text.split(',').zip(["cpu=", "memory=", "storage="]);
        let mut next = || values.next().and_then(|(part, name)| part.strip_prefix(name));
        let cpu = next()?.parse().ok()?;
        let mut units = || Some(next()?.parse::<Quantity>().ok()?.units());
        Some(Self(Usage { machines: 1, cpu, memory: units()?, storage: units()? }))
    }
}

impl fmt::Display for Admitted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Usage { cpu, memory, storage, .. } = self.0;
        let (memory, storage) = (Quantity::from_units(memory), Quantity::from_units(storage));
        write!(formatter, "cpu={cpu},memory={memory},storage={storage}")
    }
}

/// Returns what a placed Machine was admitted with; without a record, what the operators reported that it was given.
pub(super) fn admitted(machine: &Machine) -> Option<Usage> {
    let recorded = annotation(machine, labels::ADMITTED).and_then(Admitted::parse);
    recorded.map(|admitted| admitted.0).or_else(|| given(machine))
}

/// Whether the quotas limit the size of machines, and not only their number.
pub(super) fn limits_size(quotas: &ResourceQuotas) -> bool {
    quotas.max_cpu.is_some() || quotas.max_memory.is_some() || quotas.max_storage.is_some()
}

/// Whether a machine uses more than before of something that the quotas limit.
pub(super) fn is_growth(quotas: &ResourceQuotas, before: Usage, after: Usage) -> bool {
    (quotas.max_cpu.is_some() && after.cpu > before.cpu)
        || (quotas.max_memory.is_some() && after.memory > before.memory)
        || (quotas.max_storage.is_some() && after.storage > before.storage)
}

/// What a placed Machine counts with: what it was admitted with until a change of that is recorded, so that nothing is given
/// away that it could take back.
pub(super) fn keeps(quotas: &ResourceQuotas, machine: &Machine, usage: Usage) -> Usage {
    match admitted(machine).filter(|_| limits_size(quotas)) {
        None => usage,
        Some(before) if is_growth(quotas, before, usage) => before,
        Some(before) => before.max(usage),
    }
}

/// Returns what a placed Machine uses of its provider. Growth that its Datacenter did not admit takes nothing from others.
#[must_use]
pub fn hosted_usage(machine: &Machine, usage: Usage, datacenter: Option<&Datacenter>) -> Usage {
    let quotas = datacenter.and_then(|datacenter| datacenter.spec.resource_quotas.as_ref());
    quotas.map_or(usage, |quotas| keeps(quotas, machine, usage))
}

/// Checks that the Datacenter of a placed Machine admitted what it uses now. Until then the machine keeps what it has.
pub fn check_growth(machine: &Machine, usage: Usage, datacenter: &Datacenter) -> Result<(), Refusal> {
    let Some(quotas) = datacenter.spec.resource_quotas.as_ref() else { return Ok(()) };
    let Some(before) = admitted(machine).filter(|before| is_growth(quotas, *before, usage)) else {
        return Ok(());
    };
    let used = datacenter.status.as_ref().and_then(|status| status.used.as_ref()).map(Usage::from);
    let used = used.unwrap_or_default();
    // The Datacenter decides. Its last status only explains why it may not have.
    within(quotas, used, used.minus(before).plus(usage))
        .and_then(|()| Err(refusals::growth_not_admitted(&ObjectName::of(datacenter))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn usage(cpu: u32, memory: u64, storage: u64) -> Usage {
        Usage { machines: 1, cpu, memory: memory * GIB, storage: storage * GIB }
    }

    fn machine(admitted: Option<&str>) -> Machine {
        let mut machine = Machine::builder().template("small").build("web", "default").unwrap();
        let annotations = admitted.map(|text| [(labels::ADMITTED.to_owned(), text.to_owned())].into());
        machine.metadata.annotations = annotations;
        machine
    }

    #[test]
    fn the_annotation_reads_as_it_was_written() {
        for usage in [usage(4, 8, 30), Usage { machines: 1, cpu: 1, memory: 1, storage: 0 }] {
            let text = Admitted(usage).to_string();
            assert_eq!(Admitted::parse(&text).unwrap().0, usage, "{text}");
        }
        assert_eq!(Admitted(usage(4, 8, 30)).to_string(), "cpu=4,memory=8Gi,storage=30Gi");
        for text in
            ["", "cpu=4", "cpu=4,memory=8Gi", "memory=8Gi,cpu=4,storage=1", "cpu=-1,memory=1,storage=1"]
        {
            assert!(Admitted::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn growth_that_is_held_takes_nothing_of_the_provider() {
        let quotas = ResourceQuotas::builder().max_cpu(4).build();
        let datacenter = Datacenter::builder().region("west").resource_quotas(quotas);
        let datacenter = datacenter.build("west", "default").unwrap();
        let growing = machine(Some("cpu=1,memory=2Gi,storage=20Gi"));

        let hosted = |usage| hosted_usage(&growing, usage, Some(&datacenter));
        assert_eq!(hosted(usage(64, 2, 20)), usage(1, 2, 20));
        assert_eq!(hosted(usage(1, 8, 20)), usage(1, 8, 20), "memory has no quota");
        assert_eq!(hosted_usage(&growing, usage(64, 2, 20), None), usage(64, 2, 20), "no quota holds it");
    }

    #[test]
    fn growth_is_held_until_the_datacenter_admits_it() {
        let quotas = ResourceQuotas::builder().max_cpu(4).max_memory("8Gi".parse().unwrap()).build();
        let datacenter = Datacenter::builder().region("west").resource_quotas(quotas);
        let datacenter = datacenter.build("west", "default").unwrap();
        let admitted = machine(Some("cpu=1,memory=2Gi,storage=20Gi"));

        assert_eq!(check_growth(&admitted, usage(1, 2, 20), &datacenter), Ok(()));
        assert_eq!(check_growth(&admitted, usage(1, 1, 20), &datacenter), Ok(()), "it may shrink");
        assert_eq!(check_growth(&admitted, usage(1, 2, 500), &datacenter), Ok(()), "storage has no quota");
        assert_eq!(
            check_growth(&machine(None), usage(64, 512, 1), &datacenter),
            Ok(()),
            "it is not placed yet"
        );

        let too_large = check_growth(&admitted, usage(64, 512, 20), &datacenter).unwrap_err();
        assert!(too_large.message.contains("maxCpu is 4"), "{too_large}");
        let undecided = check_growth(&admitted, usage(2, 2, 20), &datacenter).unwrap_err();
        assert!(undecided.message.contains("Datacenter \"default/west\""), "{undecided}");
        assert_eq!([too_large.reason, undecided.reason], ["QuotaExceeded"; 2]);
    }
}
