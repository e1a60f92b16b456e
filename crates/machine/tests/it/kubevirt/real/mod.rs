//! The backend with the real KubeVirt: one server for all tests, a namespace for each.

mod conformance;
mod examples;
mod lifecycle;
mod refusals;
mod testbed;

use std::time::{Duration, Instant};

use k8s_openapi::{
    api::core::v1::{Namespace, Node, PersistentVolumeClaim},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    core::{DynamicObject, ObjectMeta},
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use vitistack_machine::{
    Backend, Order, Progress, Target,
    conformance::STORAGE_CLASS,
    kubevirt::{Kind, KubeVirt, OwnerKind, Settings},
};
use vitistack_plan::machine::{Identity, Observed, ObservedMachine, Power, Update};
use vitistack_testkit::{Companion, KubeServer, KubeVirt as Programs, Options};
use vitistack_types::{definitions, v1alpha1::Machine};

use super::case::{Case, case};

/// A limit that is generous even on a slow machine.
const LIMIT: Duration = Duration::from_mins(1);

/// The zone of the only node.
pub const ZONE: &str = "zone-a";

/// A server with KubeVirt, CDI and Multus on it.
struct Servers {
    server: KubeServer,
    programs: Programs,
    /// The observation of a machine that needs all of them, before any was installed.
    bare: Observed,
}

static SERVERS: OnceCell<Servers> = OnceCell::const_new();

async fn servers() -> &'static Servers {
    SERVERS.get_or_init(start).await
}

async fn start() -> Servers {
    let server =
        KubeServer::start(&Options { has_controller_manager: true, ..Options::default() }).await.unwrap();
    let client = server.client().await.unwrap();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions() {
        crds.create(&PostParams::default(), &definition).await.unwrap();
    }
    let bare = observe_bare(&client).await;
    for companion in [Companion::Cdi, Companion::Multus] {
        Programs::install(&server, companion).unwrap();
    }
    let programs = Programs::start(&server).await.unwrap();
    let zone = json!({ "metadata": { "labels": { "topology.kubernetes.io/zone": ZONE } } });
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch("standin", &PatchParams::default(), &Patch::Merge(zone)).await.unwrap();
    for (name, fields) in [
        (STORAGE_CLASS, json!({ "allowVolumeExpansion": true })),
        ("fast-ssd", json!({ "allowVolumeExpansion": true })),
        ("rigid", json!({})),
        ("late", json!({ "allowVolumeExpansion": true, "volumeBindingMode": "WaitForFirstConsumer" })),
    ] {
        let mut class = fields;
        class["provisioner"] = json!("standin.vitistack.io");
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let class = Kind::StorageClass.child(metadata, class).object;
        let classes: Api<DynamicObject> = Api::all_with(client.clone(), &Kind::StorageClass.resource());
        classes.create(&PostParams::default(), &class).await.unwrap();
    }
    Servers { server, programs, bare }
}

/// Observes a machine that needs KubeVirt, CDI and Multus in a cluster without them.
async fn observe_bare(client: &Client) -> Observed {
    let order = case(EVERYTHING).order();
    let backend = KubeVirt::live(client.clone(), Settings::default());
    let refusal = backend.create(&order).await.unwrap_err();
    assert!(refusal.message.contains("KubeVirt is not installed"), "{refusal}");
    backend.observe(&order.target, Some(&order)).await.unwrap()
}

/// A machine that needs KubeVirt, CDI and Multus.
const EVERYTHING: &str = "{spec: {template: small, disks: [{name: root, source: {image: quay.io/a/b}}], networks: [{name: eth0, networkName: prod}]}, networks: {prod: {bridge: br0}}}";

async fn add_namespace(client: &Client, name: &str) {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
}

/// A namespace for one test, and a backend for its Machines.
struct Fixture {
    servers: &'static Servers,
    client: Client,
    backend: KubeVirt,
    namespace: &'static str,
}

impl Fixture {
    async fn new(namespace: &'static str) -> Self {
        let servers = servers().await;
        let client = servers.server.client().await.unwrap();
        add_namespace(&client, namespace).await;
        let owner = OwnerKind { api_version: "vitistack.io/v1alpha1".to_owned(), kind: "Machine".to_owned() };
        let settings = Settings { owner: Some(owner), ..Settings::default() };
        Self { servers, backend: KubeVirt::live(client.clone(), settings), client, namespace }
    }

    /// Creates the Machine of a case on the server, and returns its order.
    async fn declare(&self, case: &Case) -> Order {
        let mut machine = case.machine();
        machine.metadata.namespace = Some(self.namespace.to_owned());
        let machines: Api<Machine> = Api::namespaced(self.client.clone(), self.namespace);
        let created = machines.create(&PostParams::default(), &machine).await.unwrap();
        let uid = created.metadata.uid.clone().unwrap();
        let target = Target {
            identity: Identity::new(uid.clone()),
            uid,
            name: created.metadata.name.clone().unwrap(),
            namespace: self.namespace.to_owned(),
        };
        case.order_for(&created, target)
    }

    /// Returns the order for the same Machine with the spec of another case.
    fn changed(order: &Order, case: &Case) -> Order {
        let mut machine = case.machine();
        machine.metadata.name = Some(order.target.name.clone());
        machine.metadata.namespace = Some(order.target.namespace.clone());
        case.order_for(&machine, order.target.clone())
    }

    async fn create(&self, order: &Order) {
        assert_eq!(self.backend.create(order).await, Ok(Progress::Done));
    }

    async fn update(&self, order: &Order, update: &Update) -> Progress {
        self.backend.update(order, update).await.unwrap()
    }

    async fn observe(&self, order: &Order) -> Observed {
        self.backend.observe(&order.target, Some(order)).await.unwrap()
    }

    async fn machine(&self, order: &Order) -> ObservedMachine {
        self.observe(order).await.machine.unwrap()
    }

    /// Creates the machine and waits until it runs.
    async fn run(&self, order: &Order) -> ObservedMachine {
        self.create(order).await;
        self.reach(order, &Power::Running).await
    }

    /// Waits until the machine has this power state.
    async fn reach(&self, order: &Order, power: &Power) -> ObservedMachine {
        self.until(order, &format!("{power:?}"), |observed| {
            observed.machine.clone().filter(|machine| machine.power == *power)
        })
        .await
    }

    /// Waits until an observation matches.
    async fn until<T>(&self, order: &Order, what: &str, matches: impl Fn(&Observed) -> Option<T>) -> T {
        let limit = Instant::now() + LIMIT;
        loop {
            let observed = self.observe(order).await;
            if let Some(found) = matches(&observed) {
                return found;
            }
            assert!(
                Instant::now() < limit,
                "timed out waiting for {what} of {}; observed {observed:#?}; log of the stand-in: {}",
                order.target.name,
                self.servers.programs.log("standin")
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), self.namespace, &kind.resource())
    }

    /// Returns the object with this name; fails if it does not exist.
    async fn get(&self, kind: Kind, name: &str) -> DynamicObject {
        self.api(kind).get(name).await.unwrap()
    }

    async fn find(&self, kind: Kind, name: &str) -> Option<DynamicObject> {
        self.api(kind).get_opt(name).await.unwrap()
    }

    /// Creates a foreign object.
    async fn add(&self, kind: Kind, name: &str, data: Value) -> DynamicObject {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        self.api(kind).create(&PostParams::default(), &kind.child(metadata, data).object).await.unwrap()
    }

    /// Creates a foreign claim and waits until it is bound.
    async fn add_claim(&self, name: &str) -> DynamicObject {
        let spec =
            json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
        self.add(Kind::PersistentVolumeClaim, name, json!({ "spec": spec })).await;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), self.namespace);
        let limit = Instant::now() + LIMIT;
        loop {
            let claim = claims.get(name).await.unwrap();
            if claim.status.and_then(|status| status.phase).as_deref() == Some("Bound") {
                return self.get(Kind::PersistentVolumeClaim, name).await;
            }
            assert!(Instant::now() < limit, "timed out waiting for claim {name}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Asserts that the machine is current and that further calls write nothing.
    async fn assert_no_writes(&self, order: &Order) {
        let machine = self.machine(order).await;
        assert!(machine.is_current, "{machine:#?}");
        assert_eq!(machine.unchangeable, Vec::<String>::new());
        let before = self.own_writes(order).await;
        self.update(order, &Update::Specification).await;
        self.create(order).await;
        assert_eq!(self.own_writes(order).await, before);
    }

    /// Returns the times of our last writes to each object, without those of KubeVirt and the cluster.
    async fn own_writes(&self, order: &Order) -> Vec<String> {
        let mut versions = Vec::new();
        for kind in [Kind::VirtualMachine, Kind::PersistentVolumeClaim, Kind::DataVolume, Kind::Secret] {
            let ours = kube::api::ListParams::default()
                .labels(&format!("vitistack.io/identity={}", order.target.identity));
            for object in self.api(kind).list(&ours).await.unwrap() {
                let fields = object.metadata.managed_fields.unwrap_or_default();
                let times =
                    fields.iter().filter(|entry| entry.manager.as_deref() == Some("vitistack-kubevirt"));
                let times: Vec<_> =
                    times.map(|entry| (entry.operation.clone(), entry.time.clone())).collect();
                versions.push(format!("{} {:?} {times:?}", kind.name(), object.metadata.name));
            }
        }
        versions
    }
}
