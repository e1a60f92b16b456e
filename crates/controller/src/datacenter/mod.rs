//! The operator `datacenter`: decides for the Machines that name a Datacenter whether they are let in and where they go.
//!
//! All Machines of a Datacenter are decided together, in the reconcile of the Datacenter: it is never in flight twice, so
//! no two decisions can meet.

mod assumed;
mod load;
mod report;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures::{FutureExt, StreamExt, stream};
use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use tokio::time::Instant;
use vitistack_clients::kubernetes::apply_status;
use vitistack_plan::{
    datacenter::{Decision, Usage, datacenter_status, decide, missing_datacenter},
    is_paused,
    machine::{is_let_go, placement},
};
use vitistack_runtime::{
    Controller, Lane, Outcome, Process, ReconcileError, Reconciler, Urgency, events::Events,
    permissions::Permission,
};
use vitistack_types::v1alpha1::{Datacenter, DatacenterStatus, Machine};

use self::{
    assumed::{Assumed, BELIEVED_FOR},
    load::{Loaded, live, load},
    report::{Write, Written, carry_out, intended, refuse, write_for},
};
use crate::{
    Index,
    caches::{Caches, datacenter_of, name_of, reference},
    pace::{Pace, Wakes},
};

/// Name of the operator, of its lease and, with underscores, the prefix of its series.
pub const NAME: &str = "datacenter-operator";

/// Exactly what the operator asks of the Kubernetes API, besides what the kit does.
pub const PERMISSIONS: &[Permission] = &[
    Permission {
        group: "vitistack.io",
        resources: &["datacenters", "machineproviders", "machineclasses"],
        verbs: &["list", "watch"],
        own_namespace_only: false,
    },
    Permission {
        group: "vitistack.io",
        resources: &["machines"],
        verbs: &["list", "watch", "patch"],
        own_namespace_only: false,
    },
    Permission {
        group: "vitistack.io",
        resources: &["datacenters/status", "machines/status"],
        verbs: &["patch"],
        own_namespace_only: false,
    },
];

/// Who writes the status of Datacenters.
const MANAGER: &str = "vitistack-datacenter";
/// So many writes are under way at a time.
const WRITES_AT_A_TIME: usize = 16;
/// So many writes are made before everything is looked at again: what was decided a while ago may be wrong by then.
const WRITES_PER_ROUND: usize = 1_000;
/// When to look again at what somebody else wrote at the same time.
const AFTER_OVERTAKEN: Duration = Duration::from_millis(200);

/// Adds the operator to a process.
pub fn add(process: &mut Process, caches: &Caches) {
    let mut operator = process.operator(NAME);
    let wakes: Wakes<Datacenter> = Wakes::new();
    let by_provider = Index::new(&caches.datacenters, providers_of);
    let (marking, shared) = (wakes.clone(), by_provider.clone());
    caches.machines.listen(move |change| {
        let machine = &change.object;
        let was_let_go = is_let_go(machine) && change.before.as_ref().is_some_and(|each| !is_let_go(each));
        // What only the status or another finalizer says changes nothing about a placement.
        if change.urgency == Urgency::Event && !was_let_go {
            return;
        }
        if let Some(datacenter) = datacenter_of(machine).as_deref().and_then(reference) {
            marking.mark(datacenter);
        }
        // One that is gone, was let go, given back or made smaller leaves room on its provider, which others may wait for.
        let left = if change.is_gone { Some(machine) } else { change.before.as_ref() };
        let is_smaller = |before: &&Arc<Machine>| {
            change.is_gone
                || was_let_go
                || before.metadata.uid != machine.metadata.uid
                || placement(before) != placement(machine)
                || before.metadata.generation != machine.metadata.generation
        };
        if let Some(placed) = left.filter(is_smaller).and_then(|before| placement(before)) {
            shared.get(placed).into_iter().for_each(|datacenter| marking.mark(datacenter));
        }
    });
    let reconciler = DatacenterReconciler {
        caches: caches.clone(),
        events: operator.events(),
        assumed: Mutex::default(),
        settled: Mutex::default(),
        pace: Pace::default(),
    };
    let all = caches.datacenters.clone();
    operator.control(
        Controller::new("Datacenter", &caches.datacenters, reconciler)
            .watches(&caches.providers, move |provider| by_provider.get(&name_of(provider)))
            .watches(&caches.classes, move |_| {
                all.list().iter().map(|each| ObjectRef::from_obj(each.as_ref())).collect()
            })
            // Only waits until they are there; what wakes it comes through the stream.
            .watches(&caches.machines, |_| Vec::new())
            .woken_by(wakes.stream()),
    );
    let members = caches.machines_by_datacenter.clone();
    let orphans = OrphanReconciler { caches: caches.clone(), events: operator.events() };
    operator.control(
        Controller::new("MachineWithoutDatacenter", &caches.machines, orphans)
            .watches(&caches.datacenters, move |datacenter| members.get(&name_of(datacenter))),
    );
    process.add(operator);
}

fn providers_of(datacenter: &Datacenter) -> Vec<String> {
    let own = datacenter.metadata.namespace.as_deref().unwrap_or_default();
    let full = |namespace: Option<&str>, name: &str| format!("{}/{name}", namespace.unwrap_or(own));
    let providers = datacenter.spec.machine_providers.iter();
    providers.map(|provider| full(provider.namespace.as_deref(), &provider.name)).collect()
}

struct DatacenterReconciler {
    caches: Caches,
    events: Events,
    /// Held while something is decided, so that Datacenters that share a provider do not fill it twice.
    assumed: Mutex<Assumed>,
    /// The Datacenters whose last round ended with the fate of every write known.
    settled: Mutex<HashSet<String>>,
    pace: Pace,
}

#[async_trait]
impl Reconciler<Datacenter> for DatacenterReconciler {
    fn lane(&self, datacenter: &Datacenter) -> Lane {
        if datacenter.status.is_none() { Lane::Create } else { Lane::Observe }
    }

    async fn reconcile(&self, datacenter: Arc<Datacenter>) -> Result<Outcome, ReconcileError> {
        let name = name_of(datacenter.as_ref());
        self.settle(&name).await?;
        let now = self.caches.now();
        let (loaded, decision): (Loaded, Decision<'_>);
        let mut writes = {
            let mut assumed = self.assumed();
            loaded = load(&self.caches, &mut assumed, &datacenter);
            decision = decide(&loaded.snapshot(&datacenter, now));
            let is_stopped = is_paused(&datacenter.metadata);
            let verdicts = decision.verdicts.iter().filter(|_| !is_stopped);
            let writes = verdicts
                .filter_map(|(machine, verdict)| write_for(machine, verdict, now))
                // What was told is not told again before the cache shows it.
                .filter(|write| !matches!(write, Write::Status(machine, _) if assumed.was_told(machine)));
            let writes: Vec<Write<'_>> = writes.take(WRITES_PER_ROUND + 1).collect();
            for write in writes.iter().take(WRITES_PER_ROUND) {
                if let Write::Placement(machine, verdict, _) = write {
                    assumed.intend(intended(machine, verdict, now), Instant::now());
                }
            }
            writes
        };
        let is_cut = writes.len() > WRITES_PER_ROUND;
        writes.truncate(WRITES_PER_ROUND);
        let (is_overtaken, failure) = self.carry_out(writes).await;
        if failure.is_none() {
            self.settled().insert(name);
        }
        let held = self.report(&datacenter, &loaded, decision.used, now).await?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        let wait = |waiting_for: &str, after| (waiting_for.to_owned(), after);
        let again = decision.look_again.map(|time| {
            let after = time.duration_since(now).try_into().unwrap_or(Duration::ZERO);
            wait("a provider that was passed over", after)
        });
        let waits = [
            is_cut.then(|| wait("the next machines", Duration::ZERO)),
            is_overtaken.then(|| wait("what others wrote meanwhile", AFTER_OVERTAKEN)),
            held.map(|after| wait("the totals to settle", after)),
            // One that was deleted while it was placed is told of by nobody any more.
            loaded.is_ahead.then(|| wait("the cache to show every machine", BELIEVED_FOR)),
            again,
        ];
        Ok(match waits.into_iter().flatten().min_by_key(|(_, after)| *after) {
            Some((waiting_for, after)) => Outcome::Wait { waiting_for, after },
            None => Outcome::Done,
        })
    }

    fn rest(&self) {
        // Others decide now. Whoever comes back asks the server what they did.
        self.settled().clear();
    }
}

impl DatacenterReconciler {
    fn assumed(&self) -> MutexGuard<'_, Assumed> {
        self.assumed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settled(&self) -> MutexGuard<'_, HashSet<String>> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the first decision of this process, and after one of which some writes may or may not have been made, the
    /// server is asked: the cache may show a time before either.
    async fn settle(&self, datacenter: &str) -> Result<(), ReconcileError> {
        // Taken out until this round has ended well.
        if self.settled().remove(datacenter) {
            return Ok(());
        }
        let machines = live(&self.caches.client).await?;
        let mut assumed = self.assumed();
        assumed.forget_intentions(datacenter);
        for machine in machines {
            let cached = self.caches.machines.get(&ObjectRef::from_obj(&machine));
            let version = cached.as_ref().and_then(|cached| cached.metadata.resource_version.as_ref());
            if version != machine.metadata.resource_version.as_ref() {
                assumed.learn(machine, Instant::now());
            }
        }
        Ok(())
    }

    /// Makes the writes. Says whether somebody was faster with one, and what failed.
    async fn carry_out(&self, writes: Vec<Write<'_>>) -> (bool, Option<ReconcileError>) {
        let futures: Vec<_> = writes
            .into_iter()
            .map(|write| carry_out(&self.caches.client, &self.events, write).boxed())
            .collect();
        let mut results = stream::iter(futures).buffer_unordered(WRITES_AT_A_TIME);
        let (mut is_overtaken, mut failure) = (false, None);
        while let Some(result) = results.next().await {
            match result {
                Ok(Written::Placed(machine)) => self.assumed().learn(*machine, Instant::now()),
                Ok(Written::Told(machine)) => self.assumed().tell(machine, Instant::now()),
                Ok(Written::Overtaken(uid)) => {
                    is_overtaken = true;
                    self.assumed().forget(&uid);
                }
                Ok(Written::NotTold) => is_overtaken = true,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        (is_overtaken, failure)
    }

    /// Writes the status, if it changed. Says how long new totals have to wait.
    async fn report(
        &self,
        datacenter: &Datacenter,
        loaded: &Loaded,
        used: Usage,
        now: Timestamp,
    ) -> Result<Option<Duration>, ReconcileError> {
        let before = datacenter.status.as_ref();
        let after = datacenter_status(datacenter, &loaded.candidates, used, now);
        if before == Some(&after) {
            return Ok(None);
        }
        let without_totals = |status: &DatacenterStatus| DatacenterStatus { used: None, ..status.clone() };
        let is_totals = before.is_some_and(|before| without_totals(before) == without_totals(&after));
        if let Some(held) = self.pace.hold(datacenter, is_totals, Instant::now()) {
            return Ok(Some(held));
        }
        apply_status(&self.caches.client, MANAGER, datacenter, before, &after)
            .await
            .map_err(|error| ReconcileError::from_source("ApplyStatus", error))?;
        self.pace.wrote(datacenter, Instant::now());
        Ok(None)
    }
}

/// Tells Machines that name a Datacenter which is not there.
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
        let Some(key) = datacenter_of(&machine).as_deref().and_then(reference) else {
            return Ok(Outcome::Done);
        };
        // A Datacenter that is gone does not make its machines homeless.
        let is_settled = placement(&machine).is_some() || machine.metadata.deletion_timestamp.is_some();
        if is_settled || is_paused(&machine.metadata) || self.caches.datacenters.get(&key).is_some() {
            return Ok(Outcome::Done);
        }
        let refusal = missing_datacenter(&machine);
        let is_told =
            refuse(&self.caches.client, &self.events, &machine, &refusal, self.caches.now()).await?;
        if is_told {
            return Ok(Outcome::Done);
        }
        let waiting_for = "what others wrote meanwhile".to_owned();
        Ok(Outcome::Wait { waiting_for, after: AFTER_OVERTAKEN })
    }
}
