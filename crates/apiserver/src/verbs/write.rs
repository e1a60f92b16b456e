//! The common path of all writes: preparing an object, and the loop that stores it.
//!
//! No lock is held while an object is computed: it is read, the new one is computed from it, and the store
//! accepts it only if the stored version has not changed.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};
use vitistack_schema::{Cause, CauseReason, managed_fields};

use super::validate;
use crate::{
    blocking, metadata,
    registry::Resource,
    request::FieldValidation,
    server::{Call, Server},
    status::Failure,
    store::{Entry, Expect, Key, Write, WriteError, document::Draft},
};

/// The number of attempts of a write when others write the same object.
const ATTEMPTS: usize = 100;

/// The origin and the options of a write.
#[derive(Clone, Debug)]
pub struct Writer {
    /// The field manager.
    pub manager: String,
    /// The subresource, empty for the object itself.
    pub subresource: String,
    /// Whether this is a dry run.
    pub dry_run: bool,
    /// How unknown and duplicate fields are handled.
    pub validation: FieldValidation,
    /// The size of the body.
    pub size: usize,
}

impl Writer {
    /// Returns the writer of a request; `options` is the kind of its options in errors.
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
            size: call.body.len(),
        })
    }

    /// Returns the writer for the server itself, which writes a subresource.
    #[must_use]
    pub fn server(subresource: &str) -> Self {
        Self {
            manager: "kube-apiserver".to_owned(),
            subresource: subresource.to_owned(),
            dry_run: false,
            validation: FieldValidation::Ignore,
            size: 0,
        }
    }
}

/// The result of a write.
#[derive(Debug)]
pub struct Written {
    /// The object.
    pub object: Value,
    /// Its stored bytes, if it was stored.
    pub entry: Option<Entry>,
    /// The texts of `Warning` headers.
    pub warnings: Vec<String>,
    /// Whether it was created.
    pub created: bool,
}

/// Sets `apiVersion` and `kind`.
pub fn set_kind(resource: &Resource, object: &mut Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert("apiVersion".to_owned(), resource.api_version().into());
        members.insert("kind".to_owned(), resource.kind.clone().into());
    }
}

/// Sets the namespace of the path in the object, or rejects a different one. Without one in the path, it is
/// removed.
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

/// Sets defaults. An apply to a custom resource keeps its nulls, because it is not decoded again.
pub fn fill_in(resource: &Resource, object: &mut Value, applied: bool) {
    if applied && resource.kind_rules().is_none() {
        resource.schema().fill(object);
    } else {
        resource.schema().default(object);
    }
}

/// Converts the requested object of an update to the object to store: immutable fields are copied, defaults
/// are set, field managers are recorded, and the generation is incremented. Returns it with warnings about
/// ratcheted errors. `managed` is set if the fields already have managers.
pub fn prepare_update(
    resource: &Resource,
    writer: &Writer,
    mut new: Value,
    old: &Value,
    managed: bool,
    now: Timestamp,
) -> Result<(Value, Vec<String>), Failure> {
    set_kind(resource, &mut new);
    new = restrict(resource, &writer.subresource, new, old);
    metadata::copy_immutable(&mut new, old);
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

    metadata::remove_empty(&mut new);
    if resource.counts_generations() && !differs_only_in_metadata(&new, old, resource.status) {
        let generation = metadata::generation(old) + 1;
        metadata::fields(&mut new).insert("generation".to_owned(), generation.into());
    }

    let ratcheted = validate::validate(resource, &new, Some(old), &writer.subresource)?;
    Ok((new, ratcheted))
}

/// Computes the field ownership after a write that is not an apply.
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

/// Restricts an update to what its subresource may change.
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

/// Whether two objects are equal except for metadata, and except for status where it is a subresource.
fn differs_only_in_metadata(new: &Value, old: &Value, without_status: bool) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return new == old };
    let counts =
        |name: &&String| name.as_str() != "metadata" && !(without_status && name.as_str() == "status");
    new.keys().chain(old.keys()).filter(counts).all(|name| new.get(name) == old.get(name))
}

/// Whether an update changes nothing: the times of managed fields are ignored.
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

/// Whether an object that is being deleted has no finalizers left.
#[must_use]
pub fn released(object: &Value) -> bool {
    let kept_by_spec = object.get("kind") == Some(&json!("Namespace"))
        && object.get("apiVersion") == Some(&json!("v1"))
        && object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    metadata::deleting(object) && metadata::texts(object, "finalizers").is_empty() && !kept_by_spec
}

/// Stores or deletes an object, and returns it with the stored bytes.
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

/// Converts the error of a store.
#[must_use]
pub fn store_failure(error: &WriteError) -> Failure {
    Failure::internal(&error.to_string())
}

/// The result of computing an update: the object to store, whether its fields already have managers, and
/// warnings.
#[derive(Debug)]
pub struct Proposal {
    /// The object.
    pub object: Value,
    /// Whether server-side apply has already set the managers.
    pub managed: bool,
    /// The texts of `Warning` headers.
    pub warnings: Vec<String>,
}

/// Updates a stored object: computes the new object from the stored one, and retries on conflict.
///
/// `check` is called first, with the stored version, and may reject; `propose` computes the new object.
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
        let (new, warnings) = blocking::for_size(writer.size.max(entry.bytes.len()), || {
            let mut proposal = propose(&old)?;
            proposal.warnings.extend(metadata::unique_owners(&mut proposal.object));
            let mut warnings = proposal.warnings;
            let (new, ratcheted) =
                prepare_update(resource, writer, proposal.object, &old, proposal.managed, server.now())
                    .map_err(|failure| failure.after(&warnings))?;
            warnings.extend(ratcheted);
            warnings.extend(metadata::warnings(&new, Some(&old)));
            Ok::<_, Failure>((new, warnings))
        })?;
        let remove = released(&new);
        if !remove && unchanged(&new, &old) {
            return Ok(Written { object: old, entry: Some(entry), warnings, created: false });
        }
        if writer.dry_run {
            return Ok(Written { object: new, entry: None, warnings, created: false });
        }
        // An object that is deleted is not written again: watchers see its last state, the client the
        // requested one.
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

/// Updates a stored object on behalf of the server itself; an object that no longer exists is ignored.
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

/// Returns the stored JSON, if the client accepts it unchanged.
#[must_use]
pub fn as_stored(call: &Call, written: &Written) -> Option<Bytes> {
    let entry = written.entry.as_ref()?;
    let plain = call.accept.form == crate::reply::Form::Object;
    (plain && call.resource.serves_as_stored(&entry.bytes)).then(|| entry.bytes.clone())
}

/// Returns the response to a write.
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
