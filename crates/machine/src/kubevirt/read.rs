//! Reads the objects of one machine from the provider's cluster.

use std::{collections::BTreeSet, sync::Arc};

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
    foreign_text,
    kind::{Kind, Object, belongs_to, made_for, named, part},
    names,
    shared_list::ListRequest,
    storage,
};
use crate::{BackendError, ErrorKind, Order, Target};

/// Why a read failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The cluster does not serve the kind: the program that does is not installed.
    NotServed,
    /// The request failed.
    Failed(BackendError),
}

impl ReadError {
    /// Returns the error of a failed read of a kind.
    #[must_use]
    pub fn new(kind: Kind, error: &kube::Error) -> Self {
        // Every cluster serves the kinds of Kubernetes itself, so a missing one is the error of something in between.
        if is_kind_missing(error) && kind.installed_by().is_some() {
            Self::NotServed
        } else {
            Self::Failed(failure::explain(kind, "read", "", error))
        }
    }
}

/// The reads of the backend, from caches or from the cluster.
#[async_trait]
pub trait Reader: Send + Sync + 'static {
    /// Returns the object of this name, even if it belongs to something else.
    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Object>, ReadError>;

    /// Returns the objects in a namespace that carry the identity.
    async fn owned(&self, kind: Kind, namespace: &str, identity: &Identity)
    -> Result<Vec<Object>, ReadError>;

    /// Returns all objects of a kind.
    async fn all(&self, kind: Kind) -> Result<Vec<Object>, ReadError>;

    /// Whether the cluster may only be read by namespace.
    fn is_namespaced(&self) -> bool {
        false
    }

    /// Whether reads may be stale.
    fn may_lag(&self) -> bool {
        false
    }

    /// Records the cluster's answer to a write, so that later reads are not older.
    fn wrote(&self, _kind: Kind, _object: DynamicObject) {}

    /// Records that exactly this object is deleted.
    fn deleted(&self, _kind: Kind, _object: &DynamicObject) {}
}

/// Reads every object from the cluster itself.
#[derive(Clone)]
pub struct LiveReader {
    client: Client,
    is_namespaced: bool,
}

impl LiveReader {
    /// Returns a reader of the cluster of `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, is_namespaced: false }
    }

    /// Returns the same reader, which may only read by namespace.
    pub(super) fn namespaced(self, is_namespaced: bool) -> Self {
        Self { is_namespaced, ..self }
    }
}

impl LiveReader {
    /// Returns the objects of several machines, in a state that has reached the requested version.
    pub(super) async fn owned_by_any(
        &self,
        kind: Kind,
        request: ListRequest,
    ) -> Result<Vec<Object>, ReadError> {
        let ListRequest { identities, namespaces, version } = request;
        let newest = ListParams::default().labels(&selector(&identities));
        let apis: Vec<Api<DynamicObject>> = if self.is_namespaced || namespaces.len() == 1 {
            let resource = kind.resource();
            let api = |name: &String| Api::namespaced_with(self.client.clone(), name, &resource);
            namespaces.iter().map(api).collect()
        } else {
            vec![Api::all_with(self.client.clone(), &kind.resource())]
        };

        let mut all = Vec::new();
        for api in apis {
            let found = list_reached(&api, &newest, version).await;
            all.extend(shared(found.map_err(|error| ReadError::new(kind, &error))?));
        }
        Ok(all)
    }
}

/// Lists objects in a state that has reached a version; the newest state without one.
async fn list_reached(
    api: &Api<DynamicObject>,
    newest: &ListParams,
    version: Option<u64>,
) -> kube::Result<Vec<DynamicObject>> {
    let found = match version.map(|version| version.to_string()) {
        Some(version) => {
            let reached = newest.clone().at(&version).matching(VersionMatch::NotOlderThan);
            match api.list(&reached).await {
                // The versions start over: the cluster was restored from a backup.
                Err(kube::Error::Api(status)) if status.code == 504 => api.list(newest).await,
                found => found,
            }
        }
        None => api.list(newest).await,
    };
    Ok(found?.items)
}

/// Returns a label selector for the objects of these machines.
fn selector(identities: &BTreeSet<Identity>) -> String {
    let values: Vec<&str> = identities.iter().map(Identity::as_str).collect();
    match values.as_slice() {
        [only] => format!("{}={only}", labels::IDENTITY),
        several => format!("{} in ({})", labels::IDENTITY, several.join(",")),
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
        let request = ListRequest {
            identities: [identity.clone()].into(),
            namespaces: [namespace.to_owned()].into(),
            version: None,
        };
        self.owned_by_any(kind, request).await
    }

    async fn all(&self, kind: Kind) -> Result<Vec<Object>, ReadError> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind.resource());
        let found = api.list(&ListParams::default()).await.map_err(|error| ReadError::new(kind, &error))?;
        Ok(shared(found.items))
    }
}

/// The objects that were found for one machine.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Whether the cluster serves KubeVirt's kinds.
    pub has_kubevirt: bool,
    /// Whether the cluster serves CDI's kinds.
    pub has_cdi: bool,
    /// Whether the cluster serves Multus' kinds.
    pub has_multus: bool,
    /// The VirtualMachine of the machine's name, even if it belongs to something else.
    pub virtual_machine: Option<Object>,
    /// The VirtualMachineInstance of the machine's name, even if it belongs to something else.
    pub instance: Option<Object>,
    /// The claims with the identity or with a required name.
    pub claims: Vec<Object>,
    /// The DataVolumes with the identity or with a required name.
    pub data_volumes: Vec<Object>,
    /// The Secret with the required name, even if it belongs to something else.
    pub secret: Option<Object>,
    /// The attachments with the required names, even if they belong to something else.
    pub attachments: Vec<Object>,
    /// The storage classes; read only if a claim has to be created, bound or expanded.
    pub storage_classes: Vec<Object>,
    /// An object that carries the identity and was created for a Machine of another namespace. It is in no other field.
    pub elsewhere: Option<Elsewhere>,
    /// The machine types that KubeVirt accepts, as patterns; none if not required or not known.
    pub machine_types: Option<Vec<String>>,
}

impl Found {
    /// Whether any object carries the identity.
    #[must_use]
    pub fn has_any(&self, identity: &Identity) -> bool {
        let one = [&self.virtual_machine, &self.instance, &self.secret];
        let all = one.into_iter().flatten().chain(&self.claims).chain(&self.data_volumes);
        all.into_iter().any(|object| belongs_to(object, identity))
    }

    /// Removes the objects that carry the identity and were created for a Machine of another namespace, so that this Machine
    /// cannot change them.
    pub(super) fn set_aside(&mut self, target: &Target) {
        let mut elsewhere = None;
        let mut stays = |kind: Kind, object: &Object| {
            let namespace = made_for(object, target);
            let stays = !belongs_to(object, &target.identity) || namespace == Some(&target.namespace);
            if !stays && elsewhere.is_none() {
                let thing = format!("{} {}", kind.name(), foreign_text::name(&object.name_any()));
                let namespace = namespace.map(|namespace| foreign_text::name(namespace).to_owned());
                elsewhere = Some(Elsewhere { thing, namespace });
            }
            stays
        };
        let mine = |object: &Object| belongs_to(object, &target.identity);
        self.virtual_machine = self.virtual_machine.take().filter(|it| stays(Kind::VirtualMachine, it));
        // KubeVirt creates the instance, without the namespace label, from a VirtualMachine that has it.
        if !self.virtual_machine.as_ref().is_some_and(mine) {
            self.instance = self.instance.take().filter(|it| stays(Kind::VirtualMachineInstance, it));
        }
        self.secret = self.secret.take().filter(|it| stays(Kind::Secret, it));
        self.claims.retain(|it| stays(Kind::PersistentVolumeClaim, it));
        self.data_volumes.retain(|it| stays(Kind::DataVolume, it));
        self.elsewhere = elsewhere;
    }
}

/// Reads the objects that a decision about the machine requires.
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

/// Reads what the order requires beyond the objects of the machine.
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

/// Returns the machine types in the configuration of KubeVirt; none if it may not be read. Then KubeVirt rejects an
/// unsupported type later.
async fn machine_types(reader: &dyn Reader) -> Result<Option<Vec<String>>, BackendError> {
    let found = match reader.all(Kind::KubeVirt).await {
        Err(ReadError::Failed(error)) if error.kind == ErrorKind::Refused => return Ok(None),
        found => served(found)?.1,
    };
    Ok(found.first().map(|kubevirt| {
        let configured = |pointer: &str| -> Vec<String> { part(kubevirt, pointer) };
        let pointers = [
            "/spec/configuration/emulatedMachines",
            "/spec/configuration/architectureConfiguration/amd64/emulatedMachines",
        ];
        let given = pointers.into_iter().map(configured).find(|patterns| !patterns.is_empty());
        given.unwrap_or_else(|| vec!["q35*".to_owned(), "pc-q35*".to_owned()])
    }))
}

/// Returns whether the kind is served, and what was read. A kind that is not served has no objects.
pub(super) fn served<T: Default>(read: Result<T, ReadError>) -> Result<(bool, T), BackendError> {
    match read {
        Ok(found) => Ok((true, found)),
        Err(ReadError::NotServed) => Ok((false, T::default())),
        Err(ReadError::Failed(error)) => Err(error),
    }
}

/// Returns the UID of an object.
#[must_use]
pub fn uid(object: &DynamicObject) -> String {
    object.uid().unwrap_or_default()
}
