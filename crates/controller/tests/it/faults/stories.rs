//! The stories that every Machine lives through, each broken off at every single point.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    calm,
    life::Point,
    plan::{Plan, Trip},
    play,
    play::House,
    scenario::{Action, Deed, Pool, Scenario, Then},
};

fn action(words: &str, deed: Deed) -> Action {
    Action { words: words.to_owned(), deed, then: Then::Settle }
}

fn create(spec: &Value) -> Action {
    let deed = Deed::Create { kind: "Machine", name: "vm".to_owned(), content: json!({ "spec": spec }) };
    action("creates vm", deed)
}

fn change(words: &str, patch: Value) -> Action {
    action(words, Deed::Change { kind: "Machine", name: "vm".to_owned(), patch })
}

fn delete() -> Action {
    action("deletes vm", Deed::Delete { name: "vm".to_owned() })
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

/// Plays the story, calmly and then once for every point at which the operator can die, and for every write that can go
/// wrong.
fn break_off(actions: &[Action]) {
    for latency in [Duration::ZERO, Duration::from_secs(2)] {
        break_off_on(&Scenario {
            providers: vec!["provider-a".to_owned()],
            pool: None,
            latency,
            reuse_ids: true,
            actions: actions.to_vec(),
            is_patient: true,
        });
    }
}

/// The same for Machines of a Datacenter with two providers, of which the first has room for one machine.
fn break_off_in_datacenter(quota: Option<u64>, actions: &[Action]) {
    let pool = Pool {
        providers: vec![("pool-a".to_owned(), Some(1)), ("pool-b".to_owned(), None)],
        quota,
        is_contested: quota.is_some(),
    };
    let content = pool.datacenter();
    let datacenter = Deed::Create { kind: "Datacenter", name: "dc".to_owned(), content };
    break_off_on(&Scenario {
        providers: pool.providers.iter().map(|(name, _)| name.clone()).collect(),
        pool: Some(pool),
        latency: Duration::ZERO,
        reuse_ids: true,
        actions: [&[action("creates the Datacenter", datacenter)], actions].concat(),
        is_patient: true,
    });
}

fn break_off_on(scenario: &Scenario) {
    play(async {
        let house = House::new().await;
        let calm = calm(&house, scenario).await.unwrap_or_else(|told| panic!("{told}"));
        let (writes, steps) = calm.counts;
        let writes = (1..=writes).flat_map(|number| [Point::BeforeWrite(number), Point::AfterWrite(number)]);
        let steps = (1..=steps).flat_map(|number| [Point::BeforeStep(number), Point::AfterStep(number)]);
        let trips = (1..=calm.counts.0)
            .flat_map(|number| [Trip::Conflict, Trip::Unheard].map(|trip| Plan::trip(number, trip)));
        for plan in writes.chain(steps).map(Plan::crash).chain(trips) {
            let play = house.play(scenario, &plan, Some(&calm.settled)).await;
            if let Some(problem) = play.problem {
                let Plan { crashes, trips, .. } = plan;
                panic!(
                    "broken off {crashes:?}, tripped {trips:?}, latency {:?}:\n{}\n\n{problem}",
                    scenario.latency,
                    play.story.join("\n")
                );
            }
        }
    });
}

#[test]
fn a_machine_is_made_and_deleted_wherever_the_operator_dies() {
    break_off(&[create(&with_disks()), delete()]);
}

#[test]
fn a_machine_is_resized_and_restarted_wherever_the_operator_dies() {
    let resize = json!({ "spec": { "resources": { "cpu": { "cores": 3 }, "memory": { "size": "4Gi" } } } });
    break_off(&[
        create(&small()),
        change("resizes vm", resize),
        change("restarts vm", restart_at("2030-01-01T01:00:00Z")),
    ]);
}

#[test]
fn a_machine_is_switched_off_and_on_wherever_the_operator_dies() {
    break_off(&[
        create(&small()),
        change("switches vm off", json!({ "spec": { "powerState": "Stopped" } })),
        change("switches vm on", json!({ "spec": { "powerState": "Running" } })),
    ]);
}

#[test]
fn disks_are_grown_and_removed_wherever_the_operator_dies() {
    let grown = json!({ "spec": { "disks": [
        { "name": "data", "size": "9Gi" },
        { "name": "kept", "size": "6Gi", "reclaimPolicy": "Retain" },
    ] } });
    break_off(&[
        create(&with_disks()),
        change("grows a disk", grown),
        change("removes the disks", json!({ "spec": { "disks": [] } })),
    ]);
}

#[test]
fn a_restored_machine_is_held_and_adopted_wherever_the_operator_dies() {
    break_off(&[
        create(&small()),
        action("restores vm", Deed::Restore { name: "vm".to_owned() }),
        action("adopts vm", Deed::Adopt { name: "vm".to_owned() }),
        delete(),
    ]);
}

#[test]
fn a_late_reference_and_a_pause_are_honoured_wherever_the_operator_dies() {
    let mut spec = small();
    spec["networks"] = json!([{ "name": "eth0", "networkName": "lan" }]);
    let content = json!({ "spec": { "bridge": "br0" } });
    let network = Deed::Create { kind: "NetworkConfiguration", name: "lan".to_owned(), content };
    let paused = |value: Value| json!({ "metadata": { "annotations": { "vitistack.io/paused": value } } });
    break_off(&[
        create(&spec),
        action("creates the network", network),
        change("pauses vm", paused(json!("true"))),
        change("switches vm off", json!({ "spec": { "powerState": "Stopped" } })),
        change("resumes vm", paused(Value::Null)),
    ]);
}

fn of_datacenter(name: &str) -> Action {
    let content = json!({ "spec": { "template": "small", "datacenterRef": { "name": "dc" } } });
    action(&format!("creates {name}"), Deed::Create { kind: "Machine", name: name.to_owned(), content })
}

#[test]
fn machines_are_placed_by_priority_wherever_the_operators_die() {
    let first = of_datacenter("vm");
    break_off_in_datacenter(None, &[first, of_datacenter("vm-2"), delete()]);
}

#[test]
fn a_machine_over_the_quota_gets_in_when_another_goes_wherever_the_operators_die() {
    break_off_in_datacenter(Some(1), &[of_datacenter("vm"), of_datacenter("vm-2"), delete()]);
}

#[test]
fn a_machine_without_its_datacenter_is_told_so_wherever_the_operators_die() {
    let change = change("switches vm off", json!({ "spec": { "powerState": "Stopped" } }));
    let pool = Pool { providers: vec![("pool-a".to_owned(), None)], quota: None, is_contested: false };
    break_off_on(&Scenario {
        providers: vec!["pool-a".to_owned()],
        pool: Some(pool),
        latency: Duration::ZERO,
        reuse_ids: true,
        actions: vec![of_datacenter("vm"), change],
        is_patient: true,
    });
}
