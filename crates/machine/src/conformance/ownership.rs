//! Rules about ownership: one machine per identity, and no access to what has another identity.

use super::{
    Failure, Fault, Harness, OTHER_NAMESPACE,
    driver::{Driver, deletions, ensure, ensure_same, updates},
    fixture::{order, order_in},
};
use crate::{ErrorKind, Order, Part, Progress};

pub(super) async fn create_is_idempotent(harness: &dyn Harness) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let order = order("one")?;
    // Twice before the provider can finish, and again afterwards.
    for _ in 0..2 {
        let _ = driver.try_create(&order).await;
    }
    driver.create(&order).await?;
    driver.ensure_one(&order).await?;
    let before = driver.resources().await?;
    driver.create(&order).await?;
    ensure_same("resources after another create", &driver.resources().await?, &before)
}

pub(super) async fn lost_reply_creates_no_duplicate(harness: &dyn Harness) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let order = order("one")?;
    driver.inject(Fault::LoseNextReply).await?;
    let answer = driver.try_create(&order).await;
    let kind = answer.as_ref().err().map(|error| error.kind);
    ensure(kind == Some(ErrorKind::Unreachable), || {
        format!("expected a lost reply to be reported as Unreachable, found {answer:?}")
    })?;
    driver.create(&order).await?;
    driver.ensure_one(&order).await
}

pub(super) async fn failed_create_can_be_retried(harness: &dyn Harness) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let order = order("one")?;
    driver.inject(Fault::FailNextTask).await?;
    let _ = driver.try_create(&order).await;
    driver.settle().await?;
    driver.create(&order).await?;
    driver.ensure_one(&order).await
}

pub(super) async fn failed_task_is_reported(harness: &dyn Harness) -> Result<(), Failure> {
    let mut driver = Driver::start(harness).await?;
    let (order, other) = (order("one")?, order("two")?);
    driver.create(&other).await?;
    driver.inject(Fault::FailNextTask).await?;
    let answer = driver.try_create(&order).await;
    driver.settle().await?;

    // If the provider has no tasks, the call itself reported the failure.
    if answer.is_ok() {
        let failure = driver.observe(&order).await?.failure;
        ensure(failure.as_ref().is_some_and(|failure| !failure.is_empty()), || {
            "an accepted creation failed later, and the failure is not reported".to_owned()
        })?;
        driver.testbed.restart().await?;
        ensure_same("the failure after a restart", &driver.observe(&order).await?.failure, &failure)?;
    }

    ensure_same("the failure of another machine", &driver.observe(&other).await?.failure, &None)?;
    driver.create(&order).await?;
    ensure_same(
        "the failure after the next creation succeeded",
        &driver.observe(&order).await?.failure,
        &None,
    )
}

pub(super) async fn backend_restart_loses_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let mut driver = Driver::start(harness).await?;
    let order = order("one")?;
    driver.inject(Fault::LoseNextReply).await?;
    let _ = driver.try_create(&order).await;
    driver.testbed.restart().await?;
    driver.create(&order).await?;
    driver.ensure_one(&order).await?;

    let before = (driver.observe(&order).await?, driver.resources().await?);
    driver.testbed.restart().await?;
    let after = (driver.observe(&order).await?, driver.resources().await?);
    ensure_same("the machine after a restart of the backend", &after, &before)
}

pub(super) async fn identity_matters_and_not_the_uid(harness: &dyn Harness) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let mut order = order("one")?;
    driver.create(&order).await?;
    "c0f0c0f0-ffff-4000-8000-000000000000".clone_into(&mut order.target.uid);
    let id = driver.machine(&order).await?.id;
    driver.create(&order).await?;
    driver.ensure_one(&order).await?;
    ensure_same("the ID of the machine", &driver.machine(&order).await?.id, &id)
}

pub(super) async fn names_are_scoped_to_namespaces(harness: &dyn Harness) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let (here, there) = (order("one")?, order_in(OTHER_NAMESPACE, "one")?);
    driver.create(&here).await?;
    driver.create(&there).await?;
    driver.ensure_one(&here).await?;
    driver.ensure_one(&there).await?;
    let before = driver.resources_of(&there.target).await?;
    for part in deletions() {
        driver.delete(&here.target, &part).await?;
    }
    ensure_same("resources of the deleted machine", &driver.resources_of(&here.target).await?, &Vec::new())?;
    ensure_same(
        "resources of the machine in the other namespace",
        &driver.resources_of(&there.target).await?,
        &before,
    )
}

pub(super) async fn other_namespaces_have_no_access(harness: &dyn Harness) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let owner = order("one")?;
    driver.create(&owner).await?;
    // First the machine with its volumes, then only the volumes that outlive it.
    for what in ["the machine", "its volumes"] {
        let before = driver.resources().await?;
        let mut intruder = order_in(OTHER_NAMESPACE, "one")?;
        intruder.target.identity = owner.target.identity.clone();
        let observed = driver.observe(&intruder).await?;
        ensure(observed.machine.is_none() && observed.disks.is_empty(), || {
            format!("{what} created for another namespace was reported as the target's own: {observed:?}")
        })?;

        // A provider with namespaces may create another machine; one without has to refuse.
        let _ = driver.try_create(&intruder).await;
        driver.settle().await?;
        for update in updates() {
            let _ = driver.try_update(&intruder, &update).await;
            driver.settle().await?;
        }
        for part in deletions() {
            driver.delete(&intruder.target, &part).await?;
        }

        ensure_same(
            &format!("resources after access to {what} from another namespace"),
            &driver.resources().await?,
            &before,
        )?;
        driver.delete(&owner.target, &Part::Machine).await?;
    }
    Ok(())
}

pub(super) async fn replaced_machine_is_not_touched(harness: &dyn Harness) -> Result<(), Failure> {
    // Each call on its own testbed, so that no call hides the effect of another.
    for update in updates() {
        let (driver, order) = replaced(harness).await?;
        let before = driver.resources().await?;
        let _ = driver.try_update(&order, &update).await;
        driver.settle().await?;
        ensure_same(&format!("resources after {update:?}"), &driver.resources().await?, &before)?;
    }

    let (driver, order) = replaced(harness).await?;
    let before = driver.resources().await?;
    driver.delete(&order.target, &Part::Machine).await?;
    ensure_same("resources after a delete", &driver.resources().await?, &before)?;
    let observed = driver.observe(&order).await?;
    ensure(observed.machine.is_none(), || {
        format!("a machine without the identity was reported as the target's own: {observed:?}")
    })?;

    // The same with a machine of another target, which may have the ID of the deleted one.
    let driver = Driver::start(harness).await?;
    let (deleted, other) = (self::order("one")?, self::order("two")?);
    driver.create(&deleted).await?;
    driver.delete(&deleted.target, &Part::Machine).await?;
    driver.create(&other).await?;
    let before = driver.resources().await?;
    driver.delete(&deleted.target, &Part::Machine).await?;
    ensure_same("resources after a second delete", &driver.resources().await?, &before)
}

/// Returns a testbed whose machine was observed and then replaced by a third party.
async fn replaced(harness: &dyn Harness) -> Result<(Driver, Order), Failure> {
    let driver = Driver::start(harness).await?;
    let order = order("one")?;
    driver.create(&order).await?;
    driver.machine(&order).await?;
    driver.inject(Fault::Replace(order.target.clone())).await?;
    Ok((driver, order))
}

pub(super) async fn delete_of_absent_parts_is_done(harness: &dyn Harness) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let (order, before) = (order("one")?, driver.resources().await?);
    for part in deletions() {
        let answer = driver.try_delete(&order.target, &part).await;
        ensure_same("answer to the deletion of an absent part", &answer, &Ok(Progress::Done))?;
    }
    ensure_same("resources afterwards", &driver.resources().await?, &before)
}

pub(super) async fn failed_delete_can_be_retried(harness: &dyn Harness) -> Result<(), Failure> {
    for fault in [Fault::LoseNextReply, Fault::FailNextTask] {
        let driver = Driver::start(harness).await?;
        let order = order("one")?;
        driver.create(&order).await?;
        for part in deletions() {
            driver.inject(fault.clone()).await?;
            let answer = driver.try_delete(&order.target, &part).await;
            ensure(fault != Fault::LoseNextReply || answer.is_err(), || {
                format!("the reply to the deletion of {part:?} was lost, but the answer is {answer:?}")
            })?;
            driver.settle().await?;
            driver.delete(&order.target, &part).await?;
        }
        ensure_same("remaining resources", &driver.resources_of(&order.target).await?, &Vec::new())?;
    }
    Ok(())
}

pub(super) async fn volumes_are_deleted_only_on_request(harness: &dyn Harness) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let (order, other) = (order("one")?, order("two")?);
    driver.create(&order).await?;
    driver.create(&other).await?;
    let bystander = driver.resources_of(&other.target).await?;

    driver.delete(&order.target, &Part::Machine).await?;
    ensure_same("machines after the delete", &driver.machines_of(&order.target).await?, &Vec::new())?;
    let retained = driver.disks_of(&order.target).await?;
    ensure_same("volumes after the delete", &retained, &vec!["data".to_owned(), "root".to_owned()])?;

    driver.delete(&order.target, &Part::Disks(vec!["root".to_owned()])).await?;
    ensure_same(
        "volumes after the deletion of root",
        &driver.disks_of(&order.target).await?,
        &vec!["data".to_owned()],
    )?;

    let observed = driver.testbed.backend().observe(&order.target, None).await;
    let names: Option<Vec<_>> =
        observed.ok().map(|observed| observed.disks.into_iter().map(|disk| disk.name).collect());
    ensure_same("disks observed without an order", &names, &Some(vec!["data".to_owned()]))?;
    ensure_same("the other machine", &driver.resources_of(&other.target).await?, &bystander)
}

pub(super) async fn retained_volumes_are_reused(harness: &dyn Harness) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let order = order("one")?;
    driver.create(&order).await?;
    let volumes = |resources: Vec<super::Resource>| {
        resources
            .into_iter()
            .filter(|resource| resource.disk.is_some())
            .map(|resource| resource.id)
            .collect::<Vec<_>>()
    };
    let before = volumes(driver.resources_of(&order.target).await?);
    driver.delete(&order.target, &Part::Machine).await?;
    driver.create(&order).await?;
    driver.ensure_one(&order).await?;
    ensure_same(
        "volumes of the recreated machine",
        &volumes(driver.resources_of(&order.target).await?),
        &before,
    )
}

pub(super) async fn foreign_machine_blocks_creation(harness: &dyn Harness) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let order = order("one")?;
    driver.inject(Fault::ForeignMachine(order.target.clone())).await?;
    foreign_blocks_creation(&driver, &order).await
}

pub(super) async fn foreign_volume_blocks_creation(harness: &dyn Harness) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let order = order("one")?;
    driver.inject(Fault::ForeignVolume(order.target.clone(), "root".to_owned())).await?;
    foreign_blocks_creation(&driver, &order).await
}

async fn foreign_blocks_creation(driver: &Driver, order: &Order) -> Result<(), Failure> {
    let before = driver.resources().await?;
    let observed = driver.observe(order).await?;
    ensure(observed.foreign.is_some() && observed.machine.is_none(), || {
        format!("a foreign resource with the same name was not reported as foreign: {observed:?}")
    })?;

    let answer = driver.try_create(order).await;
    ensure(answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Refused), || {
        format!("expected create to be refused, found {answer:?}")
    })?;
    for update in updates() {
        let answer = driver.try_update(order, &update).await;
        ensure(answer.is_err(), || {
            format!("expected {update:?} of a foreign machine to fail, found {answer:?}")
        })?;
    }

    for part in deletions() {
        driver.delete(&order.target, &part).await?;
    }
    driver.settle().await?;
    ensure_same("resources after create, update and delete", &driver.resources().await?, &before)
}
