//! Carries out the steps of a plan, in order, up to the first that has to wait.

use std::collections::BTreeMap;

use kube::{
    Api, Resource,
    api::{ListParams, ObjectMeta},
};
use serde_json::{Value, json};
use snafu::ResultExt;
use tracing::Instrument;
use vitistack_clients::kubernetes::patch_unchanged;
use vitistack_machine::Progress;
use vitistack_plan::{
    datacenter::pass_over,
    machine::{Action, AfterFailure, Step, identity, is_placed_by_datacenter, placement_in},
};
use vitistack_runtime::finalizer;
use vitistack_types::{
    ObjectName, Placement, labels,
    v1alpha1::{Machine, MachineProvider},
};

use super::{
    FIELD_MANAGER, MachineReconciler,
    load::{Turn, refusal},
};
use crate::error::{Error, PatchMachineSnafu, ReadMachineSnafu, ReadProviderSnafu};

/// What became of the steps.
pub(super) enum Applied {
    /// Something changed; the observed state is worth another look.
    Changed,
    /// There is nothing to do now, or the provider is working on it.
    Waiting,
    /// A step failed, as the turn records.
    Failed,
    /// The Machine changed on the server meanwhile; its event triggers the next reconcile.
    Stale,
    /// The finalizer was removed or the Machine was returned: nothing is ours any more.
    Ended,
}

impl MachineReconciler {
    /// Carries the steps out. `turn` records the Machine as the API server returned it, and what the steps ran into.
    pub(super) async fn apply(&self, turn: &mut Turn, steps: &[Step]) -> Result<Applied, Error> {
        let mut applied = if steps.is_empty() { Applied::Waiting } else { Applied::Changed };
        for step in steps {
            turn.last_step_at = Some(turn.now);
            let name = step.action.name();
            let span = tracing::info_span!("step", otel.name = format!("machine.{name}"), what = %step);
            let result = self.apply_step(turn, step).instrument(span).await?;
            if let Some(event) = step.event().filter(|_| !matches!(result, Applied::Stale)) {
                self.events.publish(&turn.machine.object_ref(&()), &event).await;
            }
            match result {
                Applied::Changed => {}
                Applied::Waiting => applied = Applied::Waiting,
                end => return Ok(end),
            }
        }
        Ok(applied)
    }

    async fn apply_step(&self, turn: &mut Turn, step: &Step) -> Result<Applied, Error> {
        let Some(placement) = turn.placement.clone() else { return Ok(Applied::Waiting) };
        if matches!(step.action, Action::Create) && !self.may_create(turn, &placement).await? {
            // Either the Machine is not ours any more, or its provider is being deleted, which the next plan considers.
            return Ok(if turn.last.provider_deleting { Applied::Changed } else { Applied::Stale });
        }

        tracing::info!("{step}");
        match &step.action {
            Action::Claim => {
                let annotations = BTreeMap::from([
                    (labels::IDENTITY.to_owned(), identity(&turn.machine).as_str().to_owned()),
                    (labels::PLACEMENT.to_owned(), placement.to_string()),
                ]);
                let metadata = &turn.machine.metadata;
                let patch = finalizer::first_patch(metadata, labels::MACHINE_CLEANUP, &annotations);
                // The patch succeeds only if the Machine is as it is known here.
                turn.is_confirmed = true;
                self.patch(turn, patch, Applied::Changed).await
            }
            Action::RemoveFinalizer => {
                let patch = finalizer::removal_patch(&turn.machine.metadata, labels::MACHINE_CLEANUP);
                self.patch(turn, patch, Applied::Ended).await
            }
            Action::MarkPassedOver => {
                let full = self.caches.fullness(&placement);
                let note = pass_over(&turn.machine, &placement, full, turn.now);
                let patch = json!({ "metadata": { "annotations": { labels::PASSED_OVER: note } } });
                self.patch(turn, Some(patch), Applied::Changed).await
            }
            Action::ReturnToDatacenter => {
                let patch = self.return_patch(turn, &placement);
                self.patch(turn, Some(patch), Applied::Ended).await
            }
            Action::Create | Action::Update(_) | Action::Delete(_) => {
                Ok(call_backend(turn, &step.action).await)
            }
        }
    }

    /// Patches the Machine as it is known here, and goes on with the Machine that the API server returned.
    async fn patch(&self, turn: &mut Turn, patch: Option<Value>, done: Applied) -> Result<Applied, Error> {
        let Some(patch) = patch else { return Ok(done) };
        let name = ObjectName::of(&turn.machine);
        let patched = patch_unchanged(&self.caches.client, FIELD_MANAGER, &turn.machine, patch)
            .await
            .context(PatchMachineSnafu { name })?;

        let Some(mut patched) = patched else { return Ok(Applied::Stale) };
        patched.metadata.managed_fields = None;
        self.caches.machines.wrote(patched.clone());
        turn.machine = patched;
        Ok(done)
    }

    /// The patch that returns a Machine to its Datacenter: no finalizer, no placement, and a record of the provider that
    /// could not host it.
    fn return_patch(&self, turn: &Turn, placement: &Placement) -> Value {
        let machine = &turn.machine;
        let finalizers: Vec<&String> = machine
            .metadata
            .finalizers
            .iter()
            .flatten()
            .filter(|finalizer| finalizer.as_str() != labels::MACHINE_CLEANUP)
            .collect();
        let passed_over = is_placed_by_datacenter(machine)
            .then(|| pass_over(machine, placement, self.caches.fullness(placement), turn.now));
        json!({ "metadata": {
            "finalizers": finalizers,
            "annotations": {
                labels::PLACEMENT: null,
                labels::ZONE: null,
                labels::PLACEMENT_REASON: null,
                labels::PASSED_OVER: passed_over,
            },
        }})
    }

    /// Whether the API server agrees that the machine is to be created here.
    async fn may_create(&self, turn: &mut Turn, placement: &Placement) -> Result<bool, Error> {
        if !turn.is_confirmed {
            if !self.is_claimed(&turn.machine, placement).await? {
                return Ok(false);
            }
            turn.is_confirmed = true;
        }
        self.is_provider_kept(turn, placement).await
    }

    /// Asks the API server, before every create, whether the provider exists and is not being deleted.
    ///
    /// A cache may show a provider that is being deleted as it was before, and the operator of providers removes its
    /// finalizer when no Machine is claimed there. Still no machine is created on a provider that is gone, in any order of
    /// events:
    ///
    /// - This side writes the claim (finalizer and placement, in the server) and only then reads the provider.
    /// - The other side sees the provider's `deletionTimestamp`, which is in the server for good, and only then lists the
    ///   Machines, from the server itself; it removes its finalizer only if none is claimed there.
    /// - Both reads return the newest state. If this one found no `deletionTimestamp`, the provider was deleted after it, so
    ///   the list came later still and contains the claim: the provider stays until the machine is gone. If it found one, or
    ///   no provider, no create is sent and the claim is given up, whatever the list contained.
    ///
    /// A process that ends between claim and create changes nothing: its successor reads again before its create.
    async fn is_provider_kept(&self, turn: &mut Turn, placement: &Placement) -> Result<bool, Error> {
        let Placement::Provider(name) = placement else { return Ok(true) };
        let known = self.caches.provider(name).and_then(|provider| provider.metadata.uid.clone());
        let api: Api<MachineProvider> = Api::namespaced(self.caches.client.clone(), &name.namespace);
        let found = api
            .get_metadata_opt(&name.name)
            .await
            .with_context(|_| ReadProviderSnafu { name: name.clone() })?;

        match found {
            Some(found) if found.metadata.deletion_timestamp.is_none() => {
                // Another provider of the same name has no open backend yet.
                Ok(known.is_none() || found.metadata.uid == known)
            }
            _ => {
                turn.last.provider_deleting = true;
                Ok(false)
            }
        }
    }

    /// Asks the API server whether the Machine is still claimed for this provider. A cache may show it so long after it was
    /// returned to its Datacenter, by this process without an answer or by the previous leader; a second provider may have
    /// it by now.
    async fn is_claimed(&self, machine: &Machine, placement: &Placement) -> Result<bool, Error> {
        let name = ObjectName::of(machine);
        let api: Api<Machine> = Api::namespaced(self.caches.client.clone(), &name.namespace);
        let one = ListParams::default().fields(&format!("metadata.name={}", name.name));
        let found = api.list_metadata(&one).await.context(ReadMachineSnafu { name })?;
        Ok(found.items.iter().any(|found| is_same_claim(&found.metadata, machine, placement)))
    }
}

/// Whether metadata is that of this Machine, claimed for this placement.
fn is_same_claim(metadata: &ObjectMeta, machine: &Machine, placement: &Placement) -> bool {
    let carried = metadata.annotations.as_ref().and_then(|annotations| annotations.get(labels::IDENTITY));
    metadata.uid == machine.metadata.uid
        && metadata.deletion_timestamp.is_none()
        && metadata.finalizers.iter().flatten().any(|each| each == labels::MACHINE_CLEANUP)
        && carried.is_some_and(|carried| carried == identity(machine).as_str())
        && placement_in(metadata).as_ref() == Some(placement)
}

/// Sends one request to the provider.
async fn call_backend(turn: &mut Turn, action: &Action) -> Applied {
    let Ok(backend) = &turn.backend else { return Applied::Waiting };
    let result = match (action, &turn.order) {
        (Action::Create, Some(order)) => backend.create(order).await,
        (Action::Update(update), Some(order)) => backend.update(order, update).await,
        (Action::Delete(part), _) => backend.delete(&turn.target, part).await,
        _ => return Applied::Waiting,
    };
    match result {
        Ok(Progress::Done) => Applied::Changed,
        Ok(Progress::Working(_)) => Applied::Waiting,
        Err(error) => match turn.last.record(error.kind, refusal(error)) {
            AfterFailure::PlanAgain => Applied::Changed,
            AfterFailure::Report => Applied::Failed,
        },
    }
}
