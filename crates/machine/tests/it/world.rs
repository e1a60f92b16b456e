//! The behavior of a world: capacity, zones, faults, changes, secrets.

use std::{collections::BTreeSet, time::Duration};

use futures::StreamExt as _;
use vitistack_machine::{
    Backend as _, ErrorKind, Order, Part, Progress, Update,
    simulated::{Capacity, Settings},
};
use vitistack_plan::{
    Redacted,
    machine::{DesiredCloudInit, Power, Problem, SecretPart},
};
use vitistack_types::{
    conditions::reason,
    decode, samples,
    v1alpha1::{DiskSource, MachineProvider},
};

use crate::fixture::{Process, latency, order};

#[tokio::test]
async fn a_full_provider_reports_its_usage_before_and_during_a_create() {
    for (capacity, usage) in [
        (
            Capacity { machines: Some(1), ..Capacity::default() },
            "provider full: 1 of 1 machines in use (spec.capacity.machines)",
        ),
        (
            Capacity { cpu: Some(1), ..Capacity::default() },
            "provider full: 1 of 1 CPUs in use, 1 more requested (spec.capacity.cpu)",
        ),
        (
            Capacity { memory: Some(3 << 30), ..Capacity::default() },
            "provider full: 2Gi of 3Gi memory in use, 2Gi more requested (spec.capacity.memory)",
        ),
        (
            Capacity { storage: Some(30 << 30), ..Capacity::default() },
            "provider full: 20Gi of 30Gi storage in use, 20Gi more requested (spec.capacity.storage)",
        ),
    ] {
        let process = Process::start(Settings { capacity, ..Settings::default() }).await;
        process.backend.create(&order("first")).await.unwrap();
        let second = order("second");
        let observed = process.backend.observe(&second.target, Some(&second)).await.unwrap();
        let refusal = observed.problems.first().map(Problem::refusal).unwrap();
        assert_eq!(refusal.reason, reason::INSUFFICIENT_RESOURCES);
        assert!(refusal.message.contains(usage), "{}", refusal.message);
        let error = process.backend.create(&second).await.unwrap_err();
        assert_eq!((error.kind, &error.message), (ErrorKind::NoCapacity, &refusal.message));
        assert_eq!(process.backend.inspect(|world| world.machines().count()), 1);
    }
}

#[tokio::test]
async fn a_resize_beyond_the_capacity_is_refused_and_changes_nothing() {
    let capacity = Capacity { cpu: Some(2), ..Capacity::default() };
    let process = Process::start(Settings { capacity, ..Settings::default() }).await;
    let mut order = order("one");
    process.backend.create(&order).await.unwrap();
    order.desired.cpu.cores = 3;
    let error = process.backend.update(&order, &Update::Specification).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoCapacity);
    let machine = process.backend.observe(&order.target, Some(&order)).await.unwrap().machine.unwrap();
    assert_eq!((machine.cpu.unwrap().cores, machine.is_current), (1, false));
}

#[tokio::test]
async fn machines_without_a_zone_are_spread_over_zones_and_hosts() {
    let zones = vec!["north".to_owned(), "south".to_owned()];
    let process = Process::start(Settings { zones, ..Settings::default() }).await;
    for number in 0..6 {
        process.backend.create(&order(&format!("vm-{number}"))).await.unwrap();
    }
    let (hosts, addresses): (BTreeSet<_>, BTreeSet<_>) = process
        .backend
        .inspect(|world| world.machines().map(|machine| (machine.host.clone(), machine.addresses())).unzip());
    assert_eq!((hosts.len(), addresses.len()), (6, 6));
    assert!(hosts.contains("north-host-1") && hosts.contains("south-host-3"), "{hosts:?}");
}

#[tokio::test]
async fn a_missing_claim_is_refused_and_an_existing_one_is_copied() {
    let process = Process::start(Settings::default()).await;
    let mut copy = order("copy");
    copy.desired.disks[0].source = Some(DiskSource::claim("first-root"));
    let observed = process.backend.observe(&copy.target, Some(&copy)).await.unwrap();
    assert!(matches!(observed.problems.as_slice(), [Problem::Storage(_)]), "{observed:?}");
    let error = process.backend.create(&copy).await.unwrap_err();
    assert!(error.kind == ErrorKind::Refused && error.message.contains("first-root"), "{error:?}");
    process.backend.create(&order("first")).await.unwrap();
    assert_eq!(process.backend.create(&copy).await.unwrap(), Progress::Done);
}

#[tokio::test]
async fn an_immutable_field_is_refused_by_name_and_the_rest_is_changed() {
    let process = Process::start(Settings::default()).await;
    let mut order = order("one");
    process.backend.create(&order).await.unwrap();
    order.desired.disks[0].storage_class = Some("fast".to_owned());
    order.desired.disks[0].size = "30Gi".parse().unwrap();
    let error = process.backend.update(&order, &Update::Specification).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused);
    assert!(error.message.contains("spec.disks[root].storageClass"), "{error}");
    let observed = process.backend.observe(&order.target, Some(&order)).await.unwrap();
    assert_eq!(observed.disks[0].size, Some("30Gi".parse().unwrap()));
    let machine = observed.machine.unwrap();
    assert!(machine.is_current, "the changeable fields were changed");
    assert!(!machine.unchangeable.is_empty(), "the other fields are reported");
}

#[tokio::test]
async fn a_subscriber_receives_changes_by_requests_and_by_time() {
    let process = Process::start(latency(5)).await;
    let mut changes = process.backend.changes();
    let order = order("one");
    process.backend.create(&order).await.unwrap();
    assert_eq!(changes.next().await.unwrap(), order.target.identity);
    let power = |machine: Option<vitistack_plan::machine::ObservedMachine>| machine.unwrap().power;
    let observed = process.backend.observe(&order.target, None).await.unwrap();
    assert_eq!((power(observed.machine), observed.task.is_some()), (Power::Starting, true));
    // From here on nothing is called; only the clock advances.
    process.clock.advance(Duration::from_secs(5));
    assert_eq!(changes.next().await.unwrap(), order.target.identity);
    let observed = process.backend.observe(&order.target, None).await.unwrap();
    assert_eq!((power(observed.machine), observed.task), (Power::Running, None));
}

#[tokio::test]
async fn a_failed_creation_is_reported_until_the_next_one_succeeds_also_after_restarts() {
    let mut process = Process::start(latency(5)).await;
    let (one, other) = (order("one"), order("other"));
    let failure = async |process: &Process, order: &Order| {
        process.backend.observe(&order.target, Some(order)).await.unwrap().failure
    };
    process.backend.intervene(|world, _| world.faults_mut().failed_tasks = 1).await.unwrap();
    assert!(matches!(process.backend.create(&one).await.unwrap(), Progress::Working(_)));
    assert_eq!(failure(&process, &one).await, None);
    process.settle();
    let reported = failure(&process, &one).await.unwrap();
    assert!(reported.contains("failed to create machine \"one\""), "{reported}");
    process.restart().await;
    assert_eq!(failure(&process, &one).await.as_ref(), Some(&reported), "it follows from the saved task");
    process.backend.create(&other).await.unwrap();
    process.restart().await;
    assert_eq!(failure(&process, &one).await.as_ref(), Some(&reported), "it was saved with the next change");
    assert_eq!(failure(&process, &other).await, None);
    process.backend.create(&one).await.unwrap();
    process.settle();
    assert_eq!(failure(&process, &one).await, None);
    process.restart().await;
    assert_eq!(failure(&process, &one).await, None);
}

#[tokio::test]
async fn a_task_that_ended_before_a_failure_does_not_hide_it_after_a_restart() {
    let mut process = Process::start(latency(5)).await;
    let mut order = order("one");
    process.backend.create(&order).await.unwrap();
    process.settle();
    // An update that detaches the disk, then the failing deletion of its volume: two tasks with one identity.
    let disk = order.desired.disks.pop().unwrap().name;
    process.backend.update(&order, &Update::Specification).await.unwrap();
    process.clock.advance(Duration::from_secs(1));
    process.backend.intervene(|world, _| world.faults_mut().failed_tasks = 1).await.unwrap();
    process.backend.delete(&order.target, &Part::Disks(vec![disk])).await.unwrap();
    process.settle();
    let before = process.backend.observe(&order.target, None).await.unwrap();
    assert!(before.failure.is_some());
    process.backend.create(&self::order("other")).await.unwrap();
    process.restart().await;
    assert_eq!(process.backend.observe(&order.target, None).await.unwrap(), before);
}

#[tokio::test]
async fn a_changed_secret_is_detected_and_no_secret_is_saved() {
    let process = Process::start(Settings::default()).await;
    let mut order = order("one");
    let mut with_secret = |content: &str| {
        order.desired.cloud_init = Some(DesiredCloudInit {
            user_data: None,
            network_data: None,
            secret: Some(SecretPart {
                name: "secret".to_owned(),
                key: "key".to_owned(),
                content: Redacted::new(content.to_owned()),
            }),
        });
        order.clone()
    };
    let (first, second) = (with_secret("hunter2"), with_secret("hunter3"));
    process.backend.create(&first).await.unwrap();
    for (order, is_current) in [(&first, true), (&second, false)] {
        let observed = process.backend.observe(&order.target, Some(order)).await.unwrap();
        assert_eq!(observed.machine.unwrap().is_current, is_current);
    }
    let stored = process.store.load().await.unwrap();
    assert!(!stored.records.is_empty());
    assert!(stored.records.iter().all(|record| !String::from_utf8_lossy(record).contains("hunter")));
}

#[tokio::test]
async fn settings_are_read_from_the_provider() {
    let sample = samples().iter().find(|sample| sample.name == "machine-provider-simulated").unwrap();
    let provider: MachineProvider = decode(serde_saphyr::from_str(sample.manifest).unwrap()).unwrap();
    let settings = Settings::from(&provider.spec);
    assert_eq!(
        settings,
        Settings {
            seed: 7,
            latency: Duration::from_secs(2),
            zones: vec!["zone-a".to_owned(), "zone-b".to_owned()],
            capacity: Capacity {
                machines: Some(100),
                cpu: Some(400),
                memory: Some(2 << 40),
                storage: Some(50 << 40),
            },
            ..Settings::default()
        }
    );
}

#[tokio::test]
async fn two_worlds_have_different_machine_ids_and_addresses() {
    let mut seen = Vec::new();
    for name in ["world-default-rack-one-1", "world-default-rack-two-2", "world-default-rack-one-1"] {
        let process = Process::start(Settings::default().in_world(name)).await;
        process.backend.create(&order("vm")).await.unwrap();
        process.settle();
        let found = process.backend.inspect(|world| {
            world.machines().map(|machine| (machine.id, machine.addresses())).collect::<Vec<_>>()
        });
        assert!(matches!(&found[..], [(_, addresses)] if addresses.len() == 1), "{found:?}");
        seen.push(found);
    }
    assert_eq!(seen[0], seen[2]);
    assert_ne!(seen[0], seen[1]);
}
