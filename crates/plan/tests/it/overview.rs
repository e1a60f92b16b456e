//! Everything that is not ready, grouped by cause.

use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use vitistack_plan::{
    Inventory,
    explain::{Overview, explain, overview},
};
use vitistack_types::{
    ObjectId, ObjectReference,
    conditions::{self, Statement, reason},
    labels,
    v1alpha1::Machine,
};

use crate::explain::{
    ago, annotate, by_datacenter, claim, condition, fail, healthy_inventory, machine, now, provider, report,
    web,
};

/// Prints an overview.
fn page(overview: &Overview) -> String {
    let mut page = format!("{} objects\n", overview.count);
    for group in &overview.causes {
        let cause = &group.cause;
        let since = cause.since.map_or("unknown".to_owned(), |since| since.to_string());
        let blocked_by = group.blocked_by().map(|object| format!(" blocked by {object}")).unwrap_or_default();
        writeln!(page, "{:?} {} since {since}{blocked_by}", group.severity, group.objects.len()).unwrap();
        writeln!(page, "  {}: {}", cause.reason, cause.message).unwrap();
        for (label, text) in [("waiting for", &cause.waiting_for), ("fix", &cause.fix)] {
            if let Some(text) = text {
                writeln!(page, "  {label}: {text}").unwrap();
            }
        }
        for object in &group.objects {
            writeln!(page, "  - {object}").unwrap();
        }
    }
    page
}

/// A Machine that runs on `default/simulated-a`.
fn running(name: &str) -> Machine {
    let mut machine = machine(name);
    claim(&mut machine);
    report(&mut machine, condition("Ready", true, reason::RUNNING, "The machine is running", ago(5)));
    machine
}

/// A Machine that is not ready for this reason.
fn not_ready(name: &str, reason: &str, message: &str, minutes: i64) -> Machine {
    let mut machine = machine(name);
    claim(&mut machine);
    report(&mut machine, condition("Ready", false, reason, message, ago(minutes)));
    machine
}

/// An inventory in which everything is ready.
fn ready_inventory() -> Inventory {
    let mut inventory = healthy_inventory();
    *web(&mut inventory) = running("web-1");
    let ready = condition("Ready", true, reason::AS_SPECIFIED, "1 of 1 providers accept machines", ago(20));
    let west = inventory.datacenters.first_mut().unwrap();
    west.status.get_or_insert_default().conditions = vec![ready];
    inventory
}

#[test]
fn nothing_is_listed_if_everything_is_ready() {
    assert_eq!(overview(&ready_inventory(), None), Overview::default());
}

#[test]
fn an_unreachable_provider_is_one_cause_for_all_of_its_machines() {
    let mut inventory = ready_inventory();
    fail(&mut inventory.providers[0], reason::PROVIDER_UNREACHABLE, "10.0.0.1:8006 does not answer");
    for name in ["cache-2", "cache-1", "cache-3"] {
        inventory.machines.push(not_ready(name, reason::PROVIDER_UNREACHABLE, "no answer", 2));
    }
    insta::assert_snapshot!(page(&overview(&inventory, None)));
}

#[test]
fn causes_are_listed_worst_first() {
    let mut inventory = ready_inventory();
    // In progress, with more objects than any other cause.
    for (task, name) in [(7, "new-1"), (8, "new-2"), (9, "new-3"), (10, "new-4")] {
        let message = format!("Waiting for task {task} of the provider to finish");
        inventory.machines.push(not_ready(name, reason::CREATING, &message, 1));
    }
    // A person has to act: two Machines for one reason, then one each, the older first.
    for name in ["big-1", "big-2"] {
        let mut big = machine(name);
        big.spec.template = Some("huge".to_owned());
        inventory.machines.push(big);
    }
    inventory.machines.push(not_ready("db-2", reason::VM_FAILED, "The guest crashes: check its console", 3));
    inventory.machines.push(not_ready("db-1", reason::VM_FAILED, "The disk is damaged: replace it", 8));
    // Run, but need a restart.
    for name in ["old-1", "old-2", "old-3"] {
        let mut outdated = running(name);
        let message = "A change takes effect with the next restart";
        report(&mut outdated, condition("UpToDate", false, reason::RESTART_REQUIRED, message, ago(30)));
        inventory.machines.push(outdated);
    }
    insta::assert_snapshot!(page(&overview(&inventory, None)));
}

#[test]
fn an_object_with_two_causes_is_in_both_groups() {
    let mut inventory = ready_inventory();
    for name in ["big-1", "big-2"] {
        let mut big = machine(name);
        big.spec.template = Some("huge".to_owned());
        inventory.machines.push(big);
    }
    by_datacenter(&mut inventory.machines[1]);
    inventory.datacenters.clear();
    insta::assert_snapshot!(page(&overview(&inventory, None)));
}

#[test]
fn a_cause_outside_the_namespace_is_named() {
    let mut inventory = ready_inventory();
    let mut other = machine("other");
    other.metadata.namespace = Some("team-a".to_owned());
    other.spec.provider_ref = None;
    other.spec.datacenter_ref = Some(ObjectReference::builder().name("west").namespace("default").build());
    inventory.machines.push(other);
    by_datacenter(web(&mut inventory));
    web(&mut inventory).metadata.annotations = None;
    web(&mut inventory).metadata.finalizers = None;
    web(&mut inventory).status = None;
    annotate(&mut inventory.datacenters[0].metadata, labels::PAUSED, "true");
    annotate(&mut inventory.datacenters[0].metadata, labels::ALLOW_REFERENCES_FROM, "team-a");

    let pages = [Some("default"), Some("team-a"), Some("team-b"), None]
        .map(|namespace| format!("# {namespace:?}\n{}", page(&overview(&inventory, namespace))));
    insta::assert_snapshot!(pages.join("\n"));
}

#[test]
fn a_quota_below_what_is_used_is_listed() {
    let mut inventory = ready_inventory();
    let message =
        "spec.resourceQuotas.maxMachines is 1, but 2 is used: raise the quota, or delete or shrink machines";
    let over = Statement {
        type_: conditions::WITHIN_QUOTAS,
        status: Some(false),
        reason: reason::QUOTA_EXCEEDED,
        message,
    };
    let status = inventory.datacenters[0].status.get_or_insert_default();
    conditions::set(&mut status.conditions, &over, Some(1), ago(4));
    insta::assert_snapshot!(page(&overview(&inventory, None)));
}

#[test]
fn an_overview_serializes_with_every_object() {
    let mut inventory = ready_inventory();
    for number in 0..7 {
        let mut gone = not_ready(&format!("gone-{number}"), reason::DELETING, "Waiting for the disks", 2);
        gone.metadata.deletion_timestamp = Some(Time(ago(3)));
        inventory.machines.push(gone);
    }
    insta::assert_snapshot!(serde_json::to_string_pretty(&overview(&inventory, None)).unwrap());
}

/// The overview and `why OBJECT` are the same decision.
#[test]
fn every_object_is_listed_under_the_causes_that_explain_it() {
    let mut inventory = ready_inventory();
    fail(&mut inventory.providers[0], reason::PROVIDER_UNREACHABLE, "10.0.0.1:8006 does not answer");
    inventory.providers.push(provider("simulated-b"));
    inventory.machines.push(not_ready("cache-1", reason::PROVIDER_UNREACHABLE, "no answer", 2));
    let mut big = machine("big-1");
    big.spec.template = Some("huge".to_owned());
    inventory.machines.push(big);

    let overview = overview(&inventory, None);
    for object in &inventory.machines {
        let explanation = explain(&ObjectId::of(object), &inventory).unwrap();
        let explained: Vec<&str> =
            explanation.cause.iter().chain(&explanation.further).map(|cause| cause.reason.as_str()).collect();
        let mut listed: Vec<&str> = overview
            .causes
            .iter()
            .filter(|group| group.objects.contains(&explanation.subject))
            .map(|group| group.cause.reason.as_str())
            .collect();
        listed.sort_by_key(|reason| explained.iter().position(|each| each == reason));
        assert_eq!(listed, explained, "{}", explanation.subject);
    }
}

/// Each Machine is looked up in an index, so that the work grows with the number of Machines and not with its square.
#[test]
fn ten_thousand_machines_are_grouped() {
    let mut inventory = ready_inventory();
    inventory.now = now();
    let quotas = vitistack_types::v1alpha1::ResourceQuotas::builder().max_machines(10).build();
    inventory.datacenters[0].spec.resource_quotas = Some(quotas);
    for number in 0..5_000 {
        inventory.machines.push(not_ready(&format!("cache-{number}"), reason::VM_FAILED, "crashed", 2));
        let mut waiting = machine(&format!("new-{number}"));
        by_datacenter(&mut waiting);
        inventory.machines.push(waiting);
    }

    let overview = overview(&inventory, None);
    let sizes: Vec<(&str, usize)> =
        overview.causes.iter().map(|group| (group.cause.reason.as_str(), group.objects.len())).collect();
    assert_eq!(sizes, [("VMFailed", 5_000), ("QuotaExceeded", 4_990), ("Pending", 10)]);
}
