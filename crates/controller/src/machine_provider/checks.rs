//! Health checks, each in a task of its own: a provider that is slow to answer keeps no other waiting.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::runtime::reflector::ObjectRef;
use tokio::{sync::mpsc, time::Instant};
use vitistack_plan::{
    Redacted, Refusal,
    provider::{Checks, Health},
};
use vitistack_types::{conditions::reason, v1alpha1::MachineProvider};

use super::Probe;
use crate::caches::Caches;

/// What a check was made of. With another basis it says nothing any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Basis {
    generation: Option<i64>,
    secret_version: Option<String>,
}

impl Basis {
    pub(super) fn of(provider: &MachineProvider, caches: &Caches) -> Self {
        let namespace = provider.metadata.namespace.as_deref().unwrap_or_default();
        let credentials = provider.spec.credentials.as_ref();
        Self {
            generation: provider.metadata.generation,
            secret_version: credentials
                .and_then(|credentials| caches.secrets.version(namespace, &credentials.secret_ref.name)),
        }
    }
}

/// The checks of all providers, by UID.
pub(super) struct Checking {
    states: Arc<Mutex<HashMap<String, State>>>,
    answered: mpsc::UnboundedSender<ObjectRef<MachineProvider>>,
}

#[derive(Default)]
struct State {
    health: Health,
    basis: Basis,
    is_asking: bool,
    asked: Option<Instant>,
}

impl Checking {
    /// Tells `answered` which provider has answered, or failed to.
    pub(super) fn new(answered: mpsc::UnboundedSender<ObjectRef<MachineProvider>>) -> Self {
        Self { states: Arc::default(), answered }
    }

    /// What the checks of a provider have shown so far.
    pub(super) fn health(&self, provider: &MachineProvider) -> Health {
        self.lock().get(&uid(provider)).map(|state| state.health.clone()).unwrap_or_default()
    }

    /// Forgets a provider.
    pub(super) fn forget(&self, provider: &MachineProvider) {
        self.lock().remove(&uid(provider));
    }

    /// Forgets every provider.
    pub(super) fn forget_all(&self) {
        self.lock().clear();
    }

    /// Begins a check if one is due. Says when to come again.
    pub(super) fn check(
        &self,
        provider: &Arc<MachineProvider>,
        basis: Basis,
        probe: &Arc<dyn Probe>,
        credentials: Option<Redacted<Vec<u8>>>,
        now: Instant,
    ) -> Duration {
        let checks = Checks::from(&provider.spec);
        let mut states = self.lock();
        let state = states.entry(uid(provider)).or_default();
        if state.is_asking {
            return checks.timeout;
        }
        let passed = state.asked.map(|asked| now.saturating_duration_since(asked));
        if let Some(left) = passed.and_then(|passed| checks.interval.checked_sub(passed))
            && !left.is_zero()
            && state.basis == basis
        {
            return left;
        }
        if state.basis != basis {
            state.health = std::mem::take(&mut state.health).changed();
        }
        *state =
            State { health: std::mem::take(&mut state.health), basis, is_asking: true, asked: Some(now) };
        let (provider, probe) = (Arc::clone(provider), Arc::clone(probe));
        let (states, answered) = (Arc::clone(&self.states), self.answered.clone());
        tokio::spawn(async move {
            let asking = probe.probe(&provider, credentials.as_ref());
            let answer = tokio::time::timeout(checks.timeout, asking).await;
            let answer = answer.unwrap_or_else(|_| Err(too_slow(checks.timeout)));
            if let Some(state) = lock(&states).get_mut(&uid(&provider)) {
                state.health = std::mem::take(&mut state.health).after(answer, checks.failure_threshold);
                state.is_asking = false;
            }
            // Fails only when the controller has ended.
            let _ = answered.send(ObjectRef::from_obj(provider.as_ref()));
        });
        checks.timeout
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, State>> {
        lock(&self.states)
    }
}

fn lock(states: &Mutex<HashMap<String, State>>) -> MutexGuard<'_, HashMap<String, State>> {
    states.lock().unwrap_or_else(PoisonError::into_inner)
}

fn uid(provider: &MachineProvider) -> String {
    provider.metadata.uid.clone().unwrap_or_default()
}

fn too_slow(timeout: Duration) -> Refusal {
    Refusal::new(
        reason::PROVIDER_UNREACHABLE,
        format!(
            "it did not answer within {timeout:?}: see that it runs and can be reached, or raise spec.healthCheck.timeout"
        ),
    )
}
