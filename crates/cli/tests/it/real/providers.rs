//! Machines on providers: other clusters by kubeconfig, defaults, references, and their errors.

use serde_json::{Value, json};
use vitistack_machine::kubevirt::Kind;
use vitistack_testkit::AuditedRequest;

use super::bed::{Bed, REMOTES, Replica};

/// Where providers and their credentials are.
const CLUSTERS: &str = "clusters";
/// Where the remote cluster has its machines.
const ELSEWHERE: &str = "elsewhere";

pub async fn providers_of_every_sort(bed: &Bed, operator: &Replica) -> String {
    for namespace in [CLUSTERS, ELSEWHERE, "strangers", UNDECIDED] {
        bed.namespace(namespace).await;
    }
    let rules: Vec<Value> = Kind::ALL
        .into_iter()
        .map(|kind| {
            let (group, resources) = kind.rule();
            json!({ "apiGroups": [group], "resources": resources, "verbs": kind.verbs() })
        })
        .collect();
    bed.create(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "remote" },
        "rules": rules,
    }))
    .await;
    bed.bind("remote", None, &REMOTES).await;
    // Machines in the operator's own cluster stay there.
    bed.reach("examples", "basic-vm", "Running").await;

    let none = no_default(bed).await;
    let credentials = credentials_that_run_programs_are_refused(bed).await;
    another_kubeconfig_is_used_at_once(bed, operator).await;
    let away = a_cluster_that_is_away_harms_its_own_machines_only(bed).await;
    let reference = a_reference_that_is_not_permitted(bed).await;
    let defaults = two_defaults(bed).await;
    [none, credentials, away, reference, defaults].join("\n\n")
}

async fn provider(bed: &Bed, namespace: &str, name: &str, spec: Value) {
    bed.create(&json!({
        "apiVersion": "vitistack.io/v1alpha1", "kind": "MachineProvider",
        "metadata": { "name": name, "namespace": namespace }, "spec": spec,
    }))
    .await;
}

/// A provider of the cluster that a kubeconfig in a Secret of the same name says.
fn remote(name: &str) -> Value {
    let credentials = json!({ "secretRef": { "name": name, "key": "kubeconfig" } });
    json!({ "type": "kubevirt", "kubevirt": { "namespace": ELSEWHERE }, "credentials": credentials })
}

fn secret(name: &str, kubeconfig: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": CLUSTERS },
        "stringData": { "kubeconfig": kubeconfig },
    })
}

/// The kubeconfig of a user, with everything in it.
fn kubeconfig(bed: &Bed, user: &str) -> String {
    let path = bed.server.kubeconfig_of(user).display().to_string();
    bed.kubectl(&["config", "view", "--kubeconfig", &path, "--raw", "--flatten"])
}

async fn machine(bed: &Bed, name: &str, on: &str) {
    bed.machine(CLUSTERS, name, json!({ "template": "small", "providerRef": { "name": on } })).await;
}

async fn credentials_that_run_programs_are_refused(bed: &Bed) -> String {
    let hostile = kubeconfig(bed, REMOTES[0]).replace(
        &format!("token: {}-token", REMOTES[0]),
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: [top-secret]}",
    );
    assert!(hostile.contains("exec"), "the kubeconfig has no token where one was expected");
    provider(bed, CLUSTERS, "hq", remote("hq")).await;
    machine(bed, "far", "hq").await;
    let missing = bed.refused(CLUSTERS, "far", "SecretNotFound", "not found").await;
    bed.create(&secret("hq", &hostile)).await;
    let report = bed.refused(CLUSTERS, "far", "InvalidCredentials", "exec").await;
    bed.patch("Secret", CLUSTERS, "hq", secret("hq", &kubeconfig(bed, REMOTES[0]))).await;
    let machine = bed.reach(CLUSTERS, "far", "Running").await;
    assert_eq!(machine.data["status"]["provider"], json!({ "name": "hq", "namespace": CLUSTERS }));
    let real = bed.find("VirtualMachine", ELSEWHERE, "far").await.unwrap();
    assert_eq!(real.metadata.owner_references, None, "an owner in another cluster cannot be found");
    format!("{missing}\n\n{report}")
}

async fn another_kubeconfig_is_used_at_once(bed: &Bed, operator: &Replica) {
    bed.patch("Secret", CLUSTERS, "hq", secret("hq", &kubeconfig(bed, REMOTES[1]))).await;
    let is_used = || bed.server.audit().unwrap().iter().any(|request| request.user == REMOTES[1]);
    let used = async || is_used().then_some(());
    super::bed::eventually("the other kubeconfig to be used", used, async || operator.last_words()).await;
    let before = bed.asked_by(&REMOTES).len();
    machine(bed, "later", "hq").await;
    bed.reach(CLUSTERS, "later", "Running").await;
    let writers: Vec<String> = bed
        .asked_by(&REMOTES)
        .split_off(before)
        .into_iter()
        .filter(AuditedRequest::is_write)
        .map(|request| request.user)
        .collect();
    assert!(!writers.is_empty() && writers.iter().all(|writer| writer == REMOTES[1]), "{writers:?}");
}

async fn a_cluster_that_is_away_harms_its_own_machines_only(bed: &Bed) -> String {
    let there = kubeconfig(bed, REMOTES[0]);
    let server = there.lines().find_map(|line| line.trim().strip_prefix("server: ")).unwrap();
    let away = there.replace(server, "https://127.0.0.1:1");
    bed.create(&secret("away", &away)).await;
    provider(bed, CLUSTERS, "away", remote("away")).await;
    machine(bed, "lost", "away").await;
    let report = bed.refused(CLUSTERS, "lost", "KubeVirtApiError", "refuses the connection").await;
    // Other machines are created and deleted meanwhile.
    bed.delete("Machine", CLUSTERS, "far").await;
    bed.await_gone("Machine", CLUSTERS, "far").await;
    bed.await_gone("VirtualMachine", ELSEWHERE, "far").await;
    machine(bed, "near", "hq").await;
    bed.reach(CLUSTERS, "near", "Running").await;
    bed.patch("Secret", CLUSTERS, "away", secret("away", &there)).await;
    bed.reach(CLUSTERS, "lost", "Running").await;
    report
}

async fn a_reference_that_is_not_permitted(bed: &Bed) -> String {
    let reference = json!({ "name": "hq", "namespace": CLUSTERS });
    bed.machine("strangers", "guest", json!({ "template": "small", "providerRef": reference })).await;
    let report = bed.refused("strangers", "guest", "ReferenceNotPermitted", CLUSTERS).await;
    let annotations = json!({ "vitistack.io/allow-references-from": "strangers" });
    bed.patch("MachineProvider", CLUSTERS, "hq", json!({ "metadata": { "annotations": annotations } })).await;
    bed.reach("strangers", "guest", "Running").await;
    report
}

const UNDECIDED: &str = "undecided";

fn default(value: &str) -> Value {
    json!({ "metadata": { "annotations": { "vitistack.io/is-default-provider": value } } })
}

/// A Machine without any provider; afterwards there are two that would take it.
async fn no_default(bed: &Bed) -> String {
    // Only a provider of the platform ends what its own cluster offers.
    provider(bed, "vitistack-system", "other-cluster", json!({ "type": "kubevirt" })).await;
    bed.machine(UNDECIDED, "orphan", json!({ "template": "small", "powerState": "Stopped" })).await;
    let report = bed.refused(UNDECIDED, "orphan", "NoDefaultProvider", "has a default provider").await;
    bed.delete("Machine", UNDECIDED, "orphan").await;
    for name in ["one", "other"] {
        provider(bed, UNDECIDED, name, json!({ "type": "kubevirt" })).await;
        bed.patch("MachineProvider", UNDECIDED, name, default("true")).await;
    }
    report
}

/// The operator knows of both by now: it has seen what was done to other providers later.
async fn two_defaults(bed: &Bed) -> String {
    bed.machine(UNDECIDED, "torn", json!({ "template": "small" })).await;
    let report =
        bed.refused(UNDECIDED, "torn", "SeveralDefaultProviders", "undecided/one and undecided/other").await;
    bed.patch("MachineProvider", UNDECIDED, "other", default("false")).await;
    let machine = bed.reach(UNDECIDED, "torn", "Running").await;
    assert_eq!(machine.data["status"]["provider"]["name"], "one");
    report
}
