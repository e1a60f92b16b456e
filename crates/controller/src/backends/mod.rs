//! From a MachineProvider to the backend that talks to it: opened when it appears, opened anew when it changed.

pub mod kubevirt;
mod registry;
mod simulated;

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use vitistack_machine::Backend;
use vitistack_plan::{Redacted, Refusal, machine::Identity};
use vitistack_types::v1alpha1::{MachineProvider, ProviderType};

pub use registry::{Backends, News};
pub use simulated::{SimulatedOpener, Stores, world_of};

/// What is known of a provider when its backend is opened.
#[derive(Clone, Debug)]
pub struct Source {
    /// The MachineProvider; none is the cluster that the operator works on.
    pub provider: Option<Arc<MachineProvider>>,
    /// What its credentials' Secret holds under the key that is named; none if it names no credentials.
    pub credentials: Option<Redacted<Vec<u8>>>,
    /// The version of that Secret, which moves when it is rotated.
    pub credentials_version: Option<String>,
}

/// What a provider says without being asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The real thing of this identity changed.
    One(Identity),
    /// Anything may have changed.
    All,
    /// The provider can be asked again: whatever was tried in vain may go well now.
    Back,
}

/// An open backend.
pub struct Opened {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// What changes, from now on. Dropping it with the backend closes both.
    pub changes: BoxStream<'static, Changed>,
}

/// Opens the backends of one type.
#[async_trait]
pub trait Opener: Send + Sync + 'static {
    /// The type of provider that it is for.
    fn provider_type(&self) -> ProviderType;

    /// What of a provider matters to an open backend, without secrets: while it stays the same, the backend stays open.
    fn fingerprint(&self, source: &Source) -> String;

    /// Opens the backend of a provider. Nothing is asked of the provider itself, so one that is away does not matter.
    async fn open(&self, source: &Source) -> Result<Opened, Refusal>;

    /// Forgets what it keeps open: another process may act from now on.
    fn close(&self) {}
}
