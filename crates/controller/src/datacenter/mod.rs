//! The operator `datacenter`: decides whether Machines that refer to a Datacenter are admitted, and which provider hosts them.
//!
//! All Machines of a Datacenter are decided together, in the reconcile of the Datacenter: it never runs twice at a time, so
//! no two decisions can conflict.

mod apply;
mod load;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures::{FutureExt, StreamExt, stream};
use kube::runtime::reflector::ObjectRef;
use tokio::time::Instant;
use vitistack_plan::waiting;
use vitistack_plan::{
    datacenter::{MachineChange, MemberAction, MemberStep, only_totals_changed, plan, plan_orphan},
    machine::datacenter_of,
};
use vitistack_runtime::{
    Controller, Lane, Outcome, Process, ReconcileError, Reconciler, Urgency,
    cache::{Change, WRITE_EXPIRY},
    events::Events,
    lock,
};
use vitistack_types::{
    Event, ObjectName,
    v1alpha1::{Datacenter, DatacenterStatus, Machine},
};

use self::{
    apply::apply,
    load::{Intentions, live, load},
};
use crate::{
    Index,
    caches::Caches,
    error::Error,
    index::reference,
    pace::{Pace, Triggers},
    report::Reporter,
};

/// Name of the operator, of its lease and, with underscores, the prefix of its metrics.
pub const NAME: &str = "datacenter-operator";

/// The field manager of the status of Datacenters.
const FIELD_MANAGER: &str = "vitistack-datacenter";
/// The number of concurrent writes.
const CONCURRENT_WRITES: usize = 16;
/// The maximum number of writes per reconcile: a decision that is older may be wrong.
const BATCH: usize = 1_000;
/// When to reconcile again after an object changed on the server.
const STALE_CHECK: Duration = Duration::from_millis(200);

/// Adds the operator to a process.
pub fn add(process: &mut Process, caches: &Caches) {
    let mut operator = process.operator(NAME);
    let by_provider = Index::new(&caches.datacenters, providers_of);
    let triggers = trigger_by_machines(caches, &by_provider);

    let reconciler = DatacenterReconciler {
        caches: caches.clone(),
        events: operator.events(),
        intentions: Mutex::default(),
        settled: Mutex::default(),
        pace: Pace::default(),
    };
    let all = caches.datacenters.clone();
    operator.control(
        Controller::new("Datacenter", &caches.datacenters, reconciler)
            .watches(&caches.providers, move |provider| by_provider.get(&ObjectName::of(provider)))
            .watches(&caches.classes, move |_| {
                all.list().iter().map(|each| ObjectRef::from_obj(each.as_ref())).collect()
            })
            // Only waits for the first list; changes come through the triggers.
            .watches(&caches.machines, |_| Vec::new())
            .woken_by(triggers.stream()),
    );

    let members = caches.machines_by_datacenter.clone();
    let orphans = OrphanReconciler { caches: caches.clone(), events: operator.events() };
    operator.control(
        Controller::new("MachineWithoutDatacenter", &caches.machines, orphans)
            .watches(&caches.datacenters, move |datacenter| members.get(&ObjectName::of(datacenter))),
    );
    process.add(operator);
}

/// The providers that a Datacenter lists.
fn providers_of(datacenter: &Datacenter) -> Vec<ObjectName> {
    let own = ObjectName::of(datacenter).namespace;
    datacenter.spec.machine_providers.iter().map(|provider| provider.resolve(&own)).collect()
}

/// Triggers the Datacenters that a change of a Machine concerns.
fn trigger_by_machines(caches: &Caches, by_provider: &Index<Datacenter, ObjectName>) -> Triggers<Datacenter> {
    let triggers: Triggers<Datacenter> = Triggers::new();
    let (adding, by_provider) = (triggers.clone(), by_provider.clone());
    caches.machines.listen(move |change| {
        let change = machine_change(change);
        let concerned = change.concerned_datacenter().into_iter().map(|name| reference(&name));
        let freed = change.freed_provider().map(|name| by_provider.get(&name)).unwrap_or_default();
        concerned.chain(freed).for_each(|datacenter| adding.add(datacenter));
    });
    triggers
}

/// The change in the terms of the plan.
fn machine_change(change: &Change<Machine>) -> MachineChange<'_> {
    MachineChange {
        machine: &change.object,
        before: change.before.as_deref(),
        is_gone: change.is_gone,
        is_status_only: change.urgency == Urgency::Event,
    }
}

struct DatacenterReconciler {
    caches: Caches,
    events: Events,
    /// Locked while a decision is made.
    intentions: Mutex<Intentions>,
    /// The Datacenters of whose last reconcile the result of every write is known.
    settled: Mutex<HashSet<ObjectName>>,
    pace: Pace,
}

#[async_trait]
impl Reconciler<Datacenter> for DatacenterReconciler {
    fn lane(&self, datacenter: &Datacenter) -> Lane {
        if datacenter.status.is_none() { Lane::Create } else { Lane::Observe }
    }

    async fn reconcile(&self, datacenter: Arc<Datacenter>) -> Result<Outcome, ReconcileError> {
        let name = ObjectName::of(datacenter.as_ref());
        self.settle(&name).await?;

        let loaded;
        let mut plan = {
            let mut intentions = lock(&self.intentions);
            loaded = load(&self.caches, &intentions, &datacenter);
            let plan = plan(&loaded.snapshot(&datacenter, self.caches.now()));
            let placed = |step: &&MemberStep<'_>| matches!(step.action, MemberAction::Annotate(_));
            plan.steps.iter().take(BATCH).filter(placed).for_each(|step| intentions.add(step.intended()));
            plan
        };

        let has_more = plan.steps.len() > BATCH;
        plan.steps.truncate(BATCH);
        let (is_stale, failure) = self.apply(&plan.steps).await;
        if failure.is_none() {
            lock(&self.settled).insert(name);
        }
        let delay = self.report(&datacenter, plan.status.as_ref(), &plan.events).await?;
        if let Some(failure) = failure {
            return Err(failure.into());
        }

        let waits = [
            has_more.then(|| Outcome::wait(waiting::NEXT_BATCH, Duration::ZERO)),
            is_stale.then(|| Outcome::wait(waiting::CURRENT_OBJECT, STALE_CHECK)),
            delay.map(|after| Outcome::wait(waiting::STABLE_TOTALS, after)),
            // A Machine that was deleted while it was placed has no further event.
            loaded.is_ahead.then(|| Outcome::wait(waiting::WATCH, WRITE_EXPIRY)),
        ];
        Ok(waits.into_iter().flatten().fold(plan.requeue, Outcome::sooner))
    }

    fn stopped_leading(&self) {
        // Another process decides now. The server is asked before the next decision.
        lock(&self.settled).clear();
    }
}

impl DatacenterReconciler {
    /// Asks the server for every Machine before the first decision of this process, and after one whose writes may or may not
    /// have been made: the cache may be older than either.
    async fn settle(&self, datacenter: &ObjectName) -> Result<(), Error> {
        // Removed until this reconcile has succeeded.
        if lock(&self.settled).remove(datacenter) {
            return Ok(());
        }
        let machines = live(&self.caches).await?;
        lock(&self.intentions).remove_of(datacenter);
        for machine in machines {
            let cached = self.caches.machines.get(&ObjectRef::from_obj(&machine));
            let version = cached.as_ref().and_then(|cached| cached.metadata.resource_version.as_ref());
            if version != machine.metadata.resource_version.as_ref() {
                self.caches.machines.wrote(machine);
            }
        }
        Ok(())
    }

    /// Makes the writes. Returns whether a Machine had changed on the server, and the first failure.
    async fn apply(&self, steps: &[MemberStep<'_>]) -> (bool, Option<Error>) {
        let writes: Vec<_> = steps
            .iter()
            .map(|step| apply(&self.caches, &self.events, step).map(move |result| (step, result)).boxed())
            .collect();
        let mut results = stream::iter(writes).buffer_unordered(CONCURRENT_WRITES);

        let (mut is_stale, mut failure) = (false, None);
        while let Some((step, result)) = results.next().await {
            match result {
                Ok(is_written) => {
                    is_stale |= !is_written;
                    lock(&self.intentions).remove(step.machine.metadata.uid.as_deref());
                }
                // It may have been written: the intention counts until the server was asked.
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        (is_stale, failure)
    }

    /// Writes the status. Returns when to try again: new totals have to wait, or the object changed on the server.
    async fn report(
        &self,
        datacenter: &Datacenter,
        status: Option<&DatacenterStatus>,
        events: &[Event],
    ) -> Result<Option<Duration>, ReconcileError> {
        let Some(status) = status else { return Ok(None) };
        if only_totals_changed(datacenter, status)
            && let Some(delay) = self.pace.delay(datacenter, Instant::now())
        {
            return Ok(Some(delay));
        }

        let reporter = Reporter {
            client: &self.caches.client,
            manager: FIELD_MANAGER,
            cache: &self.caches.datacenters,
            events: &self.events,
        };
        let is_written = reporter.report(datacenter, status, events).await?;
        self.pace.wrote(datacenter, Instant::now());
        Ok((!is_written).then_some(STALE_CHECK))
    }
}

/// Reports on Machines that refer to a Datacenter that does not exist.
struct OrphanReconciler {
    caches: Caches,
    events: Events,
}

#[async_trait]
impl Reconciler<Machine> for OrphanReconciler {
    fn lane(&self, _: &Machine) -> Lane {
        Lane::Observe
    }

    async fn reconcile(&self, machine: Arc<Machine>) -> Result<Outcome, ReconcileError> {
        let datacenter = datacenter_of(&machine);
        let exists = datacenter.is_none_or(|name| self.caches.datacenters.get(&reference(&name)).is_some());
        let step = if exists { None } else { plan_orphan(&machine, &self.caches.watched, self.caches.now()) };
        let Some(step) = step else { return Ok(Outcome::Done) };

        if apply(&self.caches, &self.events, &step).await? {
            return Ok(Outcome::Done);
        }
        Ok(Outcome::wait(waiting::CURRENT_OBJECT, STALE_CHECK))
    }
}
