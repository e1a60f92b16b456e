//! Many Machines that are created, watched and deleted like a user would.

use std::{collections::BTreeSet, time::Duration};

use futures::StreamExt as _;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams},
    runtime::watcher::{self, watcher},
};
use snafu::{ResultExt, Whatever, whatever};
use vitistack_types::{ObjectReference, conditions, v1alpha1::Machine};

use super::load::CLIENTS;

/// The maximum time for one step; reached only if something is broken.
const LIMIT: Duration = Duration::from_mins(20);

/// The Machines of the namespace `default`.
pub struct Crowd {
    machines: Api<Machine>,
    provider: Option<&'static str>,
}

impl Crowd {
    /// Creates a handle for Machines with this provider, or without one.
    pub fn new(client: &Client, provider: Option<&'static str>) -> Self {
        Self { machines: Api::default_namespaced(client.clone()), provider }
    }

    /// Creates `count` Machines concurrently.
    pub async fn create(&self, count: usize) -> Result<(), Whatever> {
        let mut creates = futures::stream::iter(0..count)
            .map(|number| async move { self.create_one(&format!("vm-{number}")).await })
            .buffer_unordered(CLIENTS);
        while let Some(created) = creates.next().await {
            created?;
        }
        Ok(())
    }

    /// Creates one Machine.
    pub async fn create_one(&self, name: &str) -> Result<(), Whatever> {
        let provider = self.provider.map(|name| ObjectReference { name: name.to_owned(), namespace: None });
        let machine = Machine::builder().template("small").maybe_provider_ref(provider);
        let machine = machine.build(name, "default").whatever_context("failed to build a machine")?;
        let created = self.machines.create(&PostParams::default(), &machine).await;
        created.map(drop).whatever_context("failed to create a machine")
    }

    /// Requests the deletion of all Machines.
    pub async fn delete(&self) -> Result<(), Whatever> {
        let deleted = self.machines.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
        deleted.map(drop).whatever_context("failed to delete the machines")
    }

    /// Waits until exactly `count` Machines match.
    pub async fn until(&self, count: usize, matches: impl Fn(&Machine) -> bool) -> Result<(), Whatever> {
        let mut events = watcher(self.machines.clone(), watcher::Config::default()).boxed();
        let (mut matching, mut is_listed) = (BTreeSet::new(), false);
        let deadline = tokio::time::Instant::now() + LIMIT;
        while !is_listed || matching.len() != count {
            let event = match tokio::time::timeout_at(deadline, events.next()).await {
                Ok(Some(event)) => event.whatever_context("failed to watch the machines")?,
                _ => whatever!("{} of {count} machines after {} s", matching.len(), LIMIT.as_secs()),
            };
            match event {
                watcher::Event::Init => matching.clear(),
                watcher::Event::InitDone => is_listed = true,
                watcher::Event::InitApply(machine) | watcher::Event::Apply(machine) => {
                    if matches(&machine) {
                        matching.insert(machine.name_any());
                    } else {
                        matching.remove(&machine.name_any());
                    }
                }
                watcher::Event::Delete(machine) => {
                    matching.remove(&machine.name_any());
                }
            }
        }
        Ok(())
    }
}

/// Returns whether a Machine is Ready.
pub fn is_ready(machine: &Machine) -> bool {
    machine.status.as_ref().is_some_and(|status| conditions::is_true(&status.conditions, conditions::READY))
}
