//! A client on a server that is replaced by another one at the same address.

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use clap::Parser;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::ListParams};
use vitistack_apiserver::{ServeOptions, Serving, serve};
use vitistack_runtime::{OperatorArgs, client_from};

/// The settings of an operator.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    settings: OperatorArgs,
}

/// Serves with the identity of a data directory, on an address that the previous server may still be leaving.
async fn start(listen: SocketAddr, data_dir: &Path, kubeconfig: &Path) -> Serving {
    loop {
        let options = ServeOptions {
            listen,
            data_dir: Some(data_dir.to_owned()),
            kubeconfig: Some(kubeconfig.to_owned()),
        };
        match serve(options).await {
            Ok(serving) => return serving,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Whether the server accepts the client.
async fn works(client: &Client) -> Result<usize, kube::Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    Ok(namespaces.list(&ListParams::default()).await?.items.len())
}

/// Waits until the client works.
async fn recover(client: &Client) {
    let limit = Instant::now() + Duration::from_mins(1);
    while works(client).await.is_err() {
        assert!(Instant::now() < limit, "the client did not recover");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_follows_its_kubeconfig_to_a_server_with_another_identity() {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let first = start("127.0.0.1:0".parse().unwrap(), &directory.path().join("a"), &kubeconfig).await;
    let address = first.address;
    let old = std::fs::read_to_string(&kubeconfig).unwrap();
    let arguments = Arguments::parse_from(["test".as_ref(), "--kubeconfig".as_ref(), kubeconfig.as_os_str()]);
    let client = client_from(&arguments.settings).await.unwrap();
    assert!(works(&client).await.unwrap() > 0);
    first.stop().await;

    let second = start(address, &directory.path().join("b"), &kubeconfig).await;
    let new = std::fs::read_to_string(&kubeconfig).unwrap();
    std::fs::write(&kubeconfig, &old).unwrap();
    let error = works(&client).await.unwrap_err().to_string();
    assert!(!error.contains("token:"), "{error}");
    assert!(works(&client).await.is_err(), "the old kubeconfig is not of this server");

    std::fs::write(&kubeconfig, &new).unwrap();
    recover(&client).await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_follows_its_kubeconfig_after_the_token_is_rotated() {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let serving = start("127.0.0.1:0".parse().unwrap(), &directory.path().join("a"), &kubeconfig).await;
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    std::fs::write(&kubeconfig, text.replace("token: ", "token: old-")).unwrap();
    let arguments = Arguments::parse_from(["test".as_ref(), "--kubeconfig".as_ref(), kubeconfig.as_os_str()]);
    let client = client_from(&arguments.settings).await.unwrap();
    let refused = works(&client).await;
    assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 401), "{refused:?}");

    std::fs::write(&kubeconfig, &text).unwrap();
    recover(&client).await;
    serving.stop().await;
}
