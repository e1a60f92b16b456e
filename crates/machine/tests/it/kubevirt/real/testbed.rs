//! A testbed of the conformance suite with the real KubeVirt.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use http::{Method, Request, Response};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    client::Body,
    core::{DynamicObject, ObjectMeta},
};
use serde_json::{Value, json};
use vitistack_machine::{
    Backend, BackendError, Order, Part, Progress, Target, Update,
    conformance::{
        CLAIM, Failure, Fault, Harness, NAMESPACE, OTHER_NAMESPACE, Resource, ResourceKind, Testbed,
    },
    kubevirt::{Kind, KubeVirt, Settings, identity_of},
};
use vitistack_plan::machine::{Capabilities, Observed};
use vitistack_types::labels;

use super::{LIMIT, ZONE, add_namespace, servers};

/// A zone without a node: machines in it are created and wait.
const EMPTY_ZONE: &str = "zone-b";

/// Starts testbeds on the server that all tests share, each with its own namespaces.
pub struct RealHarness(Client);

/// The number of testbeds of all tests.
static TESTBEDS: AtomicUsize = AtomicUsize::new(0);

impl RealHarness {
    pub async fn new() -> Self {
        Self(servers().await.server.client().await.unwrap())
    }
}

#[async_trait]
impl Harness for RealHarness {
    async fn testbed(&self) -> Result<Box<dyn Testbed>, Failure> {
        let number = TESTBEDS.fetch_add(1, Ordering::Relaxed);
        let client = self.0.clone();
        let faults = Arc::default();
        let backend = Mapped { backend: backend(&client, &faults), number };
        let testbed = RealTestbed { backend, client, faults };
        for namespace in testbed.namespaces() {
            add_namespace(&testbed.client, &namespace).await;
        }
        testbed.add(Kind::PersistentVolumeClaim, NAMESPACE, CLAIM, claim()).await?;
        testbed.settle().await?;
        Ok(Box::new(testbed))
    }
}

/// One testbed.
struct RealTestbed {
    backend: Mapped,
    client: Client,
    faults: Faults,
}

/// The faults between the backend and the server.
type Faults = Arc<Mutex<Vec<Fault>>>;

/// Returns a backend whose requests are subject to the faults.
fn backend(client: &Client, faults: &Faults) -> KubeVirt {
    let (server, faults) = (client.clone(), Arc::clone(faults));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (server, faults) = (server.clone(), Arc::clone(&faults));
        async move { answer(&server, &faults, request).await }
    });
    let zones = vec![ZONE.to_owned(), EMPTY_ZONE.to_owned()];
    KubeVirt::live(Client::new(service, "default"), Settings { zones, ..Settings::default() })
}

async fn answer(
    server: &Client,
    faults: &Faults,
    request: Request<Body>,
) -> Result<Response<Body>, std::io::Error> {
    let has = |fault: &Fault| faults.lock().unwrap().contains(fault);
    let is_change = request.method() != Method::GET;
    // A fault of the next change applies only once.
    let meets = |fault: Fault| {
        let meets = is_change && has(&fault);
        faults.lock().unwrap().retain(|waiting| !meets || *waiting != fault);
        meets
    };
    let no_answer = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    if has(&Fault::Unreachable(true)) {
        return Err(no_answer());
    }
    if has(&Fault::Unauthenticated(true)) {
        return Ok(refusal(401, "Unauthorized"));
    }
    if meets(Fault::FailNextTask) {
        return Ok(refusal(500, "internal error"));
    }
    let is_lost = meets(Fault::LoseNextReply);
    let reply = server.send(request).await.map_err(std::io::Error::other)?;
    if is_lost { Err(no_answer()) } else { Ok(reply) }
}

fn refusal(code: u16, message: &str) -> Response<Body> {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": message });
    Response::builder().status(code).body(Body::from(status.to_string().into_bytes())).unwrap()
}

fn claim() -> Value {
    json!({ "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } })
}

/// The backend, with the namespaces of the suite mapped to those of one testbed.
struct Mapped {
    backend: KubeVirt,
    number: usize,
}

impl Mapped {
    fn namespace(&self, namespace: &str) -> String {
        format!("{namespace}-{}", self.number)
    }

    fn target(&self, target: &Target) -> Target {
        Target { namespace: self.namespace(&target.namespace), ..target.clone() }
    }

    fn order(&self, order: &Order) -> Order {
        let mut order = order.clone();
        order.target = self.target(&order.target);
        order.desired.namespace.clone_from(&order.target.namespace);
        order
    }
}

#[async_trait]
impl Backend for Mapped {
    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    async fn observe(&self, target: &Target, order: Option<&Order>) -> Result<Observed, BackendError> {
        let order = order.map(|order| self.order(order));
        self.backend.observe(&self.target(target), order.as_ref()).await
    }

    async fn create(&self, order: &Order) -> Result<Progress, BackendError> {
        self.backend.create(&self.order(order)).await
    }

    async fn update(&self, order: &Order, update: &Update) -> Result<Progress, BackendError> {
        self.backend.update(&self.order(order), update).await
    }

    async fn delete(&self, target: &Target, part: &Part) -> Result<Progress, BackendError> {
        self.backend.delete(&self.target(target), part).await
    }
}

fn broken(error: &kube::Error) -> Failure {
    Failure::UseTestbed { problem: error.to_string() }
}

impl RealTestbed {
    fn namespaces(&self) -> [String; 2] {
        [NAMESPACE, OTHER_NAMESPACE].map(|namespace| self.backend.namespace(namespace))
    }

    fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &kind.resource())
    }

    /// Returns all objects of a kind in both namespaces.
    async fn all(&self, kind: Kind) -> Result<Vec<DynamicObject>, Failure> {
        let mut all = Vec::new();
        for namespace in self.namespaces() {
            let found = self.api(kind, &namespace).list(&ListParams::default()).await;
            all.extend(found.map_err(|error| broken(&error))?.items);
        }
        Ok(all)
    }

    /// Creates a foreign object.
    async fn add(&self, kind: Kind, namespace: &str, name: &str, data: Value) -> Result<(), Failure> {
        let namespace = self.backend.namespace(namespace);
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let object = kind.child(metadata, data).object;
        let created = self.api(kind, &namespace).create(&PostParams::default(), &object).await;
        created.map(drop).map_err(|error| broken(&error))
    }

    async fn add_machine(&self, target: &Target) -> Result<(), Failure> {
        let template = json!({ "spec": { "domain": { "memory": { "guest": "64Mi" }, "devices": {} } } });
        let machine = json!({ "spec": { "runStrategy": "Halted", "template": template } });
        self.add(Kind::VirtualMachine, &target.namespace, &target.name, machine).await
    }

    /// Returns an object that is still changing, if there is one.
    async fn unsettled(&self) -> Result<Option<String>, Failure> {
        let instances = self.all(Kind::VirtualMachineInstance).await?;
        let machines = self.all(Kind::VirtualMachine).await?;
        let claims = self.all(Kind::PersistentVolumeClaim).await?;
        let volumes = self.all(Kind::DataVolume).await?;
        let of = |machine: &DynamicObject| {
            instances.iter().find(|instance| {
                instance.name_any() == machine.name_any() && instance.namespace() == machine.namespace()
            })
        };
        let all = machines.iter().chain(&instances).chain(&claims).chain(&volumes);
        let deleting = all.filter(|object| object.metadata.deletion_timestamp.is_some());
        let machines = machines.iter().filter(|machine| !is_machine_settled(machine, of(machine)));
        let claims = claims.iter().filter(|claim| {
            claim.data["status"]["phase"] != "Bound"
                || claim.data["status"]["capacity"]["storage"]
                    != claim.data["spec"]["resources"]["requests"]["storage"]
        });
        let volumes = volumes.iter().filter(|volume| volume.data["status"]["phase"] != "Succeeded");
        let mut unsettled = deleting.chain(machines).chain(claims).chain(volumes);
        Ok(unsettled.next().map(|object| json!(object).to_string()))
    }
}

fn is_machine_settled(machine: &DynamicObject, instance: Option<&DynamicObject>) -> bool {
    let (spec, status) = (&machine.data["spec"], &machine.data["status"]);
    let is_on = spec["runStrategy"] == "Always";
    let Some(instance) = instance else {
        return !is_on && status["printableStatus"] == "Stopped";
    };
    let has_no_node = spec["template"]["spec"]["nodeSelector"]["topology.kubernetes.io/zone"] == EMPTY_ZONE
        && status["printableStatus"] == "ErrorUnschedulable";
    let runs = instance.data["status"]["phase"] == "Running" && status["printableStatus"] == "Running";
    is_on && status["desiredGeneration"].as_i64() == machine.metadata.generation && (runs || has_no_node)
}

#[async_trait]
impl Testbed for RealTestbed {
    fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    fn zones(&self) -> Vec<String> {
        vec![ZONE.to_owned(), EMPTY_ZONE.to_owned()]
    }

    async fn resources(&self) -> Result<Vec<Resource>, Failure> {
        let instances = self.all(Kind::VirtualMachineInstance).await?;
        let filled = self.all(Kind::DataVolume).await?;
        let machines = self.all(Kind::VirtualMachine).await?;
        let claims = self.all(Kind::PersistentVolumeClaim).await?;
        let machines = machines.iter().map(|found| machine(found, &instances));
        let volumes = claims.iter().map(|found| volume(found, &filled, &instances));
        Ok(machines.chain(volumes).collect())
    }

    async fn settle(&self) -> Result<(), Failure> {
        let limit = Instant::now() + LIMIT;
        while let Some(unsettled) = self.unsettled().await? {
            if Instant::now() > limit {
                return Err(Failure::UseTestbed {
                    problem: format!("the provider does not become idle: {unsettled}"),
                });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    async fn inject(&self, fault: &Fault) -> Result<(), Failure> {
        let mut faults = self.faults.lock().unwrap().clone();
        match fault {
            Fault::LoseNextReply
            | Fault::FailNextTask
            | Fault::Unreachable(true)
            | Fault::Unauthenticated(true) => {
                faults.push(fault.clone());
            }
            Fault::Unreachable(false) => faults.retain(|fault| *fault != Fault::Unreachable(true)),
            Fault::Unauthenticated(false) => faults.retain(|fault| *fault != Fault::Unauthenticated(true)),
            Fault::ForeignMachine(target) => self.add_machine(target).await?,
            Fault::ForeignVolume(target, disk) => {
                let name = format!("{}-{disk}", target.name);
                self.add(Kind::PersistentVolumeClaim, &target.namespace, &name, claim()).await?;
            }
            Fault::Replace(target) => {
                let machines = self.api(Kind::VirtualMachine, &self.backend.namespace(&target.namespace));
                let deleted = machines.delete(&target.name, &DeleteParams::default()).await;
                deleted.map_err(|error| broken(&error))?;
                self.settle().await?;
                self.add_machine(target).await?;
            }
        }
        *self.faults.lock().unwrap() = faults;
        self.settle().await
    }

    async fn restart(&mut self) -> Result<(), Failure> {
        self.backend.backend = backend(&self.client, &self.faults);
        Ok(())
    }
}

fn machine(machine: &DynamicObject, instances: &[DynamicObject]) -> Resource {
    let instance = instances.iter().find(|instance| {
        instance.name_any() == machine.name_any() && instance.namespace() == machine.namespace()
    });
    Resource {
        kind: ResourceKind::Machine,
        id: machine.name_any(),
        identity: identity_of(machine),
        disk: None,
        given: json!({
            "spec": without_serial(&machine.data["spec"], "/template/spec/domain/firmware"),
            "ours": ours(machine),
        }),
        effective: instance.map(in_effect).unwrap_or_default(),
        incarnation: instance.and_then(ResourceExt::uid).unwrap_or_default(),
    }
}

/// Returns the fields that the backend applied, without the defaults of KubeVirt.
fn ours(machine: &DynamicObject) -> Vec<Value> {
    let entries = machine.metadata.managed_fields.iter().flatten();
    let ours = entries.filter(|entry| entry.operation.as_deref() == Some("Apply"));
    ours.map(|entry| json!(entry.fields_v1)).collect()
}

/// Returns the configuration of an instance. A hotplugged interface counts once the guest has it.
fn in_effect(instance: &DynamicObject) -> Value {
    let mut spec = without_serial(&instance.data["spec"], "/domain/firmware");
    let plugged: Vec<Value> = instance.data["status"]["interfaces"].as_array().cloned().unwrap_or_default();
    for list in ["/domain/devices/interfaces", "/networks"] {
        if let Some(list) = spec.pointer_mut(list).and_then(Value::as_array_mut) {
            list.retain(|entry| plugged.iter().any(|plugged| plugged["name"] == entry["name"]));
        }
    }
    spec
}

/// Removes the serial number, which KubeVirt generates.
fn without_serial(spec: &Value, firmware: &str) -> Value {
    let mut spec = spec.clone();
    if let Some(firmware) = spec.pointer_mut(firmware).and_then(Value::as_object_mut) {
        firmware.remove("serial");
    }
    spec
}

fn volume(claim: &DynamicObject, filled: &[DynamicObject], instances: &[DynamicObject]) -> Resource {
    let (name, namespace) = (claim.name_any(), claim.namespace());
    let filled = filled.iter().find(|filled| filled.name_any() == name && filled.namespace() == namespace);
    let mut spec = claim.data["spec"].clone();
    // Assigned by the cluster.
    spec.as_object_mut().unwrap().remove("volumeName");
    let is_used = instances.iter().filter(|instance| instance.namespace() == namespace).any(|instance| {
        instance.data["spec"]["volumes"].as_array().into_iter().flatten().any(|volume| {
            volume["persistentVolumeClaim"]["claimName"] == *name || volume["dataVolume"]["name"] == *name
        })
    });
    Resource {
        kind: ResourceKind::Volume,
        id: claim.uid().unwrap_or_default(),
        identity: identity_of(claim),
        disk: claim.labels().get(labels::DISK).cloned(),
        given: json!({
            "claim": spec,
            "source": filled.map(|filled| &filled.data["spec"]["source"]),
            "policy": claim.annotations().get(labels::RECLAIM_POLICY),
        }),
        effective: if is_used { claim.data["status"]["capacity"].clone() } else { Value::Null },
        incarnation: String::new(),
    }
}
