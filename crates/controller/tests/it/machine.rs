//! Machines on simulated providers, as a user sees them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Method, Request};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
    runtime::wait::await_condition,
};
use serde_json::json;
use tokio::{sync::watch, time::Instant};
use tower::Service as _;
use vitistack_plan::machine::placement;
use vitistack_types::{
    labels,
    v1alpha1::{Machine, MachineClass, MachinePhase, MachineProvider, NetworkConfiguration},
};

use crate::test_cluster::{TestCluster, WriteCounter, condition, ready};

async fn cluster_with_provider() -> TestCluster {
    let cluster = TestCluster::new().await;
    cluster
        .create(
            "MachineProvider",
            "simulated-a",
            json!({ "type": "simulated", "simulated": { "latency": "20ms" } }),
        )
        .await;
    cluster
}

fn small() -> serde_json::Value {
    json!({ "template": "small", "providerRef": { "name": "simulated-a" } })
}

#[tokio::test(start_paused = true)]
async fn a_machine_runs_and_is_deleted_with_few_writes() {
    let cluster = cluster_with_provider().await;
    let counter = WriteCounter::new(&cluster.server);
    let running = cluster.run_with(Client::new(counter.clone(), "default"));
    cluster.create("Machine", "vm", small()).await;
    let machine = cluster.wait_until("vm", |machine| ready(machine).0 == "Running").await;
    let status = machine.status.unwrap();
    assert_eq!(status.provider.unwrap().name, "simulated-a");
    assert_eq!(status.identity, machine.metadata.uid);
    assert!(counter.total() <= 3, "{:?}", counter.writes());

    let settled = counter.total();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(counter.total(), settled, "several resyncs at rest must not write: {:?}", counter.writes());

    cluster.delete("Machine", "vm").await;
    cluster.wait_for_deletion("vm").await;
    assert_eq!(counter.total(), settled + 1, "{:?}", counter.writes());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn foreign_finalizers_are_reported_at_once_even_without_the_provider() {
    let cluster = cluster_with_provider().await;
    let counter = WriteCounter::new(&cluster.server);
    let running = cluster.run_with(Client::new(counter.clone(), "default"));
    cluster.create("Machine", "vm", small()).await;
    cluster.wait_until("vm", |machine| ready(machine).0 == "Running").await;
    let finalizers = json!([labels::MACHINE_CLEANUP, "example.com/backup"]);
    cluster.patch("Machine", "vm", json!({ "metadata": { "finalizers": finalizers } })).await;

    let settled = counter.total();
    cluster.delete("Machine", "vm").await;
    let machine = cluster.wait_until("vm", |machine| ready(machine).0 == "Deleting").await;
    let status = machine.status.clone().unwrap();
    assert_eq!(status.phase, Some(MachinePhase::Pending), "{status:#?}");
    assert_eq!(status.conditions.len(), 1, "{status:#?}");
    assert!(status.ip_addresses.is_empty() && status.vm_name.is_none(), "{status:#?}");

    let message = "The machine has been deleted; waiting for finalizer example.com/backup to be removed";
    assert_eq!(ready(&machine).1, message);
    assert_eq!(counter.total(), settled + 2, "{:?}", counter.writes());

    cluster.delete("MachineProvider", "simulated-a").await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    let later = cluster.wait_until("vm", |_| true).await;
    assert_eq!(ready(&later).1, message, "nothing is left that would have to be released");
    running.stop().await;

    // As if the operator had crashed between removing the finalizer and writing the status, and the provider
    // was deleted meanwhile.
    let unreported = Patch::Merge(json!({ "status": { "phase": "Running", "conditions": [] } }));
    cluster.machines().patch_status("vm", &PatchParams::default(), &unreported).await.unwrap();
    let running = cluster.run();
    let machine = cluster.wait_until("vm", |machine| ready(machine).1 == message).await;
    assert_eq!(machine.status.unwrap().phase, Some(MachinePhase::Pending));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_reference_is_reported_until_it_exists() {
    let cluster = cluster_with_provider().await;
    let running = cluster.run();
    let mut messages = Vec::new();

    cluster
        .create("Machine", "huge", json!({ "template": "huge", "providerRef": { "name": "simulated-a" } }))
        .await;
    messages.push(cluster.wait_for_reason("huge", "TemplateNotFound").await);
    let class = json!({ "resources": { "cpu": { "cores": 8 }, "memory": { "size": "16Gi" } }, "disks": [{ "name": "root", "size": "80Gi" }] });
    cluster.create("MachineClass", "huge", class).await;
    cluster.wait_for_reason("huge", "Running").await;

    let networks = json!([{ "name": "eth0", "networkName": "late" }]);
    cluster
        .create(
            "Machine",
            "networked",
            json!({ "template": "small", "providerRef": { "name": "simulated-a" }, "networks": networks }),
        )
        .await;
    messages.push(cluster.wait_for_reason("networked", "NetworkConfigurationNotFound").await);
    cluster.create("NetworkConfiguration", "late", json!({ "bridge": "br0", "vlan": 7 })).await;
    cluster.wait_for_reason("networked", "Running").await;

    let cloud_init = json!({ "secretRef": { "name": "boot", "key": "userdata" } });
    cluster
        .create(
            "Machine",
            "secretive",
            json!({ "template": "small", "providerRef": { "name": "simulated-a" }, "cloudInit": cloud_init }),
        )
        .await;
    messages.push(cluster.wait_for_reason("secretive", "SecretNotFound").await);
    cluster.create_secret("boot", &[("other", "x")]).await;
    messages.push(cluster.wait_for_reason("secretive", "SecretKeyNotFound").await);
    cluster.patch_secret("boot", &[("userdata", "#cloud-config\n")]).await;
    cluster.wait_for_reason("secretive", "Running").await;

    cluster
        .create("Machine", "nowhere", json!({ "template": "small", "providerRef": { "name": "rack-two" } }))
        .await;
    messages.push(cluster.wait_for_reason("nowhere", "ProviderNotFound").await);
    cluster.create("MachineProvider", "rack-two", json!({ "type": "simulated" })).await;
    cluster.wait_for_reason("nowhere", "Running").await;

    cluster.create("Machine", "unplaced", json!({ "template": "small" })).await;
    messages.push(cluster.wait_for_reason("unplaced", "NoDefaultProvider").await);
    set_default(&cluster, "simulated-a", Some("true")).await;
    cluster.wait_for_reason("unplaced", "Running").await;
    set_default(&cluster, "rack-two", Some("true")).await;
    cluster.create("Machine", "torn", json!({ "template": "small" })).await;
    messages.push(cluster.wait_for_reason("torn", "SeveralDefaultProviders").await);
    set_default(&cluster, "rack-two", None).await;
    cluster.wait_for_reason("torn", "Running").await;

    insta::assert_snapshot!(messages.join("\n"));
    assert_eq!(
        cluster.events("huge").await.first().map(|event| event.split(':').next().unwrap().to_owned()),
        Some("Warning TemplateNotFound".to_owned())
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_spec_change_is_applied_or_reported() {
    let cluster = cluster_with_provider().await;
    let running = cluster.run();
    cluster.create("Machine", "vm", small()).await;
    cluster.wait_for_reason("vm", "Running").await;

    cluster.patch("Machine", "vm", json!({ "spec": { "powerState": "Stopped" } })).await;
    cluster.wait_for_reason("vm", "Stopped").await;
    cluster.patch("Machine", "vm", json!({ "spec": { "powerState": "Running" } })).await;
    cluster.wait_for_reason("vm", "Running").await;

    cluster.patch("Machine", "vm", json!({ "spec": { "resources": { "cpu": { "cores": 4 } } } })).await;
    let up_to_date =
        |machine: &Machine| condition(machine, "UpToDate").map(|condition| condition.reason.clone());
    cluster.wait_until("vm", |machine| up_to_date(machine).as_deref() == Some("RestartRequired")).await;
    cluster
        .patch(
            "Machine",
            "vm",
            json!({ "metadata": { "annotations": { "vitistack.io/restart-at": "2026-01-01T00:00:00Z" } } }),
        )
        .await;
    cluster
        .wait_until("vm", |machine| {
            up_to_date(machine).as_deref() == Some("AsSpecified") && ready(machine).0 == "Running"
        })
        .await;

    cluster.patch("Machine", "vm", json!({ "spec": { "disks": [{ "name": "data", "size": "5Gi" }] } })).await;
    cluster
        .wait_until("vm", |machine| {
            machine.status.as_ref().unwrap().observed_generation == machine.metadata.generation
                && ready(machine).0 == "Running"
        })
        .await;
    assert_eq!(cluster.disks("vm").await, ["data 5Gi", "root 20Gi"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_machine_is_left_alone_until_it_is_resumed() {
    let cluster = cluster_with_provider().await;
    let running = cluster.run();
    cluster.create("Machine", "vm", small()).await;
    cluster.wait_for_reason("vm", "Running").await;
    cluster
        .patch("Machine", "vm", json!({ "metadata": { "annotations": { "vitistack.io/paused": "true" } } }))
        .await;
    cluster.wait_for_reason("vm", "Paused").await;
    cluster.patch("Machine", "vm", json!({ "spec": { "powerState": "Stopped" } })).await;
    cluster.delete("Machine", "vm").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(
        cluster.machines().get("vm").await.unwrap().status.unwrap().phase,
        Some(MachinePhase::Running)
    );

    cluster
        .patch("Machine", "vm", json!({ "metadata": { "annotations": { "vitistack.io/paused": null } } }))
        .await;
    cluster.wait_for_deletion("vm").await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restored_machine_is_held_until_adopted_and_never_duplicated() {
    let cluster = cluster_with_provider().await;
    let running = cluster.run();
    cluster.create("Machine", "vm", small()).await;
    let first = cluster.wait_until("vm", |machine| ready(machine).0 == "Running").await;
    running.stop().await;

    // The control plane is lost and restored: the same object, with another UID.
    cluster.patch("Machine", "vm", json!({ "metadata": { "finalizers": null } })).await;
    cluster.delete("Machine", "vm").await;
    let annotations = first.metadata.annotations.clone().unwrap();
    cluster.create_annotated("Machine", "vm", small(), &annotations).await;
    let running = cluster.run();
    let message = cluster.wait_for_reason("vm", "IdentityHeld").await;
    assert!(message.contains("vitistack.io/adopted"), "{message}");

    let uid = cluster.machines().get("vm").await.unwrap().metadata.uid.unwrap();
    cluster
        .patch("Machine", "vm", json!({ "metadata": { "annotations": { "vitistack.io/adopted": uid } } }))
        .await;
    let adopted = cluster.wait_until("vm", |machine| ready(machine).0 == "Running").await;
    assert_eq!(
        adopted.status.unwrap().vm_name,
        first.status.unwrap().vm_name,
        "it is the same backing machine"
    );

    cluster.delete("Machine", "vm").await;
    cluster.wait_for_deletion("vm").await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_deleted_although_its_references_are_gone() {
    let cluster = cluster_with_provider().await;
    let running = cluster.run();
    cluster.create("NetworkConfiguration", "net", json!({ "bridge": "br0" })).await;
    let networks = json!([{ "name": "eth0", "networkName": "net" }]);
    cluster
        .create(
            "Machine",
            "vm",
            json!({ "template": "small", "providerRef": { "name": "simulated-a" }, "networks": networks }),
        )
        .await;
    cluster.wait_for_reason("vm", "Running").await;
    cluster.delete("NetworkConfiguration", "net").await;
    cluster.wait_for_reason("vm", "NetworkConfigurationNotFound").await;
    cluster.delete("Machine", "vm").await;
    cluster.wait_for_deletion("vm").await;
    assert_eq!(cluster.disks("vm").await, Vec::<String>::new());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn machines_recover_once_their_unreachable_provider_answers() {
    let cluster = cluster_with_provider().await;
    cluster.create("MachineProvider", "simulated-b", json!({ "type": "simulated" })).await;
    let running = cluster.run();
    cluster
        .patch("MachineProvider", "simulated-a", json!({ "spec": { "simulated": { "unreachable": true } } }))
        .await;
    cluster.create("Machine", "away", small()).await;
    cluster.wait_for_reason("away", "SimulatedProviderError").await;
    cluster
        .create("Machine", "beside", json!({ "template": "small", "providerRef": { "name": "simulated-b" } }))
        .await;
    cluster.wait_for_reason("beside", "Running").await;
    cluster
        .patch("MachineProvider", "simulated-a", json!({ "spec": { "simulated": { "unreachable": false } } }))
        .await;
    let machine = cluster.wait_until("away", |machine| ready(machine).0 == "Running").await;
    let types: Vec<&str> =
        machine.status.as_ref().unwrap().conditions.iter().map(|each| each.type_.as_str()).collect();
    assert_eq!(
        types.len(),
        types.iter().collect::<std::collections::BTreeSet<_>>().len(),
        "a condition exists twice"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_retried_as_soon_as_its_provider_is_back() {
    let cluster = cluster_with_provider().await;
    let is_unreachable = watch::Sender::new(true);
    let running = cluster.run_unreachable(&is_unreachable);
    cluster.create("Machine", "vm", small()).await;
    cluster.wait_for_reason("vm", "SimulatedProviderError").await;
    // By now the backoff is several minutes.
    tokio::time::sleep(Duration::from_mins(20)).await;
    let back = Instant::now();
    is_unreachable.send_replace(false);
    cluster.wait_for_reason("vm", "Running").await;
    assert!(back.elapsed() < Duration::from_secs(5), "after {:?}", back.elapsed());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn classes_and_networks_are_reported_ready_once_per_generation() {
    let cluster = cluster_with_provider().await;
    let counter = WriteCounter::new(&cluster.server);
    let running = cluster.run_with(Client::new(counter.clone(), "default"));
    cluster.create("NetworkConfiguration", "lan", json!({ "bridge": "br0" })).await;
    let shape = json!({ "resources": { "cpu": { "cores": 1 }, "memory": { "size": "1Gi" } } });
    cluster.create("MachineClass", "tiny", shape).await;
    let is_ready = |condition: Option<&Condition>| condition.is_some_and(|ready| ready.status == "True");
    let networks: Api<NetworkConfiguration> = Api::namespaced(cluster.client.clone(), "default");
    await_condition(networks.clone(), "lan", |network: Option<&NetworkConfiguration>| {
        let status = network.and_then(|network| network.status.as_ref());
        is_ready(status.and_then(|status| status.conditions.first()))
    })
    .await
    .unwrap();
    await_condition(Api::all(cluster.client.clone()), "tiny", |class: Option<&MachineClass>| {
        let status = class.and_then(|class| class.status.as_ref());
        is_ready(status.and_then(|status| status.conditions.first()))
    })
    .await
    .unwrap();
    cluster.patch("NetworkConfiguration", "lan", json!({ "spec": { "vlan": 7 } })).await;
    await_condition(networks, "lan", |network: Option<&NetworkConfiguration>| {
        network.and_then(|network| network.status.as_ref()?.observed_generation) == Some(2)
    })
    .await
    .unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(counter.total(), 3, "{:?}", counter.writes());
    running.stop().await;
}

/// Makes a provider the default one, or no longer.
async fn set_default(cluster: &TestCluster, provider: &str, is_default: Option<&str>) {
    let annotations = json!({ "vitistack.io/is-default-provider": is_default });
    cluster.patch("MachineProvider", provider, json!({ "metadata": { "annotations": annotations } })).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_claimed_while_its_provider_is_deleted_is_not_created() {
    let cluster = cluster_with_provider().await;
    let held = json!({ "metadata": { "finalizers": [labels::PROVIDER_IN_USE] } });
    cluster.patch("MachineProvider", "simulated-a", held).await;
    let providers: Api<MachineProvider> = Api::namespaced(cluster.client.clone(), "default");

    // The provider is deleted at the moment at which the Machine is claimed.
    let (server, provider, is_deleted) = (cluster.server.service(), providers.clone(), Arc::default());
    let intercepting = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (mut server, provider) = (server.clone(), provider.clone());
        let is_claim = request.method() == Method::PATCH && request.uri().path().ends_with("/machines/vm");
        let is_deleted: Arc<AtomicBool> = Arc::clone(&is_deleted);
        async move {
            if is_claim && !is_deleted.swap(true, Ordering::SeqCst) {
                provider.delete("simulated-a", &DeleteParams::default()).await.unwrap();
            }
            server.call(request).await
        }
    });
    let running = cluster.run_with(Client::new(intercepting, "default"));
    cluster.create("Machine", "vm", small()).await;
    let released = cluster.wait_until("vm", |machine| ready(machine).0 == "ProviderNotFound").await;
    assert_eq!(released.metadata.finalizers, None, "the claim is withdrawn");
    assert_eq!(placement(&released), None);
    assert_eq!(
        ready(&released).1,
        "MachineProvider \"default/simulated-a\" is being deleted: create the Machine on another provider"
    );
    assert_eq!(cluster.disks("vm").await, Vec::<String>::new(), "nothing was created");

    let free = json!({ "metadata": { "finalizers": null } });
    cluster.patch("MachineProvider", "simulated-a", free).await;
    assert!(providers.get_opt("simulated-a").await.unwrap().is_none());
    running.stop().await;
}
