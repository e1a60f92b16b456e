//! A minimal Kubernetes API for the requests of the backend: objects by path, UIDs, preconditions and lost replies. The
//! tests in `real` send the same requests to a real server and KubeVirt.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::Future,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use vitistack_machine::kubevirt::{Kind, KubeVirt};

use super::case::Case;

/// A fake cluster.
pub struct FakeCluster {
    state: Arc<Mutex<State>>,
    runtime: Runtime,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    writes: Vec<String>,
    lacks: Vec<String>,
    created: usize,
    /// The number of writes after which replies are lost.
    lost_after: Option<usize>,
}

impl FakeCluster {
    /// Returns a cluster with the objects of the case.
    pub fn new(case: &Case) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let cluster = Self { state: Arc::default(), runtime };
        for object in &case.reader().objects {
            let kind = Kind::ALL
                .into_iter()
                .find(|kind| object.types.as_ref().is_some_and(|types| types.kind == kind.name()));
            let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
            let folder = format!("{}/{namespace}", kind.unwrap().permission());
            cluster.put(&folder, serde_json::to_value(object.as_ref()).unwrap());
        }
        let plural =
            |name: &String| Kind::ALL.into_iter().find(|kind| kind.name() == name).unwrap().permission();
        cluster.state.lock().unwrap().lacks = case.lacks.iter().map(plural).collect();
        cluster
    }

    fn put(&self, folder: &str, mut object: Value) {
        let mut state = self.state.lock().unwrap();
        state.created += 1;
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", state.created));
        }
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        state.objects.insert(format!("{folder}/{name}"), object);
    }

    /// Returns all objects.
    pub fn objects(&self) -> Vec<Value> {
        self.state.lock().unwrap().objects.values().cloned().collect()
    }

    /// Returns the object of a kind.
    pub fn object(&self, kind: &str) -> Option<Value> {
        self.objects().into_iter().find(|object| object["kind"] == kind)
    }

    /// Changes the object of a kind.
    pub fn change(&self, kind: &str, change: impl FnOnce(&mut Value)) {
        let mut state = self.state.lock().unwrap();
        change(state.objects.values_mut().find(|object| object["kind"] == kind).unwrap());
    }

    /// Adds an object in the namespace `default`.
    pub fn add(&self, kind: Kind, object: Value) {
        self.put(&format!("{}/default", kind.permission()), object);
    }

    /// Returns the writes since the last call.
    pub fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().writes)
    }

    /// Loses the replies to all writes after this number of writes; they are still carried out. None stops it.
    pub fn lose_after(&self, writes: Option<usize>) {
        self.state.lock().unwrap().lost_after = writes;
    }

    /// Returns a client for the cluster.
    pub fn client(&self) -> Client {
        let _inside = self.runtime.enter();
        let state = Arc::clone(&self.state);
        Client::new(
            tower::service_fn(move |request: Request<Body>| {
                let state = Arc::clone(&state);
                async move { Ok::<_, Infallible>(answer(&state, request).await) }
            }),
            "default",
        )
    }

    /// Runs a call to its end.
    pub fn run<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime.block_on(call)
    }

    /// Returns a backend for the cluster.
    pub fn backend(&self, case: &Case) -> KubeVirt {
        KubeVirt::live(self.client(), case.settings())
    }
}

async fn answer(state: &Mutex<State>, request: Request<Body>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let query = parts.uri.query().unwrap_or_default();
    let mut state = state.lock().unwrap();
    let (code, mut reply) = state.handle(&parts.method, parts.uri.path(), query, body);
    let mut code = code;
    if parts.method != Method::GET {
        match state.lost_after.as_mut() {
            Some(0) => (code, reply) = (504, refusal(504, "Timeout", "")),
            Some(left) => *left -= 1,
            None => {}
        }
    }
    Response::builder().status(code).body(Full::new(Bytes::from(reply.to_string()))).unwrap()
}

fn refusal(code: u16, message: &str, name: &str) -> Value {
    let details = if name.is_empty() { Value::Null } else { json!({ "name": name }) };
    let mut status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": message });
    if !details.is_null() {
        status["details"] = details;
    }
    status
}

/// Merges a value into another; null removes a field.
fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (field, value) in over {
                if value.is_null() {
                    base.remove(&field);
                } else {
                    merge(base.entry(field).or_insert(Value::Null), value);
                }
            }
        }
        (base, over) => *base = over,
    }
}

impl State {
    fn handle(&mut self, method: &Method, path: &str, query: &str, body: Value) -> (u16, Value) {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => return (404, refusal(404, "404 page not found", "")),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("default", rest),
        };
        let plural = if group.is_empty() { rest[0].to_owned() } else { format!("{}.{group}", rest[0]) };
        if self.lacks.contains(&plural) {
            return (404, refusal(404, "the server could not find the requested resource", ""));
        }
        let folder = format!("{plural}/{namespace}");
        let name = rest.get(1).copied().or_else(|| body["metadata"]["name"].as_str());
        let key = name.map(|name| format!("{folder}/{name}"));
        if *method != Method::GET {
            let how = if query.contains("force=true") { " by force" } else { "" };
            self.writes.push(format!("{method} {}{how}", key.as_deref().unwrap_or_default()));
        }
        match (method.as_str(), key) {
            ("GET", None) => (200, self.list(&folder, query)),
            ("GET", Some(key)) => self.found(&key),
            ("POST", Some(key)) if self.objects.contains_key(&key) => {
                (409, refusal(409, "AlreadyExists", &key))
            }
            ("POST", Some(key)) => (201, self.write(key, body)),
            ("PATCH", Some(key)) => self.patch(key, query, body),
            ("DELETE", Some(key)) => self.delete(&key, &body),
            _ => (405, refusal(405, "MethodNotAllowed", "")),
        }
    }

    fn found(&self, key: &str) -> (u16, Value) {
        self.objects
            .get(key)
            .map_or_else(|| (404, refusal(404, "NotFound", key)), |object| (200, object.clone()))
    }

    fn list(&self, folder: &str, query: &str) -> Value {
        let identity = query
            .split('&')
            .find_map(|part| part.strip_prefix("labelSelector="))
            .and_then(|text| text.rsplit_once("%3D"));
        let is_selected = |object: &&Value| {
            identity
                .is_none_or(|(_, identity)| object["metadata"]["labels"]["vitistack.io/identity"] == identity)
        };
        let items = self
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(&format!("{folder}/")))
            .map(|(_, object)| object);
        json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": items.filter(is_selected).collect::<Vec<_>>() })
    }

    fn write(&mut self, key: String, mut object: Value) -> Value {
        self.created += 1;
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.created));
        }
        self.objects.insert(key, object.clone());
        object
    }

    fn patch(&mut self, key: String, query: &str, body: Value) -> (u16, Value) {
        let uid = body["metadata"]["uid"].clone();
        let is_apply = query.contains("force") || body["kind"].is_string();
        match self.objects.get(&key).cloned() {
            None if is_apply && uid.is_null() => (201, self.write(key, body)),
            None => (404, refusal(404, "NotFound", &key)),
            Some(found) if !uid.is_null() && found["metadata"]["uid"] != uid => {
                (409, refusal(409, "Conflict", &key))
            }
            Some(mut found) => {
                merge(&mut found, body);
                (200, self.write(key, found))
            }
        }
    }

    fn delete(&mut self, key: &str, body: &Value) -> (u16, Value) {
        let (code, found) = self.found(key);
        let uid = &body["preconditions"]["uid"];
        if code == 200 && !uid.is_null() && found["metadata"]["uid"] != *uid {
            return (409, refusal(409, "Conflict", key));
        }
        self.objects.remove(key);
        (code, found)
    }
}
