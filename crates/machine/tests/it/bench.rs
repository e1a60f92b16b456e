//! The simulated world as a bench of the conformance suite.

use async_trait::async_trait;
use serde_json::json;
use vitistack_machine::{
    Backend,
    conformance::{Bench, CLAIM, Failure, Fault, Harness, NAMESPACE, Thing, ThingKind},
    simulated::{
        Settings,
        world::{Intervention, Machine, Volume, World, volume_name},
    },
};
use vitistack_plan::machine::Identity;

use crate::fixture::Process;

/// Simulated backends with these settings.
pub struct Simulations(pub Settings);

impl Simulations {
    /// A fresh bench of this kind.
    pub async fn simulation(&self) -> Result<Simulation, Failure> {
        let mut settings = self.0.clone();
        settings.zones = vec!["zone-a".to_owned(), "zone-b".to_owned()];
        let bench = Simulation(Process::start(settings).await);
        let (namespace, name) = (NAMESPACE.to_owned(), CLAIM.to_owned());
        bench.intervene(Intervention::MakeVolume { namespace, name, size: "1Gi".parse().unwrap() }).await?;
        Ok(bench)
    }
}

#[async_trait]
impl Harness for Simulations {
    async fn fresh(&self) -> Result<Box<dyn Bench>, Failure> {
        Ok(Box::new(self.simulation().await?))
    }
}

/// A simulated backend with its world.
pub struct Simulation(Process);

impl Simulation {
    /// The process it runs in.
    pub fn process(&self) -> &Process {
        &self.0
    }

    async fn work(&self, work: impl FnOnce(&mut World) + Send) -> Result<(), Failure> {
        let worked = self.0.backend.intervene(|world, _| work(world)).await;
        worked.map_err(|error| Failure::WorkBench { problem: error.to_string() })
    }

    async fn intervene(&self, intervention: Intervention) -> Result<(), Failure> {
        self.work(|world| world.intervene(world.time(), &intervention)).await
    }
}

#[async_trait]
impl Bench for Simulation {
    fn backend(&self) -> &dyn Backend {
        &self.0.backend
    }

    fn zones(&self) -> Vec<String> {
        self.0.settings.zones.clone()
    }

    async fn things(&self) -> Result<Vec<Thing>, Failure> {
        Ok(self
            .0
            .backend
            .inspect(|world| world.machines().map(machine).chain(world.volumes().map(volume)).collect()))
    }

    async fn settle(&self) -> Result<(), Failure> {
        self.0.settle();
        Ok(())
    }

    async fn inject(&self, fault: &Fault) -> Result<(), Failure> {
        let size = "1Gi".parse().unwrap();
        match fault.clone() {
            Fault::LoseNextReply => self.work(|world| world.faults_mut().lost_replies = 1).await,
            Fault::FailNextTask => self.work(|world| world.faults_mut().failed_tasks = 1).await,
            Fault::Unreachable(is_so) => self.work(|world| world.faults_mut().unreachable = is_so).await,
            Fault::Unauthenticated(is_so) => {
                self.work(|world| world.faults_mut().unauthenticated = is_so).await
            }
            Fault::ForeignMachine(target) => {
                let (namespace, name) = (target.namespace, target.name);
                self.intervene(Intervention::MakeMachine { namespace, name, memory: size }).await
            }
            Fault::ForeignVolume(target, disk) => {
                let (namespace, name) = (target.namespace, volume_name(&target.name, &disk));
                self.intervene(Intervention::MakeVolume { namespace, name, size }).await
            }
            Fault::Replace(target) => {
                let tag = target.identity.as_str().to_owned();
                self.intervene(Intervention::Replace { tag }).await
            }
        }
    }

    async fn restart(&mut self) -> Result<(), Failure> {
        self.0.restart().await;
        Ok(())
    }
}

fn machine(machine: &Machine) -> Thing {
    let rest = json!({
        "name": machine.name,
        "namespace": machine.namespace,
        "interfaces": machine.interfaces,
        "attached": machine.attached,
    });
    Thing {
        kind: ThingKind::Machine,
        id: machine.id.to_string(),
        identity: machine.tag.clone().map(Identity::new),
        disk: None,
        given: json!({ "hardware": machine.given, "rest": rest }),
        effective: json!(
            machine.running.as_ref().map(|running| json!({ "hardware": running, "rest": rest }))
        ),
        incarnation: machine.starts.to_string(),
    }
}

fn volume(volume: &Volume) -> Thing {
    let shape = json!({ "name": volume.name, "namespace": volume.namespace, "shape": volume.shape });
    Thing {
        kind: ThingKind::Volume,
        id: volume.id.to_string(),
        identity: volume.tag.clone().map(Identity::new),
        disk: volume.tag.is_some().then(|| volume.shape.disk.clone()),
        given: shape.clone(),
        effective: shape,
        incarnation: String::new(),
    }
}
