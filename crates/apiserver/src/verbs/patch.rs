//! Patching an object.

use serde_json::Value;
use vitistack_schema::{
    Cause, managed_fields,
    patch::{self, PatchError, PatchKind},
};

use super::{
    validate,
    write::{self, Proposal, Writer, Written},
};
use crate::{
    metadata,
    registry::Resource,
    reply::Reply,
    request::FieldValidation,
    server::{Call, Server},
    status::{Failure, Subject},
};

/// The content types of patches for custom resources.
const CUSTOM_TYPES: &str =
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

/// Applies the patch in the body to the requested object.
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
    let reject = |cause: Cause| Err(Failure::invalid_options("PatchOptions", &[cause]));
    if kind == PatchKind::Apply && call.options.text("fieldManager").is_none() {
        return reject(Cause::required("fieldManager", "is required for apply patch"));
    }
    if kind != PatchKind::Apply && call.options.flag("force").is_some() {
        return reject(Cause::forbidden("force", "may not be specified for non-apply patch"));
    }
    Ok(())
}

fn propose(call: &Call, kind: PatchKind, writer: &Writer, old: &Value) -> Result<Proposal, Failure> {
    let resource = &call.resource;
    let prefix = if kind == PatchKind::Strategic { "" } else { "error decoding patch: " };
    let decoded =
        crate::body::json(&call.body).map_err(|why| Failure::bad_request(format!("{prefix}{why}")))?;
    if kind == PatchKind::Json && !decoded.value.is_array() {
        let found = vitistack_schema::json_type(&decoded.value);
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
    // Go prints the patch if it was merged by type, and the patched object otherwise.
    let text = match (kind, &decoded.value) {
        (PatchKind::Strategic, Value::Object(patch)) => patch::print_map(patch),
        _ => object.to_string(),
    };

    let reject = |why: &str| {
        let cause = Cause::invalid("patch", &Value::String(text.clone()), why);
        Failure::invalid(Subject { group: "", name: "" }, "", &[cause])
    };

    if let Some(why) = validate::kind_problem(resource, &object) {
        return Err(reject(&why));
    }
    check_patched(call, &object, old)?;
    write::set_namespace(&mut object, call.namespace())?;

    if let Some(why) = metadata::type_problem(&object, resource.kind_rules().is_some())
        .or_else(|| validate::type_problem(resource, &object))
    {
        // A patch that is merged by Go types is also converted by them, with a different message.
        let converted = kind == PatchKind::Strategic && why.starts_with("json: cannot unmarshal array");
        return Err(reject(if converted { "unrecognized type: string" } else { &why }));
    }

    let duplicates = if kind == PatchKind::Json { Vec::new() } else { decoded.duplicates };
    let strict = writer.validation == FieldValidation::Strict;
    let lenient = if strict { FieldValidation::Warn } else { writer.validation };
    let mut warnings = validate::unknown_fields(resource, lenient, &duplicates, &mut object)?;
    if kind == PatchKind::Json && lenient != FieldValidation::Ignore {
        warnings.splice(..0, unknown_operation_fields(&decoded.value));
    }

    if strict && !warnings.is_empty() {
        return Err(reject(&format!("strict decoding error: {}", warnings.join(", "))));
    }
    Ok(Proposal { object, managed: false, warnings })
}

/// Returns unknown members of JSON patch operations.
fn unknown_operation_fields(operations: &Value) -> Vec<String> {
    let operations = operations.as_array().into_iter().flatten().enumerate();
    let members = operations.flat_map(|(index, operation)| {
        operation.as_object().into_iter().flatten().map(move |(name, _)| (index, name))
    });
    let unknown = members.filter(|(_, name)| !["op", "path", "from", "value"].contains(&name.as_str()));
    unknown.map(|(index, name)| format!("json patch unknown field \"[{index}].{name}\"")).collect()
}

/// Converts the error of a patch.
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

/// Checks that a patch changes neither the type nor the name, and that its resourceVersion is current.
fn check_patched(call: &Call, object: &Value, old: &Value) -> Result<(), Failure> {
    let resource = &call.resource;
    let given = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if resource.kind_rules().is_none() && given != resource.api_version() {
        let value = Value::from(given);
        let cause = Cause::invalid("apiVersion", &value, &format!("must be {}", resource.api_version()));
        let group = given.split_once('/').map_or("", |(group, _)| group);
        return Err(Failure::invalid(Subject { group, name: &resource.kind }, call.name(), &[cause]));
    }

    validate::check_kind(resource, object, &call.body)?;
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
    let warnings = duplicate_fields(resource, writer.validation, &decoded.duplicates)?;
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
            // The object was created or deleted in between: retry.
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

/// Rejects duplicate fields or returns warnings about them; unknown fields are never applied.
fn duplicate_fields(
    resource: &Resource,
    validation: FieldValidation,
    duplicates: &[String],
) -> Result<Vec<String>, Failure> {
    validate::reject_or_warn(
        resource,
        validation,
        duplicates.iter().map(|path| format!("duplicate field \"{path}\"")).collect(),
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

/// Checks the type of an object that is applied.
pub fn check_type(applied: &Value, api_version: &str, kind: &str) -> Result<(), Failure> {
    let member = |name: &str| applied.get(name).and_then(Value::as_str).unwrap_or_default();
    let (given_version, given_kind) = (member("apiVersion"), member("kind"));
    if given_version == api_version && given_kind == kind {
        return Ok(());
    }
    let slash = if given_version.contains('/') { "" } else { "/" };
    Err(Failure::bad_request(format!("invalid object type: {slash}{given_version}, Kind={given_kind}")))
}

fn check_applied(call: &Call, applied: &Value) -> Result<(), Failure> {
    let resource = &call.resource;
    check_type(applied, &resource.api_version(), &resource.kind)?;
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

/// Removes the fields that this endpoint does not write, so that applying them here does not change their
/// owner.
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

/// Creates an object that is applied and does not exist.
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
    let new = super::create::prepare(server, resource, object, &writer, true)?;
    super::create::store_new(server, resource, new, &writer).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_the_status_code_of_its_error() {
        let message = || "why".to_owned();
        let errors = [
            PatchError::DecodePatch { message: message() },
            PatchError::CountOperations { count: 1 },
            PatchError::ApplyPatch { message: message() },
            PatchError::MatchPatch { message: message() },
        ];
        for error in errors {
            assert_eq!(patch_failure(&error).code.as_u16(), error.status_code(), "{error:?}");
        }
    }
}
