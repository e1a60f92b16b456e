//! The KubeVirt backend as the operator opens it: over caches that lag behind, of clusters that come and go.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use serde_json::{Value, json};
use vitistack_apiserver::{
    ServeOptions,
    faults::{Fault, FaultPlan},
    serve,
};
use vitistack_clients::kubernetes::cache::Budget;
use vitistack_machine::{
    BackendError, BackendOpener, ErrorKind, OpenBackend, Progress, ProviderChange, ProviderConfig, Target,
    kubevirt::{CachedReader, Kind, KubeVirtOpener, LiveReader, ReadError, Reader, probe},
};
use vitistack_plan::{
    Redacted,
    machine::{Identity, Part, References, resolve},
};
use vitistack_types::{WatchedNamespaces, conditions::reason, decode, v1alpha1::MachineProvider};

use crate::kubevirt_cluster::{Cluster, IDENTITY, filled_reader, no_faults, order, own_cluster, wait_for};

/// Watches that never deliver an event, so that caches stay stale.
fn silent_watches() -> FaultPlan {
    FaultPlan::new(1).with(Fault::Drop, 10_000)
}

/// A provider with a kubeconfig.
fn remote(kubeconfig: &str, version: &str) -> ProviderConfig {
    let provider = json!({
        "apiVersion": "vitistack.io/v1alpha1", "kind": "MachineProvider",
        "metadata": { "name": "far", "namespace": "default" },
        "spec": { "type": "kubevirt", "credentials": { "secretRef": { "name": "far-kubeconfig", "key": "kubeconfig" } } },
    });
    ProviderConfig {
        provider: Some(Arc::new(decode::<MachineProvider>(provider).unwrap())),
        credentials: Some(Redacted::new(kubeconfig.as_bytes().to_vec())),
        credentials_version: Some(version.to_owned()),
    }
}

/// An object with the label of an identity.
fn labeled(name: &str, identity: &str) -> Value {
    json!({ "metadata": { "name": name, "namespace": "default", "labels": { "vitistack.io/identity": identity } } })
}

fn claim(mut object: Value) -> Value {
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    object.as_object_mut().unwrap().insert("spec".to_owned(), spec);
    object
}

/// Waits until this change is reported.
async fn wait_for_change(opened: &mut OpenBackend, wanted: &ProviderChange) {
    let waiting = async { while opened.changes.next().await.unwrap() != *wanted {} };
    tokio::time::timeout(Duration::from_mins(1), waiting)
        .await
        .unwrap_or_else(|_| panic!("never reported: {wanted:?}"));
}

#[tokio::test]
async fn kinds_installed_later_are_noticed_and_reported() {
    let cluster = Cluster::bare().await;
    let mut opened = cluster.open(no_faults()).await;
    let failure = opened.backend.create(&order()).await.unwrap_err();
    assert!(failure.message.contains("KubeVirt is not installed"), "{failure}");
    while futures::poll!(opened.changes.next()).is_ready() {}
    for kind in [Kind::VirtualMachine, Kind::VirtualMachineInstance, Kind::KubeVirt] {
        cluster.install(kind).await;
    }
    wait_for_change(&mut opened, &ProviderChange::Recovered).await;
    wait_for("the machine is created", || async { opened.backend.create(&order()).await.ok() }).await;
}

#[tokio::test]
async fn a_forbidden_kind_is_reported_with_the_missing_permission() {
    let cluster = Cluster::with_kubevirt().await;
    cluster.forbids_claims.store(true, Ordering::SeqCst);
    let opened = KubeVirtOpener::new(cluster.client(no_faults()), WatchedNamespaces::ALL)
        .open(&own_cluster())
        .await
        .unwrap();
    let failure = wait_for("the read is refused", || async {
        let failure = opened.backend.observe(&order().target, Some(&order())).await.unwrap_err();
        (failure.kind == ErrorKind::Refused).then_some(failure)
    })
    .await;
    assert!(
        failure.message.contains("grant the verb get, list and watch on persistentvolumeclaims"),
        "{failure}"
    );

    cluster.forbids_claims.store(false, Ordering::SeqCst);
    wait_for("the permission is noticed", || async {
        opened.backend.observe(&order().target, Some(&order())).await.ok()
    })
    .await;
}

#[tokio::test]
async fn caches_and_live_reads_agree() {
    let cluster = Cluster::with_kubevirt().await;
    for (name, identity) in [("a-root", "a"), ("a-data", "a"), ("b-root", "b")] {
        cluster.add(Kind::PersistentVolumeClaim, claim(labeled(name, identity))).await;
    }
    let plain = json!({ "metadata": { "name": "plain", "namespace": "default" } });
    cluster.add(Kind::PersistentVolumeClaim, claim(plain.clone())).await;
    cluster.add(Kind::VirtualMachine, labeled("a", "a")).await;
    cluster.add(Kind::Secret, labeled("a-cloudinit", "a")).await;
    cluster.add(Kind::Secret, plain).await;
    let cached =
        CachedReader::start(&cluster.client(no_faults()), &WatchedNamespaces::ALL, &Budget::unlimited());
    let live = LiveReader::new(cluster.unrecorded_client());
    let names = |found: Result<Vec<_>, ReadError>| {
        found.map(|found| {
            let mut names: Vec<String> =
                found.iter().map(|object: &Arc<DynamicObject>| object.name_any()).collect();
            names.sort();
            names
        })
    };
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::StorageClass) {
        for identity in ["a", "b", "none"].map(Identity::new) {
            let (one, other) =
                (cached.owned(kind, "default", &identity), live.owned(kind, "default", &identity));
            assert_eq!(names(one.await), names(other.await), "{kind:?} of {identity}");
        }
        for name in ["a", "a-root", "a-cloudinit", "missing"] {
            let (one, other) = (cached.get(kind, "default", name), live.get(kind, "default", name));
            let list = |found: Option<_>| found.into_iter().collect();
            assert_eq!(names(one.await.map(list)), names(other.await.map(list)), "{kind:?} {name}");
        }
        if kind != Kind::Secret {
            assert_eq!(names(cached.all(kind).await), names(live.all(kind).await), "{kind:?}");
        }
    }
    assert_eq!(names(cached.all(Kind::StorageClass).await), names(live.all(Kind::StorageClass).await));
    assert_eq!(cached.owned(Kind::VirtualMachine, "elsewhere", &Identity::new("a")).await, Ok(Vec::new()));

    // Foreign Secrets are not cached, even if their name is known.
    assert_eq!(cached.get(Kind::Secret, "default", "plain").await, Ok(None));
    assert_eq!(names(cached.all(Kind::Secret).await), Ok(vec!["a-cloudinit".to_owned()]));
}

#[tokio::test]
async fn a_machine_is_created_with_two_requests_despite_stale_caches() {
    let cluster = Cluster::with_kubevirt().await;
    let opened = cluster.open(silent_watches()).await;
    assert_eq!(opened.backend.create(&order()).await, Ok(Progress::Done));
    let machine = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/vm";
    assert_eq!(
        cluster.take_requests(),
        ["POST /api/v1/namespaces/default/persistentvolumeclaims".to_owned(), format!("PATCH {machine}"),]
    );
    let observed = opened.backend.observe(&order().target, Some(&order())).await.unwrap();
    assert!(observed.machine.is_some_and(|machine| machine.is_current));
    assert_eq!(observed.disks.len(), 1);
    assert_eq!(opened.backend.create(&order()).await, Ok(Progress::Done));
    assert_eq!(cluster.take_requests(), Vec::<String>::new());
}

#[tokio::test]
async fn a_machine_is_deleted_with_two_writes_and_its_absence_read_live() {
    let cluster = Cluster::with_kubevirt().await;
    let opened = cluster.open(silent_watches()).await;
    opened.backend.create(&order()).await.unwrap();
    cluster.take_requests();
    let target = order().target;
    opened.backend.delete(&target, &Part::Machine).await.unwrap();
    let observed = opened.backend.observe(&target, None).await.unwrap();
    assert_eq!((observed.machine, observed.disks.len()), (None, 1));

    opened.backend.delete(&target, &Part::Disks(vec!["root".to_owned()])).await.unwrap();
    let writes = cluster.take_requests();
    assert_eq!(writes.len(), 2, "{writes:?}");
    assert!(writes.iter().all(|request| request.starts_with("DELETE")), "{writes:?}");

    let observed = opened.backend.observe(&target, None).await.unwrap();
    assert_eq!((observed.machine, observed.disks.len()), (None, 0));

    let mut reads = cluster.take_requests();
    reads.sort();
    assert_eq!(
        reads,
        [
            "GET /api/v1/namespaces/default/persistentvolumeclaims",
            "GET /api/v1/namespaces/default/secrets/vm-cloudinit",
            "GET /apis/kubevirt.io/v1/namespaces/default/virtualmachines/vm",
        ]
    );
}

#[tokio::test]
async fn two_minutes_after_a_write_the_server_may_answer_from_its_cache() {
    let cluster = Cluster::with_kubevirt().await;
    let opened = cluster.open(silent_watches()).await;
    opened.backend.create(&order()).await.unwrap();
    let target = order().target;
    opened.backend.delete(&target, &Part::Machine).await.unwrap();
    opened.backend.delete(&target, &Part::Disks(vec!["root".to_owned()])).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_mins(2)).await;
    tokio::time::resume();
    cluster.take_requests();
    let observed = opened.backend.observe(&target, None).await.unwrap();
    assert_eq!((observed.machine, observed.disks.len()), (None, 0));
    let reads = cluster.take_requests();
    let claims = "GET /api/v1/namespaces/default/persistentvolumeclaims not too old";
    assert!(reads.iter().any(|read| read == claims), "{reads:?}");
}

#[tokio::test]
async fn a_machine_whose_create_response_was_lost_is_seen_despite_stale_caches() {
    let cluster = Cluster::with_kubevirt().await;
    cluster.add(Kind::PersistentVolumeClaim, claim(labeled("vm-root", IDENTITY))).await;
    let opened = cluster.open(silent_watches()).await;
    let wanted = order();
    let target = &wanted.target;
    let observed = opened.backend.observe(target, None).await.unwrap();
    assert_eq!((observed.machine, observed.disks.len()), (None, 1));

    cluster.add(Kind::VirtualMachine, labeled("vm", IDENTITY)).await;
    for order in [None, Some(&wanted)] {
        let observed = opened.backend.observe(target, order).await.unwrap();
        assert_eq!(observed.machine, None, "the cache is stale");
    }

    // A call that is canceled.
    let mut create = opened.backend.create(&wanted);
    assert!(futures::poll!(&mut create).is_pending());

    drop(create);
    for order in [None, Some(&wanted)] {
        let observed = opened.backend.observe(target, order).await.unwrap();
        assert!(observed.machine.is_some());
    }
}

#[tokio::test]
async fn a_disk_that_the_caches_lack_is_seen_before_absence_is_reported() {
    let cluster = Cluster::with_kubevirt().await;
    let opened = cluster.open(silent_watches()).await;
    cluster.add(Kind::PersistentVolumeClaim, claim(labeled("vm-root", IDENTITY))).await;
    let observed = opened.backend.observe(&order().target, None).await.unwrap();
    assert_eq!(observed.disks.len(), 1);
}

#[tokio::test]
async fn machines_that_are_released_at_the_same_time_share_one_list() {
    let cluster = Cluster::with_kubevirt().await;
    let opened = cluster.open(silent_watches()).await;
    cluster.add(Kind::PersistentVolumeClaim, claim(labeled("vm-7-root", "identity-7"))).await;
    let targets: Vec<Target> = (0..50)
        .map(|number| Target {
            identity: Identity::new(format!("identity-{number}")),
            name: format!("vm-{number}"),
            ..order().target
        })
        .collect();
    let observing = targets.iter().map(|target| opened.backend.observe(target, None));
    let disks: Vec<usize> = futures::future::join_all(observing)
        .await
        .into_iter()
        .map(|observed| observed.unwrap().disks.len())
        .collect();
    assert_eq!((disks[7], disks.iter().sum::<usize>()), (1, 1), "{disks:?}");
    let lists =
        cluster.take_requests().into_iter().filter(|request| request.ends_with("/persistentvolumeclaims"));
    assert_eq!(lists.count(), 2, "the first machine starts a list, the others share the next");
}

#[tokio::test]
async fn observing_at_rest_sends_no_requests() {
    let cluster = Cluster::with_kubevirt().await;
    let opened = cluster.open(no_faults()).await;
    opened.backend.create(&order()).await.unwrap();
    cluster.take_requests();
    for _ in 0..50 {
        opened.backend.observe(&order().target, Some(&order())).await.unwrap();
    }
    assert_eq!(cluster.take_requests(), Vec::<String>::new());
}

#[tokio::test]
async fn a_foreign_secret_of_the_same_name_is_not_overwritten() {
    let cluster = Cluster::with_kubevirt().await;
    let theirs = json!({ "metadata": { "name": "vm-cloudinit", "namespace": "default" }, "data": { "key": "dGhlaXJz" } });
    let before = cluster.add(Kind::Secret, theirs).await;
    let opened = cluster.open(no_faults()).await;
    let mut order = order();
    let machine = json!({
        "apiVersion": "vitistack.io/v1alpha1", "kind": "Machine",
        "metadata": { "name": "vm", "namespace": "default", "uid": IDENTITY },
        "spec": { "template": "small", "cloudInit": { "userData": "#cloud-config" } },
    });
    let references = References { class: None, networks: [].into(), secret: None };
    order.desired = resolve(&decode(machine).unwrap(), &references).unwrap();
    let failure = opened.backend.create(&order).await.unwrap_err();
    assert_eq!((failure.kind, failure.reason), (ErrorKind::Refused, reason::NAME_TAKEN), "{failure}");
    assert_eq!(cluster.api(Kind::Secret).get("vm-cloudinit").await.unwrap(), before);
    assert_eq!(cluster.api(Kind::VirtualMachine).get_opt("vm").await.unwrap(), None);
}

#[tokio::test]
async fn a_change_is_reported_for_the_identities_it_concerns() {
    let cluster = Cluster::with_kubevirt().await;
    let mut changes = filled_reader(&cluster).await.changes();
    let one = |identity: &str| ProviderChange::Machine(Identity::new(identity));
    cluster.add(Kind::VirtualMachineInstance, labeled("vm", "a")).await;
    assert_eq!(changes.next().await, Some(one("a")));
    // The identity that loses the object is reported too.
    let patch = json!({ "metadata": { "labels": { "vitistack.io/identity": "b" } } });
    let instances = cluster.api(Kind::VirtualMachineInstance);
    instances.patch("vm", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(changes.next().await, Some(one("a")));
    assert_eq!(changes.next().await, Some(one("b")));
    let class = json!({ "metadata": { "name": "fast" }, "provisioner": "none" });
    cluster.add(Kind::StorageClass, class).await;
    assert_eq!(changes.next().await, Some(ProviderChange::All));
}

#[tokio::test]
async fn a_change_is_reported_when_a_requested_name_is_freed_or_taken() {
    let cluster = Cluster::with_kubevirt().await;
    for name in ["vm", "other"] {
        let foreign = json!({ "metadata": { "name": name, "namespace": "default" } });
        cluster.add(Kind::VirtualMachine, foreign).await;
    }
    let reader = filled_reader(&cluster).await;
    let mut changes = reader.changes();
    assert!(reader.get(Kind::VirtualMachine, "default", "vm").await.unwrap().is_some());
    assert_eq!(reader.get(Kind::PersistentVolumeClaim, "default", "golden").await, Ok(None));

    let machines = cluster.api(Kind::VirtualMachine);
    // This name was never requested.
    machines.delete("other", &DeleteParams::default()).await.unwrap();
    machines.delete("vm", &DeleteParams::default()).await.unwrap();
    assert_eq!(changes.next().await, Some(ProviderChange::All));
    assert_eq!(reader.get(Kind::VirtualMachine, "default", "vm").await, Ok(None));

    let golden = json!({ "metadata": { "name": "golden", "namespace": "default" } });
    cluster.add(Kind::PersistentVolumeClaim, claim(golden)).await;
    assert_eq!(changes.next().await, Some(ProviderChange::All));
}

#[tokio::test]
async fn providers_without_credentials_share_one_set_of_caches() {
    let cluster = Cluster::with_kubevirt().await;
    let opener = KubeVirtOpener::new(cluster.client(no_faults()), WatchedNamespaces::ALL);
    let first = opener.open(&own_cluster()).await.unwrap();
    first.backend.observe(&order().target, Some(&order())).await.unwrap();
    let lists = cluster.take_requests().len();
    assert!(lists > 0);
    let second = opener.open(&own_cluster()).await.unwrap();
    second.backend.observe(&order().target, Some(&order())).await.unwrap();
    let listed_again: Vec<String> =
        cluster.take_requests().into_iter().filter(|request| request.ends_with("/storageclasses")).collect();
    assert!(listed_again.len() <= 1, "{listed_again:?}");
}

#[tokio::test]
async fn a_rotated_kubeconfig_opens_another_backend_and_drops_the_old_one() {
    let options = || ServeOptions { listen: ([127, 0, 0, 1], 0).into(), data_dir: None, kubeconfig: None };
    let (old, new) = (serve(options()).await.unwrap(), serve(options()).await.unwrap());
    let opener = KubeVirtOpener::new(Cluster::bare().await.unrecorded_client(), WatchedNamespaces::ALL);
    let (before, after) = (remote(&old.kubeconfig, "1"), remote(&new.kubeconfig, "2"));
    assert_eq!(opener.fingerprint(&before), opener.fingerprint(&before));
    assert_ne!(opener.fingerprint(&before), opener.fingerprint(&after));
    assert!(!opener.fingerprint(&before).contains("token"));

    let new_claims: Api<DynamicObject> = Api::namespaced_with(
        Client::new(new.server.service(), "default"),
        "default",
        &Kind::PersistentVolumeClaim.resource(),
    );
    let mut object: DynamicObject = serde_json::from_value(claim(labeled("vm-root", IDENTITY))).unwrap();
    object.types = DynamicObject::new("", &Kind::PersistentVolumeClaim.resource()).types;
    new_claims.create(&PostParams::default(), &object).await.unwrap();
    for (source, disks) in [(&before, 0), (&after, 1)] {
        let answer = opener.open(source).await.unwrap();
        let observed = answer.backend.observe(&order().target, None).await.unwrap();
        assert_eq!(observed.disks.len(), disks);
        let backend = Arc::downgrade(&answer.backend);
        drop(answer);
        assert!(backend.upgrade().is_none());
    }
    old.stop().await;
    new.stop().await;
}

#[tokio::test]
async fn a_hostile_kubeconfig_is_refused_before_it_is_used() {
    let hostile = "
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: one, user: me}}]
clusters: [{name: one, cluster: {server: 'https://192.0.2.1:6443'}}]
users: [{name: me, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/touch, args: [hunter2]}}}]
";
    let opener = KubeVirtOpener::new(Cluster::bare().await.unrecorded_client(), WatchedNamespaces::ALL);
    for kubeconfig in [hostile, "no kubeconfig", ""] {
        let refusal = opener.open(&remote(kubeconfig, "1")).await.map(|_| ()).unwrap_err();
        assert_eq!(refusal.reason, reason::INVALID_CREDENTIALS);
        assert!(refusal.message.starts_with("spec.credentials.secretRef \"far-kubeconfig\""), "{refusal}");
        assert!(!refusal.message.contains("hunter2"), "{refusal}");
    }
    let missing = ProviderConfig { credentials: None, ..remote("", "1") };
    assert_eq!(opener.open(&missing).await.map(|_| ()).unwrap_err().reason, reason::INVALID_CREDENTIALS);
}

/// Returns the kubeconfig of a cluster that no longer runs.
async fn stopped_cluster() -> String {
    let options = ServeOptions { listen: ([127, 0, 0, 1], 0).into(), data_dir: None, kubeconfig: None };
    let serving = serve(options).await.unwrap();
    let kubeconfig = serving.kubeconfig.clone();
    serving.stop().await;
    kubeconfig
}

#[tokio::test]
async fn an_unreachable_cluster_is_reported_as_unreachable() {
    let opener = KubeVirtOpener::new(Cluster::bare().await.unrecorded_client(), WatchedNamespaces::ALL);
    let answer = opener.open(&remote(&stopped_cluster().await, "1")).await.unwrap();
    for order in [Some(&order()), None] {
        let failure = answer.backend.observe(&self::order().target, order).await.unwrap_err();
        assert_eq!(failure.kind, ErrorKind::Unreachable, "{failure}");
    }
}

#[tokio::test]
async fn a_probe_returns_the_version_or_what_is_missing() {
    let cluster = Cluster::bare().await;
    let client = cluster.client(no_faults());
    let missing: BackendError = probe(&client).await.unwrap_err();
    assert_eq!(missing.kind, ErrorKind::Refused);
    assert!(missing.message.contains("KubeVirt is not installed"), "{missing}");
    cluster.install(Kind::KubeVirt).await;
    assert_eq!(probe(&client).await.unwrap().version, None);
    let kubevirt = json!({ "metadata": { "name": "kubevirt", "namespace": "default" }, "status": { "observedKubeVirtVersion": "v1.8.2" } });
    cluster.add(Kind::KubeVirt, kubevirt).await;
    cluster.take_requests();
    assert_eq!(probe(&client).await.unwrap().version, Some("v1.8.2".parse().unwrap()));
    assert_eq!(cluster.take_requests(), ["GET /version", "GET /apis/kubevirt.io/v1/kubevirts"]);
}
