//! Asking a provider whether it is there.

use async_trait::async_trait;
use kube::Client;
use vitistack_clients::kubernetes::client_from_kubeconfig;
use vitistack_machine::ErrorKind;
use vitistack_plan::{Redacted, Refusal, provider::Probed};
use vitistack_types::{
    conditions::reason,
    v1alpha1::{MachineProvider, ProviderType},
};

use crate::backends::kubevirt;

/// Asks the providers of one type. Nothing is changed by it. A provider that does not accept the credentials is refused
/// with the reason `InvalidCredentials`, one that cannot be reached with any other.
#[async_trait]
pub trait Probe: Send + Sync + 'static {
    /// The type of provider that it is for.
    fn provider_type(&self) -> ProviderType;

    /// Asks one provider. `credentials` is what its Secret holds under the key that it names.
    async fn probe(
        &self,
        provider: &MachineProvider,
        credentials: Option<&Redacted<Vec<u8>>>,
    ) -> Result<Probed, Refusal>;
}

/// A KubeVirt cluster is asked for its version and whether it has KubeVirt.
pub struct KubeVirtProbe {
    own: Client,
}

impl KubeVirtProbe {
    /// For providers without credentials `own` is the cluster that is asked.
    #[must_use]
    pub fn new(own: Client) -> Self {
        Self { own }
    }
}

#[async_trait]
impl Probe for KubeVirtProbe {
    fn provider_type(&self) -> ProviderType {
        ProviderType::Kubevirt
    }

    async fn probe(
        &self,
        _provider: &MachineProvider,
        credentials: Option<&Redacted<Vec<u8>>>,
    ) -> Result<Probed, Refusal> {
        let client = match credentials {
            None => self.own.clone(),
            Some(kubeconfig) => client_from_kubeconfig(kubeconfig.reveal())
                .await
                .map_err(|error| Refusal::new(reason::INVALID_CREDENTIALS, error.to_string()))?,
        };
        let answer = kubevirt::probe(&client).await.map_err(|error| {
            let word = match error.kind {
                ErrorKind::Unauthenticated => reason::INVALID_CREDENTIALS,
                ErrorKind::Unreachable => reason::PROVIDER_UNREACHABLE,
                _ => error.reason,
            };
            Refusal::new(word, error.message)
        })?;
        Ok(Probed { version: answer.version })
    }
}

/// A simulated provider answers unless its spec says otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimulatedProbe;

#[async_trait]
impl Probe for SimulatedProbe {
    fn provider_type(&self) -> ProviderType {
        ProviderType::Simulated
    }

    async fn probe(
        &self,
        provider: &MachineProvider,
        _credentials: Option<&Redacted<Vec<u8>>>,
    ) -> Result<Probed, Refusal> {
        let is_away = provider.spec.simulated.as_ref().and_then(|simulated| simulated.unreachable);
        if is_away == Some(true) {
            return Err(Refusal::new(
                reason::PROVIDER_UNREACHABLE,
                "it does not answer, as spec.simulated.unreachable says: set it to false",
            ));
        }
        Ok(Probed::default())
    }
}
