//! The processes of the operators: started, ended in the middle, started again.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use kube::Client;
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use vitistack_controller::{
    Caches, Needs,
    backends::{SimulatedOpener, Stores},
    datacenter,
    machine::MachineOperator,
    machine_provider,
};
use vitistack_machine::simulated::Clock;
use vitistack_runtime::Process;

use super::{
    gate::{Faults, Gate},
    life::Life,
    plan::Plan,
    play::House,
    provider::{LifeOpener, LifeStore},
    random::Random,
    scene::Scene,
};

/// What the operators read.
const NEEDS: Needs = Needs { datacenters: true, networks: true, secrets: true };

/// How the processes of a play are started.
#[derive(Clone)]
struct Company {
    house: House,
    scene: Scene,
    faults: Faults,
    is_resynced: bool,
    is_elected: bool,
}

impl Company {
    fn process(&self, life: &Arc<Life>) -> Process {
        let mut settings = if self.is_resynced { self.house.often.clone() } else { self.house.never.clone() };
        settings.leader_election = self.is_elected;
        settings.namespace = Some(self.scene.namespace.clone());
        let client = Client::new(Gate::new(life, &self.house.server.service(), &self.faults), "default");
        let mut process = Process::new(settings, client.clone());
        let mut caches = Caches::new(&mut process, client, NEEDS);
        let clock = self.scene.script.clock;
        caches.clock = Arc::new(move || clock.now());
        let (stores, keeping) = (self.scene.stores.clone(), Arc::clone(life));
        let stores: Stores = Arc::new(move |provider| {
            let provider = provider.metadata.name.clone().unwrap_or_default();
            let inner = stores[&provider].clone();
            Arc::new(LifeStore { life: Arc::clone(&keeping), provider, inner })
        });
        let opener = SimulatedOpener::with_clock(Arc::clone(&stores), Arc::new(clock));
        let opener = Arc::new(LifeOpener { life: Arc::clone(life), inner: opener });
        MachineOperator {
            name: "simulated-operator",
            opener,
            is_own_cluster_offered: false,
            tells_homeless: true,
        }
        .add(&mut process, &caches);
        if self.scene.pool.is_some() {
            datacenter::add(&mut process, &caches);
            let probe: Arc<dyn machine_provider::Probe> = Arc::new(machine_provider::SimulatedProbe);
            machine_provider::add(&mut process, &caches, [probe], stores);
        }
        process
    }

    /// Keeps one process alive: starts it again when it died.
    fn supervise(&self, number: usize, seed: u64) -> Supervisor {
        let (wanted, mut wants) = watch::channel(true);
        let (up, is_up) = watch::channel(false);
        let company = self.clone();
        let mut random = Random::new(seed, 7 + 100 * number as u64);
        let task = tokio::spawn(async move {
            loop {
                if wants.wait_for(|wanted| *wanted).await.is_err() {
                    return;
                }
                let life = Life::new(&company.scene.script, number);
                let process = company.process(&life);
                let running =
                    tokio::spawn(async move { process.run(CancellationToken::new()).await.unwrap() });
                up.send_replace(true);
                let is_ended = tokio::select! {
                    () = life.over.notified() => false,
                    changed = wants.wait_for(|wanted| !*wanted) => { drop(changed); true },
                };
                running.abort();
                let _ = running.await;
                // What the process had spawned is dropped before it is polled again.
                tokio::task::yield_now().await;
                life.bury();
                up.send_replace(false);
                if !is_ended {
                    let dead = &company.scene.script.dead;
                    dead.fetch_add(1, Ordering::SeqCst);
                    let pause = Duration::from_millis(random.one(&[0, 10, 1_000, 30_000]));
                    tokio::time::sleep(pause).await;
                    dead.fetch_sub(1, Ordering::SeqCst);
                    company.scene.script.stir();
                    company.scene.script.tell("the operator is started again");
                }
            }
        });
        Supervisor { task, wanted, is_up }
    }
}

struct Supervisor {
    task: JoinHandle<()>,
    wanted: watch::Sender<bool>,
    is_up: watch::Receiver<bool>,
}

/// All processes of a play. They end with it.
pub struct Processes(Vec<Supervisor>);

impl Processes {
    /// Starts them: one, or two that agree by leases on who acts.
    pub fn start(house: &House, scene: &Scene, plan: &Plan) -> Self {
        let service = house.server.service();
        let company = Company {
            house: house.clone(),
            scene: scene.clone(),
            faults: Faults::new(&service, &plan.api, &plan.stale, plan.lag, plan.cut_off),
            is_resynced: plan.is_resynced,
            is_elected: plan.cut_off.is_some(),
        };
        let count = if plan.cut_off.is_some() { 2 } else { 1 };
        Self((0..count).map(|number| company.supervise(number, plan.seed)).collect())
    }

    /// Starts or stops them.
    pub async fn set(&mut self, wanted: bool) {
        for supervisor in &mut self.0 {
            supervisor.wanted.send_replace(wanted);
            supervisor.is_up.wait_for(|is_up| *is_up == wanted).await.unwrap();
        }
    }

    /// Waits until those that died are back.
    pub async fn are_up(&mut self) {
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
