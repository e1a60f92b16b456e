//! Asking a provider whether it is there.

use async_trait::async_trait;
use vitistack_plan::{Redacted, Refusal, provider::Probed};
use vitistack_types::{
    conditions::reason,
    v1alpha1::{MachineProvider, ProviderType},
};

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
