//! The verbs, one file each.

pub mod create;
pub mod delete;
pub mod get;
pub mod list;
pub mod patch;
pub mod scale;
pub mod update;
mod validate;
pub mod watch;
pub mod write;

use serde_json::Value;

use crate::{server::Call, status::Failure};

/// Returns the object in the body, defaulted by its kind, and warnings.
fn read(call: &Call, writer: &write::Writer) -> Result<(Value, Vec<String>), Failure> {
    crate::blocking::for_size(writer.size, || decode(call, writer))
}

fn decode(call: &Call, writer: &write::Writer) -> Result<(Value, Vec<String>), Failure> {
    let resource = &call.resource;
    let decoded =
        crate::body::object(&resource.kind, resource.kind_rules().is_some(), &call.content_type, &call.body)?;
    let mut object = decoded.value;
    validate::check_kind(resource, &object, &call.body)?;
    validate::check_types(resource, &object)?;
    write::set_kind(resource, &mut object);
    let warnings = validate::unknown_fields(resource, writer.validation, &decoded.duplicates, &mut object)?;
    Ok((object, warnings))
}
