//! The open backends of one operator.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use futures::StreamExt;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use vitistack_machine::{Backend, BackendOpener, OpenBackend, ProviderChange, ProviderConfig};
use vitistack_plan::Refusal;
use vitistack_runtime::lock;
use vitistack_types::{Placement, v1alpha1::ProviderType};

use crate::Calls;

/// The placement that a backend hosts, and what changed there.
pub type ChangeNotice = (Placement, ProviderChange);

/// The open backends of one operator, by placement. Clones share them.
#[derive(Clone)]
pub struct Backends(Arc<Inner>);

struct Inner {
    opener: Arc<dyn BackendOpener>,
    calls: Calls,
    entries: Mutex<HashMap<Placement, Entry>>,
    changes: mpsc::UnboundedSender<ChangeNotice>,
}

struct Entry {
    fingerprint: String,
    backend: Result<Arc<dyn Backend>, Refusal>,
    /// Forwards the changes of the backend while the entry exists.
    _listening: Option<AbortOnDropHandle<()>>,
}

impl Backends {
    /// Returns an empty registry, and the receiver of the changes of all backends. The requests to all backends count as
    /// `calls`.
    #[must_use]
    pub fn new(
        opener: Arc<dyn BackendOpener>,
        calls: Calls,
    ) -> (Self, mpsc::UnboundedReceiver<ChangeNotice>) {
        let (changes, received) = mpsc::unbounded_channel();
        (Self(Arc::new(Inner { opener, calls, entries: Mutex::default(), changes })), received)
    }

    /// The provider type.
    #[must_use]
    pub fn provider_type(&self) -> ProviderType {
        self.0.opener.provider_type()
    }

    /// Returns the backend of a provider, or why it could not be opened; none before the first attempt.
    #[must_use]
    pub fn get(&self, placement: &Placement) -> Option<Result<Arc<dyn Backend>, Refusal>> {
        lock(&self.0.entries).get(placement).map(|entry| entry.backend.clone())
    }

    /// Opens the backend of a provider, unless it is open with the same fingerprint.
    pub async fn open(&self, placement: &Placement, config: &ProviderConfig) -> Result<(), Refusal> {
        let fingerprint = self.0.opener.fingerprint(config);
        if lock(&self.0.entries)
            .get(placement)
            .is_some_and(|entry| entry.fingerprint == fingerprint && entry.backend.is_ok())
        {
            return Ok(());
        }
        match self.0.opener.open(config).await {
            Ok(OpenBackend { backend, changes }) => {
                let listening = self.listen(placement, changes);
                let backend = self.0.calls.count(placement, backend);
                self.put(placement, Entry { fingerprint, backend: Ok(backend), _listening: Some(listening) });
                Ok(())
            }
            Err(refusal) => {
                self.refuse(placement, refusal.clone());
                Err(refusal)
            }
        }
    }

    /// Records why a provider has no backend.
    pub fn refuse(&self, placement: &Placement, refusal: Refusal) {
        let is_known = lock(&self.0.entries)
            .get(placement)
            .is_some_and(|entry| entry.backend.as_ref().err() == Some(&refusal));
        if !is_known {
            self.put(
                placement,
                Entry { fingerprint: String::new(), backend: Err(refusal), _listening: None },
            );
        }
    }

    /// Closes the backend of a deleted provider.
    pub fn close(&self, placement: &Placement) {
        if lock(&self.0.entries).remove(placement).is_some() {
            self.report(placement, ProviderChange::All);
        }
    }

    /// Closes all backends: another process may act from now on, and its writes would not be seen here.
    pub fn close_all(&self) {
        lock(&self.0.entries).clear();
        self.0.opener.close();
    }

    fn put(&self, placement: &Placement, entry: Entry) {
        let change = if entry.backend.is_ok() { ProviderChange::Recovered } else { ProviderChange::All };
        lock(&self.0.entries).insert(placement.clone(), entry);
        self.report(placement, change);
    }

    fn listen(
        &self,
        placement: &Placement,
        mut changes: futures::stream::BoxStream<'static, ProviderChange>,
    ) -> AbortOnDropHandle<()> {
        let (sender, placement) = (self.0.changes.clone(), placement.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            while let Some(change) = changes.next().await {
                // Fails only when the operator has ended.
                let _ = sender.send((placement.clone(), change));
            }
        }))
    }

    fn report(&self, placement: &Placement, change: ProviderChange) {
        let _ = self.0.changes.send((placement.clone(), change));
    }
}
