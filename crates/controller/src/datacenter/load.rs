//! Reading: a datacenter, its providers, its machines and those that share its providers.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use kube::{Api, Client, api::ListParams, core::DeserializeGuard};
use tokio::time::Instant;
use vitistack_clients::kubernetes::explain;
use vitistack_plan::{
    Refusal,
    datacenter::{Candidate, Member, Snapshot, Usage, candidate},
    machine::placement,
};
use vitistack_runtime::ReconcileError;
use vitistack_types::v1alpha1::{Datacenter, Machine};

use super::assumed::Assumed;
use crate::caches::{Caches, datacenter_of, name_of, reference};

/// So many Machines are read at a time.
const PAGE: u32 = 500;

/// What was read of one datacenter.
pub(super) struct Loaded {
    members: Vec<(Arc<Machine>, Result<Usage, Refusal>)>,
    pub(super) candidates: Vec<Candidate>,
    /// Whether a Machine counts that the cache does not show: either not yet, or no more.
    pub(super) is_ahead: bool,
}

impl Loaded {
    pub(super) fn snapshot<'a>(&'a self, datacenter: &'a Datacenter, now: jiff::Timestamp) -> Snapshot<'a> {
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

/// Reads from the caches and from what is newer than they are. Nothing is sent.
pub(super) fn load(caches: &Caches, assumed: &mut Assumed, datacenter: &Datacenter) -> Loaded {
    let name = name_of(datacenter);
    let mut seen = HashSet::new();
    let mut members = Vec::new();
    let mut others = Vec::new();
    let mut candidates: Vec<Candidate> = datacenter
        .spec
        .machine_providers
        .iter()
        .map(|each| {
            let mut found = candidate(datacenter, each, None);
            if let Some(provider) = reference(&found.name).and_then(|key| caches.providers.get(&key)) {
                found = candidate(datacenter, each, Some(&provider));
            }
            found
        })
        .collect();
    let of_datacenter = caches.machines_by_datacenter.get(&name);
    let of_providers = candidates.iter().flat_map(|each| caches.machines_by_placement.get(&each.name));
    let known = of_datacenter.into_iter().chain(of_providers).filter_map(|key| caches.machines.get(&key));
    // The order matters: looking a Machine up forgets what the cache has caught up with.
    let known: Vec<Arc<Machine>> = known.map(|machine| assumed.newest(machine)).collect();
    let mut is_ahead = false;
    let shown = known.len();
    for (number, machine) in known.into_iter().chain(assumed.all(Instant::now())).enumerate() {
        if !seen.insert(machine.metadata.uid.clone()) {
            continue;
        }
        is_ahead |= number >= shown;
        let usage = caches.usage(&machine);
        if datacenter_of(&machine).as_deref() == Some(&name) {
            members.push((machine, usage));
        } else {
            others.push((machine, usage));
        }
    }
    let mut by_name: HashMap<String, &mut Candidate> =
        candidates.iter_mut().map(|each| (each.name.clone(), each)).collect();
    for (machine, usage) in &others {
        if let Some(candidate) = placement(machine).and_then(|name| by_name.get_mut(name)) {
            let least = Usage { machines: 1, ..Usage::default() };
            candidate.count(machine, usage.as_ref().copied().unwrap_or(least));
        }
    }
    Loaded { members, candidates, is_ahead }
}

/// Every Machine as the server has it now.
pub(super) async fn live(client: &Client) -> Result<Vec<Machine>, ReconcileError> {
    // Behind the guard one Machine that cannot be read does not hide the others.
    let api: Api<DeserializeGuard<Machine>> = Api::all(client.clone());
    let mut parameters = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = api.list(&parameters).await.map_err(|error| {
            ReconcileError::new("ListMachines", format!("failed to list Machines: {}", explain(&error)))
        })?;
        all.extend(page.items.into_iter().filter_map(|guarded| guarded.0.ok()));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(all),
        }
    }
}
