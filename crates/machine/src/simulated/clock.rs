//! Time as an argument: a real clock for running, one that stands still until it is told for tests.

use std::{fmt, time::Duration};

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::watch;

/// Says what time it is, and when another time has come.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// What time it is.
    fn now(&self) -> Timestamp;

    /// Ends when it is this time.
    fn until(&self, at: Timestamp) -> BoxFuture<'static, ()>;
}

/// The clock of the machine this runs on.
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

/// A clock that moves only when it is told to.
#[derive(Clone, Debug)]
pub struct ManualClock {
    time: watch::Sender<Timestamp>,
}

impl ManualClock {
    /// A clock that shows this time.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { time: watch::Sender::new(now) }
    }

    /// Moves it forward.
    pub fn advance(&self, by: Duration) {
        self.time.send_modify(|time| *time = time.saturating_add(by).unwrap_or(Timestamp::MAX));
    }

    /// Moves it to a time, unless it shows a later one.
    pub fn advance_to(&self, at: Timestamp) {
        self.time.send_modify(|time| *time = at.max(*time));
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
                // Nobody is left who could move the clock, so the time never comes.
                futures::future::pending::<()>().await;
            }
        })
    }
}
