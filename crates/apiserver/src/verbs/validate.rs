//! The validation of an object: its kind, the types of its fields, unknown fields, and the rules of its kind.

use serde_json::Value;
use vitistack_schema::{Cause, CauseReason};

use crate::{
    blocking, metadata, names::NameStyle, registry::Resource, request::FieldValidation, status::Failure,
    store::document,
};

/// The maximum number of fields that a response reports, as in Kubernetes.
const MAX_FINDINGS: usize = 100;

/// Rejects unknown fields or returns warnings about them.
pub fn unknown_fields(
    resource: &Resource,
    validation: FieldValidation,
    duplicates: &[String],
    object: &mut Value,
) -> Result<Vec<String>, Failure> {
    let unknown = resource.schema().prune(object);
    let duplicates = duplicates.iter().map(|path| format!("duplicate field \"{path}\""));
    let unknown = unknown.iter().map(|path| format!("unknown field \"{path}\""));
    reject_or_warn(resource, validation, duplicates.chain(unknown).take(MAX_FINDINGS).collect())
}

/// Rejects findings, returns them as warnings, or drops them.
pub fn reject_or_warn(
    resource: &Resource,
    validation: FieldValidation,
    findings: Vec<String>,
) -> Result<Vec<String>, Failure> {
    if validation == FieldValidation::Ignore {
        return Ok(Vec::new());
    }
    if validation == FieldValidation::Strict && !findings.is_empty() {
        return Err(Failure::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: strict decoding error: {findings}",
            kind = resource.kind,
            version = resource.version,
            findings = findings.join(", "),
        )));
    }

    Ok(findings)
}

/// Checks that an object is of the resource's kind and version.
pub fn check_kind(resource: &Resource, object: &Value, body: &[u8]) -> Result<(), Failure> {
    let member = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (member("apiVersion"), member("kind"));
    let built_in = resource.kind_rules().is_some();
    if built_in && (kind.is_empty() || api_version.is_empty()) {
        // Kubernetes fills in what the path implies.
        return Ok(());
    }

    if kind.is_empty() {
        let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(body));
        return Err(crate::body::unrecognized(&resource.kind, &why, body));
    }

    if let Some(why) = kind_problem(resource, object) {
        let version = api_version.rsplit('/').next().unwrap_or_default();
        let handled = format!("{kind} in version \"{version}\" cannot be handled as a {}", resource.kind);
        return Err(Failure::bad_request(format!("{handled}: {why}")));
    }

    if api_version != resource.api_version() {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            resource.api_version()
        )));
    }

    if kind != resource.kind {
        let subject = crate::status::Subject { group: &resource.group, name: kind };
        let cause = Cause {
            field: "kind".to_owned(),
            reason: CauseReason::FieldValueInvalid,
            message: format!("Invalid value: \"{kind}\": must be {}", resource.kind),
        };
        return Err(Failure::invalid(subject, metadata::text(object, "name"), &[cause]));
    }

    Ok(())
}

/// Returns why an object is not of a built-in kind, worded as Go's decoder does; custom resources are
/// validated elsewhere.
pub fn kind_problem(resource: &Resource, object: &Value) -> Option<String> {
    resource.kind_rules()?;
    let member = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (member("apiVersion"), member("kind"));
    if kind.is_empty()
        || api_version.is_empty()
        || (api_version == resource.api_version() && kind == resource.kind)
    {
        return None;
    }

    let version = api_version.rsplit('/').next().unwrap_or_default();
    let Some(known) = crate::kinds::all().find(|known| known.kind == kind && known.stored_as == api_version)
    else {
        return Some(format!(
            "no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"pkg/runtime/scheme.go:111\""
        ));
    };

    // The object is decoded as its own kind before the mismatch is found.
    let group = match resource.group.as_str() {
        "" => "core",
        group => group.split('.').next().unwrap_or_default(),
    };

    type_problem(&Resource::built_in(known), object).or_else(|| {
        Some(format!("converting ({version}.{kind}) to ({group}.{}): unknown conversion", resource.kind))
    })
}

/// Returns the first field of a built-in kind with a wrong type, worded as Go's decoder does.
pub fn type_problem(resource: &Resource, object: &Value) -> Option<String> {
    resource.kind_rules()?;
    let errors = built_in_causes(resource, object, None);
    let error = errors.iter().find(|error| error.reason == CauseReason::FieldValueTypeInvalid)?;
    Some(decoding_error(resource, error))
}

/// Rejects metadata with wrong types.
pub fn check_types(resource: &Resource, object: &Value) -> Result<(), Failure> {
    let built_in = resource.kind_rules().is_some();
    let mut problem = metadata::type_problem(object, built_in);
    if problem.is_none() && !built_in {
        let custom = |embedded: &Value| metadata::type_problem(embedded, false);
        problem = resource.schema().embedded_type_problem(object, custom);
    }
    let Some(why) = problem else { return Ok(()) };

    let (kind, version) = (&resource.kind, &resource.version);
    Err(Failure::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}")))
}

/// Validates an object by the rules of its kind; returns the errors that an update may keep.
pub fn validate(
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    subresource: &str,
) -> Result<Vec<String>, Failure> {
    if !document::is_readable(object) {
        let name = metadata::text(object, "name");
        return Err(Failure::too_deep(resource.kind_subject(), name, document::MAX_DEPTH));
    }

    let mut causes = Vec::new();
    let mut ratcheted = Vec::new();
    match old {
        None => causes.extend(metadata::problems(object, resource.name_style(), resource.namespaced)),
        // Kubernetes validates the metadata of an update twice, in general and for the kind, and reports all
        // errors.
        Some(old) => {
            causes.extend(metadata::problems(object, NameStyle::Segment, resource.namespaced));
            causes.extend(metadata::update_problems(object, old));
            causes.extend(metadata::update_problems(object, old));
        }
    }

    match resource.kind_rules() {
        Some(kind) => {
            let errors = built_in_causes(resource, object, old);
            if let Some(error) =
                errors.iter().find(|error| error.reason == CauseReason::FieldValueTypeInvalid)
            {
                let (kind, version, why) =
                    (&resource.kind, &resource.version, decoding_error(resource, error));
                return Err(Failure::bad_request(format!(
                    "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"
                )));
            }
            causes.extend(errors);
            if !matches!(kind.kind, "CustomResourceDefinition" | "Event") {
                let finalizers = metadata::texts(object, "finalizers");
                causes.extend(metadata::unqualified_finalizers("metadata.finalizers", &finalizers));
            }
            causes.extend((kind.validate)(object, old));
        }
        None => causes.extend(custom_causes(resource, object, old, subresource == "status", &mut ratcheted)),
    }

    if causes.is_empty() {
        return Ok(ratcheted);
    }
    Err(Failure::invalid(resource.kind_subject(), metadata::text(object, "name"), &causes).after(&ratcheted))
}

/// Validates a custom resource; the errors that an update may keep are added to `ratcheted`.
fn custom_causes(
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    status: bool,
    ratcheted: &mut Vec<String>,
) -> Vec<Cause> {
    let scale = resource.scale.as_ref();
    let mut causes = scale.map(|paths| super::scale::validate(paths, object, status)).unwrap_or_default();
    let schema = resource.schema();
    let validation = schema
        .validate_quickly(object, old, status)
        .unwrap_or_else(|| blocking::run(|| schema.validate_write(object, old, status)));
    causes.extend(validation.causes);
    ratcheted.extend(validation.ratcheted.iter().map(ToString::to_string));
    causes
}

/// Validates a built-in kind by its schema. Fields that Kubernetes prints as null count as absent.
fn built_in_causes(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut object = object.clone();
    resource.schema().default(&mut object);
    let mut errors = resource.schema().validate(&object, old);
    // In Go an absent field is empty; the rules of the kind decide which ones are required.
    errors.retain(|error| error.reason != CauseReason::FieldValueRequired);
    errors
}

/// Formats the error of a value with the wrong type as Go's decoder does.
fn decoding_error(resource: &Resource, error: &Cause) -> String {
    let kind = &resource.kind;
    let (wanted, found) = error
        .message
        .split_once("must be of type ")
        .and_then(|(_, rest)| rest.split_once(": "))
        .map_or(("", ""), |(wanted, found)| (wanted, found.trim_matches('"')));

    // Go names the field that is a map, not the key inside it.
    let field = error.field.split_once("data.").map_or(error.field.as_str(), |_| "data");
    if wanted == vitistack_schema::QUANTITY {
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            .to_owned()
    } else if wanted == "byte" && found.parse::<f64>().is_err() {
        let alphabet = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        let at = found.bytes().position(|byte| !alphabet(byte)).unwrap_or(found.len() / 4 * 4);
        format!("illegal base64 data at input byte {at}")
    } else {
        let found = match found {
            "integer" => "number",
            "boolean" => "bool",
            digits if digits.parse::<f64>().is_ok() || digits == "int64" => "number",
            other => other,
        };
        let wanted = match wanted {
            "byte" => "[]uint8",
            "integer" => "int32",
            "boolean" => "bool",
            "object" if field == "data" && kind != "Secret" => "map[string]string",
            "object" if matches!(field, "data" | "binaryData") => "map[string][]uint8",
            other => other,
        };
        // The fields of a spec belong to a separate Go struct.
        let part = if field.starts_with("spec.") { "Spec" } else { "" };
        format!("json: cannot unmarshal {found} into Go struct field {kind}{part}.{field} of type {wanted}")
    }
}
