//! `vitistack doctor`, shell completions and man pages.

use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::{stage::Stage, transcript};

#[test]
fn help_of_doctor() {
    insta::assert_snapshot!(transcript(&["doctor", "--help"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_operators_has_warnings_and_no_failure() {
    let stage = Stage::new().await;
    stage.install().await;
    insta::assert_snapshot!(stage.line("doctor"));
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_requirements_are_failures() {
    let stage = Stage::new().await;
    stage.install().await;
    let definitions: Api<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    > = Api::all(stage.client.clone());
    definitions.delete("machines.vitistack.io", &DeleteParams::default()).await.unwrap();
    stage.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: vitistack-system}").await;
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
        Api::namespaced(stage.client.clone(), "vitistack-system");
    let lease = json!({ "metadata": { "name": "kubevirt" }, "spec": { "holderIdentity": "pod-1",
        "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z" } });
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    let report = stage.line("doctor -o json");
    assert!(report.contains("vitistack: 2 of ") && report.ends_with(" checks failed\n(exit 1)"), "{report}");
    let findings = report.split_once('\n').unwrap().1.rsplit_once("vitistack:").unwrap().0;
    let findings: Vec<serde_json::Value> = serde_json::from_str(findings).unwrap();
    let failed: Vec<&str> = findings
        .iter()
        .filter(|finding| finding["result"] == "failed")
        .map(|finding| finding["check"].as_str().unwrap())
        .collect();
    assert_eq!(failed, ["CRD machines.vitistack.io", "kubevirt"]);
}

#[test]
fn completions_for_every_shell_and_a_man_page_for_every_command() {
    for (shell, line) in
        [("bash", "complete -F"), ("zsh", "#compdef vitistack"), ("fish", "complete -c vitistack")]
    {
        let script = transcript(&["completion", shell]);
        assert!(
            script.contains(line) && script.contains("doctor") && script.ends_with("(exit 0)"),
            "{shell}"
        );
    }
    let directory = tempfile::TempDir::new().unwrap();
    let pages = directory.path().join("man1");
    let output = transcript(&["man", "--dir", pages.to_str().unwrap()]);
    assert!(output.ends_with("(exit 0)"), "{output}");
    let page = std::fs::read_to_string(pages.join("vitistack-doctor.1")).unwrap();
    assert!(page.contains("vitistack doctor"), "{page}");
    assert!(page.contains(".SH \"EXAMPLES\"") && page.contains(".SH \"EXIT STATUS\""), "{page}");
    assert!(!page.contains("EXTRA"), "{page}");
    assert!(pages.join("vitistack-apiserver-backup.1").exists(), "subcommands have pages too");
}
