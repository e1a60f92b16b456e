//! How the objects in a cluster are observed.

use serde::Deserialize;
use serde_json::{Value, json};
use vitistack_machine::Backend;
use vitistack_plan::machine::Observed;

use super::{
    case::{Case, IDENTITY, case},
    fake_cluster::FakeCluster,
};

#[derive(Deserialize)]
struct State {
    title: String,
    vm: Option<Value>,
    vmi: Option<Value>,
    #[serde(default)]
    cluster: Vec<Value>,
}

/// Merges a value into another.
fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (field, value) in over {
                merge(base.entry(field).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

fn merged(kind: &str, spec: &Value, over: &Value) -> Value {
    let mut object = json!({
        "kind": kind, "apiVersion": "kubevirt.io/v1",
        "metadata": { "name": "vm", "namespace": "default", "labels": { "vitistack.io/identity": IDENTITY } },
        "spec": spec,
    });
    merge(&mut object, over);
    object
}

fn describe(observed: &Observed) -> String {
    let machine = observed.machine.as_ref().map_or_else(
        || "no machine".to_owned(),
        |machine| {
            let mut text = format!("{:?}", machine.power);
            let mut add = |name: &str, value: Option<String>| {
                if let Some(value) = value {
                    text.extend(["\n  ", name, ": ", &value]);
                }
            };
            add("instance", machine.instance.clone());
            add("node", machine.node.clone());
            add("addresses", (!machine.addresses.is_empty()).then(|| machine.addresses.join(", ")));
            add("started", machine.started.map(|time| time.to_string()));
            add("restarted for", machine.restarted_for.clone());
            add("restart needed", machine.restart_needed.then(|| "yes".to_owned()));
            text
        },
    );
    let task = observed.task.iter().map(|task| format!("\n  task: {task}"));
    let problems = observed
        .problems
        .iter()
        .map(|problem| format!("\n  {}: {}", problem.refusal().reason, problem.refusal()));
    format!("{machine}{}", task.chain(problems).collect::<String>())
}

#[test]
fn every_state_of_kubevirt_is_observed_correctly() {
    let yaml = include_str!("../../cases/kubevirt/states.yaml");
    let states: Vec<State> = serde_saphyr::from_str(yaml).unwrap();
    let lines = states.iter().map(|state| {
        let mut case = case("spec: {template: small}");
        let vm =
            state.vm.as_ref().map(|over| merged("VirtualMachine", &json!({ "runStrategy": "Always" }), over));
        let vmi = state.vmi.as_ref().map(|over| merged("VirtualMachineInstance", &json!({}), over));
        case.cluster = [vm, vmi].into_iter().flatten().chain(state.cluster.clone()).collect();
        format!("{}\n  {}\n", state.title, describe(&case.observed()))
    });
    insta::assert_snapshot!(lines.collect::<String>());
}

/// Returns the case with all its objects in the cluster and bound claims.
fn settled(yaml: &str) -> Case {
    let mut case = case(yaml);
    let cluster = FakeCluster::new(&case);
    cluster.run(cluster.backend(&case).create(&case.order())).unwrap();
    case.cluster = cluster.objects();
    case.cluster.retain(|object| object["kind"] != "StorageClass");
    for object in &mut case.cluster {
        if object["kind"] == "PersistentVolumeClaim" {
            let size = object["spec"]["resources"]["requests"]["storage"].clone();
            object["status"] = json!({ "phase": "Bound", "capacity": { "storage": size } });
        }
    }
    case
}

const FULL: &str = "{spec: {template: small, disks: [{name: data, size: 1Gi, source: {image: quay.io/a/b}}], networks: [{name: eth0, networkName: prod}], cloudInit: {userData: '#cloud-config', networkData: x}}, networks: {prod: {bridge: br0}}}";

#[test]
fn a_current_machine_needs_no_write() {
    for yaml in ["sample: machine-basic", FULL] {
        let case = settled(yaml);
        assert_eq!(case.writes(), Vec::<String>::new());
        assert!(case.observed().machine.unwrap().is_current);
    }
}

/// Returns the writes after a change of the spec from `before` to `after`, and of the objects in the cluster.
fn writes_after(before: &str, after: &str, change: impl Fn(&mut Value)) -> Vec<String> {
    let mut settled = settled(&format!("spec: {before}"));
    settled.cluster.iter_mut().for_each(change);
    let mut changed = case(&format!("spec: {after}"));
    changed.cluster = settled.cluster;
    changed.writes()
}

fn entry(title: &str, writes: &[String]) -> String {
    let writes = if writes.is_empty() { "nothing".to_owned() } else { writes.join("\n  ") };
    format!("{title}\n  {writes}\n")
}

#[test]
fn only_changes_of_the_spec_are_written() {
    const SMALL: &str = "{template: small}";
    let keep = |_: &mut Value| {};
    let mut lines: Vec<String> = [
        ("nothing", SMALL, SMALL),
        ("more CPUs", SMALL, "{template: small, resources: {cpu: {cores: 2}}}"),
        ("stopped: changes only the power state", SMALL, "{template: small, powerState: Stopped}"),
        ("a larger disk", SMALL, "{template: small, disks: [{name: root, size: 30Gi}]}"),
        (
            "a larger disk of a class without expansion",
            "{template: small, disks: [{name: root, storageClass: rigid}]}",
            "{template: small, disks: [{name: root, storageClass: rigid, size: 30Gi}]}",
        ),
        (
            "a disk with reclaim policy Retain",
            SMALL,
            "{template: small, disks: [{name: root, reclaimPolicy: Retain}]}",
        ),
        ("an additional disk", SMALL, "{template: small, disks: [{name: data, size: 1Gi}]}"),
        ("a removed disk", "{template: small, disks: [{name: data, size: 1Gi}]}", SMALL),
        ("cloud-init", SMALL, "{template: small, cloudInit: {userData: one}}"),
        (
            "other user data",
            "{template: small, cloudInit: {userData: one}}",
            "{template: small, cloudInit: {userData: other}}",
        ),
        ("cloud-init removed", "{template: small, cloudInit: {userData: one}}", SMALL),
    ]
    .iter()
    .map(|(title, before, after)| entry(title, &writes_after(before, after, keep)))
    .collect();
    let unbound = |object: &mut Value| {
        object.as_object_mut().unwrap().remove("status");
    };
    let larger = "{template: small, disks: [{name: root, size: 30Gi}]}";
    lines.push(entry("a larger disk without a volume yet", &writes_after(SMALL, larger, unbound)));
    insta::assert_snapshot!(lines.concat());
}

#[test]
fn foreign_changes_are_reverted_and_foreign_additions_are_ignored() {
    const SMALL: &str = "{template: small}";
    let after = |change: fn(&mut Value)| {
        writes_after(SMALL, SMALL, |object| {
            if object["kind"] == "VirtualMachine" {
                change(object);
            }
        })
    };
    let reverted = ["apply VirtualMachine default/vm"];
    let ignored: [&str; 0] = [];
    assert_eq!(
        after(|machine| machine["spec"]["template"]["spec"]["domain"]["cpu"]["cores"] = json!(8)),
        reverted
    );
    assert_eq!(after(|machine| machine["spec"]["runStrategy"] = json!("Manual")), reverted);
    // The run strategy is observed as power, whichever client changed it.
    assert_eq!(after(|machine| machine["spec"]["runStrategy"] = json!("Halted")), ignored);
    let additions = |machine: &mut Value| {
        machine["metadata"]["annotations"]["kubevirt.io/latest-observed-api-version"] = json!("v1");
        let spec = &mut machine["spec"]["template"]["spec"];
        spec["domain"]["machine"] = json!({ "type": "q35" });
        spec["domain"]["resources"] = json!({});
        spec["architecture"] = json!("amd64");
        spec["volumes"].as_array_mut().unwrap().push(json!({ "name": "plugged-in" }));
    };
    assert_eq!(after(additions), ignored);
}

#[test]
fn immutable_fields_are_reported() {
    let unchangeable = |yaml: &str, spec: &str| {
        let mut after = case(&format!("spec: {spec}"));
        after.cluster = settled(yaml).cluster;
        after.observed().machine.unwrap().unchangeable.join("\n")
    };
    let root = |fields: &str| format!("{{template: small, disks: [{{name: root, {fields}}}]}}");
    let rigid = format!("spec: {}", root("storageClass: rigid"));
    let lines = [
        unchangeable("spec: {template: small}", &root("storageClass: fast-ssd")),
        unchangeable("spec: {template: small}", &root("accessMode: ReadWriteMany")),
        unchangeable("spec: {template: small}", &root("volumeMode: Block")),
        unchangeable("spec: {template: small}", &root("size: 10Gi")),
        unchangeable("spec: {template: small}", &root("source: {image: quay.io/a/b}")),
        unchangeable(&rigid, &root("storageClass: rigid, size: 30Gi")),
        unchangeable("spec: {template: small}", "{template: small}"),
    ];
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn disks_are_observed_also_after_the_machine_was_deleted() {
    let mut case =
        settled("spec: {template: small, disks: [{name: data, size: 1Gi, reclaimPolicy: Retain}]}");
    let seen = |case: &Case| {
        let disks = case.observed().disks;
        disks
            .iter()
            .map(|disk| {
                format!(
                    "{} {:?} {:?} ready={} attached={}",
                    disk.name,
                    disk.size.as_ref().map(ToString::to_string),
                    disk.reclaim_policy,
                    disk.is_ready,
                    disk.is_attached
                )
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(
        seen(&case),
        [
            "data Some(\"1Gi\") Retain ready=true attached=true",
            "root Some(\"20Gi\") Delete ready=true attached=true"
        ]
    );
    case.cluster.retain(|object| object["kind"] != "VirtualMachine");
    assert_eq!(
        seen(&case),
        [
            "data Some(\"1Gi\") Retain ready=true attached=false",
            "root Some(\"20Gi\") Delete ready=true attached=false"
        ]
    );
}

#[test]
fn a_removed_disk_is_attached_while_the_instance_uses_it() {
    let mut case = case("spec: {template: small}");
    let before = settled("spec: {template: small, disks: [{name: data, size: 1Gi}]}");
    case.cluster = before.cluster;
    case.cluster.retain(|object| object["kind"] != "VirtualMachine");
    let volumes =
        json!({ "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "vm-data" } }] });
    case.cluster.push(merged("VirtualMachineInstance", &volumes, &json!({})));
    let disks = case.observed().disks;
    assert!(disks.iter().any(|disk| disk.name == "data" && disk.is_attached));
    assert!(disks.iter().any(|disk| disk.name == "root" && !disk.is_attached));
}

#[test]
fn a_wait_for_first_consumer_volume_is_awaited_only_by_a_starting_machine() {
    let is_ready = |power: &str, class: &str| {
        let spec = format!(
            "{{template: small, powerState: {power}, disks: [{{name: root, storageClass: {class}}}]}}"
        );
        let classes = "[{kind: StorageClass, metadata: {name: late}, volumeBindingMode: WaitForFirstConsumer}, {kind: StorageClass, metadata: {name: soon}, volumeBindingMode: Immediate}]";
        let mut case = settled(&format!("{{spec: {spec}, storage_classes: {classes}}}"));
        for object in &mut case.cluster {
            if object["kind"] == "PersistentVolumeClaim" {
                object["status"] = json!({ "phase": "Pending" });
            }
        }
        case.observed().disks[0].is_ready
    };
    assert!(is_ready("Stopped", "late"));
    assert!(!is_ready("Running", "late"));
    assert!(!is_ready("Stopped", "soon"));
}

#[test]
fn a_volume_that_is_being_filled_is_not_ready() {
    let mut case = settled("spec: {template: small, disks: [{name: root, source: {image: quay.io/a/b}}]}");
    let claim = json!({
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": "vm-root", "namespace": "default", "labels": { "vitistack.io/identity": IDENTITY } },
        "spec": { "resources": { "requests": { "storage": "21Gi" } } },
        "status": { "phase": "Bound", "capacity": { "storage": "21Gi" } },
    });
    case.cluster.push(claim);
    for (phase, is_ready) in [("ImportInProgress", false), ("Succeeded", true)] {
        for object in &mut case.cluster {
            if object["kind"] == "DataVolume" {
                object["status"]["phase"] = json!(phase);
            }
        }
        let disks = case.observed().disks;
        assert_eq!((disks.len(), disks[0].name.as_str(), disks[0].is_ready), (1, "root", is_ready));
    }
}
