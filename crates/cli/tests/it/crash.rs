//! The embedded API, killed during writes.

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Namespace},
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio::task::JoinSet;
use vitistack_types::labels::SYSTEM_NAMESPACE;

use crate::Killed;

/// Waits until a server has written its kubeconfig, and returns a client of it.
pub async fn client_of(kubeconfig: &Path) -> Client {
    let limit = Instant::now() + Duration::from_mins(1);
    while !kubeconfig.exists() {
        assert!(Instant::now() < limit, "the API did not start");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Starts the API on a data directory and waits until it answers.
async fn serve(directory: &Path) -> (Killed, Api<ConfigMap>) {
    let kubeconfig = directory.join("kubeconfig");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vitistack"));
    command.args(["apiserver", "--data-dir"]).arg(directory).stdout(Stdio::null());
    // The kubeconfig of a killed process does not show that the new one is ready.
    let _ = std::fs::remove_file(&kubeconfig);
    let process = Killed(command.spawn().unwrap());
    (process, Api::default_namespaced(client_of(&kubeconfig).await))
}

fn version(object: &ConfigMap) -> u64 {
    object.resource_version().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_kill_9() {
    let directory = tempfile::TempDir::new().unwrap();
    let (mut process, objects) = serve(directory.path()).await;
    let (acknowledge, mut acknowledged) = tokio::sync::mpsc::unbounded_channel();
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let (objects, acknowledge) = (objects.clone(), acknowledge.clone());
        writers.spawn(async move {
            for number in 0.. {
                let mut object = ConfigMap::default();
                object.metadata.name = Some(format!("writer-{writer}-{number}"));
                match objects.create(&PostParams::default(), &object).await {
                    Ok(created) => acknowledge.send((created.name_any(), version(&created))).unwrap(),
                    Err(_) => return,
                }
            }
        });
    }
    drop(acknowledge);
    let mut known = Vec::new();
    while known.len() < 200 {
        known.push(acknowledged.recv().await.unwrap());
    }
    process.0.kill().unwrap();
    while let Some(answer) = acknowledged.recv().await {
        known.push(answer);
    }
    drop(process);

    let (_process, objects) = serve(directory.path()).await;
    let existing: BTreeSet<String> =
        objects.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    let lost: Vec<&String> =
        known.iter().map(|(name, _)| name).filter(|name| !existing.contains(*name)).collect();
    assert!(lost.is_empty(), "lost {lost:?} of {}", known.len());
    let mut next = ConfigMap::default();
    next.metadata.name = Some("next".to_owned());
    let next = objects.create(&PostParams::default(), &next).await.unwrap();
    assert!(known.iter().all(|(_, used)| *used < version(&next)), "a resource version was reused");
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_of_a_killed_up_are_released_by_the_next_process() {
    let directory = tempfile::TempDir::new().unwrap();
    let held_by = |holder: &str| -> Lease {
        let spec = json!({ "holderIdentity": holder, "leaseDurationSeconds": i32::MAX });
        serde_json::from_value(json!({ "metadata": { "name": "kubevirt-operator" }, "spec": spec })).unwrap()
    };
    for (holder, is_retained) in [("vitistack up", false), ("another-1", true)] {
        let (process, objects) = serve(directory.path()).await;
        let client = objects.into_client();
        let namespace = json!({ "metadata": { "name": SYSTEM_NAMESPACE } });
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let _ = namespaces.create(&PostParams::default(), &serde_json::from_value(namespace).unwrap()).await;
        let leases: Api<Lease> = Api::namespaced(client, SYSTEM_NAMESPACE);
        leases.create(&PostParams::default(), &held_by(holder)).await.unwrap();
        drop(process);

        let (_process, objects) = serve(directory.path()).await;
        let leases: Api<Lease> = Api::namespaced(objects.into_client(), SYSTEM_NAMESPACE);
        let limit = Instant::now() + Duration::from_mins(1);
        while leases.get_opt("kubevirt-operator").await.unwrap().is_some() != is_retained {
            assert!(Instant::now() < limit, "unexpected lease of {holder}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Waits until the operator `datacenter` has a lease.
async fn await_lease(client: Client) {
    let leases: Api<Lease> = Api::default_namespaced(client);
    let limit = Instant::now() + Duration::from_mins(1);
    while leases.get_opt("datacenter-operator").await.unwrap().is_none() {
        assert!(Instant::now() < limit, "the operator does not use the server");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_follows_its_kubeconfig_to_a_server_with_another_identity() {
    let directory = tempfile::TempDir::new().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let start = |data: &str, listen: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vitistack"));
        command.args(["apiserver", "--listen", listen, "--data-dir"]).arg(directory.path().join(data));
        Killed(command.arg("--kubeconfig").arg(&kubeconfig).stdout(Stdio::null()).spawn().unwrap())
    };
    let first = start("a", "127.0.0.1:0");
    let client = client_of(&kubeconfig).await;
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    let server = text.lines().find_map(|line| line.trim().strip_prefix("server: https://")).unwrap();

    let mut command = Command::new(env!("CARGO_BIN_EXE_vitistack"));
    command.args(["run", "datacenter", "--namespace", "default", "--kubeconfig"]).arg(&kubeconfig);
    command.args(["--metrics-bind-address", "0", "--health-probe-bind-address", "0"]);
    let _operator = Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    await_lease(client).await;

    // The data directory is gone, and with it the certificate authority and the token.
    drop(first);
    std::fs::remove_file(&kubeconfig).unwrap();
    let _second = start("b", server);
    await_lease(client_of(&kubeconfig).await).await;
}
