//! What tasks failed with: a machine that could not be made leaves nothing else behind that could tell.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::World;

/// How many failures are remembered. A world is not told when a Machine is given up for which it has nothing, so only a
/// limit keeps those from piling up; the oldest goes first.
const MOST: usize = 10_000;

/// A task that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Failed {
    message: String,
    at: Timestamp,
}

impl World {
    /// What the last task for this identity failed with; none if it succeeded.
    #[must_use]
    pub fn failure_of(&self, tag: &str) -> Option<&str> {
        self.failures.get(tag).map(|failed| failed.message.as_str())
    }

    /// Notes how a task for an identity ended: with a message if it failed.
    pub(super) fn note_end(&mut self, tag: &str, at: Timestamp, message: Option<String>) {
        let is_news = match message {
            Some(message) => {
                self.failures.insert(tag.to_owned(), Failed { message, at });
                true
            }
            None => self.failures.remove(tag).is_some(),
        };
        if !is_news {
            return;
        }
        self.unsaved.failures.insert(tag.to_owned());
        // Everything of the identity is saved along: a task that ended before this one, and is not saved as ended, would
        // end once more after a restart and have the last word.
        self.unsaved.machines.extend(self.index.machine_of.get(tag));
        self.unsaved
            .volumes
            .extend(self.index.volumes_of.get(tag).into_iter().flat_map(|disks| disks.values()));
        if self.failures.len() > MOST {
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
    fn of_too_many_failures_the_oldest_is_forgotten() {
        let mut world = World::new(Settings::default());
        let at = |number: usize| Timestamp::from_second(i64::try_from(number).unwrap()).unwrap();
        for number in 0..=MOST {
            world.note_end(&format!("identity-{number}"), at(number), Some("failed".to_owned()));
        }
        assert_eq!(world.failures.len(), MOST);
        assert_eq!(world.failure_of("identity-0"), None);
        assert_eq!(world.failure_of("identity-1"), Some("failed"));
    }
}
