//! The embedded API as a process that is killed in the middle of writes.

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

/// Starts the API on a data directory and waits until it answers.
async fn serve(directory: &Path) -> (Killed, Api<ConfigMap>) {
    let kubeconfig = directory.join("kubeconfig");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vitistack"));
    command.args(["apiserver", "--data-dir"]).arg(directory).stdout(Stdio::null());
    // What a killed process left is not what the new one writes when it is ready.
    let _ = std::fs::remove_file(&kubeconfig);
    let process = Killed(command.spawn().unwrap());
    let limit = Instant::now() + Duration::from_mins(1);
    while !kubeconfig.exists() {
        assert!(Instant::now() < limit, "the API did not start");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    (process, Api::default_namespaced(Client::try_from(config).unwrap()))
}

fn version(object: &ConfigMap) -> u64 {
    object.resource_version().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_answered_is_lost_by_kill_9() {
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
                    Ok(made) => acknowledge.send((made.name_any(), version(&made))).unwrap(),
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
    let there: BTreeSet<String> =
        objects.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    let lost: Vec<&String> =
        known.iter().map(|(name, _)| name).filter(|name| !there.contains(*name)).collect();
    assert!(lost.is_empty(), "lost {lost:?} of {}", known.len());
    let mut next = ConfigMap::default();
    next.metadata.name = Some("next".to_owned());
    let next = objects.create(&PostParams::default(), &next).await.unwrap();
    assert!(known.iter().all(|(_, used)| *used < version(&next)), "a version is never used again");
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_that_a_killed_up_left_do_not_silence_whoever_comes_next() {
    let directory = tempfile::TempDir::new().unwrap();
    let held_by = |holder: &str| -> Lease {
        let spec = json!({ "holderIdentity": holder, "leaseDurationSeconds": i32::MAX });
        serde_json::from_value(json!({ "metadata": { "name": "kubevirt-operator" }, "spec": spec })).unwrap()
    };
    for (holder, is_kept) in [("vitistack up", false), ("another-1", true)] {
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
        while leases.get_opt("kubevirt-operator").await.unwrap().is_some() != is_kept {
            assert!(Instant::now() < limit, "the lease of {holder} is not as it should be");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
