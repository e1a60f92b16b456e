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
        self.queue.add(key, Share::default(), lane, urgency);
        self
    }

    /// Adds a key that is to be created in another system.
    fn create_in(&mut self, system: &str, tenant: &str, key: &'static str) -> &mut Self {
        let share = Share { tenant: tenant.to_owned(), system: Some(system.to_owned()) };
        self.queue.add(key, share, Lane::Create, Urgency::Event);
        self
    }

    /// Picks all keys that may be in flight now, in order.
    fn pick_all(&mut self) -> Vec<&'static str> {
        std::iter::from_fn(|| self.pick()).collect()
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

    /// Picks and forgets all ready keys, in order.
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
fn a_key_added_twice_is_picked_once() {
    let mut bench = Bench::new(9);
    bench.observe("a").observe("a");
    assert_eq!(bench.queue.depth(Lane::Observe), 1);
    assert_eq!(bench.pick(), Some("a"));
    assert_eq!(bench.pick(), None);
}

#[test]
fn a_key_added_while_in_flight_is_picked_again_afterwards() {
    let mut bench = Bench::new(9);
    bench.observe("a");
    bench.pick();
    bench.observe("a");
    assert_eq!(bench.pick(), None);
    bench.done("a");
    bench.observe("a");
    assert_eq!(bench.pick(), None, "the events of its own writes are still arriving");
    bench.now += SETTLE;
    assert_eq!(bench.pick(), Some("a"));
    bench.done("a");
    bench.now += SETTLE;
    assert_eq!(bench.pick(), None);
}

#[test]
fn a_key_is_picked_after_its_delay() {
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
fn an_event_ends_a_delay_and_a_resync_does_not() {
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
fn only_a_users_change_during_a_failing_reconcile_ends_the_backoff() {
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
fn the_backoff_grows_with_every_failure_and_a_success_resets_it() {
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
fn an_explicit_delay_replaces_the_backoff() {
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
fn events_precede_resyncs_but_every_fourth_pick_is_a_resync() {
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
fn an_event_raises_the_urgency_of_a_resync() {
    let mut bench = Bench::new(9);
    bench.add("r1", Lane::Observe, Urgency::Resync).add("r2", Lane::Observe, Urgency::Resync);
    bench.observe("r2");
    assert_eq!(bench.drain(), ["r2", "r1"]);
}

#[test]
fn a_second_event_does_not_change_the_order() {
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
fn each_lane_has_one_reserved_slot() {
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
    assert_eq!(bench.pick(), Some("c2"), "the freed slot is reserved for its lane");
}

#[test]
fn with_fewer_slots_than_lanes_no_slot_is_reserved() {
    let mut bench = Bench::new(1);
    bench.add("d1", Lane::Delete, Urgency::Event).add("c1", Lane::Create, Urgency::Event);
    assert_eq!([bench.pick(), bench.pick()], [Some("c1"), None]);
    bench.done("c1");
    assert_eq!(bench.pick(), Some("d1"));
}

#[test]
fn a_key_that_changes_its_lane_frees_the_slot_of_the_old_lane() {
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
fn a_forgotten_key_is_removed_unless_it_was_added_while_in_flight() {
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
fn clearing_removes_everything_and_late_results_are_ignored() {
    let mut bench = Bench::new(3);
    bench.observe("a").observe("b");
    bench.pick();
    bench.queue.clear();
    bench.done("a");
    bench.fail("a");
    assert_eq!(bench.pick(), None);
    assert_eq!(bench.queue.next_due(), None);
}

#[test]
fn shares_take_turns() {
    let mut bench = Bench::new(9);
    for key in ["a1", "a2", "a3", "a4"] {
        bench.create_in("p", "a", key);
    }
    bench.create_in("p", "b", "b1").create_in("p", "b", "b2").create_in("q", "c", "c1");
    assert_eq!(bench.drain(), ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]);
}

#[test]
fn a_key_that_changes_its_share_waits_in_the_new_one() {
    let mut bench = Bench::new(9);
    bench.create_in("p", "a", "a1").create_in("p", "a", "a2").create_in("q", "a", "a1");
    assert_eq!(bench.queue.depth(Lane::Create), 2);
    assert_eq!(bench.drain(), ["a2", "a1"]);
}

#[test]
fn a_slow_reconcile_gives_its_slot_back() {
    let mut bench = Bench::new(5);
    for key in ["a1", "a2", "a3"] {
        bench.create_in("hanging", "a", key);
    }
    bench.create_in("well", "b", "b1");
    assert_eq!(bench.pick_all(), ["a1", "b1", "a2"], "the other two slots are those of the other lanes");
    bench.done("b1");
    assert_eq!(bench.pick_all(), ["a3"]);
    bench.create_in("well", "b", "b2");
    assert_eq!(bench.pick(), None);

    assert_eq!(bench.queue.next_due(), Some(bench.now + SLOW));
    bench.now += SLOW;
    assert_eq!(bench.pick(), Some("b2"));
    bench.done("b2");
    for key in ["a1", "a2", "a3"] {
        bench.fail(key);
    }
    bench.create_in("well", "b", "b3").create_in("well", "b", "b4").create_in("well", "b", "b5");
    bench.create_in("well", "b", "b6");
    assert_eq!(bench.pick_all(), ["b3", "b4", "b5"], "a slot is given back once");
}

#[test]
fn a_system_that_hangs_holds_no_more_keys_than_there_are_slots() {
    let mut bench = Bench::new(5);
    for key in ["a1", "a2", "a3", "a4", "a5", "a6", "a7"] {
        bench.create_in("hanging", "a", key);
    }
    assert_eq!(bench.pick_all(), ["a1", "a2", "a3"]);
    bench.now += SLOW;
    assert_eq!(bench.pick_all(), ["a4", "a5"]);
    bench.now += SLOW;
    assert_eq!(bench.pick(), None, "five are in flight");
    assert_eq!(bench.queue.next_due(), None, "nothing happens by itself");

    bench.create_in("well", "a", "b1").create_in("well", "a", "b2");
    assert_eq!(bench.pick_all(), ["b1", "b2"], "another system of the same tenant");
    bench.fail("a1");
    assert_eq!(bench.pick_all(), ["a6"]);
}

#[test]
fn work_without_another_system_is_limited_by_its_slots_alone() {
    let mut bench = Bench::new(3);
    bench.observe("a").observe("b");
    assert_eq!(bench.pick_all(), ["a"]);
    bench.now += SLOW * 10;
    assert_eq!(bench.pick(), None);
}

#[test]
fn a_removed_key_of_a_full_system_leaves_nothing_behind() {
    let mut bench = Bench::new(3);
    bench.create_in("p", "a", "a1").create_in("p", "a", "a2").create_in("p", "a", "a3");
    bench.create_in("p", "a", "a4");
    for _ in 0..3 {
        bench.pick_all();
        bench.now += SLOW;
    }
    assert_eq!(bench.pick(), None);
    bench.create_in("q", "a", "a4");
    assert_eq!(bench.pick(), Some("a4"));
    bench.fail("a1");
    assert_eq!(bench.pick(), None);
    assert_eq!(bench.queue.depth(Lane::Create), 0);
}
