//! A testbed of the conformance suite for the simulated backend.

use async_trait::async_trait;
use serde_json::json;
use vitistack_machine::{
    Backend,
    conformance::{CLAIM, Failure, Fault, Harness, NAMESPACE, Resource, ResourceKind, Testbed},
    simulated::{
        Settings,
        world::{Intervention, Machine, Volume, World, volume_name},
    },
};
use vitistack_plan::machine::Identity;

use crate::fixture::Process;

/// Starts simulated testbeds with these settings.
pub struct SimulatedHarness(pub Settings);

impl SimulatedHarness {
    /// Returns a new testbed.
    pub async fn start(&self) -> Result<SimulatedTestbed, Failure> {
        let mut settings = self.0.clone();
        settings.zones = vec!["zone-a".to_owned(), "zone-b".to_owned()];
        let testbed = SimulatedTestbed(Process::start(settings).await);
        let (namespace, name) = (NAMESPACE.to_owned(), CLAIM.to_owned());
        testbed
            .intervene(Intervention::CreateVolume { namespace, name, size: "1Gi".parse().unwrap() })
            .await?;
        Ok(testbed)
    }
}

#[async_trait]
impl Harness for SimulatedHarness {
    async fn testbed(&self) -> Result<Box<dyn Testbed>, Failure> {
        Ok(Box::new(self.start().await?))
    }
}

/// A simulated backend with its world.
pub struct SimulatedTestbed(Process);

impl SimulatedTestbed {
    /// Returns the process it runs in.
    pub fn process(&self) -> &Process {
        &self.0
    }

    async fn change(&self, change: impl FnOnce(&mut World) + Send) -> Result<(), Failure> {
        let result = self.0.backend.intervene(|world, _| change(world)).await;
        result.map_err(|error| Failure::UseTestbed { problem: error.to_string() })
    }

    async fn intervene(&self, intervention: Intervention) -> Result<(), Failure> {
        self.change(|world| world.intervene(world.time(), &intervention)).await
    }
}

#[async_trait]
impl Testbed for SimulatedTestbed {
    fn backend(&self) -> &dyn Backend {
        &self.0.backend
    }

    fn zones(&self) -> Vec<String> {
        self.0.settings.zones.clone()
    }

    async fn resources(&self) -> Result<Vec<Resource>, Failure> {
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
            Fault::LoseNextReply => self.change(|world| world.faults_mut().lost_replies = 1).await,
            Fault::FailNextTask => self.change(|world| world.faults_mut().failed_tasks = 1).await,
            Fault::Unreachable(is_set) => self.change(|world| world.faults_mut().unreachable = is_set).await,
            Fault::Unauthenticated(is_set) => {
                self.change(|world| world.faults_mut().unauthenticated = is_set).await
            }
            Fault::ForeignMachine(target) => {
                let (namespace, name) = (target.namespace, target.name);
                self.intervene(Intervention::CreateMachine { namespace, name, memory: size }).await
            }
            Fault::ForeignVolume(target, disk) => {
                let (namespace, name) = (target.namespace, volume_name(&target.name, &disk));
                self.intervene(Intervention::CreateVolume { namespace, name, size }).await
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

fn machine(machine: &Machine) -> Resource {
    let rest = json!({
        "name": machine.name,
        "namespace": machine.namespace,
        "interfaces": machine.interfaces,
        "attached": machine.attached,
    });
    Resource {
        kind: ResourceKind::Machine,
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

fn volume(volume: &Volume) -> Resource {
    let shape = json!({ "name": volume.name, "namespace": volume.namespace, "shape": volume.shape });
    Resource {
        kind: ResourceKind::Volume,
        id: volume.id.to_string(),
        identity: volume.tag.clone().map(Identity::new),
        disk: volume.tag.is_some().then(|| volume.shape.disk.clone()),
        given: shape.clone(),
        effective: shape,
        incarnation: String::new(),
    }
}
