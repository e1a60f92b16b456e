//! Credentials that cannot be used.

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use serde_json::json;
use vitistack_controller::{Caches, machine_provider};
use vitistack_machine::{
    BackendContext, backend_type,
    simulated::{MemoryStore, Stores},
};
use vitistack_runtime::Process;
use vitistack_types::v1alpha1::{MachineProvider, ProviderType};

use crate::test_cluster::{EVERYTHING, RunningProcess, TestCluster, settings};

fn kubeconfig(token: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "contexts": [{ "name": "here", "context": { "cluster": "one", "user": "me" } }],
        "clusters": [{ "name": "one", "cluster": { "server": "https://127.0.0.1:1" } }],
        "users": [{ "name": "me", "user": { "token": token } }],
    })
    .to_string()
}

fn run(cluster: &TestCluster) -> RunningProcess {
    let client = cluster.client.clone();
    let mut process = Process::new(settings(), client.clone());
    let caches = Caches::new(&mut process, client.clone(), EVERYTHING);
    let stores: Stores = std::sync::Arc::new(|_| std::sync::Arc::new(MemoryStore::default()));
    let backend = backend_type(ProviderType::OWN_CLUSTER);
    machine_provider::add(
        &mut process,
        &caches,
        [backend],
        BackendContext { client, watched: vitistack_types::WatchedNamespaces::ALL, stores },
    );
    RunningProcess::start(process)
}

#[tokio::test(start_paused = true)]
async fn a_token_that_panicked_the_operator_is_reported_in_credentials_valid() {
    let cluster = TestCluster::new().await;
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), "default");
    let secret = Secret {
        metadata: ObjectMeta { name: Some("login".to_owned()), ..ObjectMeta::default() },
        data: Some(
            [("kubeconfig".to_owned(), ByteString(kubeconfig("hunter2\r\nX-Injected: 1").into_bytes()))]
                .into(),
        ),
        ..Secret::default()
    };
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let secret_ref = json!({ "name": "login", "key": "kubeconfig" });
    let spec = json!({ "type": ProviderType::OWN_CLUSTER, "credentials": { "secretRef": secret_ref } });
    cluster.create("MachineProvider", "evil", spec).await;
    let running = run(&cluster);

    let providers: Api<MachineProvider> = Api::namespaced(cluster.client.clone(), "default");
    let status = loop {
        if let Some(status) = providers.get("evil").await.unwrap().status {
            break status;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    let valid = status.conditions.iter().find(|each| each.type_ == "CredentialsValid").unwrap();
    assert_eq!((valid.status.as_str(), valid.reason.as_str()), ("False", "InvalidCredentials"));
    assert_eq!(
        valid.message,
        "spec.credentials.secretRef: key \"kubeconfig\" of Secret \"login\": failed to accept the kubeconfig: a user.token with a space, a line break or a character outside ASCII is not accepted: put the token into it as the cluster issued it"
    );
    let text = format!("{:?}", status.conditions);
    assert!(!text.contains("hunter2") && !text.contains("Injected"), "{text}");
    running.stop().await;
}
