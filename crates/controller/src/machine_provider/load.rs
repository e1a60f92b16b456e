//! Reads the credentials of a provider and the machines on it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use snafu::ResultExt;
use vitistack_plan::{
    Redacted, Refusal,
    datacenter::Usage,
    machine::{may_have_backing_machine, placement_in},
    provider,
};
use vitistack_runtime::Cache;
use vitistack_types::{
    ObjectName, Placement,
    v1alpha1::{Machine, MachineProvider},
};

use crate::{
    Index,
    caches::Caches,
    error::{Error, ListMachinesSnafu},
};

/// Indexes MachineProviders by the Secret of their credentials.
pub(crate) fn providers_by_secret(providers: &Cache<MachineProvider>) -> Index<MachineProvider, ObjectName> {
    Index::new(providers, |provider| secret_of(provider).into_iter().collect())
}

/// Returns the Secret of a provider's credentials.
pub(super) fn secret_of(provider: &MachineProvider) -> Option<ObjectName> {
    let credentials = provider.spec.credentials.as_ref()?;
    Some(ObjectName::new(ObjectName::of(provider).namespace, &credentials.secret_ref.name))
}

/// Returns the credentials of a provider, or why they cannot be used; nothing if it has none.
pub(crate) async fn credentials(
    caches: &Caches,
    provider: &MachineProvider,
) -> Result<Option<Result<Redacted<Vec<u8>>, Refusal>>, Error> {
    let Some(secret) = secret_of(provider) else { return Ok(None) };
    let data = caches.secrets.get(&secret).await?;
    let look_up = data.map(|data| move |key: &str| data.get(key).cloned());
    Ok(match provider::credentials(provider, look_up) {
        Some(Ok(bytes)) => Some(check_credentials(provider, bytes).await),
        refused => refused,
    })
}

async fn check_credentials(
    provider: &MachineProvider,
    bytes: Redacted<Vec<u8>>,
) -> Result<Redacted<Vec<u8>>, Refusal> {
    let backend = vitistack_machine::backend_type(provider.spec.type_);
    backend.check_credentials(provider, &bytes).await.map(|()| bytes)
}

/// Returns what the machines placed on a provider use.
pub(super) fn used(caches: &Caches, provider: &MachineProvider) -> Usage {
    caches
        .machines_on(&Placement::Provider(ObjectName::of(provider)))
        .map(|machine| caches.hosted_usage(&machine))
        .fold(Usage::default(), Usage::plus)
}

/// Returns the Machines that may have a backing machine on a provider. A Machine that was only placed there has none: its
/// Datacenter places it elsewhere.
pub(super) fn occupants(caches: &Caches, provider: &MachineProvider) -> Vec<ObjectName> {
    let mut names: Vec<ObjectName> = caches
        .machines_on(&Placement::Provider(ObjectName::of(provider)))
        .filter(|machine| may_have_backing_machine(&machine.metadata))
        .map(|machine| ObjectName::of(machine.as_ref()))
        .collect();
    names.sort();
    names
}

/// Whether no Machine in the watched namespaces may have a backing machine on a provider, as the server has it now.
pub(super) async fn is_unoccupied(caches: &Caches, provider: &MachineProvider) -> Result<bool, Error> {
    let placement = Placement::Provider(ObjectName::of(provider));
    let is_on_it = |machine: &ObjectMeta| {
        placement_in(machine).as_ref() == Some(&placement) && may_have_backing_machine(machine)
    };
    for api in caches.apis::<Machine>() {
        let machines = api.list_metadata(&ListParams::default()).await.context(ListMachinesSnafu)?;
        if machines.items.iter().any(|machine| is_on_it(&machine.metadata)) {
            return Ok(false);
        }
    }
    Ok(true)
}
