//! Disks: a PersistentVolumeClaim each, or a DataVolume for a disk with a source.
//!
//! Both are written once. Later only the size of a claim, which only grows, and its reclaim policy can change.

use std::cmp::Reverse;

use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Map, Value, json};
use vitistack_clients::kubernetes::Child;
use vitistack_plan::{Refusal, machine::DesiredDisk, permits_by_annotation};
use vitistack_types::{
    Size,
    conditions::reason,
    labels,
    v1alpha1::{DiskSource, ReclaimPolicy},
};

use super::{
    Settings, foreign_text,
    kind::{Kind, Object, belongs_to, named, part},
    names,
    plan::Volume,
    read::Found,
};
use crate::{Order, Target};

/// The annotation of the default class of a cluster.
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// The annotation that the scheduler sets on a claim when it has chosen a node for its pod.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The name that means the default class, unless a class has this name.
const DEFAULT: &str = "default";

/// Returns the requested size of a claim.
#[must_use]
pub fn requested(claim: &DynamicObject) -> Option<Size> {
    part::<Option<Size>>(claim, "/spec/resources/requests/storage")
}

/// Returns the actual size of a claim.
#[must_use]
pub fn capacity(claim: &DynamicObject) -> Option<Size> {
    part::<Option<Size>>(claim, "/status/capacity/storage")
}

/// Whether a claim is bound to a volume.
#[must_use]
pub fn is_bound(claim: &DynamicObject) -> bool {
    part::<String>(claim, "/status/phase") == "Bound"
}

/// Whether the volume of this name cannot have been written to: its claim is not bound, and no node was chosen for a pod
/// that uses it.
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

/// Whether a volume is created and filled only when its machine starts for the first time, so that waiting is expected.
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

/// Returns the reclaim policy in the annotations of a volume.
#[must_use]
pub fn reclaim_policy(volume: &DynamicObject) -> ReclaimPolicy {
    match volume.annotations().get(labels::RECLAIM_POLICY).map(String::as_str) {
        Some("Retain") => ReclaimPolicy::Retain,
        _ => ReclaimPolicy::Delete,
    }
}

/// Returns the class of a disk, or the refusal with the fix.
fn class<'a>(disk: &'a DesiredDisk, classes: &'a [Object]) -> Result<&'a str, Refusal> {
    let wanted = disk.storage_class.as_deref();
    if let Some(name) = wanted.filter(|name| named(classes, name).is_some()) {
        return Ok(name);
    }
    if let Some(name) = wanted.filter(|name| *name != DEFAULT) {
        return Err(Refusal::new(
            reason::STORAGE_CLASS_NOT_FOUND,
            format!(
                "disks[{}].storageClass {name:?} not found in the provider's cluster: create the StorageClass, or use an existing one",
                disk.name
            ),
        ));
    }
    default_class(classes).ok_or_else(|| {
        Refusal::new(
            reason::STORAGE_CLASS_NOT_FOUND,
            format!(
                "disks[{}].storageClass is required because the provider's cluster has no default StorageClass: set it, or set the annotation {IS_DEFAULT}: \"true\" on one",
                disk.name
            ),
        )
    })
}

/// Returns the default class of the cluster; of several the newest, as Kubernetes does.
fn default_class(classes: &[Object]) -> Option<&str> {
    let is_default =
        |class: &&Object| class.annotations().get(IS_DEFAULT).is_some_and(|value| value == "true");
    let newest_first = |class: &&Object| {
        let created = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (Reverse(created), class.name_any())
    };
    classes.iter().filter(is_default).min_by_key(newest_first)?.metadata.name.as_deref()
}

/// Returns what prevents the volume of a disk from being created; none if it exists.
#[must_use]
pub fn problem(settings: &Settings, order: &Order, disk: &DesiredDisk, found: &Found) -> Option<Refusal> {
    let name = names::claim(&order.desired.name, &disk.name);
    if named(&found.claims, &name).is_some() || named(&found.data_volumes, &name).is_some() {
        return None;
    }
    if let Some(refusal) = settings.limits.source_problem(disk) {
        return Some(refusal);
    }
    if let Some(source) = &disk.source {
        if !found.has_cdi {
            return Some(Refusal::new(
                reason::KUBEVIRT_API_ERROR,
                format!(
                    "disks[{}].source requires CDI, which is not installed in the provider's cluster: install KubeVirt's Containerized Data Importer, or remove source",
                    disk.name
                ),
            ));
        }
        let claim = source.claim.as_deref();
        if let Some(refusal) =
            claim.and_then(|claim| copy_problem(disk, claim, settings, &order.target, found))
        {
            return Some(refusal);
        }
    }
    class(disk, &found.storage_classes).err()
}

/// Returns why a claim cannot be copied to the disk.
///
/// A claim that may not be copied is refused in the words for one that does not exist: no one learns from a Machine what
/// others have.
fn copy_problem(
    disk: &DesiredDisk,
    source: &str,
    settings: &Settings,
    target: &Target,
    found: &Found,
) -> Option<Refusal> {
    let field = format!("disks[{}].source.claim {source:?}", disk.name);
    let is_own_place = settings.is_beside(target) || settings.namespace.is_none();
    let Some(claim) = named(&found.claims, source).filter(|claim| may_copy(claim, target, is_own_place))
    else {
        let (namespace, own) = (settings.namespace(target), &target.namespace);
        let allow = if is_own_place {
            "create the PersistentVolumeClaim, or use an existing one".to_owned()
        } else {
            format!(
                "use the claim of a Machine in namespace {own:?}, or set the annotation {}={own} on the PersistentVolumeClaim",
                labels::ALLOW_REFERENCES_FROM
            )
        };
        return Some(Refusal::new(
            reason::SOURCE_NOT_FOUND,
            format!(
                "{field} not found in namespace {namespace:?} of the provider's cluster, or not allowed for namespace {own:?}: {allow}"
            ),
        ));
    };
    let size = capacity(claim).or_else(|| requested(claim)).filter(|size| *size > disk.size)?;
    Some(Refusal::new(
        reason::INVALID_SPEC,
        format!(
            "{field} has {size}, more than the size {} of the disk: set the size to at least {size}",
            disk.size
        ),
    ))
}

/// Whether a claim may be copied for a Machine: it was created for a Machine of the same namespace, or for no Machine and
/// permits it. In a namespace that is that of the Machine's tenant (`is_own_place`) every claim for no Machine may be copied;
/// one that the provider chose for all tenants and that only has the same name in another cluster is not such a namespace.
fn may_copy(claim: &DynamicObject, target: &Target, is_own_place: bool) -> bool {
    let own = &target.namespace;
    match (claim.labels().get(labels::MACHINE_NAMESPACE), claim.labels().contains_key(labels::IDENTITY)) {
        (Some(namespace), _) => namespace == own,
        // Claims of earlier versions lack the label.
        (None, true) => {
            belongs_to(claim, &target.identity)
                || (is_own_place && claim.metadata.namespace.as_deref() == Some(own))
        }
        (None, false) => is_own_place || permits_by_annotation(&claim.metadata, own),
    }
}

/// Returns the object of a disk and its kind.
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
    // A DataVolume that CDI deletes after completion would look like one that was never created.
    annotations.insert("cdi.kubevirt.io/storage.deleteAfterCompletion".to_owned(), "false".to_owned());
    metadata.annotations = Some(annotations);
    let spec = json!({ "source": filled_from(source, settings, target), "storage": claim });
    (Kind::DataVolume, Kind::DataVolume.child(metadata, json!({ "spec": spec })))
}

/// Returns the source of a DataVolume.
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

/// Whether the class of a claim allows expansion.
fn is_expandable(claim: &DynamicObject, classes: &[Object]) -> bool {
    let class: String = part(claim, "/spec/storageClassName");
    named(classes, &class).is_some_and(|class| part::<bool>(class, "/allowVolumeExpansion"))
}

/// Returns the change of an existing claim as a merge patch. `namespace` is that of the Machine.
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
    // Claims of earlier versions lack the label.
    if !claim.labels().contains_key(labels::MACHINE_NAMESPACE) {
        metadata.insert("labels".to_owned(), json!({ labels::MACHINE_NAMESPACE: namespace }));
    }
    if !metadata.is_empty() {
        patch.insert("metadata".to_owned(), Value::Object(metadata));
    }
    // An unbound claim cannot be expanded; it is observed again when it is bound.
    let grows = requested(claim).is_some_and(|requested| requested < disk.size)
        && is_bound(claim)
        && is_expandable(claim, classes);
    if grows {
        let requests = json!({ "resources": { "requests": { "storage": disk.size } } });
        patch.insert("spec".to_owned(), requests);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Whether a claim was filled from the current source of the disk.
fn is_filled_from(volume: &Volume, claim: &DynamicObject, found: &Found) -> bool {
    match named(&found.data_volumes, &claim.name_any()) {
        Some(filled) => {
            filled.data.pointer("/spec/source") == volume.child.object.data.pointer("/spec/source")
        }
        // The DataVolume may be deleted; claims that CDI created have its annotations.
        None => claim.annotations().keys().any(|name| name.starts_with("cdi.kubevirt.io/")),
    }
}

/// Returns the fields of a disk that differ from its claim and cannot be changed, each with the cause.
#[must_use]
pub fn unchangeable(volume: &Volume, claim: &DynamicObject, found: &Found) -> Vec<String> {
    let (disk, classes) = (&volume.disk, &found.storage_classes);
    let field = |name: &str| format!("disks[{}].{name}", disk.name);
    let mut fields = Vec::new();
    let class: String = part(claim, "/spec/storageClassName");
    let shown = foreign_text::name(&class);
    let wanted = disk.storage_class.as_deref().filter(|wanted| *wanted != DEFAULT && *wanted != class);
    fields.extend(wanted.map(|_| format!("{} (it is {shown:?})", field("storageClass"))));
    let differs = |pointer: &str, wanted: Value| {
        claim.data.pointer(pointer).filter(|found| **found != wanted).map(foreign_text::mode)
    };
    let mode = differs("/spec/accessModes", json!([disk.access_mode]));
    fields.extend(mode.map(|found| format!("{} (it is {found})", field("accessMode"))));
    let mode = differs("/spec/volumeMode", json!(disk.volume_mode));
    fields.extend(mode.map(|found| format!("{} (it is {found})", field("volumeMode"))));
    if disk.source.is_some() && !is_filled_from(volume, claim, found) {
        fields.push(format!("{} (it is only used when the disk is created)", field("source")));
    }
    match requested(claim) {
        Some(requested) if requested < disk.size && is_bound(claim) && !is_expandable(claim, classes) => {
            fields.push(format!("{} (StorageClass {shown:?} does not allow expansion)", field("size")));
        }
        // CDI adds the overhead of the file system, so its claims are larger than requested.
        Some(requested) if requested > disk.size && disk.source.is_none() => {
            fields.push(format!("{} (it is {requested}, and a disk cannot shrink)", field("size")));
        }
        _ => {}
    }
    fields
}
