//! The requests of the backend: no more than needed, only for its own objects, and with the same result after lost replies.

use serde_json::{Value, json};
use vitistack_machine::{Backend, ErrorKind, Progress, kubevirt::Kind};
use vitistack_plan::machine::{Part, Power, Update};
use vitistack_types::conditions::reason;

use super::{
    case::{Case, IDENTITY, case},
    fake_cluster::FakeCluster,
};

const FULL: &str = "{spec: {template: small, disks: [{name: data, size: 1Gi, source: {image: quay.io/a/b}}], networks: [{name: eth0, networkName: prod}], cloudInit: {userData: '#cloud-config'}}, networks: {prod: {bridge: br0}}}";

/// Returns a case and its cluster after the machine was created.
fn created(yaml: &str) -> (Case, FakeCluster) {
    let case = case(yaml);
    let cluster = FakeCluster::new(&case);
    assert_eq!(cluster.run(cluster.backend(&case).create(&case.order())), Ok(Progress::Done));
    (case, cluster)
}

fn update(case: &Case, cluster: &FakeCluster, update: &Update) -> Vec<String> {
    cluster.writes();
    cluster.run(cluster.backend(case).update(&case.order(), update)).unwrap();
    cluster.writes()
}

fn delete(case: &Case, cluster: &FakeCluster, part: &Part) -> (Progress, Vec<String>) {
    cluster.writes();
    let progress = cluster.run(cluster.backend(case).delete(&case.order().target, part)).unwrap();
    (progress, cluster.writes())
}

/// A running instance of the machine.
fn instance(uid: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "name": "vm", "namespace": "default", "uid": uid, "labels": { "vitistack.io/identity": IDENTITY } },
        "status": { "phase": "Running" },
    })
}

#[test]
fn a_minimal_machine_is_a_claim_and_a_virtual_machine_and_then_no_more_writes() {
    let (case, cluster) = created("spec: {template: small}");
    assert_eq!(
        cluster.writes(),
        ["POST persistentvolumeclaims/default/vm-root", "PATCH virtualmachines.kubevirt.io/default/vm"]
    );
    cluster.run(cluster.backend(&case).create(&case.order())).unwrap();
    assert_eq!(cluster.writes(), Vec::<String>::new());
    assert_eq!(update(&case, &cluster, &Update::Specification), Vec::<String>::new());
    assert_eq!(update(&case, &cluster, &Update::Start), Vec::<String>::new());
    let observed =
        cluster.run(cluster.backend(&case).observe(&case.order().target, Some(&case.order()))).unwrap();
    assert!(observed.machine.is_some_and(|machine| machine.is_current && machine.power == Power::Starting));
}

#[test]
fn dependencies_are_created_before_the_machine() {
    let (_, cluster) = created(FULL);
    let kinds: Vec<String> =
        cluster.writes().iter().map(|write| write.split('/').next().unwrap().to_owned()).collect();
    assert_eq!(
        kinds,
        [
            "PATCH secrets",
            "PATCH network-attachment-definitions.k8s.cni.cncf.io",
            "POST persistentvolumeclaims",
            "POST datavolumes.cdi.kubevirt.io",
            "PATCH virtualmachines.kubevirt.io",
        ]
    );
}

#[test]
fn a_lost_reply_creates_no_duplicate() {
    let (_, calm) = created(FULL);
    let writes = calm.writes().len();
    for lost_after in 0..writes {
        let case = case(FULL);
        let cluster = FakeCluster::new(&case);
        let backend = cluster.backend(&case);
        cluster.lose_after(Some(lost_after));
        let failure = cluster.run(backend.create(&case.order())).unwrap_err();
        assert_eq!(failure.kind, ErrorKind::Unreachable, "{failure}");
        cluster.lose_after(None);
        assert_eq!(cluster.run(backend.create(&case.order())), Ok(Progress::Done));
        assert_eq!(cluster.writes().len(), writes, "after {lost_after} writes");
        assert_eq!(cluster.objects(), calm.objects(), "after {lost_after} writes");
    }
}

#[test]
fn a_machine_is_refused_before_anything_is_created() {
    let case = case("{lacks: [VirtualMachine, VirtualMachineInstance], spec: {template: small}}");
    let cluster = FakeCluster::new(&case);
    let failure = cluster.run(cluster.backend(&case).create(&case.order())).unwrap_err();
    assert_eq!((failure.kind, failure.reason), (ErrorKind::Refused, reason::KUBEVIRT_API_ERROR));
    assert_eq!(cluster.writes(), Vec::<String>::new());
}

#[test]
fn a_foreign_claim_with_the_same_name_is_not_touched() {
    let claim = "{kind: PersistentVolumeClaim, apiVersion: v1, metadata: {name: vm-root, namespace: default}, spec: {}}";
    let case = case(&format!("{{spec: {{template: small}}, cluster: [{claim}]}}"));
    let cluster = FakeCluster::new(&case);
    let before = cluster.objects();
    let failure = cluster.run(cluster.backend(&case).create(&case.order())).unwrap_err();
    assert_eq!((failure.kind, failure.reason), (ErrorKind::Refused, reason::NAME_TAKEN));
    let (progress, writes) = delete(&case, &cluster, &Part::Disks(vec!["root".to_owned()]));
    assert_eq!((progress, writes.len()), (Progress::Done, 0));
    assert_eq!(cluster.objects(), before);
}

#[test]
fn start_and_stop_are_one_write() {
    let (case, cluster) = created("spec: {template: small}");
    let machine = "PATCH virtualmachines.kubevirt.io/default/vm by force";
    assert_eq!(update(&case, &cluster, &Update::Stop), [machine]);
    assert_eq!(cluster.object("VirtualMachine").unwrap()["spec"]["runStrategy"], "Halted");
    assert_eq!(update(&case, &cluster, &Update::Stop), Vec::<String>::new());
    assert_eq!(update(&case, &cluster, &Update::Specification), Vec::<String>::new());
    assert_eq!(update(&case, &cluster, &Update::Start), [machine]);
    assert_eq!(cluster.object("VirtualMachine").unwrap()["spec"]["runStrategy"], "Always");
}

#[test]
fn a_machine_can_be_stopped_in_spite_of_other_problems() {
    let (_, cluster) = created("spec: {template: small}");
    let broken = case("spec: {template: medium, disks: [{name: data, size: 1Gi, storageClass: none}]}");
    let failure =
        cluster.run(cluster.backend(&broken).update(&broken.order(), &Update::Specification)).unwrap_err();
    assert_eq!(failure.reason, reason::STORAGE_CLASS_NOT_FOUND);
    assert_eq!(update(&broken, &cluster, &Update::Stop), ["PATCH virtualmachines.kubevirt.io/default/vm"]);
    let machine = cluster.object("VirtualMachine").unwrap();
    assert_eq!(machine["spec"]["runStrategy"], "Halted");
    assert_eq!(machine["spec"]["template"]["spec"]["domain"]["cpu"]["cores"], 1);
}

#[test]
fn a_disk_is_expanded_in_place() {
    let (_, cluster) = created("spec: {template: small}");
    cluster.change("PersistentVolumeClaim", |claim| claim["status"] = json!({ "phase": "Bound" }));
    let larger = case("spec: {template: small, disks: [{name: root, size: 30Gi}]}");
    assert_eq!(
        update(&larger, &cluster, &Update::Specification),
        ["PATCH persistentvolumeclaims/default/vm-root"]
    );
    let claim = cluster.object("PersistentVolumeClaim").unwrap();
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "30Gi");
    assert_eq!(claim["spec"]["storageClassName"], "standard");
    assert_eq!(update(&larger, &cluster, &Update::Specification), Vec::<String>::new());
}

#[test]
fn a_restart_deletes_exactly_one_instance_however_often_it_is_requested() {
    let restart = Update::Restart { request: "noon".to_owned() };
    let (case, cluster) = created("spec: {template: small}");
    cluster.add(Kind::VirtualMachineInstance, instance("first"));
    assert_eq!(
        update(&case, &cluster, &restart),
        [
            "PATCH virtualmachines.kubevirt.io/default/vm",
            "DELETE virtualmachineinstances.kubevirt.io/default/vm"
        ]
    );
    cluster.add(Kind::VirtualMachineInstance, instance("second"));
    assert_eq!(update(&case, &cluster, &restart), Vec::<String>::new());
    assert_eq!(cluster.object("VirtualMachineInstance").unwrap()["metadata"]["uid"], "second");
    let observed =
        cluster.run(cluster.backend(&case).observe(&case.order().target, Some(&case.order()))).unwrap();
    let machine = observed.machine.unwrap();
    assert_eq!((machine.restarted_for.as_deref(), machine.is_current), (Some("noon"), true));
}

#[test]
fn an_interrupted_restart_is_completed_later() {
    let restart = Update::Restart { request: "noon".to_owned() };
    let (case, cluster) = created("spec: {template: small}");
    cluster.add(Kind::VirtualMachineInstance, instance("first"));
    cluster.lose_after(Some(0));
    cluster.run(cluster.backend(&case).update(&case.order(), &restart)).unwrap_err();
    cluster.lose_after(None);
    let restarted_for = || {
        let order = case.order();
        let observed = cluster.run(cluster.backend(&case).observe(&order.target, Some(&order))).unwrap();
        observed.machine.unwrap().restarted_for
    };
    assert_eq!(restarted_for(), None);
    assert_eq!(update(&case, &cluster, &restart), ["DELETE virtualmachineinstances.kubevirt.io/default/vm"]);
    assert_eq!(restarted_for().as_deref(), Some("noon"));
}

#[test]
fn a_machine_is_deleted_before_its_volumes_and_nothing_else_is() {
    let (case, cluster) =
        created("spec: {template: small, disks: [{name: data, size: 1Gi, reclaimPolicy: Retain}]}");
    let root = Part::Disks(vec!["root".to_owned()]);
    let (progress, writes) = delete(&case, &cluster, &root);
    assert_eq!(
        (progress, writes.len()),
        (Progress::Working("the machine to release volume \"vm-root\"".to_owned()), 0)
    );
    let (_, writes) = delete(&case, &cluster, &Part::Machine);
    assert_eq!(writes, ["DELETE virtualmachines.kubevirt.io/default/vm"]);
    let (_, writes) = delete(&case, &cluster, &root);
    assert_eq!(writes, ["DELETE persistentvolumeclaims/default/vm-root"]);
    for part in [Part::Machine, root] {
        assert_eq!(delete(&case, &cluster, &part), (Progress::Done, Vec::new()));
    }
    let observed = cluster.run(cluster.backend(&case).observe(&case.order().target, None)).unwrap();
    assert_eq!((observed.machine, observed.disks.len()), (None, 1));
}

#[test]
fn objects_without_an_owner_in_a_remote_cluster_are_deleted() {
    let remote = "{is_remote: true, spec: {template: small, cloudInit: {userData: x}}}";
    let (case, cluster) = created(remote);
    let left = |case: &Case, cluster: &FakeCluster| {
        let observed = cluster.run(cluster.backend(case).observe(&case.order().target, None)).unwrap();
        let disks = observed.disks.into_iter().map(|disk| disk.name);
        disks.chain(observed.leftovers).collect::<Vec<_>>()
    };
    assert_eq!(left(&case, &cluster), ["root"]);
    delete(&case, &cluster, &Part::Machine);
    assert_eq!(left(&case, &cluster), ["root", "Secret vm-cloudinit"]);
    let (_, writes) = delete(&case, &cluster, &Part::Disks(vec!["root".to_owned()]));
    assert_eq!(writes, ["DELETE persistentvolumeclaims/default/vm-root"]);
    let (_, writes) = delete(&case, &cluster, &Part::Leftovers);
    assert_eq!(writes, ["DELETE secrets/default/vm-cloudinit"]);
    assert_eq!(left(&case, &cluster), Vec::<String>::new());
    let (case, cluster) = created("spec: {template: small, cloudInit: {userData: x}}");
    delete(&case, &cluster, &Part::Machine);
    assert_eq!(left(&case, &cluster), ["root"], "owned objects are deleted with the Machine");
}

#[test]
fn only_blank_disks_are_deleted_after_a_creation_without_capacity() {
    let (case, cluster) = created("spec: {template: small, cloudInit: {userData: x}}");
    let root = || Part::BlankDisks(vec!["root".to_owned()]);
    assert_eq!(delete(&case, &cluster, &root()), (Progress::Done, Vec::new()), "the machine uses it");
    assert_eq!(delete(&case, &cluster, &Part::Leftovers), (Progress::Done, Vec::new()));
    delete(&case, &cluster, &Part::Machine);
    let observe = || {
        let (backend, order) = (cluster.backend(&case), case.order());
        cluster.run(backend.observe(&order.target, Some(&order))).unwrap()
    };
    for (path, value) in [
        ("/status", json!({ "phase": "Bound" })),
        ("/spec/volumeName", json!("pv-1")),
        ("/status", json!({ "phase": "Lost" })),
    ] {
        let mut before = Value::Null;
        cluster.change("PersistentVolumeClaim", |claim| {
            before = claim.clone();
            match path {
                "/status" => claim["status"] = value.clone(),
                _ => claim["spec"]["volumeName"] = value.clone(),
            }
        });
        assert!(observe().disks.iter().all(|disk| !disk.is_blank), "{path} {value}");
        assert_eq!(delete(&case, &cluster, &root()), (Progress::Done, Vec::new()), "{path} {value}");
        cluster.change("PersistentVolumeClaim", |claim| *claim = before.clone());
    }
    let observed = observe();
    assert_eq!(observed.leftovers, ["Secret vm-cloudinit"]);
    assert!(observed.disks.iter().all(|disk| disk.is_blank));
    let (_, writes) = delete(&case, &cluster, &root());
    assert_eq!(writes, ["DELETE persistentvolumeclaims/default/vm-root"]);
    let (_, writes) = delete(&case, &cluster, &Part::Leftovers);
    assert_eq!(writes, ["DELETE secrets/default/vm-cloudinit"]);
    let observed = observe();
    assert_eq!((observed.disks.len(), observed.leftovers.len()), (0, 0));
}

#[test]
fn an_imported_volume_is_deleted_by_its_data_volume() {
    let (case, cluster) =
        created("spec: {template: small, disks: [{name: root, source: {image: quay.io/a/b}}]}");
    let filled = cluster.object("DataVolume").unwrap();
    cluster.add(
        Kind::PersistentVolumeClaim,
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "vm-root", "namespace": "default", "labels": filled["metadata"]["labels"],
                "ownerReferences": [{ "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": "vm-root", "uid": filled["metadata"]["uid"] }],
            },
            "spec": {},
        }),
    );
    delete(&case, &cluster, &Part::Machine);
    let (progress, writes) = delete(&case, &cluster, &Part::Disks(vec!["root".to_owned()]));
    assert_eq!(writes, ["DELETE datavolumes.cdi.kubevirt.io/default/vm-root"]);
    assert!(matches!(progress, Progress::Working(_)));
}

#[test]
fn another_machine_of_the_same_name_is_never_touched() {
    let (case, cluster) = created("spec: {template: small}");
    cluster.change("VirtualMachine", |machine| {
        machine["metadata"]["labels"]["vitistack.io/identity"] = json!("another");
    });
    let before = cluster.objects();
    assert_eq!(delete(&case, &cluster, &Part::Machine), (Progress::Done, Vec::new()));
    for change in
        [Update::Specification, Update::Start, Update::Stop, Update::Restart { request: "now".to_owned() }]
    {
        let failure = cluster.run(cluster.backend(&case).update(&case.order(), &change)).unwrap_err();
        assert_eq!((failure.kind, failure.reason), (ErrorKind::Refused, reason::NAME_TAKEN));
    }
    assert_eq!(cluster.objects(), before);
}

/// Tries all calls from another namespace with the identity of the machine; returns the refusals.
fn refusals_in_another_namespace(case: &Case, cluster: &FakeCluster) -> Vec<String> {
    let mut order = case.order();
    "another-uid".clone_into(&mut order.target.uid);
    "evil".clone_into(&mut order.target.namespace);
    "evil".clone_into(&mut order.desired.namespace);
    cluster.writes();
    let backend = cluster.backend(case);
    let observed = cluster.run(backend.observe(&order.target, Some(&order))).unwrap();
    assert_eq!((observed.machine, observed.disks), (None, Vec::new()));
    let elsewhere = observed.elsewhere.map(|found| found.refusal(&order.target.identity, "evil").message);
    let failure = cluster.run(backend.create(&order)).unwrap_err();
    assert_eq!((failure.kind, failure.reason), (ErrorKind::Refused, reason::IDENTITY_HELD));
    for change in [Update::Specification, Update::Start, Update::Restart { request: "now".to_owned() }] {
        cluster.run(backend.update(&order, &change)).unwrap_err();
    }
    for part in [Part::Machine, Part::Disks(vec!["root".to_owned()])] {
        assert_eq!(cluster.run(backend.delete(&order.target, &part)), Ok(Progress::Done));
    }
    assert_eq!(cluster.writes(), Vec::<String>::new());
    elsewhere.into_iter().chain([failure.message]).collect()
}

const SHARED: &str = "{namespace: vms, spec: {template: small, cloudInit: {userData: x}}}";

#[test]
fn a_machine_in_a_shared_namespace_is_not_given_to_another_namespace() {
    let (case, cluster) = created(SHARED);
    let message = format!(
        "the annotation vitistack.io/identity is \"{IDENTITY}\", and VirtualMachine vm with that identity belongs to a Machine in namespace \"default\": restore the Machine there, or create this one without the annotation"
    );
    assert_eq!(refusals_in_another_namespace(&case, &cluster), [message.clone(), message]);
    // Neither are the objects that outlive it.
    delete(&case, &cluster, &Part::Machine);
    let refusals = refusals_in_another_namespace(&case, &cluster);
    assert!(refusals.iter().all(|refusal| refusal.contains("Secret vm-cloudinit")), "{refusals:?}");
}

#[test]
fn objects_without_a_namespace_label_are_not_given_to_another_namespace() {
    let remove_labels = |cluster: &FakeCluster| {
        for kind in ["VirtualMachine", "PersistentVolumeClaim"] {
            cluster.change(kind, |object| {
                object["metadata"]["labels"]
                    .as_object_mut()
                    .unwrap()
                    .remove("vitistack.io/machine-namespace");
            });
        }
    };
    let (case, cluster) = created("{namespace: vms, spec: {template: small}}");
    remove_labels(&cluster);
    let refusals = refusals_in_another_namespace(&case, &cluster);
    assert!(
        refusals[0].contains("label it vitistack.io/machine-namespace=evil at the provider"),
        "{refusals:?}"
    );
    // Its own Machine, whose UID is the identity, adds the label.
    let writes = update(&case, &cluster, &Update::Specification);
    assert_eq!(
        writes,
        ["PATCH persistentvolumeclaims/vms/vm-root", "PATCH virtualmachines.kubevirt.io/vms/vm by force"]
    );
    assert_eq!(update(&case, &cluster, &Update::Specification), Vec::<String>::new());
    // In the namespace of the Machine the label is not needed: a restored Machine there gets its objects back.
    let (case, cluster) = created("spec: {template: small}");
    remove_labels(&cluster);
    let mut order = case.order();
    "restored".clone_into(&mut order.target.uid);
    let observed = cluster.run(cluster.backend(&case).observe(&order.target, Some(&order))).unwrap();
    assert_eq!((observed.machine.is_some(), observed.elsewhere), (true, None));
}

#[test]
fn a_stale_cache_does_not_hide_a_machine() {
    let (original, cluster) = created("spec: {template: small}");
    let stale = std::sync::Arc::new(case("spec: {template: small}").reader());
    let backend = vitistack_machine::kubevirt::KubeVirt::new(cluster.client(), stale, original.settings());
    let observed = cluster.run(backend.observe(&original.order().target, None)).unwrap();
    assert!(observed.machine.is_some());
    cluster.writes();
    assert_eq!(cluster.run(backend.create(&original.order())), Ok(Progress::Done));
    // Both are sent with the precondition that the object does not exist, and fail.
    assert_eq!(
        cluster.writes(),
        ["POST persistentvolumeclaims/default/vm-root", "PATCH virtualmachines.kubevirt.io/default/vm"]
    );
}
