//! Garbage collection: dependents of deleted owners, contents of deleted namespaces and CRDs, expired events.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{
    kinds::crds,
    metadata::{self, FOREGROUND, ORPHAN},
    registry::{Resource, Served, owner_resource},
    server::Server,
    store::{Key, Scope, document},
    verbs::{
        delete::{self, Options, Propagation},
        write,
    },
};

/// The interval at which expired events and old versions are removed.
const HOUSEKEEPING: Duration = Duration::from_mins(5);

/// A cleanup task.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// An object was deleted: process its dependents.
    Gone {
        /// Its UID.
        uid: String,
        /// Its namespace.
        namespace: String,
        /// Its owners, one of which may wait for it.
        owners: Vec<Value>,
    },
    /// An object was created with owners: check that they exist.
    Check(Key),
    /// An object is being deleted: check whether it waits for its dependents.
    Deleting(Key),
    /// An object in a namespace was deleted, or the namespace itself is being deleted.
    Namespace(String),
    /// An object of a CRD was deleted, or the CRD itself is being deleted.
    Crd(String),
}

/// The keys of dependents by the UID of their owner.
#[derive(Debug, Default)]
pub struct Owners {
    dependents: Mutex<HashMap<String, HashSet<Key>>>,
}

fn owner_uids(object: Option<&Value>) -> HashSet<&str> {
    let owners =
        object.and_then(|object| object.pointer("/metadata/ownerReferences")).and_then(Value::as_array);
    owners.into_iter().flatten().filter_map(|owner| owner.get("uid")?.as_str()).collect()
}

impl Owners {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashSet<Key>>> {
        self.dependents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a write: the object before and after it.
    pub fn record(&self, key: &Key, old: Option<&Value>, new: Option<&Value>) {
        let (before, after) = (owner_uids(old), owner_uids(new));
        if before == after {
            return;
        }

        let mut dependents = self.lock();
        for uid in before.difference(&after) {
            if let Some(keys) = dependents.get_mut(*uid) {
                keys.remove(key);
                if keys.is_empty() {
                    dependents.remove(*uid);
                }
            }
        }

        for uid in after.difference(&before) {
            dependents.entry((*uid).to_owned()).or_default().insert(key.clone());
        }
    }

    /// Returns the dependents of an owner.
    #[must_use]
    pub fn of(&self, uid: &str) -> Vec<Key> {
        self.lock().get(uid).map(|keys| keys.iter().cloned().collect()).unwrap_or_default()
    }
}

/// Builds the index of owners from the store, and queues every object that is being deleted.
pub fn build_index(server: &Server) {
    for resource in server.registry.served().stored() {
        let scope = Scope { resource: Arc::clone(&resource.storage), namespace: None };
        let page = server.store.list(&scope, None, None, None).unwrap_or_default();
        for (_, entry) in page.entries {
            let object = document::parse(&entry.bytes);
            let key = crate::registry::key(resource, &object);
            server.owners.record(&key, None, Some(&object));
            if object.pointer("/metadata/ownerReferences").is_some() {
                let _ = server.work.send(Work::Check(key.clone()));
            }
            if metadata::deleting(&object) {
                let _ = server.work.send(Work::Deleting(key.clone()));
                match &*resource.storage {
                    "/namespaces" => drop(server.work.send(Work::Namespace(key.name))),
                    crds::STORED_IN => drop(server.work.send(Work::Crd(key.name))),
                    _ => {}
                }
            }
        }
    }
}

/// Processes cleanup tasks until the server is dropped.
pub async fn run(server: Weak<Server>, mut work: mpsc::UnboundedReceiver<Work>) {
    let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
    loop {
        tokio::select! {
            item = work.recv() => {
                let (Some(item), Some(server)) = (item, server.upgrade()) else { return };
                server.clean(item).await;
            }
            _ = housekeeping.tick() => {
                let Some(server) = server.upgrade() else { return };
                server.store.compact();
                server.expire_events().await;
            }
        }
    }
}

fn resource_of(served: &Served, key: &Key) -> Option<Arc<Resource>> {
    served.stored().find(|resource| resource.storage == key.resource).cloned()
}

impl Server {
    fn object(&self, served: &Served, key: &Key) -> Option<(Arc<Resource>, Value)> {
        let resource = resource_of(served, key)?;
        let entry = self.store.get(key)?;
        let object = resource.read_stored(&entry.bytes);
        Some((resource, object))
    }

    async fn clean(&self, work: Work) {
        match work {
            Work::Gone { uid, namespace, owners } => {
                for key in self.owners.of(&uid) {
                    self.check_owners(&key).await;
                }
                for owner in self.waiting(&owners, &namespace) {
                    self.wait_for_dependents(&owner).await;
                }
            }
            Work::Check(key) => self.check_owners(&key).await,
            Work::Deleting(key) => self.wait_for_dependents(&key).await,
            Work::Namespace(name) => self.clean_namespace(&name).await,
            Work::Crd(name) => self.clean_crd(&name).await,
        }
    }

    /// Returns whether an owner exists, and if so, whether it waits for its dependents.
    fn owner(&self, served: &Served, reference: &Value, namespace: &str) -> Option<Value> {
        let resource = owner_resource(served, reference)?;
        let key = Key {
            resource: Arc::clone(&resource.storage),
            namespace: if resource.namespaced { namespace.to_owned() } else { String::new() },
            name: reference.get("name")?.as_str()?.to_owned(),
        };
        let entry = self.store.get(&key)?;
        let owner = document::parse(&entry.bytes);
        (metadata::text(&owner, "uid") == reference.get("uid")?.as_str()?).then_some(owner)
    }

    /// Deletes an object whose owners are all gone; removes references to those that are.
    async fn check_owners(&self, key: &Key) {
        let served = self.registry.served();
        let Some((resource, object)) = self.object(&served, key) else { return };
        let references = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let Some(references) = references.filter(|references| !references.is_empty()) else { return };
        let mut solid = Vec::new();
        let mut dangling = Vec::new();
        let mut waiting = false;

        for reference in references {
            // An owner of a kind that is not served here counts as existing.
            let unknown = owner_resource(&served, reference).is_none();
            match self.owner(&served, reference, &key.namespace) {
                Some(owner) if waits_for_dependents(&owner) => waiting = true,
                Some(_) => solid.push(reference.clone()),
                None if unknown => solid.push(reference.clone()),
                None => dangling.push(reference.clone()),
            }
        }

        if !solid.is_empty() {
            if !dangling.is_empty() || waiting {
                let keep = solid;
                write::amend(self, &resource, key, "", move |object| {
                    metadata::fields(object).insert("ownerReferences".to_owned(), json!(keep));
                })
                .await;
            }
            return;
        }

        let propagation = if waiting && !self.owners.of(metadata::text(&object, "uid")).is_empty() {
            Propagation::Foreground
        } else {
            Propagation::Default
        };
        self.discard(&resource, key, propagation, metadata::text(&object, "uid")).await;
    }

    async fn discard(&self, resource: &Resource, key: &Key, propagation: Propagation, uid: &str) {
        let options = Options { propagation, uid: Some(uid.to_owned()), ..Options::default() };
        if let Err(failure) = delete::remove(self, resource, key, &options).await
            && failure.reason != "NotFound"
        {
            tracing::warn!(resource = resource.plural, name = key.name, %failure, "failed to delete an object");
        }
    }

    /// Processes the finalizers of an object that is being deleted: orphans its dependents, or deletes them
    /// first.
    async fn wait_for_dependents(&self, key: &Key) {
        let served = self.registry.served();
        let Some((resource, object)) = self.object(&served, key) else { return };
        let uid = metadata::text(&object, "uid").to_owned();
        let finalizers = metadata::texts(&object, "finalizers");
        if finalizers.contains(&ORPHAN) {
            for dependent in self.owners.of(&uid) {
                if let Some(resource) = resource_of(&served, &dependent) {
                    let uid = uid.clone();
                    write::amend(self, &resource, &dependent, "", move |object| {
                        remove_owner_reference(object, &uid);
                    })
                    .await;
                }
            }
            self.drop_finalizer(&resource, key, ORPHAN).await;
        } else if finalizers.contains(&FOREGROUND) {
            for dependent in self.owners.of(&uid) {
                Box::pin(self.check_owners(&dependent)).await;
            }
            if !self.is_blocked(&served, &uid) {
                self.drop_finalizer(&resource, key, FOREGROUND).await;
            }
        }
    }

    /// Returns whether a dependent delays the deletion of its owner. In a cycle every object waits for the next one, so
    /// a dependent that waits for its own owner does not.
    fn is_blocked(&self, served: &Served, uid: &str) -> bool {
        self.blocking_dependents(served, uid)
            .iter()
            .any(|dependent| !waits_for_dependents(dependent) || !self.waits_for(served, dependent, uid))
    }

    /// Returns the dependents that delay the deletion of their owner.
    fn blocking_dependents(&self, served: &Served, uid: &str) -> Vec<Value> {
        let dependents = self.owners.of(uid);
        let objects = dependents.iter().filter_map(|dependent| Some(self.object(served, dependent)?.1));
        objects.filter(|object| blocks(object, uid)).collect()
    }

    /// Returns whether an object in foreground deletion waits for the object with this UID, directly or through others
    /// in foreground deletion.
    fn waits_for(&self, served: &Served, object: &Value, uid: &str) -> bool {
        let mut seen = HashSet::new();
        let mut next = vec![metadata::text(object, "uid").to_owned()];
        while let Some(current) = next.pop() {
            if current == uid {
                return true;
            }
            if seen.contains(&current) {
                continue;
            }
            let dependents = self.blocking_dependents(served, &current);
            let waiting = dependents.iter().filter(|dependent| waits_for_dependents(dependent));
            next.extend(waiting.map(|dependent| metadata::text(dependent, "uid").to_owned()));
            seen.insert(current);
        }
        false
    }

    /// Returns the owners that wait for their dependents.
    fn waiting(&self, references: &[Value], namespace: &str) -> Vec<Key> {
        let served = self.registry.served();
        let owners = references.iter().filter_map(|reference| {
            let owner = self.owner(&served, reference, namespace).filter(waits_for_dependents)?;
            Some(crate::registry::key(&*owner_resource(&served, reference)?, &owner))
        });
        owners.collect()
    }

    async fn drop_finalizer(&self, resource: &Resource, key: &Key, finalizer: &'static str) {
        write::amend(self, resource, key, "", move |object| {
            if let Some(list) = metadata::fields(object).get_mut("finalizers").and_then(Value::as_array_mut) {
                list.retain(|name| name != finalizer);
            }
        })
        .await;
    }

    /// Deletes the contents of a namespace that is being deleted; removes the namespace once it is empty.
    async fn clean_namespace(&self, name: &str) {
        let served = self.registry.served();
        let key = Key { resource: Arc::from("/namespaces"), namespace: String::new(), name: name.to_owned() };
        let Some((namespaces, namespace)) = self.object(&served, &key) else { return };
        if !metadata::deleting(&namespace) {
            return;
        }

        let mut left = 0;
        for resource in served.stored().filter(|resource| resource.namespaced) {
            let scope = Scope { resource: Arc::clone(&resource.storage), namespace: Some(name.to_owned()) };
            self.discard_all(resource, &scope).await;
            left += self.store.list(&scope, None, None, None).map_or(0, |page| page.entries.len());
        }

        if left == 0 {
            write::amend(self, &namespaces, &key, "finalize", |object| {
                if let Some(finalizers) = object.pointer_mut("/spec/finalizers").and_then(Value::as_array_mut)
                {
                    finalizers.retain(|name| name != "kubernetes");
                }
            })
            .await;
        }
    }

    /// Deletes every object in the scope that is not being deleted yet.
    async fn discard_all(&self, resource: &Resource, scope: &Scope) {
        let page = self.store.list(scope, None, None, None).unwrap_or_default();
        for (_, entry) in page.entries {
            let object = document::parse(&entry.bytes);
            if !metadata::deleting(&object) {
                let key = crate::registry::key(resource, &object);
                self.discard(resource, &key, Propagation::Background, metadata::text(&object, "uid")).await;
            }
        }
    }

    /// Deletes the objects of a CRD that is being deleted; removes the CRD once none is left.
    async fn clean_crd(&self, name: &str) {
        let served = self.registry.served();
        let key =
            Key { resource: Arc::from(crds::STORED_IN), namespace: String::new(), name: name.to_owned() };
        let Some((crds, crd)) = self.object(&served, &key) else { return };
        if !metadata::deleting(&crd) {
            return;
        }

        let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let storage: Arc<str> = Arc::from(format!("{}/{}", text("/spec/group"), text("/spec/names/plural")));
        let scope = Scope { resource: Arc::clone(&storage), namespace: None };
        if let Some(resource) = served.stored().find(|resource| resource.storage == storage) {
            self.discard_all(resource, &scope).await;
        }

        if self.store.list(&scope, None, None, None).is_ok_and(|page| page.entries.is_empty()) {
            self.drop_finalizer(&crds, &key, crds::FINALIZER).await;
        }
    }
}

fn waits_for_dependents(owner: &Value) -> bool {
    metadata::deleting(owner) && metadata::texts(owner, "finalizers").contains(&FOREGROUND)
}

fn blocks(dependent: &Value, uid: &str) -> bool {
    let references = dependent.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    references.into_iter().flatten().any(|reference| {
        reference.get("uid") == Some(&json!(uid)) && reference.get("blockOwnerDeletion") == Some(&json!(true))
    })
}

fn remove_owner_reference(object: &mut Value, uid: &str) {
    if let Some(list) = metadata::fields(object).get_mut("ownerReferences").and_then(Value::as_array_mut) {
        list.retain(|reference| reference.get("uid") != Some(&json!(uid)));
    }
}
