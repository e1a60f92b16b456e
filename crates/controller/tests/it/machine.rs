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

use crate::stage::{Counted, Stage, condition, ready};

async fn stage_with_provider() -> Stage {
    let stage = Stage::new().await;
    stage
        .create(
            "MachineProvider",
            "simulated-a",
            json!({ "type": "simulated", "simulated": { "latency": "20ms" } }),
        )
        .await;
    stage
}

fn small() -> serde_json::Value {
    json!({ "template": "small", "providerRef": { "name": "simulated-a" } })
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_made_kept_and_deleted_with_few_writes() {
    let stage = stage_with_provider().await;
    let counted = Counted::new(&stage.server);
    let running = stage.run_with(Client::new(counted.clone(), "default"));
    stage.create("Machine", "vm", small()).await;
    let machine = stage.until("vm", |machine| ready(machine).0 == "Running").await;
    let status = machine.status.unwrap();
    assert_eq!(status.provider.unwrap().name, "simulated-a");
    assert_eq!(status.identity, machine.metadata.uid);
    assert!(counted.total() <= 3, "{:?}", counted.writes());
    let settled = counted.total();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(counted.total(), settled, "no write at rest over several resyncs: {:?}", counted.writes());
    stage.delete("Machine", "vm").await;
    stage.until_gone("vm").await;
    assert_eq!(counted.total(), settled + 1, "{:?}", counted.writes());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_others_hold_says_so_at_once_even_without_its_provider() {
    let stage = stage_with_provider().await;
    let counted = Counted::new(&stage.server);
    let running = stage.run_with(Client::new(counted.clone(), "default"));
    stage.create("Machine", "vm", small()).await;
    stage.until("vm", |machine| ready(machine).0 == "Running").await;
    let finalizers = json!([labels::MACHINE_CLEANUP, "example.com/backup"]);
    stage.change("Machine", "vm", json!({ "metadata": { "finalizers": finalizers } })).await;
    let settled = counted.total();
    stage.delete("Machine", "vm").await;
    let machine = stage.until("vm", |machine| ready(machine).0 == "Deleting").await;
    let status = machine.status.clone().unwrap();
    assert_eq!(status.phase, Some(MachinePhase::Pending), "{status:#?}");
    assert_eq!(status.conditions.len(), 1, "{status:#?}");
    assert!(status.ip_addresses.is_empty() && status.vm_name.is_none(), "{status:#?}");
    let told = "waiting: whoever set example.com/backup removes it; of the machine nothing is left";
    assert_eq!(ready(&machine).1, told);
    assert_eq!(counted.total(), settled + 2, "{:?}", counted.writes());

    stage.delete("MachineProvider", "simulated-a").await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    let later = stage.until("vm", |_| true).await;
    assert_eq!(ready(&later).1, told, "nobody has to release what nothing is left of");
    running.stop().await;

    // As if the operator had died between the finalizer and the status, and the provider went meanwhile.
    let untold = Patch::Merge(json!({ "status": { "phase": "Running", "conditions": [] } }));
    stage.machines().patch_status("vm", &PatchParams::default(), &untold).await.unwrap();
    let running = stage.run();
    let machine = stage.until("vm", |machine| ready(machine).1 == told).await;
    assert_eq!(machine.status.unwrap().phase, Some(MachinePhase::Pending));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_told_and_the_machine_goes_on_when_it_is_there() {
    let stage = stage_with_provider().await;
    let running = stage.run();
    let mut told = Vec::new();

    stage
        .create("Machine", "huge", json!({ "template": "huge", "providerRef": { "name": "simulated-a" } }))
        .await;
    told.push(stage.until_reason("huge", "TemplateNotFound").await);
    let class = json!({ "resources": { "cpu": { "cores": 8 }, "memory": { "size": "16Gi" } }, "disks": [{ "name": "root", "size": "80Gi" }] });
    stage.create("MachineClass", "huge", class).await;
    stage.until_reason("huge", "Running").await;

    let networks = json!([{ "name": "eth0", "networkName": "late" }]);
    stage
        .create(
            "Machine",
            "networked",
            json!({ "template": "small", "providerRef": { "name": "simulated-a" }, "networks": networks }),
        )
        .await;
    told.push(stage.until_reason("networked", "NetworkConfigurationNotFound").await);
    stage.create("NetworkConfiguration", "late", json!({ "bridge": "br0", "vlan": 7 })).await;
    stage.until_reason("networked", "Running").await;

    let cloud_init = json!({ "secretRef": { "name": "boot", "key": "userdata" } });
    stage
        .create(
            "Machine",
            "secretive",
            json!({ "template": "small", "providerRef": { "name": "simulated-a" }, "cloudInit": cloud_init }),
        )
        .await;
    told.push(stage.until_reason("secretive", "SecretNotFound").await);
    stage.create_secret("boot", &[("other", "x")]).await;
    told.push(stage.until_reason("secretive", "SecretKeyNotFound").await);
    stage.change_secret("boot", &[("userdata", "#cloud-config\n")]).await;
    stage.until_reason("secretive", "Running").await;

    stage
        .create("Machine", "nowhere", json!({ "template": "small", "providerRef": { "name": "nobody" } }))
        .await;
    told.push(stage.until_reason("nowhere", "ProviderNotFound").await);
    stage.create("MachineProvider", "nobody", json!({ "type": "simulated" })).await;
    stage.until_reason("nowhere", "Running").await;

    stage.create("Machine", "homeless", json!({ "template": "small" })).await;
    told.push(stage.until_reason("homeless", "NoDefaultProvider").await);
    annotate(&stage, "simulated-a", Some("true")).await;
    stage.until_reason("homeless", "Running").await;
    annotate(&stage, "nobody", Some("true")).await;
    stage.create("Machine", "torn", json!({ "template": "small" })).await;
    told.push(stage.until_reason("torn", "SeveralDefaultProviders").await);
    annotate(&stage, "nobody", None).await;
    stage.until_reason("torn", "Running").await;

    insta::assert_snapshot!(told.join("\n"));
    assert_eq!(
        stage.events("huge").await.first().map(|event| event.split(':').next().unwrap().to_owned()),
        Some("Warning TemplateNotFound".to_owned())
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_change_of_the_spec_reaches_the_machine_or_is_told() {
    let stage = stage_with_provider().await;
    let running = stage.run();
    stage.create("Machine", "vm", small()).await;
    stage.until_reason("vm", "Running").await;

    stage.change("Machine", "vm", json!({ "spec": { "powerState": "Stopped" } })).await;
    stage.until_reason("vm", "Stopped").await;
    stage.change("Machine", "vm", json!({ "spec": { "powerState": "Running" } })).await;
    stage.until_reason("vm", "Running").await;

    stage.change("Machine", "vm", json!({ "spec": { "resources": { "cpu": { "cores": 4 } } } })).await;
    let up_to_date =
        |machine: &Machine| condition(machine, "UpToDate").map(|condition| condition.reason.clone());
    stage.until("vm", |machine| up_to_date(machine).as_deref() == Some("RestartRequired")).await;
    stage
        .change(
            "Machine",
            "vm",
            json!({ "metadata": { "annotations": { "vitistack.io/restart-at": "2026-01-01T00:00:00Z" } } }),
        )
        .await;
    stage
        .until("vm", |machine| {
            up_to_date(machine).as_deref() == Some("AsSpecified") && ready(machine).0 == "Running"
        })
        .await;

    stage.change("Machine", "vm", json!({ "spec": { "disks": [{ "name": "data", "size": "5Gi" }] } })).await;
    stage
        .until("vm", |machine| {
            machine.status.as_ref().unwrap().observed_generation == machine.metadata.generation
                && ready(machine).0 == "Running"
        })
        .await;
    assert_eq!(stage.disks("vm").await, ["data 5Gi", "root 20Gi"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_machine_is_left_alone_and_goes_on_afterwards() {
    let stage = stage_with_provider().await;
    let running = stage.run();
    stage.create("Machine", "vm", small()).await;
    stage.until_reason("vm", "Running").await;
    stage
        .change("Machine", "vm", json!({ "metadata": { "annotations": { "vitistack.io/paused": "true" } } }))
        .await;
    stage.until_reason("vm", "Paused").await;
    stage.change("Machine", "vm", json!({ "spec": { "powerState": "Stopped" } })).await;
    stage.delete("Machine", "vm").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(stage.machines().get("vm").await.unwrap().status.unwrap().phase, Some(MachinePhase::Running));
    stage
        .change("Machine", "vm", json!({ "metadata": { "annotations": { "vitistack.io/paused": null } } }))
        .await;
    stage.until_gone("vm").await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restored_machine_is_held_until_it_is_adopted_and_nothing_is_made_twice() {
    let stage = stage_with_provider().await;
    let running = stage.run();
    stage.create("Machine", "vm", small()).await;
    let first = stage.until("vm", |machine| ready(machine).0 == "Running").await;
    running.stop().await;
    // The control plane is lost and restored: the same object, with another UID.
    stage.change("Machine", "vm", json!({ "metadata": { "finalizers": null } })).await;
    stage.delete("Machine", "vm").await;
    let annotations = first.metadata.annotations.clone().unwrap();
    stage.create_annotated("Machine", "vm", small(), &annotations).await;
    let running = stage.run();
    let told = stage.until_reason("vm", "IdentityHeld").await;
    assert!(told.contains("vitistack.io/adopted"), "{told}");
    let uid = stage.machines().get("vm").await.unwrap().metadata.uid.unwrap();
    stage
        .change("Machine", "vm", json!({ "metadata": { "annotations": { "vitistack.io/adopted": uid } } }))
        .await;
    let adopted = stage.until("vm", |machine| ready(machine).0 == "Running").await;
    assert_eq!(adopted.status.unwrap().vm_name, first.status.unwrap().vm_name, "the same real machine");
    stage.delete("Machine", "vm").await;
    stage.until_gone("vm").await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_goes_although_everything_it_refers_to_is_gone() {
    let stage = stage_with_provider().await;
    let running = stage.run();
    stage.create("NetworkConfiguration", "net", json!({ "bridge": "br0" })).await;
    let networks = json!([{ "name": "eth0", "networkName": "net" }]);
    stage
        .create(
            "Machine",
            "vm",
            json!({ "template": "small", "providerRef": { "name": "simulated-a" }, "networks": networks }),
        )
        .await;
    stage.until_reason("vm", "Running").await;
    stage.delete("NetworkConfiguration", "net").await;
    stage.until_reason("vm", "NetworkConfigurationNotFound").await;
    stage.delete("Machine", "vm").await;
    stage.until_gone("vm").await;
    assert_eq!(stage.disks("vm").await, Vec::<String>::new());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_away_is_told_once_and_its_machines_are_found_again() {
    let stage = stage_with_provider().await;
    stage.create("MachineProvider", "simulated-b", json!({ "type": "simulated" })).await;
    let running = stage.run();
    stage
        .change("MachineProvider", "simulated-a", json!({ "spec": { "simulated": { "unreachable": true } } }))
        .await;
    stage.create("Machine", "away", small()).await;
    stage.until_reason("away", "SimulatedProviderError").await;
    stage
        .create("Machine", "beside", json!({ "template": "small", "providerRef": { "name": "simulated-b" } }))
        .await;
    stage.until_reason("beside", "Running").await;
    stage
        .change(
            "MachineProvider",
            "simulated-a",
            json!({ "spec": { "simulated": { "unreachable": false } } }),
        )
        .await;
    let machine = stage.until("away", |machine| ready(machine).0 == "Running").await;
    let types: Vec<&str> =
        machine.status.as_ref().unwrap().conditions.iter().map(|each| each.type_.as_str()).collect();
    assert_eq!(
        types.len(),
        types.iter().collect::<std::collections::BTreeSet<_>>().len(),
        "no condition twice"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_tried_as_soon_as_its_provider_is_back() {
    let stage = stage_with_provider().await;
    let away = watch::Sender::new(true);
    let running = stage.run_away(&away);
    stage.create("Machine", "vm", small()).await;
    stage.until_reason("vm", "SimulatedProviderError").await;
    // By now it is tried every few minutes.
    tokio::time::sleep(Duration::from_mins(20)).await;
    let back = Instant::now();
    away.send_replace(false);
    stage.until_reason("vm", "Running").await;
    assert!(back.elapsed() < Duration::from_secs(5), "after {:?}", back.elapsed());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_machines_are_made_from_is_told_to_be_usable_once_per_generation() {
    let stage = stage_with_provider().await;
    let counted = Counted::new(&stage.server);
    let running = stage.run_with(Client::new(counted.clone(), "default"));
    stage.create("NetworkConfiguration", "lan", json!({ "bridge": "br0" })).await;
    let shape = json!({ "resources": { "cpu": { "cores": 1 }, "memory": { "size": "1Gi" } } });
    stage.create("MachineClass", "tiny", shape).await;
    let is_ready = |condition: Option<&Condition>| condition.is_some_and(|ready| ready.status == "True");
    let networks: Api<NetworkConfiguration> = Api::namespaced(stage.client.clone(), "default");
    await_condition(networks.clone(), "lan", |network: Option<&NetworkConfiguration>| {
        let status = network.and_then(|network| network.status.as_ref());
        is_ready(status.and_then(|status| status.conditions.first()))
    })
    .await
    .unwrap();
    await_condition(Api::all(stage.client.clone()), "tiny", |class: Option<&MachineClass>| {
        let status = class.and_then(|class| class.status.as_ref());
        is_ready(status.and_then(|status| status.conditions.first()))
    })
    .await
    .unwrap();
    stage.change("NetworkConfiguration", "lan", json!({ "spec": { "vlan": 7 } })).await;
    await_condition(networks, "lan", |network: Option<&NetworkConfiguration>| {
        network.and_then(|network| network.status.as_ref()?.observed_generation) == Some(2)
    })
    .await
    .unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(counted.total(), 3, "{:?}", counted.writes());
    running.stop().await;
}

/// Says of a provider that it is the default one, or no longer.
async fn annotate(stage: &Stage, provider: &str, is_default: Option<&str>) {
    let annotations = json!({ "vitistack.io/is-default-provider": is_default });
    stage.change("MachineProvider", provider, json!({ "metadata": { "annotations": annotations } })).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_claimed_while_its_provider_goes_is_not_made() {
    let stage = stage_with_provider().await;
    let held = json!({ "metadata": { "finalizers": [labels::PROVIDER_IN_USE] } });
    stage.change("MachineProvider", "simulated-a", held).await;
    let providers: Api<MachineProvider> = Api::namespaced(stage.client.clone(), "default");
    // Somebody deletes the provider in the moment in which the Machine is claimed there.
    let (server, provider, is_deleted) = (stage.server.service(), providers.clone(), Arc::default());
    let meets = tower::service_fn(move |request: Request<kube::client::Body>| {
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
    let running = stage.run_with(Client::new(meets, "default"));
    stage.create("Machine", "vm", small()).await;
    let given_up = stage.until("vm", |machine| ready(machine).0 == "ProviderNotFound").await;
    assert_eq!(given_up.metadata.finalizers, None, "its claim holds nobody");
    assert_eq!(placement(&given_up), None);
    assert_eq!(
        ready(&given_up).1,
        "spec.providerRef names \"default/simulated-a\", which is being deleted: make the Machine on another one"
    );
    assert_eq!(stage.disks("vm").await, Vec::<String>::new(), "nothing was made");
    let free = json!({ "metadata": { "finalizers": null } });
    stage.change("MachineProvider", "simulated-a", free).await;
    assert!(providers.get_opt("simulated-a").await.unwrap().is_none());
    running.stop().await;
}
