//! The faults of one run, all of which follow from a seed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use vitistack_apiserver::faults::{Fault, FaultPlan};

use super::random::Random;

/// An operation of a process at which it can crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CrashPoint {
    /// Before the n-th write to the API, counted from 1 over all incarnations.
    BeforeWrite(u64),
    /// After the n-th write, before its response arrives.
    AfterWrite(u64),
    /// Before the n-th call to a provider.
    BeforeProviderCall(u64),
    /// After the n-th call, before its response arrives.
    AfterProviderCall(u64),
}

/// A fault of one write to the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// The write is refused with 409.
    Conflict,
    /// The write is stored, and its response is lost.
    LostResponse,
}

/// Whether an operation fails before or after it took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTiming {
    Before,
    After,
}

/// The faults of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// The faults of lists, watches and writes of the API.
    pub api: FaultPlan,
    /// The faults of reads of one object, which may also be stale.
    pub stale_reads: FaultPlan,
    pub crashes: BTreeSet<CrashPoint>,
    /// By the number of the write.
    pub write_faults: BTreeMap<u64, WriteFault>,
    /// The percentage of failing writes to the store of a provider, and where the draws come from.
    pub store_faults: Option<(Random, u64)>,
    /// The percentage of provider tasks that fail.
    pub failed_tasks: u64,
    /// The percentage of provider replies that are lost.
    pub lost_replies: u64,
    /// The percentage of creates that fail for lack of capacity, and where the draws come from.
    pub capacity_errors: Option<(Random, u64)>,
    /// The delay of every watch event.
    pub watch_lag: Duration,
    /// From when to when the first of two processes cannot reach its leases; without it there is one process.
    pub lease_outage: Option<(Duration, Duration)>,
    /// Whether the user acts while the operator is paused between two operations.
    pub is_interleaved: bool,
    /// By the number of a user action: the provider that does not answer after it, and for how long.
    pub outages: BTreeMap<usize, (usize, Duration)>,
    /// Whether the run ends with the deletion of every Machine.
    pub deletes_machines: bool,
    /// Whether the operator resyncs often, or never.
    pub has_resync: bool,
}

impl Plan {
    /// Returns the plan without faults.
    pub fn fault_free() -> Self {
        Self {
            seed: 0,
            api: FaultPlan::new(0),
            stale_reads: FaultPlan::new(0),
            crashes: BTreeSet::new(),
            write_faults: BTreeMap::new(),
            store_faults: None,
            failed_tasks: 0,
            lost_replies: 0,
            capacity_errors: None,
            watch_lag: Duration::ZERO,
            lease_outage: None,
            is_interleaved: false,
            outages: BTreeMap::new(),
            deletes_machines: true,
            has_resync: true,
        }
    }

    /// Returns the plan whose only fault is a crash.
    pub fn crash(point: CrashPoint) -> Self {
        Self { crashes: BTreeSet::from([point]), ..Self::fault_free() }
    }

    /// Returns the plan whose only fault is that of one write.
    pub fn write_fault(number: u64, fault: WriteFault) -> Self {
        let write_faults = BTreeMap::from([(number, fault)]);
        Self { write_faults, has_resync: false, ..Self::fault_free() }
    }

    /// Returns the plan of a seed, a mixture of faults.
    ///
    /// The order of the draws is part of the meaning of a seed: a new fault draws last, or with its own
    /// purpose.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, 2);
        let api = api_faults(seed, &mut random);
        let stale = if random.chance(50) { 2_000 } else { 0 };
        let stale_reads = api.clone().with(Fault::Stale, stale);
        let crashes = crashes(&mut random);

        let store_faults = random.chance(30).then(|| (Random::new(seed, 3), 5 + random.below(15)));
        let mut outages = BTreeMap::new();
        if random.chance(25) {
            let pause = Duration::from_secs(random.pick(&[1, 9, 40]));
            outages.insert(random.index(12), (random.index(2), pause));
        }
        let failed_tasks = if random.chance(40) { 5 + random.below(25) } else { 0 };
        let lost_replies = if random.chance(40) { 5 + random.below(25) } else { 0 };

        let (deletes_machines, has_resync) = (random.chance(20), random.chance(50));
        let capacity_errors = random.chance(35).then(|| (Random::new(seed, 5), 10 + random.below(40)));
        let watch_lag = Duration::from_millis(random.pick(&[0, 0, 0, 0, 70, 1_500]));
        let lease_outage = random.chance(8).then(|| {
            let from = Duration::from_secs(random.below(40));
            (from, from + Duration::from_secs(10 + random.below(70)))
        });
        let is_interleaved = random.chance(50);

        Self {
            seed,
            api,
            stale_reads,
            crashes,
            write_faults: BTreeMap::new(),
            store_faults,
            failed_tasks,
            lost_replies,
            capacity_errors,
            watch_lag,
            lease_outage,
            is_interleaved,
            outages,
            deletes_machines,
            has_resync,
        }
    }
}

/// Draws which faults the API has, and how often.
fn api_faults(seed: u64, random: &mut Random) -> FaultPlan {
    // The highest rates, per ten thousand requests or events.
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
    let strength = random.pick(&[1, 1, 2, 4]);
    for (fault, most) in faults {
        if random.chance(45) {
            api = api.with(fault, 50 + random.below(most * strength));
        }
    }
    api
}

/// Draws up to three points at which the process crashes.
fn crashes(random: &mut Random) -> BTreeSet<CrashPoint> {
    let mut crashes = BTreeSet::new();
    for _ in 0..random.pick(&[0, 1, 1, 2, 3]) {
        let (write, call) = (1 + random.below(40), 1 + random.below(20));
        crashes.insert(random.pick(&[
            CrashPoint::BeforeWrite(write),
            CrashPoint::AfterWrite(write),
            CrashPoint::BeforeProviderCall(call),
            CrashPoint::AfterProviderCall(call),
        ]));
    }
    crashes
}

/// Returns the percentage of a fault that is drawn.
fn percent(faults: Option<&(Random, u64)>) -> u64 {
    faults.map_or(0, |(_, percent)| *percent)
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "API: {}; reads of one object: {}", self.api, self.stale_reads)?;
        writeln!(formatter, "crashes: {:?}", self.crashes)?;
        writeln!(
            formatter,
            "watch lag: {:?}, lease outage: {:?}, user acts between operations: {}",
            self.watch_lag, self.lease_outage, self.is_interleaved
        )?;
        writeln!(
            formatter,
            "providers: failing tasks {} %, lost replies {} %, capacity errors {} %, failing saves {} %",
            self.failed_tasks,
            self.lost_replies,
            percent(self.capacity_errors.as_ref()),
            percent(self.store_faults.as_ref())
        )
    }
}
