//! Leader election: one replica leads, and the next takes over.

use rustix::process::Signal;
use serde_json::json;
use vitistack_testkit::AuditedRequest;

use super::bed::{Bed, OPERATORS, REMOTES, Replica};

const NAMESPACE: &str = "leaders";

/// Creates Machines while the leader is replaced.
async fn work(bed: &Bed, prefix: &str) -> Vec<String> {
    let names: Vec<String> = (0..10).map(|index| format!("{prefix}-{index}")).collect();
    for name in &names {
        bed.machine(NAMESPACE, name, json!({ "template": "small" })).await;
    }
    names
}

async fn finish(bed: &Bed, names: &[String]) {
    for name in names {
        bed.reach(NAMESPACE, name, "Running").await;
    }
    for name in names {
        bed.delete("Machine", NAMESPACE, name).await;
    }
    bed.await_none("VirtualMachine", NAMESPACE).await;
    bed.await_none("Machine", NAMESPACE).await;
}

pub async fn a_leader_that_is_terminated_is_replaced(bed: &Bed, first: Replica) -> Replica {
    bed.namespace(NAMESPACE).await;
    // A short interval, since a later test counts reconciles.
    let second = bed.operator(OPERATORS[1], &[("RECONCILE_INTERVAL", "1s")]);
    second.await_line("standing by", |line| line["setting"] == "HEALTH_PROBE_BIND_ADDRESS").await;
    let names = work(bed, "handed-over").await;
    first.signal(Signal::TERM);
    first.await_end().await;
    second.await_leading().await;
    finish(bed, &names).await;
    second
}

pub async fn a_leader_that_is_killed_is_replaced(bed: &Bed, second: Replica) -> Replica {
    let third = bed.operator(OPERATORS[2], &[]);
    third.await_line("standing by", |line| line["setting"] == "HEALTH_PROBE_BIND_ADDRESS").await;
    let names = work(bed, "taken-over").await;
    second.signal(Signal::KILL);
    third.await_leading().await;
    finish(bed, &names).await;
    let mut writers: Vec<String> = bed
        .asked_by(&OPERATORS)
        .into_iter()
        .filter(AuditedRequest::is_write)
        .map(|request| request.user)
        .collect();
    writers.dedup();
    assert_eq!(writers, OPERATORS, "replicas wrote concurrently");
    third
}

/// The roles are sufficient.
pub fn no_request_was_forbidden(bed: &Bed) {
    let users: Vec<&str> = OPERATORS.iter().chain(&REMOTES).copied().collect();
    let is_refused = |request: &AuditedRequest| users.contains(&request.user.as_str()) && request.code == 403;
    // A quota refuses with the same status code.
    let refused: Vec<_> = bed
        .server
        .audit()
        .unwrap()
        .into_iter()
        .filter(|request| is_refused(request) && request.namespace != "full")
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}
