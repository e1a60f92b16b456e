//! Health checks, each in its own task: a provider that answers slowly delays no other one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::runtime::reflector::ObjectRef;
use tokio::{sync::mpsc, time::Instant};
use vitistack_machine::{BackendContext, BackendType};
use vitistack_plan::{
    Redacted,
    provider::{Checks, Health},
    refusals,
};
use vitistack_runtime::lock;
use vitistack_types::v1alpha1::MachineProvider;

use super::load::secret_of;
use crate::{caches::Caches, calls::PATIENCE};

/// What a check depends on. When it changes, earlier results do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Basis {
    generation: Option<i64>,
    secret_version: Option<String>,
}

impl Basis {
    pub(super) fn of(provider: &MachineProvider, caches: &Caches) -> Self {
        Self {
            generation: provider.metadata.generation,
            secret_version: secret_of(provider).and_then(|secret| caches.secrets.version(&secret)),
        }
    }
}

/// The checks of all providers, by UID.
pub(super) struct HealthChecks {
    states: Arc<Mutex<HashMap<String, State>>>,
    finished: mpsc::UnboundedSender<ObjectRef<MachineProvider>>,
    context: BackendContext,
}

#[derive(Default)]
struct State {
    health: Health,
    basis: Basis,
    is_running: bool,
    started: Option<Instant>,
}

impl HealthChecks {
    /// Sends every provider whose check has finished to `finished`.
    pub(super) fn new(
        finished: mpsc::UnboundedSender<ObjectRef<MachineProvider>>,
        context: BackendContext,
    ) -> Self {
        Self { states: Arc::default(), finished, context }
    }

    /// Returns the health of a provider so far.
    pub(super) fn health(&self, provider: &MachineProvider) -> Health {
        lock(&self.states).get(&uid(provider)).map(|state| state.health.clone()).unwrap_or_default()
    }

    /// Records that requests to a provider fail: it is not trusted any more.
    pub(super) fn calls_failed(&self, provider: &MachineProvider) {
        if let Some(state) = lock(&self.states).get_mut(&uid(provider)) {
            let health = std::mem::take(&mut state.health);
            state.health = health.after_failed_calls(refusals::calls_failed(PATIENCE));
        }
    }

    /// Forgets a provider.
    pub(super) fn forget(&self, provider: &MachineProvider) {
        lock(&self.states).remove(&uid(provider));
    }

    /// Forgets every provider.
    pub(super) fn forget_all(&self) {
        lock(&self.states).clear();
    }

    /// Starts a check if one is due. Returns when to come again.
    pub(super) fn check(
        &self,
        provider: &Arc<MachineProvider>,
        basis: Basis,
        backend: &Arc<dyn BackendType>,
        credentials: Option<Redacted<Vec<u8>>>,
        now: Instant,
    ) -> Duration {
        let checks = Checks::from(&provider.spec);
        let mut states = lock(&self.states);
        let state = states.entry(uid(provider)).or_default();
        if state.is_running {
            return checks.timeout;
        }
        let since_last = state.started.map(|started| now.saturating_duration_since(started));
        let is_changed = state.basis != basis;
        if let Some(left) = checks.due_in(since_last, is_changed) {
            return left;
        }

        let health = std::mem::take(&mut state.health);
        let health = if is_changed { health.changed() } else { health };
        *state = State { health, basis, is_running: true, started: Some(now) };
        drop(states);

        let check = Check {
            states: Arc::clone(&self.states),
            finished: self.finished.clone(),
            context: self.context.clone(),
            provider: Arc::clone(provider),
            backend: Arc::clone(backend),
            credentials,
        };
        tokio::spawn(check.run());
        checks.timeout
    }
}

/// One check of one provider.
struct Check {
    states: Arc<Mutex<HashMap<String, State>>>,
    finished: mpsc::UnboundedSender<ObjectRef<MachineProvider>>,
    context: BackendContext,
    provider: Arc<MachineProvider>,
    backend: Arc<dyn BackendType>,
    credentials: Option<Redacted<Vec<u8>>>,
}

impl Check {
    /// Asks the provider and records the answer.
    async fn run(self) {
        let checks = Checks::from(&self.provider.spec);
        let probe = self.backend.probe(&self.context, &self.provider, self.credentials.as_ref());
        let answer = tokio::time::timeout(checks.timeout, probe).await;
        let answer = answer.unwrap_or_else(|_| Err(refusals::probe_timed_out(checks.timeout)));
        if let Some(state) = lock(&self.states).get_mut(&uid(&self.provider)) {
            state.health = std::mem::take(&mut state.health).after(answer, checks.failure_threshold);
            state.is_running = false;
        }
        // Fails only when the controller has ended.
        let _ = self.finished.send(ObjectRef::from_obj(self.provider.as_ref()));
    }
}

fn uid(provider: &MachineProvider) -> String {
    provider.metadata.uid.clone().unwrap_or_default()
}
