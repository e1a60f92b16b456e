//! Watching objects.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt};
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, interval_at, sleep_until};

use super::list::{Filter, check_version_options};
use crate::{
    reply::{Form, Payload, Reply},
    server::{Call, Server},
    status::Failure,
    store::{Entry, Event, Start, Subscription},
};

/// The duration of a watch without a timeout.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(40);

/// The maximum duration of a watch, whatever the client asks for.
const MAX_TIMEOUT: Duration = Duration::from_hours(24);

/// Converts changes of the store to the lines of one watch.
struct Lines {
    server: Arc<Server>,
    call: Call,
    filter: Filter,
    columns_sent: bool,
}

impl Lines {
    fn line(&mut self, kind: &str, bytes: &Bytes, version: Option<u64>) -> Bytes {
        let object = match self.call.accept.form {
            Form::Object => super::get::text(&self.call, bytes),
            _ => Bytes::from(self.shaped(bytes, version).to_string()),
        };
        let mut line = Vec::with_capacity(object.len() + 32);
        line.extend_from_slice(b"{\"type\":\"");
        line.extend_from_slice(kind.as_bytes());
        line.extend_from_slice(b"\",\"object\":");
        line.extend_from_slice(&object);
        line.extend_from_slice(b"}\n");
        Bytes::from(line)
    }

    fn shaped(&mut self, bytes: &Bytes, version: Option<u64>) -> Value {
        let object = self.call.resource.read_stored(bytes);
        let mut shaped = super::get::shaped(&self.server, &self.call, object);
        if self.call.accept.form == Form::Table
            && let Some(members) = shaped.as_object_mut()
        {
            // Only the first line has column definitions.
            if std::mem::replace(&mut self.columns_sent, true) {
                members.insert("columnDefinitions".to_owned(), Value::Null);
            }
            if let Some(version) = version {
                members.insert("metadata".to_owned(), json!({"resourceVersion": version.to_string()}));
            }
        }
        shaped
    }

    fn added(&mut self, entry: &Entry) -> Option<Bytes> {
        let taken =
            self.filter.is_empty() || self.filter.matches(&self.call.resource.read_stored(&entry.bytes));
        taken.then(|| self.line("ADDED", &entry.bytes, Some(entry.version)))
    }

    /// Returns the line of a change, if this watch sees it: an object that no longer matches is deleted for
    /// it, one that starts to match is added.
    fn changed(&mut self, event: &Event) -> Option<Bytes> {
        let (before, after) = if self.filter.is_empty() {
            (event.previous.is_some(), !event.removed)
        } else {
            let fits = |value: &Value| self.filter.matches(value);
            (event.parsed_previous().is_some_and(fits), !event.removed && fits(event.parsed()))
        };

        let kind = match (before, after) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };

        if kind == "DELETED" && !event.removed {
            // An object that no longer matches is shown as it last matched, with the version of the change.
            let mut last = event.parsed_previous().cloned().unwrap_or_default();
            crate::metadata::fields(&mut last)
                .insert("resourceVersion".to_owned(), event.version.to_string().into());
            return Some(self.line(kind, &Bytes::from(last.to_string()), Some(event.version)));
        }
        Some(self.line(kind, &event.object, Some(event.version)))
    }

    fn bookmark(&mut self, version: u64, initial_end: bool) -> Bytes {
        let resource = &self.call.resource;
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if initial_end && let Some(members) = metadata.as_object_mut() {
            members.insert("annotations".to_owned(), json!({"k8s.io/initial-events-end": "true"}));
        }

        let object = match self.call.accept.form {
            Form::Object => {
                let mut empty = json!({"kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata});
                if let Some(kind) = resource.kind_rules() {
                    kind.show(&mut empty);
                }
                empty
            }
            Form::Partial => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Form::Table => {
                let row = json!({"cells": [], "object": {
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}});
                let mut table =
                    resource.columns.table(&[row], &json!({"resourceVersion": version.to_string()}));
                if let Some(members) = table.as_object_mut()
                    && std::mem::replace(&mut self.columns_sent, true)
                {
                    members.insert("columnDefinitions".to_owned(), Value::Null);
                }
                table
            }
        };

        Bytes::from(format!("{}\n", json!({"type": "BOOKMARK", "object": object})))
    }
}

fn error_line(failure: &Failure) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": "ERROR", "object": failure.to_value()})))
}

/// Starts a watch.
pub fn watch(server: &Arc<Server>, call: &Call) -> Result<Reply, Failure> {
    check_version_options(call, true)?;
    let filter = Filter::parse(call)?;
    let asked = call.options.text("resourceVersion").unwrap_or("0");
    let asked: u64 = asked.parse().map_err(|_| {
        Failure::plain(format!(
            "resourceVersion: Invalid value: \"{asked}\": strconv.ParseUint: parsing \"{asked}\": invalid syntax"
        ))
    })?;

    let initial = call.options.flag("sendInitialEvents");
    let bookmarks = call.options.flag("allowWatchBookmarks") == Some(true);
    if initial == Some(true) && !bookmarks {
        // Accepted, but nothing marks the end of the initial objects then.
        tracing::debug!("a watch asks for initial events without bookmarks");
    }

    let seconds = call.options.number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok());
    let timeout = seconds.filter(|seconds| *seconds > 0).map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    let timeout = timeout.min(MAX_TIMEOUT);
    let start = match initial {
        Some(true) => Start::Objects,
        Some(false) if asked == 0 => Start::After(server.store.version()),
        _ if asked == 0 => Start::Objects,
        _ => Start::After(asked),
    };

    let subscription = match server.store.watch(&call.scope(), start) {
        Ok(subscription) => subscription,
        Err(compacted) => {
            let message = format!("too old resource version: {} ({})", compacted.asked, compacted.oldest);
            let line = error_line(&Failure::expired(message));
            return Ok(Reply::new(http::StatusCode::OK, Payload::Stream(Body::from(line))));
        }
    };

    let lines = Lines { server: Arc::clone(server), call: copy(call), filter, columns_sent: false };
    let stream = follow(lines, subscription, bookmarks, initial == Some(true), timeout);
    Ok(Reply::new(http::StatusCode::OK, Payload::Stream(Body::from_stream(stream))))
}

fn copy(call: &Call) -> Call {
    Call {
        target: call.target.clone(),
        resource: Arc::clone(&call.resource),
        options: call.options.clone(),
        accept: call.accept,
        content_type: String::new(),
        user_agent: String::new(),
        body: Bytes::new(),
    }
}

struct Following {
    lines: Lines,
    subscription: Subscription,
    deadline: Instant,
    bookmarks: Option<Interval>,
    /// The last version that was sent to the client.
    sent_version: u64,
}

fn follow(
    mut lines: Lines,
    mut subscription: Subscription,
    bookmarks: bool,
    initial: bool,
    timeout: Duration,
) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> {
    let objects = std::mem::take(&mut subscription.objects);
    let backlog = std::mem::take(&mut subscription.backlog);
    let every = lines.server.bookmarks_every;
    let mut first: Vec<Bytes> = objects.iter().filter_map(|entry| lines.added(entry)).collect();
    first.extend(backlog.iter().filter_map(|event| lines.changed(event)));

    if initial && bookmarks {
        first.push(lines.bookmark(subscription.version, true));
    }
    let following = Following {
        sent_version: subscription.version,
        lines,
        subscription,
        deadline: Instant::now() + timeout,
        bookmarks: bookmarks.then(|| interval_at(Instant::now() + every, every)),
    };

    let changes = stream::unfold(following, |mut following| async move {
        let chunk = following.next().await?;
        Some((chunk, following))
    });
    stream::iter(joined(first)).chain(changes).map(Ok)
}

/// Lines that are sent together share one chunk.
fn joined(lines: Vec<Bytes>) -> Option<Bytes> {
    if lines.is_empty() {
        return None;
    }
    let mut chunk = Vec::with_capacity(lines.iter().map(Bytes::len).sum());
    for line in lines {
        chunk.extend_from_slice(&line);
    }
    Some(Bytes::from(chunk))
}

impl Following {
    /// Returns the next lines; `None` when the watch has ended.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let bookmark = async {
                match &mut self.bookmarks {
                    Some(interval) => interval.tick().await,
                    None => std::future::pending().await,
                }
            };
            let mut lines = Vec::new();
            tokio::select! {
                event = self.subscription.changes.recv() => {
                    let event = event?;
                    self.take(&event, &mut lines);
                    self.take_waiting(&mut lines);
                }
                _ = bookmark => {
                    // Every change up to this version is already in the queue, because the store sends under
                    // its lock.
                    let version = self.lines.server.store.version();
                    self.take_waiting(&mut lines);
                    let version = version.max(self.sent_version);
                    lines.push(self.lines.bookmark(version, false));
                }
                () = sleep_until(self.deadline) => return None,
            }
            if let Some(chunk) = joined(lines) {
                return Some(chunk);
            }
        }
    }

    fn take(&mut self, event: &Event, lines: &mut Vec<Bytes>) {
        self.sent_version = event.version;
        lines.extend(self.lines.changed(event));
    }

    fn take_waiting(&mut self, lines: &mut Vec<Bytes>) {
        while let Some(event) = self.subscription.changes.try_recv() {
            self.take(&event, lines);
        }
    }
}
