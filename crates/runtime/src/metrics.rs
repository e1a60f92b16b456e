//! The metrics of every operator.

use std::time::Duration;

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::lane::Lane;

/// Upper bounds of the duration buckets, in seconds: from a reconcile that only reads caches to a slow provider.
const BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabel {
    controller: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    controller: String,
    error_type: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    controller: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabels {
    controller: String,
    lane: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: String,
}

/// The metrics of one operator.
#[derive(Clone, Debug)]
pub struct Metrics {
    durations: Family<ControllerLabel, Histogram>,
    errors: Family<ErrorLabels, Counter>,
    outcomes: Family<OutcomeLabels, Counter>,
    depth: Family<LaneLabels, Gauge>,
    leader: Gauge,
}

impl Metrics {
    /// Registers the metrics in a registry that already has the operator's prefix.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            errors: Family::default(),
            outcomes: Family::default(),
            depth: Family::default(),
            leader: Gauge::default(),
        };
        registry.register(
            "reconciliation_duration_seconds",
            "Duration of reconciliations",
            metrics.durations.clone(),
        );
        registry.register(
            "reconciliation_errors",
            "Failed reconciliations by error type",
            metrics.errors.clone(),
        );
        registry.register("reconciliation_outcomes", "Reconciliations by outcome", metrics.outcomes.clone());
        registry.register("queue_depth", "Objects waiting to be reconciled", metrics.depth.clone());
        registry.register("leader", "1 if this replica is the leader, otherwise 0", metrics.leader.clone());
        metrics
    }

    /// Counts a reconcile that returned an outcome.
    pub fn reconciled(&self, controller: &str, outcome: &'static str, took: Duration) {
        self.observe(controller, took);
        self.outcomes.get_or_create(&OutcomeLabels { controller: controller.to_owned(), outcome }).inc();
    }

    /// Counts a reconcile that failed.
    pub fn failed(&self, controller: &str, error_type: &'static str, took: Duration) {
        self.observe(controller, took);
        self.refused(controller, error_type);
    }

    /// Counts a problem that only a user can fix.
    pub fn refused(&self, controller: &str, error_type: &str) {
        let labels = ErrorLabels { controller: controller.to_owned(), error_type: error_type.to_owned() };
        self.errors.get_or_create(&labels).inc();
    }

    /// Sets the number of waiting objects of a lane.
    pub fn waiting(&self, controller: &str, lane: Lane, depth: usize) {
        let labels = LaneLabels { controller: controller.to_owned(), lane: lane.name() };
        self.depth.get_or_create(&labels).set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    /// Sets whether this replica is the leader.
    pub fn leads(&self, leads: bool) {
        self.leader.set(leads.into());
    }

    fn observe(&self, controller: &str, took: Duration) {
        let labels = ControllerLabel { controller: controller.to_owned() };
        self.durations.get_or_create(&labels).observe(took.as_secs_f64());
    }
}

/// The number of objects per kind that could not be decoded, over all caches of the process.
#[derive(Clone, Debug, Default)]
pub struct Undecodable(Family<KindLabel, Gauge>);

impl Undecodable {
    /// Registers the metric.
    pub fn register(registry: &mut Registry) -> Self {
        let series = Self::default();
        registry.register(
            "undecodable_objects",
            "Objects that could not be decoded and are skipped",
            series.0.clone(),
        );
        series
    }

    /// Sets the number of objects of a kind that cannot be decoded.
    pub fn set(&self, kind: &str, count: usize) {
        let labels = KindLabel { kind: kind.to_owned() };
        self.0.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

/// Returns the registry as text in the `OpenMetrics` format.
#[must_use]
pub fn render(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = encode(&mut text, registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_the_documented_names_and_labels() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(registry.sub_registry_with_prefix("kubevirt_operator"));
        let undecodable = Undecodable::register(&mut registry);
        metrics.reconciled("Machine", "done", Duration::from_millis(20));
        metrics.failed("Machine", "TemplateNotFound", Duration::from_millis(20));
        metrics.waiting("Machine", Lane::Create, 3);
        metrics.leads(true);
        undecodable.set("Machine", 2);
        let text = render(&registry);
        for line in [
            "kubevirt_operator_reconciliation_duration_seconds_count{controller=\"Machine\"} 2",
            "kubevirt_operator_reconciliation_errors_total{controller=\"Machine\",error_type=\"TemplateNotFound\"} 1",
            "kubevirt_operator_reconciliation_outcomes_total{controller=\"Machine\",outcome=\"done\"} 1",
            "kubevirt_operator_queue_depth{controller=\"Machine\",lane=\"create\"} 3",
            "kubevirt_operator_leader 1",
            "undecodable_objects{kind=\"Machine\"} 2",
        ] {
            assert!(text.lines().any(|each| each == line), "{line} is missing in\n{text}");
        }
    }
}
