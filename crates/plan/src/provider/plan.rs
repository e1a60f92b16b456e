//! The plan for one provider: finalizer, status, events and when to reconcile again.

use std::fmt;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use vitistack_types::{
    ObjectName, Outcome, WatchedNamespaces, labels,
    v1alpha1::{MachineProvider, MachineProviderStatus},
};

use super::{Circuit, Health, status::status};
use crate::{
    Plan, Refusal,
    conditions::{OF_PROVIDERS, owned},
    datacenter::Usage,
    events, is_paused,
    machine::is_default,
};

/// Everything that was read of one provider.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// The MachineProvider.
    pub provider: &'a MachineProvider,
    /// Whether its credentials can be used; absent if it has none.
    pub credentials: Option<Result<(), Refusal>>,
    /// The result of its checks.
    pub health: &'a Health,
    /// What the machines placed on it use.
    pub used: Usage,
    /// The Machines that may have a backing machine on it.
    pub occupants: &'a [ObjectName],
    /// The namespaces whose Machines are known.
    pub watched: &'a WatchedNamespaces,
    /// The time.
    pub now: Timestamp,
}

/// One step for a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Add the finalizer, which keeps the provider while machines are on it.
    AddFinalizer,
    /// Confirm that no machine is on it, clean up what belongs to it, and remove the finalizer.
    Release,
    /// Check whether it answers, if a check is due.
    Check,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::AddFinalizer => "Adding the finalizer",
            Self::Release => "Removing the finalizer: no machine is on the provider",
            Self::Check => "Checking the provider",
        })
    }
}

impl Serialize for Step {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The plan for one provider.
pub type ProviderPlan = Plan<Step, MachineProviderStatus>;

/// Plans one provider.
#[must_use]
pub fn plan(snapshot: &Snapshot<'_>) -> ProviderPlan {
    let provider = snapshot.provider;
    let steps = steps(snapshot);

    // The first check is in progress: there is nothing to report before its result.
    let is_first_check = steps.contains(&Step::Check) && snapshot.health.circuit == Circuit::Unknown;
    let status = if is_first_check { None } else { status(snapshot) };
    let before = provider.status.as_ref();
    let before = before.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let events =
        status.iter().filter_map(|after| events::of_ready(before, &after.conditions, false)).collect();

    Plan { objects: Vec::new(), steps, status, events, requeue: Outcome::Done }
}

fn steps(snapshot: &Snapshot<'_>) -> Vec<Step> {
    let metadata = &snapshot.provider.metadata;
    if is_paused(metadata) {
        return Vec::new();
    }
    let mut finalizers = metadata.finalizers.iter().flatten();
    let has_finalizer = finalizers.any(|finalizer| finalizer == labels::PROVIDER_IN_USE);
    let is_usable = !matches!(snapshot.credentials, Some(Err(_)));
    match (metadata.deletion_timestamp.is_some(), has_finalizer) {
        (false, false) => vec![Step::AddFinalizer],
        (false, true) if is_usable => vec![Step::Check],
        (true, true) if snapshot.occupants.is_empty() && unknown_users(snapshot).is_none() => {
            vec![Step::Release]
        }
        (false, true) | (true, _) => Vec::new(),
    }
}

/// Returns the annotation by which Machines in namespaces that are not watched may be on the provider, which are not among
/// its occupants.
pub(super) fn unknown_users(snapshot: &Snapshot<'_>) -> Option<&'static str> {
    let metadata = &snapshot.provider.metadata;
    let is_platform_default =
        metadata.namespace.as_deref() == Some(labels::SYSTEM_NAMESPACE) && is_default(snapshot.provider);
    let annotations = metadata.annotations.as_ref();
    let allowed = annotations.and_then(|annotations| annotations.get(labels::ALLOW_REFERENCES_FROM));
    let mut allowed = allowed.into_iter().flat_map(|names| names.split(',')).map(str::trim);

    snapshot.watched.listed()?;
    if is_platform_default {
        Some(labels::IS_DEFAULT_PROVIDER)
    } else {
        let is_unknown = |name: &str| !name.is_empty() && !snapshot.watched.contains(name);
        allowed.any(is_unknown).then_some(labels::ALLOW_REFERENCES_FROM)
    }
}

/// Whether a new status differs from the last one only in its totals, which change with every machine.
#[must_use]
pub fn only_totals_changed(provider: &MachineProvider, after: &MachineProviderStatus) -> bool {
    let without_totals = |status: &MachineProviderStatus| MachineProviderStatus {
        used: None,
        conditions: owned(&status.conditions, OF_PROVIDERS),
        ..status.clone()
    };
    let before = provider.status.as_ref();
    before.is_some_and(|before| without_totals(before) == without_totals(after))
}
