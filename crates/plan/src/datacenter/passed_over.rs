//! Providers that could not take a machine, and for how long they are not asked again.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use vitistack_types::{labels, v1alpha1::Machine};

use crate::machine::annotation;

/// How long a provider that could not take a machine is no candidate for it, so that no machine goes back and forth.
const PASSED_OVER_FOR: SignedDuration = SignedDuration::from_mins(10);

/// The providers that are passed over for a Machine now, and since when.
pub(super) fn passed_over(machine: &Machine, now: Timestamp) -> BTreeMap<String, Timestamp> {
    let text = annotation(machine, labels::PASSED_OVER).unwrap_or_default();
    let mut found = BTreeMap::new();
    for (name, since) in text.split(',').filter_map(|entry| entry.trim().rsplit_once('@')) {
        // What cannot be read, or lies in the future by more than clocks differ, was not written by an operator.
        let since = since.parse::<Timestamp>().ok();
        let is_fresh = |since: &Timestamp| now.duration_since(*since).abs() < PASSED_OVER_FOR;
        if let Some(since) = since.filter(is_fresh) {
            let latest = found.entry(name.to_owned()).or_insert(since);
            *latest = since.max(*latest);
        }
    }
    found
}

/// When a provider that was passed over at `since` is asked again.
pub(super) fn until(since: Timestamp) -> Timestamp {
    since.saturating_add(PASSED_OVER_FOR).unwrap_or(Timestamp::MAX)
}

/// The annotation of a Machine that one more provider could not take. Entries that no longer count are left out.
#[must_use]
pub fn pass_over(machine: &Machine, provider: &str, now: Timestamp) -> String {
    let mut all = passed_over(machine, now);
    all.insert(provider.to_owned(), now);
    let entries: Vec<String> = all.iter().map(|(name, since)| format!("{name}@{since:.0}")).collect();
    entries.join(",")
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
        let first = pass_over(&machine, "default/aws", at("2026-01-01T12:00:00Z"));
        assert_eq!(first, "default/aws@2026-01-01T12:00:00Z");
        machine.metadata.annotations = Some([(labels::PASSED_OVER.to_owned(), first)].into());
        let second = pass_over(&machine, "default/azure", at("2026-01-01T12:09:59.5Z"));
        assert_eq!(second, "default/aws@2026-01-01T12:00:00Z,default/azure@2026-01-01T12:09:59Z");
        assert_eq!(
            pass_over(&machine, "default/azure", at("2026-01-01T12:10:00Z")),
            "default/azure@2026-01-01T12:10:00Z"
        );
    }

    #[test]
    fn what_nobody_of_ours_wrote_does_not_count() {
        let mut machine = Machine::builder().template("small").build("vm", "default").unwrap();
        let text = "default/aws@3026-01-01T00:00:00Z, default/gcp@soon,,@,default/azure";
        machine.metadata.annotations = Some([(labels::PASSED_OVER.to_owned(), text.to_owned())].into());
        assert!(passed_over(&machine, at("2026-01-01T12:00:00Z")).is_empty());
    }
}
