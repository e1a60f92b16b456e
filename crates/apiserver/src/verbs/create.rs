//! Creating an object.

use serde_json::Value;

use super::{
    validate,
    write::{self, Writer, Written},
};
use crate::{
    blocking,
    kinds::reviews,
    metadata,
    registry::{Resource, key},
    reply::{Payload, Reply},
    server::{Call, Server},
    status::Failure,
    store::{Expect, WriteError},
};

/// The number of attempts to generate an unused name.
const GENERATED_NAMES: usize = 8;

/// Creates the object in the body.
pub async fn create(server: &Server, call: &Call) -> Result<Reply, Failure> {
    let resource = &call.resource;
    let writer = Writer::of(call, "CreateOptions")?;
    let (mut object, mut warnings) = super::read(call, &writer)?;
    // Warnings about the object are for accepted objects; those about the body also accompany a rejection.
    let mut later = metadata::warnings(&object, None);
    later.extend(metadata::unique_owners(&mut object));
    write::set_namespace(&mut object, call.namespace())?;
    let mut written =
        new_object(server, resource, object, &writer).await.map_err(|failure| failure.after(&warnings))?;
    warnings.extend(later);
    written.warnings = warnings;
    Ok(write::answer(server, call, written))
}

/// Creates an object on behalf of the server itself.
pub async fn insert(
    server: &Server,
    resource: &Resource,
    object: Value,
    manager: &str,
) -> Result<Written, Failure> {
    let writer = Writer { manager: manager.to_owned(), ..Writer::server("") };
    new_object(server, resource, object, &writer).await
}

/// Creates an object that is decoded and has its namespace.
pub async fn new_object(
    server: &Server,
    resource: &Resource,
    mut object: Value,
    writer: &Writer,
) -> Result<Written, Failure> {
    let given = metadata::text(&object, "name").to_owned();
    if resource.terminating {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(Failure::forbidden(resource.subject(), &given, why));
    }

    let prefix = metadata::text(&object, "generateName").to_owned();
    if resource.namespaced {
        server.check_namespace(resource, &given, metadata::text(&object, "namespace"))?;
    }

    if !metadata::text(&object, "resourceVersion").is_empty() {
        return Err(Failure::plain("resourceVersion should not be set on objects to be created"));
    }
    metadata::fields(&mut object).remove("resourceVersion");
    let generate = given.is_empty() && !prefix.is_empty();

    for _ in 0..GENERATED_NAMES {
        if generate {
            let (random, _) = (server.uids)().as_u64_pair();
            let name = metadata::generated_name(&prefix, random);
            metadata::fields(&mut object).insert("name".to_owned(), name.into());
        }
        let new =
            blocking::for_size(writer.size, || prepare(server, resource, object.clone(), writer, false))?;
        match store_new(server, resource, new, writer).await {
            Err(failure) if generate && failure.reason == "AlreadyExists" => {}
            other => return other,
        }
    }

    let name = metadata::text(&object, "name");
    Err(Failure::already_exists(resource.subject(), name))
}

/// Completes, defaults and validates a new object. `managed` is set if its fields already have managers.
pub fn prepare(
    server: &Server,
    resource: &Resource,
    mut new: Value,
    writer: &Writer,
    managed: bool,
) -> Result<Value, Failure> {
    let now = server.now();
    metadata::set_server_fields(&mut new, &(server.uids)().to_string(), now);
    if resource.status
        && let Some(members) = new.as_object_mut()
    {
        members.remove("status");
    }

    write::fill_in(resource, &mut new, managed);
    if let Some(kind) = resource.kind_rules() {
        (kind.default)(&mut new);
        kind.show(&mut new);
    }

    if !managed {
        write::own_fields(resource, writer, &mut new, None, now);
    }
    if let Some(kind) = resource.kind_rules() {
        (kind.prepare)(&mut new, None);
    }

    if resource.counts_generations() {
        metadata::fields(&mut new).insert("generation".to_owned(), 1.into());
    }
    metadata::remove_empty(&mut new);
    validate::validate(resource, &new, None, "")?;
    Ok(new)
}

/// Stores a new object that is complete.
pub async fn store_new(
    server: &Server,
    resource: &Resource,
    new: Value,
    writer: &Writer,
) -> Result<Written, Failure> {
    let key = key(resource, &new);
    if writer.dry_run {
        if server.store.get(&key).is_some() {
            return Err(Failure::already_exists(resource.subject(), &key.name));
        }
        return Ok(Written { object: new, entry: None, warnings: Vec::new(), created: true });
    }

    match write::store(server, resource, &key, Expect::Absent, &new, None, false).await {
        Ok((object, entry)) => {
            // The namespace may have been deleted since it was checked, together with what was in it then.
            if resource.namespaced
                && let Err(failure) = server.check_namespace(resource, &key.name, &key.namespace)
            {
                super::delete::purge(server, resource, &key, entry.version).await;
                return Err(failure);
            }
            Ok(Written { object, entry: Some(entry), warnings: Vec::new(), created: true })
        }
        Err(WriteError::Unexpected { current: Some(current) })
            if metadata::deleting(&crate::store::document::parse(&current.bytes)) =>
        {
            Err(Failure::being_deleted(resource.subject(), &key.name))
        }
        Err(WriteError::Unexpected { .. }) => Err(Failure::already_exists(resource.subject(), &key.name)),
        Err(error) => Err(write::store_failure(&error)),
    }
}

/// Answers a review, which is never stored.
pub fn review(server: &Server, call: &Call) -> Result<Reply, Failure> {
    let resource = &call.resource;
    let writer = Writer::of(call, "CreateOptions")?;
    let decoded =
        crate::body::object(&resource.kind, resource.kind_rules().is_some(), &call.content_type, &call.body)?;
    let mut object = decoded.value;
    validate::check_kind(resource, &object, &call.body)?;
    write::set_kind(resource, &mut object);
    let warnings = validate::unknown_fields(resource, writer.validation, &decoded.duplicates, &mut object)?;
    write::set_namespace(&mut object, call.namespace())?;
    reviews::check(&resource.kind, &object)?;
    let status = reviews::answer(&resource.kind, &object, |token| (server.is_admin_token)(token));
    metadata::fields(&mut object);

    if let Some(members) = object.as_object_mut() {
        members.insert("status".to_owned(), status);
    }
    if resource.kind == "SelfSubjectReview" {
        let time = metadata::time(server.now());
        metadata::fields(&mut object).insert("creationTimestamp".to_owned(), time.into());
    }

    let mut reply = Reply::new(http::StatusCode::CREATED, Payload::Value(object));
    reply.warnings = warnings;
    Ok(reply)
}
