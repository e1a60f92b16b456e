//! A stand-in for KubeVirt and the storage of a cluster, which fulfills every request immediately.

use std::future::ready;

use futures::{Stream, StreamExt as _};
use http::StatusCode;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
    runtime::watcher::{self, Event, watcher},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use vitistack_runtime::cache::Kind;

use super::load::CLIENTS;

/// A stand-in that runs until it is dropped.
pub struct StandIn(JoinSet<()>);

impl StandIn {
    /// Starts a stand-in for the cluster of `client`.
    pub fn start(client: &Client) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(bind_claims(Api::all(client.clone()), client.clone()));
        tasks.spawn(run_machines(client.clone()));
        Self(tasks)
    }

    /// Returns whether the stand-in is still running.
    pub fn is_running(&mut self) -> bool {
        self.0.try_join_next().is_none()
    }
}

/// Returns a KubeVirt kind.
pub fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", kind))
}

/// Returns the changes until the watch fails.
fn changes<K: Kind>(api: Api<K>) -> impl Stream<Item = Event<K>> {
    watcher(api, watcher::Config::default())
        .take_while(|event| ready(event.is_ok()))
        .filter_map(|event| ready(event.ok()))
}

async fn bind_claims(claims: Api<PersistentVolumeClaim>, client: Client) {
    changes(claims)
        .for_each_concurrent(CLIENTS, |event| {
            let client = client.clone();
            async move {
                // A failure shows as a machine that never runs.
                if let Event::Apply(claim) | Event::InitApply(claim) = event {
                    let _ = bind(&client, &claim).await;
                }
            }
        })
        .await;
}

/// Binds a claim, or removes the finalizers of a deleted one.
pub async fn bind(client: &Client, claim: &PersistentVolumeClaim) -> kube::Result<()> {
    let namespace = claim.namespace().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
    let (name, parameters) = (claim.name_any(), PatchParams::default());
    let is_bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    if claim.metadata.deletion_timestamp.is_some() {
        let patch = json!({ "metadata": { "finalizers": null } });
        claims.patch(&name, &parameters, &Patch::Merge(&patch)).await?;
    } else if !is_bound {
        let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.clone());
        let patch = json!({ "status": { "phase": "Bound", "capacity": requests } });
        claims.patch_status(&name, &parameters, &Patch::Merge(&patch)).await?;
    }
    Ok(())
}

async fn run_machines(client: Client) {
    let machines: Api<DynamicObject> = Api::all_with(client.clone(), &resource("VirtualMachine"));
    changes(machines)
        .for_each_concurrent(CLIENTS, |event| {
            let client = client.clone();
            async move {
                // A failure shows as a machine that never runs or is never deleted.
                let _ = match event {
                    Event::Apply(machine) | Event::InitApply(machine) => run(&client, &machine).await,
                    Event::Delete(machine) => end(&client, &machine).await,
                    Event::Init | Event::InitDone => Ok(()),
                };
            }
        })
        .await;
}

fn instances(client: &Client, machine: &DynamicObject) -> Api<DynamicObject> {
    let namespace = machine.namespace().unwrap_or_default();
    Api::namespaced_with(client.clone(), &namespace, &resource("VirtualMachineInstance"))
}

/// Creates the instance of a machine, which is running immediately.
pub async fn run(client: &Client, machine: &DynamicObject) -> kube::Result<()> {
    if machine.data.pointer("/status/ready") == Some(&Value::Bool(true)) {
        return Ok(());
    }
    let kind = resource("VirtualMachine");
    let template = |pointer: &str| machine.data.pointer(&format!("/spec/template/{pointer}")).cloned();
    let mut instance = DynamicObject::new(&machine.name_any(), &resource("VirtualMachineInstance"));
    instance.metadata.labels =
        template("metadata/labels").and_then(|labels| serde_json::from_value(labels).ok());
    instance.metadata.owner_references = machine.controller_owner_ref(&kind).map(|owner| vec![owner]);
    instance.data = json!({
        "spec": template("spec"),
        "status": {
            "phase": "Running",
            "nodeName": "node-1",
            "conditions": [{ "type": "Ready", "status": "True" }],
            "interfaces": [{ "name": "default", "ipAddress": "10.0.2.2", "ipAddresses": ["10.0.2.2"] }],
            "activePods": { machine.uid().unwrap_or_default(): "node-1" },
        },
    });
    match instances(client, machine).create(&PostParams::default(), &instance).await {
        Err(kube::Error::Api(status)) if status.code == StatusCode::CONFLICT.as_u16() => {}
        created => drop(created?),
    }
    let namespace = machine.namespace().unwrap_or_default();
    let machines: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &kind);
    let status = json!({ "status": {
        "printableStatus": "Running", "ready": true, "created": true,
        "conditions": [{ "type": "Ready", "status": "True" }],
    } });
    machines.patch_status(&machine.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}

/// Deletes the instance of a deleted machine.
async fn end(client: &Client, machine: &DynamicObject) -> kube::Result<()> {
    instances(client, machine).delete(&machine.name_any(), &DeleteParams::default()).await.map(drop)
}
