//! Providers that do not answer, and say when they do again.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use tokio::sync::watch;
use vitistack_controller::backends::{Changed, Opened, Opener, SimulatedOpener, Source};
use vitistack_machine::{Backend, BackendError, ErrorKind, Order, Part, Progress, Target, Update};
use vitistack_plan::{
    Refusal,
    machine::{Capabilities, Observed},
};
use vitistack_types::v1alpha1::ProviderType;

/// Opens simulated providers that are away while they are said to be.
pub struct AwayOpener {
    inner: SimulatedOpener,
    away: watch::Receiver<bool>,
}

impl AwayOpener {
    pub fn new(inner: SimulatedOpener, away: &watch::Sender<bool>) -> Self {
        Self { inner, away: away.subscribe() }
    }
}

#[async_trait]
impl Opener for AwayOpener {
    fn provider_type(&self) -> ProviderType {
        self.inner.provider_type()
    }

    fn fingerprint(&self, source: &Source) -> String {
        self.inner.fingerprint(source)
    }

    async fn open(&self, source: &Source) -> Result<Opened, Refusal> {
        let Opened { backend, changes } = self.inner.open(source).await?;
        let turns = stream::unfold(self.away.clone(), |mut away| async move {
            away.changed().await.ok()?;
            Some((Changed::Back, away))
        });
        let backend = Arc::new(AwayBackend { inner: backend, away: self.away.clone() });
        Ok(Opened { backend, changes: stream::select(changes, turns).boxed() })
    }

    fn close(&self) {
        self.inner.close();
    }
}

struct AwayBackend {
    inner: Arc<dyn Backend>,
    away: watch::Receiver<bool>,
}

impl AwayBackend {
    fn there(&self) -> Result<&dyn Backend, BackendError> {
        if *self.away.borrow() {
            let message = "the provider does not answer";
            return Err(BackendError::new(ErrorKind::Unreachable, "SimulatedProviderError", message));
        }
        Ok(self.inner.as_ref())
    }
}

#[async_trait]
impl Backend for AwayBackend {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn observe(&self, target: &Target, order: Option<&Order>) -> Result<Observed, BackendError> {
        self.there()?.observe(target, order).await
    }

    async fn create(&self, order: &Order) -> Result<Progress, BackendError> {
        self.there()?.create(order).await
    }

    async fn update(&self, order: &Order, update: &Update) -> Result<Progress, BackendError> {
        self.there()?.update(order, update).await
    }

    async fn delete(&self, target: &Target, part: &Part) -> Result<Progress, BackendError> {
        self.there()?.delete(target, part).await
    }
}
