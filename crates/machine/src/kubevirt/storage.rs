//! Disks: a claim for each, or a DataVolume where the disk holds something at first.
//!
//! Both are written once. Nothing of a claim can change later but its size, which only grows, and what becomes of it.

use std::cmp::Reverse;

use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Map, Value, json};
use vitistack_clients::kubernetes::Child;
use vitistack_plan::{Refusal, machine::DesiredDisk};
use vitistack_types::{
    Size,
    conditions::reason,
    labels,
    v1alpha1::{DiskSource, ReclaimPolicy},
};

use super::{
    Settings,
    kind::{Kind, Object, named, part},
    names,
    plan::Volume,
    read::Found,
};
use crate::{Order, Target};

/// The annotation by which a cluster marks its default class.
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// The annotation that the scheduler leaves on a claim when it has chosen a node for the pod that uses it.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The word that means the default class where no class has that name.
const DEFAULT: &str = "default";

/// The size that a claim asks for.
#[must_use]
pub fn requested(claim: &DynamicObject) -> Option<Size> {
    part::<Option<Size>>(claim, "/spec/resources/requests/storage")
}

/// The size that a claim has.
#[must_use]
pub fn capacity(claim: &DynamicObject) -> Option<Size> {
    part::<Option<Size>>(claim, "/status/capacity/storage")
}

/// Whether a claim has its volume.
#[must_use]
pub fn is_bound(claim: &DynamicObject) -> bool {
    part::<String>(claim, "/status/phase") == "Bound"
}

/// Whether the volume of this name never got a place that anybody could have written to: no volume is bound to its claim,
/// and no node was chosen for whoever wants to use it.
#[must_use]
pub fn is_blank(name: &str, found: &Found) -> bool {
    let Some(claim) = named(&found.claims, name) else {
        let filled = named(&found.data_volumes, name);
        return filled.is_some_and(|filled| part::<String>(filled, "/status/phase") != "Succeeded");
    };
    ["", "Pending"].contains(&part::<String>(claim, "/status/phase").as_str())
        && part::<String>(claim, "/spec/volumeName").is_empty()
        && !claim.annotations().contains_key(SELECTED_NODE)
}

/// Whether a volume is made, and filled, when a machine with it starts for the first time and not before: until then all
/// is as it should be.
#[must_use]
pub fn waits_for_start(volume: &DynamicObject, found: &Found) -> bool {
    let class: String = part(volume, "/spec/storageClassName");
    let waits = named(&found.storage_classes, &class)
        .is_some_and(|class| part::<String>(class, "/volumeBindingMode") == "WaitForFirstConsumer");
    let is_waiting = named(&found.data_volumes, &volume.name_any()).is_none_or(|filled| {
        let phase: String = part(filled, "/status/phase");
        ["", "Pending", "WaitForFirstConsumer", "PendingPopulation"].contains(&phase.as_str())
    });
    waits && is_waiting && !is_bound(volume)
}

/// What becomes of a volume, as it was last told.
#[must_use]
pub fn reclaim_policy(volume: &DynamicObject) -> ReclaimPolicy {
    match volume.annotations().get(labels::RECLAIM_POLICY).map(String::as_str) {
        Some("Retain") => ReclaimPolicy::Retain,
        _ => ReclaimPolicy::Delete,
    }
}

/// The class that a disk is made from, or the refusal with the fix.
fn class<'a>(disk: &'a DesiredDisk, classes: &'a [Object]) -> Result<&'a str, Refusal> {
    let wanted = disk.storage_class.as_deref();
    if let Some(name) = wanted.filter(|name| named(classes, name).is_some()) {
        return Ok(name);
    }
    if let Some(name) = wanted.filter(|name| *name != DEFAULT) {
        return Err(Refusal::new(
            reason::STORAGE_CLASS_NOT_FOUND,
            format!(
                "disks[{}].storageClass {name:?} names nothing in the provider's cluster: create a StorageClass {name:?}, or name one that is there",
                disk.name
            ),
        ));
    }
    default_class(classes).ok_or_else(|| {
        Refusal::new(
            reason::STORAGE_CLASS_NOT_FOUND,
            format!(
                "disks[{}] needs a StorageClass and the provider's cluster has no default one: name one in storageClass, or set the annotation {IS_DEFAULT}: \"true\" on one",
                disk.name
            ),
        )
    })
}

/// The cluster's default class; of several the newest, as Kubernetes itself decides.
fn default_class(classes: &[Object]) -> Option<&str> {
    let is_default =
        |class: &&Object| class.annotations().get(IS_DEFAULT).is_some_and(|value| value == "true");
    let newest_first = |class: &&Object| {
        let made = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (Reverse(made), class.name_any())
    };
    classes.iter().filter(is_default).min_by_key(newest_first)?.metadata.name.as_deref()
}

/// What has to change before the disk's volume can be made; nothing once it is there.
#[must_use]
pub fn problem(disk: &DesiredDisk, machine: &str, namespace: &str, found: &Found) -> Option<Refusal> {
    let name = names::claim(machine, &disk.name);
    if named(&found.claims, &name).is_some() || named(&found.data_volumes, &name).is_some() {
        return None;
    }
    if let Some(source) = &disk.source {
        if !found.has_cdi {
            return Some(Refusal::new(
                reason::KUBEVIRT_API_ERROR,
                format!(
                    "disks[{}].source needs CDI, which the provider's cluster does not have: install KubeVirt's Containerized Data Importer, or remove source",
                    disk.name
                ),
            ));
        }
        if let Some(refusal) = source.claim.as_deref().and_then(|claim| copied(disk, claim, namespace, found))
        {
            return Some(refusal);
        }
    }
    class(disk, &found.storage_classes).err()
}

/// Why a claim cannot be copied to the disk.
fn copied(disk: &DesiredDisk, source: &str, namespace: &str, found: &Found) -> Option<Refusal> {
    let field = format!("disks[{}].source.claim {source:?}", disk.name);
    let Some(claim) = named(&found.claims, source) else {
        return Some(Refusal::new(
            reason::SOURCE_NOT_FOUND,
            format!(
                "{field} names nothing in namespace {namespace:?} of the provider's cluster: create the PersistentVolumeClaim, or name one that is there"
            ),
        ));
    };
    let size = capacity(claim).or_else(|| requested(claim)).filter(|size| *size > disk.size)?;
    Some(Refusal::new(
        reason::INVALID_SPEC,
        format!("{field} has {size}, more than the disk's {}: give the disk at least {size}", disk.size),
    ))
}

/// The volume of a disk as it is made, and its kind.
#[must_use]
pub fn volume(settings: &Settings, order: &Order, disk: &DesiredDisk, classes: &[Object]) -> (Kind, Child) {
    let target = &order.target;
    let mut metadata = settings.metadata(target, names::claim(&order.desired.name, &disk.name));
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(labels::DISK.to_owned(), disk.name.clone());
    let mut annotations = std::collections::BTreeMap::new();
    if disk.reclaim_policy == ReclaimPolicy::Retain {
        annotations.insert(labels::RECLAIM_POLICY.to_owned(), "Retain".to_owned());
    }
    let mut claim = json!({
        "accessModes": [disk.access_mode],
        "resources": { "requests": { "storage": disk.size } },
        "volumeMode": disk.volume_mode,
    });
    if let (Ok(class), Some(fields)) = (class(disk, classes), claim.as_object_mut()) {
        fields.insert("storageClassName".to_owned(), class.into());
    }
    let Some(source) = &disk.source else {
        metadata.annotations = (!annotations.is_empty()).then_some(annotations);
        let kind = Kind::PersistentVolumeClaim;
        return (kind, kind.child(metadata, json!({ "spec": claim })));
    };
    // A DataVolume that CDI tidies away would look like one that was never made.
    annotations.insert("cdi.kubevirt.io/storage.deleteAfterCompletion".to_owned(), "false".to_owned());
    metadata.annotations = Some(annotations);
    let spec = json!({ "source": filled_from(source, settings, target), "storage": claim });
    (Kind::DataVolume, Kind::DataVolume.child(metadata, json!({ "spec": spec })))
}

/// What CDI fills a volume from.
fn filled_from(source: &DiskSource, settings: &Settings, target: &Target) -> Value {
    let mut kinds = Map::new();
    if let Some(image) = &source.image {
        kinds.insert("registry".to_owned(), json!({ "url": format!("docker://{image}") }));
    }
    if let Some(url) = &source.url {
        kinds.insert("http".to_owned(), json!({ "url": url }));
    }
    if let Some(claim) = &source.claim {
        kinds.insert("pvc".to_owned(), json!({ "namespace": settings.namespace(target), "name": claim }));
    }
    Value::Object(kinds)
}

/// Whether the claim's class lets it grow.
fn is_expandable(claim: &DynamicObject, classes: &[Object]) -> bool {
    let class: String = part(claim, "/spec/storageClassName");
    named(classes, &class).is_some_and(|class| part::<bool>(class, "/allowVolumeExpansion"))
}

/// What has to be changed on a claim that is there, as a merge patch. `namespace` is that of the Machine.
#[must_use]
pub fn amendment(
    disk: &DesiredDisk,
    namespace: &str,
    claim: &DynamicObject,
    classes: &[Object],
) -> Option<Value> {
    let mut patch = Map::new();
    let mut metadata = Map::new();
    if reclaim_policy(claim) != disk.reclaim_policy {
        metadata.insert("annotations".to_owned(), json!({ labels::RECLAIM_POLICY: disk.reclaim_policy }));
    }
    // One that was made before it was noted whose it is.
    if !claim.labels().contains_key(labels::MACHINE_NAMESPACE) {
        metadata.insert("labels".to_owned(), json!({ labels::MACHINE_NAMESPACE: namespace }));
    }
    if !metadata.is_empty() {
        patch.insert("metadata".to_owned(), Value::Object(metadata));
    }
    // A claim without a volume cannot grow; it is looked at again when it gets one.
    let grows = requested(claim).is_some_and(|requested| requested < disk.size)
        && is_bound(claim)
        && is_expandable(claim, classes);
    if grows {
        let requests = json!({ "resources": { "requests": { "storage": disk.size } } });
        patch.insert("spec".to_owned(), requests);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Whether a claim was filled from the source that the disk names now.
fn is_filled_from(volume: &Volume, claim: &DynamicObject, found: &Found) -> bool {
    match named(&found.data_volumes, &claim.name_any()) {
        Some(made) => made.data.pointer("/spec/source") == volume.child.object.data.pointer("/spec/source"),
        // The DataVolume may be gone; what CDI made carries its marks.
        None => claim.annotations().keys().any(|name| name.starts_with("cdi.kubevirt.io/")),
    }
}

/// The fields of a disk that differ from its claim and cannot be changed on it, each with why.
#[must_use]
pub fn unchangeable(volume: &Volume, claim: &DynamicObject, found: &Found) -> Vec<String> {
    let (disk, classes) = (&volume.disk, &found.storage_classes);
    let field = |name: &str| format!("disks[{}].{name}", disk.name);
    let mut fields = Vec::new();
    let class: String = part(claim, "/spec/storageClassName");
    let wanted = disk.storage_class.as_deref().filter(|wanted| *wanted != DEFAULT && *wanted != class);
    fields.extend(wanted.map(|_| format!("{} (it is made from {class:?})", field("storageClass"))));
    let differs = |pointer: &str, wanted: Value| {
        claim.data.pointer(pointer).filter(|found| **found != wanted).map(ToString::to_string)
    };
    let mode = differs("/spec/accessModes", json!([disk.access_mode]));
    fields.extend(mode.map(|found| format!("{} (it is {found})", field("accessMode"))));
    let mode = differs("/spec/volumeMode", json!(disk.volume_mode));
    fields.extend(mode.map(|found| format!("{} (it is {found})", field("volumeMode"))));
    if disk.source.is_some() && !is_filled_from(volume, claim, found) {
        fields.push(format!("{} (it is read only when the disk is made)", field("source")));
    }
    match requested(claim) {
        Some(requested) if requested < disk.size && is_bound(claim) && !is_expandable(claim, classes) => {
            fields.push(format!("{} (StorageClass {class:?} does not let a volume grow)", field("size")));
        }
        // CDI adds room for the file system to what it fills, so its claims are larger than was asked.
        Some(requested) if requested > disk.size && disk.source.is_none() => {
            fields.push(format!("{} (it has {requested}, and a disk only grows)", field("size")));
        }
        _ => {}
    }
    fields
}
