//! What all processes of one run share: the clock, the planned faults, the counters and the log.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::oneshot, time::timeout};

use super::{
    invariants::InvariantChecker,
    plan::{CrashPoint, FaultTiming, Plan, WriteFault},
    random::{Random, RuntimeClock},
};

/// What all processes of one run share.
pub struct RunContext {
    pub clock: RuntimeClock,
    pub checker: Arc<InvariantChecker>,
    /// What the clock showed when the run started.
    started: Duration,
    crashes: BTreeSet<CrashPoint>,
    write_faults: BTreeMap<u64, WriteFault>,
    is_faulty: AtomicBool,
    store_faults: Mutex<Option<(Random, u64)>>,
    capacity_errors: Mutex<Option<(Random, u64)>>,
    /// The number of incarnations so far, of all processes.
    incarnations: AtomicU64,
    /// The number of processes that crashed and are not restarted yet.
    pub crashed: AtomicU64,
    writes: AtomicU64,
    provider_calls: AtomicU64,
    /// The number of Kubernetes Events that were sent.
    pub events: AtomicU64,
    activity: AtomicU64,
    /// The number of operations that a process attempted after its end.
    pub zombie_operations: AtomicU64,
    log: Mutex<Vec<String>>,
    pause_request: Mutex<Option<PauseRequest>>,
}

/// A user who waits until the operator has done a number of operations.
struct PauseRequest {
    operations_left: u64,
    granted: oneshot::Sender<OperatorPause>,
}

/// The operator stays paused between two operations until this is dropped.
#[derive(Debug)]
pub struct OperatorPause(
    #[expect(dead_code, reason = "dropping it resumes the operator")] oneshot::Sender<()>,
);

impl RunContext {
    pub fn new(clock: RuntimeClock, plan: &Plan, is_fault_free: bool) -> Arc<Self> {
        Arc::new(Self {
            clock,
            checker: InvariantChecker::new(clock, is_fault_free),
            started: clock.elapsed(),
            crashes: plan.crashes.clone(),
            write_faults: plan.write_faults.clone(),
            is_faulty: AtomicBool::new(!is_fault_free),
            store_faults: Mutex::new(plan.store_faults.clone()),
            capacity_errors: Mutex::new(plan.capacity_errors.clone()),
            incarnations: AtomicU64::new(0),
            crashed: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            provider_calls: AtomicU64::new(0),
            events: AtomicU64::new(0),
            activity: AtomicU64::new(0),
            zombie_operations: AtomicU64::new(0),
            log: Mutex::default(),
            pause_request: Mutex::default(),
        })
    }

    /// Whether faults are injected now.
    pub fn is_faulty(&self) -> bool {
        self.is_faulty.load(Ordering::SeqCst)
    }

    /// Stops injecting faults.
    pub fn end_faults(&self) {
        self.is_faulty.store(false, Ordering::SeqCst);
    }

    /// Returns the numbers of API writes and of provider calls.
    pub fn counts(&self) -> (u64, u64) {
        (self.writes.load(Ordering::SeqCst), self.provider_calls.load(Ordering::SeqCst))
    }

    /// Counts an API write and returns its number.
    pub fn count_write(&self) -> u64 {
        self.writes.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Counts a provider call and returns its number.
    pub fn count_provider_call(&self) -> u64 {
        self.provider_calls.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Counts an incarnation of a process and returns its number.
    pub fn count_incarnation(&self) -> u64 {
        self.incarnations.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Returns a number that grows with every change, of an object or at a provider.
    pub fn activity(&self) -> u64 {
        self.activity.load(Ordering::SeqCst)
    }

    /// Records that something changed.
    pub fn record_activity(&self) {
        self.activity.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the time since the run started.
    pub fn elapsed(&self) -> Duration {
        self.clock.since(self.started)
    }

    /// Adds a line to the log.
    pub fn log(&self, line: &str) {
        let line = format!("{:9.3} s  {line}", self.elapsed().as_secs_f64());
        lock(&self.log).push(line);
    }

    /// Returns the log.
    pub fn log_lines(&self) -> Vec<String> {
        lock(&self.log).clone()
    }

    /// Whether the process crashes at this point.
    pub fn is_crash(&self, point: CrashPoint) -> bool {
        self.crashes.contains(&point)
    }

    /// Returns the fault of a write, by its number.
    pub fn write_fault(&self, write: Option<u64>) -> Option<WriteFault> {
        self.write_faults.get(&write?).copied().filter(|_| self.is_faulty())
    }

    /// Draws whether the store of a provider fails now, before or after it wrote.
    pub fn draw_store_fault(&self) -> Option<FaultTiming> {
        self.draw(&self.store_faults)
    }

    /// Draws whether a provider reports now that it has no capacity, before or after it created the machine.
    pub fn draw_capacity_error(&self) -> Option<FaultTiming> {
        self.draw(&self.capacity_errors)
    }

    fn draw(&self, faults: &Mutex<Option<(Random, u64)>>) -> Option<FaultTiming> {
        let mut faults = lock(faults);
        let (random, percent) = faults.as_mut().filter(|_| self.is_faulty())?;
        if !random.chance(*percent) {
            return None;
        }
        Some(if random.chance(50) { FaultTiming::After } else { FaultTiming::Before })
    }

    /// Waits, not longer than `limit`, until the operator has done `operations` more operations, and pauses
    /// it there.
    pub async fn pause_operator(&self, operations: u64, limit: Duration) -> Option<OperatorPause> {
        let (granted, pause) = oneshot::channel();
        *lock(&self.pause_request) = Some(PauseRequest { operations_left: operations, granted });
        let pause = timeout(limit, pause).await;
        lock(&self.pause_request).take();
        pause.ok()?.ok()
    }

    /// Pauses the operator here if a user has asked for it and the requested number of operations is done.
    pub async fn pause_if_requested(&self) {
        let due = {
            let mut request = lock(&self.pause_request);
            match &mut *request {
                Some(PauseRequest { operations_left, .. }) if *operations_left > 0 => {
                    *operations_left -= 1;
                    None
                }
                _ => request.take(),
            }
        };

        if let Some(PauseRequest { granted, .. }) = due {
            let (pause, resumed) = oneshot::channel();
            if granted.send(OperatorPause(pause)).is_ok() {
                self.log("the operator is paused for the next user action");
                let _ = resumed.await;
            }
        }
    }
}

/// Locks a mutex, also after a panic of another holder.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
