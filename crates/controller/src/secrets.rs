//! The content of Secrets that objects refer to, read when it is needed and again only when it changed.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, core::PartialObjectMeta};
use snafu::ResultExt;
use vitistack_plan::Redacted;
use vitistack_runtime::{Cache, lock};
use vitistack_types::ObjectName;

use crate::{
    error::{Error, ReadSecretSnafu},
    index::reference,
};

/// The data of one Secret.
pub type SecretData = Arc<BTreeMap<String, Redacted<Vec<u8>>>>;

/// Reads Secrets. Only metadata is watched, so that the process holds no Secret that no object refers to. Clones share what
/// was read.
#[derive(Clone)]
pub struct Secrets {
    client: Client,
    metadata: Cache<PartialObjectMeta<Secret>>,
    read: Arc<Mutex<HashMap<ObjectName, ReadSecret>>>,
}

/// A Secret as it was read, and its version then.
struct ReadSecret {
    version: String,
    data: SecretData,
}

impl Secrets {
    /// Reads the Secrets in the cluster of `client`, whose versions `metadata` has.
    #[must_use]
    pub fn new(client: Client, metadata: &Cache<PartialObjectMeta<Secret>>) -> Self {
        let read: Arc<Mutex<HashMap<ObjectName, ReadSecret>>> = Arc::default();
        let (forgetting, present) = (Arc::clone(&read), metadata.clone());
        metadata.listen(move |change| {
            let name = ObjectName::from_metadata(&change.object.metadata);
            if present.get(&reference(&name)).is_none() {
                lock(&forgetting).remove(&name);
            }
        });
        Self { client, metadata: metadata.clone(), read }
    }

    /// The metadata, whose changes trigger controllers.
    #[must_use]
    pub fn metadata(&self) -> &Cache<PartialObjectMeta<Secret>> {
        &self.metadata
    }

    /// Returns the version of a Secret, if it exists.
    #[must_use]
    pub fn version(&self, name: &ObjectName) -> Option<String> {
        self.metadata.get(&reference(name))?.metadata.resource_version.clone()
    }

    /// Returns the data of a Secret, if it exists.
    pub(crate) async fn get(&self, name: &ObjectName) -> Result<Option<SecretData>, Error> {
        let Some(version) = self.version(name) else { return Ok(None) };
        let known = lock(&self.read)
            .get(name)
            .filter(|read| read.version == version)
            .map(|read| Arc::clone(&read.data));
        if known.is_some() {
            return Ok(known);
        }

        let api: Api<Secret> = Api::namespaced(self.client.clone(), &name.namespace);
        let found = api.get_opt(&name.name).await.with_context(|_| ReadSecretSnafu { name: name.clone() })?;
        let Some(secret) = found else { return Ok(None) };

        let data = secret.data.unwrap_or_default().into_iter();
        let data: SecretData = Arc::new(data.map(|(name, bytes)| (name, Redacted::new(bytes.0))).collect());
        // The version that was read, which may be newer than the one that was watched.
        let version = secret.metadata.resource_version.unwrap_or(version);
        lock(&self.read).insert(name.clone(), ReadSecret { version, data: Arc::clone(&data) });
        Ok(Some(data))
    }
}
