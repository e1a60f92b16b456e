//! Exports a platform and restores it elsewhere.

use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{lines::transcript_of, stage::Stage};

const PLATFORM: &str = r"apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: web, namespace: default}
spec: {template: large-disk, cloudInit: {secretRef: {name: first-boot, key: userdata}}}
---
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: web, namespace: shop}
spec: {template: small}
---
apiVersion: vitistack.io/v1alpha1
kind: Datacenter
metadata: {name: west, namespace: default}
spec: {region: west, machineProviders: [{name: rack, priority: 1}]}
---
apiVersion: vitistack.io/v1alpha1
kind: MachineProvider
metadata: {name: rack, namespace: default}
spec: {type: kubevirt, credentials: {secretRef: {name: rack-kubeconfig, key: kubeconfig}}}
---
apiVersion: vitistack.io/v1alpha1
kind: NetworkConfiguration
metadata: {name: lan, namespace: default}
spec: {bridge: br0, vlan: 7}
---
apiVersion: vitistack.io/v1alpha1
kind: MachineClass
metadata: {name: large-disk}
spec: {resources: {cpu: {cores: 1}, memory: {size: 1Gi}}, disks: [{name: root, size: 1Ti}]}";

#[tokio::test(flavor = "multi_thread")]
async fn a_platform_is_restored_elsewhere_with_its_identities() {
    let stage = Stage::new().await;
    stage.apply(PLATFORM).await;
    let metadata = json!({ "metadata": {
        "finalizers": ["machine.vitistack.io/cleanup"],
        "annotations": {
            "vitistack.io/identity": "the-identity",
            "vitistack.io/adopted": "some-uid",
            "vitistack.io/placement": "default/rack",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
        },
    } });
    stage.machines().patch("web", &PatchParams::default(), &Patch::Merge(&metadata)).await.unwrap();
    let status = json!({ "status": { "phase": "Running" } });
    stage.machines().patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    stage.apply("apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: leaving, namespace: default, finalizers: [example.com/stays]}\nspec: {template: small}").await;
    stage.machines().delete("leaving", &DeleteParams::default()).await.unwrap();

    let exported = stage.line("export -A");
    insta::assert_snapshot!(exported);
    let own = stage.line("export");
    assert!(!own.contains("namespace: shop") && own.contains("kind: MachineClass"), "{own}");

    let elsewhere = Stage::new().await;
    elsewhere.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}").await;
    let (_, documents) = exported.split_once("---\n").unwrap();
    elsewhere.apply(documents.split("(exit").next().unwrap()).await;
    let machine = elsewhere.machines().get("web").await.unwrap();
    assert_eq!(machine.annotations()["vitistack.io/identity"], "the-identity");
    let again = elsewhere.line("export -A");
    assert_eq!(again.split_once("---\n").unwrap().1, documents, "the restored platform differs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_in_deletion_is_exported_with_its_machines_after_its_world() {
    let stage = Stage::new().await;
    let provider = |name: &str| {
        format!(
            "apiVersion: vitistack.io/v1alpha1\nkind: MachineProvider\nmetadata: {{name: {name}, namespace: default, finalizers: [machineprovider.vitistack.io/in-use], annotations: {{vitistack.io/identity: before}}}}\nspec: {{type: simulated}}"
        )
    };
    let world = |name: &str| vitistack_machine::simulated::world_name("default", name, "before");
    for name in ["stays", "leaves", "leaves-empty"] {
        stage.apply(&provider(name)).await;
        let (world, head) = (world(name), world(name));
        for name in [head, format!("{world}-0")] {
            stage.apply(&format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default, labels: {{vitistack.io/world: {world}}}}}\ndata: {{key: value}}")).await;
        }
    }
    stage.apply("apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: web, namespace: default, annotations: {vitistack.io/placement: default/leaves}}\nspec: {template: small}").await;
    let providers = stage.objects("vitistack.io/v1alpha1", "MachineProvider");
    for name in ["leaves", "leaves-empty"] {
        providers.delete(name, &DeleteParams::default()).await.unwrap();
    }
    insta::assert_snapshot!(stage.line("export"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partial_export_is_marked() {
    let stage = Stage::new().await;
    stage.apply(PLATFORM).await;
    let definitions = kube::Api::<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    >::all(stage.client.clone());
    definitions.delete("datacenters.vitistack.io", &DeleteParams::default()).await.unwrap();
    let limit = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while definitions.get_opt("datacenters.vitistack.io").await.unwrap().is_some() {
        assert!(std::time::Instant::now() < limit, "the CRD was not deleted");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let output = stage.line("export -A");
    assert!(output.contains("# Incomplete: failed to list datacenters"), "{output}");
    assert!(output.contains("vitistack: failed to list datacenters"), "{output}");
    assert!(output.contains("kind: Machine\n") && output.ends_with("(exit 3)"), "{output}");
}

#[test]
fn an_unreachable_cluster_is_an_error() {
    let directory = tempfile::TempDir::new().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let cluster = json!({ "name": "gone", "cluster": { "server": "http://127.0.0.1:1" } });
    let context = json!({ "name": "gone", "context": { "cluster": "gone", "user": "none" } });
    let config = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "gone",
        "clusters": [cluster], "contexts": [context], "users": [{ "name": "none", "user": {} }] });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let output = transcript_of(&kubeconfig, "export -A");
    assert!(output.contains("failed to connect") && !output.ends_with("(exit 0)"), "{output}");
}
