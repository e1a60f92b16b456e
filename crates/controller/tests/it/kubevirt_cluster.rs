//! A cluster with KubeVirt's kinds, which records its requests.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Request, Response, StatusCode};
use kube::{
    Api, Client,
    api::PostParams,
    client::Body,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};
use vitistack_apiserver::{
    ApiServer,
    faults::{FaultLayer, FaultPlan},
};
use vitistack_clients::kubernetes::cache::Budget;
use vitistack_machine::{
    BackendOpener, ErrorKind, OpenBackend, Order, ProviderConfig, Target,
    kubevirt::{CachedReader, Kind, KubeVirtOpener, ReadError, Reader},
};
use vitistack_plan::machine::{Identity, References, resolve};
use vitistack_types::{WatchedNamespaces, decode, v1alpha1::Machine};

/// The identity of the machine that tests order.
pub const IDENTITY: &str = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff";

pub fn no_faults() -> FaultPlan {
    FaultPlan::new(1)
}

/// The operator's own cluster.
pub fn own_cluster() -> ProviderConfig {
    ProviderConfig { provider: None, credentials: None, credentials_version: None }
}

/// A machine with one disk.
pub fn order() -> Order {
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

/// Waits until `poll` returns a value.
pub async fn wait_for<T, F: Future<Output = Option<T>>>(what: &str, mut poll: impl FnMut() -> F) -> T {
    let polling = async {
        loop {
            if let Some(found) = poll().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), polling)
        .await
        .unwrap_or_else(|_| panic!("never happened: {what}"))
}

/// A cluster that records its requests and can forbid reading PersistentVolumeClaims.
pub struct Cluster {
    pub server: ApiServer,
    pub requests: Arc<Mutex<Vec<String>>>,
    pub forbids_claims: Arc<AtomicBool>,
}

impl Cluster {
    /// A cluster with nothing installed but a default StorageClass.
    pub async fn bare() -> Self {
        let server = ApiServer::builder().build().await.unwrap();
        let cluster = Self { server, requests: Arc::default(), forbids_claims: Arc::default() };
        let class = json!({ "metadata": { "name": "standard", "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } }, "provisioner": "none" });
        cluster.add(Kind::StorageClass, class).await;
        cluster
    }

    /// A cluster with KubeVirt.
    pub async fn with_kubevirt() -> Self {
        let cluster = Self::bare().await;
        for kind in [Kind::VirtualMachine, Kind::VirtualMachineInstance, Kind::KubeVirt] {
            cluster.install(kind).await;
        }
        cluster
    }

    /// A client whose requests are not recorded.
    pub fn unrecorded_client(&self) -> Client {
        Client::new(self.server.service(), "default")
    }

    /// A client whose requests are recorded, with faults.
    pub fn client(&self, plan: FaultPlan) -> Client {
        let service = FaultLayer::new(plan).layer(self.server.service());
        let (requests, forbids_claims) = (Arc::clone(&self.requests), Arc::clone(&self.forbids_claims));
        let recorded = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let how = if query.contains("NotOlderThan") { " not too old" } else { "" };
            requests.lock().unwrap().push(format!("{} {}{how}", request.method(), request.uri().path()));
            let is_forbidden = forbids_claims.load(Ordering::SeqCst)
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
        Client::new(recorded, "default")
    }

    /// Returns the requests since the last call.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    pub fn api(&self, kind: Kind) -> Api<DynamicObject> {
        let resource = kind.resource();
        match kind {
            Kind::StorageClass => Api::all_with(self.unrecorded_client(), &resource),
            _ => Api::namespaced_with(self.unrecorded_client(), "default", &resource),
        }
    }

    pub async fn add(&self, kind: Kind, object: Value) -> DynamicObject {
        let mut object: DynamicObject = serde_json::from_value(object).unwrap();
        object.types = DynamicObject::new("", &kind.resource()).types;
        self.api(kind).create(&PostParams::default(), &object).await.unwrap()
    }

    /// Installs the CRD of a kind.
    pub async fn install(&self, kind: Kind) {
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
            Api::all_with(self.unrecorded_client(), &ApiResource::from_gvk(&definitions));
        api.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
    }

    /// Opens the backend as the operator does, and waits until its caches are filled.
    pub async fn open(&self, plan: FaultPlan) -> OpenBackend {
        let opened = KubeVirtOpener::new(self.client(plan), WatchedNamespaces::ALL)
            .open(&own_cluster())
            .await
            .unwrap();
        let backend = Arc::clone(&opened.backend);
        wait_for("the caches are filled", || async {
            backend.observe(&order().target, Some(&order())).await.ok()
        })
        .await;
        self.take_requests();
        opened
    }
}

/// Starts caches and waits until the cluster has answered for every kind.
pub async fn filled_reader(cluster: &Cluster) -> Arc<CachedReader> {
    let reader = Arc::new(CachedReader::start(
        &cluster.client(no_faults()),
        &WatchedNamespaces::ALL,
        &Budget::unlimited(),
    ));
    let waits = |read: Result<Vec<_>, ReadError>| match read {
        Err(ReadError::Failed(failure)) => failure.kind == ErrorKind::Unreachable,
        _ => false,
    };
    for kind in Kind::ALL {
        wait_for("the cluster answers", || async { (!waits(reader.all(kind).await)).then_some(()) }).await;
    }
    reader
}

pub fn forbidden() -> Response<axum::body::Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "persistentvolumeclaims is forbidden: User \"vitistack\" cannot list resource",
    });
    let mut response = Response::new(status.to_string().into());
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}
