//! The IO around a world: a lock, a journal in a store, and wake-ups for subscribers.
//!
//! A call returns only after everything it reports is saved. Saves are shared: the first caller writes for all callers
//! that arrived until then, so that many concurrent calls cost one write, and each write is proportional to the change.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use futures::future::{self, Either};
use jiff::Timestamp;
use snafu::ResultExt as _;
use tokio::sync::Notify;
use vitistack_plan::machine::Identity;

use super::{
    Settings,
    clock::Clock,
    store::{StoreError, WorldStore},
    world::{RestoreError, SIMULATED_PROVIDER_ERROR, Unsaved, World},
};
use crate::{BackendError, ErrorKind};

/// The journal size up to which compaction is not worthwhile, because loading is fast anyway.
const SMALL_JOURNAL: usize = 1 << 20;

const CHANGED_BY_ANOTHER_PROCESS: &str = "another process has changed its state";
const STORE_FAILED: &str = "its store failed";

/// A world whose changes are written to a journal.
pub(super) struct Journaled {
    world: Mutex<World>,
    clock: Arc<dyn Clock>,
    store: Arc<dyn WorldStore>,
    journal: tokio::sync::Mutex<Journal>,
    subscribers: Mutex<Vec<Weak<Subscriber>>>,
}

/// The state of the journal in the store.
struct Journal {
    version: u64,
    /// The revision of the world up to which everything is saved.
    saved: u64,
    /// Ranges of revisions that were discarded when another process wrote to the store: the last one that was saved, and
    /// the last one that was lost.
    lost: Vec<(u64, u64)>,
    snapshot_size: usize,
    size: usize,
}

/// Why a world could not be opened.
#[derive(Debug, snafu::Snafu)]
pub enum OpenWorldError {
    /// The store failed.
    #[snafu(display("failed to load the simulated world"))]
    LoadWorld {
        /// The cause.
        source: StoreError,
    },
    /// The stored records are not a world.
    #[snafu(display("failed to restore the simulated world"))]
    RestoreWorld {
        /// The cause.
        source: RestoreError,
    },
}

impl Journaled {
    pub(super) async fn open(
        settings: Settings,
        clock: Arc<dyn Clock>,
        store: Arc<dyn WorldStore>,
    ) -> Result<Self, OpenWorldError> {
        let (world, journal) = load(settings, &*clock, &*store).await?;
        Ok(Self {
            world: Mutex::new(world),
            clock,
            store,
            journal: tokio::sync::Mutex::new(journal),
            subscribers: Mutex::new(Vec::new()),
        })
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accesses the world as of now, without saving anything.
    pub(super) fn access<R>(&self, work: impl FnOnce(&mut World) -> R) -> R {
        let (result, changed) = {
            let mut world = self.lock();
            world.advance(self.clock.now());
            let result = work(&mut world);
            (result, world.take_changed())
        };
        self.notify(&changed);
        result
    }

    /// Accesses the world as of now; returns once everything the result depends on is saved.
    pub(super) async fn commit<R>(
        &self,
        work: impl FnOnce(&mut World, Timestamp) -> R,
    ) -> Result<R, BackendError> {
        let now = self.clock.now();
        let (result, revision) = self.access(|world| (work(world, now), world.revision()));
        self.save(revision).await?;
        Ok(result)
    }

    async fn save(&self, revision: u64) -> Result<(), BackendError> {
        let mut journal = self.journal.lock().await;
        if journal.lost.iter().any(|(saved, lost)| *saved < revision && revision <= *lost) {
            return Err(not_saved(CHANGED_BY_ANOTHER_PROCESS));
        }
        if revision <= journal.saved {
            return Ok(());
        }

        let (pending, record, reached) = {
            let mut world = self.lock();
            let pending = Pending { journaled: self, unsaved: Some(world.take_unsaved()) };
            let record = pending.unsaved.as_ref().map(|unsaved| world.record(unsaved));
            (pending, record, world.revision())
        };
        let Some(Ok(record)) = record else { return Err(not_saved("its state could not be serialized")) };
        let size = record.len();

        match self.store.append(journal.version, record).await {
            Ok(version) => {
                pending.discard();
                journal.version = version;
                journal.saved = reached;
                journal.size = journal.size.saturating_add(size);
            }
            Err(StoreError::MatchVersion { .. }) => {
                pending.discard();
                self.reload(&mut journal).await?;
                return Err(not_saved(CHANGED_BY_ANOTHER_PROCESS));
            }
            // The message of a store may contain paths, which a tenant must not see.
            Err(_) => return Err(not_saved(STORE_FAILED)),
        }

        if journal.size > SMALL_JOURNAL.max(journal.snapshot_size.saturating_mul(2)) {
            self.compact(&mut journal).await;
        }
        Ok(())
    }

    /// Replaces the journal with one record. If that fails, everything is still saved, and the next save retries.
    async fn compact(&self, journal: &mut Journal) {
        let (pending, record, reached) = {
            let mut world = self.lock();
            let pending = Pending { journaled: self, unsaved: Some(world.take_unsaved()) };
            (pending, world.snapshot(), world.revision())
        };
        let Ok(record) = record else { return };
        let size = record.len();

        if let Ok(version) = self.store.replace(journal.version, record).await {
            pending.discard();
            journal.version = version;
            journal.saved = reached;
            journal.snapshot_size = size;
            journal.size = 0;
        }
    }

    /// Reloads the world after another process wrote to the store. Unsaved changes were never acknowledged.
    async fn reload(&self, journal: &mut Journal) -> Result<(), BackendError> {
        let settings = self.lock().settings().clone();
        let loaded = load(settings, &*self.clock, &*self.store).await;
        let (world, fresh) = loaded.map_err(|_| not_saved(STORE_FAILED))?;

        let mut changed = {
            let mut current = self.lock();
            let mut lost = std::mem::take(&mut journal.lost);
            lost.push((journal.saved, current.revision()));
            *current = world.continuing(&current);
            *journal = Journal { saved: current.revision(), lost, ..fresh };
            current.take_changed()
        };

        changed.extend(
            self.access(|world| {
                world.machines().filter_map(|machine| machine.tag.clone()).collect::<Vec<_>>()
            }),
        );
        self.notify(&changed);
        Ok(())
    }

    fn notify(&self, changed: &BTreeSet<String>) {
        if changed.is_empty() {
            return;
        }
        let mut subscribers = self.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        subscribers.retain(|subscriber| {
            subscriber.upgrade().is_some_and(|subscriber| {
                subscriber.add(changed);
                true
            })
        });
    }

    /// Returns a subscriber that receives all changes from now on.
    pub(super) fn subscribe(&self) -> Arc<Subscriber> {
        let subscriber = Arc::new(Subscriber::default());
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&subscriber));
        subscriber
    }

    /// Returns the next identity whose machine or volumes changed. Waiting here also advances the time of the world.
    pub(super) async fn next_change(&self, subscriber: &Subscriber) -> Identity {
        loop {
            let notified = subscriber.notify.notified();
            let due = self.access(|world| world.next_due());
            if let Some(tag) = subscriber.take() {
                return Identity::new(tag);
            }
            let due = match due {
                Some(due) => Either::Left(self.clock.until(due)),
                None => Either::Right(future::pending()),
            };
            future::select(std::pin::pin!(notified), due).await;
        }
    }
}

async fn load(
    settings: Settings,
    clock: &dyn Clock,
    store: &dyn WorldStore,
) -> Result<(World, Journal), OpenWorldError> {
    let stored = store.load().await.context(LoadWorldSnafu)?;
    let records = stored.records.iter().map(Vec::as_slice);
    let world = World::restore(settings, records, clock.now()).context(RestoreWorldSnafu)?;
    let snapshot_size = stored.records.first().map_or(0, Vec::len);
    let size = stored.records.iter().skip(1).map(Vec::len).sum();
    Ok((world, Journal { version: stored.version, saved: 0, lost: Vec::new(), snapshot_size, size }))
}

/// Changes that are being saved. They are marked as unsaved again unless they were saved, also when the caller is
/// canceled in the middle of a save.
struct Pending<'a> {
    journaled: &'a Journaled,
    unsaved: Option<Unsaved>,
}

impl Pending<'_> {
    fn discard(mut self) {
        self.unsaved = None;
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(unsaved) = self.unsaved.take() {
            self.journaled.lock().mark_unsaved(unsaved);
        }
    }
}

fn not_saved(cause: &str) -> BackendError {
    let message = format!("the simulated provider may not have saved the request: {cause}; it is retried");
    BackendError::new(ErrorKind::Unreachable, SIMULATED_PROVIDER_ERROR, message)
}

/// Changed identities that one subscriber has not received yet. Each is queued once, however often it changed, so that
/// the queue is bounded.
#[derive(Default)]
pub(super) struct Subscriber {
    queue: Mutex<BTreeSet<String>>,
    notify: Notify,
}

impl Subscriber {
    fn add(&self, changed: &BTreeSet<String>) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).extend(changed.iter().cloned());
        self.notify.notify_one();
    }

    fn take(&self) -> Option<String> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_first()
    }
}
