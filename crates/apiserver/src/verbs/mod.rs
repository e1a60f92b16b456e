//! One file for each verb.

pub mod create;
pub mod delete;
pub mod get;
pub mod list;
pub mod patch;
pub mod scale;
pub mod update;
pub mod watch;
pub mod write;

use serde_json::Value;

use crate::server::Call;
use crate::status::Failure;

/// The object in the body, as its kind has it, and what there is to warn of.
fn read(call: &Call, writer: &write::Writer) -> Result<(Value, Vec<String>), Failure> {
    let resource = &call.resource;
    let decoded =
        crate::body::object(&resource.kind, resource.kind_rules().is_some(), &call.content_type, &call.body)?;
    let mut object = decoded.value;
    write::check_kind(resource, &object, &call.body)?;
    write::check_types(resource, &object)?;
    write::set_kind(resource, &mut object);
    let warnings = write::unknown_fields(resource, writer.validation, &decoded.doubled, &mut object)?;
    Ok((object, warnings))
}
