//! Those who want to be told of changes.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::Notify;
use vitistack_plan::machine::Identity;

use crate::backends::Changed;

/// What is to be told to one listener, each identity once however often it changed, so that nobody can fall behind
/// without bound.
#[derive(Default)]
pub struct Listener {
    waiting: Mutex<Waiting>,
    woken: Notify,
}

#[derive(Default)]
struct Waiting {
    /// Of all that there is.
    all: Option<Changed>,
    identities: BTreeSet<Identity>,
}

impl Listener {
    /// Tells a change.
    pub fn tell(&self, changed: &Changed) {
        let mut waiting = lock(&self.waiting);
        match changed {
            Changed::All | Changed::Back => {
                // That it is back says that anything may have changed, too.
                if waiting.all != Some(Changed::Back) {
                    waiting.all = Some(changed.clone());
                }
                waiting.identities.clear();
            }
            Changed::One(identity) if waiting.all.is_none() => {
                waiting.identities.insert(identity.clone());
            }
            Changed::One(_) => {}
        }
        drop(waiting);
        self.woken.notify_one();
    }

    /// The next change that was not taken yet.
    pub fn take(&self) -> Option<Changed> {
        let mut waiting = lock(&self.waiting);
        waiting.all.take().or_else(|| waiting.identities.pop_first().map(Changed::One))
    }

    /// Waits until something may have been told.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }
}

/// All listeners.
#[derive(Default)]
pub struct Hub(Mutex<Vec<Weak<Listener>>>);

impl Hub {
    /// Somebody who is told from now on, until it is dropped.
    pub fn listen(&self) -> Arc<Listener> {
        let listener = Arc::new(Listener::default());
        lock(&self.0).push(Arc::downgrade(&listener));
        listener
    }

    /// Tells a change to all.
    pub fn tell(&self, changed: &Changed) {
        self.each(|listener| listener.tell(changed));
    }

    /// Wakes all, so that they see when something ends by itself.
    pub fn wake(&self) {
        self.each(|listener| listener.woken.notify_one());
    }

    fn each(&self, call: impl Fn(&Listener)) {
        lock(&self.0).retain(|listener| listener.upgrade().map(|listener| call(&listener)).is_some());
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Changed {
        Changed::One(Identity::new(text))
    }

    #[test]
    fn a_change_is_told_once_to_everybody_who_still_listens() {
        let hub = Hub::default();
        let (slow, gone) = (hub.listen(), hub.listen());
        drop(gone);
        for _ in 0..3 {
            hub.tell(&one("a"));
            hub.tell(&one("b"));
        }
        assert_eq!(lock(&hub.0).len(), 1);
        assert_eq!([slow.take(), slow.take(), slow.take()], [Some(one("a")), Some(one("b")), None]);
    }

    #[test]
    fn whoever_looks_at_all_is_not_told_of_each() {
        let hub = Hub::default();
        let listener = hub.listen();
        for changed in [one("a"), Changed::All, one("b")] {
            hub.tell(&changed);
        }
        assert_eq!([listener.take(), listener.take()], [Some(Changed::All), None]);
        for changed in [Changed::Back, Changed::All] {
            hub.tell(&changed);
        }
        assert_eq!([listener.take(), listener.take()], [Some(Changed::Back), None]);
    }
}
