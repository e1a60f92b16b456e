//! The common life cycles of a Machine, each with a crash at every single crash point and a fault of every
//! single write.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    control_plane::ControlPlane,
    fault_free_run,
    plan::{CrashPoint, Plan, WriteFault},
    scenario::{Operation, Pool, Scenario, UserAction, Wait},
    with_paused_clock,
};

fn action(description: &str, operation: Operation) -> UserAction {
    UserAction { description: description.to_owned(), operation, wait: Wait::UntilSettled }
}

fn create(spec: &Value) -> UserAction {
    let operation =
        Operation::Create { kind: "Machine", name: "vm".to_owned(), content: json!({ "spec": spec }) };
    action("creates vm", operation)
}

fn change(description: &str, patch: Value) -> UserAction {
    action(description, Operation::Change { kind: "Machine", name: "vm".to_owned(), patch })
}

fn delete() -> UserAction {
    action("deletes vm", Operation::Delete { name: "vm".to_owned() })
}

fn small() -> Value {
    json!({ "template": "small", "providerRef": { "name": "provider-a" } })
}

fn with_disks() -> Value {
    let mut spec = small();
    spec["disks"] = json!([
        { "name": "data", "size": "5Gi" },
        { "name": "kept", "size": "6Gi", "reclaimPolicy": "Retain" },
    ]);
    spec
}

fn restart_at(time: &str) -> Value {
    json!({ "metadata": { "annotations": { "vitistack.io/restart-at": time } } })
}

/// Tests every single fault on one provider, which answers at once or after a while.
fn test_every_fault(actions: &[UserAction]) {
    for latency in [Duration::ZERO, Duration::from_secs(2)] {
        test_every_fault_of(&Scenario {
            providers: vec!["provider-a".to_owned()],
            pool: None,
            latency,
            reuse_ids: true,
            actions: actions.to_vec(),
            is_sequential: true,
        });
    }
}

/// Tests every single fault in a Datacenter with two providers, the first of which has capacity for one
/// machine.
fn test_every_fault_in_datacenter(quota: Option<u64>, actions: &[UserAction]) {
    let pool = Pool {
        providers: vec![("pool-a".to_owned(), Some(1)), ("pool-b".to_owned(), None)],
        quota,
        is_contested: quota.is_some(),
    };
    let content = pool.datacenter();
    let datacenter = Operation::Create { kind: "Datacenter", name: "dc".to_owned(), content };
    test_every_fault_of(&Scenario {
        providers: pool.providers.iter().map(|(name, _)| name.clone()).collect(),
        pool: Some(pool),
        latency: Duration::ZERO,
        reuse_ids: true,
        actions: [&[action("creates the Datacenter", datacenter)], actions].concat(),
        is_sequential: true,
    });
}

/// Runs the scenario without faults, then once for every crash point and every fault of a write.
fn test_every_fault_of(scenario: &Scenario) {
    with_paused_clock(async {
        let control_plane = ControlPlane::new().await;
        let expected =
            fault_free_run(&control_plane, scenario).await.unwrap_or_else(|problem| panic!("{problem}"));

        for plan in single_fault_plans(expected.counts) {
            let result = control_plane.run(scenario, &plan, Some(&expected.settled)).await;
            if let Some(problem) = result.problem {
                let Plan { crashes, write_faults, .. } = plan;
                panic!(
                    "crashes {crashes:?}, write faults {write_faults:?}, latency {:?}:\n{}\n\n{problem}",
                    scenario.latency,
                    result.log.join("\n")
                );
            }
        }
    });
}

/// Returns a plan for every crash point and every fault of a write, given the numbers of writes and provider
/// calls.
fn single_fault_plans((writes, calls): (u64, u64)) -> Vec<Plan> {
    let at_writes =
        (1..=writes).flat_map(|number| [CrashPoint::BeforeWrite(number), CrashPoint::AfterWrite(number)]);
    let at_calls = (1..=calls)
        .flat_map(|number| [CrashPoint::BeforeProviderCall(number), CrashPoint::AfterProviderCall(number)]);
    let write_faults = (1..=writes).flat_map(|number| {
        [WriteFault::Conflict, WriteFault::LostResponse].map(|fault| Plan::write_fault(number, fault))
    });
    at_writes.chain(at_calls).map(Plan::crash).chain(write_faults).collect()
}

#[test]
fn create_and_delete_survive_every_single_fault() {
    test_every_fault(&[create(&with_disks()), delete()]);
}

#[test]
fn resize_and_restart_survive_every_single_fault() {
    let resize = json!({ "spec": { "resources": { "cpu": { "cores": 3 }, "memory": { "size": "4Gi" } } } });
    test_every_fault(&[
        create(&small()),
        change("resizes vm", resize),
        change("restarts vm", restart_at("2030-01-01T01:00:00Z")),
    ]);
}

#[test]
fn stop_and_start_survive_every_single_fault() {
    test_every_fault(&[
        create(&small()),
        change("stops vm", json!({ "spec": { "powerState": "Stopped" } })),
        change("starts vm", json!({ "spec": { "powerState": "Running" } })),
    ]);
}

#[test]
fn growing_and_removing_disks_survive_every_single_fault() {
    let grown = json!({ "spec": { "disks": [
        { "name": "data", "size": "9Gi" },
        { "name": "kept", "size": "6Gi", "reclaimPolicy": "Retain" },
    ] } });
    test_every_fault(&[
        create(&with_disks()),
        change("grows a disk", grown),
        change("removes the disks", json!({ "spec": { "disks": [] } })),
    ]);
}

#[test]
fn restore_and_adoption_survive_every_single_fault() {
    test_every_fault(&[
        create(&small()),
        action("restores vm", Operation::Restore { name: "vm".to_owned() }),
        action("adopts vm", Operation::Adopt { name: "vm".to_owned() }),
        delete(),
    ]);
}

#[test]
fn a_late_reference_and_a_pause_survive_every_single_fault() {
    let mut spec = small();
    spec["networks"] = json!([{ "name": "eth0", "networkName": "lan" }]);
    let content = json!({ "spec": { "bridge": "br0" } });
    let network = Operation::Create { kind: "NetworkConfiguration", name: "lan".to_owned(), content };
    let paused = |value: Value| json!({ "metadata": { "annotations": { "vitistack.io/paused": value } } });
    test_every_fault(&[
        create(&spec),
        action("creates the network", network),
        change("pauses vm", paused(json!("true"))),
        change("stops vm", json!({ "spec": { "powerState": "Stopped" } })),
        change("resumes vm", paused(Value::Null)),
    ]);
}

/// Creates a Machine of the Datacenter.
fn create_in_datacenter(name: &str) -> UserAction {
    let content = json!({ "spec": { "template": "small", "datacenterRef": { "name": "dc" } } });
    action(&format!("creates {name}"), Operation::Create { kind: "Machine", name: name.to_owned(), content })
}

#[test]
fn placement_by_priority_survives_every_single_fault() {
    let first = create_in_datacenter("vm");
    test_every_fault_in_datacenter(None, &[first, create_in_datacenter("vm-2"), delete()]);
}

#[test]
fn a_freed_quota_is_used_despite_every_single_fault() {
    test_every_fault_in_datacenter(
        Some(1),
        &[create_in_datacenter("vm"), create_in_datacenter("vm-2"), delete()],
    );
}

#[test]
fn a_missing_datacenter_is_reported_despite_every_single_fault() {
    let change = change("stops vm", json!({ "spec": { "powerState": "Stopped" } }));
    let pool = Pool { providers: vec![("pool-a".to_owned(), None)], quota: None, is_contested: false };
    test_every_fault_of(&Scenario {
        providers: vec!["pool-a".to_owned()],
        pool: Some(pool),
        latency: Duration::ZERO,
        reuse_ids: true,
        actions: vec![create_in_datacenter("vm"), change],
        is_sequential: true,
    });
}
