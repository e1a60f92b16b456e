//! The number of requests per machine.

use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;
use vitistack_testkit::AuditedRequest;

use super::bed::{Bed, OPERATORS, eventually};

const NAMESPACE: &str = "many";
const COUNT: usize = 200;

/// Writes and requests of each machine, on the average.
struct Cost {
    writes: f64,
    requests: f64,
}

#[expect(clippy::cast_precision_loss, reason = "hundreds of requests")]
fn cost(asked: &[AuditedRequest]) -> Cost {
    let of = |count: usize| count as f64 / COUNT as f64;
    Cost { writes: of(asked.iter().filter(|request| request.is_write()).count()), requests: of(asked.len()) }
}

/// How often what was asked, most often first, for the message of a failing test.
fn tally(asked: &[AuditedRequest]) -> String {
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    for request in asked {
        *counts.entry(format!("{} {} {}", request.verb, request.resource, request.code)).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.into_iter().map(|(what, count)| format!("{count:5} {what}")).collect::<Vec<_>>().join("\n")
}

fn asked(bed: &Bed) -> Vec<AuditedRequest> {
    bed.asked_by(&OPERATORS).into_iter().filter(|request| request.namespace == NAMESPACE).collect()
}

#[expect(clippy::print_stderr, reason = "the figures are what a reader of the log looks for")]
pub async fn two_hundred_machines_are_created_and_deleted_within_the_budget(bed: &Bed) {
    bed.namespace(NAMESPACE).await;
    let machines = bed.api("Machine", NAMESPACE);
    for index in 0..COUNT {
        let machine = json!({
            "apiVersion": "vitistack.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": format!("vm-{index:03}") }, "spec": { "template": "small" },
        });
        machines.create(&PostParams::default(), &serde_json::from_value(machine).unwrap()).await.unwrap();
    }
    let running = async || {
        let found = machines.list(&ListParams::default()).await.unwrap();
        let is_running = |phase: Option<&serde_json::Value>| phase == Some(&json!("Running"));
        found.items.iter().filter(|machine| is_running(machine.data.pointer("/status/phase"))).count()
    };
    let all = async || (running().await == COUNT).then_some(());
    eventually("every machine to run", all, async || format!("{} run", running().await)).await;
    let made = asked(bed);

    machines.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    for kind in ["Machine", "VirtualMachine", "VirtualMachineInstance", "PersistentVolumeClaim", "Secret"] {
        bed.await_none(kind, NAMESPACE).await;
    }
    let deleted = asked(bed).split_off(made.len());

    // A deletion takes three writes, and one more to report that KubeVirt takes longer than two seconds.
    for (what, asked, most) in [("create", &made, 5), ("delete", &deleted, 4)] {
        let cost = cost(asked);
        let report =
            format!("{what}: {:.2} writes, {:.2} requests each of {COUNT}", cost.writes, cost.requests);
        eprintln!("{report}\n{}", tally(asked));
        let quickest = quickest(asked);
        assert!(quickest <= most, "{what}: {quickest} writes, and not {most}:\n{}", tally(asked));
        assert!(cost.requests <= 9.0, "{what}: too many requests:\n{}", tally(asked));
    }
}

/// The writes of the machine that was quickest: one that takes long reports that, on a slow computer each of them.
fn quickest(asked: &[AuditedRequest]) -> usize {
    let of = |index: usize| {
        let name = format!("vm-{index:03}");
        asked.iter().filter(|request| request.is_write() && request.name.starts_with(&name)).count()
    };
    (0..COUNT).map(of).min().unwrap_or_default()
}
