//! What the platform knows about KubeVirt.

use std::sync::Arc;

use async_trait::async_trait;
use vitistack_clients::kubernetes::{Permission, PermissionScope, client_from_kubeconfig};
use vitistack_plan::{Redacted, Refusal, machine::Capabilities, provider::Probed};
use vitistack_types::{
    conditions::reason,
    v1alpha1::{MachineProvider, ProviderType},
};

use super::{Kind, KubeVirtOpener, capabilities, probe, render::render};
use crate::{
    BackendContext, BackendOpener, BackendType, DependentKind, ErrorKind, Order, Rendered, Requirement,
};

/// Machines on KubeVirt.
#[derive(Clone, Copy, Debug)]
pub struct KubeVirtType;

fn permission(kind: Kind) -> Permission {
    let (group, resources) = kind.rule();
    let scope =
        if kind.is_read_in_whole_cluster() { PermissionScope::Cluster } else { PermissionScope::Namespaces };
    Permission { group, resources, verbs: kind.verbs(), scope }
}

#[async_trait]
impl BackendType for KubeVirtType {
    fn provider_type(&self) -> ProviderType {
        ProviderType::Kubevirt
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    /// They are needed in every cluster that hosts machines: the operator's own, and those that providers have credentials
    /// for. Its Secrets are among what it creates, with the verbs that reading takes.
    fn permissions(&self) -> Vec<Permission> {
        Kind::ALL.map(permission).to_vec()
    }

    fn provider_permissions(&self) -> Vec<Permission> {
        vec![Permission { verbs: &["list"], ..permission(Kind::KubeVirt) }]
    }

    fn opener(&self, context: &BackendContext) -> Arc<dyn BackendOpener> {
        Arc::new(KubeVirtOpener::new(context.client.clone(), context.watched.clone()))
    }

    async fn check_credentials(
        &self,
        provider: &MachineProvider,
        credentials: &Redacted<Vec<u8>>,
    ) -> Result<(), Refusal> {
        let Err(error) = client_from_kubeconfig(credentials.reveal()).await else { return Ok(()) };
        let reference = provider.spec.credentials.as_ref().map(|credentials| &credentials.secret_ref);
        let (name, key) = reference.map(|each| (each.name.as_str(), each.key.as_str())).unwrap_or_default();
        let message = format!("spec.credentials.secretRef: key {key:?} of Secret {name:?}: {error}");
        Err(Refusal::new(reason::INVALID_CREDENTIALS, message))
    }

    /// Asks the cluster for its version and whether it has KubeVirt.
    async fn probe(
        &self,
        context: &BackendContext,
        _provider: &MachineProvider,
        credentials: Option<&Redacted<Vec<u8>>>,
    ) -> Result<Probed, Refusal> {
        let client = match credentials {
            None => context.client.clone(),
            Some(kubeconfig) => client_from_kubeconfig(kubeconfig.reveal())
                .await
                .map_err(|error| Refusal::new(reason::INVALID_CREDENTIALS, error.to_string()))?,
        };
        let found = probe(&client).await.map_err(|error| {
            let reason = match error.kind {
                ErrorKind::Unauthenticated => reason::INVALID_CREDENTIALS,
                ErrorKind::Unreachable => reason::PROVIDER_UNREACHABLE,
                _ => error.reason,
            };
            Refusal::new(reason, error.message)
        })?;
        Ok(Probed { version: found.version })
    }

    fn dependent_kinds(&self) -> Vec<DependentKind> {
        [Kind::VirtualMachine, Kind::PersistentVolumeClaim, Kind::DataVolume, Kind::Secret]
            .map(|kind| DependentKind {
                resource: kind.resource(),
                is_volume: matches!(kind, Kind::PersistentVolumeClaim | Kind::DataVolume),
            })
            .to_vec()
    }

    fn render(&self, provider: Option<&MachineProvider>, order: &Order) -> Option<Result<Rendered, Refusal>> {
        Some(render(provider, order))
    }

    fn requirements(&self) -> Vec<Requirement> {
        vec![
            Requirement {
                name: "KubeVirt",
                api_version: "kubevirt.io/v1",
                needed_for: "machines on this cluster",
            },
            Requirement {
                name: "CDI",
                api_version: "cdi.kubevirt.io/v1beta1",
                needed_for: "disks with a source",
            },
            Requirement {
                name: "Multus",
                api_version: "k8s.cni.cncf.io/v1",
                needed_for: "machines with networks",
            },
        ]
    }
}
