//! KubeVirt with the stand-in for its nodes: what is refused, and a VirtualMachine from its creation to its end.

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

/// Far more than anything here takes on a slow machine.
const LIMIT: Duration = Duration::from_mins(2);

/// What one test uses.
struct World {
    kubevirt: KubeVirt,
    client: Client,
    machines: Api<DynamicObject>,
    instances: Api<DynamicObject>,
    pods: Api<Pod>,
    claims: Api<PersistentVolumeClaim>,
    volumes: Api<PersistentVolume>,
}

#[tokio::test]
async fn kubevirt_judges_runs_and_removes_virtual_machines() {
    let server =
        KubeServer::start(&Options { has_controller_manager: true, ..Options::default() }).await.unwrap();
    let kubevirt = KubeVirt::start(&server).await.unwrap();
    let client = server.client().await.unwrap();
    let world = World {
        kubevirt,
        machines: api(&client, "VirtualMachine"),
        instances: api(&client, "VirtualMachineInstance"),
        pods: Api::default_namespaced(client.clone()),
        claims: Api::default_namespaced(client.clone()),
        volumes: Api::all(client.clone()),
        client,
    };
    admission_refuses_what_kubevirt_cannot_run(&world).await;
    a_machine_runs_stops_starts_and_leaves_nothing(&world).await;
    a_guest_does_what_the_test_says(&world).await;
}

async fn admission_refuses_what_kubevirt_cannot_run(world: &World) {
    let mut both = machine("refused");
    both["spec"]["running"] = json!(true);
    assert_refused(world, &both, "Running and RunStrategy are mutually exclusive").await;
    let mut old = machine("refused");
    old["spec"]["template"]["spec"]["domain"]["machine"] = json!({"type": "pc-i440fx"});
    assert_refused(world, &old, "is not supported: pc-i440fx (allowed values: [q35* pc-q35*])").await;
}

async fn a_machine_runs_stops_starts_and_leaves_nothing(world: &World) {
    world.claims.create(&PostParams::default(), &claim("disk")).await.unwrap();
    create(world, &machine("one")).await;
    await_status(world, "one", "Running").await;
    let instance = world.instances.get("one").await.unwrap();
    assert_eq!(instance.data["status"]["nodeName"], "standin");
    assert_eq!(instance.data["status"]["volumeStatus"][0]["persistentVolumeClaimInfo"]["claimName"], "disk");
    let pods = world.pods.list(&ListParams::default()).await.unwrap();
    let address = pods.items[0].status.as_ref().unwrap().pod_ip.as_deref().unwrap();
    assert_eq!(instance.data["status"]["interfaces"][0]["ipAddress"], address);

    set_strategy(world, "one", "Halted").await;
    await_status(world, "one", "Stopped").await;
    await_gone(world).await;
    set_strategy(world, "one", "Always").await;
    await_status(world, "one", "Running").await;
    assert_ne!(world.instances.get("one").await.unwrap().metadata.uid, instance.metadata.uid);

    let instance = world.instances.get("one").await.unwrap();
    restart(world, "one").await;
    wait(world, "another instance", async || {
        let found = world.instances.get_opt("one").await.unwrap()?;
        (found.metadata.uid != instance.metadata.uid).then_some(())
    })
    .await;
    await_status(world, "one", "Running").await;

    world.machines.delete("one", &DeleteParams::default()).await.unwrap();
    wait(world, "the machine to be gone", async || {
        world.machines.get_opt("one").await.unwrap().is_none().then_some(())
    })
    .await;
    await_gone(world).await;
    assert!(world.claims.get_opt("disk").await.unwrap().is_some(), "a claim belongs to whoever made it");
    world.claims.delete("disk", &DeleteParams::default()).await.unwrap();
    wait(world, "the volume to be gone", async || {
        world.volumes.list(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
    })
    .await;
}

async fn a_guest_does_what_the_test_says(world: &World) {
    world.claims.create(&PostParams::default(), &claim("disk")).await.unwrap();
    for (guest, status) in [("crashes", "CrashLoopBackOff"), ("never-runs", "Starting")] {
        let mut machine = machine(guest);
        machine["spec"]["template"]["metadata"] =
            json!({"annotations": {"standin.vitistack.io/guest": guest}});
        create(world, &machine).await;
        await_status(world, guest, status).await;
    }
    let phase = async || {
        let instance = world.instances.get_opt("never-runs").await.unwrap()?;
        (instance.data.pointer("/status/phase") == Some(&json!("Scheduled"))).then_some(())
    };
    wait(world, "a guest that is started and does not run", phase).await;
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

async fn create(world: &World, machine: &Value) {
    let machine = serde_json::from_value(machine.clone()).unwrap();
    world.machines.create(&PostParams::default(), &machine).await.unwrap();
}

async fn assert_refused(world: &World, machine: &Value, message: &str) {
    let machine = serde_json::from_value(machine.clone()).unwrap();
    let answer = world.machines.create(&PostParams::default(), &machine).await;
    let Err(Error::Api(status)) = answer else { panic!("not refused: {answer:?}") };
    assert!(status.message.contains(message), "{}", status.message);
}

async fn set_strategy(world: &World, name: &str, strategy: &str) {
    let patch = json!({"spec": {"runStrategy": strategy}});
    world.machines.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Through KubeVirt's own API behind the API server, as its command line does.
async fn restart(world: &World, name: &str) {
    let path = format!("/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/{name}/restart");
    let request = Request::put(path).body(b"{}".to_vec()).unwrap();
    world.client.request_text(request).await.unwrap();
}

async fn await_status(world: &World, name: &str, status: &str) {
    let is_so = async || {
        let machine = world.machines.get(name).await.unwrap();
        (machine.data.pointer("/status/printableStatus") == Some(&json!(status))).then_some(())
    };
    wait(world, &format!("{name} to be {status}"), is_so).await;
}

/// Until neither instance nor pod is left.
async fn await_gone(world: &World) {
    wait(world, "instances and pods to be gone", async || {
        let instances = world.instances.list(&ListParams::default()).await.unwrap();
        let pods = world.pods.list(&ListParams::default()).await.unwrap();
        (instances.items.is_empty() && pods.items.is_empty()).then_some(())
    })
    .await;
}

async fn wait(world: &World, what: &str, attempt: impl AsyncFn() -> Option<()>) {
    let limit = Instant::now() + LIMIT;
    while attempt().await.is_none() {
        assert!(
            Instant::now() < limit,
            "waited too long for {what}; the stand-in says: {}",
            world.kubevirt.log("standin")
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
