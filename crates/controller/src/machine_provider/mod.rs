//! The operator `machine-provider`: checks the providers, and keeps them while machines are on them.

mod checks;
mod load;

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::stream;
use snafu::ResultExt;
use tokio::{sync::mpsc, time::Instant};
use vitistack_clients::kubernetes::patch_unchanged;
use vitistack_machine::{BackendContext, BackendType};
use vitistack_plan::waiting;
use vitistack_plan::{
    Redacted, Refusal,
    machine::{has_finalizer, placement},
    provider::{Checks, ProviderPlan, Snapshot, Step, only_totals_changed, plan},
};
use vitistack_runtime::{
    Controller, Lane, Outcome, Process, ReconcileError, Reconciler, Urgency, cache::Change, events::Events,
    finalizer,
};
use vitistack_types::{
    ObjectName, labels,
    v1alpha1::{Machine, MachineProvider, ProviderType},
};

use self::checks::{Basis, HealthChecks};
pub(crate) use self::load::{credentials, providers_by_secret};
use crate::{
    caches::Caches,
    error::{CleanUpProviderSnafu, Error, PatchProviderSnafu},
    index::reference,
    pace::{Pace, Triggers},
    report::Reporter,
};

/// Name of the operator, of its lease and, with underscores, the prefix of its metrics.
pub const NAME: &str = "machine-provider-operator";

/// The field manager of MachineProviders.
const FIELD_MANAGER: &str = "vitistack-machine-provider";

/// When to reconcile again after an object changed on the server.
const STALE_CHECK: Duration = Duration::from_millis(200);

/// Adds the operator to a process. It reconciles the providers of these backend types, and no others.
pub fn add(
    process: &mut Process,
    caches: &Caches,
    backends: impl IntoIterator<Item = Arc<dyn BackendType>>,
    context: BackendContext,
) {
    let mut operator = process.operator(NAME);
    let triggers = trigger_by_machines(caches);
    let by_secret = providers_by_secret(&caches.providers);
    let (finished, checked) = mpsc::unbounded_channel();
    let checked = stream::unfold(checked, |mut checked| async move {
        checked.recv().await.map(|provider| ((provider, Urgency::Event), checked))
    });

    let reconciler = ProviderReconciler {
        caches: caches.clone(),
        events: operator.events(),
        backends: backends.into_iter().map(|backend| (backend.provider_type(), backend)).collect(),
        checks: HealthChecks::new(finished, context.clone()),
        context,
        pace: Pace::default(),
    };
    operator.control(
        Controller::new("MachineProvider", &caches.providers, reconciler)
            .watches(caches.secrets.metadata(), move |secret| {
                by_secret.get(&ObjectName::from_metadata(&secret.metadata))
            })
            // Only wait for the first list; changes come through the triggers.
            .watches(&caches.machines, |_| Vec::new())
            .watches(&caches.classes, |_| Vec::new())
            .woken_by(triggers.stream())
            .woken_by(checked)
            .woken_by(caches.calls.failing()),
    );
    process.add(operator);
}

/// Triggers the providers of Machines that changed.
fn trigger_by_machines(caches: &Caches) -> Triggers<MachineProvider> {
    let triggers: Triggers<MachineProvider> = Triggers::new();
    let adding = triggers.clone();
    caches.machines.listen(move |change| {
        for name in concerned(change) {
            adding.add(reference(&name));
        }
    });
    triggers
}

/// The providers that a change of a Machine concerns.
fn concerned(change: &Change<Machine>) -> Vec<ObjectName> {
    let machines = [Some(&change.object), change.before.as_ref()];
    // A Machine that was returned or cleaned up counts too: its provider may be waiting for that to be deleted.
    let [is_held, was_held] = machines.map(|machine| machine.is_some_and(|machine| has_finalizer(machine)));
    if change.urgency == Urgency::Event && is_held == was_held {
        return Vec::new();
    }
    machines.into_iter().flatten().filter_map(|machine| placement(machine)?.provider().cloned()).collect()
}

struct ProviderReconciler {
    caches: Caches,
    events: Events,
    backends: HashMap<ProviderType, Arc<dyn BackendType>>,
    checks: HealthChecks,
    context: BackendContext,
    pace: Pace,
}

/// What became of the steps.
enum Applied {
    /// All steps were carried out; the next check is due then.
    Done { next_check: Option<Duration> },
    /// The provider changed with this step: its event triggers the next reconcile.
    Changed,
    /// The provider changed on the server meanwhile.
    Stale,
    /// The finalizer was removed: nothing is ours any more.
    Ended,
}

#[async_trait]
impl Reconciler<MachineProvider> for ProviderReconciler {
    fn lane(&self, provider: &MachineProvider) -> Lane {
        match provider {
            provider if provider.metadata.deletion_timestamp.is_some() => Lane::Delete,
            provider if provider.status.is_none() => Lane::Create,
            _ => Lane::Observe,
        }
    }

    async fn reconcile(&self, provider: Arc<MachineProvider>) -> Result<Outcome, ReconcileError> {
        let Some(backend) = self.backends.get(&provider.spec.type_) else { return Ok(Outcome::Done) };
        let credentials = credentials(&self.caches, &provider).await?;
        self.count_calls(&provider);
        let plan = self.plan(&provider, credentials.as_ref().map(|each| each.as_ref().map(drop)));

        let usable = credentials.and_then(Result::ok);
        let next_check = match self.apply(&provider, backend, &plan.steps, usable).await? {
            Applied::Done { next_check } => next_check,
            Applied::Changed | Applied::Stale => {
                return Ok(Outcome::wait(waiting::CURRENT_OBJECT, STALE_CHECK));
            }
            Applied::Ended => return Ok(Outcome::Done),
        };

        let requeue = plan.requeue.clone();
        let delay = self.report(&provider, plan).await?;
        let waits = [
            next_check.map(|after| Outcome::wait(waiting::NEXT_CHECK, after)),
            delay.map(|after| Outcome::wait(waiting::STABLE_TOTALS, after)),
        ];
        Ok(waits.into_iter().flatten().fold(requeue, Outcome::sooner))
    }

    fn stopped_leading(&self) {
        self.checks.forget_all();
    }
}

impl ProviderReconciler {
    /// Counts failed requests to a provider against its health.
    fn count_calls(&self, provider: &MachineProvider) {
        let name = ObjectName::of(provider);
        let threshold = Checks::from(&provider.spec).failure_threshold;
        if self.caches.calls.are_failing(&name, threshold) {
            self.checks.calls_failed(provider);
            self.caches.calls.forget(&name);
        }
    }

    fn plan(&self, provider: &MachineProvider, credentials: Option<Result<(), &Refusal>>) -> ProviderPlan {
        let health = self.checks.health(provider);
        let occupants = load::occupants(&self.caches, provider);
        plan(&Snapshot {
            provider,
            credentials: credentials.map(|usable| usable.map_err(Clone::clone)),
            health: &health,
            used: load::used(&self.caches, provider),
            occupants: &occupants,
            watched: &self.caches.watched,
            now: self.caches.now(),
        })
    }

    /// Carries the steps out.
    async fn apply(
        &self,
        provider: &Arc<MachineProvider>,
        backend: &Arc<dyn BackendType>,
        steps: &[Step],
        credentials: Option<Redacted<Vec<u8>>>,
    ) -> Result<Applied, Error> {
        let metadata = &provider.metadata;
        let Some(step) = steps.first() else { return Ok(Applied::Done { next_check: None }) };
        match step {
            Step::AddFinalizer => {
                let patch = finalizer::first_patch(metadata, labels::PROVIDER_IN_USE, &[].into());
                self.patch(provider, patch, Applied::Changed).await
            }
            Step::Check => {
                let basis = Basis::of(provider, &self.caches);
                let next = self.checks.check(provider, basis, backend, credentials, Instant::now());
                Ok(Applied::Done { next_check: Some(next) })
            }
            Step::Release => {
                // The cache may be stale, so the server is asked last. An operator that claims a Machine there after that
                // finds the deletionTimestamp before its create: see `is_provider_kept` of the Machine controller.
                if !load::is_unoccupied(&self.caches, provider).await? {
                    return Ok(Applied::Done { next_check: None });
                }
                self.checks.forget(provider);
                self.caches.calls.forget(&ObjectName::of(provider.as_ref()));
                // Before the finalizer is removed, so that a process that ends in between does it again.
                backend
                    .clean_up(&self.context, provider)
                    .await
                    .with_context(|_| CleanUpProviderSnafu { name: ObjectName::of(provider.as_ref()) })?;
                let patch = finalizer::removal_patch(metadata, labels::PROVIDER_IN_USE);
                self.patch(provider, patch, Applied::Ended).await
            }
        }
    }

    async fn patch(
        &self,
        provider: &MachineProvider,
        patch: Option<serde_json::Value>,
        done: Applied,
    ) -> Result<Applied, Error> {
        let Some(patch) = patch else { return Ok(done) };
        let patched = patch_unchanged(&self.caches.client, FIELD_MANAGER, provider, patch)
            .await
            .with_context(|_| PatchProviderSnafu { name: ObjectName::of(provider) })?;
        Ok(patched.map_or(Applied::Stale, |patched| {
            self.caches.providers.wrote(patched);
            done
        }))
    }

    /// Writes the status and publishes the events. Returns when to try again: new totals have to wait, or the object changed on the server.
    async fn report(
        &self,
        provider: &MachineProvider,
        plan: ProviderPlan,
    ) -> Result<Option<Duration>, ReconcileError> {
        let Some(status) = plan.status else { return Ok(None) };
        if only_totals_changed(provider, &status)
            && let Some(delay) = self.pace.delay(provider, Instant::now())
        {
            return Ok(Some(delay));
        }

        let reporter = Reporter {
            client: &self.caches.client,
            manager: FIELD_MANAGER,
            cache: &self.caches.providers,
            events: &self.events,
        };
        let is_written = reporter.report(provider, &status, &plan.events).await?;
        self.pace.wrote(provider, Instant::now());
        Ok((!is_written).then_some(STALE_CHECK))
    }
}
