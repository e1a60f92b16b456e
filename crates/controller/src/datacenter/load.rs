//! Reads a datacenter, its providers, its machines and those that share its providers.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use jiff::Timestamp;
use kube::{api::ListParams, core::DeserializeGuard};
use snafu::ResultExt;
use vitistack_plan::{
    Refusal,
    datacenter::{Candidate, Member, Snapshot, Usage, candidate},
    machine::{datacenter_of, placement},
};
use vitistack_types::{
    ObjectName, Placement,
    v1alpha1::{Datacenter, Machine},
};

use crate::{
    caches::Caches,
    error::{Error, ListMachinesSnafu},
};

/// How many Machines are listed at a time.
const PAGE: u32 = 500;

/// Machines that are about to be written, by UID: what this process decided counts before the server has it, so that
/// Datacenters that share a provider do not fill it twice.
#[derive(Default)]
pub(super) struct Intentions(HashMap<String, Arc<Machine>>);

impl Intentions {
    /// Counts with a write that is about to be made.
    pub(super) fn add(&mut self, machine: Machine) {
        self.0.insert(machine.metadata.uid.clone().unwrap_or_default(), Arc::new(machine));
    }

    /// Ends the intention for a Machine: it was written, or will not be.
    pub(super) fn remove(&mut self, uid: Option<&str>) {
        self.0.remove(uid.unwrap_or_default());
    }

    /// Ends the intentions of a Datacenter whose writes may or may not have been made.
    pub(super) fn remove_of(&mut self, datacenter: &ObjectName) {
        self.0.retain(|_, machine| datacenter_of(machine).as_ref() != Some(datacenter));
    }

    /// The Machine as it is about to be, otherwise as it is.
    fn apply(&self, machine: Arc<Machine>) -> Arc<Machine> {
        let uid = machine.metadata.uid.as_deref().unwrap_or_default();
        self.0.get(uid).map_or(machine, Arc::clone)
    }
}

/// What was read of one datacenter.
pub(super) struct Loaded {
    members: Vec<(Arc<Machine>, Result<Usage, Refusal>)>,
    candidates: Vec<Candidate>,
    /// Whether a Machine counts that the watch does not show: either not yet, or no more.
    pub(super) is_ahead: bool,
}

impl Loaded {
    pub(super) fn snapshot<'a>(&'a self, datacenter: &'a Datacenter, now: Timestamp) -> Snapshot<'a> {
        let member =
            |(machine, usage): &'a (Arc<Machine>, _)| Member { machine, usage: Result::clone(usage) };
        Snapshot {
            datacenter,
            members: self.members.iter().map(member).collect(),
            candidates: self.candidates.clone(),
            now,
        }
    }
}

/// Reads from the caches, which show what this process wrote. Nothing is sent.
pub(super) fn load(caches: &Caches, intentions: &Intentions, datacenter: &Datacenter) -> Loaded {
    let own = ObjectName::of(datacenter);
    let mut candidates: Vec<Candidate> = datacenter
        .spec
        .machine_providers
        .iter()
        .map(|listed| {
            let provider = caches.provider(&listed.resolve(&own.namespace));
            candidate(datacenter, listed, provider.as_deref(), &caches.watched)
        })
        .collect();

    // Indexes follow the watch, so Machines that were written since are added.
    let of_datacenter = caches.machines_by_datacenter.get(&own).into_iter();
    let of_datacenter = of_datacenter.filter_map(|key| caches.machines.get(&key));
    let of_providers = candidates
        .iter()
        .flat_map(|candidate| caches.machines_on(&Placement::Provider(candidate.name.clone())));
    let mut seen = HashSet::new();
    let (members, others): (Vec<_>, Vec<_>) = of_datacenter
        .chain(of_providers)
        .chain(caches.machines.ahead())
        .filter(|machine| seen.insert(machine.metadata.uid.clone()))
        .map(|machine| intentions.apply(machine))
        .map(|machine| (Arc::clone(&machine), caches.usage(&machine)))
        .partition(|(machine, _)| datacenter_of(machine).as_ref() == Some(&own));

    let mut by_name: HashMap<ObjectName, &mut Candidate> =
        candidates.iter_mut().map(|candidate| (candidate.name.clone(), candidate)).collect();
    for (machine, _) in &others {
        let placement = placement(machine);
        let provider = placement.as_ref().and_then(Placement::provider);
        if let Some(candidate) = provider.and_then(|name| by_name.get_mut(name)) {
            candidate.count(machine, caches.hosted_usage(machine));
        }
    }

    Loaded { members, candidates, is_ahead: !caches.machines.unshown().is_empty() }
}

/// Lists every Machine in the watched namespaces as the server has it now.
pub(super) async fn live(caches: &Caches) -> Result<Vec<Machine>, Error> {
    let mut all = Vec::new();
    // Behind the guard one Machine that cannot be decoded does not hide the others.
    for api in caches.apis::<DeserializeGuard<Machine>>() {
        let mut parameters = ListParams::default().limit(PAGE);
        loop {
            let page = api.list(&parameters).await.context(ListMachinesSnafu)?;
            all.extend(page.items.into_iter().filter_map(|guarded| guarded.0.ok()));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => break,
            }
        }
    }
    Ok(all)
}
