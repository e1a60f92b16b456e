//! The scale subresource: one number of an object under a name all clients know.

use serde_json::{Value, json};

use super::write::{self, Proposal, Writer};
use crate::metadata;
use crate::registry::ScalePaths;
use crate::reply::Reply;
use crate::schema::{Cause, CauseReason};
use crate::server::{Call, Server};
use crate::status::Failure;
use crate::table;

/// The scale of an object.
fn scale_of(paths: &ScalePaths, object: &Value) -> Result<Value, Failure> {
    let number = |path: &str| table::find(object, path).first().and_then(|value| value.as_i64());
    let Some(wanted) = number(&paths.spec) else {
        return Err(Failure::internal(&format!("the spec replicas field \"{}\" does not exist", paths.spec)));
    };
    let mut status = json!({"replicas": number(&paths.status).unwrap_or_default()});
    let selector = paths.selector.as_ref().and_then(|path| table::find(object, path).first()?.as_str());
    if let (Some(selector), Some(members)) =
        (selector.filter(|text| !text.is_empty()), status.as_object_mut())
    {
        members.insert("selector".to_owned(), selector.into());
    }
    let mut fields = json!({});
    if let Some(members) = fields.as_object_mut() {
        for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            let value = metadata::text(object, name);
            if !value.is_empty() {
                members.insert(name.to_owned(), value.into());
            }
        }
    }
    Ok(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": fields,
        "spec": {"replicas": wanted}, "status": status,
    }))
}

fn paths(call: &Call) -> Result<&ScalePaths, Failure> {
    call.resource.scale.as_ref().ok_or_else(Failure::no_resource)
}

/// Reads the scale.
pub fn get(server: &Server, call: &Call) -> Result<Reply, Failure> {
    let entry = server.store.get(&call.key()).ok_or_else(|| call.not_found())?;
    Ok(Reply::value(scale_of(paths(call)?, &call.resource.from_stored(&entry.bytes))?))
}

/// Sets the number a path of names leads to.
fn set(object: &mut Value, path: &str, number: i64) {
    let mut value = object;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        if !value.is_object() {
            *value = json!({});
        }
        let Some(members) = value.as_object_mut() else { return };
        value = members.entry(name).or_insert(Value::Null);
    }
    *value = number.into();
}

/// Replaces the scale by the one in the body.
pub async fn update(server: &Server, call: &Call) -> Result<Reply, Failure> {
    let scale = crate::body::object("Scale", false, &call.content_type, &call.body)?.value;
    let writer = Writer::of(call, "UpdateOptions")?;
    change(server, call, &writer, |_| Ok(scale.clone())).await
}

/// Changes the scale by the patch in the body.
pub async fn patch(server: &Server, call: &Call) -> Result<Reply, Failure> {
    let writer = Writer::of(call, "PatchOptions")?;
    let json = call.content_type.starts_with("application/json-patch+json");
    change(server, call, &writer, |current| {
        let patched = if json {
            crate::patch::json(current, &call.body)
        } else {
            crate::patch::merge(current, &call.body)
        };
        patched.map_err(|error| super::patch::patch_failure(&error))
    })
    .await
}

async fn change(
    server: &Server,
    call: &Call,
    writer: &Writer,
    wanted: impl Fn(&Value) -> Result<Value, Failure> + Send + Sync,
) -> Result<Reply, Failure> {
    let paths = paths(call)?;
    let propose = |old: &Value| {
        let current = scale_of(paths, old).or_else(|failure| {
            // A scale may be set where there is none yet.
            let mut object = old.clone();
            set(&mut object, &paths.spec, 0);
            scale_of(paths, &object).map_err(|_| failure)
        })?;
        let scale = wanted(&current)?;
        let version = metadata::text(&scale, "resourceVersion");
        if !version.is_empty() && version != metadata::text(old, "resourceVersion") {
            return Err(Failure::modified(call.resource.subject(), call.name()));
        }
        let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or_default();
        if replicas < 0 {
            let cause = Cause {
                field: paths.spec.clone(),
                reason: CauseReason::FieldValueInvalid,
                message: format!("Invalid value: {replicas}: should be a non-negative integer"),
            };
            return Err(Failure::invalid(call.resource.kind_subject(), call.name(), &[cause]));
        }
        let mut object = old.clone();
        set(&mut object, &paths.spec, replicas);
        // Kubernetes gives the number no owner when it is set through here.
        Ok(Proposal { object, managed: true, warnings: Vec::new() })
    };
    let written = write::change(server, &call.resource, &call.key(), writer, propose).await?;
    Ok(Reply::value(scale_of(paths, &written.object)?))
}
