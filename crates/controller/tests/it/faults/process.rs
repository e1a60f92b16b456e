//! The operator processes of a run: started, crashed, restarted.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use kube::Client;
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use vitistack_controller::{Caches, Needs, datacenter, machine::MachineOperator, machine_provider};
use vitistack_machine::{
    BackendContext, backend_type,
    simulated::{Clock, SimulatedOpener, Stores},
};
use vitistack_runtime::Process;
use vitistack_types::v1alpha1::ProviderType;

use super::{
    api_faults::{ApiFaults, FaultyApi},
    control_plane::ControlPlane,
    incarnation::Incarnation,
    plan::Plan,
    provider_faults::{FaultyOpener, FaultyStore},
    random::Random,
    run::Run,
};

/// The kinds that the operators read.
const NEEDS: Needs = Needs { datacenters: true, networks: true, secrets: true, namespaces: true };

/// Starts the processes of a run.
#[derive(Clone)]
struct ProcessFactory {
    control_plane: ControlPlane,
    run: Run,
    faults: ApiFaults,
    has_resync: bool,
    has_leader_election: bool,
}

impl ProcessFactory {
    /// Returns a process with its operators, all of whose requests and provider calls go through the
    /// incarnation.
    fn process(&self, incarnation: &Arc<Incarnation>) -> Process {
        let ControlPlane { frequent_resync, no_resync, .. } = &self.control_plane;
        let mut settings = if self.has_resync { frequent_resync } else { no_resync }.clone();
        settings.leader_election = self.has_leader_election;
        settings.namespace = Some(self.run.namespace.clone());
        let api = FaultyApi::new(incarnation, &self.control_plane.server.service(), &self.faults);
        let client = Client::new(api, "default");

        let mut process = Process::new(settings, client.clone());
        let mut caches = Caches::new(&mut process, client.clone(), NEEDS);
        let clock = self.run.context.clock;
        caches.clock = Arc::new(move || clock.now());

        let (stores, owner) = (self.run.stores.clone(), Arc::clone(incarnation));
        let stores: Stores = Arc::new(move |provider| {
            let provider = provider.metadata.name.clone().unwrap_or_default();
            let inner = stores[&provider].clone();
            Arc::new(FaultyStore { incarnation: Arc::clone(&owner), provider, inner })
        });
        let opener = SimulatedOpener::with_clock(Arc::clone(&stores), Arc::new(clock));
        let opener = Arc::new(FaultyOpener { incarnation: Arc::clone(incarnation), inner: opener });
        MachineOperator {
            name: "simulated-operator".to_owned(),
            opener,
            is_own_cluster_offered: false,
            reports_unplaceable: true,
        }
        .add(&mut process, &caches);

        if self.run.pool.is_some() {
            datacenter::add(&mut process, &caches);
            let backend = backend_type(ProviderType::Simulated);
            machine_provider::add(
                &mut process,
                &caches,
                [backend],
                BackendContext { client, watched: vitistack_types::WatchedNamespaces::ALL, stores },
            );
        }
        process
    }

    /// Runs one process, and restarts it after every crash.
    fn supervise(&self, number: usize, seed: u64) -> Supervisor {
        let (wanted, mut wants) = watch::channel(true);
        let (up, is_up) = watch::channel(false);
        let factory = self.clone();
        let mut random = Random::new(seed, 7 + 100 * number as u64);
        let task = tokio::spawn(async move {
            loop {
                if wants.wait_for(|wanted| *wanted).await.is_err() {
                    return;
                }
                let incarnation = Incarnation::new(&factory.run.context, number);
                let process = factory.process(&incarnation);
                let running =
                    tokio::spawn(async move { process.run(CancellationToken::new()).await.unwrap() });
                up.send_replace(true);

                let has_crashed = tokio::select! {
                    () = incarnation.crashed.notified() => true,
                    changed = wants.wait_for(|wanted| !*wanted) => { drop(changed); false },
                };
                running.abort();
                let _ = running.await;
                // Tasks that the process had spawned are dropped before they are polled again.
                tokio::task::yield_now().await;
                incarnation.mark_stopped();
                up.send_replace(false);

                if has_crashed {
                    factory.wait_before_restart(&mut random).await;
                }
            }
        });
        Supervisor { task, wanted, is_up }
    }

    /// Waits for a while, as a supervisor such as a kubelet does after a crash.
    async fn wait_before_restart(&self, random: &mut Random) {
        let context = &self.run.context;
        context.crashed.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(random.pick(&[0, 10, 1_000, 30_000]))).await;
        context.crashed.fetch_sub(1, Ordering::SeqCst);
        context.record_activity();
        context.log("the operator is restarted");
    }
}

/// One supervised process.
struct Supervisor {
    task: JoinHandle<()>,
    wanted: watch::Sender<bool>,
    is_up: watch::Receiver<bool>,
}

/// All processes of a run. They end when this is dropped.
pub struct Processes(Vec<Supervisor>);

impl Processes {
    /// Starts one process, or, under a lease outage, two that elect a leader.
    pub fn start(control_plane: &ControlPlane, run: &Run, plan: &Plan) -> Self {
        let has_leader_election = plan.lease_outage.is_some();
        let factory = ProcessFactory {
            control_plane: control_plane.clone(),
            run: run.clone(),
            faults: ApiFaults::new(&control_plane.server.service(), plan),
            has_resync: plan.has_resync,
            has_leader_election,
        };
        let count = if has_leader_election { 2 } else { 1 };
        Self((0..count).map(|number| factory.supervise(number, plan.seed)).collect())
    }

    /// Starts or stops all processes.
    pub async fn set_running(&mut self, wanted: bool) {
        for supervisor in &mut self.0 {
            supervisor.wanted.send_replace(wanted);
            supervisor.is_up.wait_for(|is_up| *is_up == wanted).await.unwrap();
        }
    }

    /// Waits until the processes that crashed are restarted.
    pub async fn wait_until_up(&mut self) {
        for supervisor in &mut self.0 {
            supervisor.is_up.wait_for(|is_up| *is_up).await.unwrap();
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.0.iter().for_each(|supervisor| supervisor.task.abort());
    }
}
