//! The embedded API on a disk that becomes full, and has space again.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use http::{Request, StatusCode};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};

use crate::{Killed, crash::client_of};

/// Starts the API on a disk of 96 MiB that only this process sees.
async fn serve_on_a_small_disk(directory: &Path) -> (Killed, Client) {
    let (disk, kubeconfig) = (directory.join("disk"), directory.join("kubeconfig"));
    std::fs::create_dir(&disk).unwrap();
    let script =
        r#"mount -t tmpfs -o size=96m tmpfs "$1" && exec "$2" apiserver --data-dir "$1" --kubeconfig "$3""#;
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .args([&disk, Path::new(env!("CARGO_BIN_EXE_vitistack")), &kubeconfig])
        .stdout(Stdio::null());
    let process = Killed(command.spawn().unwrap());
    let client = client_of(&kubeconfig).await;
    (process, client)
}

/// Whether a probe succeeds.
async fn probe(client: &Client, path: &str) -> bool {
    let request = Request::get(path).body(Vec::new()).unwrap();
    client.request_text(request).await.is_ok()
}

/// Creates an object of 1 MB.
async fn create(objects: &Api<ConfigMap>, name: &str) -> Result<(), kube::Error> {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.data = Some([("text".to_owned(), "x".repeat(1_000_000))].into());
    objects.create(&PostParams::default(), &object).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_accepts_deletions_and_recovers_without_a_restart() {
    let directory = tempfile::TempDir::new().unwrap();
    let (_process, client) = serve_on_a_small_disk(directory.path()).await;
    let objects: Api<ConfigMap> = Api::default_namespaced(client.clone());

    let mut acknowledged = Vec::new();
    let error = loop {
        let name = format!("object-{}", acknowledged.len());
        match create(&objects, &name).await {
            Ok(()) => acknowledged.push(name),
            Err(error) => break error,
        }
        assert!(acknowledged.len() < 100, "the disk never became full");
    };
    assert!(
        matches!(&error, kube::Error::Api(status) if status.code == StatusCode::INTERNAL_SERVER_ERROR),
        "{error}"
    );
    assert!(probe(&client, "/livez").await);
    assert!(!probe(&client, "/readyz").await, "a store that takes no creates is not ready");
    let refused = create(&objects, "refused").await.unwrap_err().to_string();
    assert!(
        refused.contains("no space is left") && refused.contains("only deletions are accepted"),
        "{refused}"
    );

    let listed = objects.list(&ListParams::default()).await.unwrap();
    let listed = listed.iter().filter(|object| object.name_any().starts_with("object-")).count();
    assert_eq!(listed, acknowledged.len(), "what was acknowledged is there, and nothing else");

    // The advice of the message.
    for name in acknowledged.iter().take(acknowledged.len() * 3 / 4) {
        objects.delete(name, &DeleteParams::default()).await.unwrap();
    }
    let limit = Instant::now() + Duration::from_mins(1);
    while !probe(&client, "/readyz").await {
        assert!(Instant::now() < limit, "the store did not recover");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    create(&objects, "after").await.unwrap();
}
