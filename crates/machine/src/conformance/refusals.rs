//! Rules about what must not happen: changes by looking, by a provider that is away, and secrets that print.

use vitistack_plan::{
    Redacted,
    machine::{DesiredCloudInit, SecretPart},
};

use super::{
    Failure, Fault, Harness,
    fixture::order,
    scene::{Scene, deletions, ensure, ensure_same, updates},
};
use crate::{BackendError, ErrorKind, Order, Progress};

pub(super) async fn observe_changes_nothing(harness: &dyn Harness) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let made = order("one")?;
    let mut changed = made.clone();
    changed.desired.cpu.cores += 1;
    changed.desired.disks.pop();
    look(&scene, "nothing", &[&made]).await?;
    scene.make(&made).await?;
    look(&scene, "a machine", &[&made, &changed]).await?;
    scene.remove(&made.target, &crate::Part::Machine).await?;
    look(&scene, "volumes", &[&made, &changed]).await?;
    let blocked = order("two")?;
    scene.inject(Fault::ForeignMachine(blocked.target.clone())).await?;
    look(&scene, "something foreign", &[&blocked]).await
}

/// Observes, with an order and without, and compares what there is before and after.
async fn look(scene: &Scene, what: &str, orders: &[&Order]) -> Result<(), Failure> {
    let before = scene.things().await?;
    for order in orders {
        let first = scene.observe(order).await?;
        let second = scene.observe(order).await?;
        ensure_same(&format!("a second observation of {what}"), &second, &first)?;
        let bare = scene.bench.backend().observe(&order.target, None).await;
        ensure(bare.is_ok(), || format!("failed to observe {what} without an order: {bare:?}"))?;
    }
    scene.settle().await?;
    ensure_same(&format!("things after observing {what}"), &scene.things().await?, &before)
}

pub(super) async fn unreachable_is_told(harness: &dyn Harness) -> Result<(), Failure> {
    is_told(harness, Fault::Unreachable, ErrorKind::Unreachable).await
}

pub(super) async fn unauthenticated_is_told(harness: &dyn Harness) -> Result<(), Failure> {
    is_told(harness, Fault::Unauthenticated, ErrorKind::Unauthenticated).await
}

async fn is_told(harness: &dyn Harness, fault: fn(bool) -> Fault, wanted: ErrorKind) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let (made, missing) = (order("one")?, order("two")?);
    let mut changed = made.clone();
    changed.desired.memory = super::fixture::parse("2Gi")?;
    scene.make(&made).await?;
    let before = scene.things().await?;
    scene.inject(fault(true)).await?;

    let mut answers = vec![("observe", scene.bench.backend().observe(&made.target, Some(&made)).await.err())];
    answers.push(("create", scene.try_create(&missing).await.err()));
    for update in updates() {
        answers.push(("update", scene.try_update(&changed, &update).await.err()));
    }
    for part in deletions() {
        answers.push(("delete", scene.try_delete(&made.target, &part).await.err()));
    }
    for (call, error) in answers {
        let kind = error.as_ref().map(|error| error.kind);
        ensure(kind == Some(wanted), || format!("{call} has to tell {wanted:?}, found {error:?}"))?;
    }

    scene.inject(fault(false)).await?;
    scene.settle().await?;
    ensure_same("things when it answers again", &scene.things().await?, &before)?;
    scene.make(&missing).await
}

pub(super) async fn secrets_do_not_print(harness: &dyn Harness) -> Result<(), Failure> {
    const SECRET: &str = "conformance-hunter2-secret";
    let scene = Scene::fresh(harness).await?;
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
            scene.inject(fault).await?;
        }
        let observed = scene.bench.backend().observe(&order.target, Some(&order)).await;
        printed.push(format!("{observed:?}"));
        printed.push(told(&scene.try_create(&order).await));
        for update in updates() {
            printed.push(told(&scene.try_update(&order, &update).await));
        }
        for part in deletions() {
            printed.push(told(&scene.try_delete(&order.target, &part).await));
        }
        scene.inject(Fault::Unreachable(false)).await?;
        scene.inject(Fault::Unauthenticated(false)).await?;
        scene.settle().await?;
    }
    let leak = printed.iter().position(|text| text.contains(SECRET));
    ensure(leak.is_none(), || format!("answer {} of the rule prints the secret", leak.unwrap_or_default()))
}

fn told(answer: &Result<Progress, BackendError>) -> String {
    let error = answer.as_ref().err().map(ToString::to_string).unwrap_or_default();
    format!("{answer:?} {error}")
}
