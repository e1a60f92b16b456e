//! Machines as they were last written or read by this process itself, until the cache has caught up.
//!
//! A cache lags behind. A second look within milliseconds would not see what the first one decided, and let in more than
//! a quota allows.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::Instant;
use vitistack_types::v1alpha1::Machine;

use crate::caches::datacenter_of;

/// How long a Machine is believed in that the cache never showed: it may be gone, and the cache may have missed both.
pub(super) const BELIEVED_FOR: Duration = Duration::from_mins(1);

/// Machines that are newer than the cache, by UID.
#[derive(Default)]
pub(super) struct Assumed {
    machines: HashMap<String, Assumption>,
    /// The version of each Machine from which it was last told something, and when.
    told: HashMap<String, (Option<String>, Instant)>,
}

struct Assumption {
    machine: Arc<Machine>,
    /// Whether the server has it like this; else it is about to be written.
    is_written: bool,
    since: Instant,
}

impl Assumed {
    /// The newest that is known of a Machine in the cache. What the cache has caught up with is forgotten.
    pub(super) fn newest(&mut self, cached: Arc<Machine>) -> Arc<Machine> {
        let uid = cached.metadata.uid.as_deref().unwrap_or_default();
        match self.machines.get(uid) {
            Some(assumption) if !assumption.is_written || version(&cached) < version(&assumption.machine) => {
                Arc::clone(&assumption.machine)
            }
            Some(_) => {
                self.machines.remove(uid);
                cached
            }
            None => cached,
        }
    }

    /// Every Machine that is newer than the cache, as far as is known.
    pub(super) fn all(&mut self, now: Instant) -> Vec<Arc<Machine>> {
        self.machines.retain(|_, assumption| now.saturating_duration_since(assumption.since) < BELIEVED_FOR);
        self.told.retain(|_, (_, since)| now.saturating_duration_since(*since) < BELIEVED_FOR);
        self.machines.values().map(|assumption| Arc::clone(&assumption.machine)).collect()
    }

    /// Counts with a write that is about to be made.
    pub(super) fn intend(&mut self, machine: Machine, now: Instant) {
        self.put(machine, false, now);
    }

    /// Takes in what the server said, unless something newer is known.
    pub(super) fn learn(&mut self, machine: Machine, now: Instant) {
        let known = self.machines.get(machine.metadata.uid.as_deref().unwrap_or_default());
        if known.is_none_or(|known| !known.is_written || version(&known.machine) < version(&machine)) {
            self.put(machine, true, now);
        }
    }

    /// Forgets a write that was not made.
    pub(super) fn forget(&mut self, uid: &str) {
        self.machines.remove(uid);
    }

    /// Forgets the writes for a Datacenter of which nobody knows whether they were made.
    pub(super) fn forget_intentions(&mut self, datacenter: &str) {
        self.machines.retain(|_, assumption| {
            assumption.is_written || datacenter_of(&assumption.machine).as_deref() != Some(datacenter)
        });
    }

    /// Notes that the status of a Machine was written.
    pub(super) fn tell(&mut self, machine: &Machine, now: Instant) {
        let uid = machine.metadata.uid.clone().unwrap_or_default();
        self.told.insert(uid, (machine.metadata.resource_version.clone(), now));
    }

    /// Whether the status of a Machine was written and the cache does not show it yet.
    pub(super) fn was_told(&self, machine: &Machine) -> bool {
        let uid = machine.metadata.uid.as_deref().unwrap_or_default();
        self.told.get(uid).is_some_and(|(version, _)| *version == machine.metadata.resource_version)
    }

    fn put(&mut self, machine: Machine, is_written: bool, since: Instant) {
        let uid = machine.metadata.uid.clone().unwrap_or_default();
        self.machines.insert(uid, Assumption { machine: Arc::new(machine), is_written, since });
    }
}

/// Versions of one object grow; one that is no number counts as the oldest.
fn version(machine: &Machine) -> u64 {
    machine.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(version: &str, template: &str) -> Machine {
        let mut machine = Machine::builder().template(template).build("vm", "default").unwrap();
        machine.metadata.uid = Some("u".to_owned());
        machine.metadata.resource_version = Some(version.to_owned());
        machine
    }

    fn seen(assumed: &mut Assumed, cached: Machine) -> String {
        assumed.newest(Arc::new(cached)).spec.template.clone().unwrap()
    }

    #[test]
    fn what_was_written_counts_until_the_cache_shows_it() {
        let (mut assumed, now) = (Assumed::default(), Instant::now());
        assumed.intend(machine("9", "intended"), now);
        assert_eq!(seen(&mut assumed, machine("9", "cached")), "intended");
        assumed.learn(machine("10", "written"), now);
        assert_eq!(seen(&mut assumed, machine("9", "cached")), "written");
        assert_eq!(seen(&mut assumed, machine("10", "caught-up")), "caught-up");
        assert_eq!(seen(&mut assumed, machine("9", "cached")), "cached", "it was forgotten");
    }

    #[test]
    fn an_older_reading_does_not_replace_a_newer_write() {
        let (mut assumed, now) = (Assumed::default(), Instant::now());
        assumed.learn(machine("10", "written"), now);
        assumed.learn(machine("9", "read"), now);
        assert_eq!(seen(&mut assumed, machine("8", "cached")), "written");
    }

    #[test]
    fn a_machine_that_the_cache_never_showed_is_forgotten_after_a_while() {
        let (mut assumed, now) = (Assumed::default(), Instant::now());
        assumed.learn(machine("10", "written"), now);
        assert_eq!(assumed.all(now).len(), 1);
        assert_eq!(assumed.all(now + BELIEVED_FOR).len(), 0);
    }
}
