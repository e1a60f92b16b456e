//! KubeVirt with the simulated node: admission, and the lifecycle of a VirtualMachine.

use std::time::{Duration, Instant};

use http::Request;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api, Client, Error,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use vitistack_testkit::{KubeServer, KubeVirt, Options};

/// A limit that is generous even on a slow machine.
const LIMIT: Duration = Duration::from_mins(2);

/// The server and clients of a test.
struct Fixture {
    kubevirt: KubeVirt,
    client: Client,
    machines: Api<DynamicObject>,
    instances: Api<DynamicObject>,
    pods: Api<Pod>,
    claims: Api<PersistentVolumeClaim>,
    volumes: Api<PersistentVolume>,
}

#[tokio::test]
async fn kubevirt_admits_runs_and_deletes_virtual_machines() {
    let server =
        KubeServer::start(&Options { has_controller_manager: true, ..Options::default() }).await.unwrap();
    let kubevirt = KubeVirt::start(&server).await.unwrap();
    let client = server.client().await.unwrap();
    let fixture = Fixture {
        kubevirt,
        machines: api(&client, "VirtualMachine"),
        instances: api(&client, "VirtualMachineInstance"),
        pods: Api::default_namespaced(client.clone()),
        claims: Api::default_namespaced(client.clone()),
        volumes: Api::all(client.clone()),
        client,
    };
    admission_refuses_unsupported_machines(&fixture).await;
    a_machine_runs_stops_starts_and_leaves_nothing_behind(&fixture).await;
    a_guest_follows_its_annotation(&fixture).await;
}

async fn admission_refuses_unsupported_machines(fixture: &Fixture) {
    let mut both = machine("refused");
    both["spec"]["running"] = json!(true);
    assert_refused(fixture, &both, "Running and RunStrategy are mutually exclusive").await;
    let mut old = machine("refused");
    old["spec"]["template"]["spec"]["domain"]["machine"] = json!({"type": "pc-i440fx"});
    assert_refused(fixture, &old, "is not supported: pc-i440fx (allowed values: [q35* pc-q35*])").await;
}

async fn a_machine_runs_stops_starts_and_leaves_nothing_behind(fixture: &Fixture) {
    fixture.claims.create(&PostParams::default(), &claim("disk")).await.unwrap();
    create(fixture, &machine("one")).await;
    await_status(fixture, "one", "Running").await;
    let instance = fixture.instances.get("one").await.unwrap();
    assert_eq!(instance.data["status"]["nodeName"], "standin");
    assert_eq!(instance.data["status"]["volumeStatus"][0]["persistentVolumeClaimInfo"]["claimName"], "disk");
    let pods = fixture.pods.list(&ListParams::default()).await.unwrap();
    let address = pods.items[0].status.as_ref().unwrap().pod_ip.as_deref().unwrap();
    assert_eq!(instance.data["status"]["interfaces"][0]["ipAddress"], address);

    set_strategy(fixture, "one", "Halted").await;
    await_status(fixture, "one", "Stopped").await;
    await_gone(fixture).await;
    set_strategy(fixture, "one", "Always").await;
    await_status(fixture, "one", "Running").await;
    assert_ne!(fixture.instances.get("one").await.unwrap().metadata.uid, instance.metadata.uid);

    let instance = fixture.instances.get("one").await.unwrap();
    restart(fixture, "one").await;
    wait(fixture, "another instance", async || {
        let found = fixture.instances.get_opt("one").await.unwrap()?;
        (found.metadata.uid != instance.metadata.uid).then_some(())
    })
    .await;
    await_status(fixture, "one", "Running").await;

    fixture.machines.delete("one", &DeleteParams::default()).await.unwrap();
    wait(fixture, "the deletion of the machine", async || {
        fixture.machines.get_opt("one").await.unwrap().is_none().then_some(())
    })
    .await;
    await_gone(fixture).await;
    assert!(
        fixture.claims.get_opt("disk").await.unwrap().is_some(),
        "a claim is not deleted with the machine"
    );
    fixture.claims.delete("disk", &DeleteParams::default()).await.unwrap();
    wait(fixture, "the deletion of the volume", async || {
        fixture.volumes.list(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
    })
    .await;
}

async fn a_guest_follows_its_annotation(fixture: &Fixture) {
    fixture.claims.create(&PostParams::default(), &claim("disk")).await.unwrap();
    for (guest, status) in [("crashes", "CrashLoopBackOff"), ("never-runs", "Starting")] {
        let mut machine = machine(guest);
        machine["spec"]["template"]["metadata"] =
            json!({"annotations": {"standin.vitistack.io/guest": guest}});
        create(fixture, &machine).await;
        await_status(fixture, guest, status).await;
    }
    let phase = async || {
        let instance = fixture.instances.get_opt("never-runs").await.unwrap()?;
        (instance.data.pointer("/status/phase") == Some(&json!("Scheduled"))).then_some(())
    };
    wait(fixture, "a guest that never runs", phase).await;
}

fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", kind));
    Api::default_namespaced_with(client.clone(), &kind)
}

fn machine(name: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"runStrategy": "Always", "template": {"spec": {
            "domain": {"memory": {"guest": "64Mi"}, "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}}],
            }},
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}],
        }}},
    })
}

fn claim(name: &str) -> PersistentVolumeClaim {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }))
    .unwrap()
}

async fn create(fixture: &Fixture, machine: &Value) {
    let machine = serde_json::from_value(machine.clone()).unwrap();
    fixture.machines.create(&PostParams::default(), &machine).await.unwrap();
}

async fn assert_refused(fixture: &Fixture, machine: &Value, message: &str) {
    let machine = serde_json::from_value(machine.clone()).unwrap();
    let answer = fixture.machines.create(&PostParams::default(), &machine).await;
    let Err(Error::Api(status)) = answer else { panic!("not refused: {answer:?}") };
    assert!(status.message.contains(message), "{}", status.message);
}

async fn set_strategy(fixture: &Fixture, name: &str, strategy: &str) {
    let patch = json!({"spec": {"runStrategy": strategy}});
    fixture.machines.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Restarts a machine through the subresource API, as virtctl does.
async fn restart(fixture: &Fixture, name: &str) {
    let path = format!("/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/{name}/restart");
    let request = Request::put(path).body(b"{}".to_vec()).unwrap();
    fixture.client.request_text(request).await.unwrap();
}

async fn await_status(fixture: &Fixture, name: &str, status: &str) {
    let has_status = async || {
        let machine = fixture.machines.get(name).await.unwrap();
        (machine.data.pointer("/status/printableStatus") == Some(&json!(status))).then_some(())
    };
    wait(fixture, &format!("{name} to be {status}"), has_status).await;
}

/// Waits until all instances and pods are deleted.
async fn await_gone(fixture: &Fixture) {
    wait(fixture, "the deletion of instances and pods", async || {
        let instances = fixture.instances.list(&ListParams::default()).await.unwrap();
        let pods = fixture.pods.list(&ListParams::default()).await.unwrap();
        (instances.items.is_empty() && pods.items.is_empty()).then_some(())
    })
    .await;
}

async fn wait(fixture: &Fixture, what: &str, attempt: impl AsyncFn() -> Option<()>) {
    let limit = Instant::now() + LIMIT;
    while attempt().await.is_none() {
        assert!(
            Instant::now() < limit,
            "timed out waiting for {what}; log of the stand-in: {}",
            fixture.kubevirt.log("standin")
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
