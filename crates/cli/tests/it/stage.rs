//! The embedded API as a process with every kind installed, and the binary used on it.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, Patch, PatchParams, TypeMeta},
    config::{KubeConfigOptions, Kubeconfig},
    core::GroupVersionKind,
};
use serde_json::Value;

use crate::Killed;

pub struct Stage {
    _process: Killed,
    directory: tempfile::TempDir,
    pub client: Client,
}

impl Stage {
    pub async fn start() -> Self {
        let directory = tempfile::TempDir::new().unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        let mut command = Command::new(env!("CARGO_BIN_EXE_vitistack"));
        command.args(["apiserver", "--data-dir"]).arg(directory.path()).stdout(Stdio::null());
        let process = Killed(command.spawn().unwrap());
        let limit = Instant::now() + Duration::from_mins(1);
        while !kubeconfig.exists() {
            assert!(Instant::now() < limit, "the API did not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let kubeconfig = Kubeconfig::read_from(&kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let client = Client::try_from(config).unwrap();
        let stage = Self { _process: process, directory, client };
        let definitions = Command::new(env!("CARGO_BIN_EXE_vitistack")).arg("crds").output().unwrap().stdout;
        stage.apply(String::from_utf8(definitions).unwrap().trim_start_matches("---\n")).await;
        stage
    }

    pub fn kubeconfig(&self) -> std::path::PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Exit code, standard output and standard error of the binary, as a reader sees them.
    pub fn told(&self, line: &str) -> String {
        told_by(&self.kubeconfig(), line)
    }

    /// Applies manifests, as `kubectl apply --server-side` would.
    pub async fn apply(&self, manifests: &str) {
        for document in manifests.split("\n---\n") {
            let value: Value = serde_saphyr::from_str(document).unwrap();
            let object: DynamicObject = serde_json::from_value(value).unwrap();
            let name = object.metadata.name.clone().unwrap();
            let parameters = PatchParams::apply("test").force();
            let api = self.objects_of(object.types.as_ref().unwrap(), object.metadata.namespace.as_deref());
            api.patch(&name, &parameters, &Patch::Apply(&object)).await.unwrap();
        }
    }

    fn objects_of(&self, types: &TypeMeta, namespace: Option<&str>) -> Api<DynamicObject> {
        let kind = GroupVersionKind::try_from(types).unwrap();
        let resource = ApiResource::from_gvk(&kind);
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Objects of a kind in the namespace `default`.
    pub fn objects(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let types = TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() };
        self.objects_of(&types, Some("default"))
    }

    pub fn machines(&self) -> Api<DynamicObject> {
        self.objects("vitistack.io/v1alpha1", "Machine")
    }
}

pub fn told_by(kubeconfig: &Path, line: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_vitistack"))
        .args(line.split_whitespace())
        .env("KUBECONFIG", kubeconfig)
        .env("COLUMNS", "100")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    format!(
        "$ vitistack {line}\n{}{}(exit {})",
        text(&output.stdout),
        text(&output.stderr),
        output.status.code().unwrap()
    )
}
