//! What the doctor says of a cluster.

use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::{stage::Stage, told};

#[test]
fn the_doctor_explains_itself() {
    insta::assert_snapshot!(told(&["doctor", "--help"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_operators_has_warnings_and_no_failure() {
    let stage = Stage::new().await;
    stage.install().await;
    insta::assert_snapshot!(stage.line("doctor"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_operators_cannot_do_without_is_a_failure() {
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
    let told = stage.line("doctor -o json");
    assert!(told.ends_with("vitistack: 2 of 14 checks failed\n(exit 1)"), "{told}");
    let findings = told.split_once('\n').unwrap().1.rsplit_once("vitistack:").unwrap().0;
    let findings: Vec<serde_json::Value> = serde_json::from_str(findings).unwrap();
    let failed: Vec<&str> = findings
        .iter()
        .filter(|finding| finding["result"] == "failed")
        .map(|finding| finding["check"].as_str().unwrap())
        .collect();
    assert_eq!(failed, ["definition of Machine", "operator kubevirt"]);
}

#[test]
fn every_shell_gets_a_script_and_every_command_a_page() {
    for (shell, line) in
        [("bash", "complete -F"), ("zsh", "#compdef vitistack"), ("fish", "complete -c vitistack")]
    {
        let script = told(&["completion", shell]);
        assert!(
            script.contains(line) && script.contains("doctor") && script.ends_with("(exit 0)"),
            "{shell}"
        );
    }
    let directory = tempfile::TempDir::new().unwrap();
    let pages = directory.path().join("man1");
    let said = told(&["man", "--dir", pages.to_str().unwrap()]);
    assert!(said.ends_with("(exit 0)"), "{said}");
    let page = std::fs::read_to_string(pages.join("vitistack-doctor.1")).unwrap();
    assert!(page.contains("vitistack doctor"), "{page}");
    assert!(!pages.join("vitistack-apiserver.1").exists(), "what is hidden has no page");
}
