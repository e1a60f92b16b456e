//! What the operators of one process read: each kind is watched once, however many operators need it.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, Client, Resource,
    core::{NamespaceResourceScope, PartialObjectMeta},
    runtime::reflector::ObjectRef,
};
use vitistack_plan::{
    Refusal,
    datacenter::{Fullness, Usage, hosted_usage, usage_of},
    machine::{check_namespace, datacenter_of, placement},
};
use vitistack_runtime::{Cache, Process};
use vitistack_types::{
    ObjectName, Placement, WatchedNamespaces,
    v1alpha1::{Datacenter, Machine, MachineClass, MachineProvider, NetworkConfiguration},
};

use crate::{Calls, Index, Secrets, index::reference};

/// Returns the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What the operators of one process share. Clones share it too.
#[derive(Clone)]
pub struct Caches {
    /// The cluster that the process works on.
    pub client: Client,
    /// The namespaces whose objects the caches contain. What is in others is unknown, not absent.
    pub watched: WatchedNamespaces,
    /// Every Machine.
    pub machines: Cache<Machine>,
    /// Machines by the Datacenter that they refer to.
    pub machines_by_datacenter: Index<Machine, ObjectName>,
    /// Machines by their placement.
    pub machines_by_placement: Index<Machine, Placement>,
    /// Every MachineProvider.
    pub providers: Cache<MachineProvider>,
    /// Every Datacenter.
    pub datacenters: Cache<Datacenter>,
    /// Every MachineClass.
    pub classes: Cache<MachineClass>,
    /// Every NetworkConfiguration.
    pub networks: Cache<NetworkConfiguration>,
    /// The metadata of every Namespace.
    pub namespaces: Cache<PartialObjectMeta<Namespace>>,
    /// The Secrets that objects refer to.
    pub secrets: Secrets,
    /// How the requests to providers end.
    pub calls: Calls,
    /// The time.
    pub clock: Clock,
}

/// Which caches are filled besides those that every operator reads: an operator that does not read a kind needs no
/// permission to.
#[expect(clippy::struct_excessive_bools, reason = "one for each kind")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Datacenters.
    pub datacenters: bool,
    /// NetworkConfigurations.
    pub networks: bool,
    /// Secrets.
    pub secrets: bool,
    /// Namespaces.
    pub namespaces: bool,
}

impl Caches {
    /// The caches of a process, filled while it runs.
    pub fn new(process: &mut Process, client: Client, needs: Needs) -> Self {
        let machines: Cache<Machine> = process.cache();
        let secrets = if needs.secrets { process.metadata_cache::<Secret>() } else { Cache::unfilled(()) };
        Self {
            machines_by_datacenter: Index::new(&machines, |machine| {
                datacenter_of(machine).into_iter().collect()
            }),
            machines_by_placement: Index::new(&machines, |machine| placement(machine).into_iter().collect()),
            machines,
            providers: process.cache(),
            datacenters: if needs.datacenters { process.cache() } else { Cache::unfilled(()) },
            classes: process.cluster_cache(),
            networks: if needs.networks { process.cache() } else { Cache::unfilled(()) },
            namespaces: if needs.namespaces { process.cluster_metadata_cache() } else { Cache::unfilled(()) },
            secrets: Secrets::new(client.clone(), &secrets),
            calls: Calls::default(),
            clock: Arc::new(Timestamp::now),
            watched: process.watched_namespaces(),
            client,
        }
    }

    /// Returns the time.
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Returns the API of each watched namespace, or of the whole cluster, to ask the server itself.
    pub(crate) fn apis<K>(&self) -> Vec<Api<K>>
    where
        K: Resource<DynamicType: Default, Scope = NamespaceResourceScope>,
    {
        match self.watched.listed() {
            None => vec![Api::all(self.client.clone())],
            Some(names) => names.iter().map(|name| Api::namespaced(self.client.clone(), name)).collect(),
        }
    }

    /// Returns a MachineProvider.
    pub(crate) fn provider(&self, name: &ObjectName) -> Option<Arc<MachineProvider>> {
        self.providers.get(&reference(name))
    }

    /// Checks that a provider may act for a Machine where it creates machines.
    pub(crate) fn check_namespace(
        &self,
        machine: &Machine,
        provider: &MachineProvider,
    ) -> Result<(), Refusal> {
        let target = provider.spec.own_cluster_namespace();
        let namespace = target.and_then(|name| self.namespaces.get(&ObjectRef::new(name)));
        let metadata = namespace.as_ref().map(|namespace| &namespace.metadata);
        check_namespace(machine, provider, metadata, &self.watched)
    }

    /// Returns the Machines that are placed somewhere.
    pub(crate) fn machines_on(&self, placement: &Placement) -> impl Iterator<Item = Arc<Machine>> + use<'_> {
        let machines = self.machines_by_placement.get(placement);
        machines.into_iter().filter_map(|key| self.machines.get(&key))
    }

    /// Returns what a Machine uses, or why that is not known.
    pub(crate) fn usage(&self, machine: &Machine) -> Result<Usage, Refusal> {
        let class = machine.spec.template.as_deref().and_then(|name| self.classes.get(&ObjectRef::new(name)));
        usage_of(machine, class.as_deref())
    }

    /// Returns what a placed Machine uses of its provider.
    pub(crate) fn hosted_usage(&self, machine: &Machine) -> Usage {
        let datacenter = datacenter_of(machine).and_then(|name| self.datacenters.get(&reference(&name)));
        let usage = self.usage(machine).unwrap_or(Usage::ONE_MACHINE);
        hosted_usage(machine, usage, datacenter.as_deref())
    }

    /// Returns how full the provider of a placement is, if it exists.
    pub(crate) fn fullness(&self, placement: &Placement) -> Option<Fullness> {
        let mut full = Fullness::of(self.provider(placement.provider()?)?.as_ref());
        for machine in self.machines_on(placement) {
            full.count(&machine, self.hosted_usage(&machine));
        }
        Some(full)
    }
}
