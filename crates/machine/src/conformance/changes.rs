//! Rules about existing machines: how they are observed, and how changes take effect.

use vitistack_plan::machine::{Observed, Power, Support};
use vitistack_types::v1alpha1::PowerState;

use super::{
    Failure, Fault, Harness, Resource, ResourceKind,
    driver::{Driver, each, ensure, ensure_same},
    fields::{self, Change, Field},
    fixture::{order, parse},
};
use crate::{BackendError, ErrorKind, Order, Part, Progress, Update};

pub(super) async fn observation_is_accurate(harness: &dyn Harness) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let order = order("one")?;
    driver.create(&order).await?;
    let observed = driver.observe(&order).await?;
    let Observed {
        machine: Some(machine),
        disks,
        foreign: None,
        task: None,
        failure: None,
        elsewhere: None,
        leftovers: _,
        problems,
    } = observed
    else {
        return ensure(false, || format!("an idle machine was observed as {observed:?}"));
    };

    ensure(problems.is_empty(), || format!("a running machine has problems: {problems:?}"))?;
    ensure_same("power", &machine.power, &Power::Running)?;
    ensure_same("is_current", &machine.is_current, &true)?;
    ensure_same("restart_needed", &machine.restart_needed, &false)?;
    if let Some(cpu) = machine.cpu {
        ensure_same("cpu", &cpu, &order.desired.cpu)?;
    }
    if let Some(memory) = &machine.memory {
        ensure_same("memory", memory, &order.desired.memory)?;
    }

    let ids: Vec<String> =
        driver.machines_of(&order.target).await?.into_iter().map(|resource| resource.id).collect();
    ensure_same("id", &vec![machine.id], &ids)?;

    ensure_same("number of disks", &disks.len(), &order.desired.disks.len())?;
    for wanted in &order.desired.disks {
        let found = disks.iter().find(|disk| disk.name == wanted.name);
        let is_accurate = found.is_some_and(|disk| {
            disk.size.as_ref() == Some(&wanted.size)
                && disk.is_ready
                && disk.is_attached
                && disk.reclaim_policy == wanted.reclaim_policy
        });
        ensure(is_accurate, || format!("disk {:?}: expected {wanted:?}, observed {found:?}", wanted.name))?;
    }
    Ok(())
}

pub(super) async fn capabilities_are_accurate(harness: &dyn Harness) -> Result<(), Failure> {
    each(fields::all(), |field| check_capability(harness, field)).await
}

async fn check_capability(harness: &dyn Harness, field: Field) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let capabilities = driver.testbed.backend().capabilities();
    if field.is_refused_by(&capabilities) {
        return Ok(());
    }
    let support = match field.change {
        Change::Resize => capabilities.resize,
        Change::GrowDisk => capabilities.grow_disk,
        Change::Disks => capabilities.change_disks,
        Change::Interfaces => capabilities.change_interfaces,
        Change::Hardware => capabilities.change_hardware,
        Change::Policy | Change::FirstBoot | Change::Immutable | Change::Power => return Ok(()),
    };
    let result = check_change(&driver, &field, support).await;
    result.map_err(|failure| named(&field, support, &failure))
}

fn named(field: &Field, support: Support, failure: &Failure) -> Failure {
    Failure::BreakRule { found: format!("{} ({support:?}): {failure}", field.path) }
}

/// Checks one change of a running machine.
async fn check_change(driver: &Driver, field: &Field, support: Support) -> Result<(), Failure> {
    let order = order("one")?;
    driver.create(&order).await?;
    let before = driver.resources_of(&order.target).await?;
    let changed = field.changed(&order, &driver.testbed.zones())?;
    ensure_same("is_current after the change", &driver.machine(&changed).await?.is_current, &false)?;
    if support == Support::Never {
        return check_refused(driver, &changed, &before).await;
    }

    driver.update(&changed, &Update::Specification).await?;
    let machine = driver.machine(&changed).await?;
    let after = driver.resources_of(&order.target).await?;
    ensure_same("is_current after the update", &machine.is_current, &true)?;
    ensure(given(&after) != given(&before), || {
        "the update did not change the configuration at the provider".to_owned()
    })?;
    ensure_same("incarnation after the update", &incarnations(&after), &incarnations(&before))?;

    let is_in_effect = effective(&after) != effective(&before);
    match support {
        Support::InPlace => {
            ensure(is_in_effect, || "the change is not in effect after the update".to_owned())?;
            ensure_same("restart_needed", &machine.restart_needed, &false)
        }
        Support::AtRestart | Support::Never => {
            ensure(!is_in_effect, || "the change is in effect before the restart".to_owned())?;
            driver.update(&changed, &restart("first")).await?;
            let after = driver.resources_of(&order.target).await?;
            // The change may request what the provider does by default: then no restart is needed or has an effect.
            let is_in_effect = effective(&after) != effective(&before);
            ensure_same("restart_needed before the restart", &machine.restart_needed, &is_in_effect)?;
            let machine = driver.machine(&changed).await?;
            ensure_same("restart_needed after the restart", &machine.restart_needed, &false)
        }
    }
}

/// Checks that an unsupported change is reported and has no effect.
async fn check_refused(driver: &Driver, changed: &Order, before: &Vec<Resource>) -> Result<(), Failure> {
    let answer = driver.try_update(changed, &Update::Specification).await;
    driver.settle().await?;
    let is_reported = answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Refused)
        || !driver.observe(changed).await?.problems.is_empty();
    ensure(is_reported, || format!("neither refused nor reported as a problem: {answer:?}"))?;
    ensure_same("resources after the update", &driver.resources_of(&changed.target).await?, before)
}

fn given(resources: &[Resource]) -> Vec<&serde_json::Value> {
    resources.iter().map(|resource| &resource.given).collect()
}

/// Returns the configuration in effect. A new volume that is not used yet has none.
fn effective(resources: &[Resource]) -> Vec<&serde_json::Value> {
    resources.iter().map(|resource| &resource.effective).filter(|effective| !effective.is_null()).collect()
}

fn incarnations(resources: &[Resource]) -> Vec<&str> {
    let machines = resources.iter().filter(|resource| resource.kind == ResourceKind::Machine);
    machines.map(|resource| resource.incarnation.as_str()).collect()
}

fn restart(request: &str) -> Update {
    Update::Restart { request: request.to_owned() }
}

pub(super) async fn removed_disk_is_detached_and_retained(harness: &dyn Harness) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    if driver.testbed.backend().capabilities().change_disks == Support::Never {
        // `capabilities_are_accurate` checks that the disk is left unchanged and that this is reported.
        return Ok(());
    }
    let order = order("one")?;
    driver.create(&order).await?;

    let mut changed = order.clone();
    changed.desired.disks.retain(|disk| disk.name != "data");
    driver.update(&changed, &Update::Specification).await?;
    driver.update(&changed, &restart("first")).await?;

    let observed = driver.observe(&changed).await?;
    let removed = observed.disks.iter().find(|disk| disk.name == "data");
    ensure(removed.is_some_and(|disk| !disk.is_attached), || {
        format!("expected the removed disk to exist and to be detached, found {removed:?}")
    })?;
    let current = observed.machine.is_some_and(|machine| machine.is_current);
    ensure_same("is_current without the disk", &current, &true)?;

    driver.delete(&order.target, &Part::Disks(vec!["data".to_owned()])).await?;
    ensure_same(
        "volumes after the deletion",
        &driver.disks_of(&order.target).await?,
        &vec!["root".to_owned()],
    )?;
    let machines = driver.machines_of(&order.target).await?;
    ensure_same("number of machines after the deletion", &machines.len(), &1)
}

pub(super) async fn is_current_follows_the_order(harness: &dyn Harness) -> Result<(), Failure> {
    let immediate =
        fields::all().into_iter().filter(|field| matches!(field.change, Change::Policy | Change::FirstBoot));
    each(immediate, |field| check_is_current(harness, field)).await
}

async fn check_is_current(harness: &dyn Harness, field: Field) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    if field.is_refused_by(&driver.testbed.backend().capabilities()) {
        return Ok(());
    }
    let order = order("one")?;
    driver.create(&order).await?;
    ensure_same("is_current of a new machine", &driver.machine(&order).await?.is_current, &true)?;

    let changed = field.changed(&order, &driver.testbed.zones())?;
    let is_current = driver.machine(&changed).await?.is_current;
    ensure(!is_current, || format!("a change of {} was not detected", field.path))?;
    driver.update(&changed, &Update::Specification).await?;
    let is_current = driver.machine(&changed).await?.is_current;
    ensure(is_current, || format!("the machine is not current after an update of {}", field.path))?;

    let before = driver.resources().await?;
    driver.update(&changed, &Update::Specification).await?;
    ensure_same("resources after an update without a change", &driver.resources().await?, &before)
}

pub(super) async fn failed_update_can_be_retried(harness: &dyn Harness) -> Result<(), Failure> {
    for fault in [Fault::LoseNextReply, Fault::FailNextTask] {
        let driver = Driver::start(harness).await?;
        if driver.testbed.backend().capabilities().resize == Support::Never {
            return Ok(());
        }
        let order = order("one")?;
        driver.create(&order).await?;
        let mut changed = order.clone();
        changed.desired.memory = parse("2Gi")?;

        driver.inject(fault.clone()).await?;
        let answer = driver.try_update(&changed, &Update::Specification).await;
        if fault == Fault::LoseNextReply {
            let is_reported = answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Unreachable);
            ensure(is_reported, || {
                format!("expected a lost reply to be reported as Unreachable, found {answer:?}")
            })?;
        }
        driver.settle().await?;
        driver.update(&changed, &Update::Specification).await?;
        let is_current = driver.machine(&changed).await?.is_current;
        ensure_same("is_current after the second update", &is_current, &true)?;
        driver.ensure_one(&changed).await?;
    }
    Ok(())
}

pub(super) async fn power_is_idempotent(harness: &dyn Harness) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let mut order = order("one")?;
    driver.create(&order).await?;
    let created = driver.resources().await?;
    driver.update(&order, &Update::Start).await?;
    ensure_same("resources after starting a running machine", &driver.resources().await?, &created)?;

    order.desired.power = PowerState::Stopped;
    if !driver.testbed.backend().capabilities().power {
        let answer: Result<Progress, BackendError> = driver.try_update(&order, &Update::Stop).await;
        let is_refused = answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Refused);
        ensure(is_refused, || {
            format!("expected a stop without power support to be refused, found {answer:?}")
        })?;
        return ensure_same("resources afterwards", &driver.resources().await?, &created);
    }

    driver.update(&order, &Update::Stop).await?;
    ensure_same("power after a stop", &driver.machine(&order).await?.power, &Power::Stopped)?;
    driver.ensure_one(&order).await?;
    let stopped = driver.resources().await?;
    driver.update(&order, &Update::Stop).await?;
    ensure_same("resources after a second stop", &driver.resources().await?, &stopped)?;

    order.desired.power = PowerState::Running;
    driver.inject(Fault::LoseNextReply).await?;
    let _ = driver.try_update(&order, &Update::Start).await;
    driver.settle().await?;
    driver.update(&order, &Update::Start).await?;
    ensure_same("power after a start", &driver.machine(&order).await?.power, &Power::Running)?;
    let started = driver.resources().await?;
    ensure(incarnations(&started) != incarnations(&created), || {
        "the machine was not started again after a stop".to_owned()
    })?;
    driver.update(&order, &Update::Start).await?;
    ensure_same("resources after a second start", &driver.resources().await?, &started)
}

pub(super) async fn restart_happens_once(harness: &dyn Harness) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let order = order("one")?;
    driver.create(&order).await?;
    let mut seen = vec![driver.machines_of(&order.target).await?];
    // The reply to the first request is lost: its retry must not restart the machine again.
    for (request, is_lost) in [("first", true), ("second", false)] {
        if is_lost {
            driver.inject(Fault::LoseNextReply).await?;
            let _ = driver.try_update(&order, &restart(request)).await;
            driver.settle().await?;
            let after_loss = driver.machines_of(&order.target).await?;
            driver.update(&order, &restart(request)).await?;
            let after_retry = driver.machines_of(&order.target).await?;
            // The lost reply may be that of a write that precedes the restart itself.
            let is_done = seen.iter().all(|earlier| incarnations(earlier) != incarnations(&after_loss));
            ensure(!is_done || after_retry == after_loss, || {
                format!(
                    "the retry of a request with a lost reply restarted the machine again: {after_retry:?}"
                )
            })?;
        }

        driver.update(&order, &restart(request)).await?;
        let once = driver.machines_of(&order.target).await?;
        driver.update(&order, &restart(request)).await?;
        let twice = driver.machines_of(&order.target).await?;
        ensure_same("machine after the same request", &twice, &once)?;
        ensure(!seen.contains(&once), || format!("request {request:?} did not restart the machine"))?;
        seen.push(once);

        let machine = driver.machine(&order).await?;
        let reported = (machine.restarted_for, machine.power);
        ensure_same(
            "restarted_for and power after the restart",
            &reported,
            &(Some(request.to_owned()), Power::Running),
        )?;
    }
    Ok(())
}
