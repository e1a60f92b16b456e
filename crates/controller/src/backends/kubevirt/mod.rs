//! KubeVirt: in the cluster that the operator works on, or in any other that a provider has a kubeconfig for.

mod assumed;
mod hub;
mod kept;
mod notes;
mod reader;

use std::sync::{Arc, Mutex, Weak};

use async_trait::async_trait;
use kube::{Api, Client, Resource, api::ListParams, core::DynamicObject};
use serde_json::{Value, json};
use vitistack_clients::kubernetes::client_from_kubeconfig;
use vitistack_machine::{
    BackendError,
    kubevirt::{Kind, KubeVirt, OwnerKind, Settings, explain},
};
use vitistack_plan::{Redacted, Refusal};
use vitistack_types::{
    SecretKeyReference, Version,
    conditions::reason,
    v1alpha1::{Machine, ProviderType},
};

use self::hub::lock;
pub use self::reader::CachedReader;
use super::{Opened, Opener, Source};

/// Opens KubeVirt clusters. Providers without credentials share the caches of the operator's own cluster.
pub struct KubeVirtOpener {
    client: Client,
    own: Mutex<Weak<CachedReader>>,
}

impl KubeVirtOpener {
    /// An opener for which `client` is the operator's own cluster.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, own: Mutex::default() }
    }

    /// The caches of the own cluster, which are there while somebody uses them.
    fn own_reader(&self) -> Arc<CachedReader> {
        let mut own = lock(&self.own);
        own.upgrade().unwrap_or_else(|| {
            let reader = Arc::new(CachedReader::start(&self.client));
            *own = Arc::downgrade(&reader);
            reader
        })
    }
}

#[async_trait]
impl Opener for KubeVirtOpener {
    fn provider_type(&self) -> ProviderType {
        ProviderType::Kubevirt
    }

    fn fingerprint(&self, source: &Source) -> String {
        let spec = source.provider.as_ref().map(|provider| &provider.spec);
        let settings = spec.map(|spec| json!([spec.kubevirt, spec.credentials, spec.zones]));
        json!([settings, source.credentials_version]).to_string()
    }

    async fn open(&self, source: &Source) -> Result<Opened, Refusal> {
        let spec = source.provider.as_ref().map(|provider| &provider.spec);
        let kubevirt = spec.and_then(|spec| spec.kubevirt.as_ref());
        let credentials = spec.and_then(|spec| spec.credentials.as_ref());
        let owner =
            OwnerKind { api_version: Machine::api_version(&()).into(), kind: Machine::kind(&()).into() };
        let (client, reader, owner) = match credentials {
            None => (self.client.clone(), self.own_reader(), Some(owner)),
            Some(credentials) => {
                let client = remote_client(&credentials.secret_ref, source.credentials.as_ref()).await?;
                let reader = Arc::new(CachedReader::start(&client));
                (client, reader, None)
            }
        };
        let settings = Settings {
            namespace: kubevirt.and_then(|kubevirt| kubevirt.namespace.clone()),
            owner,
            zones: spec.map(|spec| spec.zones.clone()).unwrap_or_default(),
        };
        let changes = reader.changes();
        Ok(Opened { backend: Arc::new(KubeVirt::new(client, reader, settings)), changes })
    }
}

/// A client of the cluster that the kubeconfig names, which a tenant wrote.
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
        return Err(refuse("there is no such Secret, or not that key in it: add a kubeconfig".to_owned()));
    };
    client_from_kubeconfig(kubeconfig.reveal()).await.map_err(|error| refuse(error.to_string()))
}

/// What a provider's cluster says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The version of KubeVirt, where it says one.
    pub version: Option<Version>,
}

/// Asks a cluster whether it is there, lets us in, and has KubeVirt.
pub async fn probe(client: &Client) -> Result<Probe, BackendError> {
    let failed = |error: kube::Error| explain(Kind::KubeVirt, "read", "", &error);
    client.apiserver_version().await.map_err(failed)?;
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &Kind::KubeVirt.resource());
    let found = api.list(&ListParams::default().limit(1)).await.map_err(failed)?;
    let version = found.items.first().and_then(|kubevirt| {
        let said = kubevirt.data.pointer("/status/observedKubeVirtVersion").and_then(Value::as_str)?;
        said.parse().ok()
    });
    Ok(Probe { version })
}
