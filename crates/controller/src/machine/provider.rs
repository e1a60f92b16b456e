//! Keeps the backends of an operator open, as its MachineProviders say.

use std::sync::Arc;

use async_trait::async_trait;
use kube::ResourceExt;
use vitistack_runtime::{Controller, Lane, Outcome, ReconcileError, Reconciler};
use vitistack_types::{
    labels,
    v1alpha1::{MachineProvider, ProviderType},
};

use crate::{
    Caches, Index,
    backends::{Backends, Source},
    caches::name_of,
    machine_provider::credentials,
};

/// Opens and closes backends.
pub(super) struct ProviderReconciler {
    caches: Caches,
    backends: Backends,
    is_own_cluster_offered: bool,
}

impl ProviderReconciler {
    pub(super) fn new(caches: &Caches, backends: &Backends, is_own_cluster_offered: bool) -> Self {
        Self { caches: caches.clone(), backends: backends.clone(), is_own_cluster_offered }
    }

    /// The controller and everything that wakes it.
    pub(super) fn controller(self) -> Controller<MachineProvider> {
        let providers = self.caches.providers.clone();
        let secrets = self.caches.secrets.metadata().clone();
        let backends = self.backends.clone();
        providers.listen(move |change| {
            if change.is_gone {
                backends.close(&name_of(change.object.as_ref()));
            }
        });
        let index = Index::new(&providers, |provider: &MachineProvider| {
            let namespace = provider.namespace().unwrap_or_default();
            let credentials = provider.spec.credentials.as_ref();
            credentials
                .map(|credentials| format!("{namespace}/{}", credentials.secret_ref.name))
                .into_iter()
                .collect()
        });
        Controller::new("MachineProvider", &providers, self).watches(&secrets, move |secret| {
            let metadata = &secret.metadata;
            index.get(&format!(
                "{}/{}",
                metadata.namespace.as_deref().unwrap_or_default(),
                metadata.name.as_deref().unwrap_or_default()
            ))
        })
    }
}

#[async_trait]
impl Reconciler<MachineProvider> for ProviderReconciler {
    fn lane(&self, _: &MachineProvider) -> Lane {
        Lane::Observe
    }

    async fn reconcile(&self, provider: Arc<MachineProvider>) -> Result<Outcome, ReconcileError> {
        if provider.spec.type_ != self.backends.provider_type() {
            return Ok(Outcome::Done);
        }
        let name = name_of(provider.as_ref());
        let credentials = match credentials(&self.caches, &provider).await?.transpose() {
            Ok(credentials) => credentials,
            Err(refusal) => {
                self.backends.refuse(&name, refusal.clone());
                return Ok(Outcome::Blocked { reason: refusal.reason.to_owned(), fix: refusal.message });
            }
        };
        let secret = provider.spec.credentials.as_ref().map(|credentials| &credentials.secret_ref.name);
        let namespace = provider.namespace().unwrap_or_default();
        let credentials_version = secret.and_then(|secret| self.caches.secrets.version(&namespace, secret));
        let source = Source { provider: Some(provider), credentials, credentials_version };
        match self.backends.open(&name, &source).await {
            Ok(()) => Ok(Outcome::Done),
            Err(refusal) => Ok(Outcome::Retry { after: None, cause: refusal.message }),
        }
    }

    async fn begin(&self) {
        if self.is_own_cluster_offered && self.backends.provider_type() == ProviderType::Kubevirt {
            let source = Source { provider: None, credentials: None, credentials_version: None };
            // The cluster of the operator itself needs no credentials that could be refused.
            let _ = self.backends.open(labels::OWN_CLUSTER, &source).await;
        }
    }

    fn rest(&self) {
        self.backends.close_all();
    }
}
