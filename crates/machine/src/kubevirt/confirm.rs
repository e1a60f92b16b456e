//! Confirms in the cluster itself what a cache shows as absent.

use kube::Client;

use super::{
    Settings,
    kind::Kind,
    names,
    read::{Found, LiveReader, Reader, served},
    shared_list::SharedList,
};
use crate::{BackendError, Target};

/// Reads from the cluster itself, with one list for all machines that ask at the same time.
pub struct Confirmation {
    live: LiveReader,
    claims: SharedList,
    data_volumes: SharedList,
}

impl Confirmation {
    /// Returns the confirmation in the cluster of `client`, which may only be read by namespace if `is_namespaced`.
    pub fn new(client: &Client, is_namespaced: bool) -> Self {
        let live = LiveReader::new(client.clone()).namespaced(is_namespaced);
        let list = |kind: Kind| {
            let live = live.clone();
            SharedList::new(move |request| {
                let live = live.clone();
                Box::pin(async move { live.owned_by_any(kind, request).await })
            })
        };
        let (claims, data_volumes) = (list(Kind::PersistentVolumeClaim), list(Kind::DataVolume));
        Self { live, claims, data_volumes }
    }

    /// Reads again what a cache shows as absent: only what this or another process may have created a moment ago, of the
    /// kinds that the cluster serves. A VirtualMachineInstance is not created by us, and does not outlive its
    /// VirtualMachine. `sufficient_version` returns the version that a list of a kind must have reached.
    pub async fn absence(
        &self,
        settings: &Settings,
        target: &Target,
        mut found: Found,
        sufficient_version: impl Fn(Kind) -> Option<u64>,
    ) -> Result<Found, BackendError> {
        let (namespace, identity) = (settings.namespace(target), &target.identity);
        let secret_name = names::cloud_init_secret(&target.name);
        let owned =
            async |list: &SharedList, kind| list.owned(namespace, identity, sufficient_version(kind)).await;

        let (virtual_machine, claims, data_volumes, secret) = futures::join!(
            async {
                if found.has_kubevirt {
                    self.live.get(Kind::VirtualMachine, namespace, &target.name).await
                } else {
                    Ok(None)
                }
            },
            owned(&self.claims, Kind::PersistentVolumeClaim),
            async {
                if found.has_cdi { owned(&self.data_volumes, Kind::DataVolume).await } else { Ok(Vec::new()) }
            },
            self.live.get(Kind::Secret, namespace, &secret_name),
        );

        found.virtual_machine = served(virtual_machine)?.1;
        found.claims = served(claims)?.1;
        found.data_volumes = served(data_volumes)?.1;
        found.secret = served(secret)?.1;
        found.set_aside(target);
        Ok(found)
    }

    /// Reads again a VirtualMachine whose creation was requested and not answered.
    pub async fn machine(
        &self,
        settings: &Settings,
        target: &Target,
        mut found: Found,
    ) -> Result<Found, BackendError> {
        if found.has_kubevirt {
            let namespace = settings.namespace(target);
            let live = self.live.get(Kind::VirtualMachine, namespace, &target.name).await;
            found.virtual_machine = served(live)?.1;
            found.set_aside(target);
        }
        Ok(found)
    }
}
