//! How every Machine of a world stands, by the decisions that the operators would take.

use std::{collections::BTreeMap, fmt};

use vitistack_types::{
    Amount,
    conditions::reason,
    labels,
    v1alpha1::{Datacenter, Machine, MachineProvider, ProviderType},
};

use crate::{
    Refusal,
    datacenter::{Decision, Verdict, candidate, decide},
    explain::{
        World,
        datacenter::{named, providers, snapshot},
        machine::{blocked, desired},
        name, object,
        operators::{self, Acting},
    },
    is_paused,
    machine::{Desired, Location, Places, identity, locate, placement},
    provider::price_of,
};

/// Where a Machine is or goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    /// There, perhaps because of something.
    At { place: String, because: Option<String> },
    /// Nowhere, and nothing is done about it.
    Refused(Refusal),
    /// Nobody has decided, or nobody acts.
    Waits(&'static str),
}

impl Placed {
    pub(super) fn place(&self) -> Option<&String> {
        match self {
            Self::At { place, .. } => Some(place),
            Self::Refused(_) | Self::Waits(_) => None,
        }
    }
}

/// What a Machine costs.
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

/// How a Machine stands.
#[derive(Clone, Debug)]
pub(super) struct Standing<'a> {
    pub(super) desired: Result<Desired, Refusal>,
    pub(super) placed: Placed,
    pub(super) provider_type: Option<ProviderType>,
    pub(super) price: Option<Cost>,
    pub(super) machine: &'a Machine,
}

/// The place in words.
pub(super) fn title(place: &str) -> String {
    if place == labels::OWN_CLUSTER {
        "the cluster itself".to_owned()
    } else {
        format!("MachineProvider {place}")
    }
}

/// A world and what is decided in it.
pub(super) struct Outlook<'a> {
    pub(super) world: &'a World,
    /// What is decided about each Datacenter that is not paused, by its name.
    pub(super) decisions: BTreeMap<String, (&'a Datacenter, Decision<'a>)>,
    verdicts: BTreeMap<String, Verdict>,
    by_identity: BTreeMap<String, Vec<&'a Machine>>,
    all_providers: Vec<&'a MachineProvider>,
    all_datacenters: Vec<&'a Datacenter>,
    is_own_cluster_offered: bool,
}

impl<'a> Outlook<'a> {
    pub(super) fn new(world: &'a World) -> Self {
        let mut decisions = BTreeMap::new();
        let mut verdicts = BTreeMap::new();
        for datacenter in &world.datacenters {
            let found = providers(datacenter, world);
            let candidates =
                found.into_iter().map(|(reference, found)| candidate(datacenter, reference, found)).collect();
            let decision = decide(&snapshot(datacenter, candidates, world));
            for (machine, verdict) in &decision.verdicts {
                verdicts.insert(name(&machine.metadata), verdict.clone());
            }
            decisions.insert(object("Datacenter", &datacenter.metadata), (datacenter, decision));
        }
        let mut by_identity: BTreeMap<String, Vec<&Machine>> = BTreeMap::new();
        for machine in &world.machines {
            by_identity.entry(identity(machine).as_str().to_owned()).or_default().push(machine);
        }
        Self {
            world,
            decisions,
            verdicts,
            by_identity,
            all_providers: world.providers.iter().collect(),
            all_datacenters: world.datacenters.iter().collect(),
            is_own_cluster_offered: matches!(operators::acting(labels::OWN_CLUSTER, world), Acting::Yes(_)),
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Standing<'a>> {
        self.world.machines.iter().map(|machine| self.of(machine))
    }

    pub(super) fn of(&self, machine: &'a Machine) -> Standing<'a> {
        let wanted = desired(machine, self.world);
        let placed = self.placed(machine, wanted.as_ref());
        let place = placed.place().map(String::as_str).or_else(|| placement(machine));
        let provider =
            self.all_providers.iter().find(|provider| Some(name(&provider.metadata).as_str()) == place);
        let provider_type = match (provider, place) {
            (Some(provider), _) => Some(provider.spec.type_),
            (None, Some(labels::OWN_CLUSTER)) => Some(ProviderType::Kubevirt),
            _ => None,
        };
        let price = provider.zip(wanted.as_ref().ok()).and_then(|(provider, wanted)| {
            let size = price_of(&provider.spec, wanted.cpu.total(), wanted.memory.bytes())?;
            let price = size.price.as_ref()?;
            let currency = price.currency.clone();
            Some(Cost { per_hour: price.per_hour, currency, size: size.name.clone() })
        });
        Standing { desired: wanted, placed, provider_type, price, machine }
    }

    fn placed(&self, machine: &Machine, wanted: Result<&Desired, &Refusal>) -> Placed {
        if machine.metadata.deletion_timestamp.is_some() {
            return Placed::Waits("it is being deleted");
        }
        if is_paused(&machine.metadata) {
            return Placed::Waits("it is paused: nothing is done until it is resumed");
        }
        let twins = self.by_identity.get(identity(machine).as_str());
        let twin = twins.into_iter().flatten().find(|other| other.metadata.uid != machine.metadata.uid);
        let twin = twin.map(|twin| name(&twin.metadata));
        if let Some(refusal) = blocked(machine, wanted, twin.as_deref()) {
            return Placed::Refused(refusal);
        }
        let places = Places {
            providers: &self.all_providers,
            datacenters: &self.all_datacenters,
            is_own_cluster_offered: self.is_own_cluster_offered
                || placement(machine) == Some(labels::OWN_CLUSTER),
        };
        match locate(machine, &places) {
            Location::At(place) => self.decided(machine).unwrap_or(Placed::At { place, because: None }),
            Location::Nowhere(refusal) => Placed::Refused(refusal),
            Location::Undecided => match named(machine, self.world) {
                None => Placed::Waits("it waits for an operator to place it"),
                Some(Err(refusal)) => Placed::Refused(refusal),
                Some(Ok(datacenter)) if is_paused(&datacenter.metadata) => Placed::Refused(Refusal::new(
                    reason::PAUSED,
                    format!(
                        "{} is paused and places nothing: resume it",
                        object("Datacenter", &datacenter.metadata)
                    ),
                )),
                Some(Ok(_)) => {
                    self.decided(machine).unwrap_or(Placed::Waits("it waits for its Datacenter to place it"))
                }
            },
        }
    }

    /// What its Datacenter decides about it, if anything.
    fn decided(&self, machine: &Machine) -> Option<Placed> {
        match self.verdicts.get(&name(&machine.metadata))? {
            Verdict::Place(assignment) => {
                let place = assignment.placement.provider.clone();
                Some(Placed::At { place, because: Some(assignment.placement.why.clone()) })
            }
            Verdict::Withdraw(refusal) | Verdict::Refuse(refusal) => Some(Placed::Refused(refusal.clone())),
            Verdict::Pause => None,
        }
    }
}
