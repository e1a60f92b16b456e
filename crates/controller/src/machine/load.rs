//! Everything that is read of one Machine before anything is planned.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kube::{ResourceExt, runtime::reflector::ObjectRef};
use vitistack_machine::{Backend, BackendError, Order, Target};
use vitistack_plan::{
    Redacted, Refusal,
    datacenter::check_growth,
    is_paused,
    machine::{
        Capabilities, Checks, Desired, Identity, Location, Observed, PlacementContext, References, Snapshot,
        StepResult, datacenter_of, identity, locate, placement, provider_of, resolve,
    },
    refusals,
};
use vitistack_runtime::ReconcileError;
use vitistack_types::{
    ObjectName, Placement,
    v1alpha1::{Datacenter, Machine, MachineProvider, ProviderType},
};

use super::MachineReconciler;
use crate::index::reference;

/// What Machines are found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum MachineKey {
    /// Its identity.
    Identity(Identity),
    /// The provider that it is placed on, or refers to.
    Provider(Placement),
    /// It is not placed and refers to no provider.
    Unplaced,
    /// A NetworkConfiguration.
    Network(ObjectName),
    /// A MachineClass.
    Class(String),
    /// A Secret.
    Secret(ObjectName),
}

/// Returns everything that a Machine is found by.
pub(super) fn keys(machine: &Machine) -> Vec<MachineKey> {
    let namespace = machine.namespace().unwrap_or_default();
    let spec = &machine.spec;
    let provider = placement(machine).or_else(|| provider_of(machine).map(Placement::Provider));

    let mut keys = vec![MachineKey::Identity(identity(machine))];
    keys.push(provider.map_or(MachineKey::Unplaced, MachineKey::Provider));
    let networks = spec.networks.iter().map(|interface| &interface.network_name);
    keys.extend(networks.map(|name| MachineKey::Network(ObjectName::new(&namespace, name))));
    keys.extend(spec.template.clone().map(MachineKey::Class));
    let secret = spec.cloud_init.as_ref().and_then(|cloud_init| cloud_init.secret_ref.as_ref());
    keys.extend(secret.map(|secret| MachineKey::Secret(ObjectName::new(&namespace, &secret.name))));
    keys
}

/// Which operator is responsible for a Machine.
pub(super) enum Responsibility {
    /// This one: the Machine is on this placement.
    Ours(Placement),
    /// Another one, or none yet.
    Others,
    /// None can be: the Machine cannot be placed.
    Unplaceable(Refusal),
}

/// One reconcile of one Machine: what was read, and what its steps ran into.
pub(super) struct Turn {
    pub(super) machine: Machine,
    pub(super) placement: Option<Placement>,
    pub(super) backend: Result<Arc<dyn Backend>, Refusal>,
    pub(super) target: Target,
    pub(super) order: Option<Order>,
    pub(super) now: Timestamp,
    /// Whether the claim of this provider was confirmed by the API server.
    pub(super) is_confirmed: bool,
    pub(super) last: StepResult,
    pub(super) desired: Result<Desired, Refusal>,
    pub(super) observed: Result<Observed, Refusal>,
    capabilities: Option<Capabilities>,
    twin: Option<ObjectName>,
    provider_deleting: bool,
    provider_paused: bool,
    silent_since: Option<Timestamp>,
    /// When a step was last carried out.
    pub(super) last_step_at: Option<Timestamp>,
}

impl Turn {
    /// Asks the provider for the observed state.
    pub(super) async fn observe(&mut self) {
        self.observed = match &self.backend {
            Ok(backend) => backend.observe(&self.target, self.order.as_ref()).await.map_err(refusal),
            Err(refusal) => Err(refusal.clone()),
        };
    }

    /// Everything that the plan is made from.
    pub(super) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            machine: &self.machine,
            desired: self.desired.as_ref(),
            observed: self.observed.as_ref(),
            capabilities: self.capabilities.as_ref(),
            twin: self.twin.as_ref(),
            placement: self.placement.as_ref(),
            provider_deleting: self.provider_deleting,
            provider_paused: self.provider_paused,
            last: &self.last,
            silent_since: self.silent_since(),
            last_step_at: self.last_step_at,
            now: self.now,
        }
    }

    /// Since when the provider has not answered; absent if it just did.
    pub(super) fn silent_since(&self) -> Option<Timestamp> {
        self.last.is_silent(&self.observed).then(|| self.silent_since.unwrap_or(self.now))
    }
}

/// The refusal of a backend.
pub(super) fn refusal(error: BackendError) -> Refusal {
    Refusal::new(error.reason, error.message)
}

impl MachineReconciler {
    /// Returns which operator is responsible for the Machine.
    pub(super) fn responsibility(&self, machine: &Machine) -> Responsibility {
        let providers = self.caches.providers.list();
        let providers: Vec<&MachineProvider> = providers.iter().map(Arc::as_ref).collect();
        let datacenters = self.caches.datacenters.list();
        let datacenters: Vec<&Datacenter> = datacenters.iter().map(Arc::as_ref).collect();
        let context = PlacementContext {
            providers: &providers,
            datacenters: &datacenters,
            watched: &self.caches.watched,
            is_own_cluster_offered: self.is_own_cluster_offered,
        };

        match locate(machine, &context) {
            Location::Refused(refusal) => Responsibility::Unplaceable(refusal),
            Location::At(placement) if self.type_of(&placement) == Some(self.backends.provider_type()) => {
                Responsibility::Ours(placement)
            }
            Location::At(_) | Location::Unplaced => Responsibility::Others,
        }
    }

    fn type_of(&self, placement: &Placement) -> Option<ProviderType> {
        match placement {
            Placement::OwnCluster => Some(ProviderType::OWN_CLUSTER),
            Placement::Provider(name) => Some(self.caches.provider(name)?.spec.type_),
        }
    }

    /// Reads everything for one reconcile of a Machine on this placement.
    pub(super) async fn load(
        &self,
        machine: &Machine,
        placement: Placement,
        backend: Result<Arc<dyn Backend>, Refusal>,
    ) -> Result<Turn, ReconcileError> {
        let provider = placement.provider().and_then(|name| self.caches.provider(name));
        let checks = Checks {
            permitted: provider
                .as_ref()
                .map_or(Ok(()), |provider| self.caches.check_namespace(machine, provider)),
            resolved: self.resolve(machine).await?,
            admitted: self.check_growth(machine),
        };
        let backend = checks.may_ask_provider(machine).and(backend);
        let desired = checks.desired(machine);
        let order = desired.as_ref().ok().cloned();

        Ok(Turn {
            order: order.map(|desired| Order { target: target(machine), desired }),
            capabilities: backend.as_ref().ok().map(|backend| backend.capabilities()),
            provider_deleting: provider
                .as_ref()
                .is_some_and(|provider| provider.metadata.deletion_timestamp.is_some()),
            provider_paused: provider.is_some_and(|provider| is_paused(&provider.metadata)),
            desired,
            ..self.turn(machine, Some(placement), backend)
        })
    }

    /// Reads a Machine that only finalizers of others hold. Nothing is left of it, so no provider is asked.
    pub(super) fn load_held_by_others(&self, machine: &Machine) -> Turn {
        self.turn(machine, placement(machine), Err(refusals::deleting()))
    }

    fn turn(
        &self,
        machine: &Machine,
        placement: Option<Placement>,
        backend: Result<Arc<dyn Backend>, Refusal>,
    ) -> Turn {
        let recalled = self.recall(machine);
        Turn {
            machine: machine.clone(),
            placement,
            backend,
            target: target(machine),
            order: None,
            now: self.caches.now(),
            is_confirmed: false,
            last: StepResult::default(),
            desired: Err(refusals::deleting()),
            observed: Ok(Observed::default()),
            capabilities: None,
            twin: self.twin(machine),
            provider_deleting: false,
            provider_paused: false,
            silent_since: recalled.silent_since,
            last_step_at: recalled.last_step_at,
        }
    }

    /// Checks that the Datacenter of a Machine admitted what it uses now.
    fn check_growth(&self, machine: &Machine) -> Result<(), Refusal> {
        let datacenter =
            datacenter_of(machine).and_then(|name| self.caches.datacenters.get(&reference(&name)));
        let Some(datacenter) = datacenter else { return Ok(()) };
        check_growth(machine, self.caches.usage(machine)?, &datacenter)
    }

    /// Another Machine with the same identity.
    fn twin(&self, machine: &Machine) -> Option<ObjectName> {
        let own = ObjectName::of(machine);
        let same = self.index.get(&MachineKey::Identity(identity(machine)));
        same.into_iter()
            .map(|other| ObjectName::new(other.namespace.unwrap_or_default(), other.name))
            .filter(|other| *other != own)
            .min()
    }

    /// The desired state that the spec of a Machine describes, or why there is none.
    async fn resolve(&self, machine: &Machine) -> Result<Result<Desired, Refusal>, ReconcileError> {
        // A Secret that cannot be read must not delay a deletion.
        if machine.metadata.deletion_timestamp.is_some() {
            return Ok(Err(refusals::deleting()));
        }

        let namespace = machine.namespace().unwrap_or_default();
        let class =
            machine.spec.template.as_deref().and_then(|name| self.caches.classes.get(&ObjectRef::new(name)));
        let networks = machine.spec.networks.iter().filter_map(|interface| {
            let name = &interface.network_name;
            let network = self.caches.networks.get(&ObjectRef::new(name).within(&namespace))?;
            Some((name.clone(), network.as_ref().clone()))
        });
        let mut references = References {
            class: class.map(|class| class.as_ref().clone()),
            networks: networks.collect(),
            secret: None,
        };

        let secret = machine.spec.cloud_init.as_ref().and_then(|cloud_init| cloud_init.secret_ref.as_ref());
        if let Some(reference) = secret
            && let Some(data) = self.caches.secrets.get(&ObjectName::new(&namespace, &reference.name)).await?
        {
            let bytes = data.get(&reference.key).map(|bytes| bytes.reveal().clone());
            let Ok(text) = bytes.map(String::from_utf8).transpose() else {
                return Ok(Err(refusals::secret_not_text(&reference.name, &reference.key)));
            };
            let text = text.map(|text| (reference.key.clone(), Redacted::new(text)));
            references.secret = Some(text.into_iter().collect::<BTreeMap<_, _>>());
        }
        Ok(resolve(machine, &references))
    }
}

/// Which backing machine a Machine stands for.
fn target(machine: &Machine) -> Target {
    Target {
        identity: identity(machine),
        uid: machine.uid().unwrap_or_default(),
        name: machine.name_any(),
        namespace: machine.namespace().unwrap_or_default(),
    }
}
