//! The scale subresource: the replicas of an object in a form that all clients know.

use serde_json::{Value, json};
use vitistack_schema::{Cause, CauseReason, go_type, managed_fields, patch::PatchKind};

use super::write::{self, Proposal, Writer};
use crate::{
    metadata,
    registry::ScalePaths,
    reply::Reply,
    server::{Call, Server},
    status::Failure,
    table,
};

/// Returns the scale of an object.
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

/// Validates the numbers and the selector of a scale; a write of the status ignores the desired number.
pub fn validate(paths: &ScalePaths, object: &Value, status: bool) -> Vec<Cause> {
    let fault = |path: &str, value: &Value, why: &str| Cause::invalid(path, value, why);
    let mut causes = Vec::new();
    for path in [&paths.spec, &paths.status].into_iter().skip(usize::from(status)) {
        match nested(object, path, "int64") {
            Err(why) => causes.push(fault(path, &json!(0), &why)),
            Ok(value) => match value.and_then(Value::as_i64) {
                Some(number) if number < 0 => {
                    causes.push(fault(path, &json!(number), "should be a non-negative integer"));
                }
                Some(number) if number > i64::from(i32::MAX) => {
                    let why = format!("should be less than or equal to {}", i32::MAX);
                    causes.push(fault(path, &json!(number), &why));
                }
                _ => {}
            },
        }
    }

    if let Some(path) = &paths.selector
        && let Err(why) = nested(object, path, "string")
    {
        causes.push(fault(path, &json!(""), &why));
    }
    causes
}

/// Returns the value at a path, if it has the expected Go type.
fn nested<'a>(object: &'a Value, path: &str, wanted: &str) -> Result<Option<&'a Value>, String> {
    let wrong = |upto: &str, value: &Value, wanted: &str| {
        let printed = match value {
            Value::Object(fields) => vitistack_schema::patch::print_map(fields),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Err(format!("{upto} accessor error: {printed} is of the type {}, expected {wanted}", go_type(value)))
    };

    let mut value = object;
    let mut walked = String::new();
    for name in path.split('.').filter(|name| !name.is_empty()) {
        walked.push('.');
        walked.push_str(name);
        match value {
            Value::Null => return Ok(None),
            Value::Object(fields) => match fields.get(name) {
                Some(found) => value = found,
                None => return Ok(None),
            },
            other => return wrong(&walked, other, "map[string]interface{}"),
        }
    }

    if go_type(value) == wanted { Ok(Some(value)) } else { wrong(&walked, value, wanted) }
}

fn paths(call: &Call) -> Result<&ScalePaths, Failure> {
    call.resource.scale.as_ref().ok_or_else(Failure::no_resource)
}

/// Returns the scale.
pub fn get(server: &Server, call: &Call) -> Result<Reply, Failure> {
    let entry = server.store.get(&call.key()).ok_or_else(|| call.not_found())?;
    Ok(Reply::value(scale_of(paths(call)?, &call.resource.read_stored(&entry.bytes))?))
}

/// Sets the number at a path of names.
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

/// Replaces the scale with the one in the body.
pub async fn update(server: &Server, call: &Call) -> Result<Reply, Failure> {
    let scale = crate::body::object("Scale", false, &call.content_type, &call.body)?.value;
    if scale.get("kind") != Some(&json!("Scale")) {
        let why = "no kind is registered for the type v1.Scale in scheme \"pkg/runtime/scheme.go:111\"";
        return Err(Failure::bad_request(why));
    }
    super::update::check_name(call, &scale)?;
    let writer = Writer::of(call, "UpdateOptions")?;
    change(server, call, &writer, |_| Ok(scale.clone())).await
}

/// Returns the object that is applied to the scale.
fn applied(call: &Call) -> Result<Value, Failure> {
    let decoded = crate::body::yaml(&call.body);
    decoded
        .map(|decoded| decoded.value)
        .map_err(|why| Failure::bad_request(format!("error decoding YAML: {why}")))
}

/// Applies the patch in the body to the scale.
pub async fn patch(server: &Server, call: &Call) -> Result<Reply, Failure> {
    let writer = Writer::of(call, "PatchOptions")?;
    let kind = PatchKind::from_content_type(&call.content_type);
    if kind == Some(PatchKind::Apply) {
        super::patch::check_type(&applied(call)?, "autoscaling/v1", "Scale")?;
        // Kubernetes does not support applying the scale of a custom resource.
        return Err(Failure::plain(format!(
            "failed to convert new object ({}/{}; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an invalid group/version: autoscaling/v1",
            call.namespace(),
            call.name()
        )));
    }

    let json = kind == Some(PatchKind::Json);
    change(server, call, &writer, |current| {
        let patched = if json {
            vitistack_schema::patch::json(current, &call.body)
        } else {
            vitistack_schema::patch::merge(current, &call.body)
        };
        patched.map_err(|error| super::patch::patch_failure(&error))
    })
    .await
}

/// Whether any manager owns the field at a path.
fn owned(object: &Value, path: &str) -> bool {
    let managers = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    managers.into_iter().flatten().any(|manager| {
        let names = path.split('.').filter(|name| !name.is_empty());
        let mut fields = names.map(|name| format!("f:{name}"));
        fields.try_fold(manager.get("fieldsV1"), |at, field| at.map(|at| at.get(field))).flatten().is_some()
    })
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
            // A scale may be set where it is absent.
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
        if !owned(old, &paths.spec) {
            return Ok(Proposal { object, managed: true, warnings: Vec::new() });
        }
        // The ownership of a number that has an owner is updated, but without the time.
        let api_version = call.resource.api_version();
        let write = managed_fields::Write {
            manager: &writer.manager,
            subresource: &writer.subresource,
            api_version: &api_version,
            time: "",
        };
        managed_fields::update(Some(old), &mut object, &write, call.resource.schema());
        Ok(Proposal { object, managed: true, warnings: Vec::new() })
    };

    let written = write::change(server, &call.resource, &call.key(), writer, propose).await?;
    Ok(Reply::value(scale_of(paths, &written.object)?))
}
