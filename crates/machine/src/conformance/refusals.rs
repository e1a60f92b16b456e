//! Rules about what must not happen: changes by observe or while the provider is unreachable, and printed secrets.

use vitistack_plan::{
    Redacted,
    machine::{DesiredCloudInit, SecretPart},
};

use super::{
    Failure, Fault, Harness,
    driver::{Driver, deletions, ensure, ensure_same, updates},
    fixture::order,
};
use crate::{BackendError, ErrorKind, Order, Progress};

pub(super) async fn observe_changes_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let existing = order("one")?;
    let mut changed = existing.clone();
    changed.desired.cpu.cores += 1;
    changed.desired.disks.pop();

    check_observe(&driver, "nothing", &[&existing]).await?;
    driver.create(&existing).await?;
    check_observe(&driver, "a machine", &[&existing, &changed]).await?;
    driver.delete(&existing.target, &crate::Part::Machine).await?;
    check_observe(&driver, "volumes", &[&existing, &changed]).await?;

    let blocked = order("two")?;
    driver.inject(Fault::ForeignMachine(blocked.target.clone())).await?;
    check_observe(&driver, "a foreign machine", &[&blocked]).await
}

/// Observes with and without an order, and compares the resources before and after.
async fn check_observe(driver: &Driver, what: &str, orders: &[&Order]) -> Result<(), Failure> {
    let before = driver.resources().await?;
    for order in orders {
        let first = driver.observe(order).await?;
        let second = driver.observe(order).await?;
        ensure_same(&format!("a second observation of {what}"), &second, &first)?;
        let bare = driver.testbed.backend().observe(&order.target, None).await;
        ensure(bare.is_ok(), || format!("failed to observe {what} without an order: {bare:?}"))?;
    }
    driver.settle().await?;
    ensure_same(&format!("resources after observing {what}"), &driver.resources().await?, &before)
}

pub(super) async fn unreachable_is_reported(harness: &dyn Harness) -> Result<(), Failure> {
    check_reported(harness, Fault::Unreachable, ErrorKind::Unreachable).await
}

pub(super) async fn unauthenticated_is_reported(harness: &dyn Harness) -> Result<(), Failure> {
    check_reported(harness, Fault::Unauthenticated, ErrorKind::Unauthenticated).await
}

async fn check_reported(
    harness: &dyn Harness,
    fault: fn(bool) -> Fault,
    expected: ErrorKind,
) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let (existing, missing) = (order("one")?, order("two")?);
    let mut changed = existing.clone();
    changed.desired.memory = super::fixture::parse("2Gi")?;
    driver.create(&existing).await?;
    let before = driver.resources().await?;
    driver.inject(fault(true)).await?;

    let mut answers =
        vec![("observe", driver.testbed.backend().observe(&existing.target, Some(&existing)).await.err())];
    answers.push(("create", driver.try_create(&missing).await.err()));
    for update in updates() {
        answers.push(("update", driver.try_update(&changed, &update).await.err()));
    }
    for part in deletions() {
        answers.push(("delete", driver.try_delete(&existing.target, &part).await.err()));
    }
    for (call, error) in answers {
        let kind = error.as_ref().map(|error| error.kind);
        ensure(kind == Some(expected), || format!("{call}: expected {expected:?}, found {error:?}"))?;
    }

    driver.inject(fault(false)).await?;
    driver.settle().await?;
    ensure_same("resources after the fault", &driver.resources().await?, &before)?;
    driver.create(&missing).await
}

pub(super) async fn secrets_are_not_printed(harness: &dyn Harness) -> Result<(), Failure> {
    const SECRET: &str = "conformance-hunter2-secret";
    let driver = Driver::start(harness).await?;
    let mut order = order("one")?;
    order.desired.cloud_init = Some(DesiredCloudInit {
        user_data: None,
        network_data: None,
        secret: Some(SecretPart {
            name: "conformance-secret".to_owned(),
            key: "userdata".to_owned(),
            content: Redacted::new(SECRET.to_owned()),
        }),
    });

    let mut printed = vec![format!("{order:?}")];
    for fault in [
        None,
        Some(Fault::LoseNextReply),
        Some(Fault::FailNextTask),
        Some(Fault::Unreachable(true)),
        Some(Fault::Unauthenticated(true)),
    ] {
        if let Some(fault) = fault {
            driver.inject(fault).await?;
        }
        let observed = driver.testbed.backend().observe(&order.target, Some(&order)).await;
        printed.push(format!("{observed:?}"));
        printed.push(print(&driver.try_create(&order).await));
        for update in updates() {
            printed.push(print(&driver.try_update(&order, &update).await));
        }
        for part in deletions() {
            printed.push(print(&driver.try_delete(&order.target, &part).await));
        }
        driver.inject(Fault::Unreachable(false)).await?;
        driver.inject(Fault::Unauthenticated(false)).await?;
        driver.settle().await?;
    }

    let leak = printed.iter().position(|text| text.contains(SECRET));
    ensure(leak.is_none(), || format!("answer {} of the check prints the secret", leak.unwrap_or_default()))
}

fn print(answer: &Result<Progress, BackendError>) -> String {
    let error = answer.as_ref().err().map(ToString::to_string).unwrap_or_default();
    format!("{answer:?} {error}")
}
