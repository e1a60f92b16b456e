//! Deleting an object or a collection.

use jiff::Timestamp;
use serde_json::{Value, json};
use vitistack_schema::{Cause, CauseReason};

use super::{
    list::Filter,
    write::{self, released},
};
use crate::{
    kinds::crds,
    metadata::{self, FOREGROUND, ORPHAN},
    registry::Resource,
    reply::Reply,
    server::{Call, Server},
    status::Failure,
    store::{Expect, Key, WriteError},
};

/// The deletion propagation: what happens to the dependents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// As the object's finalizers specify; else they are deleted after it.
    #[default]
    Default,
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
    /// They are orphaned.
    Orphan,
}

/// The options of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What happens to the dependents.
    pub propagation: Propagation,
    /// The UID that the object must have.
    pub uid: Option<String>,
    /// The version that the object must have.
    pub version: Option<String>,
    /// Whether this is a dry run.
    pub dry_run: bool,
}

fn rejected(field: &str, reason: CauseReason, message: String) -> Failure {
    Failure::invalid_options("DeleteOptions", &[Cause { field: field.to_owned(), reason, message }])
}

impl Options {
    fn parse(call: &Call) -> Result<Self, Failure> {
        let body = if call.body.is_empty() {
            json!({})
        } else {
            let decoded = match call.content_type.split(';').next().unwrap_or_default().trim() {
                "application/yaml" => crate::body::yaml(&call.body),
                "application/vnd.kubernetes.protobuf" => crate::protobuf::decode(&call.body)
                    .map(|value| crate::body::Decoded { value, duplicates: Vec::new() }),
                _ => crate::body::json(&call.body),
            };
            let why =
                |why| Failure::bad_request(format!("couldn't get version/kind; json parse error: {why}"));
            decoded.map_err(why)?.value
        };

        let named = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        if !matches!(named("kind"), "" | "DeleteOptions") {
            return Err(Failure::bad_request(format!(
                "no kind \"{}\" is registered for version \"{}\" in scheme \"pkg/runtime/scheme.go:111\"",
                named("kind"),
                named("apiVersion")
            )));
        }

        call.options.number("gracePeriodSeconds")?;
        let policy =
            body.get("propagationPolicy").and_then(Value::as_str).or(call.options.text("propagationPolicy"));
        let orphan =
            body.get("orphanDependents").and_then(Value::as_bool).or(call.options.flag("orphanDependents"));
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let dry_run = match body.get("dryRun").and_then(Value::as_array) {
            Some(list) if list == &[json!("All")] => true,
            Some(list) if !list.is_empty() => {
                let message = format!("Unsupported value: {}: supported values: \"All\"", json!(list));
                return Err(rejected("dryRun", CauseReason::FieldValueNotSupported, message));
            }
            _ => call.options.dry_run("DeleteOptions")?,
        };

        Ok(Self {
            propagation: propagation(policy, orphan)?,
            uid: text("/preconditions/uid"),
            version: text("/preconditions/resourceVersion"),
            dry_run,
        })
    }

    fn check(&self, resource: &Resource, old: &Value) -> Result<(), Failure> {
        let (uid, version) = (metadata::text(old, "uid"), metadata::text(old, "resourceVersion"));
        let conflict =
            |why: String| Err(Failure::conflict(resource.kind_subject(), metadata::text(old, "name"), &why));
        if let Some(given) = self.uid.as_deref().filter(|given| *given != uid) {
            return conflict(format!(
                "the UID in the precondition ({given}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            ));
        }
        if let Some(given) = self.version.as_deref().filter(|given| *given != version) {
            return conflict(format!(
                "the ResourceVersion in the precondition ({given}) does not match the ResourceVersion in record ({version}). The object might have been modified"
            ));
        }
        Ok(())
    }
}

fn propagation(policy: Option<&str>, orphan: Option<bool>) -> Result<Propagation, Failure> {
    let chosen = match policy {
        None => Propagation::Default,
        Some("Background") => Propagation::Background,
        Some("Foreground") => Propagation::Foreground,
        Some("Orphan") => Propagation::Orphan,
        Some(other) => {
            let message = format!(
                "Unsupported value: \"{other}\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
            );
            return Err(rejected("propagationPolicy", CauseReason::FieldValueNotSupported, message));
        }
    };
    match (policy, orphan) {
        (Some(policy), Some(_)) => {
            let message = format!(
                "Invalid value: \"{policy}\": orphanDependents and deletionPropagation cannot be both set"
            );
            Err(rejected("propagationPolicy", CauseReason::FieldValueInvalid, message))
        }
        (None, Some(true)) => Ok(Propagation::Orphan),
        (None, Some(false)) => Ok(Propagation::Background),
        _ => Ok(chosen),
    }
}

/// Returns the object as a deletion leaves it: with a deletion timestamp and the finalizers of its
/// propagation.
fn mark_deleted(resource: &Resource, old: &Value, propagation: Propagation, now: Timestamp) -> Value {
    let mut new = old.clone();
    let finalizers = metadata::texts(old, "finalizers");
    let (foreground, orphan) = match propagation {
        Propagation::Foreground => (true, false),
        Propagation::Orphan => (false, true),
        Propagation::Background => (false, false),
        Propagation::Default => (finalizers.contains(&FOREGROUND), finalizers.contains(&ORPHAN)),
    };

    let mut wanted: Vec<Value> = finalizers
        .iter()
        .filter(|name| **name != FOREGROUND && **name != ORPHAN)
        .map(|name| json!(name))
        .collect();

    wanted.extend(orphan.then(|| json!(ORPHAN)));
    wanted.extend(foreground.then(|| json!(FOREGROUND)));
    let fields = metadata::fields(&mut new);
    fields.insert("finalizers".to_owned(), Value::Array(wanted));
    if !metadata::deleting(old) {
        let generation = metadata::generation(old);
        let fields = metadata::fields(&mut new);
        fields.insert("deletionTimestamp".to_owned(), metadata::time(now).into());
        fields.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
        if generation > 0 && &*resource.storage != crds::STORED_IN {
            fields.insert("generation".to_owned(), (generation + 1).into());
        }
    }

    if &*resource.storage == crds::STORED_IN {
        crds::begin_deletion(&mut new, now);
    }
    if matches!(&*resource.storage, "/namespaces" | crds::STORED_IN) {
        metadata::fields(&mut new).remove("deletionGracePeriodSeconds");
    }

    if &*resource.storage == "/namespaces"
        && let Some(members) = new.as_object_mut()
    {
        let status = members.entry("status").or_insert_with(|| json!({}));
        if let Some(status) = status.as_object_mut() {
            status.insert("phase".to_owned(), json!("Terminating"));
        }
    }

    metadata::remove_empty(&mut new);
    new
}

/// The result of a deletion.
#[derive(Debug)]
pub enum Deleted {
    /// The object was deleted; its last state.
    Gone(Value),
    /// It waits for its finalizers; its current state.
    Waiting(Value),
}

/// Deletes one object.
pub async fn remove(
    server: &Server,
    resource: &Resource,
    key: &Key,
    options: &Options,
) -> Result<Deleted, Failure> {
    loop {
        let Some(entry) = server.store.get(key) else {
            return Err(Failure::not_found(resource.subject(), &key.name));
        };
        let old = resource.read_stored(&entry.bytes);
        options.check(resource, &old)?;
        let new = mark_deleted(resource, &old, options.propagation, server.now());
        let gone = released(&new);
        if options.dry_run {
            return Ok(if gone { Deleted::Gone(old) } else { Deleted::Waiting(new) });
        }
        if !gone && new == old {
            return Ok(Deleted::Waiting(old));
        }
        // Watchers see the last state of the object; a namespace is always marked first.
        let last = if gone && &*resource.storage != "/namespaces" { &old } else { &new };
        match write::store(server, resource, key, Expect::Version(entry.version), last, Some(&old), gone)
            .await
        {
            Ok((object, _)) if gone => return Ok(Deleted::Gone(object)),
            Ok((object, _)) => return Ok(Deleted::Waiting(object)),
            Err(WriteError::Unexpected { .. }) => {}
            Err(error) => return Err(write::store_failure(&error)),
        }
    }
}

/// Deletes the requested object.
pub async fn delete(server: &Server, call: &Call) -> Result<Reply, Failure> {
    let options = Options::parse(call)?;
    let resource = &call.resource;
    if &*resource.storage == "/namespaces" && matches!(call.name(), "default" | "kube-system" | "kube-public")
    {
        let why = "this namespace may not be deleted";
        return Err(Failure::forbidden(resource.subject(), call.name(), why));
    }

    match remove(server, resource, &call.key(), &options).await? {
        Deleted::Waiting(object) => Ok(Reply::value(super::get::shaped(server, call, object))),
        Deleted::Gone(object) if resource.kind_rules().is_some_and(|kind| kind.returns_deleted) => {
            Ok(Reply::value(super::get::shaped(server, call, object)))
        }
        Deleted::Gone(object) => {
            let mut details =
                json!({"name": call.name(), "kind": resource.plural, "uid": metadata::text(&object, "uid")});
            if !resource.group.is_empty()
                && let Some(details) = details.as_object_mut()
            {
                details.insert("group".to_owned(), resource.group.clone().into());
            }
            Ok(Reply::value(json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            })))
        }
    }
}

/// Returns an object as a list shows it: those of built-in kinds have no `apiVersion` and `kind`.
#[must_use]
pub fn listed(call: &Call, mut object: Value) -> Value {
    if let Some(members) = object.as_object_mut().filter(|_| call.resource.kind_rules().is_some()) {
        members.remove("apiVersion");
        members.remove("kind");
    }
    object
}

/// Deletes the objects that a list would return, and responds with their last state.
pub async fn delete_collection(server: &Server, call: &Call) -> Result<Reply, Failure> {
    let options = Options::parse(call)?;
    let filter = Filter::parse(call)?;
    let page = server.store.list(&call.scope(), None, None, None).unwrap_or_default();
    let mut deleted = Vec::new();
    for (_, entry) in page.entries {
        let object = call.resource.read_stored(&entry.bytes);
        if !filter.matches(&object) {
            continue;
        }
        let key = crate::registry::key(&call.resource, &object);
        match remove(server, &call.resource, &key, &options).await {
            Err(failure) if failure.reason == "NotFound" => {}
            Err(failure) => return Err(failure),
            // The stored JSON, which is shared with the store: parsed, a large collection would exhaust the
            // memory.
            Ok(_) => deleted.push(entry.bytes),
        }
    }

    let mut list = json!({"resourceVersion": server.store.version().to_string()});
    if let Some(members) = list.as_object_mut()
        && call.resource.kind_rules().is_none()
    {
        members.insert("continue".to_owned(), json!(""));
    }
    Ok(Reply::bytes(super::list::joined(call, deleted.iter(), &list)))
}

/// Deletes an object immediately, regardless of finalizers, if it still has this version.
pub async fn purge(server: &Server, resource: &Resource, key: &Key, version: u64) {
    let Some(entry) = server.store.get(key).filter(|entry| entry.version == version) else { return };
    let old = resource.read_stored(&entry.bytes);
    let result =
        write::store(server, resource, key, Expect::Version(entry.version), &old, Some(&old), true).await;
    if let Err(error @ WriteError::Fail { .. }) = result {
        tracing::warn!(name = key.name, %error, "failed to remove an object");
    }
}
