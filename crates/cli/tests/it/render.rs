//! `vitistack render`.

use std::io::Write as _;

use crate::{lines::transcript_of, stage::Stage};

const FILE: &str = r"apiVersion: vitistack.io/v1alpha1
kind: MachineProvider
metadata: {name: rack}
spec: {type: kubevirt, kubevirt: {namespace: machines}}
---
apiVersion: vitistack.io/v1alpha1
kind: NetworkConfiguration
metadata: {name: lan}
spec: {bridge: br0, vlan: 7}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: something-else}
---
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: web}
spec:
  template: small
  providerRef: {name: rack}
  networks: [{name: eth0, networkName: lan}]
  disks: [{name: data, size: 1Gi, storageClass: fast}]
  cloudInit: {userData: '#cloud-config', secretRef: {name: first-boot, key: userdata}}
";

/// Renders a file without a cluster.
fn rendered(manifests: &str) -> String {
    let directory = tempfile::TempDir::new().unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(manifests.as_bytes()).unwrap();
    let path = file.path().to_str().unwrap();
    let missing = directory.path().join("no-kubeconfig");
    transcript_of(&missing, &format!("render -f {path}"))
        .replace(path, "FILE")
        .replace(missing.to_str().unwrap(), "KUBECONFIG")
}

#[test]
fn a_machine_is_rendered_without_a_cluster() {
    let shown = rendered(FILE);
    assert!(!shown.contains("I2Nsb3VkLWNvbmZpZw"), "no first-boot configuration is shown");
    insta::assert_snapshot!(shown);
}

#[test]
fn errors_name_the_fix() {
    let output = [
        rendered("a: b"),
        rendered(&FILE.replace("template: small", "template: very small")),
        rendered(&FILE.replace("template: small", "template: huge")),
        rendered(&FILE.replace("networkName: lan", "networkName: wan")),
        rendered(&FILE.replace("providerRef: {name: rack}", "providerRef: {name: other}")),
        rendered(&FILE.replace("{type: kubevirt, kubevirt: {namespace: machines}}", "{type: simulated}")),
        rendered(&FILE.replace("name: data,", "name: private,")),
        rendered("{"),
    ];
    insta::assert_snapshot!(output.join("\n\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_objects_are_read_from_the_cluster() {
    let stage = Stage::new().await;
    stage.apply("apiVersion: vitistack.io/v1alpha1\nkind: MachineClass\nmetadata: {name: tiny}\nspec: {resources: {cpu: {cores: 3}, memory: {size: 1Gi}}, disks: [{name: root, size: 1Gi}]}").await;
    let file = stage.kubeconfig().with_file_name("machine.yaml");
    std::fs::write(
        &file,
        "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: web}\nspec: {template: tiny}\n",
    )
    .unwrap();
    let output = stage.line(&format!("render -f {}", file.display()));
    assert!(output.contains("cores: 3") && output.ends_with("(exit 0)"), "{output}");
}
