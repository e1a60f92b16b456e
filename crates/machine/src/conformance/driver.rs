//! The operations on a testbed that the checks share.

use std::fmt::Debug;

use futures::{StreamExt, TryStreamExt, stream};
use snafu::ResultExt;
use vitistack_plan::machine::{Observed, ObservedMachine};

use super::{BreakRuleSnafu, CallBackendSnafu, Failure, Fault, Harness, Resource, ResourceKind, Testbed};
use crate::{BackendError, Order, Part, Progress, Target, Update};

/// The number of attempts after which an operation counts as never ending.
const ROUNDS: usize = 10;

/// Drives one testbed.
pub(super) struct Driver {
    pub(super) testbed: Box<dyn Testbed>,
}

/// The number of testbeds in use at a time, because a real provider is slow.
pub(super) const CONCURRENCY: usize = 6;

/// Runs a trial for each item, a few at a time, each on its own testbed.
pub(super) async fn each<Item, Trial>(
    items: impl IntoIterator<Item = Item, IntoIter: Send>,
    trial: impl FnMut(Item) -> Trial + Send,
) -> Result<(), Failure>
where
    Trial: Future<Output = Result<(), Failure>> + Send,
{
    stream::iter(items).map(trial).buffered(CONCURRENCY).try_collect().await
}

/// Fails with this message unless the condition holds.
pub(super) fn ensure(holds: bool, found: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { BreakRuleSnafu { found: found() }.fail() }
}

/// Fails unless the values are equal.
pub(super) fn ensure_same<Value: PartialEq + Debug>(
    what: &str,
    found: &Value,
    expected: &Value,
) -> Result<(), Failure> {
    ensure(found == expected, || format!("{what}: expected {expected:?}, found {found:?}"))
}

impl Driver {
    pub(super) async fn start(harness: &dyn Harness) -> Result<Self, Failure> {
        Ok(Self { testbed: harness.testbed().await? })
    }

    pub(super) async fn inject(&self, fault: Fault) -> Result<(), Failure> {
        self.testbed.inject(&fault).await
    }

    pub(super) async fn settle(&self) -> Result<(), Failure> {
        self.testbed.settle().await
    }

    pub(super) async fn resources(&self) -> Result<Vec<Resource>, Failure> {
        self.testbed.resources().await
    }

    /// Returns what carries the identity of the target.
    pub(super) async fn resources_of(&self, target: &Target) -> Result<Vec<Resource>, Failure> {
        let mut resources = self.resources().await?;
        resources.retain(|resource| resource.identity.as_ref() == Some(&target.identity));
        resources.sort_by(|one, other| (one.kind, &one.disk).cmp(&(other.kind, &other.disk)));
        Ok(resources)
    }

    pub(super) async fn machines_of(&self, target: &Target) -> Result<Vec<Resource>, Failure> {
        let mut resources = self.resources_of(target).await?;
        resources.retain(|resource| resource.kind == ResourceKind::Machine);
        Ok(resources)
    }

    /// Returns the names of the disks whose volumes carry the identity of the target.
    pub(super) async fn disks_of(&self, target: &Target) -> Result<Vec<String>, Failure> {
        let resources = self.resources_of(target).await?;
        Ok(resources.into_iter().filter_map(|resource| resource.disk).collect())
    }

    pub(super) async fn observe(&self, order: &Order) -> Result<Observed, Failure> {
        let observed = self.testbed.backend().observe(&order.target, Some(order)).await;
        observed.context(CallBackendSnafu { action: "observe" })
    }

    /// Returns the observed machine; fails if there is none.
    pub(super) async fn machine(&self, order: &Order) -> Result<ObservedMachine, Failure> {
        let observed = self.observe(order).await?;
        observed
            .machine
            .ok_or_else(|| BreakRuleSnafu { found: "the machine was created and is not observed" }.build())
    }

    pub(super) async fn try_create(&self, order: &Order) -> Result<Progress, BackendError> {
        self.testbed.backend().create(order).await
    }

    pub(super) async fn try_update(&self, order: &Order, update: &Update) -> Result<Progress, BackendError> {
        self.testbed.backend().update(order, update).await
    }

    pub(super) async fn try_delete(&self, target: &Target, part: &Part) -> Result<Progress, BackendError> {
        self.testbed.backend().delete(target, part).await
    }

    /// Creates the machine and waits until it is done.
    pub(super) async fn create(&self, order: &Order) -> Result<(), Failure> {
        for _ in 0..ROUNDS {
            let progress = self.try_create(order).await.context(CallBackendSnafu { action: "create" })?;
            self.settle().await?;
            let observed = self.observe(order).await?;
            if progress == Progress::Done && observed.machine.is_some() && observed.task.is_none() {
                return Ok(());
            }
        }
        BreakRuleSnafu { found: "create was called repeatedly and did not create a machine" }.fail()
    }

    /// Updates the machine and waits until it is done.
    pub(super) async fn update(&self, order: &Order, update: &Update) -> Result<(), Failure> {
        for _ in 0..ROUNDS {
            let progress = self
                .try_update(order, update)
                .await
                .with_context(|_| CallBackendSnafu { action: format!("update ({update:?})") })?;
            self.settle().await?;
            if progress == Progress::Done {
                return Ok(());
            }
        }
        BreakRuleSnafu { found: format!("{update:?} was requested repeatedly and is not done") }.fail()
    }

    /// Deletes a part and waits until it is done.
    pub(super) async fn delete(&self, target: &Target, part: &Part) -> Result<(), Failure> {
        for _ in 0..ROUNDS {
            let progress = self
                .try_delete(target, part)
                .await
                .with_context(|_| CallBackendSnafu { action: format!("delete ({part:?})") })?;
            self.settle().await?;
            if progress == Progress::Done {
                return Ok(());
            }
        }
        BreakRuleSnafu { found: format!("the deletion of {part:?} was requested repeatedly and is not done") }
            .fail()
    }

    /// Fails unless there is exactly one machine with this identity, and one volume for each disk of the order.
    pub(super) async fn ensure_one(&self, order: &Order) -> Result<(), Failure> {
        let machines = self.machines_of(&order.target).await?;
        ensure(machines.len() == 1, || {
            format!("expected one machine with the identity, found {}: {machines:?}", machines.len())
        })?;
        let mut expected: Vec<String> = order.desired.disks.iter().map(|disk| disk.name.clone()).collect();
        expected.sort();
        ensure_same("disks whose volumes carry the identity", &self.disks_of(&order.target).await?, &expected)
    }
}

/// Returns every kind of update.
pub(super) fn updates() -> [Update; 4] {
    let restart = Update::Restart { request: "2026-01-01T00:00:00Z".to_owned() };
    [Update::Specification, Update::Start, Update::Stop, restart]
}

/// Returns the deletions that remove a machine of the suite completely.
pub(super) fn deletions() -> [Part; 2] {
    [Part::Machine, Part::Disks(vec!["root".to_owned(), "data".to_owned()])]
}
