//! The examples of the specification, as they are written.

use serde_json::json;

use super::bed::{Bed, OPERATORS, Replica, eventually};

/// The namespace of the examples, which other tests use as running machines.
const NAMESPACE: &str = "examples";

pub const NAMES: [&str; 5] = ["basic-vm", "custom-vm", "networked-vm", "cloud-init-vm", "every-field"];

pub async fn every_example_of_the_specification_runs(bed: &Bed) {
    bed.namespace(NAMESPACE).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "machine-secrets", "namespace": NAMESPACE },
        "stringData": { "userdata": "#cloud-config\npackages: [vim]\n" },
    });
    let golden = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "golden-data", "namespace": NAMESPACE },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "10Gi" } } },
    });
    bed.create(&secret).await;
    bed.create(&golden).await;
    for sample in [
        "network-configurations",
        "machine-basic",
        "machine-with-overrides",
        "machine-with-networking",
        "machine-with-cloud-init",
        "machine-every-field",
    ] {
        for mut object in Bed::sample(sample, NAMESPACE) {
            if sample == "machine-every-field" {
                // Here the machine is in the operator's own cluster.
                for field in ["providerRef", "zone"] {
                    object["spec"].as_object_mut().unwrap().remove(field);
                }
            }
            bed.create(&object).await;
        }
    }
    for name in NAMES {
        let machine = bed.reach(NAMESPACE, name, "Running").await;
        let status = |field: &str| machine.data.pointer(&format!("/status/{field}")).cloned();
        assert_eq!(status("phase"), Some(json!("Running")));
        assert_eq!(status("vmName"), Some(json!(name)));
        assert_eq!(status("vmiName"), Some(json!(name)));
        assert_eq!(status("nodeName"), Some(json!("standin")));
        let labels = format!("vitistack.io/machine={name}");
        // The debugging command of the specification.
        let listed = bed.kubectl(&["get", "vm,vmi,pvc", "-n", NAMESPACE, "-l", &labels, "-o", "name"]);
        assert!(listed.lines().count() >= 3, "{name}: {listed}");
        let machine = bed.find("VirtualMachine", NAMESPACE, name).await.unwrap();
        let owner = &machine.metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Machine", name));
        let managed_by = &machine.metadata.labels.as_ref().unwrap()["vitistack.io/managed-by"];
        assert_eq!(managed_by, "kubevirt-operator");
    }
}

/// Every machine is reconciled three more times without a write.
pub async fn a_cluster_at_rest_is_left_alone(bed: &Bed, operator: &Replica) {
    let series = "kubevirt_operator_reconciliation_duration_seconds_count{controller=\"Machine\"}";
    for name in NAMES {
        bed.reach(NAMESPACE, name, "Running").await;
    }
    let before = bed.asked_by(&OPERATORS).len();
    let looks = operator.metric(series).await.unwrap_or_default();
    let machines = bed.count("Machine", "").await;
    let wanted = looks + 3.0 * f64::from(u32::try_from(machines).unwrap());
    let looked = async || (operator.metric(series).await.unwrap_or_default() >= wanted).then_some(());
    eventually("three reconciles of every machine", looked, async || operator.last_words()).await;
    let asked = bed.asked_by(&OPERATORS).split_off(before);
    let writes: Vec<_> = asked.iter().filter(|request| request.is_write()).collect();
    assert!(writes.is_empty(), "{writes:#?}");
    // Renewed watches are not counted.
    let reads: Vec<_> = asked.iter().filter(|request| request.verb == "get").collect();
    assert!(reads.is_empty(), "{reads:#?}");
}
