//! Rules about whose a thing is: one machine for an identity, and nothing of anybody else's.

use super::{
    Failure, Fault, Harness, OTHER_NAMESPACE,
    fixture::{order, order_in},
    scene::{Scene, deletions, ensure, ensure_same, updates},
};
use crate::{ErrorKind, Order, Part, Progress};

pub(super) async fn create_is_idempotent(harness: &dyn Harness) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let order = order("one")?;
    // Twice before anything had the time to happen, and again afterwards.
    for _ in 0..2 {
        let _ = scene.try_create(&order).await;
    }
    scene.make(&order).await?;
    scene.ensure_one(&order).await?;
    let before = scene.things().await?;
    scene.make(&order).await?;
    ensure_same("things after one more create", &scene.things().await?, &before)
}

pub(super) async fn lost_reply_makes_no_second_machine(harness: &dyn Harness) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let order = order("one")?;
    scene.inject(Fault::LoseNextReply).await?;
    let answer = scene.try_create(&order).await;
    let kind = answer.as_ref().err().map(|error| error.kind);
    ensure(kind == Some(ErrorKind::Unreachable), || {
        format!("a lost reply has to be told as Unreachable, found {answer:?}")
    })?;
    scene.make(&order).await?;
    scene.ensure_one(&order).await
}

pub(super) async fn failed_create_is_made_good(harness: &dyn Harness) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let order = order("one")?;
    scene.inject(Fault::FailNextTask).await?;
    let _ = scene.try_create(&order).await;
    scene.settle().await?;
    scene.make(&order).await?;
    scene.ensure_one(&order).await
}

pub(super) async fn failed_task_is_told(harness: &dyn Harness) -> Result<(), Failure> {
    let mut scene = Scene::fresh(harness).await?;
    let (order, other) = (order("one")?, order("two")?);
    scene.make(&other).await?;
    scene.inject(Fault::FailNextTask).await?;
    let answer = scene.try_create(&order).await;
    scene.settle().await?;
    // Where the provider has no tasks, the call itself has failed and has told it.
    if answer.is_ok() {
        let told = scene.observe(&order).await?.failure;
        ensure(told.as_ref().is_some_and(|told| !told.is_empty()), || {
            "a creation that was taken on failed afterwards, and nobody is told".to_owned()
        })?;
        scene.bench.restart().await?;
        ensure_same("the failure after a restart", &scene.observe(&order).await?.failure, &told)?;
    }
    ensure_same("the failure of another machine", &scene.observe(&other).await?.failure, &None)?;
    scene.make(&order).await?;
    ensure_same("the failure after the next creation succeeded", &scene.observe(&order).await?.failure, &None)
}

pub(super) async fn restart_forgets_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let mut scene = Scene::fresh(harness).await?;
    let order = order("one")?;
    scene.inject(Fault::LoseNextReply).await?;
    let _ = scene.try_create(&order).await;
    scene.bench.restart().await?;
    scene.make(&order).await?;
    scene.ensure_one(&order).await?;
    let before = (scene.observe(&order).await?, scene.things().await?);
    scene.bench.restart().await?;
    let after = (scene.observe(&order).await?, scene.things().await?);
    ensure_same("the machine after a restart of the backend", &after, &before)
}

pub(super) async fn identity_counts_and_not_the_uid(harness: &dyn Harness) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let mut order = order("one")?;
    scene.make(&order).await?;
    "c0f0c0f0-ffff-4000-8000-000000000000".clone_into(&mut order.target.uid);
    let id = scene.machine(&order).await?.id;
    scene.make(&order).await?;
    scene.ensure_one(&order).await?;
    ensure_same("the machine's number", &scene.machine(&order).await?.id, &id)
}

pub(super) async fn namespaces_keep_names_apart(harness: &dyn Harness) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let (here, there) = (order("one")?, order_in(OTHER_NAMESPACE, "one")?);
    scene.make(&here).await?;
    scene.make(&there).await?;
    scene.ensure_one(&here).await?;
    scene.ensure_one(&there).await?;
    let before = scene.things_of(&there.target).await?;
    for part in deletions() {
        scene.remove(&here.target, &part).await?;
    }
    ensure_same("what is left of the deleted machine", &scene.things_of(&here.target).await?, &Vec::new())?;
    ensure_same("the machine of the other namespace", &scene.things_of(&there.target).await?, &before)
}

pub(super) async fn other_namespaces_get_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let made = order("one")?;
    scene.make(&made).await?;
    // First the whole machine, then only the volumes that outlived it.
    for what in ["the machine", "its volumes"] {
        let before = scene.things().await?;
        let mut thief = order_in(OTHER_NAMESPACE, "one")?;
        thief.target.identity = made.target.identity.clone();
        let observed = scene.observe(&thief).await?;
        ensure(observed.machine.is_none() && observed.disks.is_empty(), || {
            format!("{what} of another namespace was told as one's own: {observed:?}")
        })?;
        // A provider that keeps namespaces apart may make another machine; one that does not has to refuse.
        let _ = scene.try_create(&thief).await;
        scene.settle().await?;
        for update in updates() {
            let _ = scene.try_update(&thief, &update).await;
            scene.settle().await?;
        }
        for part in deletions() {
            scene.remove(&thief.target, &part).await?;
        }
        ensure_same(
            &format!("things after another namespace wanted {what}"),
            &scene.things().await?,
            &before,
        )?;
        scene.remove(&made.target, &Part::Machine).await?;
    }
    Ok(())
}

pub(super) async fn delete_hits_no_other_machine(harness: &dyn Harness) -> Result<(), Failure> {
    // Each call on a bench of its own, so that none hides what another did.
    for update in updates() {
        let (scene, order) = replaced(harness).await?;
        let before = scene.things().await?;
        let _ = scene.try_update(&order, &update).await;
        scene.settle().await?;
        ensure_same(&format!("things after {update:?}"), &scene.things().await?, &before)?;
    }
    let (scene, order) = replaced(harness).await?;
    let before = scene.things().await?;
    scene.remove(&order.target, &Part::Machine).await?;
    ensure_same("things after a delete", &scene.things().await?, &before)?;
    let observed = scene.observe(&order).await?;
    ensure(observed.machine.is_none(), || {
        format!("a machine without our identity was taken for ours: {observed:?}")
    })?;

    // The same with a machine of ours as the one that must not be hit.
    let scene = Scene::fresh(harness).await?;
    let (gone, other) = (self::order("one")?, self::order("two")?);
    scene.make(&gone).await?;
    scene.remove(&gone.target, &Part::Machine).await?;
    scene.make(&other).await?;
    let before = scene.things().await?;
    scene.remove(&gone.target, &Part::Machine).await?;
    ensure_same("things after a second delete", &scene.things().await?, &before)
}

/// A machine of ours that was observed and then replaced by somebody else's.
async fn replaced(harness: &dyn Harness) -> Result<(Scene, Order), Failure> {
    let scene = Scene::fresh(harness).await?;
    let order = order("one")?;
    scene.make(&order).await?;
    scene.machine(&order).await?;
    scene.inject(Fault::Replace(order.target.clone())).await?;
    Ok((scene, order))
}

pub(super) async fn delete_of_what_is_absent_is_done(harness: &dyn Harness) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let (order, before) = (order("one")?, scene.things().await?);
    for part in deletions() {
        let answer = scene.try_delete(&order.target, &part).await;
        ensure_same("the answer to a delete of nothing", &answer, &Ok(Progress::Done))?;
    }
    ensure_same("things after it", &scene.things().await?, &before)
}

pub(super) async fn delete_survives_faults(harness: &dyn Harness) -> Result<(), Failure> {
    for fault in [Fault::LoseNextReply, Fault::FailNextTask] {
        let scene = Scene::fresh(harness).await?;
        let order = order("one")?;
        scene.make(&order).await?;
        for part in deletions() {
            scene.inject(fault.clone()).await?;
            let answer = scene.try_delete(&order.target, &part).await;
            ensure(fault != Fault::LoseNextReply || answer.is_err(), || {
                format!("the reply to {part:?} was lost, and yet {answer:?} was answered")
            })?;
            scene.settle().await?;
            scene.remove(&order.target, &part).await?;
        }
        ensure_same("what is left", &scene.things_of(&order.target).await?, &Vec::new())?;
    }
    Ok(())
}

pub(super) async fn volumes_go_only_on_request(harness: &dyn Harness) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let (order, other) = (order("one")?, order("two")?);
    scene.make(&order).await?;
    scene.make(&other).await?;
    let bystander = scene.things_of(&other.target).await?;
    scene.remove(&order.target, &Part::Machine).await?;
    ensure_same("machines after the delete", &scene.machines_of(&order.target).await?, &Vec::new())?;
    let kept = scene.disks_of(&order.target).await?;
    ensure_same("volumes after the delete", &kept, &vec!["data".to_owned(), "root".to_owned()])?;
    scene.remove(&order.target, &Part::Disks(vec!["root".to_owned()])).await?;
    ensure_same(
        "volumes when root was to go",
        &scene.disks_of(&order.target).await?,
        &vec!["data".to_owned()],
    )?;
    let observed = scene.bench.backend().observe(&order.target, None).await;
    let seen: Option<Vec<_>> =
        observed.ok().map(|observed| observed.disks.into_iter().map(|disk| disk.name).collect());
    ensure_same("disks observed without an order", &seen, &Some(vec!["data".to_owned()]))?;
    ensure_same("the other machine", &scene.things_of(&other.target).await?, &bystander)
}

pub(super) async fn kept_volume_is_used_again(harness: &dyn Harness) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let order = order("one")?;
    scene.make(&order).await?;
    let volumes = |things: Vec<super::Thing>| {
        things.into_iter().filter(|thing| thing.disk.is_some()).map(|thing| thing.id).collect::<Vec<_>>()
    };
    let before = volumes(scene.things_of(&order.target).await?);
    scene.remove(&order.target, &Part::Machine).await?;
    scene.make(&order).await?;
    scene.ensure_one(&order).await?;
    ensure_same("volumes of the machine made anew", &volumes(scene.things_of(&order.target).await?), &before)
}

pub(super) async fn foreign_machine_blocks(harness: &dyn Harness) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let order = order("one")?;
    scene.inject(Fault::ForeignMachine(order.target.clone())).await?;
    foreign_blocks(&scene, &order).await
}

pub(super) async fn foreign_volume_blocks(harness: &dyn Harness) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let order = order("one")?;
    scene.inject(Fault::ForeignVolume(order.target.clone(), "root".to_owned())).await?;
    foreign_blocks(&scene, &order).await
}

async fn foreign_blocks(scene: &Scene, order: &Order) -> Result<(), Failure> {
    let before = scene.things().await?;
    let observed = scene.observe(order).await?;
    ensure(observed.foreign.is_some() && observed.machine.is_none(), || {
        format!("something of the right name that is not ours was not told as foreign: {observed:?}")
    })?;
    let answer = scene.try_create(order).await;
    ensure(answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Refused), || {
        format!("create has to be refused, found {answer:?}")
    })?;
    for update in updates() {
        let answer = scene.try_update(order, &update).await;
        ensure(answer.is_err(), || {
            format!("{update:?} of a machine that is not ours was answered {answer:?}")
        })?;
    }
    for part in deletions() {
        scene.remove(&order.target, &part).await?;
    }
    scene.settle().await?;
    ensure_same("things after create, update and delete", &scene.things().await?, &before)
}
