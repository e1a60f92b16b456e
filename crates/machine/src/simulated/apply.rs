//! The thin part with IO: a lock around the world, a journal behind it, and the wake-up of those who listen.
//!
//! An answer is given only after what it tells is saved. Saving is shared: whoever comes first writes for all who came
//! until then, so that many calls at a time cost one write, and each costs bytes in proportion to what it changed.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use futures::future::{self, Either};
use jiff::Timestamp;
use tokio::sync::Notify;
use vitistack_plan::machine::Identity;

use super::{
    Settings,
    clock::Clock,
    store::{StoreError, WorldStore},
    world::{RestoreError, SIMULATED_PROVIDER_ERROR, Unsaved, World},
};
use crate::{BackendError, ErrorKind};

/// How much is written before the journal is replaced, at least: below this a load is quick anyway.
const SMALL_JOURNAL: usize = 1 << 20;

/// A world that is kept.
pub(super) struct Kept {
    world: Mutex<World>,
    clock: Arc<dyn Clock>,
    store: Arc<dyn WorldStore>,
    saver: tokio::sync::Mutex<Saver>,
    listeners: Mutex<Vec<Weak<Listener>>>,
}

/// What is known of the store.
struct Saver {
    version: u64,
    /// The revision of the world up to which everything is saved.
    saved: u64,
    /// Revisions that were given up when somebody else wrote to the store: the last one that was saved, and the last one lost.
    lost: Vec<(u64, u64)>,
    snapshot_size: usize,
    journal_size: usize,
}

/// Why a world could not be had from its store.
#[derive(Debug, snafu::Snafu)]
pub enum OpenWorldError {
    /// The store failed.
    #[snafu(display("failed to load the simulated world"))]
    LoadWorld {
        /// Why.
        source: StoreError,
    },
    /// What it holds is no world.
    #[snafu(display("failed to restore the simulated world"))]
    RestoreWorld {
        /// Why.
        source: RestoreError,
    },
}

impl Kept {
    pub(super) async fn open(
        settings: Settings,
        clock: Arc<dyn Clock>,
        store: Arc<dyn WorldStore>,
    ) -> Result<Self, OpenWorldError> {
        let (world, saver) = load(settings, &*clock, &*store).await?;
        Ok(Self {
            world: Mutex::new(world),
            clock,
            store,
            saver: tokio::sync::Mutex::new(saver),
            listeners: Mutex::new(Vec::new()),
        })
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the world as it is now, without saving anything.
    pub(super) fn look<R>(&self, work: impl FnOnce(&mut World) -> R) -> R {
        let (result, changed) = {
            let mut world = self.lock();
            world.advance(self.clock.now());
            let result = work(&mut world);
            (result, world.take_changed())
        };
        self.tell(&changed);
        result
    }

    /// Does something with the world as it is now; returns when everything that it tells is saved.
    pub(super) async fn with<R>(
        &self,
        work: impl FnOnce(&mut World, Timestamp) -> R,
    ) -> Result<R, BackendError> {
        let now = self.clock.now();
        let (result, revision) = self.look(|world| (work(world, now), world.revision()));
        self.save(revision).await?;
        Ok(result)
    }

    async fn save(&self, revision: u64) -> Result<(), BackendError> {
        let mut saver = self.saver.lock().await;
        if saver.lost.iter().any(|(saved, lost)| *saved < revision && revision <= *lost) {
            return Err(not_saved("somebody else has changed the world meanwhile"));
        }
        if revision <= saver.saved {
            return Ok(());
        }
        let (taken, record, reached) = {
            let mut world = self.lock();
            let taken = Taken { kept: self, unsaved: Some(world.take_unsaved()) };
            let record = taken.unsaved.as_ref().map(|unsaved| world.record(unsaved));
            (taken, record, world.revision())
        };
        let Some(Ok(record)) = record else { return Err(not_saved("it could not be written down")) };
        let size = record.len();
        match self.store.append(saver.version, record).await {
            Ok(version) => {
                taken.are_saved();
                saver.version = version;
                saver.saved = reached;
                saver.journal_size = saver.journal_size.saturating_add(size);
            }
            Err(StoreError::MeetVersion { .. }) => {
                taken.are_saved();
                self.reload(&mut saver).await?;
                return Err(not_saved("somebody else has changed the world meanwhile"));
            }
            // The message of a store may name paths, which are no business of a tenant.
            Err(_) => return Err(not_saved("its store failed")),
        }
        if saver.journal_size > SMALL_JOURNAL.max(saver.snapshot_size.saturating_mul(2)) {
            self.compact(&mut saver).await;
        }
        Ok(())
    }

    /// Replaces the journal by one record. If that fails everything is saved all the same, and the next save tries again.
    async fn compact(&self, saver: &mut Saver) {
        let (taken, record, reached) = {
            let mut world = self.lock();
            let taken = Taken { kept: self, unsaved: Some(world.take_unsaved()) };
            (taken, world.snapshot(), world.revision())
        };
        let Ok(record) = record else { return };
        let size = record.len();
        if let Ok(version) = self.store.replace(saver.version, record).await {
            taken.are_saved();
            saver.version = version;
            saver.saved = reached;
            saver.snapshot_size = size;
            saver.journal_size = 0;
        }
    }

    /// Takes the world from the store again after somebody else wrote to it. What was not saved was never answered for.
    async fn reload(&self, saver: &mut Saver) -> Result<(), BackendError> {
        let settings = self.lock().settings().clone();
        let loaded = load(settings, &*self.clock, &*self.store).await;
        let (world, fresh) = loaded.map_err(|_| not_saved("its store failed"))?;
        let mut changed = {
            let mut current = self.lock();
            let mut lost = std::mem::take(&mut saver.lost);
            lost.push((saver.saved, current.revision()));
            *current = world.continuing(&current);
            *saver = Saver { saved: current.revision(), lost, ..fresh };
            current.take_changed()
        };
        changed.extend(
            self.look(|world| world.machines().filter_map(|machine| machine.tag.clone()).collect::<Vec<_>>()),
        );
        self.tell(&changed);
        Ok(())
    }

    fn tell(&self, changed: &BTreeSet<String>) {
        if changed.is_empty() {
            return;
        }
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| {
            listener.upgrade().is_some_and(|listener| {
                listener.add(changed);
                true
            })
        });
    }

    /// Somebody who wants to be told of changes from now on.
    pub(super) fn listen(&self) -> Arc<Listener> {
        let listener = Arc::new(Listener::default());
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&listener));
        listener
    }

    /// The next identity whose thing changed. Whoever waits here also lets time pass in the world.
    pub(super) async fn next_change(&self, listener: &Listener) -> Identity {
        loop {
            let told = listener.told.notified();
            let due = self.look(|world| world.next_due());
            if let Some(tag) = listener.take() {
                return Identity::new(tag);
            }
            let due = match due {
                Some(due) => Either::Left(self.clock.until(due)),
                None => Either::Right(future::pending()),
            };
            future::select(std::pin::pin!(told), due).await;
        }
    }
}

async fn load(
    settings: Settings,
    clock: &dyn Clock,
    store: &dyn WorldStore,
) -> Result<(World, Saver), OpenWorldError> {
    use snafu::ResultExt as _;
    let stored = store.load().await.context(LoadWorldSnafu)?;
    let records = stored.records.iter().map(Vec::as_slice);
    let world = World::restore(settings, records, clock.now()).context(RestoreWorldSnafu)?;
    let snapshot_size = stored.records.first().map_or(0, Vec::len);
    let journal_size = stored.records.iter().skip(1).map(Vec::len).sum();
    Ok((world, Saver { version: stored.version, saved: 0, lost: Vec::new(), snapshot_size, journal_size }))
}

/// Marks of what is being saved. Given back unless it was, also when the caller gives up in the middle.
struct Taken<'kept> {
    kept: &'kept Kept,
    unsaved: Option<Unsaved>,
}

impl Taken<'_> {
    fn are_saved(mut self) {
        self.unsaved = None;
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(unsaved) = self.unsaved.take() {
            self.kept.lock().give_back(unsaved);
        }
    }
}

fn not_saved(why: &str) -> BackendError {
    let message =
        format!("the simulated provider may not have kept what was asked: {why}; it is asked again");
    BackendError::new(ErrorKind::Unreachable, SIMULATED_PROVIDER_ERROR, message)
}

/// Identities to be told to one listener, each once however often it changed, so that nobody can fall behind without bound.
#[derive(Default)]
pub(super) struct Listener {
    waiting: Mutex<BTreeSet<String>>,
    told: Notify,
}

impl Listener {
    fn add(&self, changed: &BTreeSet<String>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).extend(changed.iter().cloned());
        self.told.notify_one();
    }

    fn take(&self) -> Option<String> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_first()
    }
}
