//! The open backends of one operator.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::StreamExt;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use vitistack_machine::Backend;
use vitistack_plan::Refusal;
use vitistack_types::v1alpha1::ProviderType;

use super::{Changed, Opened, Opener, Source};

/// News of a provider: its name, and what changed.
pub type News = (String, Changed);

/// The open backends of one operator, by the names that placements use. A clone shares them.
#[derive(Clone)]
pub struct Backends(Arc<Inner>);

struct Inner {
    opener: Arc<dyn Opener>,
    entries: Mutex<HashMap<String, Entry>>,
    news: mpsc::UnboundedSender<News>,
}

struct Entry {
    fingerprint: String,
    backend: Result<Arc<dyn Backend>, Refusal>,
    /// Forwards what the backend tells, as long as the entry is there.
    _listening: Option<AbortOnDropHandle<()>>,
}

impl Backends {
    /// No open backend yet, and where news of those to come are heard.
    #[must_use]
    pub fn new(opener: Arc<dyn Opener>) -> (Self, mpsc::UnboundedReceiver<News>) {
        let (news, heard) = mpsc::unbounded_channel();
        (Self(Arc::new(Inner { opener, entries: Mutex::default(), news })), heard)
    }

    /// The type of provider that they are for.
    #[must_use]
    pub fn provider_type(&self) -> ProviderType {
        self.0.opener.provider_type()
    }

    /// The backend of a provider, or why it could not be opened; none if it was not tried yet.
    #[must_use]
    pub fn get(&self, provider: &str) -> Option<Result<Arc<dyn Backend>, Refusal>> {
        self.lock().get(provider).map(|entry| entry.backend.clone())
    }

    /// Opens the backend of a provider, unless it is open and nothing that matters changed.
    pub async fn open(&self, provider: &str, source: &Source) -> Result<(), Refusal> {
        let fingerprint = self.0.opener.fingerprint(source);
        if self
            .lock()
            .get(provider)
            .is_some_and(|entry| entry.fingerprint == fingerprint && entry.backend.is_ok())
        {
            return Ok(());
        }
        match self.0.opener.open(source).await {
            Ok(Opened { backend, changes }) => {
                let listening = self.listen(provider, changes);
                self.put(provider, Entry { fingerprint, backend: Ok(backend), _listening: Some(listening) });
                Ok(())
            }
            Err(refusal) => {
                self.refuse(provider, refusal.clone());
                Err(refusal)
            }
        }
    }

    /// Notes why a provider has no backend.
    pub fn refuse(&self, provider: &str, refusal: Refusal) {
        let is_known =
            self.lock().get(provider).is_some_and(|entry| entry.backend.as_ref().err() == Some(&refusal));
        if !is_known {
            self.put(provider, Entry { fingerprint: String::new(), backend: Err(refusal), _listening: None });
        }
    }

    /// Closes the backend of a provider that is gone.
    pub fn close(&self, provider: &str) {
        if self.lock().remove(provider).is_some() {
            self.tell(provider, Changed::All);
        }
    }

    /// Closes all: another process may act now, and what it does would not be seen here.
    pub fn close_all(&self) {
        self.lock().clear();
        self.0.opener.close();
    }

    fn put(&self, provider: &str, entry: Entry) {
        let changed = if entry.backend.is_ok() { Changed::Back } else { Changed::All };
        self.lock().insert(provider.to_owned(), entry);
        self.tell(provider, changed);
    }

    fn listen(
        &self,
        provider: &str,
        mut changes: futures::stream::BoxStream<'static, Changed>,
    ) -> AbortOnDropHandle<()> {
        let (news, provider) = (self.0.news.clone(), provider.to_owned());
        AbortOnDropHandle::new(tokio::spawn(async move {
            while let Some(changed) = changes.next().await {
                // Fails only when the operator has ended.
                let _ = news.send((provider.clone(), changed));
            }
        }))
    }

    fn tell(&self, provider: &str, changed: Changed) {
        let _ = self.0.news.send((provider.to_owned(), changed));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
