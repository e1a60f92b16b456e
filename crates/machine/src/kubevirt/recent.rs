//! For which machines something was asked a moment ago, so that a cache may not show it yet.
//!
//! Whoever lets a Machine go has to know that nothing is left of it. A request takes effect within the time that an API
//! server gives it, or never, whether its answer was heard or not, and whoever asked. Once that is over and a late watch
//! has caught up, a cache says it as well as the cluster itself, which need not be asked for every machine that goes.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use vitistack_plan::machine::Identity;

/// An API server gives a request a minute; as long again is for the watch.
const HORIZON: Duration = Duration::from_mins(2);

/// The machines for which something was asked.
pub struct Recent {
    /// When this process began to act here: others may have asked for anything until then.
    opened: Instant,
    asked: Mutex<HashMap<Identity, Instant>>,
}

impl Recent {
    /// Nothing was asked by this process before `now`.
    pub fn new(now: Instant) -> Self {
        Self { opened: now, asked: Mutex::default() }
    }

    /// Something is asked for a machine, until what this returns is dropped: by the end of the call, or because it is
    /// given up.
    pub fn asking(&self, identity: &Identity) -> Asking<'_> {
        Asking { recent: self, identity: identity.clone() }
    }

    /// Whether there may be something for a machine that a cache does not show.
    pub fn has(&self, identity: &Identity, now: Instant) -> bool {
        is_recent(self.opened, now) || self.lock().get(identity).is_some_and(|asked| is_recent(*asked, now))
    }

    fn note(&self, identity: Identity, now: Instant) {
        let mut asked = self.lock();
        // Now and then, so that a thousand notes do not look through a thousand others each.
        if asked.len().is_power_of_two() {
            asked.retain(|_, asked| is_recent(*asked, now));
        }
        asked.insert(identity, now);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Identity, Instant>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_recent(asked: Instant, now: Instant) -> bool {
    now.saturating_duration_since(asked) < HORIZON
}

/// Something that is being asked.
pub struct Asking<'a> {
    recent: &'a Recent,
    identity: Identity,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.recent.note(self.identity.clone(), Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_acted_before_may_have_asked_for_anything_a_moment_ago() {
        let start = Instant::now();
        let recent = Recent::new(start);
        let identity = Identity::new("a");
        assert!(recent.has(&identity, start + HORIZON.saturating_sub(Duration::from_secs(1))));
        assert!(!recent.has(&identity, start + HORIZON));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_asked_may_be_there_unseen_for_a_while() {
        let recent = Recent::new(Instant::now());
        tokio::time::advance(HORIZON).await;
        let (asked, other) = (Identity::new("asked"), Identity::new("other"));
        let asking = recent.asking(&asked);
        tokio::time::advance(HORIZON).await;
        drop(asking);
        assert!(recent.has(&asked, Instant::now()), "counted from the end of the call");
        assert!(!recent.has(&other, Instant::now()));
        tokio::time::advance(HORIZON).await;
        assert!(!recent.has(&asked, Instant::now()));
        drop(recent.asking(&other));
        assert_eq!(recent.lock().len(), 1, "what is over is not kept");
    }
}
