//! What goes wrong: follows from a seed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use vitistack_apiserver::faults::{Fault, FaultPlan};

use super::{life::Point, random::Random};

/// What goes wrong with one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trip {
    /// It is refused with 409.
    Conflict,
    /// It is made, and the answer is lost.
    Unheard,
}

/// What goes wrong in one play.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub api: FaultPlan,
    pub stale: FaultPlan,
    pub crashes: BTreeSet<Point>,
    /// By the numbers of writes.
    pub trips: BTreeMap<u64, Trip>,
    /// How many of a hundred writes of a world fail, and the dice.
    pub store_faults: Option<(Random, u64)>,
    pub failed_tasks: u64,
    pub lost_replies: u64,
    /// How many of a hundred creates are told that there is no room, and the dice.
    pub no_room: Option<(Random, u64)>,
    /// How late the watches are with everything.
    pub lag: Duration,
    /// There are two processes, and from when to when the first cannot reach its leases.
    pub cut_off: Option<(Duration, Duration)>,
    /// Whether the user acts right between two things that the operator does.
    pub is_lurking: bool,
    /// After which action which provider does not answer for how long.
    pub outages: BTreeMap<usize, (usize, Duration)>,
    /// Whether everything is deleted in the end.
    pub is_emptied: bool,
    /// Whether the operator looks at everything again and again.
    pub is_resynced: bool,
}

impl Plan {
    /// Nothing goes wrong.
    pub fn calm() -> Self {
        Self {
            seed: 0,
            api: FaultPlan::new(0),
            stale: FaultPlan::new(0),
            crashes: BTreeSet::new(),
            trips: BTreeMap::new(),
            store_faults: None,
            failed_tasks: 0,
            lost_replies: 0,
            no_room: None,
            lag: Duration::ZERO,
            cut_off: None,
            is_lurking: false,
            outages: BTreeMap::new(),
            is_emptied: true,
            is_resynced: true,
        }
    }

    /// The process dies at one point, and nothing else goes wrong.
    pub fn crash(point: Point) -> Self {
        Self { crashes: BTreeSet::from([point]), ..Self::calm() }
    }

    /// One write goes wrong, and nothing else.
    pub fn trip(number: u64, trip: Trip) -> Self {
        Self { trips: BTreeMap::from([(number, trip)]), is_resynced: false, ..Self::calm() }
    }

    /// A mixture.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, 2);
        let faults = [
            (Fault::CrashBefore, 800),
            (Fault::CrashAfter, 800),
            (Fault::Conflict, 800),
            (Fault::Invalid, 300),
            (Fault::Busy, 500),
            (Fault::Error, 500),
            (Fault::Timeout, 500),
            (Fault::Gone, 500),
            (Fault::Cut, 500),
            (Fault::Delay, 1500),
            (Fault::Duplicate, 1500),
        ];
        let mut api = FaultPlan::new(seed);
        let strength = random.one(&[1, 1, 2, 4]);
        for (fault, most) in faults {
            if random.is(45) {
                api = api.with(fault, 50 + random.below(most * strength));
            }
        }
        let stale = api.clone().with(Fault::Stale, if random.is(50) { 2_000 } else { 0 });
        let mut crashes = BTreeSet::new();
        for _ in 0..random.one(&[0, 1, 1, 2, 3]) {
            let (write, step) = (1 + random.below(40), 1 + random.below(20));
            crashes.insert(random.one(&[
                Point::BeforeWrite(write),
                Point::AfterWrite(write),
                Point::BeforeStep(step),
                Point::AfterStep(step),
            ]));
        }
        let store_faults = random.is(30).then(|| (Random::new(seed, 3), 5 + random.below(15)));
        let mut outages = BTreeMap::new();
        if random.is(25) {
            let pause = Duration::from_secs(random.one(&[1, 9, 40]));
            outages.insert(random.place(12), (random.place(2), pause));
        }
        let failed_tasks = if random.is(40) { 5 + random.below(25) } else { 0 };
        let lost_replies = if random.is(40) { 5 + random.below(25) } else { 0 };
        let (is_emptied, is_resynced) = (random.is(20), random.is(50));
        let no_room = random.is(35).then(|| (Random::new(seed, 5), 10 + random.below(40)));
        let lag = Duration::from_millis(random.one(&[0, 0, 0, 0, 70, 1_500]));
        let cut_off = random.is(8).then(|| {
            let from = Duration::from_secs(random.below(40));
            (from, from + Duration::from_secs(10 + random.below(70)))
        });
        let is_lurking = random.is(50);
        Self {
            seed,
            api,
            stale,
            crashes,
            trips: BTreeMap::new(),
            store_faults,
            failed_tasks,
            lost_replies,
            no_room,
            lag,
            cut_off,
            is_lurking,
            outages,
            is_emptied,
            is_resynced,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "API: {}; reads of one object: {}", self.api, self.stale)?;
        writeln!(formatter, "crashes: {:?}", self.crashes)?;
        writeln!(
            formatter,
            "watches are {:?} late, the first of two processes has no leases: {:?}, the user comes between: {}",
            self.lag, self.cut_off, self.is_lurking
        )?;
        let store = self.store_faults.as_ref().map_or(0, |(_, percent)| *percent);
        writeln!(
            formatter,
            "providers: {} % of tasks fail, {} % of replies are lost, {} % have no room, {store} % of saves fail",
            self.failed_tasks,
            self.lost_replies,
            self.no_room.as_ref().map_or(0, |(_, percent)| *percent)
        )
    }
}
