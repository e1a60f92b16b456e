//! Providers that could not take a machine, and for how long they are not asked again.

use std::{collections::BTreeMap, fmt};

use jiff::{SignedDuration, Timestamp};
use vitistack_types::{
    labels,
    v1alpha1::{Machine, MachineProvider},
};

use super::Usage;
use crate::machine::{annotation, has_finalizer};

/// How long a provider that could not take a machine is no candidate for it, so that no machine goes back and forth.
const PASSED_OVER_FOR: SignedDuration = SignedDuration::from_mins(10);

/// How full a provider is, as far as is known here. One that could not take a machine is asked again before its time when
/// something went from it or it was changed: a machine that only tried and found no room is not counted, so that two
/// which wait for the same room do not call each other back for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fullness {
    /// Generation of the MachineProvider: its capacity and settings are part of it.
    pub generation: i64,
    /// What the machines that are there use.
    pub used: Usage,
}

impl Fullness {
    /// A provider of which nothing is counted yet.
    #[must_use]
    pub fn of(provider: &MachineProvider) -> Self {
        Self { generation: provider.metadata.generation.unwrap_or_default(), used: Usage::default() }
    }

    /// Counts a Machine that is placed there, if its real machine was seen.
    pub fn count(&mut self, machine: &Machine, usage: Usage) {
        if has_finalizer(machine) && machine.status.as_ref().is_some_and(|status| status.vm_name.is_some()) {
            self.used = self.used.plus(usage);
        }
    }

    /// Whether there is reason to think that there is more room than there was.
    fn has_more_room_than(&self, then: &Self) -> bool {
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

/// A provider that could not take a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// When it could not.
    pub(super) since: Timestamp,
    /// How full it was, where that was the reason.
    pub(super) full: Option<Fullness>,
}

impl Note {
    /// Whether the provider may have got room since.
    pub(super) fn is_overcome(&self, now: &Fullness) -> bool {
        self.full.is_some_and(|then| now.has_more_room_than(&then))
    }

    /// Why the provider is not asked, in words.
    pub(super) fn why(&self) -> String {
        let sooner = if self.full.is_some() { " or when something there goes" } else { "" };
        let until = until(self.since);
        format!("it could not take it at {:.0}, and is asked again at {until:.0}{sooner}", self.since)
    }
}

/// The providers that are passed over for a Machine now.
pub(super) fn passed_over(machine: &Machine, now: Timestamp) -> BTreeMap<String, Note> {
    let mut found: BTreeMap<String, Note> = BTreeMap::new();
    for (name, note) in entries(machine) {
        // What lies in the future by more than clocks differ was not written by an operator.
        let is_fresh = now.duration_since(note.since).abs() < PASSED_OVER_FOR;
        if is_fresh && found.get(name).is_none_or(|known| known.since < note.since) {
            found.insert(name.to_owned(), note);
        }
    }
    found
}

/// Whether the provider of this name was noted as one that could not take the Machine, however long ago: the note goes when
/// the Machine is placed there again.
#[must_use]
pub fn is_passed_over_by(machine: &Machine, provider: &str) -> bool {
    entries(machine).any(|(name, _)| name == provider)
}

/// The annotation of a Machine that is placed on this provider, which is no longer passed over; none if it was the only one.
pub(super) fn taken_up(machine: &Machine, provider: &str, now: Timestamp) -> Option<String> {
    let mut all = passed_over(machine, now);
    all.remove(provider);
    (!all.is_empty()).then(|| written(&all))
}

/// The annotation of a Machine that is placed on one provider because another cannot take it any more.
pub(super) fn moved_on(machine: &Machine, before: &str, provider: &str, now: Timestamp) -> String {
    let mut all = passed_over(machine, now);
    all.remove(provider);
    all.insert(before.to_owned(), Note { since: now, full: None });
    written(&all)
}

/// Every entry that can be read.
fn entries(machine: &Machine) -> impl Iterator<Item = (&str, Note)> {
    let text = annotation(machine, labels::PASSED_OVER).unwrap_or_default();
    text.split(',').filter_map(|entry| {
        let mut parts = entry.trim().split('@');
        let (name, since) = (parts.next()?, parts.next()?);
        Some((name, Note { since: since.parse().ok()?, full: parts.next().and_then(Fullness::read) }))
    })
}

/// When a provider that was passed over at `since` is asked again.
pub(super) fn until(since: Timestamp) -> Timestamp {
    since.saturating_add(PASSED_OVER_FOR).unwrap_or(Timestamp::MAX)
}

/// The annotation of a Machine that one more provider could not take, and how full that was if it had no room. Entries
/// that no longer count are left out.
#[must_use]
pub fn pass_over(machine: &Machine, provider: &str, full: Option<Fullness>, now: Timestamp) -> String {
    let mut all = passed_over(machine, now);
    all.insert(provider.to_owned(), Note { since: now, full });
    written(&all)
}

fn written(all: &BTreeMap<String, Note>) -> String {
    let entry = |(name, note): (&String, &Note)| {
        let full = note.full.map(|full| format!("@{full}")).unwrap_or_default();
        format!("{name}@{:.0}{full}", note.since)
    };
    all.iter().map(entry).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    #[test]
    fn an_entry_counts_for_ten_minutes_and_is_then_left_out() {
        let mut machine = Machine::builder().template("small").build("vm", "default").unwrap();
        let first = pass_over(&machine, "default/aws", None, at("2026-01-01T12:00:00Z"));
        assert_eq!(first, "default/aws@2026-01-01T12:00:00Z");
        machine.metadata.annotations = Some([(labels::PASSED_OVER.to_owned(), first)].into());
        let second = pass_over(&machine, "default/azure", None, at("2026-01-01T12:09:59.5Z"));
        assert_eq!(second, "default/aws@2026-01-01T12:00:00Z,default/azure@2026-01-01T12:09:59Z");
        assert_eq!(
            pass_over(&machine, "default/azure", None, at("2026-01-01T12:10:00Z")),
            "default/azure@2026-01-01T12:10:00Z"
        );
    }

    #[test]
    fn how_full_a_provider_was_is_read_back_and_compared() {
        let then = Fullness { generation: 3, used: Usage { machines: 2, cpu: 4, memory: 8, storage: 16 } };
        let mut machine = Machine::builder().template("small").build("vm", "default").unwrap();
        let now = at("2026-01-01T12:00:00Z");
        let text = pass_over(&machine, "default/aws", Some(then), now);
        assert_eq!(text, "default/aws@2026-01-01T12:00:00Z@3:2:4:8:16");
        machine.metadata.annotations = Some([(labels::PASSED_OVER.to_owned(), text)].into());
        let note = passed_over(&machine, now).remove("default/aws").unwrap();
        let used = |used: Usage| Fullness { used, ..then };
        assert!(!note.is_overcome(&then));
        assert!(!note.is_overcome(&used(then.used.plus(Usage { machines: 1, ..Usage::default() }))));
        assert!(note.is_overcome(&used(Usage { cpu: 3, ..then.used })), "one shrank");
        assert!(note.is_overcome(&used(Usage { machines: 1, cpu: 2, memory: 4, storage: 8 })), "one went");
        assert!(note.is_overcome(&Fullness { generation: 4, ..then }), "the provider was changed");
    }

    #[test]
    fn what_nobody_of_ours_wrote_does_not_count() {
        let mut machine = Machine::builder().template("small").build("vm", "default").unwrap();
        let text = "default/aws@3026-01-01T00:00:00Z, default/gcp@soon,,@,default/azure";
        machine.metadata.annotations = Some([(labels::PASSED_OVER.to_owned(), text.to_owned())].into());
        assert!(passed_over(&machine, at("2026-01-01T12:00:00Z")).is_empty());
    }
}
