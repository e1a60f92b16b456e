//! Everything that commands read of a cluster, and the lookups that `explain` and `preview` share.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::Lease,
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
};
use vitistack_types::{
    ObjectId, ObjectName, Placement, WatchedNamespaces,
    conditions::{self, reason},
    labels,
    v1alpha1::{Datacenter, Machine, MachineClass, MachineProvider, NetworkConfiguration, ProviderReference},
};

use crate::{
    Redacted, Refusal,
    datacenter::{self, Candidate, Member, Usage, candidate, usage_of},
    machine::{
        Desired, References, check_namespace, datacenter_of, has_finalizer, has_platform_provider,
        is_default, may_have_backing_machine, placement, problems, provider_of, resolve,
    },
    permits,
};

/// The objects of a cluster as they were read.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// When it was read.
    pub now: Timestamp,
    /// Every Machine.
    pub machines: Vec<Machine>,
    /// Every Datacenter.
    pub datacenters: Vec<Datacenter>,
    /// Every MachineProvider.
    pub providers: Vec<MachineProvider>,
    /// Every MachineClass.
    pub classes: Vec<MachineClass>,
    /// Every NetworkConfiguration.
    pub networks: Vec<NetworkConfiguration>,
    /// The names of the keys of Secrets; `None` for a Secret that does not exist. A Secret that is not in the map was not
    /// read. Never their contents.
    pub secrets: BTreeMap<ObjectName, Option<BTreeSet<String>>>,
    /// The metadata of every Namespace, by name; `None` if they could not be read.
    pub namespaces: Option<BTreeMap<String, ObjectMeta>>,
    /// The leases of the operators; `None` if they could not be read.
    pub leases: Option<Vec<Lease>>,
}

/// Whether the operators' own cluster hosts Machines while the platform has no MachineProvider, as far as they report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnCluster {
    /// It does.
    Offered,
    /// It does not.
    NotOffered,
    /// No operator has reported it yet.
    Unknown,
}

/// One object of an inventory.
#[derive(Clone, Copy, Debug)]
pub enum InventoryObject<'a> {
    /// A Machine.
    Machine(&'a Machine),
    /// A Datacenter.
    Datacenter(&'a Datacenter),
    /// A MachineProvider.
    MachineProvider(&'a MachineProvider),
    /// A MachineClass.
    MachineClass(&'a MachineClass),
    /// A NetworkConfiguration.
    NetworkConfiguration(&'a NetworkConfiguration),
}

impl<'a> InventoryObject<'a> {
    /// Its kind, namespace and name.
    #[must_use]
    pub fn id(self) -> ObjectId {
        match self {
            Self::Machine(machine) => ObjectId::of(machine),
            Self::Datacenter(datacenter) => ObjectId::of(datacenter),
            Self::MachineProvider(provider) => ObjectId::of(provider),
            Self::MachineClass(class) => ObjectId::of(class),
            Self::NetworkConfiguration(network) => ObjectId::of(network),
        }
    }

    /// Its metadata.
    #[must_use]
    pub fn metadata(self) -> &'a ObjectMeta {
        match self {
            Self::Machine(machine) => &machine.metadata,
            Self::Datacenter(datacenter) => &datacenter.metadata,
            Self::MachineProvider(provider) => &provider.metadata,
            Self::MachineClass(class) => &class.metadata,
            Self::NetworkConfiguration(network) => &network.metadata,
        }
    }

    /// The conditions that were reported of it.
    #[must_use]
    pub fn conditions(self) -> &'a [Condition] {
        let conditions = match self {
            Self::Machine(machine) => machine.status.as_ref().map(|status| &status.conditions),
            Self::Datacenter(datacenter) => datacenter.status.as_ref().map(|status| &status.conditions),
            Self::MachineProvider(provider) => provider.status.as_ref().map(|status| &status.conditions),
            Self::MachineClass(class) => class.status.as_ref().map(|status| &status.conditions),
            Self::NetworkConfiguration(network) => network.status.as_ref().map(|status| &status.conditions),
        };
        conditions.map(Vec::as_slice).unwrap_or_default()
    }
}

impl Inventory {
    /// Returns the Machine of this name.
    #[must_use]
    pub fn machine(&self, name: &ObjectName) -> Option<&Machine> {
        self.machines.iter().find(|machine| name.is_of(&machine.metadata))
    }

    /// Returns the Datacenter of this name.
    #[must_use]
    pub fn datacenter(&self, name: &ObjectName) -> Option<&Datacenter> {
        self.datacenters.iter().find(|datacenter| name.is_of(&datacenter.metadata))
    }

    /// Returns the MachineProvider of this name.
    #[must_use]
    pub fn provider(&self, name: &ObjectName) -> Option<&MachineProvider> {
        self.providers.iter().find(|provider| name.is_of(&provider.metadata))
    }

    /// Returns the MachineClass of this name.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<&MachineClass> {
        self.classes.iter().find(|class| class.metadata.name.as_deref() == Some(name))
    }

    /// Returns the NetworkConfiguration of this name.
    #[must_use]
    pub fn network(&self, name: &ObjectName) -> Option<&NetworkConfiguration> {
        self.networks.iter().find(|network| name.is_of(&network.metadata))
    }

    /// Returns an object of the kinds that are listed whole.
    #[must_use]
    pub fn object(&self, ObjectId { kind, name }: &ObjectId) -> Option<InventoryObject<'_>> {
        match kind.as_str() {
            "Machine" => self.machine(name).map(InventoryObject::Machine),
            "Datacenter" => self.datacenter(name).map(InventoryObject::Datacenter),
            "MachineProvider" => self.provider(name).map(InventoryObject::MachineProvider),
            "MachineClass" => self.class(&name.name).map(InventoryObject::MachineClass),
            "NetworkConfiguration" => self.network(name).map(InventoryObject::NetworkConfiguration),
            _ => None,
        }
    }

    /// Returns every object.
    pub(crate) fn objects(&self) -> impl Iterator<Item = InventoryObject<'_>> {
        let datacenters = self.datacenters.iter().map(InventoryObject::Datacenter);
        let providers = self.providers.iter().map(InventoryObject::MachineProvider);
        let classes = self.classes.iter().map(InventoryObject::MachineClass);
        let networks = self.networks.iter().map(InventoryObject::NetworkConfiguration);
        let machines = self.machines.iter().map(InventoryObject::Machine);
        datacenters.chain(providers).chain(classes).chain(networks).chain(machines)
    }

    /// Returns the namespaces that the operators watch, as their leases show it; all if no lease does.
    pub(crate) fn watched(&self) -> WatchedNamespaces {
        let recorded = self.leases.iter().flatten().find_map(|lease| {
            let is_held =
                lease.spec.as_ref()?.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
            let names = lease.metadata.annotations.as_ref()?.get(labels::WATCHED_NAMESPACES)?;
            names.parse().ok().filter(|_| is_held)
        });
        recorded.unwrap_or_default()
    }

    /// Whether an object exists, as far as it was read.
    pub(crate) fn has(&self, id: &ObjectId) -> bool {
        let is_secret = id.kind == "Secret";
        if is_secret {
            self.secrets.get(&id.name).is_some_and(Option::is_some)
        } else {
            self.object(id).is_some()
        }
    }

    /// Returns the Machines that refer to a Datacenter.
    pub fn members(&self, datacenter: &ObjectName) -> impl Iterator<Item = &Machine> {
        self.machines.iter().filter(move |machine| datacenter_of(machine).as_ref() == Some(datacenter))
    }

    /// Returns the Machines that are placed on a provider.
    pub fn placed_on(&self, provider: &ObjectName) -> impl Iterator<Item = &Machine> {
        self.machines
            .iter()
            .filter(move |machine| placement(machine).is_some_and(|at| at.provider() == Some(provider)))
    }

    /// Returns the Machines that may have a backing machine on a provider, by name.
    pub(crate) fn occupants(&self, provider: &ObjectName) -> Vec<ObjectName> {
        let mut names: Vec<ObjectName> = self
            .placed_on(provider)
            .filter(|machine| may_have_backing_machine(&machine.metadata))
            .map(ObjectName::of)
            .collect();
        names.sort();
        names
    }

    /// Returns the providers that a Datacenter lists, each with the object if it exists.
    pub fn listed_providers<'a>(
        &'a self,
        datacenter: &'a Datacenter,
    ) -> impl Iterator<Item = (&'a ProviderReference, Option<&'a MachineProvider>)> {
        let own = datacenter.metadata.namespace.as_deref().unwrap_or_default();
        let references = datacenter.spec.machine_providers.iter();
        references.map(move |reference| (reference, self.provider(&reference.resolve(own))))
    }

    /// Returns what a Machine uses, or why that is not known.
    pub(crate) fn usage(&self, machine: &Machine) -> Result<Usage, Refusal> {
        usage_of(machine, machine.spec.template.as_deref().and_then(|name| self.class(name)))
    }

    /// Returns the desired state of a Machine, or what has to change first. A Secret that was not read counts as one that
    /// has the key.
    pub(crate) fn desired(&self, machine: &Machine) -> Result<Desired, Refusal> {
        resolve(machine, &self.references(machine))
    }

    /// Returns everything that has to change before a Machine has a desired state.
    pub(crate) fn problems(&self, machine: &Machine) -> Vec<Refusal> {
        problems(machine, &self.references(machine))
    }

    /// The objects that a Machine refers to.
    fn references(&self, machine: &Machine) -> References {
        let own = machine.metadata.namespace.as_deref().unwrap_or_default();
        let spec = &machine.spec;
        let networks = spec.networks.iter().filter_map(|interface| {
            let name = &interface.network_name;
            Some((name.clone(), self.network(&ObjectName::new(own, name))?.clone()))
        });

        References {
            class: spec.template.as_deref().and_then(|name| self.class(name)).cloned(),
            networks: networks.collect(),
            secret: self.first_boot_secret(machine),
        }
    }

    /// Whether a Namespace permits references from another. Namespaces that were not read permit them.
    #[must_use]
    pub fn permits(&self, target: &str, from: &str) -> bool {
        let Some(namespaces) = &self.namespaces else { return true };
        namespaces.get(target).is_some_and(|metadata| permits(metadata, from))
    }

    /// Checks that a provider may act for a Machine where it creates machines. Namespaces that were not read permit it.
    pub fn check_namespace(&self, machine: &Machine, provider: &MachineProvider) -> Result<(), Refusal> {
        let Some(namespaces) = &self.namespaces else { return Ok(()) };
        let metadata = provider.spec.own_cluster_namespace().and_then(|name| namespaces.get(name));
        check_namespace(machine, provider, metadata, &self.watched())
    }

    /// The keys of the Secret that a Machine's cloud-init refers to, without their contents.
    fn first_boot_secret(&self, machine: &Machine) -> Option<BTreeMap<String, Redacted<String>>> {
        let key = &machine.spec.cloud_init.as_ref()?.secret_ref.as_ref()?.key;
        let secret = secret_of_machine(machine)?;
        let keys = match self.secrets.get(&secret) {
            Some(keys) => keys.clone()?,
            None => [key.clone()].into(),
        };
        Some(keys.into_iter().map(|key| (key, Redacted::new(String::new()))).collect())
    }

    /// Returns everything that the plan of a Datacenter depends on.
    pub(crate) fn datacenter_snapshot<'a>(&'a self, datacenter: &'a Datacenter) -> datacenter::Snapshot<'a> {
        let own = ObjectName::of(datacenter);
        let members = self.members(&own).map(|machine| Member { machine, usage: self.usage(machine) });

        let watched = self.watched();
        let mut candidates: Vec<Candidate> = self
            .listed_providers(datacenter)
            .map(|(reference, provider)| candidate(datacenter, reference, provider, &watched))
            .collect();
        for candidate in &mut candidates {
            let name = candidate.name.clone();
            let others =
                self.placed_on(&name).filter(|machine| datacenter_of(machine).as_ref() != Some(&own));
            for machine in others {
                candidate.count(machine, self.usage(machine).unwrap_or(Usage::ONE_MACHINE));
            }
        }

        datacenter::Snapshot { datacenter, members: members.collect(), candidates, now: self.now }
    }

    /// Whether the operators' own cluster hosts Machines while the platform has no MachineProvider. A lease does not say so:
    /// only
    /// a Machine that is there does, or one that was refused.
    pub(crate) fn own_cluster(&self) -> OwnCluster {
        if !has_platform_provider(&self.providers) && self.machines.iter().any(lacks_default_provider) {
            return OwnCluster::NotOffered;
        }
        let is_hosted =
            |machine: &Machine| placement(machine) == Some(Placement::OwnCluster) && has_finalizer(machine);
        if self.machines.iter().any(is_hosted) { OwnCluster::Offered } else { OwnCluster::Unknown }
    }

    /// Returns the objects that decide how an object fares: itself, and for a Machine that is not ready its Datacenter and
    /// the providers that come into question.
    #[must_use]
    pub fn related(&self, id: &ObjectId) -> Vec<ObjectId> {
        let mut related = vec![id.clone()];
        match self.object(id) {
            Some(InventoryObject::Datacenter(datacenter)) => related.extend(listed_ids(datacenter)),
            Some(InventoryObject::Machine(machine)) if !is_ready(machine) => {
                let datacenter = datacenter_of(machine);
                related.extend(datacenter.clone().map(|name| ObjectId::new("Datacenter", name)));
                related.extend(self.provider_candidates(machine));
            }
            _ => {}
        }
        related
    }

    /// The providers that host a Machine or could do so.
    fn provider_candidates(&self, machine: &Machine) -> Vec<ObjectId> {
        let named = placement(machine).and_then(|placement| placement.provider().cloned());
        if let Some(name) = named.or_else(|| provider_of(machine)) {
            return vec![ObjectId::new("MachineProvider", name)];
        }
        match datacenter_of(machine) {
            Some(name) => self.datacenter(&name).map(listed_ids).unwrap_or_default(),
            None => self.providers.iter().filter(|provider| is_default(provider)).map(ObjectId::of).collect(),
        }
    }

    /// Returns the Secrets that these Machines and MachineProviders refer to.
    #[must_use]
    pub fn secrets_needed(&self, objects: &[ObjectId]) -> BTreeSet<ObjectName> {
        let secret = |id: &ObjectId| match self.object(id)? {
            InventoryObject::Machine(machine) => secret_of_machine(machine),
            InventoryObject::MachineProvider(provider) => secret_of_provider(provider),
            _ => None,
        };
        objects.iter().filter_map(secret).collect()
    }
}

/// The ids of the providers that a Datacenter lists.
fn listed_ids(datacenter: &Datacenter) -> Vec<ObjectId> {
    let own = datacenter.metadata.namespace.as_deref().unwrap_or_default();
    let references = datacenter.spec.machine_providers.iter();
    references.map(|reference| ObjectId::new("MachineProvider", reference.resolve(own))).collect()
}

/// The Secret that a Machine's cloud-init refers to.
pub(crate) fn secret_of_machine(machine: &Machine) -> Option<ObjectName> {
    let own = machine.metadata.namespace.as_deref().unwrap_or_default();
    Some(ObjectName::new(own, &machine.spec.cloud_init.as_ref()?.secret_ref.as_ref()?.name))
}

/// The Secret that a provider's credentials refer to.
pub(crate) fn secret_of_provider(provider: &MachineProvider) -> Option<ObjectName> {
    let own = provider.metadata.namespace.as_deref().unwrap_or_default();
    Some(ObjectName::new(own, &provider.spec.credentials.as_ref()?.secret_ref.name))
}

/// The Ready condition of a Machine, if it was reported of the spec as it is now.
pub(crate) fn current_ready(machine: &Machine) -> Option<&Condition> {
    let status = machine.status.as_ref()?;
    let is_current = status.observed_generation >= machine.metadata.generation;
    conditions::find(&status.conditions, conditions::READY).filter(|_| is_current)
}

/// Whether a Machine is reported to match its spec as it is now.
pub(crate) fn is_ready(machine: &Machine) -> bool {
    machine.metadata.deletion_timestamp.is_none()
        && current_ready(machine).is_some_and(|ready| ready.status == "True")
}

/// Whether the operators report that a Machine, as it is now, has no default provider.
pub(crate) fn lacks_default_provider(machine: &Machine) -> bool {
    current_ready(machine).is_some_and(|ready| ready.reason == reason::NO_DEFAULT_PROVIDER)
}
