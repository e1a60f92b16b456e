//! The same writes without an operator: how long the server alone takes for them.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use snafu::{ResultExt, Whatever, whatever};
use vitistack_types::v1alpha1::{Machine, MachinePhase, MachineStatus};

use super::{
    load::CLIENTS,
    standin::{bind, resource, run},
};

/// The phases of a machine; each is reported by a status and an Event.
const PHASES: [MachinePhase; 2] = [MachinePhase::Creating, MachinePhase::Running];

/// The field manager of the writes.
const MANAGER: &str = "bare";

/// A running machine with all objects that an operator created for it.
pub struct Bare {
    client: Client,
    machine: Machine,
    claim: PersistentVolumeClaim,
    virtual_machine: DynamicObject,
    events: Vec<Event>,
}

impl Bare {
    /// Reads a machine and its objects. It must be running long enough for its Events to exist.
    pub async fn read(client: &Client, name: &str) -> Result<Self, Whatever> {
        let context = "failed to read a running machine";
        let machine = machines(client).get(name).await.whatever_context(context)?;
        let claim = claims(client).get(&format!("{name}-root")).await.whatever_context(context)?;
        let virtual_machine = virtual_machines(client).get(name).await.whatever_context(context)?;
        let of_machine = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let events = events(client).list(&of_machine).await.whatever_context(context)?.items;
        if events.len() != PHASES.len() {
            whatever!("{} Events of a running machine instead of {}", events.len(), PHASES.len());
        }
        Ok(Self { client: client.clone(), machine, claim, virtual_machine, events })
    }

    /// Writes `count` copies of the machine concurrently, including the writes of the stand-in.
    pub async fn measure(&self, count: usize) -> Result<Duration, Whatever> {
        let started = Instant::now();
        futures::stream::iter(0..count)
            .map(|number| self.write(format!("bare-{number}")))
            .buffer_unordered(CLIENTS)
            .try_collect::<Vec<()>>()
            .await
            .whatever_context("failed to write a machine")?;
        Ok(started.elapsed())
    }

    async fn write(&self, name: String) -> kube::Result<()> {
        let (create, patch) = (PostParams::default(), PatchParams::apply(MANAGER).force());
        let machine = Machine::new(&name, self.machine.spec.clone());
        machines(&self.client).create(&create, &machine).await?;
        let first = json!({ "metadata": {
            "finalizers": self.machine.finalizers(), "annotations": self.machine.annotations(),
        } });
        machines(&self.client).patch(&name, &PatchParams::default(), &Patch::Merge(&first)).await?;

        let mut claim =
            PersistentVolumeClaim { metadata: like(&self.claim.metadata, &name), ..self.claim.clone() };
        claim.status = None;
        let claim = claims(&self.client).create(&create, &claim).await?;
        let mut virtual_machine = self.virtual_machine.clone();
        virtual_machine.metadata = like(&self.virtual_machine.metadata, &name);
        without_status(&mut virtual_machine.data);
        let virtual_machine =
            virtual_machines(&self.client).patch(&name, &patch, &Patch::Apply(&virtual_machine)).await?;
        bind(&self.client, &claim).await?;
        run(&self.client, &virtual_machine).await?;

        for (phase, event) in PHASES.into_iter().zip(&self.events) {
            let status =
                MachineStatus { phase: Some(phase), ..self.machine.status.clone().unwrap_or_default() };
            let applied = json!({
                "apiVersion": "vitistack.io/v1alpha1", "kind": "Machine",
                "metadata": { "name": name }, "status": status,
            });
            machines(&self.client).patch_status(&name, &patch, &Patch::Apply(&applied)).await?;
            let mut event = event.clone();
            event.metadata = like(&event.metadata, &format!("{name}.{}", event.name_any()));
            event.involved_object.name = Some(name.clone());
            events(&self.client).create(&create, &event).await?;
        }
        Ok(())
    }
}

/// Returns the metadata of a new object with another name.
fn like(metadata: &ObjectMeta, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: metadata.labels.clone(),
        annotations: metadata.annotations.clone(),
        ..ObjectMeta::default()
    }
}

fn without_status(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
}

fn machines(client: &Client) -> Api<Machine> {
    Api::default_namespaced(client.clone())
}

fn claims(client: &Client) -> Api<PersistentVolumeClaim> {
    Api::default_namespaced(client.clone())
}

fn events(client: &Client) -> Api<Event> {
    Api::default_namespaced(client.clone())
}

fn virtual_machines(client: &Client) -> Api<DynamicObject> {
    Api::default_namespaced_with(client.clone(), &resource("VirtualMachine"))
}
