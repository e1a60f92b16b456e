//! Pseudo-random numbers that follow from a seed, and a clock that advances only while every task is idle.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::time::Instant;
use vitistack_machine::simulated::{Clock, faults::mix};

/// A sequence of numbers that follows from a seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the sequence of a seed for one purpose; every purpose has its own sequence.
    pub fn new(seed: u64, purpose: u64) -> Self {
        Self(mix(seed ^ mix(purpose)))
    }

    /// Draws a number below the limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0) % limit.max(1)
    }

    /// Draws `true` with a probability of `percent`.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Draws an index of a sequence of this length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    /// Draws one of the values.
    pub fn pick<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.index(values.len())].clone()
    }
}

/// The clock of the paused runtime. The API, the operators and the providers share it.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeClock {
    started: Instant,
}

/// The time that the clock shows at its start.
const START: &str = "2030-01-01T00:00:00Z";

impl RuntimeClock {
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the time since `elapsed` returned `then`.
    pub fn since(&self, then: Duration) -> Duration {
        self.elapsed().saturating_sub(then)
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        let start: Timestamp = START.parse().unwrap();
        start + self.elapsed()
    }

    fn until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let wait = Duration::try_from(self.now().duration_until(at)).unwrap_or_default();
        // Timers of tokio have a resolution of one millisecond; a millisecond more never ends before `at`.
        Box::pin(tokio::time::sleep(wait + Duration::from_millis(1)))
    }
}
