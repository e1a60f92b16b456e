//! The changes that wait for one watcher.
//!
//! A watcher that does not keep up is disconnected and must start again: when too many changes wait, when
//! they are too large, or when it takes none for too long. What waits for it is then dropped at once, whether
//! or not its connection has been closed.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::Event;

/// The maximum number of changes that wait.
const MAX_EVENTS: usize = 4096;
/// The maximum size of the changes that wait.
const MAX_BYTES: usize = 16 << 20;
/// How long changes may wait before the watcher takes one.
const MAX_WAIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// When the watcher last took a change, or had none to take.
    active_at: Instant,
    is_open: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of the store.
#[derive(Debug)]
pub struct Sender {
    shared: Arc<Shared>,
}

/// The end of the watcher.
#[derive(Debug)]
pub struct Changes {
    shared: Arc<Shared>,
}

/// Returns both ends of a queue.
#[must_use]
pub fn queue() -> (Sender, Changes) {
    let state = State { events: VecDeque::new(), bytes: 0, active_at: Instant::now(), is_open: true };
    let shared = Arc::new(Shared { state: Mutex::new(state), changed: Notify::new() });
    (Sender { shared: Arc::clone(&shared) }, Changes { shared })
}

/// The bytes that a change holds in memory.
fn size(event: &Event) -> usize {
    event.object.len() + event.previous.as_ref().map_or(0, |previous| previous.bytes.len())
}

impl Sender {
    /// Adds a change; `false` if the watcher is gone, or too slow and disconnected.
    #[must_use]
    pub fn send(&self, event: &Arc<Event>) -> bool {
        let mut state = self.shared.lock();
        if !state.is_open {
            return false;
        }
        if state.events.is_empty() {
            state.active_at = Instant::now();
        }

        let is_slow = state.events.len() >= MAX_EVENTS
            || (!state.events.is_empty() && state.bytes.saturating_add(size(event)) > MAX_BYTES)
            || (!state.events.is_empty() && state.active_at.elapsed() > MAX_WAIT);
        if is_slow {
            state.close();
        } else {
            state.bytes += size(event);
            state.events.push_back(Arc::clone(event));
        }
        let is_open = state.is_open;
        drop(state);
        self.shared.changed.notify_one();
        is_open
    }

    /// Whether the watcher is gone or was disconnected.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        !self.shared.lock().is_open
    }
}

impl Drop for Sender {
    /// Ends the watch after the changes that wait.
    fn drop(&mut self) {
        self.shared.lock().is_open = false;
        self.shared.changed.notify_one();
    }
}

impl State {
    /// Disconnects the watcher and drops what waits for it.
    fn close(&mut self) {
        self.is_open = false;
        self.bytes = 0;
        self.events = VecDeque::new();
    }

    fn take(&mut self) -> Option<Arc<Event>> {
        let event = self.events.pop_front()?;
        self.bytes = self.bytes.saturating_sub(size(&event));
        self.active_at = Instant::now();
        Some(event)
    }
}

impl Changes {
    /// Returns the next change; `None` when the watch has ended.
    pub async fn recv(&mut self) -> Option<Arc<Event>> {
        loop {
            {
                let mut state = self.shared.lock();
                if let Some(event) = state.take() {
                    return Some(event);
                }
                if !state.is_open {
                    return None;
                }
            }
            // A notification that came since the lock was released is stored.
            self.shared.changed.notified().await;
        }
    }

    /// Returns the next change if there is one.
    pub fn try_recv(&mut self) -> Option<Arc<Event>> {
        self.shared.lock().take()
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.shared.lock().close();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::store::Key;

    fn event(size: usize) -> Arc<Event> {
        let key = Key { resource: Arc::from("/secrets"), namespace: "a".to_owned(), name: "b".to_owned() };
        Arc::new(Event::new(1, &key, Bytes::from(vec![b' '; size]), None, false))
    }

    #[tokio::test(start_paused = true)]
    async fn a_watcher_is_disconnected_when_too_many_bytes_wait_for_it() {
        let (sender, mut changes) = queue();
        let large = event(MAX_BYTES / 4);
        for _ in 0..4 {
            assert!(sender.send(&large));
        }
        assert!(!sender.send(&large));
        assert_eq!(Arc::strong_count(&large), 1, "nothing is retained");
        assert!(changes.recv().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watcher_is_disconnected_when_it_takes_nothing_for_thirty_seconds() {
        let (sender, mut changes) = queue();
        assert!(sender.send(&event(1)));
        tokio::time::advance(Duration::from_secs(29)).await;
        assert!(sender.send(&event(1)));
        assert!(changes.recv().await.is_some());
        tokio::time::advance(Duration::from_secs(29)).await;
        assert!(sender.send(&event(1)), "it took a change in time");
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(!sender.send(&event(1)));
        assert!(changes.recv().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_watch_stays_connected() {
        let (sender, mut changes) = queue();
        tokio::time::advance(Duration::from_hours(1)).await;
        assert!(sender.send(&event(MAX_BYTES * 2)), "one change is never too large");
        assert!(changes.recv().await.is_some());
        drop(sender);
        assert!(changes.recv().await.is_none());
    }
}
