//! The operator of one provider type: creates the machines that Machines on its providers describe, and maintains them.

mod apply;
mod backends;
mod configuration;
mod load;
mod metrics;
mod report;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures::{Stream, StreamExt, stream};
use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc;
use vitistack_machine::{Backend, BackendOpener, ProviderChange};
use vitistack_plan::waiting;
use vitistack_plan::{
    Refusal,
    machine::{is_held_by_others, is_settled, placement, plan, plan_refused, provider_of},
};
use vitistack_runtime::{
    Controller, Lane, Outcome, Process, ReconcileError, Reconciler, Share, Urgency, events::Events, lock,
};
use vitistack_types::{ObjectName, Placement, v1alpha1::Machine};

use self::{
    apply::Applied,
    backends::BackendReconciler,
    configuration::ConfigurationReconciler,
    load::{MachineKey, Responsibility, Turn, keys},
    metrics::Metrics,
};
use crate::{
    Caches, Index,
    backends::{Backends, ChangeNotice},
};

/// The field manager of Machines. All operators use the same one, because one of them at a time reports on a Machine.
pub const FIELD_MANAGER: &str = "vitistack-machine";

/// The maximum number of observe–plan–apply rounds per reconcile.
const ROUNDS: usize = 6;

/// When to reconcile a Machine whose backend is being opened, if that is not reported first.
const BACKEND_CHECK: Duration = Duration::from_mins(1);

/// When to reconcile an object that changed on the server, if its event does not come first.
const STALE_CHECK: Duration = Duration::from_secs(1);

/// The settings of an operator for one provider type.
pub struct MachineOperator {
    /// Name of the operator, of its lease and, with underscores, the prefix of its metrics.
    pub name: String,
    /// Opens its backends.
    pub opener: Arc<dyn BackendOpener>,
    /// Whether the operator's own cluster hosts Machines while the platform has no MachineProvider of any type.
    pub is_own_cluster_offered: bool,
    /// Whether it reports on Machines that no operator can act on. One operator of a process does, so that two do not report
    /// different things.
    pub reports_unplaceable: bool,
}

impl MachineOperator {
    /// Adds the operator to a process.
    pub fn add(self, process: &mut Process, caches: &Caches) {
        let (backends, changes) = Backends::new(self.opener, caches.calls.clone());
        let index = Index::new(&caches.machines, keys);
        let metrics = Metrics::register(process.series(&self.name), caches);
        let mut operator = process.operator(&self.name);
        let reconciler = MachineReconciler {
            caches: caches.clone(),
            backends: backends.clone(),
            index: index.clone(),
            events: operator.events(),
            metrics,
            is_own_cluster_offered: self.is_own_cluster_offered,
            reports_unplaceable: self.reports_unplaceable,
            memories: Mutex::default(),
        };

        let providers = BackendReconciler::new(caches, &backends, self.is_own_cluster_offered);
        operator.control(providers.controller());
        let configurations = || ConfigurationReconciler(caches.clone());
        operator.control(Controller::new("MachineClass", &caches.classes, configurations()));
        operator.control(Controller::new("NetworkConfiguration", &caches.networks, configurations()));
        operator.control(controller(reconciler, caches, &index, changes));
        process.add(operator);
    }
}

/// The controller, with everything that triggers it.
fn controller(
    reconciler: MachineReconciler,
    caches: &Caches,
    index: &Index<Machine, MachineKey>,
    changes: mpsc::UnboundedReceiver<ChangeNotice>,
) -> Controller<Machine> {
    let [by_network, by_class, by_secret, by_provider, by_namespace, by_datacenter, by_change] =
        std::array::from_fn(|_| index.clone());
    let providers = caches.providers.clone();

    Controller::new("Machine", &caches.machines, reconciler)
        .watches(&caches.networks, move |network| {
            by_network.get(&MachineKey::Network(ObjectName::of(network)))
        })
        .watches(&caches.classes, move |class| by_class.get(&MachineKey::Class(ObjectName::of(class).name)))
        .watches(caches.secrets.metadata(), move |secret| {
            by_secret.get(&MachineKey::Secret(ObjectName::from_metadata(&secret.metadata)))
        })
        .watches(&caches.providers, move |provider| {
            on_provider(&by_provider, Placement::Provider(ObjectName::of(provider)))
        })
        .watches(&caches.namespaces, move |namespace| {
            let name = namespace.metadata.name.as_deref();
            let providers = providers.list().into_iter();
            let acting = providers.filter(|provider| provider.spec.own_cluster_namespace() == name);
            let placements = acting.map(|provider| Placement::Provider(ObjectName::of(provider.as_ref())));
            placements.flat_map(|placement| on_provider(&by_namespace, placement)).collect()
        })
        .watches(&caches.datacenters, move |_| by_datacenter.get(&MachineKey::Unplaced))
        .woken_by(changed_machines(by_change, changes))
}

/// The Machines on a provider, and those that might go there.
fn on_provider(index: &Index<Machine, MachineKey>, placement: Placement) -> Vec<ObjectRef<Machine>> {
    [index.get(&MachineKey::Provider(placement)), index.get(&MachineKey::Unplaced)].concat()
}

/// The Machines whose backing machines changed.
fn changed_machines(
    index: Index<Machine, MachineKey>,
    changes: mpsc::UnboundedReceiver<ChangeNotice>,
) -> impl Stream<Item = (ObjectRef<Machine>, Urgency)> + Send + 'static {
    let changes = stream::unfold(changes, |mut changes| async { Some((changes.recv().await?, changes)) });
    changes.flat_map(move |(placement, change)| {
        let (machines, urgency) = match change {
            ProviderChange::Machine(identity) => (index.get(&MachineKey::Identity(identity)), Urgency::Event),
            ProviderChange::All => (on_provider(&index, placement), Urgency::Event),
            // What failed before is retried at once, even inside a backoff.
            ProviderChange::Recovered => (on_provider(&index, placement), Urgency::Change),
        };
        stream::iter(machines.into_iter().map(move |machine| (machine, urgency)))
    })
}

/// Reconciles Machines.
struct MachineReconciler {
    caches: Caches,
    backends: Backends,
    index: Index<Machine, MachineKey>,
    events: Events,
    metrics: Metrics,
    is_own_cluster_offered: bool,
    reports_unplaceable: bool,
    memories: Mutex<HashMap<ObjectRef<Machine>, Memory>>,
}

/// What one reconcile of a Machine leaves for the next one. A process that starts without it only reports a little later.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Memory {
    /// Since when the provider has not answered.
    silent_since: Option<Timestamp>,
    /// When a step of a deletion was last carried out.
    last_step_at: Option<Timestamp>,
}

#[async_trait]
impl Reconciler<Machine> for MachineReconciler {
    fn lane(&self, machine: &Machine) -> Lane {
        match machine {
            machine if machine.metadata.deletion_timestamp.is_some() => Lane::Delete,
            machine if is_settled(machine) => Lane::Observe,
            _ => Lane::Create,
        }
    }

    fn share(&self, machine: &Machine) -> Share {
        let provider = placement(machine).or_else(|| provider_of(machine).map(Placement::Provider));
        Share {
            tenant: machine.metadata.namespace.clone().unwrap_or_default(),
            system: provider.map(|provider| provider.to_string()),
        }
    }

    async fn reconcile(&self, machine: Arc<Machine>) -> Result<Outcome, ReconcileError> {
        match self.responsibility(&machine) {
            Responsibility::Others => {
                self.metrics.forget(&machine);
                Ok(Outcome::Done)
            }
            Responsibility::Unplaceable(_) if !self.reports_unplaceable => Ok(Outcome::Done),
            _ if is_held_by_others(&machine) => {
                let turn = self.load_held_by_others(&machine);
                self.report(&turn, plan(&turn.snapshot())).await
            }
            Responsibility::Unplaceable(refusal) => {
                let plan = plan_refused(&machine, &refusal, self.caches.now());
                self.report_plan(&machine, plan).await
            }
            Responsibility::Ours(placement) => match self.backends.get(&placement) {
                // Reported when it is open; a status on every machine at every start would be noise.
                None => Ok(Outcome::wait(waiting::OPEN_BACKEND, BACKEND_CHECK)),
                Some(backend) => self.run(&machine, placement, backend).await,
            },
        }
    }

    fn stopped_leading(&self) {
        lock(&self.memories).clear();
    }
}

impl MachineReconciler {
    /// Observes, plans and applies, while there is something that can be done now.
    async fn run(
        &self,
        machine: &Machine,
        placement: Placement,
        backend: Result<Arc<dyn Backend>, Refusal>,
    ) -> Result<Outcome, ReconcileError> {
        let mut turn = self.load(machine, placement, backend).await?;

        for round in 1.. {
            turn.observe().await;
            let next = plan(&turn.snapshot());
            match self.apply(&mut turn, &next.steps).await? {
                Applied::Changed if round < ROUNDS => {}
                Applied::Changed | Applied::Waiting => return self.report(&turn, next).await,
                Applied::Failed => return self.report(&turn, plan(&turn.snapshot())).await,
                Applied::Stale => return Ok(Outcome::wait(waiting::CURRENT_OBJECT, STALE_CHECK)),
                Applied::Ended => {
                    self.metrics.forget(&turn.machine);
                    lock(&self.memories).remove(&ObjectRef::from_obj(&turn.machine));
                    return Ok(Outcome::Done);
                }
            }
        }
        Ok(Outcome::Done)
    }

    /// What the last reconcile of a Machine left.
    fn recall(&self, machine: &Machine) -> Memory {
        lock(&self.memories).get(&ObjectRef::from_obj(machine)).copied().unwrap_or_default()
    }

    /// Remembers whether the provider answered, and when a deletion advanced.
    fn remember(&self, turn: &Turn) {
        let key = ObjectRef::from_obj(&turn.machine);
        let is_deleting = turn.machine.metadata.deletion_timestamp.is_some();
        let memory = Memory {
            silent_since: turn.silent_since(),
            last_step_at: turn.last_step_at.filter(|_| is_deleting),
        };
        if memory == Memory::default() {
            lock(&self.memories).remove(&key);
        } else {
            lock(&self.memories).insert(key, memory);
        }
    }
}
