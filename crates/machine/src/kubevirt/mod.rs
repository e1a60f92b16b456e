//! Machines on KubeVirt, in the cluster of the Machines or in another one.
//!
//! A machine is a VirtualMachine, a claim or DataVolume for each disk and, where needed, a Secret with its first-boot
//! configuration; a network is a NetworkAttachmentDefinition that all its machines share. [`plan()`] decides what they
//! are, [`changes()`] what has to be written, [`observe()`] what they say about the machine: all three without a cluster.

mod answers;
mod apply;
mod changes;
mod cloud_init;
mod failure;
mod kind;
mod names;
mod observe;
mod plan;
mod power;
mod prune;
mod read;
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

pub use changes::{Write, changes};
pub use cloud_init::DerivedSecret;
pub use failure::explain;
pub use kind::{Kind, Object, belongs_to, identity_of};
pub use observe::observe;
pub use plan::{Planned, Volume, plan};
pub use prune::prune;
pub use read::{Found, LiveReader, ReadError, Reader, find};

use self::answers::Answers;
use crate::{Backend, BackendError, Order, Progress, Target};

/// What the label on everything made says about who made it.
const MANAGER: &str = "kubevirt-operator";

/// The name under which fields are written.
const FIELD_MANAGER: &str = "vitistack-kubevirt";

/// Where machines are made, and whose they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Namespace for everything that is made; each Machine's own if none.
    pub namespace: Option<String>,
    /// The kind of the Machines, where they live in the same cluster; none if the cluster is a remote one, whose garbage
    /// collector would delete what belongs to an object it does not know.
    pub owner: Option<OwnerKind>,
    /// The zones that the provider says it has; where it says nothing, the nodes decide.
    pub zones: Vec<String>,
}

/// The kind of the objects that machines belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerKind {
    /// Group and version, such as `vitistack.io/v1alpha1`.
    pub api_version: String,
    /// Kind, such as `Machine`.
    pub kind: String,
}

impl Settings {
    /// The namespace that a machine is made in.
    #[must_use]
    pub fn namespace<'a>(&'a self, target: &'a Target) -> &'a str {
        self.namespace.as_deref().unwrap_or(&target.namespace)
    }

    /// Whether a machine is made beside its Machine, in the same namespace of the same cluster.
    #[must_use]
    pub fn is_beside(&self, target: &Target) -> bool {
        self.owner.is_some() && self.namespace(target) == target.namespace
    }

    /// The reference to the Machine, where the cluster and the namespace are the Machine's own.
    fn owner_of(&self, target: &Target) -> Option<OwnerReference> {
        let owner = self.owner.as_ref().filter(|_| self.is_beside(target))?;
        Some(virtual_machine::owner_reference(&owner.api_version, &owner.kind, &target.name, &target.uid))
    }

    /// Name, place and labels of something that is made for a machine.
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

/// What KubeVirt can do.
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

/// Machines on KubeVirt.
pub struct KubeVirt {
    client: Client,
    reader: Arc<dyn Reader>,
    settings: Settings,
    answers: Answers,
}

impl KubeVirt {
    /// A backend that writes with `client` and reads with `reader`, which may lag behind.
    #[must_use]
    pub fn new(client: Client, reader: Arc<dyn Reader>, settings: Settings) -> Self {
        Self { client, reader, settings, answers: Answers::new(Instant::now()) }
    }

    /// A backend that reads from the cluster itself, every time.
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
        let (live, now) = (LiveReader::new(self.client.clone()), Instant::now());
        // With no order and nothing there, somebody is about to let the Machine go.
        if order.is_none() && !found.has_any(&target.identity) {
            let sufficient = |kind| self.answers.sufficient(kind, &target.identity, now);
            return read::confirm_absence(&live, &self.settings, target, found, sufficient).await;
        }
        let machine = found.virtual_machine.as_ref();
        let is_shown = machine.is_some_and(|machine| belongs_to(machine, &target.identity));
        if !is_shown && self.answers.has_unheard(&target.identity, now) {
            return read::confirm_machine(&live, &self.settings, target, found).await;
        }
        Ok(found)
    }

    fn writer(&self) -> apply::Writer<'_> {
        apply::Writer { client: &self.client, reader: self.reader.as_ref(), answers: &self.answers }
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
        let asking = self.answers.asking(&order.target.identity);
        let power = order.desired.power;
        asking.ended(apply::specification(&self.writer(), &self.settings, order, &found, power).await)
    }

    async fn update(&self, order: &Order, update: &Update) -> Result<Progress, BackendError> {
        let found = self.find(&order.target, Some(order)).await?;
        let asking = self.answers.asking(&order.target.identity);
        asking.ended(apply::update(&self.writer(), &self.settings, order, &found, update).await)
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
