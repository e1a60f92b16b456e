//! The socket.

use std::os::unix::fs::PermissionsExt as _;

use kube::{
    api::{Api, ListParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use vitistack_apiserver::{ServeOptions, serve};

async fn client(kubeconfig: &str) -> kube::Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

#[tokio::test]
async fn only_the_kubeconfig_grants_access() {
    let directory = tempfile::tempdir().unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let data_dir = Some(directory.path().to_owned());
    let serving = serve(ServeOptions { listen, data_dir, kubeconfig: None }).await.unwrap();
    let path = directory.path().join("kubeconfig");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let kubeconfig = std::fs::read_to_string(&path).unwrap();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client(&kubeconfig).await);
    assert_eq!(namespaces.list(&ListParams::default()).await.unwrap().items.len(), 4);
    let token = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap();
    let wrong = kubeconfig.replace(token, "wrong");
    let rejected: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client(&wrong).await);
    let error = rejected.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 401));

    let backup = || http::Request::get(vitistack_apiserver::backup::PATH).body(Vec::new()).unwrap();
    let error = client(&wrong).await.request_text(backup()).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 401));
    let objects = client(&kubeconfig).await.request_text(backup()).await.unwrap();
    assert!(objects.starts_with("{\"vitistackBackup\":1,") && objects.lines().count() == 5, "{objects}");
    assert!(!objects.contains(token) && !objects.contains("PRIVATE KEY"), "the identity is not sent");
    serving.stop().await;
}
