//! Failures of tasks. A failed creation leaves no machine behind that could carry the failure.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::World;

/// The maximum number of failures that are remembered. A world does not learn that a Machine without a backing machine
/// was deleted, so the oldest failures are dropped at this limit.
const LIMIT: usize = 10_000;

/// A task that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Failed {
    message: String,
    at: Timestamp,
}

impl World {
    /// Returns the failure of the last task for this identity; none if it succeeded.
    #[must_use]
    pub fn failure_of(&self, tag: &str) -> Option<&str> {
        self.failures.get(tag).map(|failed| failed.message.as_str())
    }

    /// Records the result of a task for an identity: a message if it failed.
    pub(super) fn record_result(&mut self, tag: &str, at: Timestamp, message: Option<String>) {
        let is_changed = match message {
            Some(message) => {
                self.failures.insert(tag.to_owned(), Failed { message, at });
                true
            }
            None => self.failures.remove(tag).is_some(),
        };
        if !is_changed {
            return;
        }

        self.unsaved.failures.insert(tag.to_owned());
        // Everything with the identity is saved too: a task that ended before this one, and is not saved as ended, would
        // end again after a restart and overwrite this result.
        self.unsaved.machines.extend(self.index.machine_of.get(tag));
        self.unsaved
            .volumes
            .extend(self.index.volumes_of.get(tag).into_iter().flat_map(|disks| disks.values()));

        if self.failures.len() > LIMIT {
            let oldest = self.failures.iter().min_by_key(|(tag, failed)| (failed.at, *tag));
            if let Some(oldest) = oldest.map(|(tag, _)| tag.clone()) {
                self.failures.remove(&oldest);
                self.unsaved.failures.insert(oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::Settings;

    #[test]
    fn the_oldest_failure_is_dropped_at_the_limit() {
        let mut world = World::new(Settings::default());
        let at = |number: usize| Timestamp::from_second(i64::try_from(number).unwrap()).unwrap();
        for number in 0..=LIMIT {
            world.record_result(&format!("identity-{number}"), at(number), Some("failed".to_owned()));
        }
        assert_eq!(world.failures.len(), LIMIT);
        assert_eq!(world.failure_of("identity-0"), None);
        assert_eq!(world.failure_of("identity-1"), Some("failed"));
    }
}
