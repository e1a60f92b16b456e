//! Reading one object.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::reply::{Form, Reply};
use crate::server::{Call, Server};
use crate::status::Failure;
use crate::store::Entry;
use crate::table::{Include, partial};

/// Answers with one object in the form the client takes.
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

/// One stored object in the form the client takes.
pub fn answer(server: &Server, call: &Call, entry: &Entry) -> Reply {
    if call.accept.form == Form::Object && call.resource.serves_as_stored(&entry.bytes) {
        return Reply::bytes(entry.bytes.clone());
    }
    Reply::value(shaped(server, call, call.resource.read_stored(&entry.bytes)))
}

/// One object in the form the client takes.
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

/// Refuses a word for what a table carries along that is none.
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

/// What of each object a table carries along.
#[must_use]
pub fn include(call: &Call) -> Include {
    match call.options.text("includeObject") {
        Some("None") => Include::None,
        Some("Object") => Include::Object,
        _ => Include::Metadata,
    }
}

/// A stored object as JSON text in the version asked for.
#[must_use]
pub fn text(call: &Call, bytes: &Bytes) -> Bytes {
    if call.resource.serves_as_stored(bytes) {
        return bytes.clone();
    }
    Bytes::from(call.resource.read_stored(bytes).to_string())
}
