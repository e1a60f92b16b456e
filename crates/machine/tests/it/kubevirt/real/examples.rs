//! Every example of the specification runs, and then causes no more writes.

use kube::ResourceExt;
use serde_json::json;
use vitistack_machine::kubevirt::Kind;
use vitistack_plan::machine::Power;
use vitistack_types::{labels, v1alpha1::ReclaimPolicy};

use super::{Fixture, case};

const NETWORKS: &str = "networks: {prod-network: {bridge: br0, vlan: 100}, storage-network: {bridge: br1}}";

const EXAMPLES: [&str; 5] = [
    "machine-basic",
    "machine-with-overrides",
    "machine-with-networking",
    "machine-with-cloud-init",
    "machine-every-field",
];

#[tokio::test]
async fn every_example_runs_and_then_causes_no_more_writes() {
    let fixture = Fixture::new("examples").await;
    fixture
        .add(Kind::Secret, "machine-secrets", json!({ "stringData": { "userdata": "#cloud-config" } }))
        .await;
    fixture.add_claim("golden-data").await;
    let mut orders = Vec::new();
    for sample in EXAMPLES {
        let case = case(&format!("{{sample: {sample}, {NETWORKS}, secret: {{userdata: '#cloud-config'}}}}"));
        let order = fixture.declare(&case).await;
        fixture.create(&order).await;
        orders.push(order);
    }
    for order in &orders {
        fixture.reach(order, &Power::Running).await;
        let observed = fixture.observe(order).await;
        assert_eq!(observed.problems, [], "{}", order.target.name);
        assert_eq!((observed.task, observed.foreign), (None, None), "{}", order.target.name);
        assert!(observed.disks.iter().all(|disk| disk.is_ready && disk.is_attached), "{:#?}", observed.disks);
        fixture.assert_no_writes(order).await;
        let machine = fixture.machine(order).await;
        assert_eq!(machine.node.as_deref(), Some("standin"));
        assert!(!machine.restart_needed);
        assert!(machine.started.is_some());
        assert_eq!(machine.cpu, Some(order.desired.cpu));
        assert_eq!(machine.memory.as_ref(), Some(&order.desired.memory));

        let identity = order.target.identity.as_str();
        for kind in [Kind::VirtualMachine, Kind::VirtualMachineInstance] {
            let object = fixture.get(kind, &order.target.name).await;
            assert_eq!(object.labels().get(labels::IDENTITY).map(String::as_str), Some(identity));
            assert_eq!(object.labels().get(labels::MACHINE), Some(&order.target.name));
        }
        for disk in &order.desired.disks {
            let claim = fixture
                .get(Kind::PersistentVolumeClaim, &format!("{}-{}", order.target.name, disk.name))
                .await;
            assert_eq!(claim.labels().get(labels::IDENTITY).map(String::as_str), Some(identity));
            assert_eq!(claim.labels().get(labels::DISK), Some(&disk.name));
            assert_eq!(claim.data["spec"]["resources"]["requests"]["storage"], json!(disk.size));
        }
    }
    let every = orders.last().unwrap();
    assert_eq!(fixture.machine(every).await.zone.as_deref(), Some("zone-a"));
    let data = fixture.observe(every).await.disks.into_iter().find(|disk| disk.name == "data").unwrap();
    assert_eq!(data.reclaim_policy, ReclaimPolicy::Retain);
}
