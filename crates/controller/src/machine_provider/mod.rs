//! The operator `machine-provider`: whether a provider can be logged in to and answers, what is used of it, and that it
//! does not go while machines are on it.

mod checks;
mod load;
mod probe;
mod report;

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::stream;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use tokio::{sync::mpsc, time::Instant};
use vitistack_clients::kubernetes::{explain, is_conflict};
use vitistack_plan::{
    is_paused,
    machine::{has_finalizer, placement},
    provider::{Circuit, Snapshot, status},
};
use vitistack_runtime::{
    Controller, Lane, Outcome, Process, ReconcileError, Reconciler, Urgency, events::Events, finalizer,
    permissions::Permission,
};
use vitistack_types::{
    labels,
    v1alpha1::{MachineProvider, ProviderType},
};

use self::checks::{Basis, Checking};
pub(crate) use self::load::credentials;
pub use self::probe::{KubeVirtProbe, Probe, SimulatedProbe};
use crate::{
    Index,
    backends::Stores,
    caches::{Caches, name_of, reference},
    pace::{Pace, Wakes},
};

/// Name of the operator, of its lease and, with underscores, the prefix of its series.
pub const NAME: &str = "machine-provider-operator";

/// Exactly what the operator asks of the Kubernetes API, besides what the kit does.
pub const PERMISSIONS: &[Permission] = &[
    Permission {
        group: "vitistack.io",
        resources: &["machines", "machineclasses"],
        verbs: &["list", "watch"],
        own_namespace_only: false,
    },
    Permission {
        group: "vitistack.io",
        resources: &["machineproviders"],
        verbs: &["list", "watch", "patch"],
        own_namespace_only: false,
    },
    Permission {
        group: "vitistack.io",
        resources: &["machineproviders/status"],
        verbs: &["patch"],
        own_namespace_only: false,
    },
    Permission {
        group: "",
        resources: &["secrets"],
        verbs: &["get", "list", "watch"],
        own_namespace_only: false,
    },
    // The worlds of simulated providers go with them.
    Permission {
        group: "",
        resources: &["configmaps"],
        verbs: &["delete", "deletecollection"],
        own_namespace_only: true,
    },
];

/// When to look again at what somebody else wrote at the same time.
const AFTER_OVERTAKEN: Duration = Duration::from_millis(200);

/// Adds the operator to a process. It is about the providers of the types that it has a probe for, and no others. With a
/// simulated provider its world goes, from where `stores` has it.
pub fn add(
    process: &mut Process,
    caches: &Caches,
    probes: impl IntoIterator<Item = Arc<dyn Probe>>,
    stores: Stores,
) {
    let mut operator = process.operator(NAME);
    let wakes: Wakes<MachineProvider> = Wakes::new();
    let marking = wakes.clone();
    caches.machines.listen(move |change| {
        let machines = [Some(&change.object), change.before.as_ref()];
        // One that was given back or let go too: its provider may wait to go.
        let [is_held, was_held] =
            machines.map(|machine| machine.is_some_and(|machine| has_finalizer(machine)));
        if change.urgency == Urgency::Event && is_held == was_held {
            return;
        }
        machines
            .into_iter()
            .flatten()
            .filter_map(|machine| placement(machine).and_then(reference))
            .for_each(|provider| marking.mark(provider));
    });
    let by_secret = Index::new(&caches.providers, |provider| {
        let namespace = provider.metadata.namespace.as_deref().unwrap_or_default();
        let credentials = provider.spec.credentials.iter();
        credentials.map(|credentials| format!("{namespace}/{}", credentials.secret_ref.name)).collect()
    });
    let (answered, answers) = mpsc::unbounded_channel();
    let reconciler = ProviderReconciler {
        caches: caches.clone(),
        events: operator.events(),
        probes: probes.into_iter().map(|probe| (probe.provider_type(), probe)).collect(),
        checking: Checking::new(answered),
        pace: Pace::default(),
        stores,
    };
    let answers = stream::unfold(answers, |mut answers| async move {
        answers.recv().await.map(|provider| ((provider, Urgency::Event), answers))
    });
    operator.control(
        Controller::new("MachineProvider", &caches.providers, reconciler)
            .watches(caches.secrets.metadata(), move |secret| by_secret.get(&name_of(secret)))
            // Only waits until they are there; what wakes it comes through the stream.
            .watches(&caches.machines, |_| Vec::new())
            .watches(&caches.classes, |_| Vec::new())
            .woken_by(wakes.stream())
            .woken_by(answers),
    );
    process.add(operator);
}

struct ProviderReconciler {
    caches: Caches,
    events: Events,
    probes: HashMap<ProviderType, Arc<dyn Probe>>,
    checking: Checking,
    pace: Pace,
    stores: Stores,
}

#[async_trait]
impl Reconciler<MachineProvider> for ProviderReconciler {
    fn lane(&self, provider: &MachineProvider) -> Lane {
        match provider {
            provider if provider.metadata.deletion_timestamp.is_some() => Lane::Delete,
            provider if provider.status.is_none() => Lane::Create,
            _ => Lane::Observe,
        }
    }

    async fn reconcile(&self, provider: Arc<MachineProvider>) -> Result<Outcome, ReconcileError> {
        let Some(probe) = self.probes.get(&provider.spec.type_) else { return Ok(Outcome::Done) };
        let is_leaving = provider.metadata.deletion_timestamp.is_some();
        if !is_paused(&provider.metadata)
            && let Some(outcome) = self.hold_or_release(&provider).await?
        {
            return Ok(outcome);
        }
        let credentials = credentials(&self.caches, &provider).await?;
        let is_usable = !matches!(credentials, Some(Err(_)));
        let mut next = None;
        if is_usable && !is_leaving && !is_paused(&provider.metadata) {
            let secret = credentials.as_ref().and_then(|credentials| credentials.as_ref().ok()).cloned();
            let basis = Basis::of(&provider, &self.caches);
            next = Some(self.checking.check(&provider, basis, probe, secret, Instant::now()));
        }
        let health = self.checking.health(&provider);
        if is_usable && next.is_some() && health.circuit == Circuit::Unknown {
            // Its answer is awaited and comes with a wake.
            let after = next.unwrap_or_default();
            return Ok(Outcome::Wait { waiting_for: "the first answer of the provider".to_owned(), after });
        }
        let occupants = load::occupants(&self.caches, &provider);
        let snapshot = Snapshot {
            provider: &provider,
            credentials: credentials.map(|credentials| credentials.map(drop)),
            health: &health,
            used: load::used(&self.caches, &provider),
            occupants: &occupants,
        };
        let held = self.report(&provider, &status(&snapshot, self.caches.now())).await?;
        let next = next.map(|after| ("the next health check", after));
        let held = held.map(|after| ("the totals to settle", after));
        Ok(match [next, held].into_iter().flatten().min_by_key(|(_, after)| *after) {
            Some((waiting_for, after)) => Outcome::Wait { waiting_for: waiting_for.to_owned(), after },
            None => Outcome::Done,
        })
    }

    fn rest(&self) {
        self.checking.forget_all();
    }
}

impl ProviderReconciler {
    /// Holds a provider by its finalizer as long as it is there, and releases one that is to go and has no machines.
    /// None if there is more to do.
    async fn hold_or_release(&self, provider: &MachineProvider) -> Result<Option<Outcome>, ReconcileError> {
        let metadata = &provider.metadata;
        if metadata.deletion_timestamp.is_none() {
            let patch = finalizer::first_patch(metadata, labels::PROVIDER_IN_USE, &[].into());
            let Some(patch) = patch else { return Ok(None) };
            let outcome = self.patch(provider, &patch).await?;
            // Its echo wakes it again.
            let waiting_for = "the provider as it was just written".to_owned();
            return Ok(Some(outcome.unwrap_or(Outcome::Wait { waiting_for, after: AFTER_OVERTAKEN })));
        }
        let Some(patch) = finalizer::removal_patch(metadata, labels::PROVIDER_IN_USE) else {
            return Ok(Some(Outcome::Done));
        };
        // The cache is asked first, because it is cheap, and the server last, because the cache may show the past. Whoever
        // claims a Machine there after that finds the deletionTimestamp before its create: see `confirm_provider`.
        let is_free = load::occupants(&self.caches, provider).is_empty()
            && load::is_free_now(&self.caches.client, provider).await?;
        if !is_free {
            return Ok(None);
        }
        self.checking.forget(provider);
        if provider.spec.type_ == ProviderType::Simulated {
            // Before the finalizer goes, so that whoever comes after a crash does it again.
            let deleted = (self.stores)(provider).delete_all().await;
            deleted.map_err(|error| ReconcileError::from_source("DeleteWorld", error))?;
        }
        Ok(Some(self.patch(provider, &patch).await?.unwrap_or(Outcome::Done)))
    }

    async fn patch(
        &self,
        provider: &MachineProvider,
        patch: &serde_json::Value,
    ) -> Result<Option<Outcome>, ReconcileError> {
        let namespace = provider.metadata.namespace.as_deref().unwrap_or_default();
        let name = provider.metadata.name.as_deref().unwrap_or_default();
        let api: Api<MachineProvider> = Api::namespaced(self.caches.client.clone(), namespace);
        match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => Ok(None),
            Err(error) if is_conflict(&error) => Ok(Some(Outcome::Wait {
                waiting_for: "what others wrote meanwhile".to_owned(),
                after: AFTER_OVERTAKEN,
            })),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Some(Outcome::Done)),
            Err(error) => Err(ReconcileError::new(
                "PatchProvider",
                format!("failed to patch MachineProvider {namespace}/{name}: {}", explain(&error)),
            )),
        }
    }
}
