//! Numbers that follow from a seed, and time that passes only when nobody has anything to do.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::time::Instant;
use vitistack_machine::simulated::{Clock, faults::mix};

/// Numbers that follow from a seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed for one purpose: another purpose gets others.
    pub fn new(seed: u64, purpose: u64) -> Self {
        Self(mix(seed ^ mix(purpose)))
    }

    /// A number below the limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0) % limit.max(1)
    }

    /// Whether it is among `percent` of a hundred.
    pub fn is(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A place in something of this length.
    pub fn place(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    /// One of these.
    pub fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.place(of.len())].clone()
    }
}

/// The clock of the runtime, which stands still while anybody has something to do. Everybody shares it: API, operator,
/// providers.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeClock {
    began: Instant,
}

/// What the clock shows when it begins.
const BEGINNING: &str = "2030-01-01T00:00:00Z";

impl RuntimeClock {
    pub fn new() -> Self {
        Self { began: Instant::now() }
    }

    /// The time since it began.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The time since it showed this.
    pub fn since(&self, then: Duration) -> Duration {
        self.elapsed().saturating_sub(then)
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        let beginning: Timestamp = BEGINNING.parse().unwrap();
        beginning + self.elapsed()
    }

    fn until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let wait = Duration::try_from(self.now().duration_until(at)).unwrap_or_default();
        // A timer ends up to a millisecond early or late of a time with a finer grain; late is what is right here.
        Box::pin(tokio::time::sleep(wait + Duration::from_millis(1)))
    }
}
