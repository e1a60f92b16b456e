//! Claims, volumes and storage classes. No volume is ever bound here: whoever provides storage does that.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};

use super::cells::{self, AGE, NAME, column};
use super::{BuiltIn, default_member, member, schema_of};
use crate::schema::{Cause, CauseReason};
use crate::table::Column;

/// The rows.
pub const KINDS: &[BuiltIn] = &[
    BuiltIn {
        plural: "persistentvolumeclaims",
        kind: "PersistentVolumeClaim",
        short_names: &["pvc"],
        status: true,
        answers_deleted: true,
        stored_in: "/persistentvolumeclaims",
        schema: schema_of::<PersistentVolumeClaim>,
        default: |object| default_member(member(object, "spec"), "volumeMode", "Filesystem"),
        prepare: begin_pending,
        validate: validate_claim,
        columns: CLAIM_COLUMNS,
        cells: claim_cells,
        ..BuiltIn::PLAIN
    },
    BuiltIn {
        plural: "persistentvolumes",
        kind: "PersistentVolume",
        namespaced: false,
        short_names: &["pv"],
        status: true,
        answers_deleted: true,
        stored_in: "/persistentvolumes",
        schema: schema_of::<PersistentVolume>,
        default: default_volume,
        prepare: begin_pending,
        ..BuiltIn::PLAIN
    },
    BuiltIn {
        group: "storage.k8s.io",
        plural: "storageclasses",
        kind: "StorageClass",
        namespaced: false,
        short_names: &["sc"],
        answers_deleted: true,
        stored_in: "storage.k8s.io/storageclasses",
        stored_as: "storage.k8s.io/v1",
        schema: schema_of::<StorageClass>,
        default: |object| {
            default_member(object, "reclaimPolicy", "Delete");
            default_member(object, "volumeBindingMode", "Immediate");
        },
        validate: validate_class,
        columns: CLASS_COLUMNS,
        cells: class_cells,
        ..BuiltIn::PLAIN
    },
];

const CLAIM_COLUMNS: &[Column] = &[
    NAME,
    column("Status", "phase represents the current phase of PersistentVolumeClaim."),
    column("Volume", "volumeName is the binding reference to the PersistentVolume backing this claim."),
    column("Capacity", "capacity represents the actual resources of the underlying volume."),
    column(
        "Access Modes",
        "accessModes contains the actual access modes the volume backing the PVC has. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes-1",
    ),
    column("StorageClass", "StorageClass of the pvc"),
    column("VolumeAttributesClass", "VolumeAttributesClass of the pvc"),
    AGE,
    Column {
        name: "VolumeMode",
        kind: "string",
        format: "",
        description: "volumeMode defines what type of volume is required by the claim. Value of Filesystem is implied when not included in claim spec.",
        priority: 1,
    },
];

const CLASS_COLUMNS: &[Column] = &[
    NAME,
    column("Provisioner", "provisioner indicates the type of the provisioner."),
    column(
        "ReclaimPolicy",
        "reclaimPolicy controls the reclaimPolicy for dynamically provisioned PersistentVolumes of this storage class. Defaults to Delete.",
    ),
    column(
        "VolumeBindingMode",
        "volumeBindingMode indicates how PersistentVolumeClaims should be provisioned and bound.  When unset, VolumeBindingImmediate is used. This field is only honored by servers that enable the VolumeScheduling feature.",
    ),
    column(
        "AllowVolumeExpansion",
        "allowVolumeExpansion shows whether the storage class allow volume expand.",
    ),
    AGE,
];

fn default_volume(object: &mut Value) {
    let spec = member(object, "spec");
    default_member(spec, "volumeMode", "Filesystem");
    default_member(spec, "persistentVolumeReclaimPolicy", "Retain");
}

fn begin_pending(object: &mut Value, old: Option<&Value>) {
    if old.is_none()
        && let Some(members) = object.as_object_mut()
    {
        members.insert("status".to_owned(), json!({"phase": "Pending"}));
    }
}

fn cause(field: &str, reason: CauseReason, message: &str) -> Cause {
    Cause { field: field.to_owned(), reason, message: message.to_owned() }
}

fn validate_claim(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if object.pointer("/spec/accessModes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let message = "Required value: at least 1 access mode is required";
        causes.push(cause("spec.accessModes", CauseReason::FieldValueRequired, message));
    }
    if object.pointer("/spec/resources/requests/storage").is_none() {
        causes.push(cause("spec.resources[storage]", CauseReason::FieldValueRequired, "Required value"));
    }
    if let Some(old) = old
        && frozen(object) != frozen(old)
    {
        let message = "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        causes.push(cause("spec", CauseReason::FieldValueForbidden, message));
    }
    causes
}

/// The spec of a claim without what may change: the size, and what binding and class defaulting fill in later.
fn frozen(claim: &Value) -> Value {
    let mut spec = claim.get("spec").cloned().unwrap_or_default();
    if let Some(members) = spec.as_object_mut() {
        for name in ["resources", "volumeName", "volumeAttributesClassName", "storageClassName"] {
            members.remove(name);
        }
    }
    spec
}

fn validate_class(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if object.get("provisioner").and_then(Value::as_str).unwrap_or_default().is_empty() {
        causes.push(cause("provisioner", CauseReason::FieldValueRequired, "Required value"));
    }
    if let Some(old) = old {
        for name in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            let value = object.get(name).cloned().unwrap_or_default();
            if value != old.get(name).cloned().unwrap_or_default() {
                causes.push(Cause::invalid(name, &value, "field is immutable"));
            }
        }
    }
    causes
}

fn access_modes(modes: Option<&Value>) -> String {
    let short = |mode: &str| match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "",
    };
    let modes = modes.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    modes.map(short).filter(|mode| !mode.is_empty()).collect::<Vec<_>>().join(",")
}

fn claim_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let deleting = crate::metadata::deleting(object);
    let phase = if deleting { json!("Terminating") } else { cells::text(object, "/status/phase") };
    let bound = !cells::text(object, "/spec/volumeName").as_str().unwrap_or_default().is_empty();
    let (capacity, modes) = if bound {
        (cells::text(object, "/status/capacity/storage"), access_modes(object.pointer("/status/accessModes")))
    } else {
        (json!(""), String::new())
    };
    let attributes =
        object.pointer("/spec/volumeAttributesClassName").and_then(Value::as_str).unwrap_or("<unset>");
    vec![
        cells::name(object),
        phase,
        cells::text(object, "/spec/volumeName"),
        capacity,
        modes.into(),
        cells::text(object, "/spec/storageClassName"),
        attributes.into(),
        cells::age(object, now),
        cells::text(object, "/spec/volumeMode"),
    ]
}

fn class_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let annotation = |name: &str| object.pointer("/metadata/annotations").and_then(|all| all.get(name));
    let default = annotation("storageclass.kubernetes.io/is-default-class") == Some(&json!("true"));
    let name = crate::metadata::text(object, "name");
    let name = if default { format!("{name} (default)") } else { name.to_owned() };
    let expansion = object.get("allowVolumeExpansion").and_then(Value::as_bool).unwrap_or_default();
    vec![
        name.into(),
        cells::text(object, "/provisioner"),
        cells::text(object, "/reclaimPolicy"),
        cells::text(object, "/volumeBindingMode"),
        expansion.into(),
        cells::age(object, now),
    ]
}
