//! Carrying out the steps of a decision, in order, up to the first that has to wait.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{ListParams, ObjectMeta, Patch, PatchParams},
};
use serde_json::{Value, json};
use tracing::Instrument;
use vitistack_clients::kubernetes::is_conflict;
use vitistack_machine::{Backend, BackendError, Order, Progress, Target};
use vitistack_plan::{
    Refusal,
    datacenter::{Fullness, pass_over},
    machine::{Action, Step, identity, is_placed_by_datacenter},
};
use vitistack_runtime::finalizer;
use vitistack_types::{
    conditions::reason,
    labels,
    v1alpha1::{Machine, MachineProvider},
};

use super::MachineReconciler;
use crate::caches::reference;

/// What became of the steps.
pub(super) enum Acted {
    /// All are done; what there is can be looked at again.
    Done,
    /// The provider works on one of them.
    Working,
    /// The Machine was let go, or given back: nothing is ours any more.
    Ended,
}

/// Why a step was not done.
pub(super) enum StepError {
    /// The provider could not or would not.
    Provider(BackendError),
    /// The provider is being deleted, or gone: nothing is made there any more.
    ProviderLeaves(Refusal),
    /// The Machine changed meanwhile; the change brings it back.
    Outdated,
    /// The Machine could not be written.
    Write(kube::Error),
    /// The Machine could not be read again.
    ReadMachine(kube::Error),
    /// Its provider could not be read again.
    ReadProvider(kube::Error),
}

/// What the steps are carried out with.
pub(super) struct Hands<'a> {
    pub(super) backend: &'a dyn Backend,
    pub(super) target: &'a Target,
    pub(super) order: Option<&'a Order>,
    pub(super) placement: &'a str,
    pub(super) now: Timestamp,
}

impl MachineReconciler {
    /// Carries the steps out. `machine` becomes what the API server made of it. `is_confirmed` says, and comes to say, that
    /// the API server was seen to have it claimed for this provider.
    pub(super) async fn act(
        &self,
        machine: &mut Machine,
        steps: &[Step],
        hands: &Hands<'_>,
        is_confirmed: &mut bool,
    ) -> Result<Acted, StepError> {
        let mut acted = Acted::Done;
        for step in steps {
            match step.action {
                // Its patch is taken only if the Machine is as it is known here.
                Action::Claim => *is_confirmed = true,
                Action::Create if !*is_confirmed => {
                    self.confirm(machine, hands.placement).await?;
                    *is_confirmed = true;
                }
                _ => {}
            }
            let span = tracing::info_span!("step", otel.name = step_name(&step.action), what = %step);
            match self.carry_out(machine, step, hands).instrument(span).await? {
                Acted::Done => {}
                Acted::Working => acted = Acted::Working,
                Acted::Ended => return Ok(Acted::Ended),
            }
        }
        Ok(acted)
    }

    async fn carry_out(
        &self,
        machine: &mut Machine,
        step: &Step,
        hands: &Hands<'_>,
    ) -> Result<Acted, StepError> {
        tracing::info!("{step}");
        let progress = match (&step.action, hands.order) {
            (Action::Claim, _) => {
                let annotations = BTreeMap::from([
                    (labels::IDENTITY.to_owned(), identity(machine).as_str().to_owned()),
                    (labels::PLACEMENT.to_owned(), hands.placement.to_owned()),
                ]);
                let patch = finalizer::first_patch(&machine.metadata, labels::MACHINE_CLEANUP, &annotations);
                if let Some(patch) = patch {
                    *machine = self.patch(machine, &patch).await?;
                }
                return Ok(Acted::Done);
            }
            (Action::Release, _) => {
                if let Some(patch) = finalizer::removal_patch(&machine.metadata, labels::MACHINE_CLEANUP) {
                    *machine = self.patch(machine, &patch).await?;
                }
                return Ok(Acted::Ended);
            }
            (Action::PassOver, _) => {
                let full = self.caches.fullness(hands.placement);
                let note = pass_over(machine, hands.placement, full, hands.now);
                let patch = json!({ "metadata": {
                    "uid": machine.metadata.uid,
                    "resourceVersion": machine.metadata.resource_version,
                    "annotations": { labels::PASSED_OVER: note },
                }});
                *machine = self.patch(machine, &patch).await?;
                return Ok(Acted::Done);
            }
            (Action::HandBack, _) => {
                let full = self.caches.fullness(hands.placement);
                let patch = hand_back_patch(machine, hands.placement, full, hands.now);
                *machine = self.patch(machine, &patch).await?;
                return Ok(Acted::Ended);
            }
            (Action::Create, Some(order)) => {
                self.confirm_provider(hands.placement).await?;
                hands.backend.create(order).await
            }
            (Action::Update(update), Some(order)) => hands.backend.update(order, update).await,
            (Action::Delete(part), _) => hands.backend.delete(hands.target, part).await,
            // Decided only where there is an order.
            (Action::Create | Action::Update(_), None) => return Ok(Acted::Working),
        };
        match progress.map_err(StepError::Provider)? {
            Progress::Done => Ok(Acted::Done),
            Progress::Working(_) => Ok(Acted::Working),
        }
    }

    /// Asks the server itself whether the provider stays, before every create.
    ///
    /// A cache may show a provider that is being deleted as it was before, and the operator of providers lets go of one when
    /// no Machine is claimed there. No machine is made on a provider that is gone all the same, in any order of events:
    ///
    /// - This side writes the claim (finalizer and placement, in the server) and only then reads the provider.
    /// - The other side sees the provider's `deletionTimestamp`, which is in the server for good, and only then lists the
    ///   Machines, from the server itself; it removes its finalizer only if none is claimed there.
    /// - Both reads are of the newest state. If this one found no `deletionTimestamp`, the provider was deleted after it, so
    ///   the list came later still and holds the claim: the provider stays until the machine is gone. If it found one, or
    ///   nothing, no create is sent and the claim is given up, whatever the list held.
    ///
    /// A process that ends between claim and create changes nothing: whoever goes on reads again before its create.
    async fn confirm_provider(&self, placement: &str) -> Result<(), StepError> {
        let Some(key) = reference::<MachineProvider>(placement) else { return Ok(()) };
        let known = self.caches.providers.get(&key).and_then(|provider| provider.metadata.uid.clone());
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let api: Api<MachineProvider> = Api::namespaced(self.caches.client.clone(), namespace);
        match api.get_metadata_opt(&key.name).await.map_err(StepError::ReadProvider)? {
            Some(found) if found.metadata.deletion_timestamp.is_some() => {
                Err(StepError::ProviderLeaves(leaving(placement)))
            }
            None => Err(StepError::ProviderLeaves(leaving(placement))),
            // Another one of its name, to which nothing here was opened yet.
            Some(found) if known.is_some() && found.metadata.uid != known => Err(StepError::Outdated),
            Some(_) => Ok(()),
        }
    }

    /// Asks the API server whether the Machine is still claimed for this provider. A cache may show it so long after it was
    /// given back, by this process unheard or by the one that led before; a second provider may have it by now.
    async fn confirm(&self, machine: &Machine, placement: &str) -> Result<(), StepError> {
        let namespace = machine.namespace().unwrap_or_default();
        let api: Api<Machine> = Api::namespaced(self.caches.client.clone(), &namespace);
        let one = ListParams::default().fields(&format!("metadata.name={}", machine.name_any()));
        let found = api.list_metadata(&one).await.map_err(StepError::ReadMachine)?;
        let is_ours = |metadata: &ObjectMeta| {
            let annotations = metadata.annotations.as_ref();
            let carries = |name: &str, value: &str| {
                annotations.and_then(|all| all.get(name)).is_some_and(|found| found == value)
            };
            metadata.uid == machine.metadata.uid
                && metadata.deletion_timestamp.is_none()
                && metadata.finalizers.iter().flatten().any(|each| each == labels::MACHINE_CLEANUP)
                && carries(labels::IDENTITY, identity(machine).as_str())
                && carries(labels::PLACEMENT, placement)
        };
        let is_confirmed = found.items.iter().any(|found| is_ours(&found.metadata));
        if is_confirmed { Ok(()) } else { Err(StepError::Outdated) }
    }

    async fn patch(&self, machine: &Machine, patch: &Value) -> Result<Machine, StepError> {
        let namespace = machine.namespace().unwrap_or_default();
        let api: Api<Machine> = Api::namespaced(self.caches.client.clone(), &namespace);
        let parameters =
            PatchParams { field_manager: Some(super::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match api.patch(&machine.name_any(), &parameters, &Patch::Merge(patch)).await {
            Ok(mut patched) => {
                patched.metadata.managed_fields = None;
                self.wrote(&patched);
                Ok(patched)
            }
            Err(error) if is_conflict(&error) => Err(StepError::Outdated),
            // The Machine is gone, which is what was to happen to it, or its own event will tell.
            Err(kube::Error::Api(status)) if status.code == 404 => Err(StepError::Outdated),
            Err(error) => Err(StepError::Write(error)),
        }
    }
}

/// Why nothing is made on a provider.
pub(super) fn leaving(placement: &str) -> Refusal {
    let message =
        format!("MachineProvider {placement:?} is being deleted: make the Machine on another provider");
    Refusal::new(reason::PROVIDER_NOT_FOUND, message)
}

/// The patch that gives a Machine back: no finalizer, no placement, and for its Datacenter a note of who could not take it.
fn hand_back_patch(machine: &Machine, placement: &str, full: Option<Fullness>, now: Timestamp) -> Value {
    let metadata = &machine.metadata;
    let finalizers: Vec<&String> = metadata
        .finalizers
        .iter()
        .flatten()
        .filter(|finalizer| finalizer.as_str() != labels::MACHINE_CLEANUP)
        .collect();
    json!({ "metadata": {
        "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
        "finalizers": finalizers,
        "annotations": {
            labels::PLACEMENT: null,
            labels::ZONE: null,
            labels::PLACEMENT_REASON: null,
            labels::PASSED_OVER:
                is_placed_by_datacenter(machine).then(|| pass_over(machine, placement, full, now)),
        },
    }})
}

/// The name of a step in a trace.
fn step_name(action: &Action) -> &'static str {
    match action {
        Action::Claim => "machine.claim",
        Action::Create => "machine.create",
        Action::Update(_) => "machine.update",
        Action::Delete(_) => "machine.delete",
        Action::Release => "machine.release",
        Action::PassOver => "machine.pass_over",
        Action::HandBack => "machine.hand_back",
    }
}
