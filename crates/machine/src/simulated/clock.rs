//! Time as an argument: the system clock, and a manual clock for tests.

use std::{fmt, time::Duration};

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::watch;

/// A source of the current time that can be waited on.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;

    /// Completes at the given time.
    fn until(&self, at: Timestamp) -> BoxFuture<'static, ()>;
}

/// The clock of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let wait = Duration::try_from(Timestamp::now().duration_until(at)).unwrap_or_default();
        Box::pin(tokio::time::sleep(wait))
    }
}

/// A clock that only moves when [`ManualClock::advance`] is called.
#[derive(Clone, Debug)]
pub struct ManualClock {
    time: watch::Sender<Timestamp>,
}

impl ManualClock {
    /// Returns a clock that shows the given time.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { time: watch::Sender::new(now) }
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.time.send_modify(|time| *time = time.saturating_add(by).unwrap_or(Timestamp::MAX));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.time.borrow()
    }

    fn until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let mut time = self.time.subscribe();
        Box::pin(async move {
            if time.wait_for(|time| *time >= at).await.is_err() {
                // The clock was dropped and can no longer be advanced, so the time never comes.
                futures::future::pending::<()>().await;
            }
        })
    }
}
