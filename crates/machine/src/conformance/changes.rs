//! Rules about machines that exist: what is seen of them, and what becomes of changes.

use vitistack_plan::machine::{Observed, Power, Support};
use vitistack_types::v1alpha1::PowerState;

use super::{
    Failure, Fault, Harness, Thing, ThingKind,
    fields::{self, Change, Field},
    fixture::{order, parse},
    scene::{Scene, each, ensure, ensure_same},
};
use crate::{BackendError, ErrorKind, Order, Part, Progress, Update};

pub(super) async fn observation_is_true(harness: &dyn Harness) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let order = order("one")?;
    scene.make(&order).await?;
    let observed = scene.observe(&order).await?;
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
        return ensure(false, || format!("a quiet machine of ours was observed as {observed:?}"));
    };
    ensure(problems.is_empty(), || format!("a machine that runs has problems: {problems:?}"))?;
    ensure_same("power", &machine.power, &Power::Running)?;
    ensure_same("whether it is current", &machine.is_current, &true)?;
    ensure_same("whether a restart is needed", &machine.restart_needed, &false)?;
    if let Some(cpu) = machine.cpu {
        ensure_same("processors", &cpu, &order.desired.cpu)?;
    }
    if let Some(memory) = &machine.memory {
        ensure_same("memory", memory, &order.desired.memory)?;
    }
    let ids: Vec<String> =
        scene.machines_of(&order.target).await?.into_iter().map(|thing| thing.id).collect();
    ensure_same("the provider's number for it", &vec![machine.id], &ids)?;
    ensure_same("how many disks are observed", &disks.len(), &order.desired.disks.len())?;
    for wanted in &order.desired.disks {
        let found = disks.iter().find(|disk| disk.name == wanted.name);
        let is_true = found.is_some_and(|disk| {
            disk.size.as_ref() == Some(&wanted.size)
                && disk.is_ready
                && disk.is_attached
                && disk.reclaim_policy == wanted.reclaim_policy
        });
        ensure(is_true, || {
            format!("disk {:?} was ordered as {wanted:?} and is observed as {found:?}", wanted.name)
        })?;
    }
    Ok(())
}

pub(super) async fn capabilities_are_honest(harness: &dyn Harness) -> Result<(), Failure> {
    each(fields::all(), |field| is_honest(harness, field)).await
}

async fn is_honest(harness: &dyn Harness, field: Field) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let capabilities = scene.bench.backend().capabilities();
    if field.is_refused_by(&capabilities) {
        return Ok(());
    }
    let support = match field.change {
        Change::Resize => capabilities.resize,
        Change::GrowDisk => capabilities.grow_disk,
        Change::Disks => capabilities.change_disks,
        Change::Interfaces => capabilities.change_interfaces,
        Change::Hardware => capabilities.change_hardware,
        Change::Policy | Change::FirstBoot | Change::Once | Change::Power => return Ok(()),
    };
    let result = takes_effect(&scene, &field, support).await;
    result.map_err(|failure| named(&field, support, &failure))
}

fn named(field: &Field, support: Support, failure: &Failure) -> Failure {
    Failure::BreakRule { found: format!("{} ({support:?}): {failure}", field.path) }
}

/// Tries one change on a machine that runs.
async fn takes_effect(scene: &Scene, field: &Field, support: Support) -> Result<(), Failure> {
    let order = order("one")?;
    scene.make(&order).await?;
    let before = scene.things_of(&order.target).await?;
    let changed = field.changed(&order, &scene.bench.zones())?;
    ensure_same(
        "whether it is current after the change",
        &scene.machine(&changed).await?.is_current,
        &false,
    )?;
    if support == Support::Never {
        return is_refused(scene, &changed, &before).await;
    }

    scene.update(&changed, &Update::Specification).await?;
    let machine = scene.machine(&changed).await?;
    let after = scene.things_of(&order.target).await?;
    ensure_same("whether it is current after the update", &machine.is_current, &true)?;
    ensure(given(&after) != given(&before), || "the update gave the provider nothing new".to_owned())?;
    ensure_same("what changes with every start", &incarnations(&after), &incarnations(&before))?;
    let is_in_effect = effective(&after) != effective(&before);
    match support {
        Support::InPlace => {
            ensure(is_in_effect, || "the change is not in effect after the update".to_owned())?;
            ensure_same("whether a restart is needed", &machine.restart_needed, &false)
        }
        Support::AtRestart | Support::Never => {
            ensure(!is_in_effect, || "the change is in effect before the restart".to_owned())?;
            scene.update(&changed, &restart("first")).await?;
            let after = scene.things_of(&order.target).await?;
            // Asked for is what the provider does anyway: then nothing waits for a restart, and none brings anything.
            let is_in_effect = effective(&after) != effective(&before);
            ensure_same("whether a restart was told to be needed", &machine.restart_needed, &is_in_effect)?;
            let machine = scene.machine(&changed).await?;
            ensure_same("whether a restart is needed after it", &machine.restart_needed, &false)
        }
    }
}

/// What can never change is left as it is, and that is told.
async fn is_refused(scene: &Scene, changed: &Order, before: &Vec<Thing>) -> Result<(), Failure> {
    let answer = scene.try_update(changed, &Update::Specification).await;
    scene.settle().await?;
    let is_told = answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Refused)
        || !scene.observe(changed).await?.problems.is_empty();
    ensure(is_told, || format!("neither refused nor told as a problem: {answer:?}"))?;
    ensure_same("things after the update", &scene.things_of(&changed.target).await?, before)
}

fn given(things: &[Thing]) -> Vec<&serde_json::Value> {
    things.iter().map(|thing| &thing.given).collect()
}

/// What is in effect. A new volume that nothing uses yet is not.
fn effective(things: &[Thing]) -> Vec<&serde_json::Value> {
    things.iter().map(|thing| &thing.effective).filter(|effective| !effective.is_null()).collect()
}

fn incarnations(things: &[Thing]) -> Vec<&str> {
    let machines = things.iter().filter(|thing| thing.kind == ThingKind::Machine);
    machines.map(|thing| thing.incarnation.as_str()).collect()
}

fn restart(request: &str) -> Update {
    Update::Restart { request: request.to_owned() }
}

pub(super) async fn removed_disk_is_kept(harness: &dyn Harness) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    if scene.bench.backend().capabilities().change_disks == Support::Never {
        // That it is left as it is and told was shown with the capabilities.
        return Ok(());
    }
    let order = order("one")?;
    scene.make(&order).await?;
    let mut changed = order.clone();
    changed.desired.disks.retain(|disk| disk.name != "data");
    scene.update(&changed, &Update::Specification).await?;
    scene.update(&changed, &restart("first")).await?;
    let observed = scene.observe(&changed).await?;
    let removed = observed.disks.iter().find(|disk| disk.name == "data");
    ensure(removed.is_some_and(|disk| !disk.is_attached), || {
        format!("the removed disk has to be there and detached, found {removed:?}")
    })?;
    let current = observed.machine.is_some_and(|machine| machine.is_current);
    ensure_same("whether the machine is current without it", &current, &true)?;
    scene.remove(&order.target, &Part::Disks(vec!["data".to_owned()])).await?;
    ensure_same(
        "volumes after its deletion",
        &scene.disks_of(&order.target).await?,
        &vec!["root".to_owned()],
    )?;
    let machines = scene.machines_of(&order.target).await?;
    ensure_same("machines after its deletion", &machines.len(), &1)
}

pub(super) async fn current_follows_the_order(harness: &dyn Harness) -> Result<(), Failure> {
    let noted =
        fields::all().into_iter().filter(|field| matches!(field.change, Change::Policy | Change::FirstBoot));
    each(noted, |field| is_followed(harness, field)).await
}

async fn is_followed(harness: &dyn Harness, field: Field) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    if field.is_refused_by(&scene.bench.backend().capabilities()) {
        return Ok(());
    }
    let order = order("one")?;
    scene.make(&order).await?;
    ensure_same("whether a new machine is current", &scene.machine(&order).await?.is_current, &true)?;
    let changed = field.changed(&order, &scene.bench.zones())?;
    let is_current = scene.machine(&changed).await?.is_current;
    ensure(!is_current, || format!("a change of {} was not noticed", field.path))?;
    scene.update(&changed, &Update::Specification).await?;
    let is_current = scene.machine(&changed).await?.is_current;
    ensure(is_current, || format!("after the update of {} the machine is still not current", field.path))?;
    let quiet = scene.things().await?;
    scene.update(&changed, &Update::Specification).await?;
    ensure_same("things after an update without a change", &scene.things().await?, &quiet)
}

pub(super) async fn failed_update_is_made_good(harness: &dyn Harness) -> Result<(), Failure> {
    for fault in [Fault::LoseNextReply, Fault::FailNextTask] {
        let scene = Scene::fresh(harness).await?;
        if scene.bench.backend().capabilities().resize == Support::Never {
            return Ok(());
        }
        let order = order("one")?;
        scene.make(&order).await?;
        let mut changed = order.clone();
        changed.desired.memory = parse("2Gi")?;
        scene.inject(fault.clone()).await?;
        let answer = scene.try_update(&changed, &Update::Specification).await;
        if fault == Fault::LoseNextReply {
            let is_told = answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Unreachable);
            ensure(is_told, || format!("a lost reply has to be told as Unreachable, found {answer:?}"))?;
        }
        scene.settle().await?;
        scene.update(&changed, &Update::Specification).await?;
        let is_current = scene.machine(&changed).await?.is_current;
        ensure_same("whether it is current after the second update", &is_current, &true)?;
        scene.ensure_one(&changed).await?;
    }
    Ok(())
}

pub(super) async fn power_is_idempotent(harness: &dyn Harness) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let mut order = order("one")?;
    scene.make(&order).await?;
    let made = scene.things().await?;
    scene.update(&order, &Update::Start).await?;
    ensure_same("things after the start of what runs", &scene.things().await?, &made)?;

    order.desired.power = PowerState::Stopped;
    if !scene.bench.backend().capabilities().power {
        let answer: Result<Progress, BackendError> = scene.try_update(&order, &Update::Stop).await;
        let is_refused = answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Refused);
        ensure(is_refused, || format!("without power a stop has to be refused, found {answer:?}"))?;
        return ensure_same("things after it", &scene.things().await?, &made);
    }
    scene.update(&order, &Update::Stop).await?;
    ensure_same("power after a stop", &scene.machine(&order).await?.power, &Power::Stopped)?;
    scene.ensure_one(&order).await?;
    let stopped = scene.things().await?;
    scene.update(&order, &Update::Stop).await?;
    ensure_same("things after a second stop", &scene.things().await?, &stopped)?;

    order.desired.power = PowerState::Running;
    scene.inject(Fault::LoseNextReply).await?;
    let _ = scene.try_update(&order, &Update::Start).await;
    scene.settle().await?;
    scene.update(&order, &Update::Start).await?;
    ensure_same("power after a start", &scene.machine(&order).await?.power, &Power::Running)?;
    let started = scene.things().await?;
    ensure(incarnations(&started) != incarnations(&made), || {
        "a stop and a start did not start it anew".to_owned()
    })?;
    scene.update(&order, &Update::Start).await?;
    ensure_same("things after a second start", &scene.things().await?, &started)
}

pub(super) async fn restart_happens_once(harness: &dyn Harness) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let order = order("one")?;
    scene.make(&order).await?;
    let mut seen = vec![scene.machines_of(&order.target).await?];
    // The reply to the first is lost: what asks again must not restart again.
    for (request, is_lost) in [("first", true), ("second", false)] {
        if is_lost {
            scene.inject(Fault::LoseNextReply).await?;
            let _ = scene.try_update(&order, &restart(request)).await;
            scene.settle().await?;
            let unheard = scene.machines_of(&order.target).await?;
            scene.update(&order, &restart(request)).await?;
            let asked_again = scene.machines_of(&order.target).await?;
            // What was lost may be the reply to a note that comes before the restart itself.
            let is_done = seen.iter().all(|earlier| incarnations(earlier) != incarnations(&unheard));
            ensure(!is_done || asked_again == unheard, || {
                format!("the request of a lost reply came again and restarted again: {asked_again:?}")
            })?;
        }
        scene.update(&order, &restart(request)).await?;
        let once = scene.machines_of(&order.target).await?;
        scene.update(&order, &restart(request)).await?;
        let twice = scene.machines_of(&order.target).await?;
        ensure_same("the machine after the same request once more", &twice, &once)?;
        ensure(!seen.contains(&once), || format!("request {request:?} did not restart the machine"))?;
        seen.push(once);
        let machine = scene.machine(&order).await?;
        let told = (machine.restarted_for, machine.power);
        ensure_same("what is told after it", &told, &(Some(request.to_owned()), Power::Running))?;
    }
    Ok(())
}
