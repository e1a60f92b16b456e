//! The work queue of a controller. Pure: no clock, no channel, no task.
//!
//! - A key is in the queue at most once, and is never returned while it is in flight. If it is added while in flight, it
//!   is queued again afterwards.
//! - Every key is in one [`Lane`]. Lanes take turns, and if there are at least as many slots as lanes, each lane has one
//!   slot that no other lane may take: a thousand deletes never delay a create.
//! - Within a lane, events precede resyncs, but every fourth pick is a resync if one is waiting, so nothing starves.
//! - Every key belongs to a [`Share`]. Within a lane, shares take turns: a tenant with a thousand objects does not delay
//!   one with a single object.
//! - A key whose reconcile waits for another system for longer than [`SLOW`] gives its slot back, and only counts for that
//!   system, which holds at most as many keys as there are slots. So a system that hangs delays only its own keys, and
//!   each system has all slots while it answers.
//! - A key may be delayed. An event ends the delay, unless it is the backoff after a failure: most events of a failing
//!   object come from our own writes to it, and would turn the backoff into a busy loop. Only a user's change
//!   ([`Urgency::Change`]) ends a backoff, because it may be the fix.
//! - A key that was added while in flight is queued after a short delay: the event usually comes from its own first
//!   write, and a reconcile before the events of the other writes arrive would see stale state.

mod fair;
mod share;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    time::Duration,
};

use tokio::time::Instant;

use self::fair::Fair;
pub use self::share::Share;
use crate::{
    cache::{Urgency, backoff},
    lane::Lane,
};

/// The delay of a key that was added while in flight.
const SETTLE: Duration = Duration::from_millis(50);
/// Every pick with a multiple of this number prefers a resync.
const RESYNC_SHARE: u32 = 4;
/// How long a reconcile that waits for another system keeps its slot: many times what one takes if the system answers.
const SLOW: Duration = Duration::from_millis(500);
/// The most keys that may have given their slot back, as a multiple of the slots: each of them takes memory.
const SLOW_SHARE: usize = 20;

#[derive(Debug)]
enum Slot {
    Ready { ticket: u64, urgency: Urgency },
    Delayed { ticket: u64, due: Instant, urgency: Urgency, wait: Wait },
    InFlight(Flight),
}

/// A reconcile in flight.
#[derive(Debug)]
struct Flight {
    lane: Lane,
    /// The system that it waits for.
    system: Option<String>,
    /// Its entry in `Queue::started`; none once it has given its slot back, and if it never does.
    started: Option<(Instant, u64)>,
    /// Whether it has given its slot back.
    is_slow: bool,
    /// Whether the key was added meanwhile.
    again: Option<Urgency>,
}

/// Why a key is delayed, which determines what ends the delay early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// There is nothing to do until then: any event ends the delay.
    Idle,
    /// The reconcile failed: only a user's change ends the delay.
    Backoff,
    /// The events of its own writes are still arriving: nothing ends the delay.
    Settling,
}

#[derive(Debug)]
struct Entry {
    share: Share,
    lane: Lane,
    slot: Slot,
    failures: u32,
}

/// The waiting keys of one lane.
#[derive(Debug)]
struct Waiting<K> {
    events: Fair<K>,
    resyncs: Fair<K>,
    in_flight: usize,
    picks: u32,
}

impl<K> Waiting<K> {
    fn new() -> Self {
        Self { events: Fair::new(), resyncs: Fair::new(), in_flight: 0, picks: 0 }
    }

    fn class(&mut self, urgency: Urgency) -> &mut Fair<K> {
        if urgency == Urgency::Resync { &mut self.resyncs } else { &mut self.events }
    }

    fn depth(&self) -> usize {
        self.events.len() + self.resyncs.len()
    }

    /// Returns the next key of a share that may start.
    fn take(&mut self, may_start: impl Fn(&Share) -> bool) -> Option<K> {
        self.picks = self.picks.wrapping_add(1);
        let resync_first = self.picks.is_multiple_of(RESYNC_SHARE);
        let (first, second) = if resync_first {
            (&mut self.resyncs, &mut self.events)
        } else {
            (&mut self.events, &mut self.resyncs)
        };
        first.take(&may_start).or_else(|| second.take(&may_start))
    }
}

/// The key was not picked, or the queue was cleared since.
struct NotInFlight;

/// The queue of one controller.
#[derive(Debug)]
pub struct Queue<K> {
    slots: usize,
    entries: HashMap<K, Entry>,
    create: Waiting<K>,
    delete: Waiting<K>,
    observe: Waiting<K>,
    turn: usize,
    delayed: BTreeMap<(Instant, u64), K>,
    /// The keys in flight that wait for another system and have not given their slot back, oldest first.
    started: BTreeMap<(Instant, u64), K>,
    /// How many keys are in flight for each system.
    systems: HashMap<String, usize>,
    /// How many keys in flight have given their slot back.
    slow: usize,
    next_ticket: u64,
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// Creates a queue with at most `slots` keys in flight.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self {
            slots,
            entries: HashMap::new(),
            create: Waiting::new(),
            delete: Waiting::new(),
            observe: Waiting::new(),
            turn: 0,
            delayed: BTreeMap::new(),
            started: BTreeMap::new(),
            systems: HashMap::new(),
            slow: 0,
            next_ticket: 0,
        }
    }

    /// Adds a key, or raises the urgency of a waiting key, or moves it to another share or lane.
    pub fn add(&mut self, key: K, share: Share, lane: Lane, urgency: Urgency) {
        let Some(entry) = self.entries.get_mut(&key) else {
            // The slot is replaced at once.
            let slot = Slot::Ready { ticket: 0, urgency };
            self.entries.insert(key.clone(), Entry { share, lane, slot, failures: 0 });
            self.make_ready(key, urgency);
            return;
        };
        let is_moved = entry.lane != lane || entry.share != share;
        let before = std::mem::replace(&mut entry.lane, lane);
        let share_before = if is_moved { Some(std::mem::replace(&mut entry.share, share)) } else { None };
        match entry.slot {
            Slot::InFlight(ref mut flight) => flight.again = flight.again.max(Some(urgency)),
            Slot::Ready { ticket, urgency: waiting } => {
                if waiting < urgency || is_moved {
                    let share = share_before.unwrap_or_else(|| entry.share.clone());
                    self.waiting(before).class(waiting).remove(&share, ticket);
                    self.make_ready(key, waiting.max(urgency));
                }
            }
            Slot::Delayed { ticket, due, wait, urgency: ref mut waiting } => {
                let is_ended = match wait {
                    Wait::Idle => urgency >= Urgency::Event,
                    Wait::Backoff => urgency >= Urgency::Change,
                    Wait::Settling => false,
                };
                if is_ended {
                    self.delayed.remove(&(due, ticket));
                    self.make_ready(key, urgency);
                } else if wait == Wait::Settling {
                    *waiting = (*waiting).max(urgency);
                }
            }
        }
    }

    /// Returns the next key, if one is due, its lane has a free slot, and its system does not hold too many keys.
    pub fn pick(&mut self, now: Instant) -> Option<K> {
        self.promote(now);
        self.free_slow_slots(now);
        for step in 0..Lane::ALL.len() {
            let turn = (self.turn + step) % Lane::ALL.len();
            let lane = *Lane::ALL.get(turn)?;
            if !self.has_slot(lane) {
                continue;
            }
            if let Some(key) = self.take(lane) {
                self.turn = turn + 1;
                self.launch(&key, lane, now);
                return Some(key);
            }
        }
        None
    }

    /// Takes the next key of a lane whose system may hold another one.
    fn take(&mut self, lane: Lane) -> Option<K> {
        let (slots, systems) = (self.slots, std::mem::take(&mut self.systems));
        let may_start = |share: &Share| {
            share.system.as_ref().and_then(|system| systems.get(system)).is_none_or(|held| *held < slots)
        };
        let key = self.waiting(lane).take(may_start);
        self.systems = systems;
        key
    }

    /// Gives a key a slot of its lane.
    fn launch(&mut self, key: &K, lane: Lane, now: Instant) {
        self.waiting(lane).in_flight += 1;
        let ticket = self.ticket();
        let Some(entry) = self.entries.get_mut(key) else { return };
        let system = entry.share.system.clone();
        let started = system.as_ref().map(|_| (now, ticket));
        if let Some(system) = &system {
            *self.systems.entry(system.clone()).or_default() += 1;
        }
        if let Some(started) = started {
            self.started.insert(started, key.clone());
        }
        entry.slot = Slot::InFlight(Flight { lane, system, started, is_slow: false, again: None });
    }

    /// Takes the slots back from keys that have waited for another system for too long.
    fn free_slow_slots(&mut self, now: Instant) {
        while self.slow < self.slots.saturating_mul(SLOW_SHARE)
            && let Some(first) = self.started.first_entry()
            && first.key().0 + SLOW <= now
        {
            let key = first.remove();
            if let Some(Entry { slot: Slot::InFlight(flight), .. }) = self.entries.get_mut(&key) {
                (flight.started, flight.is_slow) = (None, true);
                let lane = flight.lane;
                self.slow += 1;
                self.leave(lane);
            }
        }
    }

    /// Frees a slot of a lane.
    fn leave(&mut self, lane: Lane) {
        let waiting = self.waiting(lane);
        waiting.in_flight = waiting.in_flight.saturating_sub(1);
    }

    /// Ends a successful reconcile: the key is queued again after `after`, or sooner if it was added while in flight.
    pub fn succeed(&mut self, key: &K, after: Duration, urgency: Urgency, now: Instant) {
        let Ok(again) = self.land(key) else { return };
        if let Some(entry) = self.entries.get_mut(key) {
            entry.failures = 0;
        }
        match again {
            Some(again) => self.delay(key.clone(), now + SETTLE, again, Wait::Settling),
            None => self.delay(key.clone(), now + after, urgency, Wait::Idle),
        }
    }

    /// Ends a failed reconcile: the key is queued again after `after`, by default after a backoff that grows with every
    /// failure in a row. Returns the delay.
    pub fn fail(&mut self, key: &K, after: Option<Duration>, jitter: f64, now: Instant) -> Duration {
        let Ok(again) = self.land(key) else { return Duration::ZERO };
        let Some(entry) = self.entries.get_mut(key) else { return Duration::ZERO };
        entry.failures = entry.failures.saturating_add(1);
        let wait = after.unwrap_or_else(|| backoff(entry.failures, jitter));
        if again == Some(Urgency::Change) {
            self.delay(key.clone(), now + SETTLE, Urgency::Change, Wait::Settling);
            return SETTLE;
        }
        self.delay(key.clone(), now + wait, Urgency::Event, Wait::Backoff);
        wait
    }

    /// Removes the key of a deleted object, unless it was added while in flight.
    pub fn forget(&mut self, key: &K) {
        match self.land(key) {
            Ok(Some(again)) => self.make_ready(key.clone(), again),
            _ => {
                self.entries.remove(key);
            }
        }
    }

    /// Removes all keys, including those in flight.
    pub fn clear(&mut self) {
        *self = Self { next_ticket: self.next_ticket, ..Self::new(self.slots) };
    }

    /// Returns when something changes by itself: a delayed key is due, or a slot becomes free for a waiting key.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let delayed = self.delayed.first_key_value().map(|((due, _), _)| *due);
        let is_slot_wanted = self.slow < self.slots.saturating_mul(SLOW_SHARE)
            && Lane::ALL.into_iter().any(|lane| self.depth(lane) > 0);
        let started = self.started.first_key_value().filter(|_| is_slot_wanted);
        let freed = started.map(|((started, _), _)| *started + SLOW);
        [delayed, freed].into_iter().flatten().min()
    }

    /// Returns how many keys of a lane are ready and wait for a slot.
    #[must_use]
    pub fn depth(&self, lane: Lane) -> usize {
        match lane {
            Lane::Create => self.create.depth(),
            Lane::Delete => self.delete.depth(),
            Lane::Observe => self.observe.depth(),
        }
    }

    fn waiting(&mut self, lane: Lane) -> &mut Waiting<K> {
        match lane {
            Lane::Create => &mut self.create,
            Lane::Delete => &mut self.delete,
            Lane::Observe => &mut self.observe,
        }
    }

    /// Returns whether `lane` may take a slot without taking the reserved slot of another lane.
    fn has_slot(&self, lane: Lane) -> bool {
        let used = [self.create.in_flight, self.delete.in_flight, self.observe.in_flight];
        let free = self.slots.saturating_sub(used.iter().sum());
        if self.slots < Lane::ALL.len() {
            return free > 0;
        }
        let mut lanes = Lane::ALL.into_iter().zip(used);
        let is_idle = lanes.clone().any(|(each, used)| each == lane && used == 0);
        let reserved = lanes.by_ref().filter(|(each, used)| *each != lane && *used == 0).count();
        is_idle && free > 0 || free > reserved
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    fn make_ready(&mut self, key: K, urgency: Urgency) {
        let ticket = self.ticket();
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.slot = Slot::Ready { ticket, urgency };
        let (lane, share) = (entry.lane, entry.share.clone());
        self.waiting(lane).class(urgency).insert(share, ticket, key);
    }

    fn delay(&mut self, key: K, due: Instant, urgency: Urgency, wait: Wait) {
        let ticket = self.ticket();
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.slot = Slot::Delayed { ticket, due, urgency, wait };
        self.delayed.insert((due, ticket), key);
    }

    /// Moves due keys from delayed to ready.
    fn promote(&mut self, now: Instant) {
        while let Some(first) = self.delayed.first_entry() {
            if first.key().0 > now {
                return;
            }
            let key = first.remove();
            if let Some(Entry { slot: Slot::Delayed { urgency, .. }, .. }) = self.entries.get(&key) {
                let urgency = *urgency;
                self.make_ready(key, urgency);
            }
        }
    }

    /// Frees the slot of a key and returns the urgency with which it was added while in flight.
    fn land(&mut self, key: &K) -> Result<Option<Urgency>, NotInFlight> {
        let Some(Entry { slot: Slot::InFlight(flight), .. }) = self.entries.get_mut(key) else {
            return Err(NotInFlight);
        };
        let Flight { lane, started, is_slow, again, .. } = *flight;
        let system = flight.system.take();
        if let Some(started) = started {
            self.started.remove(&started);
        }
        if is_slow {
            self.slow = self.slow.saturating_sub(1);
        } else {
            self.leave(lane);
        }
        if let Some(system) = system {
            self.release(&system);
        }
        Ok(again)
    }

    /// Counts a key less for a system.
    fn release(&mut self, system: &str) {
        let Some(held) = self.systems.get_mut(system) else { return };
        let was_full = *held >= self.slots;
        *held = held.saturating_sub(1);
        if *held == 0 {
            self.systems.remove(system);
        }
        if was_full {
            for lane in Lane::ALL {
                let waiting = self.waiting(lane);
                waiting.events.reopen(system);
                waiting.resyncs.reopen(system);
            }
        }
    }
}
