//! A provider of a datacenter, as it was found.

use std::collections::BTreeMap;

use vitistack_types::{
    conditions, labels,
    v1alpha1::{Datacenter, Machine, MachineProvider, ProviderReference},
};

use super::{Candidate, Fullness, Problem};
use crate::{is_paused, machine::annotation, permits};

/// What a datacenter's reference to a provider leads to. Nothing of it is counted as used yet.
#[must_use]
pub fn candidate(
    datacenter: &Datacenter,
    reference: &ProviderReference,
    provider: Option<&MachineProvider>,
) -> Candidate {
    let own = datacenter.metadata.namespace.as_deref().unwrap_or_default();
    let name = format!("{}/{}", reference.namespace.as_deref().unwrap_or(own), reference.name);
    let lasting = |why: String| Some(Problem { why, is_temporary: false });
    let problem = match provider {
        None => lasting(
            "there is no such MachineProvider: create it, or remove it from spec.machineProviders".to_owned(),
        ),
        Some(provider) if !permits(&provider.metadata, own) => lasting(format!(
            "it does not allow references from namespace {own:?}: add it to the annotation {} of that MachineProvider",
            labels::ALLOW_REFERENCES_FROM
        )),
        Some(provider) if provider.metadata.deletion_timestamp.is_some() => {
            lasting("it is being deleted".to_owned())
        }
        Some(provider) => not_taking(provider).map(|why| Problem { why, is_temporary: true }),
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

/// Why a provider takes no machines now.
fn not_taking(provider: &MachineProvider) -> Option<String> {
    if is_paused(&provider.metadata) {
        return Some("it is paused".to_owned());
    }
    let told = provider.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    match told.iter().find(|condition| condition.type_ == conditions::READY) {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(format!("it is not ready: {}", ready.message)),
        None => Some("it is not ready: nobody has looked at it yet".to_owned()),
    }
}

/// The zone of a placed Machine: the one that was chosen, else the one that it asks for.
#[must_use]
pub fn zone_of(machine: &Machine) -> Option<&str> {
    annotation(machine, labels::ZONE).or(machine.spec.zone.as_deref())
}
