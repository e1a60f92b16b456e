//! Waits until machines have reached a phase.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use kube::{api::DynamicObject, runtime::watcher};
use serde_json::Value;
use snafu::ResultExt;
use tokio::time::{Instant, timeout_at};
use vitistack_types::Duration;

use super::{Ending, Error};
use crate::{
    cluster::{
        Cluster,
        change::{AwaitDeletedSnafu, AwaitPhaseSnafu},
        in_namespace,
        kinds::Target,
        listing::text,
        watching::{Change, changes},
    },
    commands::WriteOutputSnafu,
    printing::{Console, write_line},
};

/// A machine that has not reached the phase.
struct Waiting {
    target: Target,
    uid: String,
    /// The generation of the change; an older status does not count.
    generation: i64,
    /// The phase that was last seen.
    phase: String,
    /// Whether the list, with which the watch starts, contained it.
    is_listed: bool,
}

/// The machines that are waited for, by namespace and name.
struct Machines {
    phase: &'static str,
    waiting: BTreeMap<(String, String), Waiting>,
}

/// Waits until all machines, as they were changed, have reached a phase. One watch serves all of them.
pub async fn wait(
    cluster: &Cluster,
    targets: Vec<(Target, DynamicObject)>,
    phase: &'static str,
    timeout: Duration,
    console: &mut Console<'_>,
) -> Result<Ending, Error> {
    let deadline = Instant::now() + timeout.get();
    let Some(resource) = targets.first().map(|(target, _)| target.kind.resource.clone()) else {
        return Ok(Ending::Done);
    };
    let mut machines = Machines::new(cluster, targets, phase);
    let (namespace, selection) = machines.selection();
    let mut changes = changes(cluster, &resource, namespace.as_deref(), selection);
    let mut is_started = false;

    while !machines.waiting.is_empty() {
        let Ok(Some(change)) = timeout_at(deadline, changes.next()).await else {
            return Err(machines.timed_out(timeout));
        };
        match change {
            Change::Failed(error) if !is_started => return Err(error.into()),
            Change::Failed(error) => {
                write_line(console.errors, format_args!("vitistack: {error}; retrying"))
                    .context(WriteOutputSnafu)?;
            }
            Change::Restarted => machines.restart(),
            Change::Existing(object) | Change::Changed(object) => machines.observe(&object, console)?,
            Change::InitialListDone => {
                is_started = true;
                machines.check_listed()?;
            }
            Change::Deleted(object) => machines.remove(&object)?,
        }
    }
    Ok(Ending::Done)
}

/// Returns the namespace and the name of an object.
fn key(object: &Value) -> (String, String) {
    (text(object, "/metadata/namespace").to_owned(), text(object, "/metadata/name").to_owned())
}

impl Machines {
    fn new(cluster: &Cluster, changed: Vec<(Target, DynamicObject)>, phase: &'static str) -> Self {
        let waiting = changed.into_iter().map(|(target, object)| {
            let key = (target.namespace(cluster).unwrap_or_default().to_owned(), target.name.clone());
            let waiting = Waiting {
                target,
                uid: object.metadata.uid.unwrap_or_default(),
                generation: object.metadata.generation.unwrap_or_default(),
                phase: String::new(),
                is_listed: false,
            };
            (key, waiting)
        });
        Self { phase, waiting: waiting.collect() }
    }

    /// Returns what to watch: no more than the machines need.
    fn selection(&self) -> (Option<String>, watcher::Config) {
        let namespaces: BTreeSet<&String> = self.waiting.keys().map(|(namespace, _)| namespace).collect();
        let namespace = namespaces.first().filter(|_| namespaces.len() == 1).map(|name| (*name).clone());
        let name = self.waiting.keys().next().filter(|_| self.waiting.len() == 1);
        let selection = match name {
            Some((_, name)) => watcher::Config::default().fields(&format!("metadata.name={name}")),
            None => watcher::Config::default(),
        };
        (namespace, selection)
    }

    /// The watch starts with a new list.
    fn restart(&mut self) {
        for waiting in self.waiting.values_mut() {
            waiting.is_listed = false;
        }
    }

    /// Reports a machine that has reached the phase.
    fn observe(&mut self, object: &Value, console: &mut Console<'_>) -> Result<(), Error> {
        let key = key(object);
        let Some(waiting) = self.waiting.get_mut(&key) else { return Ok(()) };
        if waiting.uid != text(object, "/metadata/uid") {
            return Err(self.deleted(&key));
        }

        waiting.is_listed = true;
        text(object, "/status/phase").clone_into(&mut waiting.phase);
        let observed = object.pointer("/status/observedGeneration").and_then(Value::as_i64);
        if waiting.phase != self.phase || observed < Some(waiting.generation) {
            return Ok(());
        }

        let (title, namespace) = (waiting.target.title(), in_namespace(waiting.target.found_in.as_deref()));
        write_line(console.output, format_args!("{title} reached phase {}{namespace}", self.phase))
            .and_then(|()| console.output.flush())
            .context(WriteOutputSnafu)?;
        self.waiting.remove(&key);
        Ok(())
    }

    /// A machine that is not in the list was deleted before the watch started.
    fn check_listed(&self) -> Result<(), Error> {
        match self.waiting.iter().find(|(_, waiting)| !waiting.is_listed) {
            Some((key, _)) => Err(self.deleted(key)),
            None => Ok(()),
        }
    }

    fn remove(&self, object: &Value) -> Result<(), Error> {
        let key = key(object);
        if self.waiting.contains_key(&key) { Err(self.deleted(&key)) } else { Ok(()) }
    }

    fn deleted(&self, key: &(String, String)) -> Error {
        let target = self.waiting.get(key).map(|waiting| waiting.target.title()).unwrap_or_default();
        AwaitDeletedSnafu { target, phase: self.phase }.build().into()
    }

    fn timed_out(&self, timeout: Duration) -> Error {
        let one = |waiting: &Waiting| {
            let phase = if waiting.phase.is_empty() { "none" } else { &waiting.phase };
            format!(
                "{}{} (phase {phase})",
                waiting.target.title(),
                in_namespace(waiting.target.found_in.as_deref())
            )
        };
        let targets = self.waiting.values().map(one).collect::<Vec<_>>().join(", ");
        let first =
            self.waiting.values().next().map(|waiting| waiting.target.arguments()).unwrap_or_default();
        AwaitPhaseSnafu { timeout, targets, phase: self.phase, first }.build().into()
    }
}
