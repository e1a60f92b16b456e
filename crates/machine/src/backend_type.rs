//! The descriptor of a backend: everything that the rest of the platform knows about it.

use std::{error::Error, sync::Arc};

use async_trait::async_trait;
use kube::{Client, api::ApiResource, core::DynamicObject};
use vitistack_clients::kubernetes::Permission;
use vitistack_plan::{Redacted, Refusal, machine::Capabilities, provider::Probed};
use vitistack_types::{
    WatchedNamespaces,
    v1alpha1::{MachineProvider, ProviderType},
};

use crate::{
    BackendOpener,
    Order,
    kubevirt::KubeVirtType, // backend: allow, the list of backends
    // backend: allow, the list of backends
    simulated::{KubernetesStore, SimulatedType, Stores, world_of},
};

/// What backends share with the process that they run in.
#[derive(Clone)]
pub struct BackendContext {
    /// The operator's own cluster.
    pub client: Client,
    /// The namespaces of that cluster that the operator works in.
    pub watched: WatchedNamespaces,
    /// Where backends without a system of their own keep their state.
    pub stores: Stores,
}

impl BackendContext {
    /// The context of a process whose backends keep their state in a namespace of the operator's own cluster, so that it
    /// survives a restart.
    #[must_use]
    pub fn in_cluster(client: Client, namespace: &str, watched: WatchedNamespaces) -> Self {
        let (own, namespace) = (client.clone(), namespace.to_owned());
        let stores: Stores = Arc::new(move |provider| {
            Arc::new(KubernetesStore::new(own.clone(), &namespace, &world_of(provider)))
        });
        Self { client, watched, stores }
    }
}

/// A kind of objects that a backend creates for a machine, beside the Machine in the same cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DependentKind {
    /// The kind.
    pub resource: ApiResource,
    /// Whether the objects are the volumes of the machine's disks.
    pub is_volume: bool,
}

/// The objects of a machine, as they would be created.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// The objects.
    pub objects: Vec<DynamicObject>,
    /// Objects that would be created too and contain secrets, each as a description.
    pub hidden: Vec<String>,
}

/// Something that has to be installed in a cluster for a feature to work there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The name of the software.
    pub name: &'static str,
    /// An API version that it serves.
    pub api_version: &'static str,
    /// What does not work without it.
    pub needed_for: &'static str,
}

/// One type of backend. Nothing outside its folder refers to it by name.
#[async_trait]
pub trait BackendType: Send + Sync + 'static {
    /// The type of provider that it talks to. The operator that runs it has the same name.
    fn provider_type(&self) -> ProviderType;

    /// Whether its operator is part of an installation unless others are chosen.
    fn is_installed_by_default(&self) -> bool {
        true
    }

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// What its operator asks of the Kubernetes API, besides what every machine operator does.
    fn permissions(&self) -> Vec<Permission>;

    /// What probing a provider and cleaning up after it ask of the Kubernetes API.
    fn provider_permissions(&self) -> Vec<Permission>;

    /// Returns what opens its backends.
    fn opener(&self, context: &BackendContext) -> Arc<dyn BackendOpener>;

    /// Checks that credentials can be used, without asking the provider.
    async fn check_credentials(
        &self,
        provider: &MachineProvider,
        credentials: &Redacted<Vec<u8>>,
    ) -> Result<(), Refusal> {
        let _ = (provider, credentials);
        Ok(())
    }

    /// Asks a provider whether it is available, and changes nothing. A provider that does not accept the credentials is
    /// refused with the reason `InvalidCredentials`, one that cannot be reached with any other.
    async fn probe(
        &self,
        context: &BackendContext,
        provider: &MachineProvider,
        credentials: Option<&Redacted<Vec<u8>>>,
    ) -> Result<Probed, Refusal>;

    /// Deletes what belongs to a provider itself, before the provider is gone.
    async fn clean_up(
        &self,
        context: &BackendContext,
        provider: &MachineProvider,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let _ = (context, provider);
        Ok(())
    }

    /// The kinds of objects that it creates for a machine beside the Machine. A release detaches them, because the cluster
    /// would delete them with the Machine.
    fn dependent_kinds(&self) -> Vec<DependentKind> {
        Vec::new()
    }

    /// The value of the label `vitistack.io/world` on the ConfigMaps that hold a provider's state, if they do. An export
    /// contains them.
    fn exported_state(&self, provider: &MachineProvider) -> Option<String> {
        let _ = provider;
        None
    }

    /// Returns the Kubernetes objects that a machine on a provider, or in the operator's own cluster, would consist of;
    /// nothing if its machines are not made of Kubernetes objects.
    fn render(&self, provider: Option<&MachineProvider>, order: &Order) -> Option<Result<Rendered, Refusal>> {
        let _ = (provider, order);
        None
    }

    /// What has to be installed in a cluster that hosts its machines.
    fn requirements(&self) -> Vec<Requirement> {
        Vec::new()
    }
}

/// Returns every backend.
#[must_use]
pub fn backend_types() -> Vec<Arc<dyn BackendType>> {
    ProviderType::ALL.into_iter().map(backend_type).collect()
}

/// Returns the backend of a provider type.
#[must_use]
pub fn backend_type(provider_type: ProviderType) -> Arc<dyn BackendType> {
    match provider_type {
        ProviderType::Kubevirt => Arc::new(KubeVirtType), // backend: allow, the list of backends
        ProviderType::Simulated => Arc::new(SimulatedType), // backend: allow, the list of backends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_type_has_a_backend() {
        for provider_type in ProviderType::ALL {
            assert_eq!(backend_type(provider_type).provider_type(), provider_type);
        }
    }
}
