//! Machines on KubeVirt, in the cluster of the Machines or in another one.
//!
//! A machine consists of a VirtualMachine, a PersistentVolumeClaim or DataVolume for each disk and, where required, a
//! Secret with its first-boot configuration. A network is a NetworkAttachmentDefinition that its machines share.
//! [`plan()`] decides what these objects are, [`changes()`] what has to be written, and [`observe()`] derives the state of
//! the machine from them: all three without a cluster.

mod apply;
mod backend_type;
mod cache;
mod changes;
mod cloud_init;
mod confirm;
mod failure;
mod foreign_text;
mod kind;
mod names;
mod observe;
mod open;
mod plan;
mod power;
mod prune;
mod read;
mod render;
mod requests;
mod shared_list;
mod storage;
mod virtual_machine;

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Client, core::ObjectMeta};
use tokio::time::Instant;
use vitistack_plan::machine::{Capabilities, Observed, Part, Support, Update};
use vitistack_types::labels;

pub use backend_type::KubeVirtType;
pub use cache::CachedReader;
pub use changes::{Write, changes};
pub use cloud_init::DerivedSecret;
pub use failure::explain;
pub use kind::{Kind, Object, belongs_to, identity_of};
pub use observe::observe;
pub use open::{KubeVirtOpener, Probe, probe};
pub use plan::{Planned, Volume, plan};
pub use prune::prune;
pub use read::{Found, LiveReader, ReadError, Reader, find};

use self::{confirm::Confirmation, requests::Requests};
use crate::{Backend, BackendError, Limits, Order, Progress, Target};

/// The value of the managed-by label on every object that the backend creates.
const MANAGER: &str = "kubevirt-operator";

/// The field manager of every write.
const FIELD_MANAGER: &str = "vitistack-kubevirt";

/// Where machines are created, and which objects own them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The namespace of every object; the namespace of each Machine if none.
    pub namespace: Option<String>,
    /// The kind of the Machines if they are in the same cluster. None for a remote cluster, whose garbage collector would
    /// delete objects with an owner that does not exist there.
    pub owner: Option<OwnerKind>,
    /// The zones that the provider declares; if it declares none, the nodes decide.
    pub zones: Vec<String>,
    /// What the provider lets Machines use.
    pub limits: Limits,
}

/// The kind of the owners of machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerKind {
    /// Group and version, such as `vitistack.io/v1alpha1`.
    pub api_version: String,
    /// Kind, such as `Machine`.
    pub kind: String,
}

impl Settings {
    /// Returns the namespace that a machine is created in.
    #[must_use]
    pub fn namespace<'a>(&'a self, target: &'a Target) -> &'a str {
        self.namespace.as_deref().unwrap_or(&target.namespace)
    }

    /// Whether a machine is created in the cluster and namespace of its Machine.
    #[must_use]
    pub fn is_beside(&self, target: &Target) -> bool {
        self.owner.is_some() && self.namespace(target) == target.namespace
    }

    /// Returns the owner reference to the Machine, if the cluster and the namespace are those of the Machine.
    fn owner_of(&self, target: &Target) -> Option<OwnerReference> {
        let owner = self.owner.as_ref().filter(|_| self.is_beside(target))?;
        Some(virtual_machine::owner_reference(&owner.api_version, &owner.kind, &target.name, &target.uid))
    }

    /// Returns the metadata of an object that is created for a machine.
    fn metadata(&self, target: &Target, name: String) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: Some(self.namespace(target).to_owned()),
            labels: Some(BTreeMap::from([
                (labels::MANAGED_BY.to_owned(), MANAGER.to_owned()),
                (labels::MACHINE.to_owned(), target.name.clone()),
                (labels::MACHINE_NAMESPACE.to_owned(), target.namespace.clone()),
                (labels::IDENTITY.to_owned(), target.identity.as_str().to_owned()),
            ])),
            ..ObjectMeta::default()
        }
    }
}

/// Returns what KubeVirt can do.
pub(crate) fn capabilities() -> Capabilities {
    Capabilities {
        resize: Support::AtRestart,
        grow_disk: Support::InPlace,
        change_disks: Support::AtRestart,
        change_interfaces: Support::AtRestart,
        change_hardware: Support::AtRestart,
        power: true,
        zones: true,
        refused_fields: Vec::new(),
    }
}

/// The KubeVirt backend.
pub struct KubeVirt {
    client: Client,
    reader: Arc<dyn Reader>,
    settings: Settings,
    requests: Requests,
    confirmation: Confirmation,
}

impl KubeVirt {
    /// Returns a backend that writes with `client` and reads with `reader`, which may lag.
    #[must_use]
    pub fn new(client: Client, reader: Arc<dyn Reader>, settings: Settings) -> Self {
        let confirmation = Confirmation::new(&client, reader.is_namespaced());
        Self { client, reader, settings, requests: Requests::new(Instant::now()), confirmation }
    }

    /// Returns a backend that reads every object from the cluster itself.
    #[must_use]
    pub fn live(client: Client, settings: Settings) -> Self {
        let reader = Arc::new(LiveReader::new(client.clone()));
        Self::new(client, reader, settings)
    }

    async fn find(&self, target: &Target, order: Option<&Order>) -> Result<Found, BackendError> {
        let found = find(self.reader.as_ref(), &self.settings, target, order).await?;
        if !self.reader.may_lag() {
            return Ok(found);
        }

        let now = Instant::now();
        // Without an order and without any object the Machine is about to be released.
        if order.is_none() && !found.has_any(&target.identity) {
            let version = |kind| self.requests.sufficient_version(kind, &target.identity, now);
            return self.confirmation.absence(&self.settings, target, found, version).await;
        }
        let machine = found.virtual_machine.as_ref();
        let is_shown = machine.is_some_and(|machine| belongs_to(machine, &target.identity));
        if !is_shown && self.requests.has_unanswered(&target.identity, now) {
            return self.confirmation.machine(&self.settings, target, found).await;
        }
        Ok(found)
    }

    fn writer(&self) -> apply::Writer<'_> {
        apply::Writer { client: &self.client, reader: self.reader.as_ref(), requests: &self.requests }
    }
}

#[async_trait]
impl Backend for KubeVirt {
    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    async fn observe(&self, target: &Target, order: Option<&Order>) -> Result<Observed, BackendError> {
        let found = self.find(target, order).await?;
        Ok(observe(&self.settings, target, order, &found, Timestamp::now()))
    }

    async fn create(&self, order: &Order) -> Result<Progress, BackendError> {
        let found = self.find(&order.target, Some(order)).await?;
        let request = self.requests.start(&order.target.identity);
        request.finish(apply::create(&self.writer(), &self.settings, order, &found).await)
    }

    async fn update(&self, order: &Order, update: &Update) -> Result<Progress, BackendError> {
        let found = self.find(&order.target, Some(order)).await?;
        let request = self.requests.start(&order.target.identity);
        request.finish(apply::update(&self.writer(), &self.settings, order, &found, update).await)
    }

    async fn delete(&self, target: &Target, part: &Part) -> Result<Progress, BackendError> {
        let found = self.find(target, None).await?;
        let writer = self.writer();
        match part {
            Part::Machine => apply::delete_machine(&writer, target, &found).await,
            Part::Disks(names) => apply::delete_disks(&writer, target, names, &found).await,
            Part::BlankDisks(names) => apply::delete_blank_disks(&writer, target, names, &found).await,
            Part::Leftovers => apply::delete_leftovers(&writer, target, &found).await,
        }
    }
}
