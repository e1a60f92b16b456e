//! The KubeVirt backend as the operator opens it: over caches that come late, of clusters that come and go.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use http::{Request, Response, StatusCode};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    client::Body,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};
use vitistack_apiserver::{
    ApiServer, ServeOptions,
    faults::{Fault, FaultLayer, FaultPlan},
    serve,
};
use vitistack_controller::backends::{
    Changed, Opened, Opener, Source,
    kubevirt::{CachedReader, KubeVirtOpener, probe},
};
use vitistack_machine::{
    BackendError, ErrorKind, Order, Progress, Target,
    kubevirt::{Kind, LiveReader, ReadError, Reader},
};
use vitistack_plan::{
    Redacted,
    machine::{Identity, Part, References, resolve},
};
use vitistack_types::{
    conditions::reason,
    decode,
    v1alpha1::{Machine, MachineProvider},
};

const IDENTITY: &str = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff";

/// Waits until something is so.
async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), looking).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// A cluster, what was asked of it, and whether it lets us read claims.
struct Cluster {
    server: ApiServer,
    asked: Arc<Mutex<Vec<String>>>,
    forbids: Arc<AtomicBool>,
}

impl Cluster {
    /// A cluster with nothing installed but a default class.
    async fn bare() -> Self {
        let server = ApiServer::builder().build().await.unwrap();
        let cluster = Self { server, asked: Arc::default(), forbids: Arc::default() };
        let class = json!({ "metadata": { "name": "standard", "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } }, "provisioner": "none" });
        cluster.add(Kind::StorageClass, class).await;
        cluster
    }

    /// A cluster with KubeVirt.
    async fn with_kubevirt() -> Self {
        let cluster = Self::bare().await;
        for kind in [Kind::VirtualMachine, Kind::VirtualMachineInstance, Kind::KubeVirt] {
            cluster.install(kind).await;
        }
        cluster
    }

    /// A client that nobody counts.
    fn hidden_client(&self) -> Client {
        Client::new(self.server.service(), "default")
    }

    /// A client whose requests are counted, and whose watches may be made to tell nothing.
    fn client(&self, plan: FaultPlan) -> Client {
        let service = FaultLayer::new(plan).layer(self.server.service());
        let (asked, forbids) = (Arc::clone(&self.asked), Arc::clone(&self.forbids));
        let counted = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let how = if query.contains("NotOlderThan") { " not too old" } else { "" };
            asked.lock().unwrap().push(format!("{} {}{how}", request.method(), request.uri().path()));
            let is_forbidden = forbids.load(Ordering::SeqCst)
                && request.method() == http::Method::GET
                && request.uri().path().ends_with("/persistentvolumeclaims");
            let service = service.clone();
            async move {
                if is_forbidden {
                    return Ok(forbidden());
                }
                service.oneshot(request).await
            }
        });
        Client::new(counted, "default")
    }

    /// What was asked since this was last called.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        let resource = kind.resource();
        match kind {
            Kind::StorageClass => Api::all_with(self.hidden_client(), &resource),
            _ => Api::namespaced_with(self.hidden_client(), "default", &resource),
        }
    }

    async fn add(&self, kind: Kind, object: Value) -> DynamicObject {
        let mut object: DynamicObject = serde_json::from_value(object).unwrap();
        object.types = DynamicObject::new("", &kind.resource()).types;
        self.api(kind).create(&PostParams::default(), &object).await.unwrap()
    }

    /// Serves a kind.
    async fn install(&self, kind: Kind) {
        let resource = kind.resource();
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": kind.permission() },
            "spec": {
                "group": resource.group, "scope": "Namespaced",
                "names": { "plural": resource.plural, "kind": resource.kind },
                "versions": [{ "name": resource.version, "served": true, "storage": true, "schema": {
                    "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }],
            },
        });
        let definitions = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let api: Api<DynamicObject> =
            Api::all_with(self.hidden_client(), &ApiResource::from_gvk(&definitions));
        api.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
    }

    /// The backend as the operator opens it, once it can read.
    async fn open(&self, plan: FaultPlan) -> Opened {
        let opened = KubeVirtOpener::new(self.client(plan)).open(&own()).await.unwrap();
        let backend = Arc::clone(&opened.backend);
        until("the caches are filled", || async {
            backend.observe(&order().target, Some(&order())).await.ok()
        })
        .await;
        self.asked();
        opened
    }
}

/// Caches of which each kind has been answered for.
async fn answered(cluster: &Cluster) -> Arc<CachedReader> {
    let reader = Arc::new(CachedReader::start(&cluster.client(calm())));
    let waits = |read: Result<Vec<_>, ReadError>| match read {
        Err(ReadError::Failed(failure)) => failure.kind == ErrorKind::Unreachable,
        _ => false,
    };
    for kind in Kind::ALL {
        until("an answer", || async { (!waits(reader.all(kind).await)).then_some(()) }).await;
    }
    reader
}

fn forbidden() -> Response<axum::body::Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "persistentvolumeclaims is forbidden: User \"vitistack\" cannot list resource",
    });
    let mut response = Response::new(status.to_string().into());
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}

fn calm() -> FaultPlan {
    FaultPlan::new(1)
}

/// Watches that tell nothing, as if they were late for ever.
fn late() -> FaultPlan {
    FaultPlan::new(1).with(Fault::Drop, 10_000)
}

fn own() -> Source {
    Source { provider: None, credentials: None, credentials_version: None }
}

/// A provider with a kubeconfig.
fn remote(kubeconfig: &str, version: &str) -> Source {
    let provider = json!({
        "apiVersion": "vitistack.io/v1alpha1", "kind": "MachineProvider",
        "metadata": { "name": "far", "namespace": "default" },
        "spec": { "type": "kubevirt", "credentials": { "secretRef": { "name": "far-kubeconfig", "key": "kubeconfig" } } },
    });
    Source {
        provider: Some(Arc::new(decode::<MachineProvider>(provider).unwrap())),
        credentials: Some(Redacted::new(kubeconfig.as_bytes().to_vec())),
        credentials_version: Some(version.to_owned()),
    }
}

/// A machine with one disk.
fn order() -> Order {
    let machine = json!({
        "apiVersion": "vitistack.io/v1alpha1", "kind": "Machine",
        "metadata": { "name": "vm", "namespace": "default", "uid": IDENTITY }, "spec": { "template": "small" },
    });
    let machine: Machine = decode(machine).unwrap();
    let references = References { class: None, networks: [].into(), secret: None };
    let target = Target {
        identity: Identity::new(IDENTITY),
        uid: IDENTITY.to_owned(),
        name: "vm".to_owned(),
        namespace: "default".to_owned(),
    };
    Order { target, desired: resolve(&machine, &references).unwrap() }
}

fn marked(name: &str, identity: &str) -> Value {
    json!({ "metadata": { "name": name, "namespace": "default", "labels": { "vitistack.io/identity": identity } } })
}

fn claim(mut object: Value) -> Value {
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    object.as_object_mut().unwrap().insert("spec".to_owned(), spec);
    object
}

/// The next changes up to one that is asked for.
async fn told(opened: &mut Opened, wanted: &Changed) {
    let telling = async { while opened.changes.next().await.unwrap() != *wanted {} };
    tokio::time::timeout(Duration::from_mins(1), telling)
        .await
        .unwrap_or_else(|_| panic!("never: {wanted:?}"));
}

#[tokio::test]
async fn what_is_installed_later_is_noticed_and_told() {
    let cluster = Cluster::bare().await;
    let mut opened = cluster.open(calm()).await;
    let failure = opened.backend.create(&order()).await.unwrap_err();
    assert!(failure.message.contains("KubeVirt is not installed"), "{failure}");
    while futures::poll!(opened.changes.next()).is_ready() {}
    for kind in [Kind::VirtualMachine, Kind::VirtualMachineInstance, Kind::KubeVirt] {
        cluster.install(kind).await;
    }
    told(&mut opened, &Changed::Back).await;
    until("the machine is made", || async { opened.backend.create(&order()).await.ok() }).await;
}

#[tokio::test]
async fn a_kind_that_may_not_be_read_is_told_with_the_permission() {
    let cluster = Cluster::with_kubevirt().await;
    cluster.forbids.store(true, Ordering::SeqCst);
    let opened = KubeVirtOpener::new(cluster.client(calm())).open(&own()).await.unwrap();
    let failure = until("the refusal", || async {
        let failure = opened.backend.observe(&order().target, Some(&order())).await.unwrap_err();
        (failure.kind == ErrorKind::Refused).then_some(failure)
    })
    .await;
    assert!(
        failure.message.contains("grant the verb get, list and watch on persistentvolumeclaims"),
        "{failure}"
    );
    cluster.forbids.store(false, Ordering::SeqCst);
    until("the permission is noticed", || async {
        opened.backend.observe(&order().target, Some(&order())).await.ok()
    })
    .await;
}

#[tokio::test]
async fn caches_and_the_cluster_say_the_same() {
    let cluster = Cluster::with_kubevirt().await;
    for (name, identity) in [("a-root", "a"), ("a-data", "a"), ("b-root", "b")] {
        cluster.add(Kind::PersistentVolumeClaim, claim(marked(name, identity))).await;
    }
    let plain = json!({ "metadata": { "name": "plain", "namespace": "default" } });
    cluster.add(Kind::PersistentVolumeClaim, claim(plain.clone())).await;
    cluster.add(Kind::VirtualMachine, marked("a", "a")).await;
    cluster.add(Kind::Secret, marked("a-cloudinit", "a")).await;
    cluster.add(Kind::Secret, plain).await;
    let cached = CachedReader::start(&cluster.client(calm()));
    let live = LiveReader::new(cluster.hidden_client());
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
    // Nobody else's Secret is held, also where its name is known.
    assert_eq!(cached.get(Kind::Secret, "default", "plain").await, Ok(None));
    assert_eq!(names(cached.all(Kind::Secret).await), Ok(vec!["a-cloudinit".to_owned()]));
}

#[tokio::test]
async fn a_machine_is_made_with_two_requests_however_late_the_caches_are() {
    let cluster = Cluster::with_kubevirt().await;
    let opened = cluster.open(late()).await;
    assert_eq!(opened.backend.create(&order()).await, Ok(Progress::Done));
    let machine = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/vm";
    assert_eq!(
        cluster.asked(),
        ["POST /api/v1/namespaces/default/persistentvolumeclaims".to_owned(), format!("PATCH {machine}"),]
    );
    let observed = opened.backend.observe(&order().target, Some(&order())).await.unwrap();
    assert!(observed.machine.is_some_and(|machine| machine.is_current));
    assert_eq!(observed.disks.len(), 1);
    assert_eq!(opened.backend.create(&order()).await, Ok(Progress::Done));
    assert_eq!(cluster.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn a_machine_is_deleted_with_two_writes_and_let_go_after_the_cluster_was_asked() {
    let cluster = Cluster::with_kubevirt().await;
    let opened = cluster.open(late()).await;
    opened.backend.create(&order()).await.unwrap();
    cluster.asked();
    let target = order().target;
    opened.backend.delete(&target, &Part::Machine).await.unwrap();
    let observed = opened.backend.observe(&target, None).await.unwrap();
    assert_eq!((observed.machine, observed.disks.len()), (None, 1));
    opened.backend.delete(&target, &Part::Disks(vec!["root".to_owned()])).await.unwrap();
    let writes = cluster.asked();
    assert_eq!(writes.len(), 2, "{writes:?}");
    assert!(writes.iter().all(|request| request.starts_with("DELETE")), "{writes:?}");
    let observed = opened.backend.observe(&target, None).await.unwrap();
    assert_eq!((observed.machine, observed.disks.len()), (None, 0));
    let mut reads = cluster.asked();
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
async fn a_server_need_not_make_sure_of_the_newest_once_every_request_is_long_over() {
    let cluster = Cluster::with_kubevirt().await;
    let opened = cluster.open(late()).await;
    opened.backend.create(&order()).await.unwrap();
    let target = order().target;
    opened.backend.delete(&target, &Part::Machine).await.unwrap();
    opened.backend.delete(&target, &Part::Disks(vec!["root".to_owned()])).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_mins(2)).await;
    tokio::time::resume();
    cluster.asked();
    let observed = opened.backend.observe(&target, None).await.unwrap();
    assert_eq!((observed.machine, observed.disks.len()), (None, 0));
    let reads = cluster.asked();
    let claims = "GET /api/v1/namespaces/default/persistentvolumeclaims not too old";
    assert!(reads.iter().any(|read| read == claims), "{reads:?}");
}

#[tokio::test]
async fn a_machine_that_was_made_unheard_is_seen_beside_what_it_left() {
    let cluster = Cluster::with_kubevirt().await;
    cluster.add(Kind::PersistentVolumeClaim, claim(marked("vm-root", IDENTITY))).await;
    let opened = cluster.open(late()).await;
    let wanted = order();
    let target = &wanted.target;
    let observed = opened.backend.observe(target, None).await.unwrap();
    assert_eq!((observed.machine, observed.disks.len()), (None, 1));
    cluster.add(Kind::VirtualMachine, marked("vm", IDENTITY)).await;
    for order in [None, Some(&wanted)] {
        let observed = opened.backend.observe(target, order).await.unwrap();
        assert_eq!(observed.machine, None, "the cache is late");
    }
    // A call that is given up.
    let mut create = opened.backend.create(&wanted);
    assert!(futures::poll!(&mut create).is_pending());
    drop(create);
    for order in [None, Some(&wanted)] {
        let observed = opened.backend.observe(target, order).await.unwrap();
        assert!(observed.machine.is_some());
    }
}

#[tokio::test]
async fn a_machine_that_was_made_unheard_is_not_let_go() {
    let cluster = Cluster::with_kubevirt().await;
    let opened = cluster.open(late()).await;
    cluster.add(Kind::PersistentVolumeClaim, claim(marked("vm-root", IDENTITY))).await;
    let observed = opened.backend.observe(&order().target, None).await.unwrap();
    assert_eq!(observed.disks.len(), 1);
}

#[tokio::test]
async fn a_look_at_rest_asks_nothing() {
    let cluster = Cluster::with_kubevirt().await;
    let opened = cluster.open(calm()).await;
    opened.backend.create(&order()).await.unwrap();
    cluster.asked();
    for _ in 0..50 {
        opened.backend.observe(&order().target, Some(&order())).await.unwrap();
    }
    assert_eq!(cluster.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn somebody_elses_secret_of_the_name_is_found_when_ours_is_written() {
    let cluster = Cluster::with_kubevirt().await;
    let theirs = json!({ "metadata": { "name": "vm-cloudinit", "namespace": "default" }, "data": { "key": "dGhlaXJz" } });
    let before = cluster.add(Kind::Secret, theirs).await;
    let opened = cluster.open(calm()).await;
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
async fn a_change_is_told_to_whom_it_concerns() {
    let cluster = Cluster::with_kubevirt().await;
    let mut changes = answered(&cluster).await.changes();
    let one = |identity: &str| Changed::One(Identity::new(identity));
    cluster.add(Kind::VirtualMachineInstance, marked("vm", "a")).await;
    assert_eq!(changes.next().await, Some(one("a")));
    // Whoever loses its thing is told too.
    let patch = json!({ "metadata": { "labels": { "vitistack.io/identity": "b" } } });
    let instances = cluster.api(Kind::VirtualMachineInstance);
    instances.patch("vm", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(changes.next().await, Some(one("a")));
    assert_eq!(changes.next().await, Some(one("b")));
    let class = json!({ "metadata": { "name": "fast" }, "provisioner": "none" });
    cluster.add(Kind::StorageClass, class).await;
    assert_eq!(changes.next().await, Some(Changed::All));
}

#[tokio::test]
async fn whoever_finds_a_name_taken_is_told_when_it_is_free() {
    let cluster = Cluster::with_kubevirt().await;
    for name in ["vm", "other"] {
        let foreign = json!({ "metadata": { "name": name, "namespace": "default" } });
        cluster.add(Kind::VirtualMachine, foreign).await;
    }
    let reader = answered(&cluster).await;
    let mut changes = reader.changes();
    assert!(reader.get(Kind::VirtualMachine, "default", "vm").await.unwrap().is_some());
    assert_eq!(reader.get(Kind::PersistentVolumeClaim, "default", "golden").await, Ok(None));
    let machines = cluster.api(Kind::VirtualMachine);
    // Nobody asked for this one.
    machines.delete("other", &DeleteParams::default()).await.unwrap();
    machines.delete("vm", &DeleteParams::default()).await.unwrap();
    assert_eq!(changes.next().await, Some(Changed::All));
    assert_eq!(reader.get(Kind::VirtualMachine, "default", "vm").await, Ok(None));
    let golden = json!({ "metadata": { "name": "golden", "namespace": "default" } });
    cluster.add(Kind::PersistentVolumeClaim, claim(golden)).await;
    assert_eq!(changes.next().await, Some(Changed::All));
}

#[tokio::test]
async fn providers_without_credentials_share_one_set_of_caches() {
    let cluster = Cluster::with_kubevirt().await;
    let opener = KubeVirtOpener::new(cluster.client(calm()));
    let first = opener.open(&own()).await.unwrap();
    first.backend.observe(&order().target, Some(&order())).await.unwrap();
    let lists = cluster.asked().len();
    assert!(lists > 0);
    let second = opener.open(&own()).await.unwrap();
    second.backend.observe(&order().target, Some(&order())).await.unwrap();
    let asked_twice: Vec<String> =
        cluster.asked().into_iter().filter(|request| request.ends_with("/storageclasses")).collect();
    assert!(asked_twice.len() <= 1, "{asked_twice:?}");
}

#[tokio::test]
async fn a_rotated_kubeconfig_is_another_backend_and_the_old_one_is_let_go() {
    let options = || ServeOptions { listen: ([127, 0, 0, 1], 0).into(), data_dir: None, kubeconfig: None };
    let (old, new) = (serve(options()).await.unwrap(), serve(options()).await.unwrap());
    let opener = KubeVirtOpener::new(Cluster::bare().await.hidden_client());
    let (before, after) = (remote(&old.kubeconfig, "1"), remote(&new.kubeconfig, "2"));
    assert_eq!(opener.fingerprint(&before), opener.fingerprint(&before));
    assert_ne!(opener.fingerprint(&before), opener.fingerprint(&after));
    assert!(!opener.fingerprint(&before).contains("token"));
    let new_claims: Api<DynamicObject> = Api::namespaced_with(
        Client::new(new.server.service(), "default"),
        "default",
        &Kind::PersistentVolumeClaim.resource(),
    );
    let mut object: DynamicObject = serde_json::from_value(claim(marked("vm-root", IDENTITY))).unwrap();
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
async fn a_hostile_kubeconfig_is_refused_before_anything_is_done() {
    let hostile = "
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: one, user: me}}]
clusters: [{name: one, cluster: {server: 'https://192.0.2.1:6443'}}]
users: [{name: me, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/touch, args: [hunter2]}}}]
";
    let opener = KubeVirtOpener::new(Cluster::bare().await.hidden_client());
    for kubeconfig in [hostile, "no kubeconfig", ""] {
        let refusal = opener.open(&remote(kubeconfig, "1")).await.map(|_| ()).unwrap_err();
        assert_eq!(refusal.reason, reason::INVALID_CREDENTIALS);
        assert!(refusal.message.starts_with("spec.credentials.secretRef \"far-kubeconfig\""), "{refusal}");
        assert!(!refusal.message.contains("hunter2"), "{refusal}");
    }
    let missing = Source { credentials: None, ..remote("", "1") };
    assert_eq!(opener.open(&missing).await.map(|_| ()).unwrap_err().reason, reason::INVALID_CREDENTIALS);
}

/// The kubeconfig of a cluster that is not there.
async fn gone() -> String {
    let options = ServeOptions { listen: ([127, 0, 0, 1], 0).into(), data_dir: None, kubeconfig: None };
    let serving = serve(options).await.unwrap();
    let kubeconfig = serving.kubeconfig.clone();
    serving.stop().await;
    kubeconfig
}

#[tokio::test]
async fn a_cluster_that_is_away_is_told_as_such() {
    let opener = KubeVirtOpener::new(Cluster::bare().await.hidden_client());
    let answer = opener.open(&remote(&gone().await, "1")).await.unwrap();
    for order in [Some(&order()), None] {
        let failure = answer.backend.observe(&self::order().target, order).await.unwrap_err();
        assert_eq!(failure.kind, ErrorKind::Unreachable, "{failure}");
    }
}

#[tokio::test]
async fn a_probe_tells_the_version_or_what_is_missing() {
    let cluster = Cluster::bare().await;
    let client = cluster.client(calm());
    let missing: BackendError = probe(&client).await.unwrap_err();
    assert_eq!(missing.kind, ErrorKind::Refused);
    assert!(missing.message.contains("KubeVirt is not installed"), "{missing}");
    cluster.install(Kind::KubeVirt).await;
    assert_eq!(probe(&client).await.unwrap().version, None);
    let kubevirt = json!({ "metadata": { "name": "kubevirt", "namespace": "default" }, "status": { "observedKubeVirtVersion": "v1.8.2" } });
    cluster.add(Kind::KubeVirt, kubevirt).await;
    cluster.asked();
    assert_eq!(probe(&client).await.unwrap().version, Some("v1.8.2".parse().unwrap()));
    assert_eq!(cluster.asked(), ["GET /version", "GET /apis/kubevirt.io/v1/kubevirts"]);
}
