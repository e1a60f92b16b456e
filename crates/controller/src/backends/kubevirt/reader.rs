//! Reads from caches: nothing is asked of the cluster for a look at a machine.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures::{
    FutureExt,
    future::{self, Either},
    stream::{self, BoxStream, StreamExt},
};
use kube::{Client, core::DynamicObject, runtime::watcher};
use tokio::sync::watch;
use vitistack_machine::{
    BackendError, ErrorKind,
    kubevirt::{Kind, Object, ReadError, Reader, belongs_to, identity_of, prune},
};
use vitistack_plan::machine::Identity;
use vitistack_runtime::cache::{Feeding, ForeignCache};
use vitistack_types::{conditions::reason, labels};

use super::{hub::Listener, kept::Kept, notes::Notes};
use crate::{backends::Changed, place::Place};

/// So long after it was opened a cluster's first answer is waited for, so that a restart of ours is no outage of every
/// machine. Later nobody waits: a cluster that is away says so at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Caches of everything that the backend reads in one cluster. They are filled until this is dropped.
///
/// Of Secrets only those with an identity are held: nobody else's is any business of ours. One of somebody else that has
/// a name that we need is found when ours is written, which asks the cluster first.
pub struct CachedReader {
    shelves: [Shelf; Kind::ALL.len()],
    notes: Arc<Notes>,
    patience: tokio::time::Instant,
}

/// The cache of one kind.
struct Shelf {
    kind: Kind,
    cache: ForeignCache<Kept>,
    feeding: watch::Receiver<Feeding>,
}

/// How far the cache of a kind can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Belief {
    Listing,
    Full,
    NotServed,
    Failed(ErrorKind),
}

impl CachedReader {
    /// Begins to fill the caches from the cluster of `client`. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(client: &Client) -> Self {
        let notes = Arc::new(Notes::default());
        let shelves = Kind::ALL.map(|kind| {
            let selection = match kind {
                Kind::Secret => watcher::Config::default().labels(labels::IDENTITY),
                _ => watcher::Config::default(),
            };
            let hearing = Arc::clone(&notes);
            let cache = ForeignCache::start(
                client.clone(),
                kind,
                selection,
                move |object: &mut Kept| object.shrink(kind),
                move |change| hearing.heard(kind, change),
            );
            let feeding = cache.cache().feeding();
            Shelf { kind, cache, feeding }
        });
        Self { shelves, notes, patience: tokio::time::Instant::now() + PATIENCE }
    }

    /// What changes in the cluster, from now on.
    #[must_use]
    pub fn changes(self: &Arc<Self>) -> BoxStream<'static, Changed> {
        let feedings: Vec<_> = self.shelves.iter().map(|held| held.feeding.clone()).collect();
        let follower = Follower {
            beliefs: self.shelves.iter().map(Shelf::belief).collect(),
            feedings,
            listener: self.notes.hub.listen(),
            reader: Arc::clone(self),
        };
        stream::unfold(follower, |mut follower| async move { Some((follower.next().await, follower)) })
            .boxed()
    }

    /// The cache of a kind, once it can be read.
    async fn held(&self, kind: Kind) -> Result<&Shelf, ReadError> {
        let Some(held) = self.shelves.iter().find(|held| held.kind == kind) else {
            return Err(ReadError::NotServed);
        };
        let mut feeding = held.feeding.clone();
        let is_listing = matches!(*feeding.borrow(), Feeding::Listing);
        if is_listing {
            let listed = feeding.wait_for(|feeding| !matches!(feeding, Feeding::Listing)).map(|_| ());
            let _ = tokio::time::timeout_at(self.patience, listed).await;
        }
        let failure = unbelieved(kind, &feeding.borrow());
        failure.map_or(Ok(held), Err)
    }
}

impl Shelf {
    fn get(&self, place: &Place) -> Option<Object> {
        self.cache.cache().get(&place.reference(self.kind))?.object()
    }

    fn belief(&self) -> Belief {
        belief(self.kind, &self.feeding.borrow())
    }
}

/// Why a cache cannot be believed now.
fn unbelieved(kind: Kind, feeding: &Feeding) -> Option<ReadError> {
    let failed = |kind, message: String| {
        ReadError::Failed(BackendError::new(kind, reason::KUBEVIRT_API_ERROR, message))
    };
    let error = match feeding {
        Feeding::Watching => return None,
        Feeding::Listing => {
            let message =
                format!("failed to read {}: the provider's cluster has not answered yet", kind.name());
            return Some(failed(ErrorKind::Unreachable, message));
        }
        Feeding::Failing(error) => error,
    };
    let (error, was_full) = match error.as_ref() {
        watcher::Error::InitialListFailed(error) => (ReadError::new(kind, error), false),
        watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => {
            (ReadError::new(kind, error), true)
        }
        watcher::Error::WatchError(status) => (ReadError::new(kind, &kube::Error::Api(status.clone())), true),
        watcher::Error::NoResourceVersion => {
            let message = format!("failed to read {}: the cluster's answer has no version", kind.name());
            (failed(ErrorKind::Failed, message), false)
        }
    };
    // A watch that was cut is followed by a list at once. If that fails too it is said; until then nothing is wrong that
    // a watch that is late would not be.
    let is_answer = match &error {
        ReadError::NotServed => true,
        ReadError::Failed(error) => matches!(error.kind, ErrorKind::Refused | ErrorKind::Unauthenticated),
    };
    let is_expired = matches!(feeding, Feeding::Failing(error) if is_expired(error));
    (!was_full || (is_answer && !is_expired)).then_some(error)
}

/// Whether a watch only was too far behind.
fn is_expired(error: &watcher::Error) -> bool {
    let is_gone = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 410);
    match error {
        watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => is_gone(error),
        watcher::Error::WatchError(status) => status.code == 410,
        _ => false,
    }
}

fn belief(kind: Kind, feeding: &Feeding) -> Belief {
    match (feeding, unbelieved(kind, feeding)) {
        (_, None) => Belief::Full,
        (Feeding::Listing, _) => Belief::Listing,
        (_, Some(ReadError::NotServed)) => Belief::NotServed,
        (_, Some(ReadError::Failed(error))) => Belief::Failed(error.kind),
    }
}

#[async_trait]
impl Reader for CachedReader {
    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Object>, ReadError> {
        let held = self.held(kind).await?;
        let place = Place { namespace: namespace.to_owned(), name: name.to_owned() };
        Ok(self.notes.with(kind, |note| {
            let found = note.assumed.resolve(&place, held.get(&place));
            let is_awaited = match (&found, kind) {
                (_, Kind::Secret) => false,
                (Some(found), _) => identity_of(found).is_none(),
                // The source of a disk.
                (None, kind) => kind == Kind::PersistentVolumeClaim,
            };
            if is_awaited {
                note.awaited.insert(place);
            }
            found
        }))
    }

    async fn owned(
        &self,
        kind: Kind,
        namespace: &str,
        identity: &Identity,
    ) -> Result<Vec<Object>, ReadError> {
        let held = self.held(kind).await?;
        Ok(self.notes.with(kind, |note| {
            let mut owned = Vec::new();
            for place in note.places(identity) {
                match note.assumed.resolve(&place, held.get(&place)) {
                    Some(found) if belongs_to(&found, identity) => owned.push(found),
                    // An assumption that did not come true.
                    _ => drop(note.mark(&place, None)),
                }
            }
            owned.retain(|found| found.metadata.namespace.as_deref() == Some(namespace));
            owned.sort_by(|left, right| left.metadata.name.cmp(&right.metadata.name));
            owned
        }))
    }

    async fn all(&self, kind: Kind) -> Result<Vec<Object>, ReadError> {
        let held = self.held(kind).await?;
        Ok(self.notes.with(kind, |note| {
            let mut all: Vec<Object> =
                held.cache.cache().list().iter().filter_map(|kept| kept.object()).collect();
            let assumed: Vec<Place> = note.assumed.places().cloned().collect();
            if !assumed.is_empty() {
                all.retain(|found| !assumed.contains(&Place::of(found.as_ref())));
                all.extend(assumed.iter().filter_map(|place| note.assumed.resolve(place, held.get(place))));
            }
            all
        }))
    }

    fn may_lag(&self) -> bool {
        true
    }

    fn assume(&self, kind: Kind, mut object: DynamicObject) {
        let Some(held) = self.shelves.iter().find(|held| held.kind == kind) else { return };
        prune(kind, &mut object);
        let (place, identity) = (Place::of(&object), identity_of(&object));
        self.notes.with(kind, |note| {
            note.assumed.put(&place, Arc::new(object), held.get(&place).as_deref(), Instant::now());
            if note.assumed.identity_at(&place).is_some() {
                note.mark(&place, identity.as_ref());
            }
        });
        self.notes.hub.wake();
    }

    fn forget(&self, kind: Kind, object: &DynamicObject) {
        let place = Place::of(object);
        self.notes.with(kind, |note| note.assumed.forget(&place, object, Instant::now()));
        self.notes.hub.wake();
    }
}

/// Follows the changes for one listener.
struct Follower {
    reader: Arc<CachedReader>,
    listener: Arc<Listener>,
    feedings: Vec<watch::Receiver<Feeding>>,
    beliefs: Vec<Belief>,
}

impl Follower {
    async fn next(&mut self) -> Changed {
        loop {
            let end = self.reader.notes.expire(Instant::now());
            let kinds = self.reader.shelves.iter().map(|held| held.kind);
            let beliefs: Vec<Belief> = kinds
                .zip(&mut self.feedings)
                .map(|(kind, feeding)| belief(kind, &feeding.borrow_and_update()))
                .collect();
            if beliefs != self.beliefs {
                let mut changes = self.beliefs.iter().zip(&beliefs);
                let is_back = changes.any(|(before, after)| before != after && *after == Belief::Full);
                self.beliefs = beliefs;
                self.listener.tell(if is_back { &Changed::Back } else { &Changed::All });
            }
            if let Some(changed) = self.listener.take() {
                return changed;
            }
            let fed = future::select_all(self.feedings.iter_mut().map(|feeding| feeding.changed().boxed()));
            let ended = match end {
                Some(end) => Either::Left(tokio::time::sleep_until(end.into())),
                None => Either::Right(future::pending()),
            };
            tokio::select! {
                _ = fed => {}
                () = self.listener.woken() => {}
                () = ended => {}
            }
        }
    }
}
