//! The server's inside: what all verbs share, and the way of a request to its verb.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::garbage::{Owners, Work};
use crate::kinds::{self, definitions, events};
use crate::registry::{Registry, Resource};
use crate::reply::{self, Accept, Payload, Reply};
use crate::request::{Options, Route, Target};
use crate::status::{Failure, Subject};
use crate::store::{Key, Scope, Store};
use crate::{body, discovery, metadata, names, openapi, verbs};

/// Tells the time. Tests give their own.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
/// Makes UIDs. Tests give their own.
pub type Uids = Arc<dyn Fn() -> Uuid + Send + Sync>;
/// Tells whether a token is the administrator's.
pub type KnowsToken = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Namespaces that are there from the start.
const FIRST_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// What all verbs share.
pub struct Server {
    /// The objects.
    pub store: Arc<dyn Store>,
    /// The resources.
    pub registry: Registry,
    /// The time.
    pub clock: Clock,
    /// New UIDs.
    pub uids: Uids,
    /// Who owns what.
    pub owners: Owners,
    /// What is to be cleaned up.
    pub work: mpsc::UnboundedSender<Work>,
    /// For token reviews.
    pub knows_token: KnowsToken,
    /// How often a quiet watch is told the version it has reached.
    pub bookmarks_every: Duration,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Server").field("registry", &self.registry).finish_non_exhaustive()
    }
}

/// A request for a resource, with all a verb needs to know.
#[derive(Debug)]
pub struct Call {
    /// What it names.
    pub target: Target,
    /// The resource.
    pub resource: Arc<Resource>,
    /// Its query.
    pub options: Options,
    /// What the client takes.
    pub accept: Accept,
    /// The type of the body.
    pub content_type: String,
    /// The client program.
    pub user_agent: String,
    /// The body.
    pub body: Bytes,
}

impl Call {
    /// The object's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or_default()
    }

    /// The namespace, empty if there is none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.target.namespace.as_deref().unwrap_or_default()
    }

    /// The key of the object named.
    #[must_use]
    pub fn key(&self) -> Key {
        Key {
            resource: Arc::clone(&self.resource.storage),
            namespace: self.namespace().to_owned(),
            name: self.name().to_owned(),
        }
    }

    /// The objects a list names.
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope { resource: Arc::clone(&self.resource.storage), namespace: self.target.namespace.clone() }
    }

    /// 404 for the object named.
    #[must_use]
    pub fn not_found(&self) -> Failure {
        Failure::not_found(self.resource.subject(), self.name())
    }
}

impl Server {
    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Makes what every cluster has, serves the definitions that are stored, and learns who owns what.
    pub async fn start(self: &Arc<Self>) -> Result<(), Failure> {
        let served = self.registry.served();
        let namespaces = served.find("", "v1", "namespaces").cloned().ok_or_else(Failure::no_resource)?;
        for name in FIRST_NAMESPACES {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            match verbs::create::insert(self, &namespaces, object, "kube-apiserver").await {
                Err(failure) if failure.reason != "AlreadyExists" => return Err(failure),
                _ => {}
            }
        }
        for definition in self.definitions() {
            if definitions::established(&definition) {
                let name = metadata::text(&definition, "name");
                self.registry.define(name, || definitions::resources(&definition));
            } else {
                // The process may have ended between its two steps.
                self.define(&definition, false).await;
            }
        }
        crate::garbage::learn(self);
        Ok(())
    }

    /// All definitions stored.
    #[must_use]
    pub fn definitions(&self) -> Vec<Value> {
        let scope = Scope { resource: Arc::from(definitions::STORED_IN), namespace: None };
        let page = self.store.list(&scope, None, None, None).unwrap_or_default();
        page.entries.iter().map(|(_, entry)| crate::store::document::parse(&entry.bytes)).collect()
    }

    /// Refuses writes into a namespace that is not there or is going away.
    pub fn check_namespace(&self, resource: &Resource, name: &str, namespace: &str) -> Result<(), Failure> {
        let key =
            Key { resource: Arc::from("/namespaces"), namespace: String::new(), name: namespace.to_owned() };
        let entry = self.store.get(&key);
        let entry =
            entry.ok_or_else(|| Failure::not_found(Subject { group: "", name: "namespaces" }, namespace))?;
        // Cheaper than parsing, and exact: a quote inside a JSON string is escaped.
        if contains(&entry.bytes, b"\"deletionTimestamp\":")
            && metadata::deleting(&crate::store::document::parse(&entry.bytes))
        {
            return Err(Failure::terminating(resource.subject(), name, namespace));
        }
        Ok(())
    }

    /// Removes events past their time.
    pub async fn expire_events(&self) {
        let scope = Scope { resource: Arc::from(events::STORED_IN), namespace: None };
        let page = self.store.list(&scope, None, None, None).unwrap_or_default();
        let served = self.registry.served();
        let Some(resource) = served.find("", "v1", "events") else { return };
        for (_, entry) in page.entries {
            let event = crate::store::document::parse(&entry.bytes);
            if events::expired(&event, self.now()) {
                verbs::delete::purge(self, resource, &crate::registry::key(resource, &event)).await;
            }
        }
    }

    /// Answers a request.
    pub async fn handle(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        // Read even where it is not used: a connection whose request is left unread cannot carry the next.
        let body = match parts.method {
            Method::GET | Method::HEAD => Ok(Bytes::new()),
            _ => read(body).await,
        };
        let body = match body {
            Ok(body) => body,
            Err(failure) => return reply::failure(&failure),
        };
        let header = |name| text(&parts.headers, name);
        let route = Route::parse(parts.uri.path());
        let accept = self.check_accept(&parts.method, &route, header(ACCEPT));
        let accept = match accept.and_then(|()| Accept::parse(header(ACCEPT))) {
            Ok(accept) => accept,
            Err(failure) => return reply::failure(&failure),
        };
        let options = Options::parse(parts.uri.query());
        let reply = match route {
            Route::Resource(target) => {
                let served = self.registry.served();
                match served.find(&target.group, &target.version, &target.plural) {
                    None => unknown_resource(&served, &target.group, &target.version),
                    Some(resource) => {
                        let call = Call {
                            resource: Arc::clone(resource),
                            target,
                            options,
                            accept,
                            content_type: header(CONTENT_TYPE).unwrap_or_default().to_owned(),
                            user_agent: header(USER_AGENT).unwrap_or_default().to_owned(),
                            body,
                        };
                        self.resource(&parts.method, &call).await
                    }
                }
            }
            Route::Deeper(group, version) => unknown_resource(&self.registry.served(), &group, &version),
            route => self.document(&parts.method, &route, accept),
        };
        match reply {
            Ok(reply) => reply.into_response(accept.syntax),
            Err(failure) => reply::failure(&failure),
        }
    }

    /// Refuses answers that the router before the built-in kinds does not know.
    fn check_accept(&self, method: &Method, route: &Route, header: Option<&str>) -> Result<(), Failure> {
        let Route::Resource(target) = route else { return Ok(()) };
        let served = self.registry.served();
        match served.find(&target.group, &target.version, &target.plural) {
            Some(resource) if resource.kind_rules().is_some() => {
                Accept::check_built_in(header, method == Method::GET && target.name.is_none())
            }
            _ => Ok(()),
        }
    }

    fn document(&self, method: &Method, route: &Route, accept: Accept) -> Result<Reply, Failure> {
        if method != Method::GET && method != Method::HEAD {
            return Err(Failure::method_not_allowed());
        }
        let served = self.registry.served();
        match route {
            Route::Root => Ok(Reply::value(discovery::paths(&served))),
            Route::Version => Ok(Reply::value(discovery::version())),
            Route::Health(path) => Ok(health(path)),
            Route::CoreVersions if accept.aggregated => Ok(discovery::aggregated(&served, true)),
            Route::Groups if accept.aggregated => Ok(discovery::aggregated(&served, false)),
            Route::CoreVersions => Ok(Reply::value(discovery::core_versions())),
            Route::Groups => Ok(Reply::value(discovery::groups(&served))),
            Route::Group(group) => {
                Ok(discovery::group(&served, group).map_or_else(Reply::page_not_found, Reply::value))
            }
            Route::GroupVersion(group, version) => match discovery::resources(&served, group, version) {
                Some(list) => Ok(Reply::value(list)),
                None if kinds::all().any(|kind| kind.group == group) => Err(Failure::no_resource()),
                None => Ok(Reply::page_not_found()),
            },
            Route::OpenApiIndex => {
                let index = served.openapi_index.get_or_init(|| openapi::index(&served));
                let mut reply = Reply::value(index.clone());
                reply.content_type = Some("text/plain; charset=utf-8");
                Ok(reply)
            }
            Route::OpenApi(group, version) => {
                let document = openapi::document(&served, group, version);
                let nothing = || Reply::new(StatusCode::NOT_FOUND, Payload::Bytes(Bytes::new()));
                Ok(document.map_or_else(nothing, Reply::value))
            }
            Route::OpenApiV2 | Route::Unknown | Route::Deeper(..) | Route::Resource(_) => {
                Ok(Reply::page_not_found())
            }
        }
    }

    async fn resource(self: &Arc<Self>, method: &Method, call: &Call) -> Result<Reply, Failure> {
        let resource = Arc::clone(&call.resource);
        if misplaced(&resource, &call.target, method) {
            return if resource.kind_rules().is_none() {
                Ok(Reply::page_not_found())
            } else if resource.namespaced && call.target.name.is_none() {
                // The list of all namespaces has this path.
                Err(Failure::method_not_allowed())
            } else {
                Err(Failure::no_resource())
            };
        }
        let warning = resource.deprecation.as_slice();
        let mut reply = self.verb(method, call).await.map_err(|failure| failure.after(warning))?;
        reply.warnings.splice(..0, warning.iter().cloned());
        Ok(reply)
    }

    async fn verb(self: &Arc<Self>, method: &Method, call: &Call) -> Result<Reply, Failure> {
        let named = call.target.name.is_some();
        let subresource = call.target.subresource.as_deref();
        if call.resource.is_review() {
            return match (method, named) {
                (&Method::POST, false) => verbs::create::review(self, call),
                _ => Err(Failure::method_not_allowed()),
            };
        }
        let known = match subresource {
            None | Some("status") => subresource.is_none() || call.resource.status,
            Some("scale") => call.resource.scale.is_some(),
            Some("finalize") => call.resource.kind == "Namespace" && call.resource.group.is_empty(),
            Some(_) => false,
        };
        if !known {
            // Kubernetes says so too: an unknown subresource of a custom resource is an object that is not there.
            return Err(match call.resource.kind_rules() {
                None => call.not_found(),
                Some(_) => Failure::no_resource(),
            });
        }
        let problems = names::segment(call.name());
        if !problems.is_empty() {
            let (name, problems) = (call.name(), problems.join(";"));
            return Err(Failure::bad_request(format!("Name parameter invalid: \"{name}\": {problems}")));
        }
        let watching = call.target.watching || call.options.flag("watch") == Some(true);
        match (method, named, subresource) {
            (&Method::GET | &Method::HEAD, true, Some("scale")) => verbs::scale::get(self, call),
            (&Method::GET | &Method::HEAD, true, Some("finalize")) => Err(Failure::method_not_allowed()),
            (&Method::GET | &Method::HEAD, _, _) if watching => verbs::watch::watch(self, call),
            (&Method::GET | &Method::HEAD, true, _) => verbs::get::get(self, call),
            (&Method::GET | &Method::HEAD, false, _) => verbs::list::list(self, call).await,
            (&Method::POST, false, _) => verbs::create::create(self, call).await,
            // The body alone says what is created; the router of custom resources does not look at the name.
            (&Method::POST, true, None) if call.resource.kind_rules().is_none() => {
                verbs::create::create(self, call).await
            }
            (&Method::PUT, true, Some("scale")) => verbs::scale::update(self, call).await,
            (&Method::PUT, true, _) => verbs::update::update(self, call).await,
            (&Method::PATCH, true, Some("scale")) => verbs::scale::patch(self, call).await,
            (&Method::PATCH, true, _) if subresource != Some("finalize") => {
                verbs::patch::patch(self, call).await
            }
            (&Method::DELETE, true, None) => verbs::delete::delete(self, call).await,
            (&Method::DELETE, false, _) if call.resource.verbs().contains(&"deletecollection") => {
                verbs::delete::delete_collection(self, call).await
            }
            (&Method::PUT | &Method::PATCH, false, _) if call.resource.kind_rules().is_none() => {
                Err(Failure::bad_request("name must be provided"))
            }
            (method, true, Some(_)) if call.resource.kind_rules().is_none() => {
                let verb = if method == Method::POST { "create" } else { "delete" };
                Err(Failure::not_supported(call.resource.subject(), verb))
            }
            _ => Err(Failure::method_not_allowed()),
        }
    }

    /// What a write means beyond its object: owners, namespaces, definitions.
    pub async fn written(&self, resource: &Resource, old: Option<&Value>, new: &Value, removed: bool) {
        let key = crate::registry::key(resource, new);
        self.owners.note(&key, old, (!removed).then_some(new));
        let lost_owner = removed || metadata::deleting(new);
        let has_owners = new.pointer("/metadata/ownerReferences").is_some();
        if removed {
            let owners = new
                .pointer("/metadata/ownerReferences")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            let uid = metadata::text(new, "uid").to_owned();
            let _ = self.work.send(Work::Gone { uid, namespace: key.namespace.clone(), owners });
        } else if has_owners && old.is_none() {
            let _ = self.work.send(Work::Check(key.clone()));
        }
        if lost_owner && !removed {
            let _ = self.work.send(Work::Deleting(key.clone()));
        }
        if lost_owner && let Some(namespace) = Some(&key.namespace).filter(|namespace| !namespace.is_empty())
        {
            let _ = self.work.send(Work::Namespace(namespace.clone()));
        }
        if &*resource.storage == "/namespaces" && !removed && metadata::deleting(new) {
            let _ = self.work.send(Work::Namespace(key.name.clone()));
        }
        if &*resource.storage == definitions::STORED_IN {
            self.define(new, removed).await;
        } else if removed && resource.terminating {
            let _ = self.work.send(Work::Definition(format!("{}.{}", resource.plural, resource.group)));
        }
    }

    /// Serves what a definition says, or no longer says, from now on.
    async fn define(&self, definition: &Value, removed: bool) {
        let name = metadata::text(definition, "name").to_owned();
        let mut status = Value::Null;
        // Not what was written, but what is stored now: another write may have come between.
        self.registry.define(&name, || {
            let definitions = self.definitions();
            let stored = definitions.iter().find(|stored| metadata::text(stored, "name") == name);
            let Some(mut stored) = stored.cloned() else { return Vec::new() };
            status = definitions::status(&stored, &definitions, self.now());
            if let Some(members) = stored.as_object_mut() {
                members.insert("status".to_owned(), status.clone());
            }
            definitions::resources(&stored)
        });
        if removed || status.is_null() {
            return;
        }
        if metadata::deleting(definition) {
            let _ = self.work.send(Work::Definition(name.clone()));
        }
        if definition.get("status") != Some(&status) {
            let set = move |object: &mut Value| {
                if let Some(members) = object.as_object_mut() {
                    members.insert("status".to_owned(), status.clone());
                }
            };
            let served = self.registry.served();
            if let Some(resource) = served.find("apiextensions.k8s.io", "v1", "customresourcedefinitions") {
                let key = crate::registry::key(resource, definition);
                verbs::write::amend(self, resource, &key, "status", set).await;
            }
        }
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

fn text(headers: &HeaderMap, name: http::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn health(path: &str) -> Reply {
    if path.contains('/') && !path.ends_with("/ping") {
        return Reply::page_not_found();
    }
    Reply::new(StatusCode::OK, Payload::Text("ok"))
}

fn unknown_resource(served: &crate::registry::Served, group: &str, version: &str) -> Result<Reply, Failure> {
    let built_in = kinds::all().any(|kind| kind.group == group && kind.version == version);
    if built_in && served.has(group, version) {
        return Err(Failure::no_resource());
    }
    Ok(Reply::page_not_found())
}

/// Whether the path does not fit the resource's scope.
fn misplaced(resource: &Resource, target: &Target, method: &Method) -> bool {
    match (resource.namespaced, &target.namespace) {
        (false, Some(_)) => true,
        // Without a namespace only lists and watches of all namespaces make sense.
        (true, None) => target.name.is_some() || !matches!(*method, Method::GET | Method::HEAD),
        _ => false,
    }
}

async fn read(body: Body) -> Result<Bytes, Failure> {
    match Limited::new(body, body::LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Failure::too_large(body::LIMIT)),
        Err(error) => Err(Failure::bad_request(format!("failed to read the body: {error}"))),
    }
}
