//! What the platform knows about the simulated hypervisor.

use std::{error::Error, sync::Arc};

use async_trait::async_trait;
use vitistack_clients::kubernetes::{Permission, PermissionScope};
use vitistack_plan::{Redacted, Refusal, machine::Capabilities, provider::Probed};
use vitistack_types::{
    conditions::reason,
    v1alpha1::{MachineProvider, ProviderType},
};

use super::{SimulatedOpener, capabilities, world_of};
use crate::{BackendContext, BackendOpener, BackendType};

/// Machines on the simulated hypervisor.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedType;

/// The metadata of Secrets is watched; those that objects refer to are read.
const SECRETS: Permission = Permission {
    group: "",
    resources: &["secrets"],
    verbs: &["get", "list", "watch"],
    scope: PermissionScope::Namespaces,
};

/// Simulated worlds are stored beside the operator.
const WORLDS: Permission = Permission {
    group: "",
    resources: &["configmaps"],
    verbs: &["get", "list", "create", "update", "delete", "deletecollection"],
    scope: PermissionScope::OwnNamespace,
};

#[async_trait]
impl BackendType for SimulatedType {
    fn provider_type(&self) -> ProviderType {
        ProviderType::Simulated
    }

    fn is_installed_by_default(&self) -> bool {
        false
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn permissions(&self) -> Vec<Permission> {
        vec![SECRETS, WORLDS]
    }

    fn provider_permissions(&self) -> Vec<Permission> {
        vec![Permission { verbs: &["delete", "deletecollection"], ..WORLDS }]
    }

    fn opener(&self, context: &BackendContext) -> Arc<dyn BackendOpener> {
        Arc::new(SimulatedOpener::new(Arc::clone(&context.stores)))
    }

    /// A simulated provider answers unless its spec says otherwise.
    async fn probe(
        &self,
        _context: &BackendContext,
        provider: &MachineProvider,
        _credentials: Option<&Redacted<Vec<u8>>>,
    ) -> Result<Probed, Refusal> {
        let is_unreachable = provider.spec.simulated.as_ref().and_then(|simulated| simulated.unreachable);
        if is_unreachable == Some(true) {
            return Err(Refusal::new(
                reason::PROVIDER_UNREACHABLE,
                "the simulated provider is set to be unreachable: set spec.simulated.unreachable to false",
            ));
        }
        Ok(Probed::default())
    }

    /// Deletes the world of the provider.
    async fn clean_up(
        &self,
        context: &BackendContext,
        provider: &MachineProvider,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok((context.stores)(provider).delete_all().await?)
    }

    /// The machines exist only in the control plane, so they are exported with it.
    fn exported_state(&self, provider: &MachineProvider) -> Option<String> {
        Some(world_of(provider))
    }
}
