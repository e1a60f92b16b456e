//! What all operators of one process read, each kind watched once.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use vitistack_runtime::{Cache, Process};
use vitistack_types::v1alpha1::{Datacenter, Machine, MachineClass, MachineProvider, NetworkConfiguration};

use crate::Secrets;

/// Says what time it is.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The caches of one process, and what else its operators share.
#[derive(Clone)]
pub struct Caches {
    /// The cluster of the objects.
    pub client: Client,
    /// Machines.
    pub machines: Cache<Machine>,
    /// MachineProviders.
    pub providers: Cache<MachineProvider>,
    /// Datacenters.
    pub datacenters: Cache<Datacenter>,
    /// MachineClasses.
    pub classes: Cache<MachineClass>,
    /// NetworkConfigurations.
    pub networks: Cache<NetworkConfiguration>,
    /// Secrets, by version.
    pub secrets: Secrets,
    /// The time.
    pub clock: Clock,
}

impl Caches {
    /// The caches of a process that works on the cluster of `client`.
    pub fn new(process: &mut Process, client: Client) -> Self {
        let secrets = process.metadata_cache::<Secret>();
        Self {
            machines: process.cache(),
            providers: process.cache(),
            datacenters: process.cache(),
            classes: process.cache(),
            networks: process.cache(),
            secrets: Secrets::new(client.clone(), &secrets),
            clock: Arc::new(Timestamp::now),
            client,
        }
    }
}
