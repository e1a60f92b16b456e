//! Providers that could not host a machine, and for how long they are not tried again.

use std::{collections::BTreeMap, fmt};

use jiff::{SignedDuration, Timestamp};
use vitistack_types::{
    ObjectName, Placement, labels,
    v1alpha1::{Machine, MachineProvider},
};

use super::Usage;
use crate::machine::{annotation, has_finalizer};

/// How long a provider that could not host a machine is not tried again, so that no machine goes back and forth.
const PASSED_OVER_FOR: SignedDuration = SignedDuration::from_mins(10);

/// How full a provider is, as far as the operators know. A provider that could not host a machine is tried again early when
/// another machine was deleted from it or it was changed. A machine that tried and found no capacity is not counted, so
/// that two machines which wait for the same capacity do not trigger each other endlessly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fullness {
    /// Generation of the MachineProvider: its capacity and settings are part of it.
    pub generation: i64,
    /// What the machines on it use.
    pub used: Usage,
}

impl Fullness {
    /// A provider on which nothing is counted yet.
    #[must_use]
    pub fn of(provider: &MachineProvider) -> Self {
        Self { generation: provider.metadata.generation.unwrap_or_default(), used: Usage::default() }
    }

    /// Counts a Machine that is placed there, if its backing machine was observed.
    pub fn count(&mut self, machine: &Machine, usage: Usage) {
        if has_finalizer(machine) && machine.status.as_ref().is_some_and(|status| status.vm_name.is_some()) {
            self.used = self.used.plus(usage);
        }
    }

    /// Whether it may have more capacity than before.
    fn has_more_capacity_than(&self, then: &Self) -> bool {
        let (now, before) = (&self.used, &then.used);
        self.generation != then.generation
            || now.machines < before.machines
            || now.cpu < before.cpu
            || now.memory < before.memory
            || now.storage < before.storage
    }

    fn read(text: &str) -> Option<Self> {
        let mut numbers = text.split(':');
        let mut next = || numbers.next();
        Some(Self {
            generation: next()?.parse().ok()?,
            used: Usage {
                machines: next()?.parse().ok()?,
                cpu: next()?.parse().ok()?,
                memory: next()?.parse().ok()?,
                storage: next()?.parse().ok()?,
            },
        })
    }
}

impl fmt::Display for Fullness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Usage { machines, cpu, memory, storage } = self.used;
        write!(formatter, "{}:{machines}:{cpu}:{memory}:{storage}", self.generation)
    }
}

/// A record of a provider that could not host a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    /// When it was tried.
    pub(super) since: Timestamp,
    /// How full it was, if that was the reason.
    pub(super) full: Option<Fullness>,
}

impl Attempt {
    /// Whether the provider may have capacity now.
    pub(super) fn is_outdated(&self, now: &Fullness) -> bool {
        self.full.is_some_and(|then| now.has_more_capacity_than(&then))
    }

    /// Why the provider is not tried.
    pub(super) fn why(&self) -> String {
        let until = until(self.since);
        match self.full {
            Some(_) => format!(
                "had no capacity at {:.0}; will be retried at {until:.0} or when capacity is freed",
                self.since
            ),
            None => format!("could not host it at {:.0}; will be retried at {until:.0}", self.since),
        }
    }
}

/// Returns the providers that are passed over for a Machine now.
pub(super) fn passed_over(machine: &Machine, now: Timestamp) -> BTreeMap<ObjectName, Attempt> {
    let mut found: BTreeMap<ObjectName, Attempt> = BTreeMap::new();
    for (name, note) in entries(machine) {
        // A time in the future, beyond what clocks differ, was not written by an operator.
        let is_fresh = now.duration_since(note.since).abs() < PASSED_OVER_FOR;
        if is_fresh && found.get(&name).is_none_or(|known| known.since < note.since) {
            found.insert(name, note);
        }
    }
    found
}

/// Whether a placement was recorded as one that could not host the Machine, however long ago: the record is removed when the
/// Machine is placed there again.
#[must_use]
pub fn is_passed_over_by(machine: &Machine, placement: &Placement) -> bool {
    placement.provider().is_some_and(|provider| entries(machine).any(|(name, _)| name == *provider))
}

/// The annotation of a Machine that is placed on this provider, which is no longer passed over; absent if it was the only
/// one.
pub(super) fn without(machine: &Machine, provider: &ObjectName, now: Timestamp) -> Option<String> {
    let mut all = passed_over(machine, now);
    all.remove(provider);
    (!all.is_empty()).then(|| written(&all))
}

/// The annotation of a Machine that moves from one provider, which cannot host it any more, to another.
pub(super) fn moved(machine: &Machine, from: &ObjectName, to: &ObjectName, now: Timestamp) -> String {
    let mut all = passed_over(machine, now);
    all.remove(to);
    all.insert(from.clone(), Attempt { since: now, full: None });
    written(&all)
}

/// Returns every entry that can be parsed.
fn entries(machine: &Machine) -> impl Iterator<Item = (ObjectName, Attempt)> {
    let text = annotation(machine, labels::PASSED_OVER).unwrap_or_default();
    text.split(',').filter_map(|entry| {
        let mut parts = entry.trim().split('@');
        let (name, since) = (parts.next()?, parts.next()?);
        let Ok(name) = name.parse();
        Some((name, Attempt { since: since.parse().ok()?, full: parts.next().and_then(Fullness::read) }))
    })
}

/// When a provider that was passed over at `since` is tried again.
pub(super) fn until(since: Timestamp) -> Timestamp {
    since.saturating_add(PASSED_OVER_FOR).unwrap_or(Timestamp::MAX)
}

/// Returns the annotation of a Machine that one more provider could not host, with how full that provider was if it had no
/// capacity. Outdated entries are left out.
#[must_use]
pub fn pass_over(machine: &Machine, placement: &Placement, full: Option<Fullness>, now: Timestamp) -> String {
    let mut all = passed_over(machine, now);
    all.extend(placement.provider().map(|provider| (provider.clone(), Attempt { since: now, full })));
    written(&all)
}

fn written(all: &BTreeMap<ObjectName, Attempt>) -> String {
    let entry = |(name, note): (&ObjectName, &Attempt)| {
        let full = note.full.map(|full| format!("@{full}")).unwrap_or_default();
        format!("{name}@{:.0}{full}", note.since)
    };
    all.iter().map(entry).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> ObjectName {
        ObjectName::new("default", name)
    }

    fn on(provider: &str) -> Placement {
        Placement::Provider(name(provider))
    }

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    #[test]
    fn an_entry_counts_for_ten_minutes_and_is_then_left_out() {
        let mut machine = Machine::builder().template("small").build("vm", "default").unwrap();
        let first = pass_over(&machine, &on("aws"), None, at("2026-01-01T12:00:00Z"));
        assert_eq!(first, "default/aws@2026-01-01T12:00:00Z");
        machine.metadata.annotations = Some([(labels::PASSED_OVER.to_owned(), first)].into());
        let second = pass_over(&machine, &on("azure"), None, at("2026-01-01T12:09:59.5Z"));
        assert_eq!(second, "default/aws@2026-01-01T12:00:00Z,default/azure@2026-01-01T12:09:59Z");
        assert_eq!(
            pass_over(&machine, &on("azure"), None, at("2026-01-01T12:10:00Z")),
            "default/azure@2026-01-01T12:10:00Z"
        );
    }

    #[test]
    fn how_full_a_provider_was_is_parsed_and_compared() {
        let then = Fullness { generation: 3, used: Usage { machines: 2, cpu: 4, memory: 8, storage: 16 } };
        let mut machine = Machine::builder().template("small").build("vm", "default").unwrap();
        let now = at("2026-01-01T12:00:00Z");
        let text = pass_over(&machine, &on("aws"), Some(then), now);
        assert_eq!(text, "default/aws@2026-01-01T12:00:00Z@3:2:4:8:16");
        machine.metadata.annotations = Some([(labels::PASSED_OVER.to_owned(), text)].into());
        let note = passed_over(&machine, now).remove(&name("aws")).unwrap();
        let used = |used: Usage| Fullness { used, ..then };
        assert!(!note.is_outdated(&then));
        assert!(!note.is_outdated(&used(then.used.plus(Usage { machines: 1, ..Usage::default() }))));
        assert!(note.is_outdated(&used(Usage { cpu: 3, ..then.used })), "one shrank");
        assert!(note.is_outdated(&used(Usage { machines: 1, cpu: 2, memory: 4, storage: 8 })), "one went");
        assert!(note.is_outdated(&Fullness { generation: 4, ..then }), "the provider was changed");
    }

    #[test]
    fn an_entry_that_no_operator_wrote_does_not_count() {
        let mut machine = Machine::builder().template("small").build("vm", "default").unwrap();
        let text = "default/aws@3026-01-01T00:00:00Z, default/gcp@soon,,@,default/azure";
        machine.metadata.annotations = Some([(labels::PASSED_OVER.to_owned(), text.to_owned())].into());
        assert!(passed_over(&machine, at("2026-01-01T12:00:00Z")).is_empty());
    }
}
