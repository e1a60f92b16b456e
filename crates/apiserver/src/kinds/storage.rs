//! PersistentVolumeClaims, volumes and storage classes. No volume is bound here: a storage provider does
//! that.

use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use serde_json::{Value, json};
use vitistack_schema::Cause;

use super::{
    BuiltIn,
    cells::{self, AGE, NAME, column},
    default_member, member, schema_of,
};
use crate::{names, table::Column};

/// The built-in kinds.
pub const KINDS: &[BuiltIn] = &[
    BuiltIn {
        plural: "persistentvolumeclaims",
        kind: "PersistentVolumeClaim",
        short_names: &["pvc"],
        status: true,
        returns_deleted: true,
        stored_in: "/persistentvolumeclaims",
        schema: schema_of::<PersistentVolumeClaim>,
        default: default_claim,
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
        returns_deleted: true,
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
        returns_deleted: true,
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

fn default_claim(object: &mut Value) {
    default_member(member(object, "spec"), "volumeMode", "Filesystem");
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        default_member(condition, "lastProbeTime", Value::Null);
        default_member(condition, "lastTransitionTime", Value::Null);
    }
}

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

/// The access modes of a claim.
const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Validates that a field has a supported value; an absent one is validated elsewhere.
fn unsupported(object: &Value, pointer: &str, supported: &[&str]) -> Option<Cause> {
    let value = object.pointer(pointer)?;
    let known = value.as_str().is_none_or(|text| supported.contains(&text));
    let field = pointer.trim_start_matches('/').replace('/', ".");
    (!known).then(|| Cause::not_supported(&field, value, supported))
}

fn validate_claim(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let modes = object.pointer("/spec/accessModes").and_then(Value::as_array);
    let modes = modes.map(Vec::as_slice).unwrap_or_default();
    if modes.is_empty() {
        causes.push(Cause::required("spec.accessModes", "at least 1 access mode is required"));
    }

    let unknown = modes.iter().filter(|mode| mode.as_str().is_none_or(|mode| !ACCESS_MODES.contains(&mode)));
    causes.extend(unknown.map(|mode| Cause::not_supported("spec.accessModes", mode, ACCESS_MODES)));
    if modes.len() > 1 && modes.contains(&json!("ReadWriteOncePod")) {
        let message = "may not use ReadWriteOncePod with other access modes";
        causes.push(Cause::forbidden("spec.accessModes", message));
    }

    match object.pointer("/spec/resources/requests/storage") {
        None => causes.push(Cause::required("spec.resources[storage]", "")),
        Some(size) if size.as_str().is_some_and(|size| quantity(size).is_none_or(|size| size <= 0.0)) => {
            causes.push(Cause::invalid("spec.resources[storage]", size, "must be greater than zero"));
        }
        Some(_) => {}
    }

    let class = object.pointer("/spec/storageClassName").filter(|class| *class != "");
    let problems = class.and_then(Value::as_str).map(names::subdomain).unwrap_or_default();
    if let (Some(class), false) = (class, problems.is_empty()) {
        causes.push(Cause::invalid("spec.storageClassName", class, &problems.join(", ")));
    }

    causes.extend(unsupported(object, "/spec/volumeMode", &["Block", "Filesystem"]));
    if let Some(old) = old {
        causes.extend(claim_change(object, old));
    }
    causes
}

/// Validates a change of a claim: everything is immutable except for the fields of binding and the size of a
/// bound claim, which must not fall below its capacity.
fn claim_change(object: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let size = "/spec/resources/requests/storage";
    let mut wanted = object.get("spec").cloned().unwrap_or_default();
    let before = old.get("spec").cloned().unwrap_or_default();
    let mut free = Vec::new();

    for name in ["volumeName", "storageClassName"] {
        if before.get(name).is_none_or(|value| value.is_null() || (name == "volumeName" && value == "")) {
            free.push(name);
        }
    }

    if object.pointer("/status/phase") == Some(&json!("Bound")) {
        free.push("volumeAttributesClassName");
        if let (Some(target), Some(size)) =
            (wanted.pointer_mut("/resources/requests/storage"), old.pointer(size))
        {
            *target = size.clone();
        }
    }

    if let Some(members) = wanted.as_object_mut() {
        for name in free {
            match before.get(name) {
                Some(value) => members.insert(name.to_owned(), value.clone()),
                None => members.remove(name),
            };
        }
    }

    if wanted != before {
        let message = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        causes.push(Cause::forbidden("spec", message));
    }

    let amount = |object: &Value, pointer: &str| object.pointer(pointer)?.as_str().and_then(quantity);
    if let (Some(new), Some(had)) = (amount(object, size), amount(old, size))
        && new < had
        && amount(old, "/status/capacity/storage").is_none_or(|capacity| new <= capacity)
    {
        let message = "field can not be less than status.capacity";
        causes.push(Cause::forbidden("spec.resources.requests.storage", message));
    }

    causes
}

/// Parses a quantity; returns `None` if the string is not one.
fn quantity(text: &str) -> Option<f64> {
    let end = text.find(|letter: char| !matches!(letter, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let number: f64 = digits.parse().ok()?;
    let factor = match suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        "Ti" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "Pi" => 1024.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "Ei" => 1024.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0,
        exponent => 10f64.powi(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    };

    Some(number * factor)
}

fn validate_class(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if object.get("provisioner").and_then(Value::as_str).is_none_or(str::is_empty) {
        causes.push(Cause::required("provisioner", ""));
    }

    causes.extend(unsupported(object, "/reclaimPolicy", &["Delete", "Retain"]));
    causes.extend(unsupported(object, "/volumeBindingMode", &["Immediate", "WaitForFirstConsumer"]));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed() {
        assert_eq!(quantity("1Gi"), Some(1_073_741_824.0));
        assert_eq!(quantity("1500m"), Some(1.5));
        assert_eq!(quantity("12e6"), Some(12_000_000.0));
        assert_eq!(quantity("much"), None);
    }

    #[test]
    fn only_a_bound_claim_can_grow() {
        let claim = |size: &str, phase: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}, "status": {"phase": phase}});
        assert_eq!(claim_change(&claim("2Gi", "Pending"), &claim("1Gi", "Pending")).len(), 1);
        assert_eq!(claim_change(&claim("2Gi", "Bound"), &claim("1Gi", "Bound")), Vec::new());
    }
}
