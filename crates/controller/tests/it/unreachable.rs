//! Providers that do not answer for a while, and report when they are back.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use tokio::sync::watch;
use vitistack_machine::{
    Backend, BackendError, BackendOpener, ErrorKind, OpenBackend, Order, Part, Progress, ProviderChange,
    ProviderConfig, Target, Update, simulated::SimulatedOpener,
};
use vitistack_plan::{
    Refusal,
    machine::{Capabilities, Observed},
};
use vitistack_types::v1alpha1::ProviderType;

/// Opens simulated providers that do not answer while a flag is set.
pub struct UnreachableOpener {
    inner: SimulatedOpener,
    is_unreachable: watch::Receiver<bool>,
}

impl UnreachableOpener {
    pub fn new(inner: SimulatedOpener, is_unreachable: &watch::Sender<bool>) -> Self {
        Self { inner, is_unreachable: is_unreachable.subscribe() }
    }
}

#[async_trait]
impl BackendOpener for UnreachableOpener {
    fn provider_type(&self) -> ProviderType {
        self.inner.provider_type()
    }

    fn fingerprint(&self, source: &ProviderConfig) -> String {
        self.inner.fingerprint(source)
    }

    async fn open(&self, source: &ProviderConfig) -> Result<OpenBackend, Refusal> {
        let OpenBackend { backend, changes } = self.inner.open(source).await?;
        let recoveries = stream::unfold(self.is_unreachable.clone(), |mut flag| async move {
            flag.changed().await.ok()?;
            Some((ProviderChange::Recovered, flag))
        });
        let backend =
            Arc::new(UnreachableBackend { inner: backend, is_unreachable: self.is_unreachable.clone() });
        Ok(OpenBackend { backend, changes: stream::select(changes, recoveries).boxed() })
    }

    fn close(&self) {
        self.inner.close();
    }
}

struct UnreachableBackend {
    inner: Arc<dyn Backend>,
    is_unreachable: watch::Receiver<bool>,
}

impl UnreachableBackend {
    /// Returns the backend, or an error while the provider does not answer.
    fn reachable(&self) -> Result<&dyn Backend, BackendError> {
        if *self.is_unreachable.borrow() {
            let message = "the provider does not answer";
            return Err(BackendError::new(ErrorKind::Unreachable, "SimulatedProviderError", message));
        }
        Ok(self.inner.as_ref())
    }
}

#[async_trait]
impl Backend for UnreachableBackend {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn observe(&self, target: &Target, order: Option<&Order>) -> Result<Observed, BackendError> {
        self.reachable()?.observe(target, order).await
    }

    async fn create(&self, order: &Order) -> Result<Progress, BackendError> {
        self.reachable()?.create(order).await
    }

    async fn update(&self, order: &Order, update: &Update) -> Result<Progress, BackendError> {
        self.reachable()?.update(order, update).await
    }

    async fn delete(&self, target: &Target, part: &Part) -> Result<Progress, BackendError> {
        self.reachable()?.delete(target, part).await
    }
}
