//! Keeps the backends of an operator open, as its MachineProviders specify.

use std::sync::Arc;

use async_trait::async_trait;
use vitistack_machine::ProviderConfig;
use vitistack_runtime::{Controller, Lane, Outcome, ReconcileError, Reconciler};
use vitistack_types::{
    ObjectName, Placement,
    v1alpha1::{MachineProvider, ProviderType},
};

use crate::{
    Caches,
    backends::Backends,
    machine_provider::{credentials, providers_by_secret},
};

/// Opens and closes backends.
pub(super) struct BackendReconciler {
    caches: Caches,
    backends: Backends,
    is_own_cluster_offered: bool,
}

impl BackendReconciler {
    pub(super) fn new(caches: &Caches, backends: &Backends, is_own_cluster_offered: bool) -> Self {
        Self { caches: caches.clone(), backends: backends.clone(), is_own_cluster_offered }
    }

    /// The controller, with everything that triggers it.
    pub(super) fn controller(self) -> Controller<MachineProvider> {
        let providers = self.caches.providers.clone();
        let backends = self.backends.clone();
        providers.listen(move |change| {
            if change.is_gone {
                backends.close(&Placement::Provider(ObjectName::of(change.object.as_ref())));
            }
        });

        let secrets = self.caches.secrets.metadata().clone();
        let by_secret = providers_by_secret(&providers);
        Controller::new("MachineProvider", &providers, self)
            .watches(&secrets, move |secret| by_secret.get(&ObjectName::from_metadata(&secret.metadata)))
    }
}

#[async_trait]
impl Reconciler<MachineProvider> for BackendReconciler {
    fn lane(&self, _: &MachineProvider) -> Lane {
        Lane::Observe
    }

    async fn reconcile(&self, provider: Arc<MachineProvider>) -> Result<Outcome, ReconcileError> {
        if provider.spec.type_ != self.backends.provider_type() {
            return Ok(Outcome::Done);
        }
        let name = ObjectName::of(provider.as_ref());
        let placement = Placement::Provider(name.clone());
        let credentials = match credentials(&self.caches, &provider).await?.transpose() {
            Ok(credentials) => credentials,
            Err(refusal) => {
                self.backends.refuse(&placement, refusal.clone());
                return Ok(Outcome::Blocked { reason: refusal.reason.to_owned(), fix: refusal.message });
            }
        };

        let secret = provider.spec.credentials.as_ref().map(|credentials| &credentials.secret_ref.name);
        let secret = secret.map(|secret| ObjectName::new(name.namespace, secret));
        let credentials_version = secret.and_then(|secret| self.caches.secrets.version(&secret));
        let config = ProviderConfig { provider: Some(provider), credentials, credentials_version };
        match self.backends.open(&placement, &config).await {
            Ok(()) => Ok(Outcome::Done),
            Err(refusal) => {
                Ok(Outcome::Retry { reason: refusal.reason, cause: refusal.message, after: None })
            }
        }
    }

    async fn started_leading(&self) {
        if self.is_own_cluster_offered && self.backends.provider_type() == ProviderType::OWN_CLUSTER {
            let config = ProviderConfig { provider: None, credentials: None, credentials_version: None };
            // The operator's own cluster needs no credentials that could be refused.
            let _ = self.backends.open(&Placement::OwnCluster, &config).await;
        }
    }

    fn stopped_leading(&self) {
        self.backends.close_all();
    }
}
