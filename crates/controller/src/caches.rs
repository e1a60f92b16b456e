//! What the operators of one process read: each kind is watched once, whoever needs it.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, runtime::reflector::ObjectRef};
use vitistack_plan::{
    Refusal,
    datacenter::{Fullness, Usage, usage_of},
    machine::{full_name, placement},
};
use vitistack_runtime::{Cache, Process};
use vitistack_types::v1alpha1::{Datacenter, Machine, MachineClass, MachineProvider, NetworkConfiguration};

use crate::{Index, Secrets};

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What the operators of one process share. A clone is the same.
#[derive(Clone)]
pub struct Caches {
    /// The cluster that the process works on.
    pub client: Client,
    /// Every Machine.
    pub machines: Cache<Machine>,
    /// Machines by the Datacenter, as `namespace/name`, that they name.
    pub machines_by_datacenter: Index<Machine>,
    /// Machines by the provider, as `namespace/name`, that they are placed on.
    pub machines_by_placement: Index<Machine>,
    /// Every MachineProvider.
    pub providers: Cache<MachineProvider>,
    /// Every Datacenter.
    pub datacenters: Cache<Datacenter>,
    /// Every MachineClass.
    pub classes: Cache<MachineClass>,
    /// Every NetworkConfiguration.
    pub networks: Cache<NetworkConfiguration>,
    /// Secrets, as far as somebody refers to them.
    pub secrets: Secrets,
    /// The time.
    pub clock: Clock,
}

/// Which caches are filled besides those that every operator reads: who does not read a kind needs no right to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Datacenters.
    pub datacenters: bool,
    /// NetworkConfigurations.
    pub networks: bool,
    /// Secrets.
    pub secrets: bool,
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
            machines_by_placement: Index::new(&machines, |machine| {
                placement(machine).map(str::to_owned).into_iter().collect()
            }),
            machines,
            providers: process.cache(),
            datacenters: if needs.datacenters { process.cache() } else { Cache::unfilled(()) },
            classes: process.cache(),
            networks: if needs.networks { process.cache() } else { Cache::unfilled(()) },
            secrets: Secrets::new(client.clone(), &secrets),
            clock: Arc::new(Timestamp::now),
            client,
        }
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// What a Machine uses, or why that cannot be said.
    pub(crate) fn usage(&self, machine: &Machine) -> Result<Usage, Refusal> {
        let class = machine.spec.template.as_deref().and_then(|name| self.classes.get(&ObjectRef::new(name)));
        usage_of(machine, class.as_deref())
    }

    /// How full a provider is; none of one that is not there.
    pub(crate) fn fullness(&self, provider: &str) -> Option<Fullness> {
        let mut full = Fullness::of(self.providers.get(&reference(provider)?)?.as_ref());
        let least = Usage { machines: 1, ..Usage::default() };
        for machine in self.machines_by_placement.get(provider) {
            if let Some(machine) = self.machines.get(&machine) {
                full.count(&machine, self.usage(&machine).unwrap_or(least));
            }
        }
        Some(full)
    }
}

/// `namespace/name` of the Datacenter that a Machine names.
pub(crate) fn datacenter_of(machine: &Machine) -> Option<String> {
    let own = machine.metadata.namespace.as_deref().unwrap_or_default();
    machine.spec.datacenter_ref.as_ref().map(|reference| full_name(reference, own))
}

/// The object that is written as `namespace/name`.
pub(crate) fn reference<K: kube::Resource<DynamicType = ()>>(name: &str) -> Option<ObjectRef<K>> {
    let (namespace, name) = name.split_once('/')?;
    Some(ObjectRef::new(name).within(namespace))
}

/// `namespace/name` of an object.
pub(crate) fn name_of(object: &impl kube::Resource) -> String {
    let metadata = object.meta();
    format!(
        "{}/{}",
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default()
    )
}
