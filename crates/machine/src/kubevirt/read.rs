//! What the provider's cluster has, for one machine. Reads only.

use std::sync::Arc;

use async_trait::async_trait;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, VersionMatch},
    core::DynamicObject,
};
use vitistack_plan::machine::{Elsewhere, Identity};
use vitistack_types::{
    labels,
    v1alpha1::{DomainMachine, MachineType},
};

use super::{
    Settings,
    failure::{self, is_kind_missing},
    kind::{Kind, Object, belongs_to, made_for, named, part},
    names, storage,
};
use crate::{BackendError, ErrorKind, Order, Target};

/// Why something could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The cluster does not know the kind: what serves it is not installed, or not yet.
    NotServed,
    /// The cluster did not answer, or not as it should.
    Failed(BackendError),
}

impl ReadError {
    /// What a failed read of a kind says.
    #[must_use]
    pub fn new(kind: Kind, error: &kube::Error) -> Self {
        // Kubernetes' own kinds are served by every cluster: whoever says otherwise is not the cluster.
        if is_kind_missing(error) && kind.installed_by().is_some() {
            Self::NotServed
        } else {
            Self::Failed(failure::explain(kind, "read", "", error))
        }
    }
}

/// The reads that the backend needs: from caches where there are some, else from the cluster.
#[async_trait]
pub trait Reader: Send + Sync + 'static {
    /// The object of this name, whoever made it.
    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Object>, ReadError>;

    /// The objects in a namespace that carry the identity.
    async fn owned(&self, kind: Kind, namespace: &str, identity: &Identity)
    -> Result<Vec<Object>, ReadError>;

    /// All objects of a kind.
    async fn all(&self, kind: Kind) -> Result<Vec<Object>, ReadError>;

    /// Whether what was written a moment ago may not be seen yet.
    fn may_lag(&self) -> bool {
        false
    }

    /// Hears what the cluster made of a write, so that what is read next is not older.
    fn assume(&self, _kind: Kind, _object: DynamicObject) {}

    /// Hears that exactly this object is gone.
    fn forget(&self, _kind: Kind, _object: &DynamicObject) {}
}

/// Reads from the cluster itself, every time.
#[derive(Clone)]
pub struct LiveReader {
    client: Client,
}

impl LiveReader {
    /// A reader of the cluster that the client talks to.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

impl LiveReader {
    /// The objects in a namespace that carry the identity, in a state that is not older than `version`; the newest if none.
    async fn owned_as_of(
        &self,
        kind: Kind,
        namespace: &str,
        identity: &Identity,
        version: Option<u64>,
    ) -> Result<Vec<Object>, ReadError> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind.resource());
        let newest = ListParams::default().labels(&format!("{}={identity}", labels::IDENTITY));
        let found = match version.map(|version| version.to_string()) {
            Some(version) => {
                let reached = newest.clone().at(&version).matching(VersionMatch::NotOlderThan);
                match api.list(&reached).await {
                    // Its versions begin anew: it was restored.
                    Err(kube::Error::Api(status)) if status.code == 504 => api.list(&newest).await,
                    found => found,
                }
            }
            None => api.list(&newest).await,
        };
        Ok(shared(found.map_err(|error| ReadError::new(kind, &error))?.items))
    }
}

fn shared(objects: Vec<DynamicObject>) -> Vec<Object> {
    objects.into_iter().map(Arc::new).collect()
}

#[async_trait]
impl Reader for LiveReader {
    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Object>, ReadError> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind.resource());
        match api.get(name).await {
            Ok(object) => Ok(Some(Arc::new(object))),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let error = kube::Error::Api(status);
                if is_kind_missing(&error) { Err(ReadError::new(kind, &error)) } else { Ok(None) }
            }
            Err(error) => Err(ReadError::new(kind, &error)),
        }
    }

    async fn owned(
        &self,
        kind: Kind,
        namespace: &str,
        identity: &Identity,
    ) -> Result<Vec<Object>, ReadError> {
        self.owned_as_of(kind, namespace, identity, None).await
    }

    async fn all(&self, kind: Kind) -> Result<Vec<Object>, ReadError> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind.resource());
        let found = api.list(&ListParams::default()).await.map_err(|error| ReadError::new(kind, &error))?;
        Ok(shared(found.items))
    }
}

/// Everything that was found for one machine.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Whether the cluster serves KubeVirt's kinds.
    pub has_kubevirt: bool,
    /// Whether the cluster serves CDI's kinds.
    pub has_cdi: bool,
    /// Whether the cluster serves Multus' kinds.
    pub has_multus: bool,
    /// The VirtualMachine of the machine's name, whoever made it.
    pub virtual_machine: Option<Object>,
    /// The VirtualMachineInstance of the machine's name, whoever made it.
    pub instance: Option<Object>,
    /// Claims with the identity, and whatever has a name that is needed.
    pub claims: Vec<Object>,
    /// DataVolumes with the identity, and whatever has a name that is needed.
    pub data_volumes: Vec<Object>,
    /// The Secret of the name that is needed, whoever made it.
    pub secret: Option<Object>,
    /// Attachments of the names that are needed, whoever made them.
    pub attachments: Vec<Object>,
    /// Storage classes; read only where a claim has to be made, to get its volume or to grow.
    pub storage_classes: Vec<Object>,
    /// Something that carries the identity and was made for a Machine of another namespace. It is nowhere else in here.
    pub elsewhere: Option<Elsewhere>,
    /// Machine types that KubeVirt accepts, as patterns; none where nobody asked or KubeVirt does not say.
    pub machine_types: Option<Vec<String>>,
}

impl Found {
    /// Whether anything carries the identity.
    #[must_use]
    pub fn has_any(&self, identity: &Identity) -> bool {
        let one = [&self.virtual_machine, &self.instance, &self.secret];
        let all = one.into_iter().flatten().chain(&self.claims).chain(&self.data_volumes);
        all.into_iter().any(|object| belongs_to(object, identity))
    }

    /// Takes out what carries the identity and was made for a Machine of another namespace, so that nothing can be done to
    /// it from here.
    fn set_aside(&mut self, target: &Target) {
        let mut elsewhere = None;
        let mut is_kept = |kind: Kind, object: &Object| {
            let namespace = made_for(object, target);
            let is_kept = !belongs_to(object, &target.identity) || namespace == Some(&target.namespace);
            if !is_kept && elsewhere.is_none() {
                let thing = format!("{} {}", kind.name(), object.name_any());
                elsewhere = Some(Elsewhere { thing, namespace: namespace.map(str::to_owned) });
            }
            is_kept
        };
        let mine = |object: &Object| belongs_to(object, &target.identity);
        self.virtual_machine = self.virtual_machine.take().filter(|it| is_kept(Kind::VirtualMachine, it));
        // KubeVirt makes the instance, without the label, from a machine that has it.
        if !self.virtual_machine.as_ref().is_some_and(mine) {
            self.instance = self.instance.take().filter(|it| is_kept(Kind::VirtualMachineInstance, it));
        }
        self.secret = self.secret.take().filter(|it| is_kept(Kind::Secret, it));
        self.claims.retain(|it| is_kept(Kind::PersistentVolumeClaim, it));
        self.data_volumes.retain(|it| is_kept(Kind::DataVolume, it));
        self.elsewhere = elsewhere;
    }
}

/// Reads everything that a decision about the machine needs, and nothing else.
pub async fn find(
    reader: &dyn Reader,
    settings: &Settings,
    target: &Target,
    order: Option<&Order>,
) -> Result<Found, BackendError> {
    let namespace = settings.namespace(target);
    let (has_kubevirt, virtual_machine) =
        served(reader.get(Kind::VirtualMachine, namespace, &target.name).await)?;
    let (_, instance) = served(reader.get(Kind::VirtualMachineInstance, namespace, &target.name).await)?;
    let (_, claims) = served(reader.owned(Kind::PersistentVolumeClaim, namespace, &target.identity).await)?;
    let (has_cdi, data_volumes) = served(reader.owned(Kind::DataVolume, namespace, &target.identity).await)?;
    let secret_name = names::cloud_init_secret(&target.name);
    let (_, secret) = served(reader.get(Kind::Secret, namespace, &secret_name).await)?;
    let mut found = Found {
        has_kubevirt,
        has_cdi,
        virtual_machine,
        instance,
        claims,
        data_volumes,
        secret,
        ..Found::default()
    };
    if let Some(order) = order {
        find_needed(reader, namespace, order, &mut found).await?;
    }
    found.set_aside(target);
    Ok(found)
}

/// Looks again at the cluster itself where a reader that may lag found nothing: only what we may have made a moment ago,
/// unheard, of the kinds that the cluster serves. An instance is not made by us, and does not outlive its machine.
/// `sufficient` says how new an answer about a kind has to be.
pub async fn confirm_absence(
    live: &LiveReader,
    settings: &Settings,
    target: &Target,
    mut found: Found,
    sufficient: impl Fn(Kind) -> Option<u64>,
) -> Result<Found, BackendError> {
    let namespace = settings.namespace(target);
    let secret_name = names::cloud_init_secret(&target.name);
    let owned = async |kind| live.owned_as_of(kind, namespace, &target.identity, sufficient(kind)).await;
    let (virtual_machine, claims, data_volumes, secret) = futures::join!(
        async {
            if found.has_kubevirt {
                live.get(Kind::VirtualMachine, namespace, &target.name).await
            } else {
                Ok(None)
            }
        },
        owned(Kind::PersistentVolumeClaim),
        async { if found.has_cdi { owned(Kind::DataVolume).await } else { Ok(Vec::new()) } },
        live.get(Kind::Secret, namespace, &secret_name),
    );
    found.virtual_machine = served(virtual_machine)?.1;
    found.claims = served(claims)?.1;
    found.data_volumes = served(data_volumes)?.1;
    found.secret = served(secret)?.1;
    found.set_aside(target);
    Ok(found)
}

/// Looks again at the cluster itself for a machine that was asked for without an answer.
pub async fn confirm_machine(
    live: &LiveReader,
    settings: &Settings,
    target: &Target,
    mut found: Found,
) -> Result<Found, BackendError> {
    if found.has_kubevirt {
        let namespace = settings.namespace(target);
        found.virtual_machine = served(live.get(Kind::VirtualMachine, namespace, &target.name).await)?.1;
        found.set_aside(target);
    }
    Ok(found)
}

/// What the order needs beyond what the machine has.
async fn find_needed(
    reader: &dyn Reader,
    namespace: &str,
    order: &Order,
    found: &mut Found,
) -> Result<(), BackendError> {
    let desired = &order.desired;
    for disk in &desired.disks {
        let name = names::claim(&desired.name, &disk.name);
        let source = disk.source.as_ref().and_then(|source| source.claim.clone());
        for name in [Some(name.clone()), source].into_iter().flatten() {
            if named(&found.claims, &name).is_none() {
                let (_, claim) = served(reader.get(Kind::PersistentVolumeClaim, namespace, &name).await)?;
                found.claims.extend(claim);
            }
        }
        if disk.source.is_some() && named(&found.data_volumes, &name).is_none() {
            let (_, volume) = served(reader.get(Kind::DataVolume, namespace, &name).await)?;
            found.data_volumes.extend(volume);
        }
    }
    let is_settled = |disk: &vitistack_plan::machine::DesiredDisk| {
        named(&found.claims, &names::claim(&desired.name, &disk.name)).is_some_and(|claim| {
            storage::is_bound(claim)
                && storage::requested(claim).is_some_and(|requested| requested >= disk.size)
        })
    };
    if !desired.disks.iter().all(is_settled) {
        found.storage_classes = served(reader.all(Kind::StorageClass).await)?.1;
    }
    for interface in &desired.interfaces {
        let name = names::attachment(&interface.network);
        let (has_multus, attachment) =
            served(reader.get(Kind::NetworkAttachmentDefinition, namespace, &name).await)?;
        found.has_multus = has_multus;
        found.attachments.extend(attachment.filter(|_| named(&found.attachments, &name).is_none()));
    }
    if matches!(desired.domain.machine, Some(DomainMachine { type_: MachineType::I440fx })) {
        found.machine_types = machine_types(reader).await?;
    }
    Ok(())
}

/// What KubeVirt's configuration says about machine types. A platform that may not read it learns it from KubeVirt's
/// refusal, later.
async fn machine_types(reader: &dyn Reader) -> Result<Option<Vec<String>>, BackendError> {
    let found = match reader.all(Kind::KubeVirt).await {
        Err(ReadError::Failed(error)) if error.kind == ErrorKind::Refused => return Ok(None),
        found => served(found)?.1,
    };
    Ok(found.first().map(|kubevirt| {
        let configured = |pointer: &str| -> Vec<String> { part(kubevirt, pointer) };
        let places = [
            "/spec/configuration/emulatedMachines",
            "/spec/configuration/architectureConfiguration/amd64/emulatedMachines",
        ];
        let given = places.into_iter().map(configured).find(|patterns| !patterns.is_empty());
        given.unwrap_or_else(|| vec!["q35*".to_owned(), "pc-q35*".to_owned()])
    }))
}

/// Whether the kind is served, and what was read; a kind that is not served has no objects.
fn served<T: Default>(read: Result<T, ReadError>) -> Result<(bool, T), BackendError> {
    match read {
        Ok(found) => Ok((true, found)),
        Err(ReadError::NotServed) => Ok((false, T::default())),
        Err(ReadError::Failed(error)) => Err(error),
    }
}

/// The uid of an object that was read.
#[must_use]
pub fn uid(object: &DynamicObject) -> String {
    object.uid().unwrap_or_default()
}
