//! `vitistack plan` on the embedded API.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::{lines::transcript_of, stage::Stage};

const PLATFORM: &str = r"apiVersion: vitistack.io/v1alpha1
kind: MachineProvider
metadata: {name: rack, namespace: default}
spec:
  type: simulated
  instanceTypes:
  - {name: s, cpu: 1, memory: 2Gi, price: {perHour: '0.02', currency: EUR}}
  - {name: m, cpu: 2, memory: 4Gi, price: {perHour: '0.05', currency: EUR}}
---
apiVersion: vitistack.io/v1alpha1
kind: Datacenter
metadata: {name: west, namespace: default}
spec: {region: west, machineProviders: [{name: rack, priority: 1}], resourceQuotas: {maxMachines: 2}}
---
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: web, namespace: default}
spec:
  template: small
  zone: a
  datacenterRef: {name: west}
  disks: [{name: data, size: 10Gi}]
";

/// A platform with a Machine that is placed.
async fn platform() -> Stage {
    let stage = Stage::new().await;
    stage.apply(PLATFORM).await;
    let metadata = json!({ "metadata": {
        "finalizers": ["machine.vitistack.io/cleanup"],
        "annotations": { "vitistack.io/placement": "default/rack" },
    } });
    stage.machines().patch("web", &PatchParams::default(), &Patch::Merge(&metadata)).await.unwrap();
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "Reachable",
        "message": "it answers", "lastTransitionTime": "2026-01-01T00:00:00Z" }] } });
    let providers = stage.objects("vitistack.io/v1alpha1", "MachineProvider");
    providers.patch_status("rack", &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();
    stage
}

fn planned(stage: &Stage, what: &str, manifests: &str, more: &str) -> String {
    let file = stage.kubeconfig().with_file_name("file.yaml");
    std::fs::write(&file, manifests).unwrap();
    let path = file.to_str().unwrap();
    let output = transcript_of(&stage.kubeconfig(), &format!("plan -f {path} --field-manager test{more}"));
    format!("# {what}\n{}", output.replace(path, "FILE"))
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_shows_changes_and_writes_nothing() {
    let stage = platform().await;
    let before = serde_json::to_value(stage.machines().get("web").await.unwrap()).unwrap();
    let machine = PLATFORM.rsplit("---\n").next().unwrap();
    let another = |name: &str| {
        machine.replace("name: web, namespace: default", &format!("name: {name}")).replace("  zone: a\n", "")
    };
    let secret =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: first-boot}\nstringData: {userdata: '#hidden'}\n";
    let with_secret = another("db")
        .replace("  disks", "  cloudInit: {secretRef: {name: first-boot, key: userdata}}\n  disks");
    let pages = [
        planned(&stage, "unchanged", PLATFORM, ""),
        planned(
            &stage,
            "two more, one beyond the quota",
            &format!("{}---\n{}", another("db"), another("queue")),
            "",
        ),
        planned(&stage, "resized", &machine.replace("small", "medium"), ""),
        planned(&stage, "a disk removed", &machine.replace("  disks: [{name: data, size: 10Gi}]\n", ""), ""),
        planned(&stage, "refused by a rule", &machine.replace("zone: a", "zone: b"), ""),
        planned(&stage, "another quota", &PLATFORM.replace("maxMachines: 2", "maxMachines: 9"), ""),
        planned(&stage, "without its Secret", &with_secret, ""),
        planned(&stage, "with its Secret", &format!("{secret}---\n{with_secret}"), ""),
        planned(&stage, "for programs", &machine.replace("small", "medium"), " -o json"),
        planned(&stage, "in YAML", &machine.replace("small", "medium"), " -o yaml"),
        planned(&stage, "nothing of ours", secret, ""),
        planned(&stage, "a kind that does not exist", &machine.replace("kind: Machine", "kind: Cluster"), ""),
    ];
    let output = pages.join("\n\n");
    assert!(!output.contains("#hidden"), "the content of a Secret is never shown");
    let after = serde_json::to_value(stage.machines().get("web").await.unwrap()).unwrap();
    assert_eq!(before, after, "nothing is written");
    assert_eq!(stage.machines().get_opt("db").await.unwrap().map(|_| ()), None);
    insta::assert_snapshot!(output);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_standard_input_are_one_plan() {
    let stage = Stage::new().await;
    let network = stage.kubeconfig().with_file_name("network.yaml");
    std::fs::write(
        &network,
        "apiVersion: vitistack.io/v1alpha1\nkind: NetworkConfiguration\nmetadata: {name: lan}\nspec: {bridge: br0}\n",
    )
    .unwrap();
    let mut plan = Command::new(env!("CARGO_BIN_EXE_vitistack"))
        .args(["plan", "-n", "default", "-f", network.to_str().unwrap(), "-f", "-"])
        .env("KUBECONFIG", stage.kubeconfig())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let machine = "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: web}\nspec: {template: small, networks: [{name: eth0, networkName: lan}]}\n";
    plan.stdin.take().unwrap().write_all(machine.as_bytes()).unwrap();
    let output = plan.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(String::from_utf8(output.stdout).unwrap());
}

/// `kubectl apply --server-side` removes fields that it set before: the plan must use its field manager.
#[cfg(feature = "integration")]
#[tokio::test(flavor = "multi_thread")]
async fn plan_on_a_real_server() {
    let server = vitistack_testkit::KubeServer::start(&vitistack_testkit::Options::default()).await.unwrap();
    let definitions = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/crd");
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("file.yaml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, PLATFORM).unwrap();
    for what in [definitions, path] {
        let applied = server.kubectl(&["apply", "--server-side", "-f", what]).unwrap();
        assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
        let wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
        assert!(server.kubectl(&wait).unwrap().status.success());
    }
    let planned = |manifests: &str| {
        std::fs::write(&file, manifests).unwrap();
        transcript_of(&server.kubeconfig_path(), &format!("plan -f {path}")).replace(path, "FILE")
    };
    let machine = PLATFORM.rsplit("---\n").next().unwrap();
    let pages = [
        planned(PLATFORM),
        planned(&machine.replace("  disks: [{name: data, size: 10Gi}]\n", "")),
        planned(&machine.replace("zone: a", "zone: b")),
        planned(&machine.replace("namespace: default", "namespace: nowhere")),
        planned(&machine.replace("name: web", "name: db")),
    ];
    insta::assert_snapshot!(pages.join("\n\n"));
}
