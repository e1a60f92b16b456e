//! The requests that make, change and delete machines: what was decided elsewhere, sent in order.

use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::DynamicObject,
};
use serde_json::{Value, json};
use vitistack_clients::kubernetes::{self, Child};
use vitistack_plan::machine::Update;
use vitistack_types::{conditions::reason, labels, v1alpha1::PowerState};

use super::{
    FIELD_MANAGER, Settings,
    answers::Answers,
    changes::{Write, changes, foreign, place},
    failure,
    kind::{Kind, Object, belongs_to, describe, made_for, named},
    observe::{disk_name, is_attached, left_secret},
    plan::plan,
    read::{Found, Reader, uid},
    storage,
    virtual_machine::run_strategy,
};
use crate::{BackendError, ErrorKind, Order, Progress, Target};

/// Who writes, and who has to hear of it before it is read again.
pub struct Writer<'a> {
    /// Writes to the provider's cluster.
    pub client: &'a Client,
    /// Reads from it.
    pub reader: &'a dyn Reader,
    /// Remembers how new what it answered is.
    pub answers: &'a Answers,
}

impl Writer<'_> {
    fn assume(&self, kind: Kind, object: Option<DynamicObject>) {
        if let Some(object) = object {
            self.answers.heard(kind, &object);
            self.reader.assume(kind, object);
        }
    }
}

/// Writes everything that is not as ordered, with the machine switched on or off as asked.
pub async fn specification(
    writer: &Writer<'_>,
    settings: &Settings,
    order: &Order,
    found: &Found,
    power: PowerState,
) -> Result<Progress, BackendError> {
    refuse(settings, order, found)?;
    write_all(writer, settings, order, found, Some(power)).await
}

/// Changes a machine that is there.
pub async fn update(
    writer: &Writer<'_>,
    settings: &Settings,
    order: &Order,
    found: &Found,
    update: &Update,
) -> Result<Progress, BackendError> {
    match update {
        Update::Specification => {
            refuse(settings, order, found)?;
            write_all(writer, settings, order, found, None).await
        }
        Update::Start => switch(writer, settings, order, found, PowerState::Running).await,
        Update::Stop => switch(writer, settings, order, found, PowerState::Stopped).await,
        Update::Restart { request } => restart(writer, &order.target, found, request).await,
    }
}

/// The first thing that stands in the way, as a failure.
fn refuse(settings: &Settings, order: &Order, found: &Found) -> Result<(), BackendError> {
    let target = &order.target;
    if let Some(elsewhere) = &found.elsewhere {
        let refusal = elsewhere.refusal(&target.identity, &target.namespace);
        return Err(BackendError::new(ErrorKind::Refused, refusal.reason, refusal.message));
    }
    let planned = plan(settings, order, found);
    if let Some(foreign) = foreign(target, Some(&planned), found) {
        return Err(taken(&foreign));
    }
    match planned.problems.first().map(vitistack_plan::machine::Problem::refusal) {
        Some(refusal) => Err(BackendError::new(ErrorKind::Refused, refusal.reason, refusal.message.clone())),
        None => Ok(()),
    }
}

fn taken(foreign: &str) -> BackendError {
    BackendError::new(
        ErrorKind::Refused,
        reason::NAME_TAKEN,
        format!("{foreign} is not ours and is left alone: remove it, or give the Machine another name"),
    )
}

async fn write_all(
    writer: &Writer<'_>,
    settings: &Settings,
    order: &Order,
    found: &Found,
    power: Option<PowerState>,
) -> Result<Progress, BackendError> {
    let planned = plan(settings, order, found);
    for write in changes(settings, order, &planned, found, power) {
        send(writer, &order.target, write).await?;
    }
    Ok(Progress::Done)
}

/// Sends one request.
async fn send(writer: &Writer<'_>, target: &Target, write: Write) -> Result<(), BackendError> {
    match write {
        Write::Create { kind, child } => create(writer, target, kind, &child).await,
        Write::Apply { kind, child, owner, observed } => {
            let applied =
                kubernetes::apply_heard(writer.client, FIELD_MANAGER, &owner, &child, observed.as_deref());
            let (_, object) =
                applied.await.map_err(|error| failure::explain_apply(kind, &place(&child.object), &error))?;
            writer.assume(kind, object);
            Ok(())
        }
        Write::Amend { kind, object, patch } => amend(writer, kind, &object, patch).await,
        Write::Delete { kind, object } => delete(writer, kind, &object).await,
    }
}

/// Makes an object that is written once. One that is there already was made by a request whose answer was not heard, or
/// it is somebody else's.
async fn create(writer: &Writer<'_>, target: &Target, kind: Kind, child: &Child) -> Result<(), BackendError> {
    let api = child.api(writer.client);
    let name = child.object.name_any();
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let explain =
        |verb: &str, error: &kube::Error| failure::explain(kind, verb, &place(&child.object), error);
    match api.create(&parameters, &child.object).await {
        Ok(made) => {
            writer.assume(kind, Some(made));
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 409 => {
            match api.get_opt(&name).await.map_err(|error| explain("read", &error))? {
                Some(found)
                    if !belongs_to(&found, &target.identity)
                        || made_for(&found, target) != Some(&target.namespace) =>
                {
                    Err(taken(&describe(kind, &found)))
                }
                found => {
                    writer.assume(kind, found);
                    Ok(())
                }
            }
        }
        Err(error) => Err(explain("create", &error)),
    }
}

/// Changes a few fields of exactly this object: a successor of its name has another uid, and is left alone.
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
    writer.assume(kind, Some(changed));
    Ok(())
}

async fn delete(writer: &Writer<'_>, kind: Kind, object: &Object) -> Result<(), BackendError> {
    let (_, left) = kubernetes::delete_heard(writer.client, &kind.found(object))
        .await
        .map_err(|error| failure::explain_delete(kind, &place(object), &error))?;
    match left {
        Some(leaving) => writer.assume(kind, Some(leaving)),
        None => writer.reader.forget(kind, object),
    }
    Ok(())
}

fn api(client: &Client, kind: Kind, object: &DynamicObject) -> Api<DynamicObject> {
    let namespace = object.namespace().unwrap_or_default();
    Api::namespaced_with(client.clone(), &namespace, &kind.resource())
}

/// Switches a machine on or off, and gives it what else was ordered while at it. Where that cannot be given, the switch
/// still works.
async fn switch(
    writer: &Writer<'_>,
    settings: &Settings,
    order: &Order,
    found: &Found,
    power: PowerState,
) -> Result<Progress, BackendError> {
    if refuse(settings, order, found).is_ok() {
        return write_all(writer, settings, order, found, Some(power)).await;
    }
    let machine = own_machine(&order.target, found)?;
    let wanted = run_strategy(power);
    if machine.data.pointer("/spec/runStrategy").and_then(Value::as_str) != Some(wanted) {
        let patch = json!({ "spec": { "runStrategy": wanted } });
        amend(writer, Kind::VirtualMachine, machine, patch).await?;
    }
    Ok(Progress::Done)
}

/// The VirtualMachine, if it is ours.
fn own_machine<'a>(target: &Target, found: &'a Found) -> Result<&'a Object, BackendError> {
    match &found.virtual_machine {
        Some(machine) if belongs_to(machine, &target.identity) => Ok(machine),
        Some(machine) => Err(taken(&describe(Kind::VirtualMachine, machine))),
        None => Err(BackendError::new(
            ErrorKind::Failed,
            reason::KUBEVIRT_API_ERROR,
            "there is no VirtualMachine with the identity: it is made first",
        )),
    }
}

/// Restarts a machine once for a request. First the machine notes which instance goes for it, then exactly that
/// instance goes: whatever is repeated, no other one is touched, and no request is forgotten.
async fn restart(
    writer: &Writer<'_>,
    target: &Target,
    found: &Found,
    request: &str,
) -> Result<Progress, BackendError> {
    let machine = own_machine(target, found)?;
    let instance = found.instance.as_ref().filter(|instance| belongs_to(instance, &target.identity));
    let annotation = |name: &str| machine.annotations().get(name).map(String::as_str);
    let mut leaving = annotation(labels::RESTARTED_INSTANCE).unwrap_or_default().to_owned();
    if annotation(labels::RESTART_AT) != Some(request) {
        leaving = instance.map(|instance| uid(instance)).unwrap_or_default();
        let annotations = json!({ labels::RESTART_AT: request, labels::RESTARTED_INSTANCE: leaving });
        amend(writer, Kind::VirtualMachine, machine, json!({ "metadata": { "annotations": annotations } }))
            .await?;
    }
    match instance.filter(|instance| uid(instance) == leaving) {
        Some(instance) => {
            delete(writer, Kind::VirtualMachineInstance, instance).await?;
            Ok(Progress::Working("the machine restarts".to_owned()))
        }
        None => Ok(Progress::Done),
    }
}

/// Deletes the machine.
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
    Ok(Progress::Working("KubeVirt removes the machine".to_owned()))
}

/// Whether an object is the volume of one of these disks.
fn is_volume_of(target: &Target, disks: &[String], object: &Object) -> bool {
    belongs_to(object, &target.identity) && disks.contains(&disk_name(target, object))
}

/// Deletes the volumes of these disks, unless the machine still has them.
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
                return Ok(Progress::Working(format!("the machine still has {name}")));
            }
            is_working = true;
            // A claim that CDI made goes with its DataVolume.
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
    let working = || Progress::Working("the volumes go".to_owned());
    Ok(if is_working { working() } else { Progress::Done })
}

/// Deletes what is left beside the volumes of a machine that is not there.
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

/// Deletes those volumes of these disks that hold nothing, each in exactly the state in which that was seen.
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
    // A claim that CDI makes goes with its DataVolume.
    let is_alone = |claim: &&Object| named(&found.data_volumes, &claim.name_any()).is_none();
    let filled = found.data_volumes.iter().map(|volume| (Kind::DataVolume, volume));
    let claims = found.claims.iter().filter(is_alone).map(|claim| (Kind::PersistentVolumeClaim, claim));
    let mut is_working = false;
    for (kind, volume) in filled.chain(claims).filter(|(_, volume)| is_asked(volume) && is_blank(volume)) {
        is_working = true;
        delete_unchanged(writer, kind, volume).await?;
    }
    Ok(if is_working { Progress::Working("the volumes go".to_owned()) } else { Progress::Done })
}

/// Deletes an object that nobody has changed since it was read; one that somebody has is looked at again.
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
                Some(leaving) => writer.assume(kind, Some(leaving)),
                None => writer.reader.forget(kind, object),
            }
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        Err(error) => Err(failure::explain(kind, "delete", &place(object), &error)),
    }
}
