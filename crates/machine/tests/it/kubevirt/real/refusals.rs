//! What KubeVirt would refuse is refused first, with the fix; what it takes and never runs is told.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use vitistack_machine::{Backend, ErrorKind, Update, kubevirt::Kind};
use vitistack_plan::machine::{Observed, Power};
use vitistack_types::{conditions::reason, v1alpha1::PowerState};

use super::{EVERYTHING, Stage, case};

/// What the problems say.
fn told(observed: &Observed) -> Vec<&str> {
    observed.problems.iter().map(|problem| problem.refusal().message.as_str()).collect()
}

/// Why the machine does not run, if that is known.
fn failing(observed: &Observed) -> Option<String> {
    match &observed.machine.as_ref()?.power {
        Power::Failing(why) => Some(why.clone()),
        _ => None,
    }
}

#[tokio::test]
async fn a_machine_waits_for_programs_and_is_made_when_they_are_there() {
    let stage = Stage::new("programs").await;
    let bare = told(&stage.bed.bare);
    for missing in ["KubeVirt is not installed", "needs CDI", "need Multus"] {
        assert!(bare.iter().any(|told| told.contains(missing)), "{missing} is not told: {bare:#?}");
    }
    let order = stage.declare(&case(EVERYTHING)).await;
    stage.run(&order).await;
    assert_eq!(stage.observe(&order).await.problems, []);
    stage.assert_quiet(&order).await;
}

#[tokio::test]
async fn what_kubevirt_would_refuse_is_refused_first_with_the_fix() {
    let stage = Stage::new("refusals").await;
    let large = "x".repeat((1 << 20) + 1);
    for (name, yaml, fix) in [
        ("board", "spec: {template: small, domain: {machine: {type: pc-i440fx}}}", "use pc-q35"),
        (
            "class",
            "spec: {template: small, disks: [{name: data, size: 1Gi, storageClass: slow}]}",
            "create a StorageClass",
        ),
        (
            "source",
            "spec: {template: small, disks: [{name: data, size: 1Gi, source: {claim: none}}]}",
            "create the PersistentVolumeClaim",
        ),
        ("taken", "spec: {template: small, disks: [{name: sockets, size: 1Gi}]}", "choose another name"),
        ("huge", &format!("spec: {{template: small, cloudInit: {{userData: '{large}'}}}}"), "shorten it"),
    ] {
        let mut order = case(&format!("{{name: {name}, {yaml}}}")).order();
        order.target.namespace = stage.namespace.to_owned();
        let observed = stage.observe(&order).await;
        assert!(told(&observed).iter().any(|told| told.contains(fix)), "{name}: {:?}", told(&observed));
        let refusal = stage.backend.create(&order).await.unwrap_err();
        assert_eq!(refusal.kind, ErrorKind::Refused, "{name}");
        assert!(refusal.message.contains(fix), "{name}: {refusal}");
        assert!(stage.find(Kind::PersistentVolumeClaim, &format!("{name}-root")).await.is_none());
    }
}

#[tokio::test]
async fn what_kubevirt_takes_only_in_its_own_words_is_given_in_them() {
    let stage = Stage::new("words").await;
    let large = "x".repeat(4096);
    let mut orders = Vec::new();
    for (name, spec) in [
        ("efi", "domain: {firmware: {bootloader: {efi: true}}}"),
        (
            "secure",
            "domain: {machine: {type: pc-q35}, firmware: {bootloader: {efi: true, secureBoot: true}}}",
        ),
        ("windows", "domain: {features: {acpi: true, apic: true, hyperv: true}}"),
        ("web-1.example.com", "networks: [{name: eth0, networkName: net.with.dots}]"),
        ("long-user-data", &format!("cloudInit: {{userData: '{large}'}}")),
        (
            "cdrom",
            "disks: [{name: iso, size: 1Gi, device: cdrom, source: {url: 'https://example.com/a.iso'}}], bootOrder: [cdrom, network, disk]",
        ),
        ("shared", "disks: [{name: data, size: 1Gi, accessMode: ReadWriteMany, volumeMode: Block}]"),
        ("old-card", "networks: [{name: eth0, networkName: net.with.dots, model: e1000}]"),
    ] {
        let networks = "networks: {net.with.dots: {bridge: br0, vlan: 4094}}";
        let order = stage
            .declare(&case(&format!("{{name: {name}, spec: {{template: small, {spec}}}, {networks}}}")))
            .await;
        stage.create(&order).await;
        orders.push(order);
    }
    for order in &orders {
        stage.reach(order, &Power::Running).await;
        stage.assert_quiet(order).await;
    }
}

#[tokio::test]
async fn what_kubevirt_takes_and_never_runs_is_told_until_it_is_mended() {
    let stage = Stage::new("stuck").await;
    let spec =
        "{template: small, networks: [{name: eth0, networkName: prod}], disks: [{name: data, size: 1Gi}]}";
    let networks = "networks: {prod: {bridge: br0}}";
    let order = stage.declare(&case(&format!("{{spec: {spec}, {networks}}}"))).await;
    let machine = stage.run(&order).await;
    assert!(machine.is_current);

    // Somebody takes away what the next start needs.
    let attachments = stage.api(Kind::NetworkAttachmentDefinition);
    let attachment = attachments.list(&kube::api::ListParams::default()).await.unwrap().items.remove(0);
    let attachment = attachment.metadata.name.unwrap();
    attachments.delete(&attachment, &DeleteParams::default()).await.unwrap();
    assert!(!stage.machine(&order).await.is_current, "a network that is gone is made again");
    stage.update(&order, &Update::Restart { request: "now".to_owned() }).await;
    let why = stage.until(&order, "the missing network", failing).await;
    assert!(why.contains("network attachment definition"), "{why}");
    assert_eq!(stage.observe(&order).await.problems[0].refusal().reason, reason::NETWORK_FAILED);
    stage.update(&order, &Update::Specification).await;
    stage.reach(&order, &Power::Running).await;
    stage.assert_quiet(&order).await;

    let mut stopped = order.clone();
    stopped.desired.power = PowerState::Stopped;
    stage.update(&stopped, &Update::Stop).await;
    stage.reach(&stopped, &Power::Stopped).await;
    stage.api(Kind::PersistentVolumeClaim).delete("vm-data", &DeleteParams::default()).await.unwrap();
    stage.until(&stopped, "a claim that is gone", |observed| (observed.disks.len() == 1).then_some(())).await;
    stage
        .api(Kind::VirtualMachine)
        .patch("vm", &PatchParams::default(), &Patch::Merge(json!({ "spec": { "runStrategy": "Always" } })))
        .await
        .unwrap();
    let why = stage.until(&order, "the missing claim", failing).await;
    assert!(why.contains("a claim is missing") && why.contains("vm-data"), "{why}");
    stage.update(&order, &Update::Specification).await;
    stage.reach(&order, &Power::Running).await;
}

#[tokio::test]
async fn what_no_node_can_take_is_told() {
    let stage = Stage::new("unschedulable").await;
    let giant = stage
        .declare(&case("{name: giant, spec: {template: small, resources: {memory: {size: 900Ti}}}}"))
        .await;
    let moon = stage.declare(&case("{name: moon, spec: {template: small, zone: moon}}")).await;
    let slow = stage.declare(&case("{name: slow, spec: {template: small, disks: [{name: data, size: 1Gi, storageClass: never-binds}]}}")).await;
    stage.create(&slow).await;
    // KubeVirt repeats only the first thing that the scheduler said: their volumes are there before they start.
    for order in [&giant, &moon] {
        let mut stopped = order.clone();
        stopped.desired.power = PowerState::Stopped;
        stage.create(&stopped).await;
        stage
            .until(&stopped, "volumes", |observed| {
                observed.disks.iter().all(|disk| disk.is_ready).then_some(())
            })
            .await;
        stage.update(order, &Update::Start).await;
    }
    let why = stage.until(&giant, "no room", failing).await;
    assert!(why.contains("Insufficient memory") && why.ends_with("add nodes, or ask for less"), "{why}");
    assert_eq!(stage.observe(&giant).await.problems[0].refusal().reason, reason::INSUFFICIENT_RESOURCES);
    let why = stage.until(&moon, "no node in the zone", failing).await;
    assert!(why.ends_with("topology.kubernetes.io/zone: moon, or name a zone that has nodes"), "{why}");
    // A volume that is not made yet is no lack of nodes: the disk says so.
    stage
        .until(&slow, "a machine that waits for a volume", |observed| {
            let machine = observed.machine.as_ref()?;
            let data = observed.disks.iter().find(|disk| disk.name == "data")?;
            (machine.power == Power::Starting && !data.is_ready).then_some(())
        })
        .await;
}

#[tokio::test]
async fn a_volume_that_is_made_at_the_first_start_is_no_reason_to_wait_for_a_machine_that_is_off() {
    let stage = Stage::new("late").await;
    let mut order = stage
        .declare(&case(
            "spec: {template: small, powerState: Stopped, disks: [{name: root, storageClass: late}]}",
        ))
        .await;
    stage.create(&order).await;
    stage.reach(&order, &Power::Stopped).await;
    let observed = stage.observe(&order).await;
    assert!(observed.disks[0].is_ready, "{:?}", observed.disks);
    assert_eq!(observed.disks[0].size, None);
    stage.assert_quiet(&order).await;
    order.desired.power = PowerState::Running;
    stage.update(&order, &Update::Start).await;
    stage.reach(&order, &Power::Running).await;
    let observed = stage.observe(&order).await;
    assert!(observed.disks[0].is_ready && observed.disks[0].size.is_some(), "{:?}", observed.disks);
}
