//! The requests that create, change and delete machines, in the order in which they are sent.

use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::DynamicObject,
};
use serde_json::{Value, json};
use vitistack_clients::kubernetes::{self, Child};
use vitistack_plan::{
    machine::{Problem, Update},
    refusals,
};
use vitistack_types::{conditions::reason, labels, v1alpha1::PowerState};

use super::{
    FIELD_MANAGER, Settings,
    changes::{Write, changes, foreign, place},
    failure,
    kind::{Kind, Object, belongs_to, describe, made_for, named},
    observe::{disk_name, is_attached, left_secret},
    plan::{Planned, plan},
    read::{Found, Reader, uid},
    requests::Requests,
    storage,
    virtual_machine::run_strategy,
};
use crate::{BackendError, ErrorKind, Order, Progress, Target};

/// Sends requests and records their answers.
pub struct Writer<'a> {
    /// The client of the provider's cluster.
    pub client: &'a Client,
    /// The reader, which must not show older objects afterwards.
    pub reader: &'a dyn Reader,
    /// The requests of this process.
    pub requests: &'a Requests,
}

impl Writer<'_> {
    fn wrote(&self, kind: Kind, object: Option<DynamicObject>) {
        if let Some(object) = object {
            self.requests.answered(kind, &object);
            self.reader.wrote(kind, object);
        }
    }
}

/// Writes every object of a machine that is not as ordered.
pub async fn create(
    writer: &Writer<'_>,
    settings: &Settings,
    order: &Order,
    found: &Found,
) -> Result<Progress, BackendError> {
    let planned = plan(settings, order, found);
    refuse(order, &planned, found)?;
    write_all(writer, settings, order, &planned, found, Some(order.desired.power)).await
}

/// Changes an existing machine.
pub async fn update(
    writer: &Writer<'_>,
    settings: &Settings,
    order: &Order,
    found: &Found,
    update: &Update,
) -> Result<Progress, BackendError> {
    match update {
        Update::Specification => {
            let planned = plan(settings, order, found);
            refuse(order, &planned, found)?;
            write_all(writer, settings, order, &planned, found, None).await
        }
        Update::Start => switch(writer, settings, order, found, PowerState::Running).await,
        Update::Stop => switch(writer, settings, order, found, PowerState::Stopped).await,
        Update::Restart { request } => restart(writer, &order.target, found, request).await,
    }
}

/// Returns the first reason why the plan cannot be applied, as an error.
fn refuse(order: &Order, planned: &Planned, found: &Found) -> Result<(), BackendError> {
    let target = &order.target;
    if let Some(elsewhere) = &found.elsewhere {
        let refusal = elsewhere.refusal(&target.identity, &target.namespace);
        return Err(BackendError::refused(refusal));
    }
    if let Some(foreign) = foreign(target, Some(planned), found) {
        return Err(name_taken(&foreign));
    }
    match planned.problems.first().map(Problem::refusal) {
        Some(refusal) => Err(BackendError::refused(refusal.clone())),
        None => Ok(()),
    }
}

fn name_taken(foreign: &str) -> BackendError {
    BackendError::refused(refusals::name_taken(foreign))
}

async fn write_all(
    writer: &Writer<'_>,
    settings: &Settings,
    order: &Order,
    planned: &Planned,
    found: &Found,
    power: Option<PowerState>,
) -> Result<Progress, BackendError> {
    for write in changes(settings, order, planned, found, power) {
        send(writer, &order.target, write).await?;
    }
    Ok(Progress::Done)
}

/// Sends one request.
async fn send(writer: &Writer<'_>, target: &Target, write: Write) -> Result<(), BackendError> {
    match write {
        Write::Create { kind, child } => create_object(writer, target, kind, &child).await,
        Write::Apply { kind, child, owner, observed } => {
            let applied = kubernetes::apply_and_return(
                writer.client,
                FIELD_MANAGER,
                &owner,
                &child,
                observed.as_deref(),
            );
            let (_, object) =
                applied.await.map_err(|error| failure::explain_apply(kind, &place(&child.object), &error))?;
            writer.wrote(kind, object);
            Ok(())
        }
        Write::Amend { kind, object, patch } => amend(writer, kind, &object, patch).await,
        Write::Delete { kind, object } => delete(writer, kind, &object).await,
    }
}

/// Creates an object that is written once. If it exists already, an earlier request without an answer created it, or it
/// belongs to something else.
async fn create_object(
    writer: &Writer<'_>,
    target: &Target,
    kind: Kind,
    child: &Child,
) -> Result<(), BackendError> {
    let api = child.api(writer.client);
    let name = child.object.name_any();
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let explain =
        |verb: &str, error: &kube::Error| failure::explain(kind, verb, &place(&child.object), error);

    match api.create(&parameters, &child.object).await {
        Ok(created) => {
            writer.wrote(kind, Some(created));
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 409 => {
            match api.get_opt(&name).await.map_err(|error| explain("read", &error))? {
                Some(found)
                    if !belongs_to(&found, &target.identity)
                        || made_for(&found, target) != Some(&target.namespace) =>
                {
                    Err(name_taken(&describe(kind, &found)))
                }
                found => {
                    writer.wrote(kind, found);
                    Ok(())
                }
            }
        }
        Err(error) => Err(explain("create", &error)),
    }
}

/// Changes a few fields of exactly this object: the precondition on the UID protects a successor of the same name.
async fn amend(
    writer: &Writer<'_>,
    kind: Kind,
    object: &Object,
    mut patch: Value,
) -> Result<(), BackendError> {
    if let Some(fields) = patch.as_object_mut() {
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("uid".to_owned(), uid(object).into());
        }
    }
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let changed = api(writer.client, kind, object)
        .patch(&object.name_any(), &parameters, &Patch::Merge(&patch))
        .await
        .map_err(|error| failure::explain(kind, "change", &place(object), &error))?;
    writer.wrote(kind, Some(changed));
    Ok(())
}

async fn delete(writer: &Writer<'_>, kind: Kind, object: &Object) -> Result<(), BackendError> {
    let (_, left) = kubernetes::delete_and_return(writer.client, &kind.found(object))
        .await
        .map_err(|error| failure::explain_delete(kind, &place(object), &error))?;
    match left {
        Some(terminating) => writer.wrote(kind, Some(terminating)),
        None => writer.reader.deleted(kind, object),
    }
    Ok(())
}

fn api(client: &Client, kind: Kind, object: &DynamicObject) -> Api<DynamicObject> {
    let namespace = object.namespace().unwrap_or_default();
    Api::namespaced_with(client.clone(), &namespace, &kind.resource())
}

/// Starts or stops a machine, and applies the rest of the order at the same time. If the rest is refused, the power state
/// is changed alone.
async fn switch(
    writer: &Writer<'_>,
    settings: &Settings,
    order: &Order,
    found: &Found,
    power: PowerState,
) -> Result<Progress, BackendError> {
    let planned = plan(settings, order, found);
    if refuse(order, &planned, found).is_ok() {
        return write_all(writer, settings, order, &planned, found, Some(power)).await;
    }

    let machine = own_machine(&order.target, found)?;
    let wanted = run_strategy(power);
    if machine.data.pointer("/spec/runStrategy").and_then(Value::as_str) != Some(wanted) {
        let patch = json!({ "spec": { "runStrategy": wanted } });
        amend(writer, Kind::VirtualMachine, machine, patch).await?;
    }
    Ok(Progress::Done)
}

/// Returns the VirtualMachine, if it belongs to this Machine.
fn own_machine<'a>(target: &Target, found: &'a Found) -> Result<&'a Object, BackendError> {
    match &found.virtual_machine {
        Some(machine) if belongs_to(machine, &target.identity) => Ok(machine),
        Some(machine) => Err(name_taken(&describe(Kind::VirtualMachine, machine))),
        None => Err(BackendError::new(
            ErrorKind::Failed,
            reason::KUBEVIRT_API_ERROR,
            "VirtualMachine not found: it is created first",
        )),
    }
}

/// Restarts a machine once per request. First the VirtualMachine records which instance is deleted for the request, then
/// exactly that instance is deleted: repeating either step touches no other instance and loses no request.
async fn restart(
    writer: &Writer<'_>,
    target: &Target,
    found: &Found,
    request: &str,
) -> Result<Progress, BackendError> {
    let machine = own_machine(target, found)?;
    let instance = found.instance.as_ref().filter(|instance| belongs_to(instance, &target.identity));
    let annotation = |name: &str| machine.annotations().get(name).map(String::as_str);
    let mut stopped = annotation(labels::RESTARTED_INSTANCE).unwrap_or_default().to_owned();

    if annotation(labels::RESTART_AT) != Some(request) {
        stopped = instance.map(|instance| uid(instance)).unwrap_or_default();
        let annotations = json!({ labels::RESTART_AT: request, labels::RESTARTED_INSTANCE: stopped });
        amend(writer, Kind::VirtualMachine, machine, json!({ "metadata": { "annotations": annotations } }))
            .await?;
    }

    match instance.filter(|instance| uid(instance) == stopped) {
        Some(instance) => {
            delete(writer, Kind::VirtualMachineInstance, instance).await?;
            Ok(Progress::Working("the machine to restart".to_owned()))
        }
        None => Ok(Progress::Done),
    }
}

/// Deletes the VirtualMachine, or an instance that outlived it.
pub async fn delete_machine(
    writer: &Writer<'_>,
    target: &Target,
    found: &Found,
) -> Result<Progress, BackendError> {
    let mine = |object: &&Object| belongs_to(object, &target.identity);
    if let Some(machine) = found.virtual_machine.as_ref().filter(mine) {
        delete(writer, Kind::VirtualMachine, machine).await?;
    } else if let Some(instance) = found.instance.as_ref().filter(mine) {
        delete(writer, Kind::VirtualMachineInstance, instance).await?;
    } else {
        return Ok(Progress::Done);
    }
    Ok(Progress::Working("KubeVirt to delete the virtual machine".to_owned()))
}

/// Whether an object is the volume of one of these disks.
fn is_volume_of(target: &Target, disks: &[String], object: &Object) -> bool {
    belongs_to(object, &target.identity) && disks.contains(&disk_name(target, object))
}

/// Deletes the volumes of these disks, unless the machine still uses them.
pub async fn delete_disks(
    writer: &Writer<'_>,
    target: &Target,
    disks: &[String],
    found: &Found,
) -> Result<Progress, BackendError> {
    let is_asked = |object: &&Object| is_volume_of(target, disks, object);
    let mut is_working = false;
    for (kind, volumes) in
        [(Kind::DataVolume, &found.data_volumes), (Kind::PersistentVolumeClaim, &found.claims)]
    {
        for volume in volumes.iter().filter(is_asked) {
            let name = volume.name_any();
            if is_attached(&name, found) {
                return Ok(Progress::Working(format!("the machine to release volume {name:?}")));
            }
            is_working = true;
            // The garbage collector deletes a claim that CDI created together with its DataVolume.
            let is_collected = kind == Kind::PersistentVolumeClaim
                && volume
                    .owner_references()
                    .iter()
                    .any(|owner| found.data_volumes.iter().any(|filled| uid(filled) == owner.uid));
            if !is_collected {
                delete(writer, kind, volume).await?;
            }
        }
    }
    Ok(volumes_progress(is_working))
}

fn volumes_progress(is_working: bool) -> Progress {
    if is_working { Progress::Working("the volumes to be deleted".to_owned()) } else { Progress::Done }
}

/// Deletes what an absent machine left behind beside its volumes.
pub async fn delete_leftovers(
    writer: &Writer<'_>,
    target: &Target,
    found: &Found,
) -> Result<Progress, BackendError> {
    if let Some(secret) = left_secret(target, found) {
        delete(writer, Kind::Secret, secret).await?;
    }
    Ok(Progress::Done)
}

/// Deletes the volumes of these disks that were never written to, each only in the state in which that was observed.
pub async fn delete_blank_disks(
    writer: &Writer<'_>,
    target: &Target,
    disks: &[String],
    found: &Found,
) -> Result<Progress, BackendError> {
    let is_asked = |object: &&Object| is_volume_of(target, disks, object);
    let is_blank = |object: &&Object| {
        let name = object.name_any();
        storage::is_blank(&name, found) && !is_attached(&name, found)
    };
    // The garbage collector deletes a claim that CDI created together with its DataVolume.
    let is_alone = |claim: &&Object| named(&found.data_volumes, &claim.name_any()).is_none();
    let filled = found.data_volumes.iter().map(|volume| (Kind::DataVolume, volume));
    let claims = found.claims.iter().filter(is_alone).map(|claim| (Kind::PersistentVolumeClaim, claim));

    let mut is_working = false;
    for (kind, volume) in filled.chain(claims).filter(|(_, volume)| is_asked(volume) && is_blank(volume)) {
        is_working = true;
        delete_unchanged(writer, kind, volume).await?;
    }
    Ok(volumes_progress(is_working))
}

/// Deletes an object unless it changed since it was read; a changed one is observed again.
async fn delete_unchanged(writer: &Writer<'_>, kind: Kind, object: &Object) -> Result<(), BackendError> {
    if object.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let parameters = DeleteParams::background().preconditions(Preconditions {
        uid: object.metadata.uid.clone(),
        resource_version: object.metadata.resource_version.clone(),
    });
    match api(writer.client, kind, object).delete(&object.name_any(), &parameters).await {
        Ok(answer) => {
            match answer.left().filter(|left| !left.finalizers().is_empty()) {
                Some(terminating) => writer.wrote(kind, Some(terminating)),
                None => writer.reader.deleted(kind, object),
            }
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        Err(error) => Err(failure::explain(kind, "delete", &place(object), &error)),
    }
}
