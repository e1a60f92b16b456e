//! Removes what no reader needs from an object before it is cached: that is most of its size.

use kube::core::DynamicObject;
use serde_json::{Map, Value};

use super::kind::{Kind, identity_of};

/// The fields that are read in the status of our VirtualMachines.
const MACHINE_STATUS: [&str; 2] = ["conditions", "printableStatus"];

/// The fields that are read in the status of our VirtualMachineInstances.
const INSTANCE_STATUS: [&str; 5] =
    ["conditions", "interfaces", "nodeName", "phase", "phaseTransitionTimestamps"];

/// The annotation in which kubectl repeats the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Removes what no reader needs. Of a foreign machine only the name and the volumes are read.
pub fn prune(kind: Kind, object: &mut DynamicObject) {
    object.metadata.managed_fields = None;
    if let Some(annotations) = &mut object.metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
    let is_ours = identity_of(object).is_some();
    match kind {
        Kind::VirtualMachine if is_ours => retain(object.data.get_mut("status"), &MACHINE_STATUS),
        Kind::VirtualMachine => {
            retain(Some(&mut object.data), &["spec"]);
            retain(object.data.get_mut("spec"), &["template"]);
            retain(object.data.pointer_mut("/spec/template"), &["spec"]);
            retain(object.data.pointer_mut("/spec/template/spec"), &["volumes"]);
        }
        Kind::VirtualMachineInstance => {
            retain(object.data.get_mut("spec"), &["volumes"]);
            retain(object.data.get_mut("status"), if is_ours { &INSTANCE_STATUS } else { &[] });
        }
        _ => {}
    }
}

/// Removes all other fields of an object.
fn retain(value: Option<&mut Value>, fields: &[&str]) {
    if let Some(object) = value.and_then(Value::as_object_mut) {
        let all = std::mem::take(object);
        *object =
            all.into_iter().filter(|(field, _)| fields.contains(&field.as_str())).collect::<Map<_, _>>();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pruned(kind: Kind, object: Value) -> Value {
        let mut object: DynamicObject = serde_json::from_value(object).unwrap();
        prune(kind, &mut object);
        serde_json::to_value(object).unwrap()
    }

    #[test]
    fn only_the_name_and_volumes_of_a_foreign_machine_stay() {
        let machine = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": { "name": "vm", "annotations": { LAST_APPLIED: "{}" }, "managedFields": [{}] },
            "spec": { "runStrategy": "Always", "template": { "metadata": {}, "spec": { "volumes": [1], "domain": {} } } },
            "status": { "printableStatus": "Running" },
        });
        assert_eq!(
            pruned(Kind::VirtualMachine, machine),
            json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                "metadata": { "name": "vm", "annotations": {} },
                "spec": { "template": { "spec": { "volumes": [1] } } },
            })
        );
    }

    #[test]
    fn the_state_of_an_instance_stays() {
        let instance = json!({
            "metadata": { "name": "vm", "labels": { "vitistack.io/identity": "one" } },
            "spec": { "volumes": [1], "domain": {} },
            "status": { "phase": "Running", "nodeName": "a", "volumeStatus": [], "activePods": {} },
        });
        assert_eq!(
            pruned(Kind::VirtualMachineInstance, instance),
            json!({
                "metadata": { "name": "vm", "labels": { "vitistack.io/identity": "one" } },
                "spec": { "volumes": [1] },
                "status": { "phase": "Running", "nodeName": "a" },
            })
        );
    }
}
