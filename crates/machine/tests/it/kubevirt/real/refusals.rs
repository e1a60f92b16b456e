//! Machines that KubeVirt would refuse are refused in advance, and those that it accepts but never runs are reported.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use vitistack_machine::{Backend, ErrorKind, Update, kubevirt::Kind};
use vitistack_plan::machine::{Observed, Power};
use vitistack_types::{conditions::reason, v1alpha1::PowerState};

use super::{EVERYTHING, Fixture, case};

/// Returns the messages of the problems.
fn problems(observed: &Observed) -> Vec<&str> {
    observed.problems.iter().map(|problem| problem.refusal().message.as_str()).collect()
}

/// Returns why the machine does not run, if known.
fn failing(observed: &Observed) -> Option<String> {
    match &observed.machine.as_ref()?.power {
        Power::Failing(why) => Some(why.clone()),
        _ => None,
    }
}

#[tokio::test]
async fn a_machine_waits_for_kubevirt_cdi_and_multus() {
    let fixture = Fixture::new("programs").await;
    let bare = problems(&fixture.servers.bare);
    for missing in ["KubeVirt is not installed", "requires CDI", "requires Multus"] {
        assert!(bare.iter().any(|message| message.contains(missing)), "{missing} is not reported: {bare:#?}");
    }
    let order = fixture.declare(&case(EVERYTHING)).await;
    fixture.run(&order).await;
    assert_eq!(fixture.observe(&order).await.problems, []);
    fixture.assert_no_writes(&order).await;
}

#[tokio::test]
async fn machines_that_kubevirt_would_refuse_are_refused_with_the_fix() {
    let fixture = Fixture::new("refusals").await;
    let large = "x".repeat((1 << 20) + 1);
    for (name, yaml, fix) in [
        ("board", "spec: {template: small, domain: {machine: {type: pc-i440fx}}}", "use pc-q35"),
        (
            "class",
            "spec: {template: small, disks: [{name: data, size: 1Gi, storageClass: slow}]}",
            "create the StorageClass",
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
        order.target.namespace = fixture.namespace.to_owned();
        let observed = fixture.observe(&order).await;
        assert!(
            problems(&observed).iter().any(|message| message.contains(fix)),
            "{name}: {:?}",
            problems(&observed)
        );
        let refusal = fixture.backend.create(&order).await.unwrap_err();
        assert_eq!(refusal.kind, ErrorKind::Refused, "{name}");
        assert!(refusal.message.contains(fix), "{name}: {refusal}");
        assert!(fixture.find(Kind::PersistentVolumeClaim, &format!("{name}-root")).await.is_none());
    }
}

#[tokio::test]
async fn machines_with_special_fields_run() {
    let fixture = Fixture::new("special").await;
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
        let order = fixture
            .declare(&case(&format!("{{name: {name}, spec: {{template: small, {spec}}}, {networks}}}")))
            .await;
        fixture.create(&order).await;
        orders.push(order);
    }
    for order in &orders {
        fixture.reach(order, &Power::Running).await;
        fixture.assert_no_writes(order).await;
    }
}

#[tokio::test]
async fn a_machine_that_cannot_start_is_reported_until_it_is_fixed() {
    let fixture = Fixture::new("stuck").await;
    let spec =
        "{template: small, networks: [{name: eth0, networkName: prod}], disks: [{name: data, size: 1Gi}]}";
    let networks = "networks: {prod: {bridge: br0}}";
    let order = fixture.declare(&case(&format!("{{spec: {spec}, {networks}}}"))).await;
    let machine = fixture.run(&order).await;
    assert!(machine.is_current);

    // A third party deletes what the next start needs.
    let attachments = fixture.api(Kind::NetworkAttachmentDefinition);
    let attachment = attachments.list(&kube::api::ListParams::default()).await.unwrap().items.remove(0);
    let attachment = attachment.metadata.name.unwrap();
    attachments.delete(&attachment, &DeleteParams::default()).await.unwrap();
    assert!(!fixture.machine(&order).await.is_current, "a deleted network is recreated");
    fixture.update(&order, &Update::Restart { request: "now".to_owned() }).await;
    let why = fixture.until(&order, "the missing network", failing).await;
    assert!(why.contains("network attachment definition"), "{why}");
    assert_eq!(fixture.observe(&order).await.problems[0].refusal().reason, reason::NETWORK_FAILED);
    fixture.update(&order, &Update::Specification).await;
    fixture.reach(&order, &Power::Running).await;
    fixture.assert_no_writes(&order).await;

    let mut stopped = order.clone();
    stopped.desired.power = PowerState::Stopped;
    fixture.update(&stopped, &Update::Stop).await;
    fixture.reach(&stopped, &Power::Stopped).await;
    fixture.api(Kind::PersistentVolumeClaim).delete("vm-data", &DeleteParams::default()).await.unwrap();
    fixture
        .until(&stopped, "the deletion of a claim", |observed| (observed.disks.len() == 1).then_some(()))
        .await;
    fixture
        .api(Kind::VirtualMachine)
        .patch("vm", &PatchParams::default(), &Patch::Merge(json!({ "spec": { "runStrategy": "Always" } })))
        .await
        .unwrap();
    let why = fixture.until(&order, "the missing claim", failing).await;
    assert!(why.contains("a PersistentVolumeClaim is missing") && why.contains("vm-data"), "{why}");
    fixture.update(&order, &Update::Specification).await;
    fixture.reach(&order, &Power::Running).await;
}

#[tokio::test]
async fn an_unschedulable_machine_is_reported() {
    let fixture = Fixture::new("unschedulable").await;
    let giant = fixture
        .declare(&case("{name: giant, spec: {template: small, resources: {memory: {size: 900Ti}}}}"))
        .await;
    let moon = fixture.declare(&case("{name: moon, spec: {template: small, zone: moon}}")).await;
    let slow = fixture.declare(&case("{name: slow, spec: {template: small, disks: [{name: data, size: 1Gi, storageClass: never-binds}]}}")).await;
    fixture.create(&slow).await;
    // KubeVirt reports only the first message of the scheduler, so their volumes are bound before they start.
    for order in [&giant, &moon] {
        let mut stopped = order.clone();
        stopped.desired.power = PowerState::Stopped;
        fixture.create(&stopped).await;
        fixture
            .until(&stopped, "volumes", |observed| {
                observed.disks.iter().all(|disk| disk.is_ready).then_some(())
            })
            .await;
        fixture.update(order, &Update::Start).await;
    }
    let why = fixture.until(&giant, "missing capacity", failing).await;
    assert!(why.contains("Insufficient memory") && why.ends_with("add nodes, or request less"), "{why}");
    assert_eq!(fixture.observe(&giant).await.problems[0].refusal().reason, reason::INSUFFICIENT_RESOURCES);
    let why = fixture.until(&moon, "no node in the zone", failing).await;
    assert!(why.ends_with("topology.kubernetes.io/zone: moon, or use a zone that has nodes"), "{why}");
    // A volume that is not provisioned yet is reported by the disk, not as a lack of nodes.
    fixture
        .until(&slow, "a machine that waits for a volume", |observed| {
            let machine = observed.machine.as_ref()?;
            let data = observed.disks.iter().find(|disk| disk.name == "data")?;
            (machine.power == Power::Starting && !data.is_ready).then_some(())
        })
        .await;
}

#[tokio::test]
async fn a_stopped_machine_does_not_wait_for_a_wait_for_first_consumer_volume() {
    let fixture = Fixture::new("late").await;
    let mut order = fixture
        .declare(&case(
            "spec: {template: small, powerState: Stopped, disks: [{name: root, storageClass: late}]}",
        ))
        .await;
    fixture.create(&order).await;
    fixture.reach(&order, &Power::Stopped).await;
    let observed = fixture.observe(&order).await;
    assert!(observed.disks[0].is_ready, "{:?}", observed.disks);
    assert_eq!(observed.disks[0].size, None);
    fixture.assert_no_writes(&order).await;
    order.desired.power = PowerState::Running;
    fixture.update(&order, &Update::Start).await;
    fixture.reach(&order, &Power::Running).await;
    let observed = fixture.observe(&order).await;
    assert!(observed.disks[0].is_ready && observed.disks[0].size.is_some(), "{:?}", observed.disks);
}
