//! Opening the backend of a provider.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use vitistack_plan::{Redacted, Refusal, machine::Identity};
use vitistack_types::v1alpha1::{MachineProvider, ProviderType};

use crate::Backend;

/// The configuration of a provider, from which its backend is opened.
#[derive(Clone, Debug)]
pub struct ProviderConfig {
    /// The MachineProvider; none for the cluster that the operator runs against.
    pub provider: Option<Arc<MachineProvider>>,
    /// The value in the Secret that `spec.credentials` refers to; none without credentials.
    pub credentials: Option<Redacted<Vec<u8>>>,
    /// The version of that Secret, which changes when it is rotated.
    pub credentials_version: Option<String>,
}

/// A change that a provider reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderChange {
    /// The backing machine of this identity changed.
    Machine(Identity),
    /// Any machine may have changed.
    All,
    /// The provider is reachable again: what failed before is to be retried.
    Recovered,
}

/// An open backend.
pub struct OpenBackend {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// The changes from now on. The backend is closed when both are dropped.
    pub changes: BoxStream<'static, ProviderChange>,
}

/// Opens the backends of one provider type.
#[async_trait]
pub trait BackendOpener: Send + Sync + 'static {
    /// The provider type.
    fn provider_type(&self) -> ProviderType;

    /// Returns what an open backend depends on, without secrets. The backend stays open while this is the same.
    fn fingerprint(&self, config: &ProviderConfig) -> String;

    /// Opens the backend of a provider. Nothing is requested from the provider itself, so an unreachable one is opened too.
    async fn open(&self, config: &ProviderConfig) -> Result<OpenBackend, Refusal>;

    /// Drops what is shared by the open backends, because another process may act from now on.
    fn close(&self) {}
}
