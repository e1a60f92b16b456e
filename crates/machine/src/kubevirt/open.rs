//! Opens KubeVirt clusters: the one that the operator runs against, or any other that a provider has a kubeconfig for.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use kube::{Api, Client, Resource, api::ListParams, core::DynamicObject};
use serde_json::{Value, json};
use vitistack_clients::kubernetes::{cache::Budget, client_from_kubeconfig};
use vitistack_plan::{Redacted, Refusal};
use vitistack_types::{
    SecretKeyReference, Version, WatchedNamespaces,
    conditions::reason,
    v1alpha1::{Machine, ProviderType},
};

use super::{CachedReader, Kind, KubeVirt, OwnerKind, Settings, explain};
use crate::{BackendError, BackendOpener, Limits, OpenBackend, ProviderConfig};

/// How many bytes the objects of a cluster that is not the operator's own may take: those of about ten thousand machines.
const CACHE_LIMIT: usize = 48 << 20;

/// Opens KubeVirt clusters. Providers without credentials share the caches of the operator's own cluster.
pub struct KubeVirtOpener {
    client: Client,
    watched: WatchedNamespaces,
    own: Mutex<Weak<CachedReader>>,
}

impl KubeVirtOpener {
    /// Returns an opener for which `client` is the operator's own cluster, where it works in the namespaces of `watched`.
    #[must_use]
    pub fn new(client: Client, watched: WatchedNamespaces) -> Self {
        Self { client, watched, own: Mutex::default() }
    }

    /// Returns the caches of the operator's own cluster, which exist while they are used.
    fn own_reader(&self) -> Arc<CachedReader> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.upgrade().unwrap_or_else(|| {
            let reader = Arc::new(CachedReader::start(&self.client, &self.watched, &Budget::unlimited()));
            *own = Arc::downgrade(&reader);
            reader
        })
    }
}

#[async_trait]
impl BackendOpener for KubeVirtOpener {
    fn provider_type(&self) -> ProviderType {
        ProviderType::Kubevirt
    }

    fn fingerprint(&self, config: &ProviderConfig) -> String {
        let spec = config.provider.as_ref().map(|provider| &provider.spec);
        let settings = spec.map(|spec| {
            let limits = json!([spec.allowed_bridges, spec.allowed_source_hosts]);
            json!([spec.kubevirt, spec.credentials, spec.zones, limits])
        });
        json!([settings, config.credentials_version]).to_string()
    }

    async fn open(&self, config: &ProviderConfig) -> Result<OpenBackend, Refusal> {
        let spec = config.provider.as_ref().map(|provider| &provider.spec);
        let kubevirt = spec.and_then(|spec| spec.kubevirt.as_ref());
        let credentials = spec.and_then(|spec| spec.credentials.as_ref());
        let owner =
            OwnerKind { api_version: Machine::api_version(&()).into(), kind: Machine::kind(&()).into() };

        let (client, reader, owner) = match credentials {
            None => (self.client.clone(), self.own_reader(), Some(owner)),
            Some(credentials) => {
                let client = remote_client(&credentials.secret_ref, config.credentials.as_ref()).await?;
                let reader = Arc::new(CachedReader::start(
                    &client,
                    &WatchedNamespaces::ALL,
                    &Budget::new(CACHE_LIMIT),
                ));
                (client, reader, None)
            }
        };

        let settings = Settings {
            namespace: kubevirt.and_then(|kubevirt| kubevirt.namespace.clone()),
            owner,
            zones: spec.map(|spec| spec.zones.clone()).unwrap_or_default(),
            limits: spec.map(Limits::from).unwrap_or_default(),
        };
        let changes = reader.changes();
        Ok(OpenBackend { backend: Arc::new(KubeVirt::new(client, reader, settings)), changes })
    }
}

/// Returns a client of the cluster in a kubeconfig that a tenant wrote.
async fn remote_client(
    reference: &SecretKeyReference,
    kubeconfig: Option<&Redacted<Vec<u8>>>,
) -> Result<Client, Refusal> {
    let refuse = |why: String| {
        let message =
            format!("spec.credentials.secretRef {:?}, key {:?}: {why}", reference.name, reference.key);
        Refusal::new(reason::INVALID_CREDENTIALS, message)
    };
    let Some(kubeconfig) = kubeconfig else {
        return Err(refuse("Secret or key not found: create it with a kubeconfig".to_owned()));
    };
    client_from_kubeconfig(kubeconfig.reveal()).await.map_err(|error| refuse(error.to_string()))
}

/// The result of probing a provider's cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The version of KubeVirt, if it reports one.
    pub version: Option<Version>,
}

/// Checks that a cluster answers, accepts our credentials and has KubeVirt.
pub async fn probe(client: &Client) -> Result<Probe, BackendError> {
    let failed = |error: kube::Error| explain(Kind::KubeVirt, "read", "", &error);
    client.apiserver_version().await.map_err(failed)?;
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &Kind::KubeVirt.resource());
    let found = api.list(&ListParams::default().limit(1)).await.map_err(failed)?;
    let version = found.items.first().and_then(|kubevirt| {
        let reported = kubevirt.data.pointer("/status/observedKubeVirtVersion").and_then(Value::as_str)?;
        // Only the numbers: the rest of the text is of the cluster's choice.
        reported.split(['-', '+']).next()?.parse().ok()
    });
    Ok(Probe { version })
}
