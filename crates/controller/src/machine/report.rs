//! Reports on one Machine: status, events, metrics.

use vitistack_plan::machine::MachinePlan;
use vitistack_plan::waiting;
use vitistack_runtime::{Outcome, ReconcileError};
use vitistack_types::v1alpha1::Machine;

use super::{FIELD_MANAGER, MachineReconciler, STALE_CHECK, load::Turn};
use crate::report::Reporter;

impl MachineReconciler {
    /// Reports the end of a reconcile.
    pub(super) async fn report(&self, turn: &Turn, plan: MachinePlan) -> Result<Outcome, ReconcileError> {
        self.remember(turn);
        self.metrics.record(turn, plan.status.as_ref());
        self.report_plan(&turn.machine, plan).await
    }

    /// Writes the status and publishes the events of a plan, and returns when to reconcile again.
    pub(super) async fn report_plan(
        &self,
        machine: &Machine,
        plan: MachinePlan,
    ) -> Result<Outcome, ReconcileError> {
        let Some(status) = plan.status else { return Ok(plan.requeue) };
        if let Some(phase) = status.phase {
            tracing::Span::current().record("phase", format!("{phase:?}"));
        }

        let reporter = Reporter {
            client: &self.caches.client,
            manager: FIELD_MANAGER,
            cache: &self.caches.machines,
            events: &self.events,
        };
        if reporter.report(machine, &status, &plan.events).await? {
            return Ok(plan.requeue);
        }
        Ok(Outcome::wait(waiting::CURRENT_OBJECT, STALE_CHECK))
    }
}
