//! How the requests to providers end, as the operators of this process see it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures::{Stream, future::BoxFuture};
use kube::runtime::reflector::ObjectRef;
use tokio::time::Instant;
use vitistack_machine::{Backend, BackendError, Order, Progress, Target};
use vitistack_plan::{
    machine::{Capabilities, Observed, Part, Update},
    provider::Calls as Counted,
};
use vitistack_runtime::{Urgency, lock};
use vitistack_types::{ObjectName, Placement, v1alpha1::MachineProvider};

use crate::{index::reference, pace::Triggers};

/// A request that takes longer counts as failed. It is not aborted, because it may still be carried out.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The requests to every provider. Clones share them.
#[derive(Clone)]
pub struct Calls(Arc<Inner>);

struct Inner {
    /// The beginning of the clock by which requests are counted.
    started: Instant,
    counted: Mutex<HashMap<ObjectName, Counted>>,
    failing: Triggers<MachineProvider>,
}

impl Default for Calls {
    fn default() -> Self {
        Self(Arc::new(Inner { started: Instant::now(), counted: Mutex::default(), failing: Triggers::new() }))
    }
}

impl Calls {
    /// Whether enough requests to a provider failed that it is not to be trusted.
    pub(crate) fn are_failing(&self, provider: &ObjectName, threshold: u16) -> bool {
        let counted = lock(&self.0.counted).get(provider).copied();
        counted.is_some_and(|counted| counted.are_failing(threshold, self.now()))
    }

    /// Starts to count the requests to a provider from the beginning.
    pub(crate) fn forget(&self, provider: &ObjectName) {
        lock(&self.0.counted).remove(provider);
    }

    /// The providers to which a request failed.
    pub(crate) fn failing(
        &self,
    ) -> impl Stream<Item = (ObjectRef<MachineProvider>, Urgency)> + Send + 'static {
        self.0.failing.clone().stream()
    }

    /// Returns a backend whose requests are counted. The operator's own cluster is not: without it nothing works.
    pub(crate) fn count(&self, placement: &Placement, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        match placement {
            Placement::OwnCluster => backend,
            Placement::Provider(provider) => {
                Arc::new(CountedBackend { inner: backend, provider: provider.clone(), calls: self.clone() })
            }
        }
    }

    /// Returns the time on the clock by which requests are counted.
    fn now(&self) -> Duration {
        self.0.started.elapsed()
    }

    fn record(&self, provider: &ObjectName, is_write: bool, is_answered: bool, sent: Duration) {
        let mut counted = lock(&self.0.counted);
        let before = counted.get(provider).copied().unwrap_or_default();
        let after = before.after(is_write, is_answered, sent);
        if after == Counted::default() {
            counted.remove(provider);
        } else {
            counted.insert(provider.clone(), after);
        }
        drop(counted);
        if !is_answered {
            self.0.failing.add(reference(provider));
        }
    }
}

/// A backend whose requests are counted.
struct CountedBackend {
    inner: Arc<dyn Backend>,
    provider: ObjectName,
    calls: Calls,
}

impl CountedBackend {
    async fn counted<T>(
        &self,
        is_write: bool,
        mut request: BoxFuture<'_, Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        let sent = self.calls.now();
        let in_time = tokio::time::timeout(PATIENCE, &mut request).await;
        let is_late = in_time.is_err();
        if is_late {
            self.calls.record(&self.provider, is_write, false, sent);
        }
        let result = match in_time {
            Ok(result) => result,
            Err(_) => request.await,
        };

        // A late failure was counted.
        let is_answered = result.as_ref().err().is_none_or(|error| error.kind.is_answered());
        if is_answered || !is_late {
            self.calls.record(&self.provider, is_write, is_answered, sent);
        }
        result
    }
}

#[async_trait]
impl Backend for CountedBackend {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn observe(&self, target: &Target, order: Option<&Order>) -> Result<Observed, BackendError> {
        self.counted(false, self.inner.observe(target, order)).await
    }

    async fn create(&self, order: &Order) -> Result<Progress, BackendError> {
        self.counted(true, self.inner.create(order)).await
    }

    async fn update(&self, order: &Order, update: &Update) -> Result<Progress, BackendError> {
        self.counted(true, self.inner.update(order, update)).await
    }

    async fn delete(&self, target: &Target, part: &Part) -> Result<Progress, BackendError> {
        self.counted(true, self.inner.delete(target, part)).await
    }
}
