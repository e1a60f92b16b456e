//! Which object is looked at next. Pure: no clock, no channel, no task.
//!
//! - A key is in the queue at most once, and never handed out while it is in flight; if it is added meanwhile it
//!   comes back afterwards.
//! - Every key is in one [`Lane`]. Lanes take turns, and while there are as many slots as lanes each lane has one slot
//!   that no other may take: a thousand deletes never keep a create waiting.
//! - Inside a lane, events go before resyncs, but every fourth pick is a resync if one is waiting: nothing starves.
//! - A key may wait for a time. An event ends that wait, unless it is the backoff after a failure: most events on a
//!   failing object are echoes of our own writes to it, and would turn the backoff into a busy loop. Only a change
//!   that a user made ([`Urgency::Change`]) ends a backoff, because it may be the repair.
//! - A key that was added while in flight comes back after a moment, not at once: what woke it is most often the echo
//!   of its own first write, and a second look before the echoes of the other writes arrive would see the past.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    backoff::backoff,
    lane::{Lane, Urgency},
};

/// The moment after which a key that was added while in flight comes back.
const SETTLE: Duration = Duration::from_millis(50);
/// One pick in so many goes to a resync.
const RESYNC_SHARE: u32 = 4;

#[derive(Clone, Copy, Debug)]
enum Place {
    Ready { ticket: u64, urgency: Urgency },
    Delayed { ticket: u64, due: Instant, urgency: Urgency, wait: Wait },
    InFlight { lane: Lane, again: Option<Urgency> },
}

/// Why a key is delayed, which decides what ends the delay early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// There is nothing to do before: any event ends it.
    Idle,
    /// It failed: only a user's change ends it.
    Backoff,
    /// Its own echoes are awaited: nothing ends it.
    Settling,
}

#[derive(Debug)]
struct Entry {
    lane: Lane,
    place: Place,
    failures: u32,
}

/// Waiting keys of one lane by ticket, which is their order of arrival.
#[derive(Debug)]
struct Waiting<K> {
    events: BTreeMap<u64, K>,
    resyncs: BTreeMap<u64, K>,
    in_flight: usize,
    picks: u32,
}

impl<K> Waiting<K> {
    fn new() -> Self {
        Self { events: BTreeMap::new(), resyncs: BTreeMap::new(), in_flight: 0, picks: 0 }
    }

    fn class(&mut self, urgency: Urgency) -> &mut BTreeMap<u64, K> {
        if urgency == Urgency::Resync { &mut self.resyncs } else { &mut self.events }
    }

    fn depth(&self) -> usize {
        self.events.len() + self.resyncs.len()
    }

    fn take(&mut self) -> Option<K> {
        self.picks = self.picks.wrapping_add(1);
        let resync_first = self.picks.is_multiple_of(RESYNC_SHARE);
        let (first, second) = if resync_first {
            (&mut self.resyncs, &mut self.events)
        } else {
            (&mut self.events, &mut self.resyncs)
        };
        first.pop_first().or_else(|| second.pop_first()).map(|(_, key)| key)
    }
}

/// The key was not handed out, or everything was forgotten since.
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
    next_ticket: u64,
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// A queue that hands out at most `slots` keys at a time.
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
            next_ticket: 0,
        }
    }

    /// Adds a key, or makes a waiting key more urgent, or moves it to another lane.
    pub fn add(&mut self, key: K, lane: Lane, urgency: Urgency) {
        let Some(entry) = self.entries.get_mut(&key) else {
            self.entries.insert(
                key.clone(),
                Entry { lane, place: Place::InFlight { lane, again: None }, failures: 0 },
            );
            self.make_ready(key, urgency);
            return;
        };
        let before = std::mem::replace(&mut entry.lane, lane);
        match entry.place {
            Place::InFlight { ref mut again, .. } => *again = (*again).max(Some(urgency)),
            Place::Ready { ticket, urgency: waiting } => {
                if waiting < urgency || before != lane {
                    self.waiting(before).class(waiting).remove(&ticket);
                    self.make_ready(key, waiting.max(urgency));
                }
            }
            Place::Delayed { ticket, due, wait, urgency: ref mut waiting } => {
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

    /// Hands out the next key, if one is due and there is a slot for its lane.
    pub fn pick(&mut self, now: Instant) -> Option<K> {
        self.promote(now);
        for step in 0..Lane::ALL.len() {
            let turn = (self.turn + step) % Lane::ALL.len();
            let lane = *Lane::ALL.get(turn)?;
            if !self.has_slot(lane) {
                continue;
            }
            if let Some(key) = self.waiting(lane).take() {
                self.waiting(lane).in_flight += 1;
                self.turn = turn + 1;
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.place = Place::InFlight { lane, again: None };
                }
                return Some(key);
            }
        }
        None
    }

    /// The key went well: it comes back after `after`, or after a moment if it was added while in flight.
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

    /// The key failed: it comes back after `after`, else after a backoff that grows with each failure in a row.
    /// Returns the time that it waits.
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

    /// The key's object is gone: it leaves the queue unless it was added while in flight.
    pub fn forget(&mut self, key: &K) {
        match self.land(key) {
            Ok(Some(again)) => self.make_ready(key.clone(), again),
            _ => {
                self.entries.remove(key);
            }
        }
    }

    /// Forgets everything, also what is in flight.
    pub fn clear(&mut self) {
        *self = Self { next_ticket: self.next_ticket, ..Self::new(self.slots) };
    }

    /// When the next delayed key is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.delayed.first_key_value().map(|((due, _), _)| *due)
    }

    /// How many keys of a lane are ready and wait for a slot.
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

    /// Whether `lane` may take a slot without taking the last one of another lane.
    fn has_slot(&self, lane: Lane) -> bool {
        let used = [self.create.in_flight, self.delete.in_flight, self.observe.in_flight];
        let free = self.slots.saturating_sub(used.iter().sum());
        if self.slots < Lane::ALL.len() {
            return free > 0;
        }
        let mut lanes = Lane::ALL.into_iter().zip(used);
        let is_idle = lanes.clone().any(|(each, used)| each == lane && used == 0);
        let kept_for_others = lanes.by_ref().filter(|(each, used)| *each != lane && *used == 0).count();
        is_idle && free > 0 || free > kept_for_others
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    fn make_ready(&mut self, key: K, urgency: Urgency) {
        let ticket = self.ticket();
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.place = Place::Ready { ticket, urgency };
        let lane = entry.lane;
        self.waiting(lane).class(urgency).insert(ticket, key);
    }

    fn delay(&mut self, key: K, due: Instant, urgency: Urgency, wait: Wait) {
        let ticket = self.ticket();
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.place = Place::Delayed { ticket, due, urgency, wait };
        self.delayed.insert((due, ticket), key);
    }

    /// Makes ready what is due.
    fn promote(&mut self, now: Instant) {
        while let Some(first) = self.delayed.first_entry() {
            if first.key().0 > now {
                return;
            }
            let key = first.remove();
            if let Some(Entry { place: Place::Delayed { urgency, .. }, .. }) = self.entries.get(&key) {
                let urgency = *urgency;
                self.make_ready(key, urgency);
            }
        }
    }

    /// Gives the slot of a key back and says what was added meanwhile.
    fn land(&mut self, key: &K) -> Result<Option<Urgency>, NotInFlight> {
        let Some(Entry { place: Place::InFlight { lane, again }, .. }) = self.entries.get(key) else {
            return Err(NotInFlight);
        };
        let (lane, again) = (*lane, *again);
        self.waiting(lane).in_flight = self.waiting(lane).in_flight.saturating_sub(1);
        Ok(again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    struct Bench {
        queue: Queue<&'static str>,
        now: Instant,
    }

    impl Bench {
        fn new(slots: usize) -> Self {
            Self { queue: Queue::new(slots), now: Instant::now() }
        }

        fn add(&mut self, key: &'static str, lane: Lane, urgency: Urgency) -> &mut Self {
            self.queue.add(key, lane, urgency);
            self
        }

        fn observe(&mut self, key: &'static str) -> &mut Self {
            self.add(key, Lane::Observe, Urgency::Event)
        }

        fn pick(&mut self) -> Option<&'static str> {
            self.queue.pick(self.now)
        }

        fn done(&mut self, key: &'static str) {
            self.queue.succeed(&key, MINUTE, Urgency::Resync, self.now);
        }

        fn fail(&mut self, key: &'static str) -> Duration {
            self.queue.fail(&key, None, 0.0, self.now)
        }

        /// Picks and ends everything that is ready, in order.
        fn drain(&mut self) -> Vec<&'static str> {
            let mut order = Vec::new();
            while let Some(key) = self.pick() {
                order.push(key);
                self.queue.forget(&key);
            }
            order
        }
    }

    #[test]
    fn a_key_added_twice_is_handed_out_once() {
        let mut bench = Bench::new(9);
        bench.observe("a").observe("a");
        assert_eq!(bench.queue.depth(Lane::Observe), 1);
        assert_eq!(bench.pick(), Some("a"));
        assert_eq!(bench.pick(), None);
    }

    #[test]
    fn a_key_in_flight_is_not_handed_out_but_comes_back() {
        let mut bench = Bench::new(9);
        bench.observe("a");
        bench.pick();
        bench.observe("a");
        assert_eq!(bench.pick(), None);
        bench.done("a");
        bench.observe("a");
        assert_eq!(bench.pick(), None, "its own echoes are still on their way");
        bench.now += SETTLE;
        assert_eq!(bench.pick(), Some("a"));
        bench.done("a");
        bench.now += SETTLE;
        assert_eq!(bench.pick(), None);
    }

    #[test]
    fn a_key_comes_back_when_its_delay_is_over() {
        let mut bench = Bench::new(9);
        bench.observe("a");
        bench.pick();
        bench.done("a");
        assert_eq!(bench.queue.next_due(), Some(bench.now + MINUTE));
        assert_eq!(bench.pick(), None);
        bench.now += MINUTE;
        assert_eq!(bench.pick(), Some("a"));
        assert_eq!(bench.queue.next_due(), None);
    }

    #[test]
    fn an_event_ends_a_wait_and_a_resync_does_not() {
        let mut bench = Bench::new(9);
        bench.observe("a");
        bench.pick();
        bench.done("a");
        bench.add("a", Lane::Observe, Urgency::Resync);
        assert_eq!(bench.pick(), None);
        bench.observe("a");
        assert_eq!(bench.pick(), Some("a"));
        assert_eq!(bench.queue.next_due(), None);
    }

    #[test]
    fn only_a_users_change_ends_a_backoff() {
        let mut bench = Bench::new(9);
        bench.observe("a");
        bench.pick();
        assert_eq!(bench.fail("a"), Duration::from_secs(1));
        bench.observe("a");
        assert_eq!(bench.pick(), None);
        bench.add("a", Lane::Observe, Urgency::Change);
        assert_eq!(bench.pick(), Some("a"));
    }

    #[test]
    fn what_arrives_while_a_failing_key_is_in_flight_obeys_the_same_rule() {
        let mut bench = Bench::new(9);
        bench.observe("a");
        bench.pick();
        bench.observe("a");
        bench.fail("a");
        assert_eq!(bench.pick(), None);
        bench.now += MINUTE;
        assert_eq!(bench.pick(), Some("a"));
        bench.add("a", Lane::Observe, Urgency::Change);
        assert_eq!(bench.fail("a"), SETTLE);
        bench.now += SETTLE;
        assert_eq!(bench.pick(), Some("a"));
    }

    #[test]
    fn failures_in_a_row_wait_longer_and_a_success_starts_anew() {
        let mut bench = Bench::new(9);
        bench.observe("a");
        let mut waits = Vec::new();
        for _ in 0..11 {
            assert_eq!(bench.pick(), Some("a"));
            let wait = bench.fail("a");
            waits.push(wait.as_secs());
            bench.now += wait;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        bench.pick();
        bench.done("a");
        bench.observe("a");
        bench.pick();
        assert_eq!(bench.fail("a"), Duration::from_secs(1));
    }

    #[test]
    fn a_given_delay_is_used_and_kept_like_a_backoff() {
        let mut bench = Bench::new(9);
        bench.observe("a");
        bench.pick();
        assert_eq!(bench.queue.fail(&"a", Some(MINUTE), 0.0, bench.now), MINUTE);
        bench.observe("a");
        assert_eq!(bench.pick(), None);
        bench.now += MINUTE;
        assert_eq!(bench.pick(), Some("a"));
    }

    #[test]
    fn events_go_first_but_every_fourth_pick_is_a_resync() {
        let mut bench = Bench::new(9);
        for key in ["r1", "r2"] {
            bench.add(key, Lane::Observe, Urgency::Resync);
        }
        for key in ["e1", "e2", "e3", "e4", "e5"] {
            bench.observe(key);
        }
        assert_eq!(bench.drain(), ["e1", "e2", "e3", "r1", "e4", "e5", "r2"]);
    }

    #[test]
    fn a_resync_that_gets_an_event_moves_ahead() {
        let mut bench = Bench::new(9);
        bench.add("r1", Lane::Observe, Urgency::Resync).add("r2", Lane::Observe, Urgency::Resync);
        bench.observe("r2");
        assert_eq!(bench.drain(), ["r2", "r1"]);
    }

    #[test]
    fn an_event_does_not_make_a_waiting_key_lose_its_place() {
        let mut bench = Bench::new(9);
        bench.observe("a").observe("b").observe("a");
        assert_eq!(bench.drain(), ["a", "b"]);
    }

    #[test]
    fn lanes_take_turns() {
        let mut bench = Bench::new(9);
        for key in ["d1", "d2", "d3"] {
            bench.add(key, Lane::Delete, Urgency::Event);
        }
        bench.add("c1", Lane::Create, Urgency::Event).observe("o1");
        assert_eq!(bench.drain(), ["c1", "d1", "o1", "d2", "d3"]);
    }

    #[test]
    fn each_lane_keeps_one_slot_that_no_other_may_take() {
        let mut bench = Bench::new(5);
        for key in ["d1", "d2", "d3", "d4", "d5"] {
            bench.add(key, Lane::Delete, Urgency::Event);
        }
        assert_eq!(
            [bench.pick(), bench.pick(), bench.pick(), bench.pick()],
            [Some("d1"), Some("d2"), Some("d3"), None]
        );
        bench.add("c1", Lane::Create, Urgency::Event).add("c2", Lane::Create, Urgency::Event);
        assert_eq!([bench.pick(), bench.pick()], [Some("c1"), None]);
        bench.observe("o1");
        assert_eq!(bench.pick(), Some("o1"));
        bench.done("c1");
        assert_eq!(bench.pick(), Some("c2"), "the slot given back is kept for its lane");
    }

    #[test]
    fn with_fewer_slots_than_lanes_any_lane_takes_any_slot() {
        let mut bench = Bench::new(1);
        bench.add("d1", Lane::Delete, Urgency::Event).add("c1", Lane::Create, Urgency::Event);
        assert_eq!([bench.pick(), bench.pick()], [Some("c1"), None]);
        bench.done("c1");
        assert_eq!(bench.pick(), Some("d1"));
    }

    #[test]
    fn a_key_that_changes_lane_waits_in_the_new_one_and_frees_the_old_slot() {
        let mut bench = Bench::new(3);
        bench.add("a", Lane::Create, Urgency::Event).add("a", Lane::Delete, Urgency::Event);
        assert_eq!((bench.queue.depth(Lane::Create), bench.queue.depth(Lane::Delete)), (0, 1));
        bench.pick();
        bench.add("a", Lane::Observe, Urgency::Event);
        bench.done("a");
        bench.now += SETTLE;
        bench.add("b", Lane::Delete, Urgency::Event);
        let mut picked = [bench.pick(), bench.pick()];
        picked.sort();
        assert_eq!(picked, [Some("a"), Some("b")]);
    }

    #[test]
    fn a_forgotten_key_is_gone_unless_it_was_added_meanwhile() {
        let mut bench = Bench::new(9);
        bench.observe("a").observe("b");
        bench.pick();
        bench.pick();
        bench.observe("b");
        bench.queue.forget(&"a");
        bench.queue.forget(&"b");
        assert_eq!(bench.drain(), ["b"]);
        bench.now += MINUTE;
        assert_eq!(bench.pick(), None);
    }

    #[test]
    fn clearing_leaves_nothing_and_late_answers_do_no_harm() {
        let mut bench = Bench::new(3);
        bench.observe("a").observe("b");
        bench.pick();
        bench.queue.clear();
        bench.done("a");
        bench.fail("a");
        assert_eq!(bench.pick(), None);
        assert_eq!(bench.queue.next_due(), None);
    }
}
