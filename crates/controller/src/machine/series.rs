//! The series of a machine operator, by the names that the specification gives them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::{SignedDuration, Timestamp};
use kube::runtime::reflector::ObjectRef;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{counter::Counter, family::Family, gauge::ConstGauge, histogram::Histogram},
    registry::Registry,
};
use vitistack_plan::machine::{Power, Snapshot, Verdict};
use vitistack_runtime::Cache;
use vitistack_types::{
    conditions::{NETWORK_READY, STORAGE_READY, reason},
    v1alpha1::{Machine, MachineStatus},
};

use crate::Caches;

/// Upper bounds of the buckets for storage, in seconds: from at once to an image that is copied over a slow line.
const STORAGE_BUCKETS: [f64; 10] = [0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0];

/// How many values a label may take. The names come from what tenants write, and every value is a series that whoever
/// collects them pays for.
const VALUES: usize = 200;
/// Stands for all values beyond those.
const OTHER: &str = "other";

/// The values that a label has taken. A clone is the same.
#[derive(Clone, Debug, Default)]
struct Values(Arc<Mutex<BTreeSet<String>>>);

impl Values {
    /// The value, or what stands for it once there are too many.
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

/// The series of one operator. A clone is the same series.
#[derive(Clone)]
pub(super) struct Series {
    storage: Family<StorageLabel, Histogram>,
    network_errors: Family<NetworkLabel, Counter>,
    storage_classes: Values,
    networks: Values,
    charge: Charge,
}

/// The Machines in the operator's charge, and what the real ones are doing.
type Charge = Arc<Mutex<HashMap<ObjectRef<Machine>, Option<&'static str>>>>;

impl Series {
    /// Registers the series in a registry that already has the operator's prefix.
    pub(super) fn register(registry: &mut Registry, caches: &Caches) -> Self {
        let series = Self {
            storage: Family::new_with_constructor(|| Histogram::new(STORAGE_BUCKETS)),
            network_errors: Family::default(),
            storage_classes: Values::default(),
            networks: Values::default(),
            charge: Arc::default(),
        };
        registry.register(
            "storage_provisioning_duration_seconds",
            "Time from a machine's beginning until all its disks are there",
            series.storage.clone(),
        );
        registry.register(
            "network_configuration_errors",
            "Machines that could not be attached to a network",
            series.network_errors.clone(),
        );
        let counts = Counts {
            machines: caches.machines.clone(),
            charge: Arc::clone(&series.charge),
            templates: Values::default(),
        };
        registry.register_collector(Box::new(counts));
        series
    }

    /// Notes what was seen of a Machine.
    pub(super) fn saw(
        &self,
        machine: &Machine,
        snapshot: &Snapshot<'_>,
        verdict: &Verdict,
        before: &MachineStatus,
        after: &MachineStatus,
        now: Timestamp,
    ) {
        let real = snapshot.observed.ok().and_then(|observed| observed.machine.as_ref());
        let state = real.map(|real| match real.power {
            Power::Starting => "Starting",
            Power::Running => "Running",
            Power::Stopping => "Stopping",
            Power::Stopped => "Stopped",
            Power::Failing(_) => "Failing",
        });
        lock(&self.charge).insert(ObjectRef::from_obj(machine), state);
        let is_true = |status: &MachineStatus, kind: &str| {
            status
                .conditions
                .iter()
                .find(|condition| condition.type_ == kind)
                .map(|each| each.status == "True")
        };
        if let (Ok(desired), Some(true), None | Some(false)) =
            (snapshot.desired, is_true(after, STORAGE_READY), is_true(before, STORAGE_READY))
        {
            let began = before
                .conditions
                .iter()
                .find(|condition| condition.type_ == STORAGE_READY)
                .map(|condition| condition.last_transition_time.0)
                .or(machine.metadata.creation_timestamp.as_ref().map(|time| time.0));
            let took = began.map_or(SignedDuration::ZERO, |began| now.duration_since(began)).as_secs_f64();
            for disk in &desired.disks {
                let storage_class =
                    self.storage_classes.bound(disk.storage_class.as_deref().unwrap_or("default"));
                self.storage.get_or_create(&StorageLabel { storage_class }).observe(took.max(0.0));
            }
        }
        let network_failed = is_true(after, NETWORK_READY) == Some(false)
            && is_true(before, NETWORK_READY) != Some(false)
            || is_missing_network(verdict)
                && ready_reason(before) != Some(reason::NETWORK_CONFIGURATION_NOT_FOUND);
        if network_failed {
            for interface in &machine.spec.networks {
                let network_name = self.networks.bound(&interface.network_name);
                self.network_errors.get_or_create(&NetworkLabel { network_name }).inc();
            }
        }
    }

    /// The Machine is no longer this operator's.
    pub(super) fn forget(&self, machine: &Machine) {
        lock(&self.charge).remove(&ObjectRef::from_obj(machine));
    }
}

fn is_missing_network(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Blocked(refusal) if refusal.reason == reason::NETWORK_CONFIGURATION_NOT_FOUND)
}

fn ready_reason(status: &MachineStatus) -> Option<&str> {
    let ready =
        status.conditions.iter().find(|condition| condition.type_ == vitistack_types::conditions::READY)?;
    Some(ready.reason.as_str())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts when it is asked, so that nothing has to be kept in step.
struct Counts {
    machines: Cache<Machine>,
    charge: Charge,
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
        lock(&self.charge).retain(|key, state| {
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
            "Real machines by what they are doing",
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
    fn a_label_takes_so_many_values_and_no_more() {
        let values = Values::default();
        for number in 0..VALUES {
            assert_eq!(values.bound(&number.to_string()), number.to_string());
        }
        assert_eq!(values.bound("one more"), OTHER);
        assert_eq!(values.bound("0"), "0", "those that were there keep their name");
    }
}
