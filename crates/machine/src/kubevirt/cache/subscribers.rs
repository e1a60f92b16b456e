//! Those who follow the changes of a provider.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, Weak},
};

use tokio::sync::Notify;
use vitistack_plan::machine::Identity;

use super::lock;
use crate::ProviderChange;

/// The changes that one subscriber has not received yet: each identity once, however often it changed, so that a slow
/// subscriber cannot fall behind without bound.
#[derive(Default)]
pub struct Subscriber {
    pending: Mutex<Pending>,
    woken: Notify,
}

#[derive(Default)]
struct Pending {
    /// A change of all machines.
    all: Option<ProviderChange>,
    identities: BTreeSet<Identity>,
}

impl Subscriber {
    /// Adds a change.
    pub fn send(&self, change: &ProviderChange) {
        let mut pending = lock(&self.pending);
        match change {
            ProviderChange::All | ProviderChange::Recovered => {
                // A recovery also means that any machine may have changed.
                if pending.all != Some(ProviderChange::Recovered) {
                    pending.all = Some(change.clone());
                }
                pending.identities.clear();
            }
            ProviderChange::Machine(identity) if pending.all.is_none() => {
                pending.identities.insert(identity.clone());
            }
            ProviderChange::Machine(_) => {}
        }
        drop(pending);
        self.woken.notify_one();
    }

    /// Removes and returns the next change.
    pub fn take(&self) -> Option<ProviderChange> {
        let mut pending = lock(&self.pending);
        pending.all.take().or_else(|| pending.identities.pop_first().map(ProviderChange::Machine))
    }

    /// Waits until a change may have been added.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }
}

/// All subscribers of a provider.
#[derive(Default)]
pub struct Subscribers(Mutex<Vec<Weak<Subscriber>>>);

impl Subscribers {
    /// Adds a subscriber, which receives changes until it is dropped.
    pub fn subscribe(&self) -> Arc<Subscriber> {
        let subscriber = Arc::new(Subscriber::default());
        lock(&self.0).push(Arc::downgrade(&subscriber));
        subscriber
    }

    /// Sends a change to all subscribers.
    pub fn send(&self, change: &ProviderChange) {
        lock(&self.0)
            .retain(|subscriber| subscriber.upgrade().map(|subscriber| subscriber.send(change)).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(identity: &str) -> ProviderChange {
        ProviderChange::Machine(Identity::new(identity))
    }

    #[test]
    fn a_change_is_sent_once_to_every_remaining_subscriber() {
        let subscribers = Subscribers::default();
        let (slow, dropped) = (subscribers.subscribe(), subscribers.subscribe());
        drop(dropped);
        for _ in 0..3 {
            subscribers.send(&machine("a"));
            subscribers.send(&machine("b"));
        }
        assert_eq!(lock(&subscribers.0).len(), 1);
        assert_eq!([slow.take(), slow.take(), slow.take()], [Some(machine("a")), Some(machine("b")), None]);
    }

    #[test]
    fn a_change_of_all_machines_replaces_those_of_single_machines() {
        let subscribers = Subscribers::default();
        let subscriber = subscribers.subscribe();
        for change in [machine("a"), ProviderChange::All, machine("b")] {
            subscribers.send(&change);
        }
        assert_eq!([subscriber.take(), subscriber.take()], [Some(ProviderChange::All), None]);
        for change in [ProviderChange::Recovered, ProviderChange::All] {
            subscribers.send(&change);
        }
        assert_eq!([subscriber.take(), subscriber.take()], [Some(ProviderChange::Recovered), None]);
    }
}
