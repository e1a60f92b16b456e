//! Two replicas of one operator.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use rustix::process::Signal;

use crate::stage::{Replica, Stage, assert_contains, eventually, shared_server};

async fn lease(stage: &Stage<'_>) -> LeaseSpec {
    stage.leases.get("widget-operator").await.unwrap().spec.unwrap()
}

/// Starts two replicas, of which the first is the leader.
async fn leader_and_standby(stage: &Stage<'_>) -> (Replica, Replica) {
    let first = stage.operator(&[]);
    first.await_line("started leading").await;
    let second = stage.operator(&[]);
    assert_eq!(second.await_probe("/readyz", 200).await, "ok\n");
    (first, second)
}

/// Returns how long there was no leader, by the times in the lease.
fn gap(before: &LeaseSpec, after: &LeaseSpec) -> Duration {
    let last = before.renew_time.as_ref().unwrap().0;
    let next = after.acquire_time.as_ref().unwrap().0;
    Duration::try_from(next.duration_since(last)).unwrap_or_default()
}

async fn await_new_leader(stage: &Stage<'_>, before: &LeaseSpec) -> LeaseSpec {
    eventually("the standby to lead", async || {
        let now = lease(stage).await;
        let holder = now.holder_identity.as_deref().unwrap_or_default();
        (!holder.is_empty() && now.holder_identity != before.holder_identity).then_some(now)
    })
    .await
}

#[tokio::test]
async fn a_leader_that_shuts_down_is_replaced_at_once() {
    let stage = Stage::new(shared_server().await, "handover").await;
    let (first, second) = leader_and_standby(&stage).await;
    let before = lease(&stage).await;
    assert_eq!(before.lease_transitions, Some(0));
    first.signal(Signal::TERM);
    first.await_end().await;
    assert!(first.log().iter().any(|line| line["message"] == "released the lease"), "{:?}", first.log());
    let after = await_new_leader(&stage, &before).await;
    assert_eq!(after.lease_transitions, Some(1));
    // The last renewal may be 10 s older than the shutdown; the lease would expire 30 s after it.
    assert!(gap(&before, &after) < Duration::from_secs(29), "{before:?} {after:?}");
    second.await_line("started leading").await;
    stage.create("one", "hello", 1).await;
    stage.await_ready("one", true).await;
}

#[tokio::test]
async fn a_leader_that_is_killed_is_replaced_after_its_lease_expires() {
    let stage = Stage::new(shared_server().await, "killed").await;
    let (first, second) = leader_and_standby(&stage).await;
    first.signal(Signal::KILL);
    let before = lease(&stage).await;
    let after = await_new_leader(&stage, &before).await;
    assert_eq!(after.lease_transitions, Some(1));
    assert!(gap(&before, &after) > Duration::from_secs(29), "{before:?} {after:?}");
    stage.create("one", "hello", 1).await;
    stage.await_ready("one", true).await;
    assert_contains(&second.metrics("http", None).await.1, &["widget_operator_leader 1"]);
}

#[tokio::test]
async fn only_the_leader_reconciles() {
    let stage = Stage::new(shared_server().await, "standby").await;
    let (first, second) = leader_and_standby(&stage).await;
    stage.create("one", "hello", 1).await;
    stage.await_ready("one", true).await;
    assert_contains(&first.metrics("http", None).await.1, &["widget_operator_leader 1", "outcome=\"done\""]);
    let standby = second.metrics("http", None).await.1;
    assert_contains(&standby, &["widget_operator_leader 0"]);
    assert!(!standby.contains("outcome=\"done\""), "{standby}");
}
