//! Keeps the backends of an operator open, as its MachineProviders say.

use std::sync::Arc;

use async_trait::async_trait;
use kube::{ResourceExt, runtime::reflector::ObjectRef};
use vitistack_plan::{Redacted, Refusal};
use vitistack_runtime::{Controller, Lane, Outcome, ReconcileError, Reconciler};
use vitistack_types::{
    conditions::reason,
    labels,
    v1alpha1::{MachineProvider, ProviderType},
};

use crate::{
    Caches, Index, Secrets,
    backends::{Backends, Source},
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
        let (present, backends) = (providers.clone(), self.backends.clone());
        providers.listen(move |change| {
            let key = ObjectRef::from_obj(change.object.as_ref());
            if present.get(&key).is_none() {
                backends.close(&name(&change.object));
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

/// `namespace/name`, as placements say it.
fn name(provider: &MachineProvider) -> String {
    format!("{}/{}", provider.namespace().unwrap_or_default(), provider.name_any())
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
        let name = name(&provider);
        let (credentials, credentials_version) = match credentials(&self.caches.secrets, &provider).await? {
            Ok(credentials) => credentials,
            Err(refusal) => {
                self.backends.refuse(&name, refusal.clone());
                return Ok(Outcome::Blocked { reason: refusal.reason.to_owned(), fix: refusal.message });
            }
        };
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

/// Credentials and the version of the Secret that they are in.
type Credentials = (Option<Redacted<Vec<u8>>>, Option<String>);

/// The credentials that a provider names, or what is wrong with them.
pub(crate) async fn credentials(
    secrets: &Secrets,
    provider: &MachineProvider,
) -> Result<Result<Credentials, Refusal>, ReconcileError> {
    let Some(reference) = provider.spec.credentials.as_ref().map(|credentials| &credentials.secret_ref)
    else {
        return Ok(Ok((None, None)));
    };
    let namespace = provider.namespace().unwrap_or_default();
    let (secret, key) = (&reference.name, &reference.key);
    let Some(data) = secrets.get(&namespace, secret).await? else {
        return Ok(Err(Refusal::new(
            reason::INVALID_CREDENTIALS,
            format!(
                "spec.credentials.secretRef.name {secret:?} names nothing in namespace {namespace:?}: create the Secret"
            ),
        )));
    };
    let Some(content) = data.get(key) else {
        return Ok(Err(Refusal::new(
            reason::INVALID_CREDENTIALS,
            format!(
                "spec.credentials.secretRef.key {key:?} is not in Secret {secret:?}: add it, or name a key that is there"
            ),
        )));
    };
    Ok(Ok((Some(content.clone()), secrets.version(&namespace, secret))))
}
