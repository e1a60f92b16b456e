//! Changing an object by a patch.

use serde_json::Value;

use super::write::{self, Proposal, Writer, Written};
use crate::managed_fields;
use crate::metadata;
use crate::patch::{self, PatchError, PatchKind};
use crate::registry::Resource;
use crate::reply::Reply;
use crate::request::FieldValidation;
use crate::schema::Cause;
use crate::server::{Call, Server};
use crate::status::{Failure, Subject};

/// The content types of patches for custom resources.
const CUSTOM_TYPES: &str =
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

/// Changes the object named by the patch in the body.
pub async fn patch(server: &Server, call: &Call) -> Result<Reply, Failure> {
    let built_in = call.resource.kind_rules().is_some();
    let kind = PatchKind::from_content_type(&call.content_type);
    let Some(kind) = kind.filter(|kind| built_in || *kind != PatchKind::Strategic) else {
        return Err(if built_in {
            Failure::unroutable_media_type()
        } else {
            Failure::unsupported_media_type(CUSTOM_TYPES)
        });
    };
    check_options(call, kind)?;
    let writer = Writer::of(call, "PatchOptions")?;
    let written = if kind == PatchKind::Apply {
        apply(server, call, &writer).await?
    } else {
        let propose = |old: &Value| propose(call, kind, &writer, old);
        write::change(server, &call.resource, &call.key(), &writer, propose).await?
    };
    Ok(write::answer(server, call, written))
}

fn check_options(call: &Call, kind: PatchKind) -> Result<(), Failure> {
    let refuse = |cause: Cause| Err(Failure::invalid_options("PatchOptions", &[cause]));
    if kind == PatchKind::Apply && call.options.text("fieldManager").is_none() {
        return refuse(Cause::required("fieldManager", "is required for apply patch"));
    }
    if kind != PatchKind::Apply && call.options.flag("force").is_some() {
        return refuse(Cause::forbidden("force", "may not be specified for non-apply patch"));
    }
    Ok(())
}

fn propose(call: &Call, kind: PatchKind, writer: &Writer, old: &Value) -> Result<Proposal, Failure> {
    let resource = &call.resource;
    let prefix = if kind == PatchKind::Strategic { "" } else { "error decoding patch: " };
    let decoded =
        crate::body::json(&call.body).map_err(|why| Failure::bad_request(format!("{prefix}{why}")))?;
    if kind == PatchKind::Json && !decoded.value.is_array() {
        let found = metadata::type_name(&decoded.value);
        return Err(Failure::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp"
        )));
    }
    let patched = match kind {
        PatchKind::Json => patch::json(old, &call.body),
        PatchKind::Strategic => patch::strategic(old, &call.body, resource.schema()),
        PatchKind::Merge | PatchKind::Apply => patch::merge(old, &call.body),
    };
    let mut object = patched.map_err(|error| patch_failure(&error))?;
    // Go prints the patch where it was merged by its types, and the object that came out otherwise.
    let text = match (kind, &decoded.value) {
        (PatchKind::Strategic, Value::Object(patch)) => patch::print_map(patch),
        _ => object.to_string(),
    };
    let refuse = |why: &str| {
        let cause = Cause::invalid("patch", &Value::String(text.clone()), why);
        Failure::invalid(Subject { group: "", name: "" }, "", &[cause])
    };
    if let Some(why) = write::kind_problem(resource, &object) {
        return Err(refuse(&why));
    }
    check_patched(call, &object, old)?;
    write::set_namespace(&mut object, call.namespace())?;
    if let Some(why) = metadata::type_problem(&object, resource.kind_rules().is_some())
        .or_else(|| write::type_problem(resource, &object))
    {
        // What is merged by Go types is also converted by them, in other words.
        let converted = kind == PatchKind::Strategic && why.starts_with("json: cannot unmarshal array");
        return Err(refuse(if converted { "unrecognized type: string" } else { &why }));
    }
    let doubled = if kind == PatchKind::Json { Vec::new() } else { decoded.doubled };
    let strict = writer.validation == FieldValidation::Strict;
    let lenient = if strict { FieldValidation::Warn } else { writer.validation };
    let mut warnings = write::unknown_fields(resource, lenient, &doubled, &mut object)?;
    if kind == PatchKind::Json && lenient != FieldValidation::Ignore {
        warnings.splice(..0, unknown_operation_fields(&decoded.value));
    }
    if strict && !warnings.is_empty() {
        return Err(refuse(&format!("strict decoding error: {}", warnings.join(", "))));
    }
    Ok(Proposal { object, managed: false, warnings })
}

/// Members of JSON patch operations that none has.
fn unknown_operation_fields(operations: &Value) -> Vec<String> {
    let operations = operations.as_array().into_iter().flatten().enumerate();
    let members = operations.flat_map(|(index, operation)| {
        operation.as_object().into_iter().flatten().map(move |(name, _)| (index, name))
    });
    let unknown = members.filter(|(_, name)| !["op", "path", "from", "value"].contains(&name.as_str()));
    unknown.map(|(index, name)| format!("json patch unknown field \"[{index}].{name}\"")).collect()
}

/// The failure of a patch.
#[must_use]
pub fn patch_failure(error: &PatchError) -> Failure {
    match error {
        PatchError::DecodePatch { message } => Failure::bad_request(message.clone()),
        PatchError::CountOperations { .. } => {
            Failure::too_large_because(format!("Request entity too large: {error}"))
        }
        PatchError::ApplyPatch { .. } => Failure::rejected(),
        PatchError::MatchPatch { message } => Failure::plain(message.clone()),
    }
}

/// A patch may change neither what the object is nor its name, and only the version it was made from.
fn check_patched(call: &Call, object: &Value, old: &Value) -> Result<(), Failure> {
    let resource = &call.resource;
    let given = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if resource.kind_rules().is_none() && given != resource.api_version() {
        let value = Value::from(given);
        let cause = Cause::invalid("apiVersion", &value, &format!("must be {}", resource.api_version()));
        let group = given.split_once('/').map_or("", |(group, _)| group);
        return Err(Failure::invalid(Subject { group, name: &resource.kind }, call.name(), &[cause]));
    }
    write::check_kind(resource, object, &call.body)?;
    super::update::check_name(call, object)?;
    let given = metadata::text(object, "resourceVersion");
    if !given.is_empty() && given != metadata::text(old, "resourceVersion") {
        return Err(Failure::modified(call.resource.subject(), call.name()));
    }
    Ok(())
}

async fn apply(server: &Server, call: &Call, writer: &Writer) -> Result<Written, Failure> {
    let resource = &call.resource;
    let decoded = crate::body::yaml(&call.body)
        .map_err(|why| Failure::bad_request(format!("error decoding YAML: {why}")))?;
    let mut applied = decoded.value;
    if !applied.is_object() {
        return Err(Failure::bad_request("error decoding YAML: the body is not an object"));
    }
    check_applied(call, &applied)?;
    let warnings = doubled_fields(resource, writer.validation, &decoded.doubled)?;
    managed_fields::check_applied(&applied, resource.schema())
        .map_err(|why| untyped(call, &applied, &why))?;
    metadata::fields(&mut applied);
    write::set_namespace(&mut applied, call.namespace())?;
    reset(resource, &writer.subresource, &mut applied);
    let force = call.options.flag("force") == Some(true);
    loop {
        let exists = server.store.get(&call.key()).is_some();
        let outcome = if exists {
            let propose = |old: &Value| {
                let given = metadata::text(&applied, "resourceVersion");
                if !given.is_empty() && given != metadata::text(old, "resourceVersion") {
                    return Err(Failure::modified(resource.subject(), call.name()));
                }
                let object = merged(server, resource, writer, Some(old), &applied, force)?;
                Ok(Proposal { object, managed: true, warnings: Vec::new() })
            };
            write::change(server, resource, &call.key(), writer, propose).await
        } else {
            create_applied(server, call, writer, &applied, force).await
        };
        match outcome {
            // It came or went between the look and the write: look again.
            Err(failure) if exists && failure.reason == "NotFound" && writer.subresource.is_empty() => {}
            Err(failure) if !exists && failure.reason == "AlreadyExists" => {}
            Err(failure) => return Err(failure),
            Ok(mut written) => {
                written.warnings = warnings;
                return Ok(written);
            }
        }
    }
}

/// Refuses or notes doubled fields; unknown ones are never applied.
fn doubled_fields(
    resource: &Resource,
    validation: FieldValidation,
    doubled: &[String],
) -> Result<Vec<String>, Failure> {
    write::judge_findings(
        resource,
        validation,
        doubled.iter().map(|path| format!("duplicate field \"{path}\"")).collect(),
    )
}

fn untyped(call: &Call, applied: &Value, why: &str) -> Failure {
    let resource = &call.resource;
    Failure::plain(format!(
        "failed to create typed patch object ({}/{}; {}/{}, Kind={}): {why}",
        metadata::text(applied, "namespace"),
        metadata::text(applied, "name"),
        resource.group,
        resource.version,
        resource.kind
    ))
}

fn check_applied(call: &Call, applied: &Value) -> Result<(), Failure> {
    let member = |name: &str| applied.get(name).and_then(Value::as_str).unwrap_or_default();
    let resource = &call.resource;
    let (api_version, kind) = (member("apiVersion"), member("kind"));
    if api_version != resource.api_version() || kind != resource.kind {
        let slash = if api_version.contains('/') { "" } else { "/" };
        return Err(Failure::bad_request(format!("invalid object type: {slash}{api_version}, Kind={kind}")));
    }
    if applied.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    let name = metadata::text(applied, "name");
    if !name.is_empty() && name != call.name() {
        return Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name()
        )));
    }
    Ok(())
}

/// Takes out what this endpoint does not change, so that no one comes to own it by applying it here.
fn reset(resource: &Resource, subresource: &str, applied: &mut Value) {
    let Some(members) = applied.as_object_mut() else { return };
    match subresource {
        "status" => {
            members.retain(|name, _| matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
        }
        _ if resource.status => {
            members.remove("status");
        }
        _ => {}
    }
    if subresource == "status" {
        metadata::fields(applied)
            .retain(|name, _| matches!(name.as_str(), "name" | "namespace" | "uid" | "resourceVersion"));
    }
}

fn merged(
    server: &Server,
    resource: &Resource,
    writer: &Writer,
    live: Option<&Value>,
    applied: &Value,
    force: bool,
) -> Result<Value, Failure> {
    let time = metadata::time(server.now());
    let api_version = resource.api_version();
    let write = managed_fields::Write {
        manager: &writer.manager,
        subresource: &writer.subresource,
        api_version: &api_version,
        time: &time,
    };
    managed_fields::apply(live, applied, &write, force, resource.schema())
        .map_err(|conflicts| Failure::field_conflicts(&conflicts))
}

/// An apply of an object that is not there creates it.
async fn create_applied(
    server: &Server,
    call: &Call,
    writer: &Writer,
    applied: &Value,
    force: bool,
) -> Result<Written, Failure> {
    let resource = &call.resource;
    if !writer.subresource.is_empty() {
        return Err(call.not_found());
    }
    if resource.namespaced {
        server.check_namespace(resource, call.name(), call.namespace())?;
    }
    if metadata::text(applied, "name").is_empty() {
        return Err(super::update::undeterminable(call));
    }
    if !metadata::text(applied, "uid").is_empty() {
        return Err(call.not_found());
    }
    let mut object = merged(server, resource, writer, None, applied, force)?;
    metadata::fields(&mut object).remove("resourceVersion");
    let writer = Writer { validation: FieldValidation::Ignore, ..writer.clone() };
    let new = super::create::settle(server, resource, object, &writer, true)?;
    super::create::insert_settled(server, resource, new, &writer).await
}
