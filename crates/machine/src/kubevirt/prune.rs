//! What a cache can leave out of an object: all that nothing here reads. Most of a cluster's memory is in it.

use kube::core::DynamicObject;
use serde_json::{Map, Value};

use super::kind::{Kind, identity_of};

/// What is read of the status of a machine that is ours.
const MACHINE_STATUS: [&str; 2] = ["conditions", "printableStatus"];

/// What is read of the status of an instance that is ours.
const INSTANCE_STATUS: [&str; 5] =
    ["conditions", "interfaces", "nodeName", "phase", "phaseTransitionTimestamps"];

/// An annotation of kubectl that repeats the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Leaves out what no reader needs. Of somebody else's machine only its name and its volumes are ever looked at.
pub fn prune(kind: Kind, object: &mut DynamicObject) {
    object.metadata.managed_fields = None;
    if let Some(annotations) = &mut object.metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
    let is_ours = identity_of(object).is_some();
    match kind {
        Kind::VirtualMachine if is_ours => keep(object.data.get_mut("status"), &MACHINE_STATUS),
        Kind::VirtualMachine => {
            keep(Some(&mut object.data), &["spec"]);
            keep(object.data.get_mut("spec"), &["template"]);
            keep(object.data.pointer_mut("/spec/template"), &["spec"]);
            keep(object.data.pointer_mut("/spec/template/spec"), &["volumes"]);
        }
        Kind::VirtualMachineInstance => {
            keep(object.data.get_mut("spec"), &["volumes"]);
            keep(object.data.get_mut("status"), if is_ours { &INSTANCE_STATUS } else { &[] });
        }
        _ => {}
    }
}

/// Keeps these fields of an object, and no others.
fn keep(value: Option<&mut Value>, fields: &[&str]) {
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
    fn of_a_foreign_machine_its_name_and_volumes_are_left() {
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
    fn of_an_instance_what_tells_how_it_is_stays() {
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
