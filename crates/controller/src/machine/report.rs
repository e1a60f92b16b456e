//! What is told of one Machine: status, Events, series.

use jiff::Timestamp;
use kube::Resource;
use vitistack_clients::kubernetes::apply_status;
use vitistack_plan::machine::{Action, Snapshot, Step, Verdict, status};
use vitistack_runtime::{ReconcileError, events::Severity};
use vitistack_types::{
    conditions::{READY, reason},
    v1alpha1::{Machine, MachineStatus},
};

use super::MachineReconciler;

impl MachineReconciler {
    /// Writes the status if it differs, and tells an Event when the Ready condition says something new.
    pub(super) async fn report(
        &self,
        snapshot: &Snapshot<'_>,
        verdict: &Verdict,
        refused_fields: &[String],
        now: Timestamp,
    ) -> Result<(), ReconcileError> {
        let machine = snapshot.machine;
        let before = machine.status.clone().unwrap_or_default();
        let after = status(snapshot, verdict, refused_fields, now);
        if let Some(phase) = after.phase {
            tracing::Span::current().record("phase", format!("{phase:?}"));
        }
        self.series.saw(machine, snapshot, verdict, &before, &after, now);
        if after == before {
            return Ok(());
        }
        apply_status(&self.caches.client, super::FIELD_MANAGER, machine, machine.status.as_ref(), &after)
            .await
            .map_err(|error| ReconcileError::from_source("ApplyStatus", error))?;
        self.tell_news(machine, &before, &after).await;
        Ok(())
    }

    async fn tell_news(&self, machine: &Machine, before: &MachineStatus, after: &MachineStatus) {
        let ready = |status: &MachineStatus| {
            let condition = status.conditions.iter().find(|condition| condition.type_ == READY)?;
            Some((condition.status == "True", condition.reason.clone(), condition.message.clone()))
        };
        let Some((is_ready, why, message)) = ready(after) else { return };
        let was = ready(before).map(|(_, why, message)| (why, message));
        // Progress is told by its word; what is wrong is told again when its sentence changes.
        let is_progress = is_ready
            || [reason::CREATING, reason::UPDATING, reason::DELETING, reason::PAUSED].contains(&why.as_str());
        let is_news = match &was {
            Some((before, told)) => *before != why || !is_progress && *told != message,
            None => true,
        };
        if is_news {
            let severity = if is_progress { Severity::Normal } else { Severity::Warning };
            self.events.publish(severity, &machine.object_ref(&()), &why, &message).await;
        }
    }

    /// Tells the steps that a user would want to find in the history of a Machine and that no condition keeps.
    pub(super) async fn tell_steps(&self, machine: &Machine, steps: &[Step]) {
        for step in steps {
            let word = match &step.action {
                Action::Delete(_) => reason::DELETING,
                Action::Update(_) => reason::UPDATING,
                Action::PassOver | Action::HandBack => "PassedOver",
                Action::Claim | Action::Create | Action::Release => continue,
            };
            let about = machine.object_ref(&());
            self.events.publish(Severity::Normal, &about, word, &step.to_string()).await;
        }
    }
}
