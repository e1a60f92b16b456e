//! What every Machine of an inventory becomes, by the decisions that the operators would make.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use vitistack_types::{
    Amount, ObjectId, ObjectName, Placement, WatchedNamespaces,
    v1alpha1::{Datacenter, Machine, MachineProvider, ProviderType},
};

use crate::{
    Inventory, Refusal,
    datacenter::{MemberDecision, Usage, allocate, orphaned},
    inventory::OwnCluster,
    is_paused,
    machine::{
        Desired, Identity, Location, PlacementContext, datacenter_of, has_finalizer, identity, locate,
        placement, refusal_before_provider,
    },
    provider::price_of,
    refusals,
};

/// Where a Machine goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// It is there or goes there, with the sentence of its Datacenter if that decides it.
    At { placement: Placement, why: Option<String> },
    /// It is refused.
    Refused(Refusal),
    /// It waits; holds a sentence.
    Waiting(&'static str),
}

impl Destination {
    pub(super) fn placement(&self) -> Option<&Placement> {
        match self {
            Self::At { placement, .. } => Some(placement),
            Self::Refused(_) | Self::Waiting(_) => None,
        }
    }
}

/// The price of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) per_hour: Amount,
    pub(super) currency: String,
    size: String,
}

impl fmt::Display for Cost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} per hour (size {})", self.per_hour, self.currency, self.size)
    }
}

/// What one Machine becomes.
#[derive(Clone, Debug)]
pub(super) struct MachineForecast<'a> {
    pub(super) machine: &'a Machine,
    pub(super) desired: Result<Desired, Refusal>,
    pub(super) destination: Destination,
    pub(super) provider_type: Option<ProviderType>,
    pub(super) price: Option<Cost>,
}

/// What an inventory becomes.
pub(super) struct Forecast<'a> {
    inventory: &'a Inventory,
    /// What the Machines of each Datacenter use.
    pub(super) used: BTreeMap<ObjectId, (&'a Datacenter, Usage)>,
    decisions: BTreeMap<ObjectName, MemberDecision>,
    by_identity: BTreeMap<Identity, BTreeSet<ObjectName>>,
    providers: Vec<&'a MachineProvider>,
    datacenters: Vec<&'a Datacenter>,
    watched: WatchedNamespaces,
    own_cluster: OwnCluster,
}

impl<'a> Forecast<'a> {
    pub(super) fn new(inventory: &'a Inventory) -> Self {
        let mut used = BTreeMap::new();
        let mut decisions = BTreeMap::new();
        for datacenter in &inventory.datacenters {
            let allocation = allocate(&inventory.datacenter_snapshot(datacenter));
            let members = allocation.members.into_iter();
            decisions.extend(members.map(|(machine, decision)| (ObjectName::of(machine), decision)));
            used.insert(ObjectId::of(datacenter), (datacenter, allocation.used));
        }

        let mut by_identity: BTreeMap<Identity, BTreeSet<ObjectName>> = BTreeMap::new();
        for machine in &inventory.machines {
            by_identity.entry(identity(machine)).or_default().insert(ObjectName::of(machine));
        }

        Self {
            inventory,
            used,
            decisions,
            by_identity,
            providers: inventory.providers.iter().collect(),
            datacenters: inventory.datacenters.iter().collect(),
            watched: inventory.watched(),
            own_cluster: inventory.own_cluster(),
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = MachineForecast<'a>> {
        self.inventory.machines.iter().map(|machine| self.of(machine))
    }

    pub(super) fn of(&self, machine: &'a Machine) -> MachineForecast<'a> {
        let desired = self.inventory.desired(machine);
        let destination = self.permitted(machine, self.destination(machine, desired.as_ref()));

        let placement = destination.placement().cloned().or_else(|| placement(machine));
        let provider =
            placement.as_ref().and_then(Placement::provider).and_then(|name| self.inventory.provider(name));
        let provider_type = match (provider, placement) {
            (Some(provider), _) => Some(provider.spec.type_),
            (None, Some(Placement::OwnCluster)) => Some(ProviderType::OWN_CLUSTER),
            (None, _) => None,
        };
        let price =
            provider.zip(desired.as_ref().ok()).and_then(|(provider, desired)| cost(provider, desired));

        MachineForecast { machine, desired, destination, provider_type, price }
    }

    fn destination(&self, machine: &Machine, desired: Result<&Desired, &Refusal>) -> Destination {
        if machine.metadata.deletion_timestamp.is_some() {
            return Destination::Waiting("being deleted");
        }
        if is_paused(&machine.metadata) {
            return Destination::Waiting("paused: nothing is done until it is resumed");
        }
        if let Some(refusal) = refusal_before_provider(machine, desired, self.twin(machine)) {
            return Destination::Refused(refusal);
        }

        let is_hosted = placement(machine) == Some(Placement::OwnCluster);
        let context = PlacementContext {
            providers: &self.providers,
            datacenters: &self.datacenters,
            watched: &self.watched,
            is_own_cluster_offered: is_hosted || self.own_cluster != OwnCluster::NotOffered,
        };
        match locate(machine, &context) {
            Location::At(Placement::OwnCluster) if !is_hosted && self.own_cluster == OwnCluster::Unknown => {
                Destination::Waiting(
                    "the platform has no MachineProvider, and whether the cluster itself hosts Machines is not known",
                )
            }
            Location::At(placement) => {
                self.decided(machine).unwrap_or(Destination::At { placement, why: None })
            }
            Location::Refused(refusal) => Destination::Refused(refusal),
            Location::Unplaced => self.unplaced(machine),
        }
    }

    /// Refuses a destination whose provider may not act for the Machine where it creates machines, or is paused.
    fn permitted(&self, machine: &Machine, destination: Destination) -> Destination {
        let Some(placement) = destination.placement() else { return destination };
        let provider = placement.provider().and_then(|name| self.inventory.provider(name));
        let Some(provider) = provider else { return destination };

        let is_new = !has_finalizer(machine);
        match self.inventory.check_namespace(machine, provider) {
            Err(refusal) => Destination::Refused(refusal),
            Ok(()) if is_new && is_paused(&provider.metadata) => {
                Destination::Refused(refusals::provider_paused(placement))
            }
            Ok(()) => destination,
        }
    }

    /// Where a Machine goes that its Datacenter has to place.
    fn unplaced(&self, machine: &Machine) -> Destination {
        let Some(name) = datacenter_of(machine) else {
            return Destination::Waiting("waiting for an operator to place it");
        };
        match self.inventory.datacenter(&name) {
            None => Destination::Refused(orphaned(machine, &name, &self.watched)),
            Some(datacenter) if is_paused(&datacenter.metadata) => {
                Destination::Refused(refusals::datacenter_paused(&name))
            }
            Some(_) => self
                .decided(machine)
                .unwrap_or(Destination::Waiting("waiting for its Datacenter to place it")),
        }
    }

    /// Another Machine with the same identity: the first by name.
    fn twin(&self, machine: &Machine) -> Option<&ObjectName> {
        let own = ObjectName::of(machine);
        self.by_identity.get(&identity(machine))?.iter().find(|name| **name != own)
    }

    /// What its Datacenter decides about a Machine, if anything.
    fn decided(&self, machine: &Machine) -> Option<Destination> {
        match self.decisions.get(&ObjectName::of(machine))? {
            MemberDecision::Place(assignment) => {
                let placement = Placement::Provider(assignment.choice.provider.clone());
                Some(Destination::At { placement, why: Some(assignment.choice.why.clone()) })
            }
            MemberDecision::Withdraw(refusal)
            | MemberDecision::Refuse(refusal)
            | MemberDecision::Hold(refusal) => Some(Destination::Refused(refusal.clone())),
            MemberDecision::Pause | MemberDecision::Admit(_) => None,
        }
    }
}

/// The price of a machine on a provider.
fn cost(provider: &MachineProvider, desired: &Desired) -> Option<Cost> {
    let size = price_of(&provider.spec, desired.cpu.total(), desired.memory.bytes())?;
    let price = size.price.as_ref()?;
    Some(Cost { per_hour: price.per_hour, currency: price.currency.clone(), size: size.name.clone() })
}
