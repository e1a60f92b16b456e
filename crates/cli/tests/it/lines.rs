//! Helpers to apply manifests and to run command lines.

use std::{path::Path, process::Command};

use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams, TypeMeta},
    core::GroupVersionKind,
};
use serde_json::Value;

use crate::stage::Stage;

impl Stage {
    /// Applies the CRDs as they are printed.
    pub async fn install(&self) {
        let definitions = Command::new(env!("CARGO_BIN_EXE_vitistack")).arg("crds").output().unwrap().stdout;
        self.apply(String::from_utf8(definitions).unwrap().trim_start_matches("---\n")).await;
    }

    pub fn kubeconfig(&self) -> std::path::PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Runs a command line and returns a transcript.
    pub fn line(&self, line: &str) -> String {
        transcript_of(&self.kubeconfig(), line)
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

/// Runs a command line with a kubeconfig and returns a transcript.
pub fn transcript_of(kubeconfig: &Path, line: &str) -> String {
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
