//! Updating an object or its status.

use serde_json::Value;
use vitistack_schema::{Cause, CauseReason};

use super::write::{self, Proposal, Writer};
use crate::{
    metadata,
    registry::Resource,
    reply::Reply,
    server::{Call, Server},
    status::Failure,
};

/// Replaces the requested object with the one in the body.
pub async fn update(server: &Server, call: &Call) -> Result<Reply, Failure> {
    let resource = &call.resource;
    let writer = Writer::of(call, "UpdateOptions")?;
    let (mut object, warnings) = super::read(call, &writer)?;
    check_name(call, &object)?;
    metadata::fields(&mut object).insert("name".to_owned(), call.name().into());
    write::set_namespace(&mut object, call.namespace())?;
    let key = call.key();

    if server.store.get(&key).is_none() && resource.create_on_update() && writer.subresource.is_empty() {
        check_uid(resource, &object, &without_uid(&object))?;
        metadata::fields(&mut object).remove("resourceVersion");
        let mut written = super::create::new_object(server, resource, object, &writer)
            .await
            .map_err(|failure| failure.after(&warnings))?;
        written.warnings = warnings;
        return Ok(write::answer(server, call, written));
    }

    let propose = |old: &Value| {
        check_uid(resource, &object, old)?;
        check_version(resource, &object, old)?;
        Ok(Proposal { object: object.clone(), managed: false, warnings: Vec::new() })
    };

    let mut written = write::change(server, resource, &key, &writer, propose)
        .await
        .map_err(|failure| failure.after(&warnings))?;
    written.warnings.splice(..0, warnings);
    Ok(write::answer(server, call, written))
}

/// Returns the 400 response for an object without a name.
pub fn undeterminable(call: &Call) -> Failure {
    Failure::bad_request(format!(
        "the name of the object ({} based on URL) was undeterminable: name must be provided",
        call.name()
    ))
}

/// Checks that the object has the name of the path.
pub fn check_name(call: &Call, object: &Value) -> Result<(), Failure> {
    let name = metadata::text(object, "name");
    if name.is_empty() {
        return Err(undeterminable(call));
    }
    if !name.is_empty() && name != call.name() {
        return Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name()
        )));
    }
    Ok(())
}

/// Rejects an update that was computed from an older version.
pub fn check_version(resource: &Resource, object: &Value, old: &Value) -> Result<(), Failure> {
    let name = metadata::text(old, "name");
    let given = metadata::text(object, "resourceVersion");
    // Version 0 means no version.
    if matches!(given, "" | "0") {
        if resource.unconditional_update() {
            return Ok(());
        }
        let cause = Cause {
            field: "metadata.resourceVersion".to_owned(),
            reason: CauseReason::FieldValueInvalid,
            message: "Invalid value: 0: must be specified for an update".to_owned(),
        };
        return Err(Failure::invalid(resource.subject(), name, &[cause]));
    }

    if given.parse::<u64>().is_err() {
        return Err(Failure::plain(format!("strconv.ParseUint: parsing \"{given}\": invalid syntax")));
    }
    if given != metadata::text(old, "resourceVersion") {
        return Err(Failure::modified(resource.subject(), name));
    }
    Ok(())
}

/// Returns the placeholder for an object that does not exist yet.
fn without_uid(object: &Value) -> Value {
    let mut object = object.clone();
    metadata::fields(&mut object).remove("uid");
    object
}

fn check_uid(resource: &Resource, object: &Value, old: &Value) -> Result<(), Failure> {
    let (given, uid) = (metadata::text(object, "uid"), metadata::text(old, "uid"));
    if !given.is_empty() && given != uid {
        let group = if resource.kind_rules().is_some() { "" } else { resource.group.as_str() };
        let path = [group, &resource.plural, metadata::text(old, "namespace"), metadata::text(old, "name")];
        let path: Vec<&str> = path.into_iter().filter(|part| !part.is_empty()).collect();
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {given}, UID in object meta: {uid}",
            path.join("/")
        );
        return Err(Failure::conflict(resource.subject(), metadata::text(old, "name"), &why));
    }
    Ok(())
}
