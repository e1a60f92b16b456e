//! Reading: the credentials of a provider and the machines on it.

use kube::{Api, Client, api::ListParams};
use vitistack_clients::kubernetes::{client_from_kubeconfig, explain};
use vitistack_plan::{Redacted, Refusal, datacenter::Usage, machine::may_be_made, provider};
use vitistack_runtime::ReconcileError;
use vitistack_types::{
    conditions::reason,
    labels,
    v1alpha1::{Machine, MachineProvider, ProviderType},
};

use crate::caches::{Caches, name_of};

/// What the credentials of a provider are, or why they cannot be used; none if it names none.
pub(crate) async fn credentials(
    caches: &Caches,
    provider: &MachineProvider,
) -> Result<Option<Result<Redacted<Vec<u8>>, Refusal>>, ReconcileError> {
    let Some(credentials) = &provider.spec.credentials else { return Ok(None) };
    let namespace = provider.metadata.namespace.as_deref().unwrap_or_default();
    let secret = caches.secrets.get(namespace, &credentials.secret_ref.name).await?;
    let content = secret.map(|data| move |key: &str| data.get(key).cloned());
    let found = provider::credentials(provider, content);
    Ok(match (found, provider.spec.type_) {
        (Some(Ok(bytes)), ProviderType::Kubevirt) => Some(check_kubeconfig(provider, bytes).await),
        (found, _) => found,
    })
}

async fn check_kubeconfig(
    provider: &MachineProvider,
    bytes: Redacted<Vec<u8>>,
) -> Result<Redacted<Vec<u8>>, Refusal> {
    match client_from_kubeconfig(bytes.reveal()).await {
        Ok(_) => Ok(bytes),
        Err(error) => {
            let reference = provider.spec.credentials.as_ref().map(|credentials| &credentials.secret_ref);
            let (name, key) =
                reference.map(|each| (each.name.as_str(), each.key.as_str())).unwrap_or_default();
            Err(Refusal::new(
                reason::INVALID_CREDENTIALS,
                format!("spec.credentials.secretRef: key {key:?} of Secret {name:?}: {error}"),
            ))
        }
    }
}

/// What the machines placed on a provider use.
pub(super) fn used(caches: &Caches, provider: &MachineProvider) -> Usage {
    let machines = caches.machines_by_placement.get(&name_of(provider)).into_iter();
    let least = Usage { machines: 1, ..Usage::default() };
    machines
        .filter_map(|key| caches.machines.get(&key))
        .map(|machine| caches.usage(&machine).unwrap_or(least))
        .fold(Usage::default(), Usage::plus)
}

/// The Machines that something may have been made for on a provider. One that was only placed there is not among them:
/// nothing is there yet, and its Datacenter places it elsewhere.
pub(super) fn occupants(caches: &Caches, provider: &MachineProvider) -> Vec<String> {
    let machines = caches.machines_by_placement.get(&name_of(provider)).into_iter();
    let mut names: Vec<String> = machines
        .filter_map(|key| caches.machines.get(&key))
        .filter(|machine| may_be_made(&machine.metadata))
        .map(|machine| name_of(machine.as_ref()))
        .collect();
    names.sort();
    names
}

/// Whether nothing was made on a provider as the server has it now.
pub(super) async fn is_free_now(client: &Client, provider: &MachineProvider) -> Result<bool, ReconcileError> {
    let name = name_of(provider);
    let api: Api<Machine> = Api::all(client.clone());
    let machines = api.list_metadata(&ListParams::default()).await.map_err(|error| {
        ReconcileError::new("ListMachines", format!("failed to list Machines: {}", explain(&error)))
    })?;
    let is_on_it = |metadata: &kube::core::ObjectMeta| {
        let annotations = metadata.annotations.as_ref();
        let placed = annotations.and_then(|annotations| annotations.get(labels::PLACEMENT));
        placed == Some(&name) && may_be_made(metadata)
    };
    Ok(!machines.items.iter().any(|machine| is_on_it(&machine.metadata)))
}
