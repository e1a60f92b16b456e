//! The server: the state that all verbs share, and the routing of a request to its verb.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use http::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
};
use http_body_util::{BodyExt, Limited};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::{
    backup, body, discovery,
    garbage::{Owners, Work},
    kinds::{self, crds, events},
    metadata, names, openapi,
    registry::{Registry, Resource},
    reply::{self, Accept, Payload, Reply},
    request::{Options, Route, Target},
    status::{Failure, Subject},
    store::{Key, Scope, Store},
    verbs,
};

/// Returns the current time; replaced in tests.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
/// Returns a new UID; replaced in tests.
pub type Uids = Arc<dyn Fn() -> Uuid + Send + Sync>;
/// Whether a token is the administrator's.
pub type TokenCheck = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The namespaces that always exist.
const FIRST_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// How long a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The state that all verbs share.
pub struct Server {
    /// The objects.
    pub store: Arc<dyn Store>,
    /// The resources.
    pub registry: Registry,
    /// The clock.
    pub clock: Clock,
    /// The source of UIDs.
    pub uids: Uids,
    /// The index of dependents by owner.
    pub owners: Owners,
    /// The queue of cleanup tasks.
    pub work: mpsc::UnboundedSender<Work>,
    /// Checks tokens, for token reviews.
    pub is_admin_token: TokenCheck,
    /// How often a quiet watch receives a bookmark.
    pub bookmarks_every: Duration,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Server").field("registry", &self.registry).finish_non_exhaustive()
    }
}

/// A request for a resource, with everything that a verb needs.
#[derive(Debug)]
pub struct Call {
    /// The target of the path.
    pub target: Target,
    /// The resource.
    pub resource: Arc<Resource>,
    /// The query.
    pub options: Options,
    /// The result of content negotiation.
    pub accept: Accept,
    /// The content type of the body.
    pub content_type: String,
    /// The user agent.
    pub user_agent: String,
    /// The body.
    pub body: Bytes,
}

impl Call {
    /// Returns the name of the object.
    #[must_use]
    pub fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or_default()
    }

    /// Returns the namespace, empty if there is none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.target.namespace.as_deref().unwrap_or_default()
    }

    /// Returns the key of the requested object.
    #[must_use]
    pub fn key(&self) -> Key {
        Key {
            resource: Arc::clone(&self.resource.storage),
            namespace: self.namespace().to_owned(),
            name: self.name().to_owned(),
        }
    }

    /// Returns the scope of a list.
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope { resource: Arc::clone(&self.resource.storage), namespace: self.target.namespace.clone() }
    }

    /// Returns the 404 failure for the requested object.
    #[must_use]
    pub fn not_found(&self) -> Failure {
        Failure::not_found(self.resource.subject(), self.name())
    }
}

impl Server {
    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Creates the standard namespaces, serves the stored CRDs, and builds the index of owners.
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

        for crd in self.crds() {
            if crds::established(&crd) {
                let name = metadata::text(&crd, "name");
                self.registry.define(name, || crds::resources(&crd));
            } else {
                // The process may have ended between the two steps.
                self.define(&crd, false).await;
            }
        }

        crate::garbage::build_index(self);
        Ok(())
    }

    /// Returns all stored CRDs.
    #[must_use]
    pub fn crds(&self) -> Vec<Value> {
        let scope = Scope { resource: Arc::from(crds::STORED_IN), namespace: None };
        let page = self.store.list(&scope, None, None, None).unwrap_or_default();
        page.entries.iter().map(|(_, entry)| crate::store::document::parse(&entry.bytes)).collect()
    }

    /// Rejects writes into a namespace that does not exist or is being deleted.
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

    /// Deletes expired events.
    pub async fn expire_events(&self) {
        let scope = Scope { resource: Arc::from(events::STORED_IN), namespace: None };
        let page = self.store.list(&scope, None, None, None).unwrap_or_default();
        let served = self.registry.served();
        let Some(resource) = served.find("", "v1", "events") else { return };
        for (_, entry) in page.entries {
            let event = crate::store::document::parse(&entry.bytes);
            if events::expired(&event, self.now()) {
                let key = crate::registry::key(resource, &event);
                verbs::delete::purge(self, resource, &key, entry.version).await;
            }
        }
    }

    /// Handles a request.
    pub async fn handle(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        if let Some(user) = impersonated(&parts.headers) {
            return reply::failure(&Failure::impersonation(user));
        }

        let route = Route::parse(parts.uri.path());
        // Only resources have bodies. One is read even if it is not used: a connection with an unread body
        // cannot carry the next request.
        let body = match (&parts.method, &route) {
            (&Method::GET | &Method::HEAD, _) => Ok(Bytes::new()),
            (_, Route::Resource(_)) => read(body).await,
            _ => Ok(Bytes::new()),
        };

        let body = match body {
            Ok(body) => body,
            Err(failure) => return reply::failure(&failure),
        };

        let header = |name| text(&parts.headers, name);
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

    /// Rejects media types that the router in front of the built-in kinds does not support.
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

    /// Answers a probe. As in Kubernetes, the reason is in the log and not in the answer, which anyone may ask for.
    fn health(&self, path: &str) -> Reply {
        if path.contains('/') && !path.ends_with("/ping") {
            return Reply::page_not_found();
        }
        if path.starts_with("livez") || self.store.problem().is_none() {
            return Reply::new(StatusCode::OK, Payload::Text("ok"));
        }
        let text = "[-]store failed: reason withheld; see the log of the server\nreadyz check failed\n";
        Reply::new(StatusCode::INTERNAL_SERVER_ERROR, Payload::Text(text))
    }

    fn document(&self, method: &Method, route: &Route, accept: Accept) -> Result<Reply, Failure> {
        if method != Method::GET && method != Method::HEAD {
            return Err(Failure::method_not_allowed());
        }
        let served = self.registry.served();
        match route {
            Route::Root => Ok(Reply::value(discovery::paths(&served))),
            Route::Version => Ok(Reply::value(discovery::version())),
            Route::Health(path) => Ok(self.health(path)),
            Route::Backup => Ok(backup::reply(self.store.snapshot(), self.now())),
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
        if is_wrong_scope(&resource, &call.target, method) {
            return if resource.kind_rules().is_none() {
                Ok(Reply::page_not_found())
            } else if resource.namespaced && call.target.name.is_none() {
                // This is also the path of the list of all namespaces.
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
            // As in Kubernetes: an unknown subresource of a custom resource is an object that does not exist.
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
            // Only the body determines what is created; the router of custom resources ignores the name.
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

    /// Handles the effects of a write on owners, namespaces and CRDs.
    pub async fn written(&self, resource: &Resource, old: Option<&Value>, new: &Value, removed: bool) {
        let key = crate::registry::key(resource, new);
        self.owners.record(&key, old, (!removed).then_some(new));
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
        if &*resource.storage == crds::STORED_IN {
            self.define(new, removed).await;
        } else if removed && resource.terminating {
            let _ = self.work.send(Work::Crd(format!("{}.{}", resource.plural, resource.group)));
        }
    }

    /// Updates the resources that are served for a CRD.
    async fn define(&self, crd: &Value, removed: bool) {
        let name = metadata::text(crd, "name").to_owned();
        let mut status = Value::Null;
        // Reads the stored object rather than the written one: another write may have come in between.
        self.registry.define(&name, || {
            let crds = self.crds();
            let stored = crds.iter().find(|stored| metadata::text(stored, "name") == name);
            let Some(mut stored) = stored.cloned() else { return Vec::new() };
            status = crds::status(&stored, &crds, self.now());
            if let Some(members) = stored.as_object_mut() {
                members.insert("status".to_owned(), status.clone());
            }
            crds::resources(&stored)
        });

        if removed || status.is_null() {
            return;
        }
        if metadata::deleting(crd) {
            let _ = self.work.send(Work::Crd(name.clone()));
        }

        if crd.get("status") != Some(&status) {
            let set = move |object: &mut Value| {
                if let Some(members) = object.as_object_mut() {
                    members.insert("status".to_owned(), status.clone());
                }
            };
            let served = self.registry.served();
            if let Some(resource) = served.find("apiextensions.k8s.io", "v1", "customresourcedefinitions") {
                let key = crate::registry::key(resource, crd);
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

fn unknown_resource(served: &crate::registry::Served, group: &str, version: &str) -> Result<Reply, Failure> {
    let built_in = kinds::all().any(|kind| kind.group == group && kind.version == version);
    if built_in && served.has(group, version) {
        return Err(Failure::no_resource());
    }
    Ok(Reply::page_not_found())
}

/// Whether the path does not match the resource's scope.
fn is_wrong_scope(resource: &Resource, target: &Target, method: &Method) -> bool {
    match (resource.namespaced, &target.namespace) {
        (false, Some(_)) => true,
        // Without a namespace, only lists and watches across all namespaces are possible.
        (true, None) => target.name.is_some() || !matches!(*method, Method::GET | Method::HEAD),
        _ => false,
    }
}

/// Returns the user of a request that impersonates one: every request acts as the administrator here.
fn impersonated(headers: &HeaderMap) -> Option<&str> {
    let name = headers.keys().find(|name| name.as_str().starts_with("impersonate-"))?;
    Some(text(headers, http::HeaderName::from_static("impersonate-user")).unwrap_or_else(|| name.as_str()))
}

async fn read(body: Body) -> Result<Bytes, Failure> {
    let reading = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, body::LIMIT).collect());
    let Ok(read) = reading.await else { return Err(Failure::slow_body(BODY_TIMEOUT.as_secs())) };
    match read {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Failure::too_large(body::LIMIT)),
        Err(error) => Err(Failure::bad_request(format!("failed to read the body: {error}"))),
    }
}
