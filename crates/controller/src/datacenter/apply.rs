//! Writes placements and the status of machines without one.

use kube::Resource;
use serde_json::json;
use snafu::ResultExt;
use vitistack_clients::kubernetes::patch_unchanged;
use vitistack_plan::datacenter::{MemberAction, MemberStep};
use vitistack_runtime::events::Events;
use vitistack_types::ObjectName;

use crate::{
    caches::Caches,
    error::{Error, PatchMachineSnafu},
    machine::FIELD_MANAGER,
    report::Reporter,
};

/// Makes one write and publishes its event. Returns whether the Machine was written; otherwise it changed or is gone.
pub(super) async fn apply(caches: &Caches, events: &Events, step: &MemberStep<'_>) -> Result<bool, Error> {
    let machine = step.machine;
    match &step.action {
        MemberAction::Annotate(annotations) => {
            // With both preconditions the server decides between this write and any other one.
            let patch = json!({ "metadata": { "annotations": annotations } });
            let written = patch_unchanged(&caches.client, FIELD_MANAGER, machine, patch)
                .await
                .with_context(|_| PatchMachineSnafu { name: ObjectName::of(machine) })?;

            let Some(written) = written else { return Ok(false) };
            caches.machines.wrote(written);
            if let Some(event) = &step.event {
                events.publish(&machine.object_ref(&()), event).await;
            }
            Ok(true)
        }
        MemberAction::Report(status) => {
            let (client, cache) = (&caches.client, &caches.machines);
            let reporter = Reporter { client, manager: FIELD_MANAGER, cache, events };
            reporter.report(machine, status.as_ref(), step.event.as_slice()).await
        }
    }
}
