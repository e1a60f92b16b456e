//! A bench with words for what the rules do again and again.

use std::fmt::Debug;

use futures::{StreamExt, TryStreamExt, stream};
use snafu::ResultExt;
use vitistack_plan::machine::{Observed, ObservedMachine};

use super::{Bench, BreakRuleSnafu, CallBackendSnafu, Failure, Fault, Harness, Thing, ThingKind};
use crate::{BackendError, Order, Part, Progress, Target, Update};

/// Rounds after which something that should come to an end is taken not to.
const ROUNDS: usize = 10;

/// One bench in use.
pub(super) struct Scene {
    pub(super) bench: Box<dyn Bench>,
}

/// How many benches are at work at a time: a real provider takes its time with each.
pub(super) const AT_A_TIME: usize = 6;

/// Tries something with each of them, a few at a time: each on a bench of its own.
pub(super) async fn each<Item, Trial>(
    items: impl IntoIterator<Item = Item, IntoIter: Send>,
    trial: impl FnMut(Item) -> Trial + Send,
) -> Result<(), Failure>
where
    Trial: Future<Output = Result<(), Failure>> + Send,
{
    stream::iter(items).map(trial).buffered(AT_A_TIME).try_collect().await
}

/// Fails with this text unless it is so.
pub(super) fn ensure(is_so: bool, found: impl FnOnce() -> String) -> Result<(), Failure> {
    if is_so { Ok(()) } else { BreakRuleSnafu { found: found() }.fail() }
}

/// Fails unless the two are equal.
pub(super) fn ensure_same<Value: PartialEq + Debug>(
    what: &str,
    found: &Value,
    wanted: &Value,
) -> Result<(), Failure> {
    ensure(found == wanted, || format!("{what}: found {found:?}, wanted {wanted:?}"))
}

impl Scene {
    pub(super) async fn fresh(harness: &dyn Harness) -> Result<Self, Failure> {
        Ok(Self { bench: harness.fresh().await? })
    }

    pub(super) async fn inject(&self, fault: Fault) -> Result<(), Failure> {
        self.bench.inject(&fault).await
    }

    pub(super) async fn settle(&self) -> Result<(), Failure> {
        self.bench.settle().await
    }

    pub(super) async fn things(&self) -> Result<Vec<Thing>, Failure> {
        self.bench.things().await
    }

    /// What carries the target's identity.
    pub(super) async fn things_of(&self, target: &Target) -> Result<Vec<Thing>, Failure> {
        let mut things = self.things().await?;
        things.retain(|thing| thing.identity.as_ref() == Some(&target.identity));
        things.sort_by(|one, other| (one.kind, &one.disk).cmp(&(other.kind, &other.disk)));
        Ok(things)
    }

    pub(super) async fn machines_of(&self, target: &Target) -> Result<Vec<Thing>, Failure> {
        let mut things = self.things_of(target).await?;
        things.retain(|thing| thing.kind == ThingKind::Machine);
        Ok(things)
    }

    /// Names of the disks whose volumes carry the target's identity.
    pub(super) async fn disks_of(&self, target: &Target) -> Result<Vec<String>, Failure> {
        let things = self.things_of(target).await?;
        Ok(things.into_iter().filter_map(|thing| thing.disk).collect())
    }

    pub(super) async fn observe(&self, order: &Order) -> Result<Observed, Failure> {
        let observed = self.bench.backend().observe(&order.target, Some(order)).await;
        observed.context(CallBackendSnafu { action: "observe" })
    }

    /// The machine as it is observed; there has to be one.
    pub(super) async fn machine(&self, order: &Order) -> Result<ObservedMachine, Failure> {
        let observed = self.observe(order).await?;
        observed
            .machine
            .ok_or_else(|| BreakRuleSnafu { found: "the machine was made and is not observed" }.build())
    }

    pub(super) async fn try_create(&self, order: &Order) -> Result<Progress, BackendError> {
        self.bench.backend().create(order).await
    }

    pub(super) async fn try_update(&self, order: &Order, update: &Update) -> Result<Progress, BackendError> {
        self.bench.backend().update(order, update).await
    }

    pub(super) async fn try_delete(&self, target: &Target, part: &Part) -> Result<Progress, BackendError> {
        self.bench.backend().delete(target, part).await
    }

    /// Creates the machine and waits until all is done.
    pub(super) async fn make(&self, order: &Order) -> Result<(), Failure> {
        for _ in 0..ROUNDS {
            let progress = self.try_create(order).await.context(CallBackendSnafu { action: "create" })?;
            self.settle().await?;
            let observed = self.observe(order).await?;
            if progress == Progress::Done && observed.machine.is_some() && observed.task.is_none() {
                return Ok(());
            }
        }
        BreakRuleSnafu { found: "create was called again and again and there is still no machine" }.fail()
    }

    /// Updates the machine and waits until all is done.
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
        BreakRuleSnafu { found: format!("{update:?} was asked again and again and is still not done") }.fail()
    }

    /// Deletes a part and waits until it is gone.
    pub(super) async fn remove(&self, target: &Target, part: &Part) -> Result<(), Failure> {
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
        BreakRuleSnafu {
            found: format!("the deletion of {part:?} was asked again and again and is still not done"),
        }
        .fail()
    }

    /// Fails unless there is one machine of this identity, and one volume for each disk of the order.
    pub(super) async fn ensure_one(&self, order: &Order) -> Result<(), Failure> {
        let machines = self.machines_of(&order.target).await?;
        ensure(machines.len() == 1, || {
            format!("{} machines carry one identity, wanted one: {machines:?}", machines.len())
        })?;
        let mut wanted: Vec<String> = order.desired.disks.iter().map(|disk| disk.name.clone()).collect();
        wanted.sort();
        ensure_same("disks whose volumes carry the identity", &self.disks_of(&order.target).await?, &wanted)
    }
}

/// Every update there is.
pub(super) fn updates() -> [Update; 4] {
    let restart = Update::Restart { request: "2026-01-01T00:00:00Z".to_owned() };
    [Update::Specification, Update::Start, Update::Stop, restart]
}

/// Every deletion of a machine of the suite.
pub(super) fn deletions() -> [Part; 2] {
    [Part::Machine, Part::Disks(vec!["root".to_owned(), "data".to_owned()])]
}
