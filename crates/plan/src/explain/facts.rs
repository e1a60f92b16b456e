//! An inventory with what the explanations of many objects share, so that ten thousand cost little more than one.

use std::{cell::OnceCell, collections::BTreeMap};

use vitistack_types::{
    ObjectName, WatchedNamespaces,
    v1alpha1::{Datacenter, Machine, MachineProvider},
};

use crate::{
    Inventory, Refusal,
    datacenter::{Candidate, MemberDecision, allocate},
    inventory::OwnCluster,
    machine::{Identity, identity},
};

/// An inventory, and what is derived from all of it.
pub(super) struct Facts<'a> {
    /// The objects.
    pub(super) inventory: &'a Inventory,
    /// The namespaces that the operators watch.
    pub(super) watched: WatchedNamespaces,
    /// Every MachineProvider.
    pub(super) providers: Vec<&'a MachineProvider>,
    /// Every Datacenter.
    pub(super) datacenters: Vec<&'a Datacenter>,
    /// Whether the operators' own cluster hosts Machines.
    pub(super) own_cluster: OwnCluster,
    /// The Machines of each identity, by name.
    identities: BTreeMap<Identity, Vec<ObjectName>>,
    /// What each Datacenter decides, once it is asked for.
    decisions: BTreeMap<ObjectName, OnceCell<PlacementDecisions>>,
}

/// What a Datacenter decides about the Machines that refer to it.
pub(super) struct PlacementDecisions {
    /// The providers that it lists.
    pub(super) candidates: Vec<Candidate>,
    /// Why it does not place a Machine.
    pub(super) refusals: BTreeMap<ObjectName, Refusal>,
}

impl<'a> Facts<'a> {
    pub(super) fn new(inventory: &'a Inventory) -> Self {
        let mut identities: BTreeMap<Identity, Vec<ObjectName>> = BTreeMap::new();
        for machine in &inventory.machines {
            identities.entry(identity(machine)).or_default().push(ObjectName::of(machine));
        }
        for names in identities.values_mut() {
            names.sort();
        }

        let datacenters = inventory.datacenters.iter();
        Self {
            inventory,
            watched: inventory.watched(),
            providers: inventory.providers.iter().collect(),
            datacenters: datacenters.clone().collect(),
            own_cluster: inventory.own_cluster(),
            identities,
            decisions: datacenters.map(|each| (ObjectName::of(each), OnceCell::new())).collect(),
        }
    }

    /// Returns another Machine with the same identity: the first by name.
    pub(super) fn twin(&self, machine: &Machine) -> Option<&ObjectName> {
        let own = ObjectName::of(machine);
        self.identities.get(&identity(machine))?.iter().find(|name| **name != own)
    }

    /// Returns what a Datacenter of the inventory decides.
    pub(super) fn decisions(&self, datacenter: &Datacenter) -> Option<&PlacementDecisions> {
        let cell = self.decisions.get(&ObjectName::of(datacenter))?;
        Some(cell.get_or_init(|| {
            let snapshot = self.inventory.datacenter_snapshot(datacenter);
            let decided = allocate(&snapshot).members.into_iter();
            let refusals = decided.filter_map(|(member, decision)| match decision {
                MemberDecision::Refuse(refusal) | MemberDecision::Withdraw(refusal) => {
                    Some((ObjectName::of(member), refusal))
                }
                _ => None,
            });
            PlacementDecisions { refusals: refusals.collect(), candidates: snapshot.candidates }
        }))
    }
}
