//! A provider of a datacenter, as it was found.

use std::collections::BTreeMap;

use vitistack_types::{
    WatchedNamespaces, conditions, labels,
    v1alpha1::{Datacenter, Machine, MachineProvider, ProviderReference},
};

use super::{Candidate, Fullness, Problem};
use crate::{Refusal, is_paused, machine::annotation, permits, refusals};

/// Resolves a Datacenter's reference to a provider. Nothing is counted as used yet.
#[must_use]
pub fn candidate(
    datacenter: &Datacenter,
    reference: &ProviderReference,
    provider: Option<&MachineProvider>,
    watched: &WatchedNamespaces,
) -> Candidate {
    let own = datacenter.metadata.namespace.as_deref().unwrap_or_default();
    let name = reference.resolve(own);
    let lasting = |refusal: Refusal| Some(Problem { refusal, is_temporary: false });
    let problem = match provider.filter(|provider| permits(&provider.metadata, own)) {
        _ if !watched.contains(&name.namespace) => lasting(refusals::candidate_not_watched(&name)),
        None => lasting(refusals::candidate_not_available(&name, own)),
        Some(provider) if provider.metadata.deletion_timestamp.is_some() => {
            lasting(refusals::candidate_deleting())
        }
        Some(provider) => not_accepting(provider).map(|refusal| Problem { refusal, is_temporary: true }),
    };

    Candidate {
        name,
        priority: reference.priority,
        problem,
        zones: provider.map(|provider| provider.spec.zones.clone()).unwrap_or_default(),
        capacity: provider.and_then(|provider| provider.spec.capacity.clone()),
        full: provider.map(Fullness::of).unwrap_or_default(),
        used: BTreeMap::new(),
    }
}

/// Why a provider does not accept machines now.
fn not_accepting(provider: &MachineProvider) -> Option<Refusal> {
    if is_paused(&provider.metadata) {
        return Some(refusals::candidate_paused());
    }
    let conditions = provider.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    match conditions::find(conditions, conditions::READY) {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(refusals::candidate_not_ready(&ready.message)),
        None => Some(refusals::candidate_not_ready("not reconciled yet")),
    }
}

/// Returns the zone of a placed Machine: the one that was chosen, otherwise the one that it asks for.
#[must_use]
pub fn zone_of(machine: &Machine) -> Option<&str> {
    annotation(machine, labels::ZONE).or(machine.spec.zone.as_deref())
}
