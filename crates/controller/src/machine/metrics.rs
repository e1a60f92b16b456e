//! The metrics of a machine operator, by the names that the specification gives them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex},
};

use jiff::SignedDuration;
use kube::runtime::reflector::ObjectRef;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{counter::Counter, family::Family, gauge::ConstGauge, histogram::Histogram},
    registry::Registry,
};
use vitistack_plan::machine::Power;
use vitistack_runtime::{Cache, lock};
use vitistack_types::{
    conditions::{self, NETWORK_READY, READY, STORAGE_READY, reason},
    v1alpha1::{Machine, MachineStatus},
};

use super::load::Turn;
use crate::Caches;

/// Upper bounds of the buckets for storage, in seconds: from immediate to an image that is copied over a slow link.
const STORAGE_BUCKETS: [f64; 10] = [0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0];

/// The maximum number of values of a label. The names come from tenants, and every value is a series to store.
const VALUES: usize = 200;
/// Stands for all further values.
const OTHER: &str = "other";

/// The values that a label has taken. Clones share them.
#[derive(Clone, Debug, Default)]
struct Values(Arc<Mutex<BTreeSet<String>>>);

impl Values {
    /// Returns the value, or [`OTHER`] once there are too many.
    fn bound(&self, value: &str) -> String {
        let mut known = lock(&self.0);
        if known.len() < VALUES && !known.contains(value) {
            known.insert(value.to_owned());
        }
        if known.contains(value) { value.to_owned() } else { OTHER.to_owned() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StorageLabel {
    storage_class: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NetworkLabel {
    network_name: String,
}

/// The metrics of one operator. Clones share them.
#[derive(Clone)]
pub(super) struct Metrics {
    storage: Family<StorageLabel, Histogram>,
    network_errors: Family<NetworkLabel, Counter>,
    storage_classes: Values,
    networks: Values,
    managed: Managed,
}

/// The Machines that the operator manages, and the power state of their backing machines.
type Managed = Arc<Mutex<HashMap<ObjectRef<Machine>, Option<&'static str>>>>;

impl Metrics {
    /// Registers the metrics in a registry that already has the operator's prefix.
    pub(super) fn register(registry: &mut Registry, caches: &Caches) -> Self {
        let metrics = Self {
            storage: Family::new_with_constructor(|| Histogram::new(STORAGE_BUCKETS)),
            network_errors: Family::default(),
            storage_classes: Values::default(),
            networks: Values::default(),
            managed: Arc::default(),
        };
        registry.register(
            "storage_provisioning_duration_seconds",
            "Time from the creation of a Machine until all its disks are ready",
            metrics.storage.clone(),
        );
        registry.register(
            "network_configuration_errors",
            "Machines that could not be attached to a network",
            metrics.network_errors.clone(),
        );
        let counts = Counts {
            machines: caches.machines.clone(),
            managed: Arc::clone(&metrics.managed),
            templates: Values::default(),
        };
        registry.register_collector(Box::new(counts));
        metrics
    }

    /// Records what a reconcile observed of a Machine. `after` is the status that it writes, if any.
    pub(super) fn record(&self, turn: &Turn, after: Option<&MachineStatus>) {
        let machine = &turn.machine;
        let backing = turn.observed.as_ref().ok().and_then(|observed| observed.machine.as_ref());
        let state = backing.map(|backing| match backing.power {
            Power::Starting => "Starting",
            Power::Running => "Running",
            Power::Stopping => "Stopping",
            Power::Stopped => "Stopped",
            Power::Failing(_) => "Failing",
        });
        lock(&self.managed).insert(ObjectRef::from_obj(machine), state);

        if let Some(after) = after {
            let before = machine.status.clone().unwrap_or_default();
            self.record_storage(turn, &before, after);
            self.record_network_errors(machine, &before, after);
        }
    }

    /// Observes how long the disks took, when they became ready.
    fn record_storage(&self, turn: &Turn, before: &MachineStatus, after: &MachineStatus) {
        let Ok(desired) = &turn.desired else { return };
        let was_pending = is_true(before, STORAGE_READY) != Some(true);
        if !was_pending || is_true(after, STORAGE_READY) != Some(true) {
            return;
        }

        let started = conditions::find(&before.conditions, STORAGE_READY)
            .map(|condition| condition.last_transition_time.0)
            .or(turn.machine.metadata.creation_timestamp.as_ref().map(|time| time.0));
        let took = started.map_or(SignedDuration::ZERO, |started| turn.now.duration_since(started));
        for disk in &desired.disks {
            let storage_class =
                self.storage_classes.bound(disk.storage_class.as_deref().unwrap_or("default"));
            self.storage.get_or_create(&StorageLabel { storage_class }).observe(took.as_secs_f64().max(0.0));
        }
    }

    /// Counts the networks of a Machine that could not be attached.
    fn record_network_errors(&self, machine: &Machine, before: &MachineStatus, after: &MachineStatus) {
        let is_missing = |status: &MachineStatus| {
            conditions::find(&status.conditions, READY)
                .is_some_and(|ready| ready.reason == reason::NETWORK_CONFIGURATION_NOT_FOUND)
        };
        let has_failed = |status: &MachineStatus| is_true(status, NETWORK_READY) == Some(false);
        let is_new_error =
            has_failed(after) && !has_failed(before) || is_missing(after) && !is_missing(before);
        if !is_new_error {
            return;
        }

        for interface in &machine.spec.networks {
            let network_name = self.networks.bound(&interface.network_name);
            self.network_errors.get_or_create(&NetworkLabel { network_name }).inc();
        }
    }

    /// Forgets a Machine that the operator does not manage any more.
    pub(super) fn forget(&self, machine: &Machine) {
        lock(&self.managed).remove(&ObjectRef::from_obj(machine));
    }
}

/// Whether a condition is true; absent if the condition is.
fn is_true(status: &MachineStatus, type_: &str) -> Option<bool> {
    conditions::find(&status.conditions, type_).map(|condition| condition.status == "True")
}

/// Counts when it is collected, so that nothing has to be kept in sync.
struct Counts {
    machines: Cache<Machine>,
    managed: Managed,
    templates: Values,
}

impl fmt::Debug for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Counts").finish_non_exhaustive()
    }
}

impl Collector for Counts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut phases: BTreeMap<(String, String), i64> = BTreeMap::new();
        let mut states: BTreeMap<&'static str, i64> = BTreeMap::new();
        lock(&self.managed).retain(|key, state| {
            let Some(machine) = self.machines.get(key) else { return false };
            let phase = machine.status.as_ref().and_then(|status| status.phase);
            let phase = phase.map_or_else(|| "Pending".to_owned(), |phase| format!("{phase:?}"));
            let template = self.templates.bound(machine.spec.template.as_deref().unwrap_or_default());
            *phases.entry((phase, template)).or_default() += 1;
            if let Some(state) = state {
                *states.entry(state).or_default() += 1;
            }
            true
        });
        let mut family = encoder.encode_descriptor(
            "machines_total",
            // sentence: allow, the help text of a metric
            "Total machines by phase",
            None,
            prometheus_client::metrics::MetricType::Gauge,
        )?;
        for ((phase, template), count) in phases {
            let labels = [("phase", phase), ("template", template)];
            ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "virtual_machines_total",
            // sentence: allow, the help text of a metric
            "Backing machines by power state",
            None,
            prometheus_client::metrics::MetricType::Gauge,
        )?;
        for (state, count) in states {
            ConstGauge::new(count).encode(family.encode_family(&[("status", state)])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_takes_a_limited_number_of_values() {
        let values = Values::default();
        for number in 0..VALUES {
            assert_eq!(values.bound(&number.to_string()), number.to_string());
        }
        assert_eq!(values.bound("one more"), OTHER);
        assert_eq!(values.bound("0"), "0", "known values keep their name");
    }
}
