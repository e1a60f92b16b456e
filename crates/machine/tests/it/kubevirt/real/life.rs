//! A machine from its first start to its end.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use kube::ResourceExt;
use serde_json::{Value, json};
use vitistack_machine::{Backend, ErrorKind, Order, Part, Progress, Update, kubevirt::Kind};
use vitistack_plan::machine::{ObservedDisk, Power};
use vitistack_types::{
    conditions::reason,
    v1alpha1::{PowerState, ReclaimPolicy},
};

use super::{LIMIT, Stage, case};

fn restart(request: &str) -> Update {
    Update::Restart { request: request.to_owned() }
}

impl Stage {
    /// Which instance runs.
    async fn instance(&self, order: &Order) -> String {
        self.get(Kind::VirtualMachineInstance, &order.target.name).await.uid().unwrap()
    }

    /// The MAC address that it runs with.
    async fn hardware_address(&self, order: &Order) -> String {
        let instance = self.get(Kind::VirtualMachineInstance, &order.target.name).await;
        instance.data["status"]["interfaces"][0]["mac"].as_str().unwrap().to_owned()
    }

    /// Asks for a restart, again and again until it was made, and counts the instances on the way.
    async fn restart(&self, order: &Order, request: &str) -> usize {
        let mut instances = BTreeSet::new();
        let limit = Instant::now() + LIMIT;
        loop {
            let progress = self.update(order, &restart(request)).await;
            let instance = self.find(Kind::VirtualMachineInstance, &order.target.name).await;
            instances.extend(instance.and_then(|instance| instance.uid()));
            let machine = self.machine(order).await;
            let is_done = machine.restarted_for.as_deref() == Some(request);
            if is_done && machine.power == Power::Running && progress == Progress::Done {
                return instances.len();
            }
            assert!(Instant::now() < limit, "waited too long for a restart: {machine:#?}");
        }
    }

    async fn disk(&self, order: &Order, name: &str) -> Option<ObservedDisk> {
        self.observe(order).await.disks.into_iter().find(|disk| disk.name == name)
    }

    /// Deletes a part, and asks until it is gone.
    async fn remove(&self, order: &Order, part: &Part) {
        let limit = Instant::now() + LIMIT;
        while self.backend.delete(&order.target, part).await.unwrap() != Progress::Done {
            assert!(Instant::now() < limit, "waited too long for the end of {part:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test]
async fn a_machine_is_switched_off_and_on_and_restarted_once_for_each_request() {
    let stage = Stage::new("power").await;
    let mut order = stage.declare(&case("spec: {template: small}")).await;
    stage.run(&order).await;
    assert_eq!(stage.machine(&order).await.addresses.len(), 1);
    let first = stage.instance(&order).await;
    let address = stage.hardware_address(&order).await;

    order.desired.power = PowerState::Stopped;
    assert!(stage.machine(&order).await.is_current, "power is not a matter of the specification");
    stage.update(&order, &Update::Stop).await;
    let machine = stage.reach(&order, &Power::Stopped).await;
    assert_eq!((machine.node, machine.instance), (None, None));
    stage.update(&order, &Update::Stop).await;
    stage.assert_quiet(&order).await;

    order.desired.power = PowerState::Running;
    stage.update(&order, &Update::Start).await;
    stage.reach(&order, &Power::Running).await;
    let second = stage.instance(&order).await;
    assert_ne!(second, first);
    assert_eq!(stage.hardware_address(&order).await, address, "to its network it is the same machine");

    assert_eq!(stage.restart(&order, "2026-01-01T00:00:00Z").await, 2, "one instance went and one came");
    let third = stage.instance(&order).await;
    assert_ne!(third, second);
    assert_eq!(stage.restart(&order, "2026-01-01T00:00:00Z").await, 1);
    assert_eq!(stage.restart(&order, "2026-01-02T00:00:00Z").await, 2);
    assert_ne!(stage.instance(&order).await, third);
    stage.assert_quiet(&order).await;
}

#[tokio::test]
async fn a_machine_that_grows_says_that_it_needs_a_restart_until_it_had_one() {
    let stage = Stage::new("resize").await;
    let small = stage.declare(&case("spec: {template: small}")).await;
    stage.run(&small).await;
    let instance = stage.instance(&small).await;

    let spec = "{template: small, resources: {cpu: {cores: 2}, memory: {size: 4Gi}}, disks: [{name: root, size: 30Gi}, {name: data, size: 1Gi}]}";
    let large = Stage::changed(&small, &case(&format!("spec: {spec}")));
    assert!(!stage.machine(&large).await.is_current);
    stage.update(&large, &Update::Specification).await;
    stage
        .until(&large, "a restart needed", |observed| {
            observed.machine.as_ref().filter(|machine| machine.restart_needed).map(drop)
        })
        .await;
    // The volume grows under the machine that runs.
    stage
        .until(&large, "the larger volume", |observed| {
            let root = observed.disks.iter().find(|disk| disk.name == "root")?;
            (root.size.as_ref() == Some(&large.desired.disks[0].size)).then_some(())
        })
        .await;
    stage.assert_quiet(&large).await;
    assert_eq!(stage.machine(&large).await.power, Power::Running);
    assert_eq!(stage.instance(&large).await, instance, "nothing restarts a machine unasked");

    stage.restart(&large, "now").await;
    stage
        .until(&large, "no restart needed", |observed| {
            observed.machine.as_ref().filter(|machine| !machine.restart_needed).map(drop)
        })
        .await;
    let running = stage.get(Kind::VirtualMachineInstance, "vm").await;
    assert_eq!(running.data["spec"]["domain"]["cpu"]["cores"], 2);
    assert_eq!(running.data["spec"]["domain"]["memory"]["guest"], "4Gi");
    let volumes = running.data["spec"]["volumes"].as_array().unwrap();
    assert!(volumes.iter().any(|volume| volume["persistentVolumeClaim"]["claimName"] == "vm-data"));
    stage.assert_quiet(&large).await;
}

#[tokio::test]
async fn a_disk_that_is_removed_goes_with_the_next_restart_and_is_kept_or_deleted_as_it_was_told() {
    let stage = Stage::new("disks").await;
    let many = "{template: small, disks: [{name: kept, size: 1Gi, reclaimPolicy: Retain}, {name: dropped, size: 1Gi, source: {image: quay.io/a/b}}]}";
    let before = stage.declare(&case(&format!("spec: {many}"))).await;
    stage.run(&before).await;
    let after = Stage::changed(&before, &case("spec: {template: small}"));
    stage.update(&after, &Update::Specification).await;
    let part = Part::Disks(vec!["dropped".to_owned()]);
    let progress = stage.backend.delete(&after.target, &part).await.unwrap();
    assert!(matches!(progress, Progress::Working(_)), "{progress:?}");
    assert!(stage.disk(&after, "dropped").await.unwrap().is_attached, "the instance still has it");

    stage.restart(&after, "now").await;
    let (kept, dropped) =
        (stage.disk(&after, "kept").await.unwrap(), stage.disk(&after, "dropped").await.unwrap());
    assert_eq!((kept.is_attached, kept.reclaim_policy), (false, ReclaimPolicy::Retain));
    assert_eq!((dropped.is_attached, dropped.reclaim_policy), (false, ReclaimPolicy::Delete));
    stage.remove(&after, &part).await;
    assert_eq!(stage.disk(&after, "dropped").await, None);
    assert!(stage.find(Kind::DataVolume, "vm-dropped").await.is_none());
    assert!(stage.find(Kind::PersistentVolumeClaim, "vm-kept").await.is_some());
    assert_eq!(stage.machine(&after).await.power, Power::Running);
    stage.assert_quiet(&after).await;
}

#[tokio::test]
async fn disks_go_only_when_the_machine_is_gone() {
    let stage = Stage::new("deletion").await;
    let spec = "{template: small, disks: [{name: kept, size: 1Gi, reclaimPolicy: Retain}], cloudInit: {userData: '#cloud-config'}}";
    let order = stage.declare(&case(&format!("spec: {spec}"))).await;
    stage.run(&order).await;
    let root = Part::Disks(vec!["root".to_owned()]);
    let progress = stage.backend.delete(&order.target, &root).await.unwrap();
    assert!(matches!(progress, Progress::Working(_)), "{progress:?}");
    let claim = stage.get(Kind::PersistentVolumeClaim, "vm-root").await;
    assert_eq!(
        claim.metadata.deletion_timestamp, None,
        "a disk of a machine that runs is not even asked to go"
    );

    let progress = stage.backend.delete(&order.target, &Part::Machine).await.unwrap();
    assert!(matches!(progress, Progress::Working(_)), "{progress:?}");
    stage
        .until(&order, "the machine to be gone", |observed| {
            (observed.machine.is_none() && observed.task.is_none()).then_some(())
        })
        .await;
    for kind in [Kind::VirtualMachine, Kind::VirtualMachineInstance] {
        assert!(stage.find(kind, "vm").await.is_none());
    }
    let claim = stage.get(Kind::PersistentVolumeClaim, "vm-root").await;
    assert_eq!(claim.metadata.deletion_timestamp, None);
    stage.remove(&order, &Part::Machine).await;
    stage.remove(&order, &root).await;
    let left = stage.backend.observe(&order.target, None).await.unwrap();
    let names: Vec<&str> = left.disks.iter().map(|disk| disk.name.as_str()).collect();
    assert_eq!((left.machine, names), (None, vec!["kept"]));

    // The machine is made anew with the disk that was kept.
    let kept = stage.get(Kind::PersistentVolumeClaim, "vm-kept").await.uid();
    stage.run(&order).await;
    assert_eq!(stage.get(Kind::PersistentVolumeClaim, "vm-kept").await.uid(), kept);
}

/// Everything of an object but what the cluster's own programs write by themselves.
fn written(object: &kube::core::DynamicObject) -> Value {
    json!([
        object.metadata.uid,
        object.metadata.labels,
        object.metadata.deletion_timestamp,
        object.data["spec"]
    ])
}

#[tokio::test]
async fn what_is_not_ours_blocks_and_is_never_touched() {
    let stage = Stage::new("foreign").await;
    let machine = json!({ "spec": { "runStrategy": "Always", "template": { "spec": { "domain": { "memory": { "guest": "64Mi" }, "devices": {} } } } } });
    for (name, kind, object) in [
        ("taken", Kind::VirtualMachine, stage.add(Kind::VirtualMachine, "taken", machine).await),
        ("full", Kind::PersistentVolumeClaim, stage.add_claim("full-root").await),
    ] {
        let order = stage.declare(&case(&format!("{{name: {name}, spec: {{template: small}}}}"))).await;
        let observed = stage.observe(&order).await;
        let foreign = observed.foreign.unwrap();
        assert!(foreign.contains(&object.name_any()), "{foreign}");
        assert_eq!(observed.machine, None);
        let refusal = stage.backend.create(&order).await.unwrap_err();
        assert_eq!((refusal.kind, refusal.reason), (ErrorKind::Refused, reason::NAME_TAKEN));
        for update in [Update::Specification, Update::Start, Update::Stop, restart("now")] {
            stage.backend.update(&order, &update).await.unwrap_err();
        }
        for part in [Part::Machine, Part::Disks(vec!["root".to_owned()])] {
            assert_eq!(stage.backend.delete(&order.target, &part).await, Ok(Progress::Done));
        }
        let after = stage.get(kind, &object.name_any()).await;
        assert_eq!(written(&after), written(&object));
        let claim = stage.find(Kind::PersistentVolumeClaim, "taken-root").await;
        assert!(claim.is_none(), "nothing is made beside what is in the way");
    }
}
