//! The content of Secrets that objects refer to, read when it is needed and again only when it changed.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, core::PartialObjectMeta, runtime::reflector::ObjectRef};
use vitistack_clients::kubernetes::explain;
use vitistack_plan::Redacted;
use vitistack_runtime::{Cache, ReconcileError};

/// The data of one Secret.
pub type SecretData = Arc<BTreeMap<String, Redacted<Vec<u8>>>>;

/// Reads Secrets. Only metadata is watched, so that the process holds no Secret that nobody refers to. A clone shares
/// what was read.
#[derive(Clone)]
pub struct Secrets {
    client: Client,
    metadata: Cache<PartialObjectMeta<Secret>>,
    read: Arc<Mutex<HashMap<ObjectRef<Secret>, Read>>>,
}

/// A Secret as it was read, and its version then.
struct Read {
    version: String,
    data: SecretData,
}

/// A Secret could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadSecretError(String);

impl From<ReadSecretError> for ReconcileError {
    fn from(error: ReadSecretError) -> Self {
        Self::new("ReadSecret", error.0)
    }
}

impl Secrets {
    /// A reader of the Secrets in the cluster of `client`, of which `metadata` tells the versions.
    #[must_use]
    pub fn new(client: Client, metadata: &Cache<PartialObjectMeta<Secret>>) -> Self {
        let read: Arc<Mutex<HashMap<ObjectRef<Secret>, Read>>> = Arc::default();
        let (forgetting, present) = (Arc::clone(&read), metadata.clone());
        metadata.listen(move |change| {
            let key = key(
                change.object.metadata.namespace.as_deref().unwrap_or_default(),
                change.object.metadata.name.as_deref().unwrap_or_default(),
            );
            if present.get(&metadata_key(&key)).is_none() {
                lock(&forgetting).remove(&key);
            }
        });
        Self { client, metadata: metadata.clone(), read }
    }

    /// The metadata, for whoever wants to be woken by changes.
    #[must_use]
    pub fn metadata(&self) -> &Cache<PartialObjectMeta<Secret>> {
        &self.metadata
    }

    /// The version of a Secret, if there is one of that name.
    #[must_use]
    pub fn version(&self, namespace: &str, name: &str) -> Option<String> {
        self.metadata.get(&metadata_key(&key(namespace, name)))?.metadata.resource_version.clone()
    }

    /// The data of a Secret, if there is one of that name.
    pub async fn get(&self, namespace: &str, name: &str) -> Result<Option<SecretData>, ReadSecretError> {
        let Some(version) = self.version(namespace, name) else { return Ok(None) };
        let key = key(namespace, name);
        let held = lock(&self.read)
            .get(&key)
            .filter(|read| read.version == version)
            .map(|read| Arc::clone(&read.data));
        if held.is_some() {
            return Ok(held);
        }
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let found = api.get_opt(name).await.map_err(|error| {
            ReadSecretError(format!("failed to read Secret {namespace}/{name}: {}", explain(&error)))
        })?;
        let Some(secret) = found else { return Ok(None) };
        let data = secret.data.unwrap_or_default().into_iter();
        let data: SecretData = Arc::new(data.map(|(name, bytes)| (name, Redacted::new(bytes.0))).collect());
        // The version that was read, which may be newer than the one that was watched.
        let version = secret.metadata.resource_version.unwrap_or(version);
        lock(&self.read).insert(key, Read { version, data: Arc::clone(&data) });
        Ok(Some(data))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(namespace: &str, name: &str) -> ObjectRef<Secret> {
    ObjectRef::new(name).within(namespace)
}

fn metadata_key(key: &ObjectRef<Secret>) -> ObjectRef<PartialObjectMeta<Secret>> {
    let mut metadata = ObjectRef::new(&key.name);
    metadata.namespace.clone_from(&key.namespace);
    metadata
}
