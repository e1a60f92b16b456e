//! What every write does to an object before it is stored, and the loop that stores it.
//!
//! No lock is held while an object is computed: it is read, the new one is computed from it, and the store takes it only
//! if what was read is still there.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::managed_fields;
use crate::metadata;
use crate::names::NameStyle;
use crate::registry::Resource;
use crate::request::FieldValidation;
use crate::schema::{Cause, CauseReason};
use crate::server::{Call, Server};
use crate::status::Failure;
use crate::store::document::Draft;
use crate::store::{Entry, Expect, Key, Write, WriteError};

/// How often a write is computed again when others write the same object.
const ATTEMPTS: usize = 100;

/// Who writes, and how.
#[derive(Clone, Debug)]
pub struct Writer {
    /// The manager of the fields written.
    pub manager: String,
    /// The subresource written through, empty for the object itself.
    pub subresource: String,
    /// Whether the write is only tried.
    pub dry_run: bool,
    /// How strictly fields are taken.
    pub validation: FieldValidation,
}

impl Writer {
    /// The writer of a request; `options` is the kind its options have in errors.
    pub fn of(call: &Call, options: &str) -> Result<Self, Failure> {
        let manager = call.options.manager(&call.user_agent);
        if manager.len() > 128 {
            let cause = Cause {
                field: "fieldManager".to_owned(),
                reason: CauseReason::FieldValueTooLong,
                message: "Too long: may not be more than 128 bytes".to_owned(),
            };
            return Err(Failure::invalid_options(options, &[cause]));
        }
        if let Some((at, bad)) = manager.char_indices().find(|(_, character)| character.is_control()) {
            let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(bad));
            let cause = Cause::invalid("fieldManager", &json!(manager), &detail);
            return Err(Failure::invalid_options(options, &[cause]));
        }
        Ok(Self {
            manager: manager.to_owned(),
            subresource: call.target.subresource.clone().unwrap_or_default(),
            dry_run: call.options.dry_run(options)?,
            validation: call.options.field_validation(options)?,
        })
    }

    /// The server itself, writing a subresource.
    #[must_use]
    pub fn server(subresource: &str) -> Self {
        Self {
            manager: "kube-apiserver".to_owned(),
            subresource: subresource.to_owned(),
            dry_run: false,
            validation: FieldValidation::Ignore,
        }
    }
}

/// What a write left behind.
#[derive(Debug)]
pub struct Written {
    /// The object.
    pub object: Value,
    /// Its stored bytes, unless it was not stored.
    pub entry: Option<Entry>,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// Whether it did not exist before.
    pub created: bool,
}

/// Refuses or notes fields the schema does not know.
pub fn unknown_fields(
    resource: &Resource,
    validation: FieldValidation,
    doubled: &[String],
    object: &mut Value,
) -> Result<Vec<String>, Failure> {
    let unknown = resource.schema().prune(object);
    let doubled = doubled.iter().map(|path| format!("duplicate field \"{path}\""));
    let findings = doubled.chain(unknown.iter().map(|path| format!("unknown field \"{path}\""))).collect();
    judge_findings(resource, validation, findings)
}

/// Refuses findings, returns them as warnings, or drops them.
pub fn judge_findings(
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
        // Kubernetes fills in what the path says.
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

/// Why an object is not of a built-in kind, in the words of Go's decoder; custom resources are judged elsewhere.
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
    // It is decoded as what it says it is before it is found to be something else.
    let group = match resource.group.as_str() {
        "" => "core",
        group => group.split('.').next().unwrap_or_default(),
    };
    type_problem(&Resource::built_in(known), object).or_else(|| {
        Some(format!("converting ({version}.{kind}) to ({group}.{}): unknown conversion", resource.kind))
    })
}

/// What of a built-in kind has a type it cannot have, in the words of Go's decoder.
pub fn type_problem(resource: &Resource, object: &Value) -> Option<String> {
    resource.kind_rules()?;
    let faults = built_in_faults(resource, object, None);
    let fault = faults.iter().find(|fault| fault.reason == CauseReason::FieldValueTypeInvalid)?;
    Some(undecodable(resource, fault))
}

/// Refuses metadata of types it cannot have.
pub fn check_types(resource: &Resource, object: &Value) -> Result<(), Failure> {
    let built_in = resource.kind_rules().is_some();
    let problem = metadata::type_problem(object, built_in);
    let embedded = || (!built_in).then(|| resource.schema().embedded_type_problem(object)).flatten();
    let Some(why) = problem.or_else(embedded) else { return Ok(()) };
    let (kind, version) = (&resource.kind, &resource.version);
    Err(Failure::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}")))
}

/// Sets the members that say what an object is.
pub fn set_kind(resource: &Resource, object: &mut Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert("apiVersion".to_owned(), resource.api_version().into());
        members.insert("kind".to_owned(), resource.kind.clone().into());
    }
}

/// Puts the namespace of the path into the object, or refuses a different one. Without one in the path it is dropped.
pub fn set_namespace(object: &mut Value, namespace: &str) -> Result<(), Failure> {
    match metadata::text(object, "namespace") {
        given if given == namespace => {}
        _ if namespace.is_empty() => {
            metadata::fields(object).remove("namespace");
        }
        "" => {
            metadata::fields(object).insert("namespace".to_owned(), namespace.into());
        }
        _ => {
            let message =
                "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Failure::bad_request(message));
        }
    }
    Ok(())
}

/// Says what is wrong with an object by the rules of its kind; returns the faults that an update may keep.
pub fn judge(
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    subresource: &str,
) -> Result<Vec<String>, Failure> {
    let mut causes = Vec::new();
    let mut passed = Vec::new();
    match old {
        None => causes.extend(metadata::problems(object, resource.name_style(), resource.namespaced)),
        // Kubernetes judges the metadata of an update twice, once in general and once for the kind, and lists all it found.
        Some(old) => {
            causes.extend(metadata::problems(object, NameStyle::Segment, resource.namespaced));
            causes.extend(metadata::update_problems(object, old));
            causes.extend(metadata::update_problems(object, old));
        }
    }
    match resource.kind_rules() {
        Some(kind) => {
            let faults = built_in_faults(resource, object, old);
            if let Some(fault) =
                faults.iter().find(|fault| fault.reason == CauseReason::FieldValueTypeInvalid)
            {
                let (kind, version, why) = (&resource.kind, &resource.version, undecodable(resource, fault));
                return Err(Failure::bad_request(format!(
                    "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"
                )));
            }
            causes.extend(faults);
            if !matches!(kind.kind, "CustomResourceDefinition" | "Event") {
                let finalizers = metadata::texts(object, "finalizers");
                causes.extend(metadata::unqualified_finalizers("metadata.finalizers", &finalizers));
            }
            causes.extend((kind.validate)(object, old));
        }
        None => causes.extend(custom_faults(resource, object, old, subresource == "status", &mut passed)),
    }
    if causes.is_empty() {
        return Ok(passed);
    }
    Err(Failure::invalid(resource.kind_subject(), metadata::text(object, "name"), &causes).after(&passed))
}

/// What is wrong with a custom resource; `passed` gets the faults that an update may keep.
fn custom_faults(
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    status: bool,
    passed: &mut Vec<String>,
) -> Vec<Cause> {
    let scale = resource.scale.as_ref();
    let mut causes = scale.map(|paths| super::scale::faults(paths, object, status)).unwrap_or_default();
    let verdict = resource.schema().judge(object, old, status);
    causes.extend(verdict.causes);
    passed.extend(verdict.passed.iter().map(ToString::to_string));
    causes
}

/// What the schema of a built-in kind says. Members that Kubernetes prints as null are not there for it.
fn built_in_faults(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut object = object.clone();
    resource.schema().default(&mut object);
    let mut faults = resource.schema().validate(&object, old);
    // A member that Go needs not be told is empty; which may not be is for the rules of the kind.
    faults.retain(|fault| fault.reason != CauseReason::FieldValueRequired);
    faults
}

/// A value of the wrong type is not even an object of its kind.
fn undecodable(resource: &Resource, fault: &Cause) -> String {
    let kind = &resource.kind;
    let (wanted, found) = fault
        .message
        .split_once("must be of type ")
        .and_then(|(_, rest)| rest.split_once(": "))
        .map_or(("", ""), |(wanted, found)| (wanted, found.trim_matches('"')));
    // Go names the member that is a map, not what is inside.
    let field = fault.field.split_once("data.").map_or(fault.field.as_str(), |_| "data");
    if wanted == crate::schema::QUANTITY {
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
        // The members of a spec are those of a Go struct of its own.
        let part = if field.starts_with("spec.") { "Spec" } else { "" };
        format!("json: cannot unmarshal {found} into Go struct field {kind}{part}.{field} of type {wanted}")
    }
}

/// Sets defaults. An apply to a custom resource keeps its nulls, for they are not decoded again.
pub fn fill_in(resource: &Resource, object: &mut Value, applied: bool) {
    if applied && resource.kind_rules().is_none() {
        resource.schema().fill(object);
    } else {
        resource.schema().default(object);
    }
}

/// Turns the object an update asks for into the one to store: what the update may not change is carried over, defaults are
/// set, fields get their manager, the generation counts. With it come warnings of faults that were let pass. `managed` is set when the fields have their managers already.
pub fn settle_update(
    resource: &Resource,
    writer: &Writer,
    mut new: Value,
    old: &Value,
    managed: bool,
    now: Timestamp,
) -> Result<(Value, Vec<String>), Failure> {
    set_kind(resource, &mut new);
    new = restrict(resource, &writer.subresource, new, old);
    metadata::carry_over(&mut new, old);
    fill_in(resource, &mut new, managed);
    if let Some(kind) = resource.kind_rules() {
        (kind.default)(&mut new);
        kind.show(&mut new);
    }
    if !managed {
        own_fields(resource, writer, &mut new, Some(old), now);
    }
    if let Some(kind) = resource.kind_rules()
        && writer.subresource.is_empty()
    {
        (kind.prepare)(&mut new, Some(old));
    }
    metadata::tidy(&mut new);
    if resource.counts_generations() && !same_but(&new, old, resource.status) {
        let generation = metadata::generation(old) + 1;
        metadata::fields(&mut new).insert("generation".to_owned(), generation.into());
    }
    let passed = judge(resource, &new, Some(old), &writer.subresource)?;
    Ok((new, passed))
}

/// Works out who owns which field after a write that is no apply.
pub fn own_fields(
    resource: &Resource,
    writer: &Writer,
    new: &mut Value,
    old: Option<&Value>,
    now: Timestamp,
) {
    let time = metadata::time(now);
    let api_version = resource.api_version();
    let write = managed_fields::Write {
        manager: &writer.manager,
        subresource: &writer.subresource,
        api_version: &api_version,
        time: &time,
    };
    managed_fields::update(old, new, &write, resource.schema());
}

/// Keeps an update inside what its subresource may change.
fn restrict(resource: &Resource, subresource: &str, mut new: Value, old: &Value) -> Value {
    let take = |from: &Value, name: &str, into: &mut Value| {
        if let Some(members) = into.as_object_mut() {
            match from.get(name) {
                Some(value) => members.insert(name.to_owned(), value.clone()),
                None => members.remove(name),
            };
        }
    };
    match subresource {
        "" if resource.status => take(old, "status", &mut new),
        "status" if resource.kind_rules().is_some() => take(old, "spec", &mut new),
        "status" => {
            let mut whole = old.clone();
            take(&new, "status", &mut whole);
            if let Some(fields) = new.pointer("/metadata/managedFields") {
                metadata::fields(&mut whole).insert("managedFields".to_owned(), fields.clone());
            }
            return whole;
        }
        "finalize" => {
            let mut whole = old.clone();
            let finalizers = new.pointer("/spec/finalizers").filter(|list| **list != json!([]));
            if let Some(spec) = whole.get_mut("spec").and_then(Value::as_object_mut) {
                match finalizers {
                    Some(finalizers) => spec.insert("finalizers".to_owned(), finalizers.clone()),
                    None => spec.remove("finalizers"),
                };
            }
            return whole;
        }
        _ => {}
    }
    new
}

/// Whether two objects differ in nothing but metadata, and status where it is apart.
fn same_but(new: &Value, old: &Value, without_status: bool) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return new == old };
    let counts =
        |name: &&String| name.as_str() != "metadata" && !(without_status && name.as_str() == "status");
    new.keys().chain(old.keys()).filter(counts).all(|name| new.get(name) == old.get(name))
}

/// Whether an update changes nothing: the times at which managers wrote do not count.
fn unchanged(new: &Value, old: &Value) -> bool {
    if new == old {
        return true;
    }
    let stripped = |object: &Value| {
        let mut object = object.clone();
        if let Some(fields) = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut) {
            for entry in fields.iter_mut().filter_map(Value::as_object_mut) {
                entry.remove("time");
            }
        }
        metadata::fields(&mut object).remove("resourceVersion");
        object
    };
    stripped(new) == stripped(old)
}

/// Whether nothing keeps an object that is being deleted.
#[must_use]
pub fn released(object: &Value) -> bool {
    let kept_by_spec = object.get("kind") == Some(&json!("Namespace"))
        && object.get("apiVersion") == Some(&json!("v1"))
        && object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    metadata::deleting(object) && metadata::texts(object, "finalizers").is_empty() && !kept_by_spec
}

/// Stores an object, or removes it; the bytes stored are answered with it.
pub async fn store(
    server: &Server,
    resource: &Resource,
    key: &Key,
    expect: Expect,
    object: &Value,
    old: Option<&Value>,
    remove: bool,
) -> Result<(Value, Entry), WriteError> {
    let draft = Draft::new(&resource.to_stored(object));
    let entry = server.store.write(Write { key: key.clone(), expect, draft, remove }).await?;
    let mut object = object.clone();
    metadata::fields(&mut object).insert("resourceVersion".to_owned(), entry.version.to_string().into());
    Box::pin(server.written(resource, old, &object, remove)).await;
    Ok((object, entry))
}

/// The failure of a store.
#[must_use]
pub fn store_failure(error: &WriteError) -> Failure {
    Failure::internal(&error.to_string())
}

/// What an update computes: the object to store, whether its fields have managers already, and warnings.
#[derive(Debug)]
pub struct Proposal {
    /// The object.
    pub object: Value,
    /// Whether server-side apply has set the managers.
    pub managed: bool,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

/// Changes a stored object: computes the new one from the one stored, until no one came between.
///
/// `check` is called first, with the stored version, and may refuse; `propose` computes the new object.
pub async fn change(
    server: &Server,
    resource: &Resource,
    key: &Key,
    writer: &Writer,
    mut propose: impl FnMut(&Value) -> Result<Proposal, Failure> + Send,
) -> Result<Written, Failure> {
    for _ in 0..ATTEMPTS {
        let Some(entry) = server.store.get(key) else {
            return Err(Failure::not_found(resource.subject(), &key.name));
        };
        let old = resource.read_stored(&entry.bytes);
        let mut proposal = propose(&old)?;
        proposal.warnings.extend(metadata::unique_owners(&mut proposal.object));
        let mut warnings = proposal.warnings;
        let (new, passed) =
            settle_update(resource, writer, proposal.object, &old, proposal.managed, server.now())
                .map_err(|failure| failure.after(&warnings))?;
        warnings.extend(passed);
        warnings.extend(metadata::warnings(&new, Some(&old)));
        let remove = released(&new);
        if !remove && unchanged(&new, &old) {
            return Ok(Written { object: old, entry: Some(entry), warnings, created: false });
        }
        if writer.dry_run {
            return Ok(Written { object: new, entry: None, warnings, created: false });
        }
        // An object that goes is not written once more: watchers see it as it was, the client as it would have been.
        let last = if remove { &old } else { &new };
        match store(server, resource, key, Expect::Version(entry.version), last, Some(&old), remove).await {
            Ok(_) if remove => {
                let mut object = new;
                let version = metadata::text(&old, "resourceVersion");
                metadata::fields(&mut object).insert("resourceVersion".to_owned(), version.into());
                return Ok(Written { object, entry: None, warnings, created: false });
            }
            Ok((object, entry)) => {
                return Ok(Written { object, entry: Some(entry), warnings, created: false });
            }
            Err(WriteError::Unexpected { .. }) => {}
            Err(error) => return Err(store_failure(&error)),
        }
    }
    Err(Failure::modified(resource.subject(), &key.name))
}

/// Changes a stored object on behalf of the server itself; an object that is gone is left alone.
pub async fn amend(
    server: &Server,
    resource: &Resource,
    key: &Key,
    subresource: &str,
    amend: impl Fn(&mut Value) + Send + Sync,
) {
    let writer = Writer::server(subresource);
    let propose = |old: &Value| {
        let mut object = old.clone();
        amend(&mut object);
        Ok(Proposal { object, managed: false, warnings: Vec::new() })
    };
    if let Err(failure) = change(server, resource, key, &writer, propose).await
        && failure.reason != "NotFound"
    {
        tracing::warn!(resource = resource.plural, name = key.name, %failure, "failed to amend an object");
    }
}

/// The stored text, if the client takes it as it is.
#[must_use]
pub fn as_stored(call: &Call, written: &Written) -> Option<Bytes> {
    let entry = written.entry.as_ref()?;
    let plain = call.accept.form == crate::reply::Form::Object;
    (plain && call.resource.serves_as_stored(&entry.bytes)).then(|| entry.bytes.clone())
}

/// The answer to a write.
pub fn answer(server: &Server, call: &Call, written: Written) -> crate::reply::Reply {
    let code = if written.created { http::StatusCode::CREATED } else { http::StatusCode::OK };
    let payload = match as_stored(call, &written) {
        Some(bytes) => crate::reply::Payload::Bytes(bytes),
        None => crate::reply::Payload::Value(super::get::shaped(server, call, written.object)),
    };
    let mut reply = crate::reply::Reply::new(code, payload);
    reply.warnings = written.warnings;
    reply
}
