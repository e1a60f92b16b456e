//! The lifecycle of a machine.

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

use super::{Fixture, LIMIT, case};

fn restart(request: &str) -> Update {
    Update::Restart { request: request.to_owned() }
}

impl Fixture {
    /// Returns the UID of the instance.
    async fn instance(&self, order: &Order) -> String {
        self.get(Kind::VirtualMachineInstance, &order.target.name).await.uid().unwrap()
    }

    /// Returns the MAC address of the instance.
    async fn hardware_address(&self, order: &Order) -> String {
        let instance = self.get(Kind::VirtualMachineInstance, &order.target.name).await;
        instance.data["status"]["interfaces"][0]["mac"].as_str().unwrap().to_owned()
    }

    /// Requests a restart until it is done, and returns the number of instances seen meanwhile.
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
            assert!(Instant::now() < limit, "timed out waiting for a restart: {machine:#?}");
        }
    }

    async fn disk(&self, order: &Order, name: &str) -> Option<ObservedDisk> {
        self.observe(order).await.disks.into_iter().find(|disk| disk.name == name)
    }

    /// Deletes a part and waits until it is done.
    async fn remove(&self, order: &Order, part: &Part) {
        let limit = Instant::now() + LIMIT;
        while self.backend.delete(&order.target, part).await.unwrap() != Progress::Done {
            assert!(Instant::now() < limit, "timed out waiting for the deletion of {part:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test]
async fn a_machine_is_stopped_started_and_restarted_once_per_request() {
    let fixture = Fixture::new("power").await;
    let mut order = fixture.declare(&case("spec: {template: small}")).await;
    fixture.run(&order).await;
    assert_eq!(fixture.machine(&order).await.addresses.len(), 1);
    let first = fixture.instance(&order).await;
    let address = fixture.hardware_address(&order).await;

    order.desired.power = PowerState::Stopped;
    assert!(fixture.machine(&order).await.is_current, "power is not part of the specification");
    fixture.update(&order, &Update::Stop).await;
    let machine = fixture.reach(&order, &Power::Stopped).await;
    assert_eq!((machine.node, machine.instance), (None, None));
    fixture.update(&order, &Update::Stop).await;
    fixture.assert_no_writes(&order).await;

    order.desired.power = PowerState::Running;
    fixture.update(&order, &Update::Start).await;
    fixture.reach(&order, &Power::Running).await;
    let second = fixture.instance(&order).await;
    assert_ne!(second, first);
    assert_eq!(fixture.hardware_address(&order).await, address, "the MAC address is stable");

    assert_eq!(
        fixture.restart(&order, "2026-01-01T00:00:00Z").await,
        2,
        "one instance was replaced by another"
    );
    let third = fixture.instance(&order).await;
    assert_ne!(third, second);
    assert_eq!(fixture.restart(&order, "2026-01-01T00:00:00Z").await, 1);
    assert_eq!(fixture.restart(&order, "2026-01-02T00:00:00Z").await, 2);
    assert_ne!(fixture.instance(&order).await, third);
    fixture.assert_no_writes(&order).await;
}

#[tokio::test]
async fn a_resized_machine_needs_a_restart_until_it_is_restarted() {
    let fixture = Fixture::new("resize").await;
    let small = fixture.declare(&case("spec: {template: small}")).await;
    fixture.run(&small).await;
    let instance = fixture.instance(&small).await;

    let spec = "{template: small, resources: {cpu: {cores: 2}, memory: {size: 4Gi}}, disks: [{name: root, size: 30Gi}, {name: data, size: 1Gi}]}";
    let large = Fixture::changed(&small, &case(&format!("spec: {spec}")));
    assert!(!fixture.machine(&large).await.is_current);
    fixture.update(&large, &Update::Specification).await;
    fixture
        .until(&large, "a required restart", |observed| {
            observed.machine.as_ref().filter(|machine| machine.restart_needed).map(drop)
        })
        .await;
    // The volume is expanded while the machine runs.
    fixture
        .until(&large, "the larger volume", |observed| {
            let root = observed.disks.iter().find(|disk| disk.name == "root")?;
            (root.size.as_ref() == Some(&large.desired.disks[0].size)).then_some(())
        })
        .await;
    fixture.assert_no_writes(&large).await;
    assert_eq!(fixture.machine(&large).await.power, Power::Running);
    assert_eq!(fixture.instance(&large).await, instance, "a machine is never restarted without a request");

    fixture.restart(&large, "now").await;
    fixture
        .until(&large, "the end of the required restart", |observed| {
            observed.machine.as_ref().filter(|machine| !machine.restart_needed).map(drop)
        })
        .await;
    let running = fixture.get(Kind::VirtualMachineInstance, "vm").await;
    assert_eq!(running.data["spec"]["domain"]["cpu"]["cores"], 2);
    assert_eq!(running.data["spec"]["domain"]["memory"]["guest"], "4Gi");
    let volumes = running.data["spec"]["volumes"].as_array().unwrap();
    assert!(volumes.iter().any(|volume| volume["persistentVolumeClaim"]["claimName"] == "vm-data"));
    fixture.assert_no_writes(&large).await;
}

#[tokio::test]
async fn a_removed_disk_is_detached_at_the_next_restart_and_then_follows_its_reclaim_policy() {
    let fixture = Fixture::new("disks").await;
    let many = "{template: small, disks: [{name: retained, size: 1Gi, reclaimPolicy: Retain}, {name: dropped, size: 1Gi, source: {image: quay.io/a/b}}]}";
    let before = fixture.declare(&case(&format!("spec: {many}"))).await;
    fixture.run(&before).await;
    let after = Fixture::changed(&before, &case("spec: {template: small}"));
    fixture.update(&after, &Update::Specification).await;
    let part = Part::Disks(vec!["dropped".to_owned()]);
    let progress = fixture.backend.delete(&after.target, &part).await.unwrap();
    assert!(matches!(progress, Progress::Working(_)), "{progress:?}");
    assert!(fixture.disk(&after, "dropped").await.unwrap().is_attached, "the instance still uses it");

    fixture.restart(&after, "now").await;
    let (retained, dropped) =
        (fixture.disk(&after, "retained").await.unwrap(), fixture.disk(&after, "dropped").await.unwrap());
    assert_eq!((retained.is_attached, retained.reclaim_policy), (false, ReclaimPolicy::Retain));
    assert_eq!((dropped.is_attached, dropped.reclaim_policy), (false, ReclaimPolicy::Delete));
    fixture.remove(&after, &part).await;
    assert_eq!(fixture.disk(&after, "dropped").await, None);
    assert!(fixture.find(Kind::DataVolume, "vm-dropped").await.is_none());
    assert!(fixture.find(Kind::PersistentVolumeClaim, "vm-retained").await.is_some());
    assert_eq!(fixture.machine(&after).await.power, Power::Running);
    fixture.assert_no_writes(&after).await;
}

#[tokio::test]
async fn disks_are_deleted_only_after_the_machine() {
    let fixture = Fixture::new("deletion").await;
    let spec = "{template: small, disks: [{name: retained, size: 1Gi, reclaimPolicy: Retain}], cloudInit: {userData: '#cloud-config'}}";
    let order = fixture.declare(&case(&format!("spec: {spec}"))).await;
    fixture.run(&order).await;
    let root = Part::Disks(vec!["root".to_owned()]);
    let progress = fixture.backend.delete(&order.target, &root).await.unwrap();
    assert!(matches!(progress, Progress::Working(_)), "{progress:?}");
    let claim = fixture.get(Kind::PersistentVolumeClaim, "vm-root").await;
    assert_eq!(claim.metadata.deletion_timestamp, None, "a disk of a running machine is not deleted");

    let progress = fixture.backend.delete(&order.target, &Part::Machine).await.unwrap();
    assert!(matches!(progress, Progress::Working(_)), "{progress:?}");
    fixture
        .until(&order, "the deletion of the machine", |observed| {
            (observed.machine.is_none() && observed.task.is_none()).then_some(())
        })
        .await;
    for kind in [Kind::VirtualMachine, Kind::VirtualMachineInstance] {
        assert!(fixture.find(kind, "vm").await.is_none());
    }
    let claim = fixture.get(Kind::PersistentVolumeClaim, "vm-root").await;
    assert_eq!(claim.metadata.deletion_timestamp, None);
    fixture.remove(&order, &Part::Machine).await;
    fixture.remove(&order, &root).await;
    let left = fixture.backend.observe(&order.target, None).await.unwrap();
    let names: Vec<&str> = left.disks.iter().map(|disk| disk.name.as_str()).collect();
    assert_eq!((left.machine, names), (None, vec!["retained"]));

    // The recreated machine uses the retained disk.
    let retained = fixture.get(Kind::PersistentVolumeClaim, "vm-retained").await.uid();
    fixture.run(&order).await;
    assert_eq!(fixture.get(Kind::PersistentVolumeClaim, "vm-retained").await.uid(), retained);
}

/// Returns everything about an object that cluster components do not change.
fn written(object: &kube::core::DynamicObject) -> Value {
    json!([
        object.metadata.uid,
        object.metadata.labels,
        object.metadata.deletion_timestamp,
        object.data["spec"]
    ])
}

#[tokio::test]
async fn foreign_objects_block_and_are_never_touched() {
    let fixture = Fixture::new("foreign").await;
    let machine = json!({ "spec": { "runStrategy": "Always", "template": { "spec": { "domain": { "memory": { "guest": "64Mi" }, "devices": {} } } } } });
    for (name, kind, object) in [
        ("taken", Kind::VirtualMachine, fixture.add(Kind::VirtualMachine, "taken", machine).await),
        ("full", Kind::PersistentVolumeClaim, fixture.add_claim("full-root").await),
    ] {
        let order = fixture.declare(&case(&format!("{{name: {name}, spec: {{template: small}}}}"))).await;
        let observed = fixture.observe(&order).await;
        let foreign = observed.foreign.unwrap();
        assert!(foreign.contains(&object.name_any()), "{foreign}");
        assert_eq!(observed.machine, None);
        let refusal = fixture.backend.create(&order).await.unwrap_err();
        assert_eq!((refusal.kind, refusal.reason), (ErrorKind::Refused, reason::NAME_TAKEN));
        for update in [Update::Specification, Update::Start, Update::Stop, restart("now")] {
            fixture.backend.update(&order, &update).await.unwrap_err();
        }
        for part in [Part::Machine, Part::Disks(vec!["root".to_owned()])] {
            assert_eq!(fixture.backend.delete(&order.target, &part).await, Ok(Progress::Done));
        }
        let after = fixture.get(kind, &object.name_any()).await;
        assert_eq!(written(&after), written(&object));
        let claim = fixture.find(Kind::PersistentVolumeClaim, "taken-root").await;
        assert!(claim.is_none(), "nothing is created next to a foreign object");
    }
}
