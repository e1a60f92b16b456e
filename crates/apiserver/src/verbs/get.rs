//! Reading one object.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    reply::{Form, Reply},
    server::{Call, Server},
    status::Failure,
    store::Entry,
    table::{Include, partial},
};

/// Responds with one object in the negotiated representation.
pub fn get(server: &Server, call: &Call) -> Result<Reply, Failure> {
    check_include(call)?;
    if let Some(asked) = call.options.text("resourceVersion") {
        let asked: u64 = asked.parse().map_err(|_| {
            Failure::plain(format!(
                "resourceVersion: Invalid value: \"{asked}\": strconv.ParseUint: parsing \"{asked}\": invalid syntax"
            ))
        })?;
        let current = server.store.version();
        if asked > current {
            return Err(Failure::version_too_large(asked, current));
        }
    }
    let entry = server.store.get(&call.key()).ok_or_else(|| call.not_found())?;
    Ok(answer(server, call, &entry))
}

/// Returns one stored object in the negotiated representation.
pub fn answer(server: &Server, call: &Call, entry: &Entry) -> Reply {
    if call.accept.form == Form::Object && call.resource.serves_as_stored(&entry.bytes) {
        return Reply::bytes(entry.bytes.clone());
    }
    Reply::value(shaped(server, call, call.resource.read_stored(&entry.bytes)))
}

/// Returns one object in the negotiated representation.
#[must_use]
pub fn shaped(server: &Server, call: &Call, object: Value) -> Value {
    match call.accept.form {
        Form::Object => object,
        Form::Partial => partial(&object),
        Form::Table => {
            let row = call.resource.columns.row(&object, include(call), server.now());
            let version = crate::metadata::text(&object, "resourceVersion");
            call.resource.columns.table(&[row], &json!({"resourceVersion": version}))
        }
    }
}

/// Rejects an unknown value of `includeObject`.
pub fn check_include(call: &Call) -> Result<(), Failure> {
    match call.options.text("includeObject") {
        Some(other)
            if call.accept.form == Form::Table && !matches!(other, "None" | "Object" | "Metadata" | "") =>
        {
            Err(Failure::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: \"{other}\": must be 'Metadata', 'Object', 'None', or empty"
            )))
        }
        _ => Ok(()),
    }
}

/// Returns the part of each object that a table includes.
#[must_use]
pub fn include(call: &Call) -> Include {
    match call.options.text("includeObject") {
        Some("None") => Include::None,
        Some("Object") => Include::Object,
        _ => Include::Metadata,
    }
}

/// Returns a stored object as JSON in the requested version.
#[must_use]
pub fn text(call: &Call, bytes: &Bytes) -> Bytes {
    if call.resource.serves_as_stored(bytes) {
        return bytes.clone();
    }
    Bytes::from(call.resource.read_stored(bytes).to_string())
}
