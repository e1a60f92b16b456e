//! A tenant of the namespace `default` asks for what belongs to others.

use vitistack_plan::machine::Problem;

use super::case::{Case, IDENTITY, case};

/// A Machine with a copy of the claim `golden`, on a provider that creates all machines in one namespace, beside this claim.
fn copying(metadata: &str) -> Case {
    case(&format!(
        "{{namespace: virtual-machines, spec: {{template: small, disks: [{{name: loot, size: 20Gi, source: {{claim: golden}}}}]}}, cluster: [{{kind: PersistentVolumeClaim, metadata: {{name: golden, namespace: virtual-machines, {metadata}}}, spec: {{resources: {{requests: {{storage: 30Gi}}}}}}}}]}}"
    ))
}

fn problem(case: &Case) -> Option<String> {
    case.planned().problems.first().map(Problem::refusal).map(|refusal| refusal.message.clone())
}

#[test]
fn a_claim_of_another_namespace_is_refused_in_the_words_for_one_that_does_not_exist() {
    let absent = case(
        "{namespace: virtual-machines, spec: {template: small, disks: [{name: loot, size: 20Gi, source: {claim: golden}}]}}",
    );
    let expected = problem(&absent).unwrap();
    assert!(expected.contains("vitistack.io/allow-references-from=default"), "{expected}");

    for metadata in [
        "labels: {vitistack.io/identity: other, vitistack.io/machine-namespace: victim}",
        "labels: {vitistack.io/machine-namespace: victim}",
        "labels: {vitistack.io/identity: other}",
        // An annotation does not give away what was created for a Machine.
        "labels: {vitistack.io/identity: other, vitistack.io/machine-namespace: victim}, annotations: {vitistack.io/allow-references-from: '*'}",
        "annotations: {vitistack.io/allow-references-from: 'victim,defaults'}",
        "annotations: {}",
    ] {
        // The size, which would not fit, is not mentioned either.
        assert_eq!(problem(&copying(metadata)).as_deref(), Some(expected.as_str()), "{metadata}");
    }
}

#[test]
fn a_claim_of_the_same_namespace_or_one_that_permits_it_is_copied() {
    for metadata in [
        "labels: {vitistack.io/identity: other, vitistack.io/machine-namespace: default}",
        "annotations: {vitistack.io/allow-references-from: 'team-b, default'}",
        "annotations: {vitistack.io/allow-references-from: '*'}",
        &format!("labels: {{vitistack.io/identity: {IDENTITY}, vitistack.io/machine-namespace: default}}"),
    ] {
        // Only its size is wrong.
        let message = problem(&copying(metadata)).unwrap();
        assert!(message.contains("more than the size"), "{metadata}: {message}");
    }
}

#[test]
fn a_claim_beside_the_machine_is_copied_unless_another_namespace_created_it() {
    let beside = |metadata: &str| {
        let claim = format!(
            "kind: PersistentVolumeClaim, metadata: {{name: golden, namespace: default, {metadata}}}"
        );
        problem(&case(&format!(
            "{{spec: {{template: small, disks: [{{name: root, source: {{claim: golden}}}}]}}, cluster: [{{{claim}}}]}}"
        )))
    };
    assert_eq!(beside("labels: {}"), None);
    assert_eq!(
        beside("labels: {vitistack.io/identity: older}"),
        None,
        "earlier versions had no namespace label"
    );
    assert!(beside("labels: {vitistack.io/machine-namespace: victim}").is_some());
}

#[test]
fn a_namespace_of_another_cluster_with_the_same_name_is_not_the_namespace_of_the_tenant() {
    let remote = |namespace: &str, metadata: &str| {
        let claim = format!(
            "kind: PersistentVolumeClaim, metadata: {{name: golden, namespace: default, {metadata}}}"
        );
        problem(&case(&format!(
            "{{is_remote: true, {namespace} spec: {{template: small, disks: [{{name: root, source: {{claim: golden}}}}]}}, cluster: [{{{claim}}}]}}"
        )))
    };
    let shared = "namespace: default,";
    for metadata in ["labels: {}", "labels: {vitistack.io/identity: older}"] {
        let message = remote(shared, metadata).unwrap();
        assert!(message.contains("vitistack.io/allow-references-from=default"), "{metadata}: {message}");
    }
    assert_eq!(remote(shared, "annotations: {vitistack.io/allow-references-from: default}"), None);
    assert_eq!(remote("", "labels: {}"), None, "the provider has a namespace for each tenant");
}

#[test]
fn the_disk_of_a_running_machine_is_no_way_around() {
    let mut running =
        copying("labels: {vitistack.io/identity: other, vitistack.io/machine-namespace: victim}");
    let machine = format!(
        "{{kind: VirtualMachine, metadata: {{name: vm, namespace: virtual-machines, labels: {{vitistack.io/identity: {IDENTITY}, vitistack.io/machine-namespace: default}}}}}}"
    );
    running.cluster.push(serde_saphyr::from_str(&machine).unwrap());
    assert!(problem(&running).unwrap().contains("disks[loot].source.claim"));
}
