//! What is noted beside the cache of a kind: whose objects are where, what was written, and who waits for what.

use std::{collections::HashSet, sync::Mutex, time::Instant};

use kube::core::DynamicObject;
use vitistack_machine::kubevirt::{Kind, identity_of};
use vitistack_plan::machine::Identity;
use vitistack_runtime::cache::Change;

use super::{
    assumed::Assumed,
    hub::{Hub, lock},
    kept::Kept,
};
use crate::{backends::Changed, inverted::Inverted, place::Place};

/// Notes about all kinds, and those who want to hear of changes.
pub struct Notes {
    /// Those who want to hear of changes.
    pub hub: Hub,
    kinds: [(Kind, Mutex<Note>); Kind::ALL.len()],
}

/// Notes about one kind.
#[derive(Default)]
pub struct Note {
    /// What was written and not seen yet.
    pub assumed: Assumed,
    /// Where the objects of each identity are.
    owners: Inverted,
    /// Where something of somebody else was found that may be in the way, or nothing that somebody may wait for.
    pub awaited: HashSet<Place>,
}

impl Default for Notes {
    fn default() -> Self {
        Self { hub: Hub::default(), kinds: Kind::ALL.map(|kind| (kind, Mutex::default())) }
    }
}

impl Notes {
    /// Does something with the notes about a kind, while nothing is heard of it.
    pub fn with<R: Default>(&self, kind: Kind, work: impl FnOnce(&mut Note) -> R) -> R {
        self.kinds
            .iter()
            .find(|(noted, _)| *noted == kind)
            .map(|(_, note)| work(&mut lock(note)))
            .unwrap_or_default()
    }

    /// Hears of a change in the cache, which has it already, and tells whom it concerns.
    pub fn heard(&self, kind: Kind, change: &Change<Kept>) {
        let object = change.object.outline();
        let place = Place::of(&object);
        let (concerned, is_awaited) =
            self.with(kind, |note| note.heard(&place, &object, change.is_gone, Instant::now()));
        // What many machines use.
        let is_shared =
            matches!(kind, Kind::KubeVirt | Kind::StorageClass | Kind::NetworkAttachmentDefinition);
        if is_shared || (is_awaited && concerned.is_empty()) {
            return self.hub.tell(&Changed::All);
        }
        // A claim that CDI made has the name of its DataVolume.
        let filled = || self.with(Kind::DataVolume, |note| note.owner(&place));
        let is_unmarked = kind == Kind::PersistentVolumeClaim && concerned.is_empty();
        for identity in concerned.into_iter().chain(is_unmarked.then(filled).flatten()) {
            self.hub.tell(&Changed::One(identity));
        }
    }

    /// Ends assumptions that were not confirmed in time, and tells whom they concerned. Returns when the next one ends.
    pub fn expire(&self, now: Instant) -> Option<Instant> {
        let ends = self.kinds.iter().map(|(_, note)| {
            let (concerned, end) = {
                let assumed = &mut lock(note).assumed;
                (assumed.expire(now), assumed.next_end())
            };
            for identity in concerned {
                self.hub.tell(&Changed::One(identity));
            }
            end
        });
        ends.collect::<Vec<_>>().into_iter().flatten().min()
    }
}

impl Note {
    /// Where the objects of an identity are, or were a moment ago.
    #[must_use]
    pub fn places(&self, identity: &Identity) -> Vec<Place> {
        self.owners.places(identity.as_str()).cloned().collect()
    }

    /// Whose the object at a place is.
    fn owner(&self, place: &Place) -> Option<Identity> {
        self.owners.words(place).next().map(Identity::new)
    }

    /// Notes whose the object at a place is. Returns whose it was.
    pub fn mark(&mut self, place: &Place, identity: Option<&Identity>) -> Option<Identity> {
        let before = self.owner(place);
        self.owners.put(place, identity.map(ToString::to_string).into_iter().collect());
        before
    }

    /// Whom a change concerns, and whether somebody else waits for it.
    fn heard(
        &mut self,
        place: &Place,
        object: &DynamicObject,
        is_gone: bool,
        now: Instant,
    ) -> (HashSet<Identity>, bool) {
        self.assumed.heard(place, object, is_gone, now);
        let identity = identity_of(object);
        // What we made there since is not gone with its predecessor.
        let after = self.assumed.identity_at(place).or_else(|| identity.clone().filter(|_| !is_gone));
        let before = self.mark(place, after.as_ref());
        (before.into_iter().chain(identity).collect(), self.awaited.remove(place))
    }
}
